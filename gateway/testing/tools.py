"""Running one tool in a test: the real executor, a store in memory, no HTTP, and a person who answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack, cast

from gateway.execution.call import Call
from gateway.execution.caller import AuthContext, Caller
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.resuming import resume_call
from gateway.execution.session_tools import SessionTools
from gateway.execution.spec import Resumption
from gateway.execution.supervisor import RunSpec, Supervisor, no_context
from gateway.execution.tools import Tool, tool
from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import StopRequest
from gateway.stores.memory import MemoryStore
from gateway.testing.events import Event, event_of
from gateway.testing.person import Answers, answered
from gateway.wire.codec import decode
from gateway.wire.json_schema import warm_up
from gateway.wire.sse import Decoder

__all__ = ["ContextOptions", "run_tool"]


class ContextOptions(TypedDict, total=False):
    """What a test may say about the call that `run_tool` makes; every default is what a plain request would give.

    - `run_id`, `thread_id`, `tool_call_id`, `parent_run_id`, `request_id`, `client_request_id`: str.
    - `session_id`: as `ctx.session_id`, `anon:…` or `user:…`.
    - `auth`: who calls, an `AuthContext`.
    - `context`: what the tool sees as `ctx.context`.
    - `metadata`: keys that are added to `ctx.metadata`, `{"headers": {"mcp-x": "1"}}` for example.
    - `timeout`: seconds, 0 for ever; the default is the tool's own, else the gateway's.
    - `answer`: what the person says to a question of the tool: a function of `{"key", "message", "reason", "schema",
      "arguments"}` that returns the payload, or an `InputResponse`. Without it approvals are given.
    - `stop_when`: a function of each event; once it is true, Stop is pressed as a person does.
    - `settings`: fields of `Settings` by name, `{"stop_grace": 0.2, "strict_payloads": True}` for example.
    """

    run_id: str
    thread_id: str
    tool_call_id: str
    parent_run_id: str
    request_id: str
    client_request_id: str
    session_id: str
    auth: AuthContext
    context: Any
    metadata: Mapping[str, Any]
    timeout: float
    answer: Answers
    stop_when: Callable[[Event], object]
    settings: Mapping[str, Any]


async def run_tool(
    tool: Tool | Callable[..., Any], arguments: Mapping[str, Any], **ctx: Unpack[ContextOptions]
) -> tuple[ToolOutput, list[Event]]:
    """Runs a tool as the gateway does: a run of its own, the real executor, a store in memory, no HTTP.

    Returns what the call ended in and all events of the run in order, `RUN_STARTED` to the terminal one, as dicts; of a
    tool that interrupts, those of all its runs. `tool` is what `@tool` made, or a plain function. The call is made
    whatever `visibility` and `requires` say: to keep callers away is the gateway's work. See `ContextOptions`.

    Never raises for an outcome: a tool that raises, arguments that do not fit, a time limit and Stop are outputs
    (`output.status`, `output.text`). Raises `TypeError` for an unknown keyword or what is no tool,
    `pydantic.ValidationError` for settings that do not fit, `RuntimeError` when the tool asks and there is no `answer`,
    `ValueError` for an answer that does not fit. Source: contract 2 and 5.1.

    ::

        output, events = await run_tool(import_rows, {"rows": ["a", "b"]})
        assert output.structured_content == {"imported": 2}
        assert [e["value"]["row"] for e in events if e.get("name") == "import.row"] == ["a", "b"]
    """
    unknown = sorted(set(ctx) - set(ContextOptions.__annotations__))
    if unknown:
        raise TypeError(f"run_tool has no option {', '.join(unknown)}.")
    made = tool if isinstance(tool, Tool) else _as_tool(tool)
    settings = Settings(**ctx.get("settings", {}))
    await asyncio.to_thread(warm_up)  # a question's schema is checked on the loop
    async with MemoryStore(settings) as store:
        supervisor = Supervisor(settings, store)
        await supervisor.open()
        try:
            return await _play(supervisor, _spec(made, arguments, settings, ctx), ctx)
        finally:
            await supervisor.close()


async def _play(supervisor: Supervisor, spec: RunSpec, ctx: ContextOptions) -> tuple[ToolOutput, list[Event]]:
    """The run, and those that resume it, until there is an output."""
    store, events = supervisor.store, list[Event]()
    while True:
        await supervisor.start(spec)
        events += await _follow(supervisor, spec.key, ctx)
        record = await store.get(spec.key)
        if record is not None and record.status == "interrupted":
            spec = await _resume(supervisor, spec, ctx)
        elif record is None or record.result is None:
            raise RuntimeError(f"The run ended without an output: {events[-1]}")
        else:
            return ToolOutput.from_wire(cast("dict[str, Any]", decode(record.result))), events


async def _resume(supervisor: Supervisor, spec: RunSpec, ctx: ContextOptions) -> RunSpec:
    """The run that goes on with the person's answer."""
    run_id = str(uuid.uuid4())
    (asked,) = [found for found in await supervisor.store.questions(spec.key) if found.kind == "interrupt"]
    answer = answered(asked, ctx.get("answer"), run_id)

    def prepare(run: LiveRun) -> None:
        spec.prepare(run)
        (call,) = run.calls.values()
        resume_call(call, answer)

    return replace(
        spec,
        key=RunKey(spec.key.owner, run_id),
        parent_run_id=spec.key.run_id,
        prepare=prepare,
        answers=Resumption(spec.key, ((asked, answer),)),
    )


