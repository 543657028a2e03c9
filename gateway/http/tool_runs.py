"""One tool call as a run: what a `POST /tools/{name}` asks for."""

from __future__ import annotations

import secrets
import uuid
from functools import partial

from starlette.requests import Request

from gateway.errors import GatewayError, InvalidArguments, NotFound, RequestError
from gateway.execution.call import Call
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.supervisor import RunSpec
from gateway.execution.tools import Tool
from gateway.http.engine import Engine
from gateway.http.requests import read_body
from gateway.http.responses import REQUEST_ID
from gateway.http.run_start import run_key
from gateway.http.sessions import caller, identify
from gateway.settings import Settings
from gateway.wire.inputs import ToolRunInput, fingerprint, parse_body

__all__ = ["tool_spec"]


async def tool_spec(engine: Engine, request: Request, *, background: bool) -> RunSpec:
    """The run that the request asks for; refusals come before anything has started."""
    identity = identify(request)
    name = request.path_params["tool"]
    tools = await engine.session_tools(identity)
    tool = tools.get(name)
    known = tool or engine.tools.get(name)
    missing = NotFound(f"No tool {name!r}.", code="tool_not_found")
    if known is None:
        raise missing
    try:
        body, parsed = parse_body(ToolRunInput, await read_body(request, engine.settings.max_body_bytes))
        key = run_key(request, identity, body.run_id or str(uuid.uuid4()))
    except GatewayError:
        if tool is None:
            raise missing from None
        raise
    if tool is None and await engine.store.get(key) is None:
        raise missing  # a run that is kept is joined although its tool has gone since, for it may have hidden itself
    _check(known, body, background=background)
    who = caller(request, identity, request.scope[REQUEST_ID])
    call_id = body.tool_call_id or f"call_{secrets.token_urlsafe(9)}"
    timeout = _timeout(engine.settings, known, body.timeout)

    def prepare(run: LiveRun) -> None:
        Call(run, call_id, name, tool, body.arguments, timeout)

    return RunSpec(
        key=key,
        thread_id=body.thread_id or str(uuid.uuid4()),
        agent="tools",
        fingerprint=fingerprint(f"tools/{name}", parsed),
        caller=who,
        prepare=prepare,
        job=CallsJob(who, single=True),
        context=partial(engine.context_for, request),
        parent_run_id=body.parent_run_id,
        on_disconnect=body.on_disconnect,
        disconnect_grace=body.disconnect_grace,
        tools=tools,
    )


def _check(tool: Tool, body: ToolRunInput, *, background: bool) -> None:
    """Refuses what the tool does not do, and arguments that do not fit it."""
    if background and tool.task_support == "forbidden":
        raise RequestError(f'"{tool.name}" does not run in the background.', code="task_forbidden")
    if not background and tool.task_support == "required":
        message = f'"{tool.name}" runs in the background only: send `Prefer: respond-async`.'
        raise RequestError(message, code="task_required")
    if not isinstance(body.arguments, dict):
        raise InvalidArguments(
            f'Arguments of "{tool.name}" must be a JSON object.',
            details=[{"field": "arguments", "message": "must be a JSON object"}],
        )
    tool.validate(body.arguments)


def _timeout(settings: Settings, tool: Tool, wish: float | None) -> float:
    """Seconds, 0 for ever: the caller's wish within the cap, else the tool's, else the gateway's."""
    if wish is None:
        return settings.tool_timeout if tool.timeout is None else tool.timeout
    cap = settings.max_tool_timeout
    return min(wish or cap, cap) if cap else wish
