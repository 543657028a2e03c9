"""Middleware: one onion around every call, for tools of every kind, and what it can do without breaking any rule."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import AccessDenied, CapabilityError, ToolError
from gateway.execution.capabilities import Capability
from gateway.execution.context import ToolContext
from gateway.execution.middleware import Middleware, ToolCall
from gateway.execution.outcomes import ToolOutput
from gateway.execution.tools import Tool, tool
from tests.execution import process_tools
from tests.execution.running import LONG, Desk, desk

pytestmark = pytest.mark.allow_blocking  # to start a process blocks for a moment

TRAIL = Capability[list[str]]("trail")


@tool(name="says")
async def on_the_loop(text: str = "hello") -> dict[str, str]:
    """Says it on the loop."""
    return {"text": text}


@tool(name="says")
def in_a_thread(text: str = "hello") -> dict[str, str]:
    """Says it in a thread."""
    return {"text": text}


@tool(name="says")
async def as_async_generator(text: str = "hello") -> AsyncIterator[dict[str, str]]:
    """Says it as the last of two."""
    yield {"text": "wait for it"}
    yield {"text": text}


@tool(name="says")
def as_generator(text: str = "hello") -> Iterator[dict[str, str]]:
    """Says it as the last of two, in a thread."""
    yield {"text": "wait for it"}
    yield {"text": text}


KINDS: dict[str, Tool] = {
    "async": on_the_loop,
    "plain": in_a_thread,
    "async generator": as_async_generator,
    "generator": as_generator,
    "process": process_tools.says,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def result_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    (value,) = [event["value"] for event in events if event.get("name") == "tool.result"]
    return dict(value)


async def ends(*middleware: Middleware, made: Tool = on_the_loop, **options: Any) -> dict[str, Any]:
    """The result of a call through this middleware, of a run that completes."""
    async with desk(middleware) as at:
        record, events = await at.outcome(made, **options)
        assert record.status == "completed"
        return result_of(events)


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def passes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
    return await call_next(call)


@every_kind
async def test_the_first_is_outermost_and_every_kind_of_tool_is_inside(kind: str) -> None:
    trail: list[str] = []

    def named(name: str) -> Middleware:
        async def middleware(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
            trail.append(f"{name} in")
            output = await call_next(call)
            trail.append(f"{name} out {output.status}")
            return output

        return middleware

    result = await ends(named("a"), named("b"), made=KINDS[kind])
    assert trail == ["a in", "b in", "b out completed", "a out completed"]
    assert result["structuredContent"] == {"text": "hello"}


@every_kind
async def test_a_refusal_is_denied_and_the_tool_never_runs(kind: str) -> None:
    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        raise AccessDenied("Not you.")

    async with desk([guard]) as at:
        _, events = await at.outcome(KINDS[kind])
    assert text_of(result_of(events)) == "Error [denied]: Not you."
    assert result_of(events)["structuredContent"]["error"] == {"code": "denied", "retryable": False}
    assert not [event for event in events if event.get("name") == "tool.output"]


@every_kind
async def test_changed_arguments_reach_the_tool_and_are_validated(kind: str) -> None:
    given: list[Any] = [{"text": "changed"}, {"text": "changed", "more": 1}, "no object"]

    async def changes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(ToolCall(call.name, given.pop(0)))

    async with desk([changes]) as at:
        results = [result_of((await at.outcome(KINDS[kind], arguments={"text": "as sent"}))[1]) for _ in range(3)]
    assert results[0]["structuredContent"] == {"text": "changed"}
    assert results[1]["error"]["code"] == "invalid_arguments"
    assert "more" in text_of(results[1])
    assert results[2]["structuredContent"] == {"text": "hello"}, "what is no object counts as {}"


@every_kind
async def test_calls_made_side_by_side_each_have_their_own_arguments(kind: str) -> None:
    async def both(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        outputs = await asyncio.gather(*(call_next(ToolCall(call.name, {"text": text})) for text in "ab"))
        return [output.structured_content["text"] for output in outputs]

    assert (await ends(both, made=KINDS[kind]))["structuredContent"] == {"result": ["a", "b"]}


async def test_a_call_made_again_counts_by_what_the_middleware_returns() -> None:
    attempts: list[int] = []

    @tool
    async def fails_twice() -> str:
        """Succeeds the third time."""
        attempts.append(1)
        return "Error [busy]: later" if len(attempts) < 3 else "there"

    async def retries(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        for _ in range(5):
            output = await call_next(call)
            if not output.is_error:
                break
        return output

    assert text_of(await ends(retries, made=fails_twice)) == "there"
    assert len(attempts) == 3


async def test_a_call_that_is_never_made_is_answered_by_the_middleware() -> None:
    async def caches(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return {"from": "the cache"}

    assert (await ends(caches))["structuredContent"] == {"from": "the cache"}


async def test_a_filter_replaces_the_output_and_keeps_what_it_ended_in() -> None:
    async def shouts(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        return replace(output, content=[{"type": "text", "text": output.text.upper()}])

    @tool(timeout=0.01)
    async def slow() -> None:
        """Is too slow."""
        await asyncio.Event().wait()

    assert text_of(await ends(shouts)) == '{"TEXT":"HELLO"}'
    stopped = await ends(shouts, made=slow)
    assert (stopped["status"], stopped["error"]["code"]) == ("timeout", "timeout")
    assert text_of(stopped).startswith('Error [timeout]: "slow"'), "after the time limit nothing turns the outcome"


RETURNED: dict[str, tuple[Any, str, str]] = {
    "nothing": (None, "completed", ""),
    "text": ("done", "completed", "done"),
    "an uncoded error": ("Error: no", "failed", "Error [failed]: no"),
    "an error": (ToolOutput([{"type": "text", "text": "no"}], is_error=True), "failed", "Error [failed]: no"),
    "an unknown status": (ToolOutput([{"type": "text", "text": "x"}], status="splendid"), "completed", "x"),
    "an error's status": (ToolOutput([{"type": "text", "text": "x"}], status="timeout"), "completed", "x"),
    "content that is text": (ToolOutput("abc"), "completed", "abc"),  # type: ignore[arg-type]
    "content that is nothing": (ToolOutput(None), "completed", ""),  # type: ignore[arg-type]
    "structured content that is a list": (
        ToolOutput([], structured_content=[1]),  # type: ignore[arg-type]
        "completed",
        '{"result":[1]}',
    ),
    "a status that is none": (ToolOutput([], status=None), "completed", ""),  # type: ignore[arg-type]
    "an object": ({"at": object()}, "completed", '{"at":{"$unserializable":"object"}}'),
}


@pytest.mark.parametrize("what", RETURNED)
async def test_whatever_it_returns_is_an_output(what: str) -> None:
    value, status, text = RETURNED[what]

    async def returns(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return value

    async with desk([passes, returns]) as at:
        record, events = await at.outcome(on_the_loop)
    assert record.status == "completed"
    message = next(event for event in events if event["type"] == "TOOL_CALL_RESULT")
    assert (result_of(events)["status"], message["content"].replace("null", "")) == (status, text)


async def test_strict_payloads_hold_for_what_it_returns() -> None:
    async def returns(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return {"n": float("nan")}

    async with desk([returns], strict_payloads=True) as at:
        _, events = await at.outcome(on_the_loop)
    assert text_of(result_of(events)) == "Error [failed]: The value at $.n cannot be sent as it is: nan."


async def test_a_result_that_it_makes_too_large_is_too_large() -> None:
    async def blows_up(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return "x" * 2000

    async with desk([blows_up], max_result_bytes=1000) as at:
        _, events = await at.outcome(on_the_loop)
    assert result_of(events)["error"]["code"] == "too_large"


RAISED: dict[str, tuple[BaseException, str]] = {
    "an exception": (ValueError("oh"), "Error [failed]: oh"),
    "a tool error": (ToolError("quota", "none left", retryable=True), "Error [quota]: none left"),
    "its own cancellation": (asyncio.CancelledError(), "Error [failed]: The tool cancelled itself."),
    "an exit": (SystemExit(3), "Error [failed]: 3"),
    "an interrupt": (KeyboardInterrupt("now"), "Error [failed]: now"),
}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("what", RAISED)
async def test_what_it_raises_is_what_the_call_ends_in(what: str, where: str) -> None:
    error, text = RAISED[what]

    async def raises(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        if where == "after":
            await call_next(call)
        raise error

    result = await ends(passes, raises)
    assert (result["status"], text_of(result)) == ("failed", text)


async def test_an_outer_one_catches_what_an_inner_one_raised() -> None:
    async def catches(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except AccessDenied as error:
            return {"refused": str(error)}

    async def refuses(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        raise AccessDenied("no")

    assert (await ends(catches, refuses))["structuredContent"] == {"refused": "no"}


async def test_it_cannot_turn_the_call_into_another_tools() -> None:
    async def redirects(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(ToolCall("delete_everything", call.input))

    result = await ends(redirects)
    assert result["status"] == "failed"
    assert "ctx.call_tool" in text_of(result)


# -- the context in it --


@every_kind
async def test_it_has_the_tools_own_context(kind: str) -> None:
    async def looks(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        ctx.emit_custom_event("before", {"tool": ctx.tool_name, "run": ctx.run_id})
        output = await call_next(call)
        ctx.emit_custom_event("after", {"status": output.status})
        ctx.report_progress(1, 1)
        return output

    async with desk([looks]) as at:
        record, events = await at.outcome(KINDS[kind])
    names = [event["name"] for event in events if event["type"] == "CUSTOM" and event["name"] != "tool.output"]
    assert names == ["before", "after", "tool.progress", "tool.result"]
    before = next(event for event in events if event.get("name") == "before")
    assert before["value"] == {"tool": "says", "run": record.key.run_id, "toolCallId": "call-1"}


async def test_a_capability_reaches_the_tool_and_inner_middleware_but_no_outer_one() -> None:
    async def outer(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        with pytest.raises(CapabilityError, match="'trail'"):
            ctx.get(TRAIL)
        output = await call_next(call)
        assert ctx.get(TRAIL) == ["inner", "tool"]
        return output

    async def provides(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        ctx.provide(TRAIL, [])
        return await call_next(call)

    async def inner(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        ctx.get(TRAIL).append("inner")
        return await call_next(call)

    @tool
    def uses(ctx: ToolContext) -> list[str]:
        """Uses it in a thread."""
        ctx.get(TRAIL).append("tool")
        return ctx.get(TRAIL)

    result = await ends(outer, provides, inner, made=uses)
    assert result["structuredContent"] == {"result": ["inner", "tool"]}


async def test_a_capability_of_one_call_is_not_there_for_another() -> None:
    seen: list[Any] = []

    async def provides(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        seen.append(ctx.get_optional(TRAIL))
        ctx.provide(TRAIL, [ctx.tool_call_id])
        return await call_next(call)

    async with desk([provides]) as at:
        await at.finish(await at.start(on_the_loop, in_a_thread))
    assert seen == [None, None]


async def test_a_nested_call_passes_it_too_with_its_own_context() -> None:
    passed: list[str] = []

    async def notes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        passed.append(f"{ctx.tool_call_id} {call.name}")
        return await call_next(call)

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Calls another tool."""
        return (await ctx.call_tool("says", {"text": "nested"})).text

    async with desk([notes]) as at:
        _, events = await at.outcome(outer, others=[in_a_thread])
    assert passed == ["call-1 outer", "call-1/1 says"]
    assert [event["value"]["toolCallId"] for event in events if event.get("name") == "tool.result"] == [
        "call-1/1",
        "call-1",
    ]


