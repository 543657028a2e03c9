"""One tool call as a run: what a `POST /tools/{name}` asks for."""

from __future__ import annotations

import secrets
import uuid
from functools import partial

from pydantic.alias_generators import to_camel
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
from gateway.http.resume import Resumed, resumed
from gateway.http.run_start import run_key
from gateway.http.sessions import caller, identify
from gateway.settings import Settings
from gateway.wire.inputs import ToolRunInput, fingerprint, parse_body

__all__ = ["tool_spec"]


async def tool_spec(engine: Engine, request: Request, *, background: bool, as_json: bool = False) -> RunSpec:
    """The run that the request asks for; refusals come before anything has started."""
    identity = identify(request)
    name = request.path_params["tool"]
    if (known_soon := engine.tools.expected(name)) is not None:
        await known_soon()
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
    resume = None
    if body.resume and await engine.store.get(key) is None:  # a run that is kept has its answers
        resume = await resumed(engine, key.owner, key.run_id, body.thread_id, body.resume, tools)
        _check_same(body, name, resume)
    _check(known, body, background=background, resumes=bool(body.resume))
    who = caller(request, identity, request.scope[REQUEST_ID])
    call_id = _call_id(body, resume)
    timeout = _timeout(engine.settings, known, body.timeout)

    def prepare(run: LiveRun) -> None:
        if resume is None:
            Call(run, call_id, name, tool, body.arguments, timeout)
        else:  # whoever follows the conversation has the call already, in the message that it made
            resume.apply(Call(run, call_id, name, tool, {}, timeout, parent_message_id=call_id, held=True))

    thread_id = body.thread_id or (str(uuid.uuid4()) if resume is None else resume.record.thread_id)
    return RunSpec(
        key=key,
        thread_id=thread_id,
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
        channel="json" if as_json else "open",
        answers=None if resume is None else resume.answers,
    )


def _call_id(body: ToolRunInput, resume: Resumed | None) -> str:
    """A call that is made again keeps its id: its answers are kept under it."""
    if resume is not None:
        return next(iter(resume.answered))
    return body.tool_call_id or f"call_{secrets.token_urlsafe(9)}"


def _check_same(body: ToolRunInput, name: str, resume: Resumed) -> None:
    """What was asked about is what runs: a resume may repeat the call, and not change it."""
    (call_id, question), *more = resume.answered.items()
    if more or question.tool_name != name:
        message = f"resume: these questions are not of one call of {name!r}."
        raise RequestError(message, details=[{"field": "resume", "message": "not of one call of this tool"}])
    for field, given, known in (
        ("arguments", body.arguments, dict(question.arguments)),
        ("tool_call_id", body.tool_call_id, call_id),
    ):
        if field in body.model_fields_set and given != known:
            shown = to_camel(field)
            message = f"{shown} differs from the call that is resumed; leave it out."
            raise RequestError(message, details=[{"field": shown, "message": "differs from the call's"}])


def _check(tool: Tool, body: ToolRunInput, *, background: bool, resumes: bool) -> None:
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
    if not resumes:
        tool.validate(body.arguments)


def _timeout(settings: Settings, tool: Tool, wish: float | None) -> float:
    """Seconds, 0 for ever: the caller's wish within the cap, else the tool's, else the gateway's."""
    if wish is None:
        return settings.tool_timeout if tool.timeout is None else tool.timeout
    cap = settings.max_tool_timeout
    return min(wish or cap, cap) if cap else wish
