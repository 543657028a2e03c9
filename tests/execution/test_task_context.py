"""A call as a task: its words on top of progress and the signal, in every kind of tool, awaited or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import AbortError
from gateway.execution.context import ToolContext
from gateway.execution.tools import Tool, tool
from tests.execution import process_tools
from tests.execution.running import desk

pytestmark = pytest.mark.allow_blocking  # to start a process blocks for a moment


def result_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    (value,) = [event["value"] for event in events if event.get("name") == "tool.result"]
    return dict(value)


def progress_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("progress", "total", "percent", "message")
    reports = [event["value"] for event in events if event.get("name") == "tool.progress"]
    return [{key: report[key] for key in keys if key in report} for report in reports]


@tool
async def awaits(ctx: ToolContext) -> list[Any]:
    """Awaits what other systems await."""
    assert ctx.task is not None
    await ctx.task.update_progress("begun")
    await ctx.task.update_progress("half", 50)
    await ctx.task.update_progress("still")
    ctx.task.throw_if_cancelled()
    return [ctx.task.task_id, ctx.task.cancelled]


@tool
def does_not_await(ctx: ToolContext) -> list[Any]:
    """Does the same in a thread."""
    assert ctx.task is not None
    for message, percent in (("begun", None), ("half", 50), ("still", None)):
        ctx.task.update_progress(message, percent)
    return [ctx.task.task_id, ctx.task.cancelled]


@pytest.mark.parametrize("made", [awaits, does_not_await, process_tools.progresses], ids=lambda made: made.name)
async def test_progress_is_a_message_and_a_part_of_a_hundred_once_that_is_known(made: Tool) -> None:
    async with desk() as at:
        record, events = await at.outcome(made)
    reports = progress_of(events)
    assert reports[0]["progress"] == 0
    assert reports[0]["message"] == "begun"
    assert reports[-1] == {"progress": 50, "total": 100, "percent": 50, "message": "still"}
    assert result_of(events)["structuredContent"] == {"result": [record.key.run_id, False]}


async def test_a_tool_that_forbids_tasks_has_none_in_a_process_either() -> None:
    @tool(task_support="forbidden")
    async def has_none(ctx: ToolContext) -> bool:
        """Has no task."""
        return ctx.task is None

    async with desk() as at:
        for made in (has_none, process_tools.has_no_task):
            _, events = await at.outcome(made)
            assert result_of(events)["structuredContent"] == {"result": True}


@tool(timeout=0)
async def gives_up(ctx: ToolContext, how: str) -> str:
    """Ends its own call, and then waits, answers or raises."""
    assert ctx.task is not None
    await ctx.task.cancel()
    assert ctx.task.cancelled
    if how == "raise":
        ctx.task.throw_if_cancelled()
    if how == "wait":
        await asyncio.Event().wait()
    return ctx.abort_signal.reason or "nothing"


@tool(timeout=0)
def gives_up_in_a_thread(ctx: ToolContext, how: str) -> str:
    """The same where nothing can be awaited."""
    assert ctx.task is not None
    ctx.task.cancel()
    if how == "raise":
        ctx.task.throw_if_cancelled()
    if how == "wait":
        asyncio.run(ctx.abort_signal.wait())
    return ctx.abort_signal.reason or "nothing"


@pytest.mark.parametrize("how", ["wait", "answer", "raise"])
@pytest.mark.parametrize(
    "made", [gives_up, gives_up_in_a_thread, process_tools.gives_up], ids=["async", "plain", "process"]
)
async def test_cancel_ends_the_call_interrupted_and_never_cancelled(made: Tool, how: str) -> None:
    async with desk() as at:
        record, events = await at.outcome(made, arguments={"how": how})
    result = result_of(events)
    assert (record.status, result["status"]) == ("completed", "interrupted")
    assert "was ended by its own request" in result["content"][0]["text"]


async def test_throw_if_cancelled_raises_the_reason_of_the_stop() -> None:
    raised: list[AbortError] = []

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> None:
        """Works until it is told to end."""
        assert ctx.task is not None
        ctx.task.throw_if_cancelled()
        ctx.emit_custom_event("here", {})
        await ctx.abort_signal.wait()
        try:
            ctx.task.throw_if_cancelled()
        except AbortError as error:
            raised.append(error)
            raise

    cooperative = tool(name="works", timeout=0, cooperative=True)(works.func)
    async with desk(stop_grace=5) as at:
        run = await at.start(cooperative)
        await at.saw(run, "here")
        await at.stop(run)
        _, events = await at.finish(run)
    assert [error.reason for error in raised] == ["user"]
    assert result_of(events)["status"] == "cancelled"


async def test_progress_after_the_end_is_dropped_and_no_error() -> None:
    kept: list[ToolContext] = []

    @tool
    async def leaves(ctx: ToolContext) -> None:
        """Leaves its context behind."""
        kept.append(ctx)

    async with desk() as at:
        _, events = await at.outcome(leaves)
        assert kept[0].task is not None
        await kept[0].task.update_progress("late", 100)
        await kept[0].task.cancel()
        assert at.supervisor.counts["late_emits"] == 1
    assert progress_of(events) == []
