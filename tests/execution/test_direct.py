"""Calls of adapters: the executor without a run. They never raise for an outcome, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gateway import AbortSignal, AuthContext, Gateway, ToolCall, ToolContext, ToolOutput, call_tool, tool
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import Tool
from gateway.stores.base import Visibility
from tests.execution import process_tools
from tests.execution.running import LONG, quiet

pytestmark = pytest.mark.allow_blocking  # to start a process blocks for a moment

Caller = Callable[..., Awaitable[ToolOutput]]


@tool
async def adds(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def adds_in_a_thread(a: int, b: int) -> int:
    """Adds two numbers elsewhere."""
    return a + b


@tool
async def fails() -> None:
    """Fails."""
    raise ValueError("as planned")


@tool
async def exits() -> None:
    """Ends the program, it thinks."""
    raise SystemExit(3)


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits for ever."""
    if ctx.context is not None:
        ctx.context.set()
    await asyncio.Event().wait()


@tool(requires="admin")
async def guarded(ctx: ToolContext) -> str | None:
    """For those who hold the scope."""
    return ctx.verified_subject


@tool(visibility="hidden")
async def hidden() -> str:
    """Not there until it is enabled."""
    return "here"


@tool
async def looks(ctx: ToolContext) -> dict[str, Any]:
    """Says what it sees, having said what nobody hears."""
    ctx.emit_custom_event("unheard", {"n": 1})
    ctx.report_progress(1, 2)
    await ctx.flush()
    return {
        "run": ctx.run_id,
        "parent": ctx.parent_run_id,
        "call": ctx.tool_call_id.startswith("call_"),
        "session": ctx.session_id,
        "metadata": dict(ctx.metadata),
        "trace": ctx.trace,
        "detach": ctx.detach,
        "context": ctx.context,
        "task": ctx.task is not None,
    }


@tool
async def nests(ctx: ToolContext) -> str:
    """Calls another tool."""
    output = await ctx.call_tool("adds_in_a_thread", {"a": 1, "b": 1})
    return f"{output.status} {output.text}"


TOOLS: list[Tool] = [
    adds,
    adds_in_a_thread,
    fails,
    exits,
    waits,
    guarded,
    hidden,
    looks,
    nests,
    process_tools.says,
]


@asynccontextmanager
async def calling(way: str, **options: Any) -> AsyncIterator[Caller]:
    """`gateway.call_tool` or the free one; afterwards no task is left."""
    before = asyncio.all_tasks()
    if way == "free":
        yield partial(call_tool, tools=TOOLS, **options)
    else:
        gateway = Gateway(TOOLS, stop_grace=0.3, **options)
        yield gateway.call_tool
        await gateway.shutdown()
    async with asyncio.timeout(LONG):
        await quiet(lambda: asyncio.all_tasks() <= before)


both_ways = pytest.mark.parametrize("way", ["gateway", "free"])

OUTCOMES: dict[str, tuple[ToolCall, dict[str, Any], str, str]] = {
    "an answer": (ToolCall("adds", {"a": 1, "b": 2}), {}, "completed", '{"result":3}'),
    "an answer of a thread": (ToolCall("adds_in_a_thread", {"a": 1, "b": 2}), {}, "completed", '{"result":3}'),
    "an answer of a process": (ToolCall("says", {"text": "hi"}), {}, "completed", '{"text":"hi"}'),
    "a nested call": (ToolCall("nests"), {}, "completed", 'completed {"result":2}'),
    "a failure": (ToolCall("fails", {}), {}, "failed", "Error [failed]: as planned"),
    "an exit": (ToolCall("exits", {}), {}, "failed", "Error [failed]: 3"),
    "wrong arguments": (ToolCall("adds", {"a": "x"}), {}, "failed", "Error [invalid_arguments]: "),
    "an input that is no object": (ToolCall("adds", "1+2"), {}, "failed", "Error [invalid_arguments]: "),
    "no such tool": (ToolCall("nothing"), {}, "unavailable", 'Error [unavailable]: Tool "nothing"'),
    "a hidden tool": (ToolCall("hidden"), {}, "unavailable", 'Error [unavailable]: Tool "hidden"'),
    "no time": (
        ToolCall("waits"),
        {"timeout": 0.01},
        "timeout",
        'Error [timeout]: "waits" didn\'t answer within 0.01 s',
    ),
    "no scope": (ToolCall("guarded"), {}, "unavailable", 'Error [unavailable]: Tool "guarded"'),
    "a scope": (
        ToolCall("guarded"),
        {"auth": AuthContext("alice", frozenset({"admin"}))},
        "completed",
        "alice",
    ),
    "a Stop before": (ToolCall("waits"), {"signal": AbortSignal("user")}, "cancelled", CANCELLED),
    "a word of its own before": (
        ToolCall("adds", {"a": 1, "b": 2}),
        {"signal": AbortSignal("tea time")},
        "interrupted",
        'Error [interrupted]: "adds" was ended by its caller before it finished.',
    ),
}


@both_ways
@pytest.mark.parametrize("what", OUTCOMES)
async def test_every_outcome_is_an_output(way: str, what: str) -> None:
    call, options, status, text = OUTCOMES[what]
    async with calling(way) as make:
        output = await make(call, **options)
    assert output.status == status
    assert output.text.startswith(text)
    assert output.is_error is (status != "completed")


