"""The built-in agent `tools`: it runs the calls that the last assistant message left unanswered."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from starlette.requests import Request

from gateway.errors import NotFound, RequestError
from gateway.execution import outcomes
from gateway.execution.call import Call
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import ToolOutput
from gateway.execution.supervisor import RunSpec
from gateway.http.engine import Engine
from gateway.http.requests import read_body
from gateway.http.responses import REQUEST_ID
from gateway.http.run_start import run_key
from gateway.http.sessions import caller, identify
from gateway.run.records import CallRecord
from gateway.wire.agent_input import AgentInput, PendingCall, parse_agent_input
from gateway.wire.codec import decode, encode
from gateway.wire.inputs import fingerprint

__all__ = ["TOOLS_AGENT", "agent_spec"]

TOOLS_AGENT = "tools"


async def agent_spec(engine: Engine, request: Request) -> RunSpec:
    """The run that a `POST /agents/{agent}` asks for; refusals come before anything has started."""
    identity = identify(request)
    agent = request.path_params["agent"]
    if agent != TOOLS_AGENT:
        raise NotFound(f"No agent {agent!r}.", code="agent_not_found")
    agent_input = parse_agent_input(await read_body(request, engine.settings.max_input_bytes))
    key = run_key(request, identity, agent_input.input.run_id)
    if agent_input.input.resume:
        raise NotFound("This run has no open question with such an id.", code="interrupt_not_found")
    pending = list(agent_input.pending_calls())
    if not pending:
        message = "messages: the last assistant message has no unanswered tool call for agent `tools` to run."
        raise RequestError(message, details=[{"field": "messages", "message": "no unanswered tool call"}])
    who = caller(request, identity, request.scope[REQUEST_ID], **_metadata(agent_input))
    return RunSpec(
        key=key,
        thread_id=agent_input.input.thread_id,
        agent=agent,
        fingerprint=fingerprint(f"agents/{agent}", agent_input.parsed),
        caller=who,
        prepare=partial(_prepare, pending),
        job=CallsJob(who, parallel=engine.settings.parallel_tool_calls),
        context=partial(engine.context_for, request),
        parent_run_id=agent_input.input.parent_run_id,
        on_disconnect=agent_input.props.on_disconnect,
        disconnect_grace=agent_input.props.disconnect_grace,
        tools=await engine.session_tools(identity),
        messages=encode(agent_input.wire["messages"]),
    )


def _metadata(agent_input: AgentInput) -> dict[str, Any]:
    wire = agent_input.wire
    return {
        "forwarded_props": agent_input.forwarded_props,
        "context": wire.get("context") or [],
        "client_tools": wire.get("tools") or [],
    }


def _prepare(pending: list[PendingCall], run: LiveRun) -> None:
    for call in pending:
        arguments, refused = _arguments(call)
        # Known before it starts, so that it can be stopped while it waits for the one before it.
        run.machine.set_call(CallRecord(call.call_id, call.tool_name))
        Call(
            run,
            call.call_id,
            call.tool_name,
            None,  # looked up when it starts: a call before it may switch tools on and off
            arguments,
            refused=refused,
            parent_message_id=call.message_id,
            held=call.held,
        )


def _arguments(call: PendingCall) -> tuple[dict[str, Any], ToolOutput | None]:
    """The model's arguments: what is no object counts as `{}`, what is no JSON fails the call (contract 5.1)."""
    if not call.arguments.strip():
        return {}, None
    try:
        parsed = decode(call.arguments.encode("utf-8", "surrogatepass"))
    except (ValueError, json.JSONDecodeError) as error:
        message = f'Arguments of "{call.tool_name}" are not JSON: {error}'
        return {}, outcomes.invalid_arguments(message, [{"field": "arguments", "message": "not JSON"}])
    return (parsed if isinstance(parsed, dict) else {}), None