# -- the clock and Stop --


class Gate:
    """A place in a middleware where it hangs until it is cancelled or let go."""

    def __init__(self, where: str, *, swallows: bool = False) -> None:
        self.where = where
        self.here = asyncio.Event()
        self.go = asyncio.Event()
        self.swallows = swallows
        self.cancelled = 0

    async def __call__(self, ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        if self.where == "before":
            await self.hang()
        output = await call_next(call)
        if self.where == "after":
            await self.hang()
        return output

    async def hang(self) -> None:
        self.here.set()
        while True:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if not self.swallows or self.cancelled > 2:
                    raise
            else:
                return


async def stopped(at: Desk, gate: Gate, made: Tool) -> dict[str, Any]:
    run = await at.start(made)
    async with asyncio.timeout(LONG):
        await gate.here.wait()
    await at.stop(run)
    record, events = await at.finish(run)
    assert record.status == "cancelled"
    return result_of(events)


@pytest.mark.parametrize("where", ["before", "after"])
@every_kind
async def test_one_that_hangs_is_ended_by_stop(kind: str, where: str) -> None:
    gate = Gate(where)
    async with desk([passes, gate, passes]) as at:
        result = await stopped(at, gate, KINDS[kind])
    assert (result["status"], gate.cancelled) == ("cancelled", 1)
    assert "stillRunning" not in result


@pytest.mark.parametrize("where", ["before", "after"])
@every_kind
async def test_one_that_hangs_is_ended_by_the_clock(kind: str, where: str) -> None:
    gate = Gate(where)
    async with desk([gate]) as at:
        limit = 3 if kind == "process" and where == "after" else 0.1  # a process needs a moment to start
        record, events = await at.outcome(KINDS[kind], timeout=limit)
    assert record.status == "completed"
    assert result_of(events)["status"] == "timeout"
    assert f"within {limit:g} s" in text_of(result_of(events))
    assert gate.cancelled >= 1


@pytest.mark.parametrize("where", ["before", "after"])
async def test_one_that_will_not_end_is_given_up_after_the_grace(where: str) -> None:
    gate = Gate(where, swallows=True)
    async with desk([gate], stop_grace=0.1) as at:
        result = await stopped(at, gate, on_the_loop)
        assert (result["status"], result["stillRunning"]) == ("cancelled", True)
        gate.go.set()


async def test_an_answer_given_before_the_stop_counts_as_the_middleware_let_it_pass() -> None:
    gate = Gate("after")

    async def redacts(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        return {"text": "(hidden)"} if output.structured_content else output

    async with desk([redacts, gate], stop_grace=LONG) as at:
        run = await at.start(on_the_loop)
        async with asyncio.timeout(LONG):
            await gate.here.wait()
        await at.stop(run)
        gate.go.set()
        _, events = await at.finish(run)
    assert result_of(events)["structuredContent"] == {"text": "(hidden)"}


async def test_an_answer_that_no_filter_let_pass_never_leaves() -> None:
    gate = Gate("after")
    async with desk([gate], stop_grace=0.1) as at:
        run = await at.start(on_the_loop, arguments={"text": "very secret"})
        async with asyncio.timeout(LONG):
            await gate.here.wait()
        await at.stop(run)
        _, events = await at.finish(run)
    said = [event for event in events if event["type"] not in ("TOOL_CALL_ARGS",)]
    assert "very secret" not in str(said)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_tool_that_would_not_stop_is_still_running_through_middleware(kind: str) -> None:
    go = threading.Event()

    @tool(name="stubborn")
    async def swallows(ctx: ToolContext) -> None:
        """Swallows every cancellation until it may go."""
        ctx.emit_custom_event("here", {})
        while not go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    @tool(name="stubborn")
    def blocks(ctx: ToolContext) -> None:
        """Blocks its thread until it may go."""
        ctx.emit_custom_event("here", {})
        go.wait()

    async with desk([passes], stop_grace=0.1) as at:
        run = await at.start(swallows if kind == "async" else blocks)
        await at.saw(run, "here")
        await at.stop(run)
        _, events = await at.finish(run)
        go.set()
    assert (result_of(events)["status"], result_of(events).get("stillRunning")) == ("cancelled", True)


@pytest.mark.parametrize("kind", ["async", "plain", "process"])
async def test_its_own_time_limit_ends_the_tool_and_not_the_call(kind: str) -> None:
    ended = threading.Event()

    @tool
    async def waits(ctx: ToolContext) -> None:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @tool
    def works(ctx: ToolContext) -> None:
        """Works until it is told to end."""
        ctx.abort_signal.on_abort(lambda _: ended.set())
        ended.wait()

    async def limits(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        try:
            return await asyncio.wait_for(call_next(call), 0.05)
        except TimeoutError:
            assert not ctx.abort_signal.aborted
            return {"instead": "this"}

    made: dict[str, Tool] = {"async": waits, "plain": works, "process": process_tools.wait_for_the_end}
    async with desk([limits]) as at:
        record, events = await at.outcome(made[kind])
        assert (record.status, result_of(events)["structuredContent"]) == ("completed", {"instead": "this"})
        if kind != "process":  # whose end the desk waits for
            async with asyncio.timeout(LONG):
                await asyncio.to_thread(ended.wait)


async def test_a_call_that_it_left_behind_is_ended_with_its_result() -> None:
    reasons: list[str | None] = []
    works: list[asyncio.Task[Any]] = []

    @tool(timeout=0)
    async def waits(ctx: ToolContext) -> None:
        """Waits for ever, and says why it was ended."""
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.abort_signal.reason)

    async def hurries(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        works.append(asyncio.create_task(call_next(call)))
        await asyncio.sleep(0)
        return "already"

    async with desk([hurries]) as at:
        _, events = await at.outcome(waits)
        assert text_of(result_of(events)) == "already"
        async with asyncio.timeout(LONG):
            await asyncio.wait(works)
    assert reasons == ["tool"]


async def test_a_shutdown_ends_a_middleware_that_hangs() -> None:
    gate = Gate("before")
    async with desk([gate]) as at:
        run = await at.start(on_the_loop)
        async with asyncio.timeout(LONG):
            await gate.here.wait()
        await at.supervisor.drain(0)
        record, events = await at.finish(run)
    assert (record.status, result_of(events)["status"]) == ("failed", "interrupted")
