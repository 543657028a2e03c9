"""Every way a run can end gives exactly one terminal event, last, and a record that says the same.

`Desk.finish` checks the stream of every run here against the order of contract 4.2; the tables say what it ends in.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from gateway.errors import Unavailable
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import CANCELLED, ToolOutput
from gateway.execution.tools import Tool, tool
from tests.execution.ending_tools import (
    BODIES,
    RAISES,
    RAISES_IN_A_PROCESS,
    polls,
    process_dies,
    process_exits_at_sigterm,
    process_ignores,
    process_sends_nan,
    process_waits,
)
from tests.execution.running import LONG, Desk, Stage, desk

Result = dict[str, Any]


def result_of(events: list[dict[str, Any]], call_id: str = "call-1") -> Result:
    """The value of the call's `tool.result`."""
    found = [e["value"] for e in events if e.get("name") == "tool.result" and e["value"]["toolCallId"] == call_id]
    assert len(found) == 1
    value: Result = found[0]
    return value


def names_of(events: list[dict[str, Any]]) -> list[str]:
    return [event.get("name", event["type"]) for event in events]


# -- the tool ends by itself --


@pytest.mark.parametrize(
    ("body", "what"),
    [(body, what) for body in BODIES for what in (RAISES_IN_A_PROCESS if body == "process" else RAISES)],
)
@pytest.mark.allow_blocking  # a process is started on the loop
async def test_whatever_a_tool_raises_fails_its_call_and_the_run_completes(body: str, what: str) -> None:
    _, code, message, retryable = RAISES[what]
    async with desk() as at:
        record, events = await at.outcome(BODIES[body], arguments={"what": what})
    value = result_of(events)
    assert record.status == "completed"
    assert value["status"] == "failed"
    if what == "GeneratorExit" and body == "async generator":
        # Python itself takes that for the generator's own closing.
        return
    assert value["error"] == {"code": code, "message": f"Error [{code}]: {message}", "retryable": retryable}


class Rows(BaseModel):
    imported: int


