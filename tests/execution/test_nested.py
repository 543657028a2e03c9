"""Calls inside calls: under one signal, with clocks of their own, and nothing that outlives the call around them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.execution.context import ToolContext
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import tool
from tests.execution import process_tools
from tests.execution.running import LONG, desk

pytestmark = pytest.mark.allow_blocking  # to start a process blocks for a moment


def results(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    told = [event["value"] for event in events if event.get("name") == "tool.result"]
    assert len({value["toolCallId"] for value in told}) == len(told)
    return {value["toolCallId"]: value for value in told}


def text_of(value: dict[str, Any]) -> str:
    return str(value["content"][0]["text"])


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits for ever."""
    ctx.emit_custom_event("waiting", {})
    await asyncio.Event().wait()


@tool
def adds(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(visibility="hidden")
async def hidden() -> None:
    """Is not there."""


async def test_a_nested_call_never_raises_whatever_it_ends_in() -> None:
    @tool
    async def outer(ctx: ToolContext) -> dict[str, Any]:
        """Calls tools that end in many ways."""
        asked: dict[str, tuple[str, Any]] = {
            "answers": ("adds", {"a": 1, "b": 2}),
            "does not fit": ("adds", {"a": "x"}),
            "is no object": ("adds", [1, 2]),
            "is not there": ("nothing", {}),
            "is hidden": ("hidden", {}),
            "dies": ("kill_itself", {}),
            "has no name": ("", {}),
        }
        found = {what: await ctx.call_tool(*call) for what, call in asked.items()}
        found["is too slow"] = await ctx.call_tool("waits", {}, 0.01)
        return {what: [output.status, (output.structured_content or {}).get("error")] for what, output in found.items()}

    async with desk() as at:
        record, events = await at.outcome(outer, others=[adds, waits, hidden, process_tools.kill_itself])
    assert record.status == "completed"
    found = results(events)["call-1"]["structuredContent"]
    wrong = {"code": "invalid_arguments", "retryable": False}
    missing = ["unavailable", {"code": "unavailable", "retryable": True}]
    assert found == {
        "answers": ["completed", None],
        "does not fit": ["failed", wrong],
        "is no object": ["failed", wrong],
        "is not there": missing,
        "is hidden": missing,
        "dies": ["interrupted", {"code": "interrupted", "retryable": False}],
        "has no name": missing,
        "is too slow": ["timeout", {"code": "timeout", "retryable": False}],
    }
    assert {call_id: value["status"] for call_id, value in results(events).items()} == {
        **{f"call-1/{number}": status for number, (status, _) in enumerate(found.values(), 1)},
        "call-1": "completed",
    }


async def test_stop_ends_the_nested_call_cancelled_like_the_one_around_it() -> None:
    @tool(timeout=0)
    async def outer(ctx: ToolContext) -> str:
        """Calls one that waits."""
        return (await ctx.call_tool("waits", {})).status

    async with desk() as at:
        run = await at.start(outer, others=[waits])
        await at.saw(run, "waiting")
        await at.stop(run)
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    assert {call_id: text_of(value) for call_id, value in results(events).items()} == {
        "call-1/1": CANCELLED,
        "call-1": CANCELLED,
    }


async def test_the_time_limit_around_it_is_named_as_what_ended_a_nested_call() -> None:
    @tool(timeout=0)
    async def inner(ctx: ToolContext) -> None:
        """Waits for ever."""
        await asyncio.Event().wait()

    @tool(timeout=0.05)
    async def middle(ctx: ToolContext) -> None:
        """Passes on."""
        await ctx.call_tool("inner", {})

    async with desk() as at:
        run = await at.start(middle, waits, timeout=0, others=[inner])
        await at.ended(run, "call-1/1")
        await at.stop(run)
        _, events = await at.finish(run)
    found = results(events)
    assert found["call-1"]["status"] == "timeout"
    assert found["call-1/1"]["status"] == "interrupted"
    assert "was ended by the time limit of the call it belongs to" in text_of(found["call-1/1"])


async def test_a_tool_that_gives_its_nested_call_up_ends_that_one_only() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        """Waits a moment only."""
        try:
            await asyncio.wait_for(ctx.call_tool("waits", {}), 0.01)
        except TimeoutError:
            assert not ctx.abort_signal.aborted
        return "went on"

    async with desk() as at:
        record, events = await at.outcome(outer, others=[waits])
    found = results(events)
    assert (record.status, text_of(found["call-1"])) == ("completed", "went on")
    assert found["call-1/1"]["status"] == "interrupted"
    assert "shutdown" not in text_of(found["call-1/1"])


async def test_a_nested_call_that_nobody_waits_for_ends_with_the_call_around_it() -> None:
    tasks: list[asyncio.Task[Any]] = []
    reasons: list[str | None] = []
    here = asyncio.Event()

    @tool(timeout=0)
    async def lingers(ctx: ToolContext) -> None:
        """Waits for ever, and says why it was ended."""
        here.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.abort_signal.reason)

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Leaves a call behind."""
        tasks.append(asyncio.create_task(ctx.call_tool("lingers", {})))
        await here.wait()
        return "left"

    async with desk() as at:
        record, _ = await at.outcome(outer, others=[lingers])
        assert record.status == "completed"
        async with asyncio.timeout(LONG):
            (output,) = await asyncio.gather(*tasks)
        assert output.status == "interrupted"
    assert reasons == ["tool"]


async def test_calls_inside_calls_are_named_by_their_path_and_run_side_by_side() -> None:
    @tool
    async def leaf(ctx: ToolContext, n: int) -> list[Any]:
        """Says which one it is."""
        ctx.emit_custom_event("leaf", {"n": n})
        return [ctx.tool_call_id, n]

    @tool
    async def branch(ctx: ToolContext) -> list[Any]:
        """Calls two leaves at a time."""
        outputs = await asyncio.gather(*(ctx.call_tool("leaf", {"n": n}) for n in (1, 2)))
        return [output.structured_content for output in outputs]

    @tool
    async def tree(ctx: ToolContext) -> list[Any]:
        """Calls two branches, one after the other."""
        return [(await ctx.call_tool("branch", {})).structured_content for _ in range(2)]

    async with desk() as at:
        _, events = await at.outcome(tree, others=[leaf, branch])
    found = results(events)
    assert set(found) == {
        "call-1",
        *(f"call-1/{b}" for b in (1, 2)),
        *(f"call-1/{b}/{n}" for b in (1, 2) for n in (1, 2)),
    }
    parents = {
        event["value"]["toolCallId"]: event["metadata"]["parentToolCallId"]
        for event in events
        if event.get("name") == "tool.result" and "metadata" in event
    }
    assert parents == {call_id: call_id.rpartition("/")[0] for call_id in found if "/" in call_id}
    assert len([event for event in events if event["type"] == "TOOL_CALL_START"]) == 1


async def test_tools_that_call_each_other_without_end_fail_at_a_bound_and_leave_nothing_running() -> None:
    @tool(name="endless")
    async def endless(ctx: ToolContext) -> str:
        """Calls itself."""
        return (await ctx.call_tool("endless", {})).text

    async with desk() as at:
        record, events = await at.outcome(endless, others=[endless])
    assert record.status == "completed"
    assert "250 deep" in str(events[-3:])


async def test_stop_reaches_calls_that_are_nested_deeply() -> None:
    deep = 200

    @tool(name="down", timeout=0)
    async def down(left: int, ctx: ToolContext) -> str:
        """Calls itself, and waits at the bottom."""
        if not left:
            ctx.emit_custom_event("bottom", {})
            await asyncio.Event().wait()
        return (await ctx.call_tool("down", {"left": left - 1})).text

    async with desk() as at:
        run = await at.start(down, arguments={"left": deep}, others=[down])
        await at.saw(run, "bottom")
        run.stop("user")
        await run.done.wait()
        assert run.record.status == "cancelled"


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "3", True])
async def test_a_timeout_that_is_none_is_an_error_where_the_call_is_made(timeout: Any) -> None:
    @tool(name="quick")
    async def quick() -> str:
        """Answers."""
        return "done"

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Calls with a bad time limit."""
        with pytest.raises(ValueError, match="timeout must be"):
            await ctx.call_tool("quick", {}, timeout=timeout)
        return "refused"

    async with desk() as at:
        _, events = await at.outcome(outer, others=[quick])
    assert "refused" in str(events[-1])