@both_ways
@pytest.mark.parametrize(
    ("reason", "status"), [("user", "cancelled"), ("disconnect", "interrupted"), ("x", "interrupted")]
)
async def test_the_callers_signal_ends_it_also_from_a_thread(way: str, reason: str, status: str) -> None:
    signal, here = AbortSignal(), asyncio.Event()
    async with calling(way, context=here) as make:
        making = asyncio.ensure_future(make(ToolCall("waits"), signal=signal))
        async with asyncio.timeout(LONG):
            await here.wait()
            await asyncio.to_thread(signal.abort, reason)
            output = await making
    assert output.status == status
    assert not signal._callbacks, "the adapter's signal holds nothing of a call that is over"


@both_ways
async def test_a_signal_aborted_before_starts_nothing(way: str) -> None:
    started = asyncio.Event()
    async with calling(way, context=started) as make:
        await make(ToolCall("waits"), signal=AbortSignal("user"))
    assert not started.is_set()


@both_ways
async def test_what_it_sees_is_that_there_is_no_run(way: str) -> None:
    async with calling(way) as make:
        seen = (await make(ToolCall("looks"))).structured_content
        assert seen is not None
        other = (await make(ToolCall("looks"))).structured_content
    assert other is not None
    empty: dict[str, Any] = {
        "headers": {},
        "forwarded_props": {},
        "context": [],
        "client_tools": [],
        "client_request_id": None,
    }
    assert seen["session"].startswith("anon:")
    assert seen["session"] != other["session"]
    assert {key: value for key, value in seen.items() if key != "session"} == {
        "run": None,
        "parent": None,
        "call": True,
        "metadata": empty,
        "trace": None,
        "detach": None,
        "context": None,
        "task": True,
    }


@both_ways
async def test_the_session_is_what_the_caller_says_or_the_subjects_own(way: str) -> None:
    async with calling(way) as make:
        said = await make(ToolCall("looks"), session="anon:mine")
        subjects = await make(ToolCall("looks"), auth=AuthContext("a:b"))
    assert said.structured_content is not None
    assert subjects.structured_content is not None
    assert said.structured_content["session"] == "anon:mine"
    assert subjects.structured_content["session"] == "user:a%3Ab:default"


@both_ways
async def test_a_cancellation_of_the_caller_goes_through_and_ends_the_tool(way: str) -> None:
    here = asyncio.Event()
    async with calling(way, context=here) as make:
        making = asyncio.ensure_future(make(ToolCall("waits")))
        async with asyncio.timeout(LONG):
            await here.wait()
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making


async def test_a_cancellation_reaches_a_tool_in_a_thread_by_its_signal() -> None:
    here, heard = threading.Event(), threading.Event()

    def works(ctx: ToolContext) -> None:
        """Works until it is told to end."""
        ctx.abort_signal.on_abort(lambda _: heard.set())
        here.set()
        heard.wait()

    making = asyncio.ensure_future(call_tool(ToolCall("works"), tools=[works]))
    async with asyncio.timeout(LONG):
        await asyncio.to_thread(here.wait)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await asyncio.to_thread(heard.wait)


async def test_enabled_tools_of_the_session_are_there() -> None:
    gateway = Gateway(TOOLS)
    engine = await gateway.startup()
    await engine.store.set_visibility("anon:mine", Visibility(enabled=frozenset({"hidden"})))
    await engine.store.set_visibility("user:alice:default", Visibility(disabled=frozenset({"adds"})))
    assert (await gateway.call_tool(ToolCall("hidden"), session="anon:mine")).text == "here"
    assert (await gateway.call_tool(ToolCall("hidden"), session="anon:yours")).status == "unavailable"
    add = ToolCall("adds", {"a": 1, "b": 1})
    assert (await gateway.call_tool(add, auth=AuthContext("alice"))).status == "unavailable"
    assert (await gateway.call_tool(add, auth=AuthContext("bob"))).status == "completed"
    await gateway.shutdown()


@both_ways
async def test_middleware_is_around_it_and_context_is_there(way: str) -> None:
    async def tags(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return {"by": ctx.context, "text": (await call_next(call)).text}

    async with calling(way, middleware=[tags], context="ctx") as make:
        output = await make(ToolCall("adds", {"a": 1, "b": 1}))
    assert output.structured_content == {"by": "ctx", "text": '{"result":2}'}


@pytest.mark.parametrize("when", ["at its start", "at its end"])
async def test_a_context_that_fails_is_an_output_whose_cause_only_the_log_knows(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def breaks(connection: None) -> AsyncIterator[None]:
        assert connection is None
        if when == "at its start":
            raise RuntimeError("the password is wrong")
        yield
        raise RuntimeError("the password is wrong")

    gateway = Gateway(TOOLS, context=breaks)
    output = await gateway.call_tool(ToolCall("adds", {"a": 1, "b": 1}))
    await gateway.shutdown()
    assert (output.status, output.text) == ("failed", "Error [internal]: The gateway failed; its log says why.")
    assert "the password is wrong" in caplog.text


async def test_functions_are_tools_for_the_free_call() -> None:
    def double(n: int) -> int:
        """Doubles."""
        return 2 * n

    output = await call_tool(ToolCall("double", {"n": 4}), tools=[double])
    assert output.structured_content == {"result": 8}
