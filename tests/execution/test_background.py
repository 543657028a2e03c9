"""Background runs: who can end them, what they ask, what is noted at their end, and what they count for."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.errors import ToolError, TooMany, Unavailable
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import CANCELLED, ToolOutput
from gateway.execution.supervisor import Supervisor
from gateway.execution.tools import Tool, tool
from gateway.settings import Settings
from gateway.stores.memory import MemoryStore
from tests.execution.detached import (
    ADA,
    BEYOND,
    NOTE,
    answer,
    custom,
    detach,
    detachable,
    in_virtual_time,
    job_of,
    names_of,
    notes,
    result_of,
    rows,
    sibling,
    text_of,
    waits,
)
from tests.execution.running import LONG, Desk, Stage, desk, quiet

# -- who can end what --


async def test_stop_of_the_run_it_came_from_does_not_touch_the_job() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), sibling, owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(run)
        record, events = await at.finish(run)
        assert record.status == "cancelled"
        found = {call_id: result_of(events, call_id)["status"] for call_id in ("call-1", "call-2")}
        assert found == {"call-1": "detached", "call-2": "cancelled"}
        assert not job.signal.aborted
        at.stage.open()
        record, events = await job_of(at, job)
        assert (record.status, result_of(events)["status"]) == ("completed", "completed")


async def test_stop_of_the_call_it_was_does_not_touch_the_job() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), sibling, owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(run, "call-1")
        at.stage.open()
        _, events = await at.finish(run)
        assert result_of(events)["status"] == "detached"
        _, events = await job_of(at, job)
        assert result_of(events)["status"] == "completed"


@pytest.mark.parametrize("press", ["run", "call"])
async def test_stop_of_the_job_is_the_persons_and_the_note_says_so(press: str) -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), sibling, owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(job, "call-1" if press == "call" else None)
        record, events = await job_of(at, job)
        assert (result_of(events)["status"], text_of(result_of(events))) == ("cancelled", CANCELLED)
        assert "stillRunning" not in result_of(events)
        assert record.status == ("cancelled" if press == "run" else "completed")
        assert ("run.stopping" in names_of(events)) is (press == "run")
        assert events[-1]["outcome"]["type"] == ("cancelled" if press == "run" else "success")
        assert await notes(at) == ["Background job call-1 ended.\nError [cancelled]: Cancelled by the user."]
        assert not run.machine.over, "the run it came from goes on"
        at.stage.open()
        record, _ = await at.finish(run)
        assert record.status == "completed"


async def test_what_the_work_emits_while_it_unwinds_from_stop_is_delivered() -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        try:
            await asyncio.Event().wait()
        finally:
            ctx.emit_custom_event("unwinding", {"reason": ctx.abort_signal.reason})
            await asyncio.sleep(0)
            ctx.emit_custom_event("unwound", {})

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(job)
        _, events = await job_of(at, job)
    assert names_of(events)[1:-2] == ["run.stopping", "unwinding", "unwound"]
    assert custom(events, "unwinding")[0]["reason"] == "user"


async def test_cooperative_work_gets_the_signal_first_in_the_background_too() -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        try:
            await ctx.abort_signal.wait()
            ctx.emit_custom_event("heard", {})
            for _ in range(20):
                await asyncio.sleep(0)
            ctx.emit_custom_event("gently", {})
        except asyncio.CancelledError:
            ctx.emit_custom_event("cut", {})
            raise

    async with desk(stop_grace=LONG) as at:
        run = await at.start(detachable(work, cooperative=True))
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(job)
        _, events = await job_of(at, job)
    assert names_of(events)[1:-2] == ["run.stopping", "heard", "gently"]
    assert result_of(events)["status"] == "cancelled"


def test_the_clock_of_the_call_does_not_ring_for_the_job() -> None:
    async def life() -> None:
        async with desk(run_timeout=0) as at:
            run = await at.start(detachable(waits, timeout=5))
            await at.saw(run, "begun")
            job = await detach(at, run)
            await at.finish(run)
            await asyncio.sleep(3_600)
            assert not job.signal.aborted
            at.stage.open()
            record, events = await job_of(at, job)
            assert (record.status, result_of(events)["status"]) == ("completed", "completed")

    in_virtual_time(life)


async def test_the_last_viewer_of_the_run_it_came_from_may_leave() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), sibling, on_disconnect="cancel", disconnect_grace=0)
        run.presence.joined()
        await at.saw(run, "begun")
        job = await detach(at, run)
        run.presence.left()
        record, events = await at.finish(run)
        assert (record.status, record.reason) == ("failed", "disconnect")
        assert result_of(events)["status"] == "detached"
        job.presence.joined()
        job.presence.left()
        assert not job.signal.aborted
        at.stage.open()
        record, _ = await job_of(at, job)
        assert record.status == "completed"


def test_run_timeout_bounds_the_job_from_its_own_start() -> None:
    async def life() -> None:
        loop = asyncio.get_running_loop()
        async with desk(run_timeout=100) as at:
            run = await at.start(detachable(waits), owner=ADA)
            await at.saw(run, "begun")
            await asyncio.sleep(60)
            job, moved = await detach(at, run), loop.time()
            await at.finish(run)
            await job.done.wait()
            assert 100 <= loop.time() - moved < 101
            record, events = await job_of(at, job)
            assert (record.status, record.error) == (
                "failed",
                {"code": "run_timeout", "message": "The run took longer than it may."},
            )
            ended = f'Error [interrupted]: "works" was ended by the run\'s time limit before it finished. {BEYOND}'
            assert text_of(result_of(events)) == ended
            assert await notes(at) == [f"Background job call-1 ended.\n{ended}"]

    in_virtual_time(life)


@pytest.mark.parametrize("asked", ["before", "after"])
def test_the_time_in_which_the_job_waits_for_the_person_does_not_count(asked: str) -> None:
    async def work(ctx: ToolContext) -> str:
        ctx.emit_custom_event("begun", {})
        if asked == "after":
            await ctx.context.go.wait()
        answer = await ctx.request_input("Go on?")
        await asyncio.sleep(15)
        return str(answer.payload)

    async def life() -> None:
        async with desk(run_timeout=100) as at:
            run = await at.start(detachable(work), owner=ADA)
            await at.saw(run, "tool.waiting" if asked == "before" else "begun")
            job = await detach(at, run)
            await at.finish(run)
            at.stage.open()
            value = (await at.saw(job, "tool.waiting"))["value"]
            await asyncio.sleep(3_600)
            assert job.record.status == "waiting"
            await answer(at, job.key, value["interruptId"], "yes")
            record, events = await job_of(at, job)
            assert (record.status, text_of(result_of(events))) == ("completed", "yes")

    in_virtual_time(life)


def test_the_time_limit_of_the_run_it_came_from_does_not_touch_the_job() -> None:
    async def life() -> None:
        loop = asyncio.get_running_loop()
        async with desk(run_timeout=100) as at:
            run = await at.start(detachable(waits), sibling)
            await at.saw(run, "begun")
            await asyncio.sleep(60)
            job = await detach(at, run)
            await run.done.wait()
            assert 100 <= loop.time() < 101
            record, events = await at.finish(run)
            assert record.reason == "run_timeout"
            assert [result_of(events, call_id)["status"] for call_id in ("call-1", "call-2")] == [
                "detached",
                "interrupted",
            ]
            await asyncio.sleep(50)
            at.stage.open()
            record, _ = await job_of(at, job)
            assert record.status == "completed"

    in_virtual_time(life)


async def test_the_log_says_when_a_job_began_and_ended_as_of_every_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gateway.runs"):
        async with desk() as at:
            run = await at.start(detachable(waits), owner="anon:ada-secret", run_id="parent")
            await at.saw(run, "begun")
            job = await detach(at, run)
            await at.finish(run)
            at.stage.open()
            await job_of(at, job)
    lines = [entry.getMessage() for entry in caplog.records if entry.name == "gateway.runs"]
    assert [line.split(":")[0] for line in lines] == [
        "run parent started",
        f"run {job.key.run_id} started",
        "run parent ended",
        f"run {job.key.run_id} ended",
    ]
    assert all("tools=works" in line for line in lines)
    assert "secret" not in str(lines)


# -- questions --


async def test_a_question_that_is_open_moves_along_and_is_answered_there() -> None:
    async def work(ctx: ToolContext) -> list[Any]:
        given = await ctx.request_input("Go on?")
        return [given.payload, ctx.input_response is not None]

    async with desk() as at:
        run = await at.start(detachable(work), sibling)
        asked = (await at.saw(run, "tool.waiting"))["value"]
        assert run.record.status == "waiting"
        job = await detach(at, run)
        await at.ended(run, "call-1")
        assert (run.record.status, job.record.status) == ("running", "waiting")
        assert job.record.calls[0].status == "waiting"
        again = (await at.saw(job, "tool.waiting"))["value"]
        assert again == asked
        assert not await answer(at, run.key, asked["interruptId"], "there")
        assert await answer(at, job.key, asked["interruptId"], "here")
        _, events = await job_of(at, job)
        assert names_of(events) == ["RUN_STARTED", "tool.waiting", "tool.resumed", "tool.result", "RUN_FINISHED"]
        assert result_of(events)["structuredContent"] == {"result": ["here", True]}
        at.stage.open()
        _, events = await at.finish(run)
        assert "tool.resumed" not in names_of(events)


async def test_an_answer_that_came_just_before_the_move_counts() -> None:
    async def work(ctx: ToolContext) -> Any:
        return (await ctx.request_input("Go on?")).payload

    async with desk() as at:
        run = await at.start(detachable(work))
        asked = (await at.saw(run, "tool.waiting"))["value"]
        assert await answer(at, run.key, asked["interruptId"], "in time")
        job = await detach(at, run)
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "in time"
        assert names_of(events)[1:-2] == ["tool.waiting", "tool.resumed"]


async def test_the_question_of_a_nested_call_moves_along_too() -> None:
    @tool(timeout=0)
    async def asks(ctx: ToolContext) -> Any:
        """Asks."""
        return (await ctx.request_input("Which?")).payload

    async def work(ctx: ToolContext) -> str:
        return (await ctx.call_tool("asks", {})).text

    async with desk() as at:
        run = await at.start(detachable(work), others=[asks])
        asked = (await at.saw(run, "tool.waiting"))["value"]
        assert asked["toolCallId"] == "call-1/1"
        job = await detach(at, run)
        record, _ = await at.finish(run)
        assert record.status == "completed"
        assert job.record.status == "waiting"
        assert (await at.saw(job, "tool.waiting"))["value"] == asked
        assert not await answer(at, run.key, asked["interruptId"], "there")
        assert await answer(at, job.key, asked["interruptId"], "this one")
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "this one"


async def test_a_wait_of_the_tools_own_moves_along() -> None:
    async def work(ctx: ToolContext) -> str:
        async with ctx.waiting_for_user("Look at your phone."):
            await ctx.context.go.wait()
        return "seen"

    async with desk() as at:
        run = await at.start(detachable(work), sibling)
        told = (await at.saw(run, "tool.waiting"))["value"]
        job = await detach(at, run)
        await at.ended(run, "call-1")
        assert (run.record.status, job.record.status) == ("running", "waiting")
        assert (await at.saw(job, "tool.waiting"))["value"] == told
        at.stage.open()
        _, events = await job_of(at, job)
        assert names_of(events)[1:-2] == ["tool.waiting", "tool.resumed"]
        _, events = await at.finish(run)
        assert "tool.resumed" not in names_of(events)


async def test_a_thread_of_the_work_may_ask_from_the_background() -> None:
    def asks(ctx: ToolContext) -> Any:
        ctx.context.thread_go.wait()
        return ctx.request_input_sync("Go on?").payload

    async def work(ctx: ToolContext) -> Any:
        ctx.emit_custom_event("begun", {})
        return await asyncio.to_thread(asks, ctx)

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        at.stage.open()
        asked = (await at.saw(job, "tool.waiting"))["value"]
        assert await answer(at, job.key, asked["interruptId"], "yes")
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "yes"


async def test_stop_of_the_job_withdraws_the_question_that_moved_along() -> None:
    async def work(ctx: ToolContext) -> Any:
        return (await ctx.request_input("Go on?")).payload

    async with desk() as at:
        run = await at.start(detachable(work))
        asked = (await at.saw(run, "tool.waiting"))["value"]
        job = await detach(at, run)
        await at.stop(job)
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == CANCELLED
        assert not await answer(at, job.key, asked["interruptId"], "too late")
        assert not await answer(at, run.key, asked["interruptId"], "too late")


async def test_a_job_cannot_end_with_an_interrupt() -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        ctx.interrupt("May I?")

    async with desk() as at:
        run = await at.start(detachable(work), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        record, events = await job_of(at, job)
        assert record.status == "completed"
        message = "ctx.interrupt is not available in the background: use ctx.request_input."
        assert text_of(result_of(events)).endswith(message)
        assert (await notes(at))[0].endswith(message)


async def test_a_sibling_may_end_the_run_with_an_interrupt_while_the_job_goes_on() -> None:
    @tool(timeout=0)
    async def interrupts(ctx: ToolContext) -> Any:
        """Ends the run with a question."""
        await ctx.context.go.wait()
        return ctx.interrupt("May I?").payload

    more = asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        ctx.emit_custom_event("begun", {})
        await more.wait()
        return "done"

    async with desk() as at:
        run = await at.start(detachable(work), interrupts)
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await run.done.wait()
        record = await at.store.get(run.key)
        assert record is not None
        assert record.status == "interrupted"
        assert [call.status for call in record.calls] == ["detached", "interrupted"]
        assert not job.machine.over
        more.set()
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "done"


# -- notes --


class Count(BaseModel):
    """An output model."""

    count: int


async def gives(ctx: ToolContext, value: Any) -> Any:
    ctx.emit_custom_event("begun", {})
    await ctx.context.go.wait()
    if isinstance(value, BaseException):
        raise value
    return value


ENDINGS: dict[str, tuple[Any, str, str]] = {
    "a mapping": ({"rows": 3}, "completed", '{"rows":3}'),
    "text": ("three rows", "completed", "three rows"),
    "nothing": (None, "completed", ""),
    "an output": (ToolOutput([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "completed", "a\nb"),
    "an error": ("Error: no disk", "failed", "Error [failed]: no disk"),
    "an error with a code": ("Error [full]: no disk", "failed", "Error [full]: no disk"),
    "an exception": (ValueError("no disk"), "failed", "Error [failed]: no disk"),
    "an exception with a code": (ToolError("full", "no disk"), "failed", "Error [full]: no disk"),
    "a group": (ExceptionGroup("several", [ValueError("no disk")]), "failed", "Error [failed]: several"),
    "exit": (SystemExit("no disk"), "failed", "Error [failed]: no disk"),
    "its own cancellation": (asyncio.CancelledError(), "failed", "Error [failed]: The tool cancelled itself."),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_note_is_kept_once_and_says_what_the_work_came_to(ending: str) -> None:
    value, status, text = ENDINGS[ending]
    async with desk() as at:
        run = await at.start(detachable(lambda ctx: gives(ctx, value)), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        assert await notes(at) == []
        at.stage.open()
        record, events = await job_of(at, job)
        assert (record.status, result_of(events)["status"]) == ("completed", status)
        (note,) = await at.store.notes(ADA, "thread-1")
        assert note.text == f"Background job call-1 ended.\n{text}"
        assert (note.run_id, note.message_id, note.delivered_to) == (job.key.run_id, "call-1:note", None)
        assert await at.store.notes("anon:bob", "thread-1") == []
        assert await at.store.notes(ADA, "thread-2") == []


async def test_the_note_is_there_before_anybody_can_see_the_end_of_the_job() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await at.saw(job, "RUN_FINISHED")
        assert len(await notes(at)) == 1
        await at.finish(job)


async def test_without_an_owner_there_is_no_note() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits))
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await job_of(at, job)
        assert job.key.owner is None
        assert not at.store._notes


async def test_the_output_model_holds_for_the_work_and_not_for_the_note() -> None:
    async with desk() as at:
        for value, status in (({"count": 3}, "completed"), ({"count": "many"}, "failed")):
            made = detachable(lambda ctx, given=value: gives(ctx, given), output_model=Count)  # type: ignore[misc]
            at.stage.go.clear()
            run = await at.start(made)
            await at.saw(run, "begun")
            job = await detach(at, run)
            _, events = await at.finish(run)
            assert (result_of(events)["status"], text_of(result_of(events))) == ("detached", NOTE)
            at.stage.open()
            _, events = await job_of(at, job)
            assert result_of(events)["status"] == status


# -- limits, context, drain --


async def test_a_detach_is_never_refused_for_a_limit_and_a_job_counts_as_a_run_but_for_no_session() -> None:
    async with desk(max_runs=2, max_runs_per_session=1) as at:
        run = await at.start(detachable(waits), detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        await quiet(lambda: all(call.offers for call in run.calls.values()))
        first, second = await detach(at, run, "call-1"), await detach(at, run, "call-2")
        assert first.key != second.key
        await at.finish(run)
        assert at.supervisor.active == 2
        with pytest.raises(TooMany):
            await at.start(sibling, owner=ADA)
        await at.stop(first)
        await at.finish(first)
        again = await at.start(sibling, owner=ADA)
        assert not again.machine.over, "the session has no run at work, only a job"
        at.stage.open()
        await at.finish(again)
        await job_of(at, second)


async def test_a_detach_is_not_refused_when_the_store_is_full() -> None:
    async with desk(max_store_bytes=50_000) as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        large = replace(run.machine.record, messages=b"x" * 200_000)
        run.machine.record = large
        run.writer.save(large)
        with pytest.raises(Unavailable) as refused:
            await at.start(sibling, owner=ADA)
        assert refused.value.code == "store_full"
        job = await detach(at, run)
        at.stage.open()
        await run.done.wait()
        await job.done.wait()
        assert job.record.status == "completed"


async def test_what_is_over_lets_go_of_what_it_worked_with() -> None:
    class Big:
        pass

    held: list[weakref.ref[Big]] = []

    async def work(ctx: ToolContext) -> None:
        big = Big()
        held.append(weakref.ref(big))
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        del big

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Has something that its work has not."""
        big = Big()
        held.append(weakref.ref(big))
        return await ctx.run_detachable(work(ctx)), big

    async def life(at: Desk) -> None:
        run = await at.start(works, owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        at.stage.open()
        await job_of(at, job)

    async with desk() as at:
        await life(at)
        await quiet(lambda: not at.supervisor._works)
        gc.collect()
        assert [kept() for kept in held] == [None, None]


@asynccontextmanager
async def lent(trail: list[Any], slow: int = 0) -> AsyncIterator[Stage]:
    """A context that may only be left in the task that entered it, and that takes some turns of the loop for that."""
    task = asyncio.current_task()
    stage = Stage()
    trail.append(("entered", stage))
    try:
        yield stage
    finally:
        trail.append("leaving" if asyncio.current_task() is task else "left by another task")
        for _ in range(slow):
            await asyncio.sleep(0.001)
        trail.append("left")


async def test_the_context_is_left_when_the_last_job_has_ended_and_in_its_own_task() -> None:
    trail: list[Any] = []
    gates = [asyncio.Event(), asyncio.Event()]

    def works(number: int) -> Tool:
        async def work(ctx: ToolContext) -> None:
            ctx.emit_custom_event("begun", {})
            await gates[number].wait()
            ctx.context.notes.append(number)

        return detachable(work, name=f"works{number}")

    async with desk() as at:
        run = await at.start(works(0), works(1), context=lambda: lent(trail))
        await at.saw(run, "begun")
        await quiet(lambda: all(call.offers for call in run.calls.values()))
        jobs = [await detach(at, run, call_id) for call_id in ("call-1", "call-2")]
        record, _ = await at.finish(run)
        assert record.status == "completed", "the run itself is over"
        assert at.supervisor.live(run.key) is None
        for number in (1, 0):
            assert len(trail) == 1
            gates[number].set()
            await at.finish(jobs[number])
        await quiet(lambda: len(trail) == 3)
        assert trail[1:] == ["leaving", "left"]
        assert trail[0][1].notes == [1, 0]


async def test_a_context_that_fails_when_it_is_left_after_the_jobs_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def fails() -> AsyncIterator[Stage]:
        yield at.stage
        raise RuntimeError("no more of this")

    async with desk() as at:
        run = await at.start(detachable(waits), context=fails)
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        record, _ = await at.finish(run)
        assert record.status == "completed"
        record, _ = await job_of(at, job)
        assert record.status == "completed"
        await quiet(lambda: "no more of this" in caplog.text)


async def test_shutdown_ends_jobs_and_says_so_and_the_context_is_left_in_peace() -> None:
    trail: list[Any] = []
    settings = Settings(stop_grace=0.3)
    async with MemoryStore(settings) as store:
        supervisor = Supervisor(settings, store)
        await supervisor.open()
        at = Desk(supervisor, store, Stage())
        run = await at.start(detachable(waits), context=lambda: lent(trail, slow=5), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        await supervisor.close()
        record, events = await job_of(at, job)
        assert (record.status, record.error) == (
            "failed",
            {"code": "interrupted", "message": "The run was ended by a shutdown of the gateway."},
        )
        ended = f'Error [interrupted]: "works" was ended by the gateway\'s shutdown before it finished. {BEYOND}'
        assert text_of(result_of(events)) == ended
        assert await notes(at) == [f"Background job call-1 ended.\n{ended}"]
        assert trail[1:] == ["leaving", "left"]
        assert supervisor.active == 0


async def test_a_job_that_is_made_during_the_drain_gets_its_time_too() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits))
        await at.saw(run, "begun")
        draining = asyncio.create_task(at.supervisor.drain(LONG))
        await quiet(lambda: at.supervisor.draining)
        job = await detach(at, run)
        await at.finish(run)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not job.signal.aborted
        at.stage.open()
        record, events = await job_of(at, job)
        assert (record.status, result_of(events)["status"]) == ("completed", "completed")
        await draining


async def test_many_jobs_of_one_run_cost_no_more_than_many_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Each job looks for what was emitted where it came from; that must not grow with the number of the others."""
    caplog.set_level(logging.CRITICAL)
    count, each = 300, 20
    looked = 0

    async def work(ctx: ToolContext) -> None:
        await ctx.context.go.wait()
        for number in range(each):
            ctx.emit_custom_event("row", {"n": number})
            await asyncio.sleep(0)

    async with desk(max_runs_per_session=1) as at:
        run = await at.start(*(detachable(work) for _ in range(count)), owner=ADA)
        await quiet(lambda: all(call.offers for call in run.calls.values()))
        jobs = [await detach(at, run, call_id) for call_id in list(run.calls)]
        await at.finish(run)
        hand_over = run.hand_over

        class Counting(dict[Any, Any]):
            def items(self) -> Any:
                nonlocal looked
                looked += len(self)
                return super().items()

            def values(self) -> Any:
                nonlocal looked
                looked += len(self)
                return super().values()

        run._moved = Counting(run._moved)
        assert hand_over is not None
        at.stage.open()
        for job in jobs:
            _, events = await at.finish(job)
            assert rows(events) == list(range(each))
        assert looked <= count * 10
        assert len(await notes(at)) == count