def _as_tool(function: Callable[..., Any]) -> Tool:
    return tool(function)


def _spec(made: Tool, arguments: Mapping[str, Any], settings: Settings, ctx: ContextOptions) -> RunSpec:
    caller = Caller(
        request_id=ctx.get("request_id", uuid.uuid4().hex),
        session_id=ctx.get("session_id", f"anon:{uuid.uuid4().hex}"),
        client_request_id=ctx.get("client_request_id"),
        auth=ctx.get("auth"),
        metadata={
            "headers": {},
            "forwarded_props": {},
            "context": [],
            "client_tools": [],
            "client_request_id": ctx.get("client_request_id"),
            **ctx.get("metadata", {}),
        },
    )
    limit = ctx.get("timeout", settings.tool_timeout if made.timeout is None else made.timeout)
    call_id = ctx.get("tool_call_id", f"call_{uuid.uuid4().hex}")

    def prepare(run: LiveRun) -> None:
        Call(run, call_id, made.name, made, dict(arguments), limit)

    return RunSpec(
        key=RunKey(None, ctx.get("run_id", str(uuid.uuid4()))),
        thread_id=ctx.get("thread_id", str(uuid.uuid4())),
        agent="tools",
        fingerprint=b"",
        caller=caller,
        prepare=prepare,
        job=CallsJob(caller, single=True),
        context=partial(no_context, ctx.get("context")),
        parent_run_id=ctx.get("parent_run_id"),
        tools=SessionTools(Registry([made])),
    )


async def _follow(supervisor: Supervisor, key: RunKey, ctx: ContextOptions) -> list[Event]:
    decoder, events, stop_when = Decoder(), list[Event](), ctx.get("stop_when")
    async for data in supervisor.store.follow(key, 0):
        for message in decoder.feed(data):
            events.append(event_of(message))
            if stop_when is not None and stop_when(events[-1]):
                stop_when = None
                await supervisor.stop(StopRequest(key, "user"))
            elif events[-1].get("name") == "tool.waiting":
                await _answer(supervisor, events[-1]["value"].get("interruptId"), ctx.get("answer"))
    return events


async def _answer(supervisor: Supervisor, interrupt_id: str | None, answers: Answers | None) -> None:
    found = None if interrupt_id is None else await supervisor.store.find_question(interrupt_id)
    if found is not None and found[1].open:
        key, question = found
        answer = answered(question, answers)
        if await supervisor.store.replace_questions(key, [(question, answer)]):
            supervisor.questions.changed(answer)