ANSWERS: dict[str, tuple[Any, str, str]] = {
    "a mapping": ({"rows": 2}, "completed", '{"rows":2}'),
    "a model": (Rows(imported=3), "completed", '{"imported":3}'),
    "a list": ([1, 2], "completed", '{"result":[1,2]}'),
    "nothing": (None, "completed", ""),
    "text": ("Done.", "completed", "Done."),
    "an error in words": ("Error: no disk", "failed", "Error [failed]: no disk"),
    "an error with a code": ("Error [no_disk]: full", "failed", "Error [no_disk]: full"),
    "an error without words": (ToolOutput([], is_error=True), "failed", "Error [failed]: The tool reported an error."),
    "a status it may not choose": (ToolOutput([], status="cancelled"), "completed", ""),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_a_tool_answers_is_its_result(answer: str) -> None:
    value, status, text = ANSWERS[answer]

    @tool
    async def answers() -> Any:
        """Answers."""
        return value

    async with desk() as at:
        record, events = await at.outcome(answers)
    assert record.status == "completed"
    assert result_of(events)["status"] == status
    assert events[-2]["content"] == text


async def test_a_name_that_is_no_tool_is_unavailable() -> None:
    async with desk() as at:
        record, events = await at.outcome("gone")
    assert record.status == "completed"
    assert result_of(events)["status"] == "unavailable"
    assert result_of(events)["error"]["retryable"] is True


async def test_arguments_that_do_not_fit_fail_the_call_and_name_the_field() -> None:
    async with desk() as at:
        _, events = await at.outcome(BODIES["async"], arguments={"what": 1, "more": 2})
    error = result_of(events)["error"]
    assert error["code"] == "invalid_arguments"
    assert "what" in error["message"]
    assert "more" in error["message"]


@pytest.mark.parametrize("how", ["killed", "exits"])
@pytest.mark.allow_blocking
async def test_a_tool_that_ends_its_own_process_is_interrupted(how: str) -> None:
    async with desk() as at:
        record, events = await at.outcome(process_dies, arguments={"how": how})
    assert record.status == "completed"
    assert names_of(events)[4] == "dying"
    assert result_of(events)["status"] == "interrupted"
    assert result_of(events)["error"]["retryable"] is False


async def test_a_result_that_breaks_its_model_fails_the_call() -> None:
    @tool(output_model=Rows)
    async def counts() -> Any:
        """Counts."""
        return {"imported": "many"}

    async with desk() as at:
        _, events = await at.outcome(counts)
    assert result_of(events)["error"]["code"] == "failed"
    assert "imported" in result_of(events)["error"]["message"]


async def test_a_result_beyond_the_limit_fails_the_call() -> None:
    @tool
    async def talks() -> str:
        """Talks."""
        return "x" * 2_000

    async with desk(max_result_bytes=1_000) as at:
        record, events = await at.outcome(talks)
    assert record.status == "completed"
    assert result_of(events)["error"]["code"] == "too_large"


@pytest.mark.parametrize("where", ["event", "result"])
@pytest.mark.parametrize("body", ["async", "thread"])
async def test_strict_payloads_fail_the_call_and_name_the_path(body: str, where: str) -> None:
    def work(ctx: ToolContext) -> Any:
        if where == "event":
            ctx.emit_custom_event("row", {"cells": [1, float("nan")]})
        return {"cells": [1, float("nan")]}

    @tool(name="bad")
    async def bad_async(ctx: ToolContext) -> Any:
        """Sends what JSON cannot hold."""
        return work(ctx)

    @tool(name="bad")
    def bad_plain(ctx: ToolContext) -> Any:
        """Sends what JSON cannot hold."""
        return work(ctx)

    async with desk(strict_payloads=True) as at:
        _, events = await at.outcome(bad_async if body == "async" else bad_plain)
    assert "row" not in names_of(events)
    assert result_of(events)["status"] == "failed"
    assert "$.cells[1]" in result_of(events)["error"]["message"]


@pytest.mark.allow_blocking
async def test_strict_payloads_hold_inside_a_process_too() -> None:
    async with desk(strict_payloads=True) as at:
        _, events = await at.outcome(process_sends_nan, arguments={"where": "result"})
        _, emitted = await at.outcome(process_sends_nan, arguments={"where": "event"})
    assert "$.cells[1]" in result_of(events)["error"]["message"]
    assert "$.cells[1]" in result_of(emitted)["structuredContent"]["refused"]


@pytest.mark.allow_blocking
async def test_what_was_replaced_in_the_result_of_a_process_is_counted() -> None:
    async with desk() as at:
        _, events = await at.outcome(process_sends_nan, arguments={"where": "result"})
        assert result_of(events)["structuredContent"] == {"cells": [1, None]}
        assert at.supervisor.counts["payload_replaced.nan"] == 1


async def test_an_event_beyond_the_limit_says_how_large_it_was() -> None:
    @tool
    async def shouts(ctx: ToolContext) -> None:
        """Shouts."""
        ctx.emit_custom_event("shout", {"text": "x" * 1_000})
        ctx.emit_custom_event("word", {"text": "x"})

    async with desk(max_event_bytes=500) as at:
        _, events = await at.outcome(shouts)
    values = {event["name"]: event["value"] for event in events if "name" in event}
    assert values["shout"] == {"$too_large": len('{"text":""}') + 1_000, "toolCallId": "call-1"}
    assert values["word"] == {"text": "x", "toolCallId": "call-1"}


# -- something ends it --


def ignoring(stage: Stage) -> Tool:
    """A thread that looks at nothing; the end of the test lets it go."""

    @tool(name="ignores")
    def ignores(ctx: ToolContext) -> str:
        """Ignores the signal."""
        ctx.emit_custom_event("started", {})
        stage.thread_go.wait()
        ctx.emit_custom_event("late", {})
        return "too late"

    return ignores


@tool
async def sleeps(ctx: ToolContext) -> None:
    """Sleeps for ever."""
    ctx.emit_custom_event("started", {})
    await asyncio.Event().wait()


@tool(cooperative=True)
async def cooperates(ctx: ToolContext) -> str:
    """Ends by itself when the signal says so."""
    ctx.emit_custom_event("started", {})
    reason = await ctx.abort_signal.wait()
    ctx.emit_custom_event("unwinding", {"reason": reason})
    return "too late"


@tool(cooperative=True)
async def pretends_to_cooperate(ctx: ToolContext) -> None:
    """Would cooperate, and never does."""
    ctx.emit_custom_event("started", {})
    await asyncio.Event().wait()


@tool
async def swallows(ctx: ToolContext) -> str:
    """Swallows the first cancellation, as careless code does."""
    ctx.emit_custom_event("started", {})
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.emit_custom_event("swallowed", {})
    return "too late"


@tool
async def unwinds(ctx: ToolContext) -> None:
    """Has something to tell while it unwinds."""
    ctx.emit_custom_event("started", {})
    try:
        await asyncio.Event().wait()
    finally:
        ctx.emit_custom_event("unwinding", {"reason": ctx.abort_signal.reason})
        ctx.report_progress(1, 2)


@tool
async def raises_while_unwinding(ctx: ToolContext) -> None:
    """Fails in its own clean-up."""
    ctx.emit_custom_event("started", {})
    try:
        await asyncio.Event().wait()
    finally:
        raise SystemExit("while unwinding")


@tool
def yields_for_ever(ctx: ToolContext) -> Iterator[int]:
    """A generator in a thread."""
    ctx.emit_custom_event("started", {})
    try:
        while True:
            yield 1
            time.sleep(0.001)  # a pace that leaves the others some of the machine
    finally:
        ctx.emit_custom_event("closed", {})


@tool
async def yields_for_ever_async(ctx: ToolContext) -> AsyncIterator[int]:
    """A generator on the loop."""
    ctx.emit_custom_event("started", {})
    try:
        while True:
            yield 1
            await asyncio.sleep(0.001)
    finally:
        ctx.emit_custom_event("closed", {})


# Every body; whether something may still run after the grace, and an event that its unwinding still delivers.
STOPPABLE: dict[str, tuple[Tool | Callable[[Stage], Tool], bool, str | None]] = {
    "an async sleep": (sleeps, False, None),
    "an async tool that unwinds": (unwinds, False, "unwinding"),
    "a cooperative tool": (cooperates, False, "unwinding"),
    "a tool that says it cooperates and does not": (pretends_to_cooperate, False, None),
    "a tool swallowing the cancellation": (swallows, False, "swallowed"),
    "a tool that fails while it unwinds": (raises_while_unwinding, False, None),
    "a thread polling the signal": (polls, False, None),
    "a thread ignoring the signal": (ignoring, True, None),
    "a generator in a thread": (yields_for_ever, False, "closed"),
    "a generator on the loop": (yields_for_ever_async, False, "closed"),
    "a process watching the signal": (process_waits, False, "unwinding"),
    "a CPU-bound process": (process_ignores, False, None),
    "a process that leaves at SIGTERM": (process_exits_at_sigterm, False, None),
}


def tool_for(item: Tool | Callable[[Stage], Tool], stage: Stage) -> Tool:
    return item if isinstance(item, Tool) else item(stage)


@pytest.mark.parametrize("name", STOPPABLE)
@pytest.mark.allow_blocking
async def test_stop_reaches_every_kind_of_tool(name: str) -> None:
    item, still_running, unwound = STOPPABLE[name]
    async with desk(stop_grace=0.6) as at:
        run = await at.start(tool_for(item, at.stage))
        await at.saw(run, "started")
        stopping = await at.stop(run)
        assert stopping is not None
        assert stopping.status == "stopping"
        record, events = await at.finish(run)
    names = names_of(events)
    value = result_of(events)
    assert record.status == "cancelled"
    assert record.reason == "user"
    assert value["status"] == "cancelled"
    assert events[-2]["content"] == CANCELLED
    assert value.get("stillRunning", False) is still_running
    assert names.count("run.stopping") == 1
    assert names.index("run.stopping") < names.index("tool.result")
    if unwound is not None:
        assert names.index("run.stopping") < names.index(unwound) < names.index("tool.result")


@pytest.mark.parametrize("name", STOPPABLE)
@pytest.mark.allow_blocking
async def test_the_clock_ends_every_kind_of_tool(name: str) -> None:
    item, _, _ = STOPPABLE[name]
    async with desk(stop_grace=0.4) as at:
        run = await at.start(tool_for(item, at.stage), timeout=0.2)
        record, events = await at.finish(run)
    value = result_of(events)
    assert record.status == "completed"
    assert value["status"] == "timeout"
    assert "within 0.2 s" in value["error"]["message"]
    assert value["error"]["retryable"] is False
    assert "stillRunning" not in value


@pytest.mark.allow_blocking
async def test_a_process_deaf_to_sigterm_is_killed_within_the_grace() -> None:
    async with desk(stop_grace=0.6) as at:
        run = await at.start(process_ignores, arguments={"deaf": True})
        pid = (await at.saw(run, "started"))["value"]["pid"]
        await at.stop(run)
        _, events = await at.finish(run)
        assert "stillRunning" not in result_of(events)
        assert not psutil.pid_exists(pid)


async def test_a_tool_that_swallows_every_cancellation_does_not_keep_the_run() -> None:
    async with desk(stop_grace=0.1) as at:

        @tool
        async def never_ends(ctx: ToolContext) -> None:
            """Swallows whatever comes until the test is over."""
            ctx.emit_custom_event("started", {})
            while not at.stage.go.is_set():
                try:
                    await at.stage.go.wait()
                except asyncio.CancelledError:
                    continue

        run = await at.start(never_ends)
        await at.saw(run, "started")
        await at.stop(run)
        record, events = await at.finish(run)
        assert record.status == "cancelled"
        assert result_of(events)["stillRunning"] is True


async def test_a_tool_that_swallows_cancellations_is_cancelled_again_each_second() -> None:
    async with desk(stop_grace=5) as at:

        @tool
        async def swallows_twice(ctx: ToolContext) -> None:
            """Needs three cancellations."""
            ctx.emit_custom_event("started", {})
            for number in range(3):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ctx.emit_custom_event("swallowed", {"number": number})

        run = await at.start(swallows_twice)
        await at.saw(run, "started")
        await at.stop(run)
        record, events = await at.finish(run)
        assert names_of(events).count("swallowed") == 3
        assert record.status == "cancelled"
        assert "stillRunning" not in result_of(events)


async def test_a_stop_without_grace_still_lets_a_tool_that_obeys_end() -> None:
    async with desk(stop_grace=0) as at:
        run = await at.start(sleeps)
        await at.saw(run, "started")
        await at.stop(run)
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    assert "stillRunning" not in result_of(events)


async def test_a_timeout_of_a_tool_that_is_safe_to_repeat_is_retryable() -> None:
    @tool(annotations={"read_only": True})
    async def reads() -> None:
        """Reads."""
        await asyncio.Event().wait()

    async with desk() as at:
        _, events = await at.outcome(reads, timeout=0.01)
    assert result_of(events)["error"]["retryable"] is True


# -- Stop in each phase --


async def test_stop_before_the_runs_first_turn_answers_its_call_cancelled() -> None:
    ran = []

    @tool
    async def runs() -> None:
        """Leaves a trace."""
        ran.append(True)

    async with desk() as at:
        run = await at.start(runs)
        await at.stop(run)
        record, events = await at.finish(run)
    assert not ran
    assert record.status == "cancelled"
    assert events[-2]["content"] == CANCELLED


@asynccontextmanager
async def hanging(stage: Stage) -> AsyncIterator[Stage]:
    await stage.go.wait()
    yield stage


async def test_stop_while_the_context_is_entered_waits_for_nothing() -> None:
    async with desk() as at:
        run = await at.start(sleeps, context=lambda: hanging(at.stage))
        await asyncio.sleep(0)
        await at.stop(run)
        record, events = await at.finish(run)
        assert not at.stage.go.is_set()
        assert record.status == "cancelled"
        assert events[-2]["content"] == CANCELLED


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_answer_before_stop_is_kept_and_one_after_it_dropped(kind: str) -> None:
    async with desk() as at:
        loop = asyncio.get_running_loop()

        def press(run: LiveRun) -> None:
            run.stop("user")

        @tool(name="answers")
        async def answers_async() -> str:
            """Answers; Stop is pressed right after it has."""
            loop.call_soon(press, started[0])
            return "in time"

        @tool(name="answers")
        def answers_plain() -> str:
            """Answers; Stop is pressed when it has, and before the loop knows."""
            stopped = threading.Event()
            loop.call_soon_threadsafe(stopped.set)
            stopped.wait(LONG)
            loop.call_soon_threadsafe(press, started[0])
            return "perhaps in time"

        started: list[LiveRun] = []
        run = await at.start(answers_async if kind == "async" else answers_plain)
        started.append(run)
        record, events = await at.finish(run)
    value = result_of(events)
    if kind == "async":
        assert value["status"] == "completed"
        assert record.calls[0].status == "completed"
    else:
        # The thread cannot know which was first; both are right, and the stream is whole either way.
        assert value["status"] in ("completed", "cancelled")


async def test_a_value_returned_after_the_abort_is_dropped() -> None:
    async with desk(stop_grace=5) as at:
        run = await at.start(swallows)
        await at.saw(run, "started")
        await at.stop(run)
        _, events = await at.finish(run)
    assert "too late" not in str(events)


@asynccontextmanager
async def slow_to_leave(stage: Stage) -> AsyncIterator[Stage]:
    yield stage
    await stage.go.wait()


@tool
async def answers(ctx: ToolContext) -> str:
    """Answers."""
    ctx.emit_custom_event("started", {})
    return "answer"


async def test_stop_after_the_result_and_before_the_end_changes_nothing() -> None:
    async with desk() as at:
        run = await at.start(answers, context=lambda: slow_to_leave(at.stage))
        await at.saw(run, "TOOL_CALL_RESULT")
        stopped = await at.stop(run)
        assert stopped is not None
        assert stopped.status == "running"
        at.stage.open()
        record, events = await at.finish(run)
    assert record.status == "completed"
    assert "run.stopping" not in names_of(events)


async def test_stop_after_the_end_changes_nothing() -> None:
    async with desk() as at:
        run = await at.start(answers)
        record, events = await at.finish(run)
        assert await at.stop(run) == record
        assert await at.finish(run) == (record, events)


async def test_stop_twice_is_stop_once() -> None:
    async with desk() as at:
        run = await at.start(swallows)
        await at.saw(run, "started")
        await at.stop(run)
        await at.saw(run, "swallowed")
        await at.stop(run)
        record, events = await at.finish(run)
        await at.stop(run)
        assert record.status == "cancelled"
        assert names_of(events).count("run.stopping") == 1


async def test_stop_of_a_call_leaves_the_run_and_the_other_calls_alone() -> None:
    async with desk() as at:

        @tool
        async def waits(ctx: ToolContext) -> str:
            """Waits for the test."""
            await ctx.context.go.wait()
            return "done"

        run = await at.start(sleeps, waits)
        await at.saw(run, "started")
        await at.stop(run, "call-1")
        await at.saw(run, "TOOL_CALL_RESULT")
        at.stage.open()
        record, events = await at.finish(run)
    assert record.status == "completed"
    assert "run.stopping" not in names_of(events)
    assert result_of(events, "call-1")["status"] == "cancelled"
    assert result_of(events, "call-2")["status"] == "completed"


async def test_stop_of_the_run_while_one_call_unwinds_from_its_own_stop() -> None:
    async with desk(stop_grace=0.2) as at:
        run = await at.start(ignoring(at.stage), sleeps)
        await at.saw(run, "started")
        await at.stop(run, "call-1")
        await at.stop(run)
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    assert result_of(events, "call-1")["status"] == "cancelled"
    assert result_of(events, "call-2")["status"] == "cancelled"


async def test_stop_while_a_timed_out_tool_unwinds_finds_nothing_to_stop() -> None:
    async with desk(stop_grace=5) as at:
        run = await at.start(ignoring(at.stage), timeout=0.02)
        record, _ = await at.finish(run)
        assert await at.stop(run) == record
        assert record.status == "completed"


# -- the run is ended by something else --


@dataclass
class Ending:
    """How a run with a sleeping tool is ended, and the code of its RUN_ERROR; `reason` as in the record."""

    code: str
    reason: str
    options: dict[str, Any]
    run_options: dict[str, Any]
    drive: Callable[[Desk, LiveRun], Awaitable[object]]


async def _nothing(at: Desk, run: LiveRun) -> None:
    """The clock does it."""


async def _watch_and_leave(at: Desk, run: LiveRun) -> None:
    run.presence.joined()
    run.presence.left()


async def _drain(at: Desk, run: LiveRun) -> None:
    await at.supervisor.drain(0.01)


async def _close(at: Desk, run: LiveRun) -> None:
    await at.supervisor.close()


LEAVING = {"on_disconnect": "cancel", "disconnect_grace": 0.01}
ENDED_BY: dict[str, Ending] = {
    "the run's time limit": Ending("run_timeout", "run_timeout", {"run_timeout": 0.3}, {}, _nothing),
    "its last viewer leaving": Ending("interrupted", "disconnect", {}, LEAVING, _watch_and_leave),
    "its last viewer leaving, by the gateway's setting": Ending(
        "interrupted", "disconnect", LEAVING, {}, _watch_and_leave
    ),
    "a drain": Ending("interrupted", "shutdown", {}, {}, _drain),
    "a shutdown": Ending("interrupted", "shutdown", {}, {}, _close),
}


@pytest.mark.parametrize("kind", ["an async sleep", "a thread polling the signal", "a thread ignoring the signal"])
@pytest.mark.parametrize("name", ENDED_BY)
async def test_a_run_ended_by_anything_but_a_person_fails_and_its_calls_are_interrupted(name: str, kind: str) -> None:
    ending = ENDED_BY[name]
    async with desk(stop_grace=0.2, **ending.options) as at:
        run = await at.start(tool_for(STOPPABLE[kind][0], at.stage), **ending.run_options)
        await at.saw(run, "started")
        await ending.drive(at, run)
        record, events = await at.finish(run)
    assert record.status == "failed"
    assert record.reason == ending.reason
    assert record.error is not None
    assert record.error["code"] == ending.code
    assert result_of(events)["status"] == "interrupted"
    assert result_of(events)["error"]["retryable"] is False
    assert result_of(events).get("stillRunning", False) is STOPPABLE[kind][1]


async def test_a_viewer_that_comes_back_in_time_keeps_the_run() -> None:
    async with desk() as at:
        run = await at.start(sleeps, on_disconnect="cancel", disconnect_grace=30)
        await at.saw(run, "started")
        run.presence.joined()
        run.presence.left()
        leaving = run.presence._timer
        assert leaving is not None
        run.presence.joined()
        assert leaving.cancelled()
        await at.stop(run)
        record, _ = await at.finish(run)
    assert record.status == "cancelled"


async def test_a_run_that_nobody_ever_watched_is_not_ended_by_their_absence() -> None:
    async with desk() as at:

        @tool
        async def waits(ctx: ToolContext) -> None:
            """Waits for the test."""
            await ctx.context.go.wait()

        run = await at.start(waits, on_disconnect="cancel", disconnect_grace=0)
        at.stage.open()
        record, _ = await at.finish(run)
    assert record.status == "completed"


async def test_a_stop_that_came_first_decides_how_the_run_ends() -> None:
    async with desk(stop_grace=0.5, run_timeout=0.2) as at:
        run = await at.start(ignoring(at.stage))
        await at.saw(run, "started")
        await at.stop(run)
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    assert names_of(events).count("run.stopping") == 1


async def test_a_drain_lets_runs_end_by_themselves_and_takes_no_new_ones() -> None:
    async with desk() as at:

        @tool
        async def waits(ctx: ToolContext) -> str:
            """Waits for the test."""
            ctx.emit_custom_event("started", {})
            await ctx.context.go.wait()
            return "done"

        run = await at.start(waits)
        await at.saw(run, "started")
        draining = asyncio.create_task(at.supervisor.drain(LONG))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as refused:
            await at.start(waits)
        assert refused.value.code == "draining"
        at.stage.open()
        await draining
        record, _ = await at.finish(run)
    assert record.status == "completed"


async def test_a_shutdown_ends_a_run_whose_context_never_opens() -> None:
    async with desk(stop_grace=0.05) as at:
        run = await at.start(sleeps, context=lambda: hanging(at.stage))
        await asyncio.sleep(0)
        await at.supervisor.close()
        record, _ = await at.finish(run)
    assert record.status == "failed"
    assert record.error is not None
    assert record.error["code"] == "interrupted"


async def test_the_runs_time_limit_holds_while_its_context_is_entered() -> None:
    async with desk(run_timeout=0.05) as at:
        run = await at.start(sleeps, context=lambda: hanging(at.stage))
        record, _ = await at.finish(run)
        assert not at.stage.go.is_set()
    assert record.error is not None
    assert record.error["code"] == "run_timeout"


async def test_the_runs_time_limit_holds_while_its_context_is_left() -> None:
    async with desk(run_timeout=0.3) as at:
        run = await at.start(answers, context=lambda: slow_to_leave(at.stage))
        record, events = await at.finish(run)
        assert not at.stage.go.is_set()
    assert result_of(events)["status"] == "completed"
    assert record.error is not None
    assert record.error["code"] == "run_timeout"


@pytest.mark.parametrize("kind", ["an async sleep", "a thread ignoring the signal"])
async def test_a_run_whose_task_is_cancelled_from_outside_still_answers_its_call(kind: str) -> None:
    async with desk(stop_grace=30) as at:
        run = await at.start(tool_for(STOPPABLE[kind][0], at.stage))
        await at.saw(run, "started")
        next(task for task in asyncio.all_tasks() if task.get_name() == f"run {run.key.label}").cancel()
        record, events = await at.finish(run)
    assert record.status == "failed"
    assert result_of(events)["status"] == "interrupted"


# -- the context of the run --


@asynccontextmanager
async def fails_to_enter(error: BaseException) -> AsyncIterator[None]:
    raise error
    yield


@asynccontextmanager
async def fails_to_leave(error: BaseException) -> AsyncIterator[None]:
    yield
    raise error


CONTEXT_ERRORS: dict[str, Callable[[], BaseException]] = {
    "an exception": lambda: RuntimeError("secret-of-the-database"),
    "SystemExit": lambda: SystemExit("secret-of-the-database"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("secret-of-the-database"),
    "a group": lambda: BaseExceptionGroup("secret-of-the-database", [KeyboardInterrupt()]),
    "CancelledError": lambda: asyncio.CancelledError("secret-of-the-database"),
}


@pytest.mark.parametrize("error", CONTEXT_ERRORS)
@pytest.mark.parametrize("where", [fails_to_enter, fails_to_leave])
async def test_a_context_that_fails_ends_the_run_internal_and_its_words_stay_here(
    where: Callable[[BaseException], Any], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk() as at:
        run = await at.start(answers, context=lambda: where(CONTEXT_ERRORS[error]()))
        record, events = await at.finish(run)
    assert record.error is not None
    assert record.error["code"] == "internal"
    assert "secret" not in str(events)
    assert "secret" in caplog.text
    assert names_of(events).count("tool.result") == (where is fails_to_leave)


async def test_the_context_is_entered_for_the_runs_life_and_left_before_its_end() -> None:
    @asynccontextmanager
    async def entered() -> AsyncIterator[str]:
        notes.append("enter")
        yield "the value"
        notes.append("leave")

    @tool
    async def looks(ctx: ToolContext) -> Any:
        """Looks at the context."""
        notes.append("call")
        return ctx.context

    notes: list[str] = []
    async with desk() as at:
        record, events = await at.outcome(looks, context=entered)
    assert notes == ["enter", "call", "leave"]
    assert result_of(events)["content"] == [{"type": "text", "text": "the value"}]
    assert record.status == "completed"


# -- late emits --


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_tool_emits_after_its_result_is_dropped_and_counted(kind: str) -> None:
    gone = threading.Event()

    def say(ctx: ToolContext) -> None:
        ctx.emit_custom_event("late", {})
        ctx.emit_custom_event("late", {}, batch=True)
        ctx.report_progress(1)
        gone.set()

    @tool(name="late")
    async def late_async(ctx: ToolContext) -> None:
        """Emits after its end."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say(ctx)

    @tool(name="late")
    def late_plain(ctx: ToolContext) -> None:
        """Emits after its end."""
        ctx.context.thread_go.wait()
        say(ctx)

    async with desk(stop_grace=5) as at:
        run = await at.start(late_async if kind == "async" else late_plain, timeout=0.02)
        _, events = await at.finish(run)
        at.stage.open()
        await asyncio.to_thread(gone.wait, LONG)
        assert at.supervisor.counts["late_emits"] == 3
    assert "late" not in names_of(events)
    assert result_of(events)["status"] == "timeout"


async def test_what_a_context_emits_for_a_generator_after_stop_is_dropped_not_raised() -> None:
    raised: list[BaseException] = []

    @tool
    def yields(ctx: ToolContext) -> Iterator[int]:
        """Yields on after its end."""
        yield 1
        ctx.context.thread_go.wait()
        try:
            yield 2
        except BaseException as error:
            raised.append(error)
            raise

    async with desk(stop_grace=0.05) as at:
        run = await at.start(yields)
        await at.saw(run, "tool.output")
        await at.stop(run)
        _, events = await at.finish(run)
    assert names_of(events).count("tool.output") == 1
    assert all(isinstance(error, GeneratorExit) for error in raised)


# -- the clock and the answer --


async def test_an_answer_in_the_loop_turn_of_the_timer_wins() -> None:
    async with desk() as at:
        loop = asyncio.get_running_loop()
        door: asyncio.Future[None] = loop.create_future()

        @tool(timeout=0.2)
        async def answers_at_the_last_moment() -> str:
            """Answers in the very turn of the loop in which the clock rings."""
            await door
            return "in time"

        def open_the_door_as_the_clock_rings() -> None:
            # Ready callbacks run before timers that are due, so the answer and the ring share the next turn.
            while loop.time() < ring:
                pass
            door.set_result(None)

        run = await at.start(answers_at_the_last_moment)
        await at.saw(run, "TOOL_CALL_END")
        ring = loop.time() + 0.25
        loop.call_soon(open_the_door_as_the_clock_rings)
        record, events = await at.finish(run)
    assert record.status == "completed"
    assert result_of(events)["status"] == "completed"


async def test_a_timeout_of_zero_waits_until_somebody_stops_it() -> None:
    async with desk() as at:
        run = await at.start(sleeps, timeout=0)
        await at.saw(run, "started")
        await at.stop(run)
        record, _ = await at.finish(run)
    assert record.status == "cancelled"


# -- generators --


async def test_a_generators_yields_go_out_and_the_last_is_the_result() -> None:
    @tool
    def rows() -> Iterator[Any]:
        """Yields."""
        yield {"row": 1}
        yield 2

    @tool
    async def rows_async() -> AsyncIterator[Any]:
        """Yields."""
        yield {"row": 1}
        yield 2

    for item in (rows, rows_async):
        async with desk() as at:
            _, events = await at.outcome(item)
        outputs = [event["value"]["output"] for event in events if event.get("name") == "tool.output"]
        assert outputs == [{"row": 1}, {"value": 2}]
        assert result_of(events)["structuredContent"] == {"result": 2}


async def test_a_generator_without_yields_has_an_empty_result() -> None:
    @tool
    def nothing() -> Iterator[int]:
        """Yields nothing."""
        yield from ()

    @tool
    async def nothing_async() -> AsyncIterator[int]:
        """Yields nothing."""
        numbers: tuple[int, ...] = ()
        for number in numbers:
            yield number

    for item in (nothing, nothing_async):
        async with desk() as at:
            _, events = await at.outcome(item)
        assert result_of(events)["status"] == "completed"
        assert events[-2]["content"] == ""


async def test_an_async_generator_that_refuses_to_close_ends_all_the_same() -> None:
    @tool
    async def refuses(ctx: ToolContext) -> AsyncIterator[int]:
        """Yields while it is closed."""
        ctx.emit_custom_event("started", {})
        try:
            yield 1
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield 2
            yield 3

    async with desk() as at:
        run = await at.start(refuses)
        await at.saw(run, "started")
        await at.saw(run, "tool.output")
        await at.stop(run)
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    assert result_of(events)["status"] == "cancelled"


# -- what must never reach a client --


@pytest.mark.parametrize("body", ["async", "thread"])
async def test_the_traceback_of_a_tool_reaches_the_log_only(body: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gateway"):
        async with desk() as at:
            _, events = await at.outcome(BODIES[body], arguments={"what": "an exception"})
    assert "raise_as" in caplog.text
    assert "Traceback" not in str(events)
    assert "raise_as" not in str(events)
