"""Detach: a call leaves its work to the background, and nothing that the work says, asks or comes to is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.execution.background import Detached, Rejected
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import Tool, tool
from gateway.run.records import RunKey
from tests.execution.detached import (
    ADA,
    BEYOND,
    FORMS,
    NOT_NOW,
    NOTE,
    custom,
    detach,
    detachable,
    first_of,
    job_of,
    names_of,
    notes,
    refused,
    result_of,
    rows,
    sibling,
    text_of,
    waits,
)
from tests.execution.running import LONG, Desk, desk, quiet

# -- the two forms --


@pytest.mark.parametrize("form", FORMS)
async def test_a_detached_call_gets_the_note_and_its_work_goes_on_as_a_run_of_its_own(form: str) -> None:
    async with desk() as at:
        run = await at.start(detachable(waits, form), sibling, owner=ADA, run_id="parent")
        await at.saw(run, "begun")
        job = await detach(at, run)
        result = (await at.ended(run, "call-1"))["value"]
        assert (result["status"], result["isError"], text_of(result)) == ("detached", False, NOTE)
        assert not run.machine.over, "the other call is at work"
        record = await at.store.get(run.key)
        assert record is not None
        assert record.calls[0].to_wire()["detachedRunId"] == job.key.run_id
        assert (record.calls[0].status, record.calls[1].status) == ("detached", "running")
        at.stage.open()
        record, events = await at.finish(run)
        assert (record.status, record.outcome) == ("completed", {"type": "success"})
        of_call = [e for e in events if "call-1" in (e.get("toolCallId"), e.get("value", {}).get("toolCallId"))]
        assert names_of(of_call) == [
            *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
            *("begun", "tool.detached", "tool.result", "TOOL_CALL_RESULT"),
        ]
        assert custom(events, "tool.detached") == [
            {"toolCallId": "call-1", "toolName": "works", "runId": job.key.run_id}
        ]
        assert (of_call[-1]["content"], "metadata" in of_call[-1]) == (NOTE, False)
        record, events = await job_of(at, job)
        assert names_of(events) == ["RUN_STARTED", "done", "tool.result", "RUN_FINISHED"]
        assert (events[0]["parentRunId"], events[0]["threadId"]) == ("parent", "thread-1")
        assert custom(events, "done")[0]["run"] == job.key.run_id != "parent"
        assert result_of(events)["structuredContent"] == {"run": job.key.run_id}
        assert events[-1]["result"]["structuredContent"] == {"run": job.key.run_id}
        assert (record.parent_run_id, record.thread_id, record.agent) == ("parent", "thread-1", "tools")
        assert [(call.call_id, call.tool_name, call.status) for call in record.calls] == [
            ("call-1", "works", "completed")
        ]


@pytest.mark.parametrize("form", FORMS)
async def test_work_that_nobody_detaches_is_the_calls_own(form: str) -> None:
    async with desk() as at:
        at.stage.open()
        record, events = await at.outcome(detachable(waits, form), owner=ADA)
        assert names_of(events)[4:] == ["begun", "done", "tool.result", "TOOL_CALL_RESULT", "RUN_FINISHED"]
        assert result_of(events)["structuredContent"] == {"run": record.key.run_id}
        assert await notes(at) == []


@pytest.mark.parametrize("which", ["one", "all"])
async def test_of_several_calls_some_or_all_are_detached_and_each_becomes_a_run(which: str) -> None:
    made = [detachable(waits, name=f"works{number}") for number in range(3)]
    async with desk() as at:
        run = await at.start(*made, owner=ADA)
        for number in range(3):
            await at.saw(run, "begun")
            assert run.calls[f"call-{number + 1}"].offers
        moved = ["call-2"] if which == "one" else ["call-1", "call-2", "call-3"]
        jobs = [await detach(at, run, call_id) for call_id in moved]
        assert len({job.key for job in jobs}) == len(moved)
        at.stage.open()
        _, events = await at.finish(run)
        found = {call_id: result_of(events, call_id)["status"] for call_id in ("call-1", "call-2", "call-3")}
        assert found == {call_id: "detached" if call_id in moved else "completed" for call_id in found}
        for call_id, job in zip(moved, jobs, strict=True):
            record, events = await job_of(at, job)
            assert [call.call_id for call in record.calls] == [call_id]
            assert result_of(events, call_id)["structuredContent"] == {"run": job.key.run_id}
        assert len(await notes(at)) == len(moved)


# -- what the tool holds --


async def test_what_the_tool_holds_speaks_for_the_job_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    async def work(ctx: ToolContext) -> dict[str, Any]:
        signal, task, flush = ctx.abort_signal, ctx.task, ctx.flush
        assert task is not None
        ctx.emit_custom_event("begun", {"task": task.task_id})
        moved = asyncio.Event()
        ctx.context.notes.append(moved)
        await moved.wait()
        await flush()
        ctx.logger.warning("here")
        return {
            "run_id": ctx.run_id,
            "parent_run_id": ctx.parent_run_id,
            "thread_id": ctx.thread_id,
            "tool_call_id": ctx.tool_call_id,
            "tool_name": ctx.tool_name,
            "task_id": task.task_id,
            "signal": ctx.abort_signal is signal,
            "open": [signal.aborted, task.cancelled],
            "detach": ctx.detach,
            "session_id": ctx.session_id,
        }

    async with desk() as at:
        run = await at.start(detachable(work), run_id="parent")
        assert (await at.saw(run, "begun"))["value"]["task"] == "parent"
        job = await detach(at, run)
        await at.finish(run)
        at.stage.notes[0].set()
        _, events = await job_of(at, job)
    assert result_of(events)["structuredContent"] == {
        "run_id": job.key.run_id,
        "parent_run_id": "parent",
        "thread_id": "thread-1",
        "tool_call_id": "call-1",
        "tool_name": "works",
        "task_id": job.key.run_id,
        "signal": True,
        "open": [False, False],
        "detach": None,
        "session_id": "anon:somebody",
    }
    (said,) = [record for record in caplog.records if record.getMessage() == "here"]
    assert (said.__dict__["run_id"], said.__dict__["tool_call_id"]) == (job.key.run_id, "call-1")


async def test_progress_goes_on_where_it_was_and_never_falls_back() -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.report_progress(70, 100, "most of it")
        await ctx.context.go.wait()
        ctx.report_progress(10, 100)
        await ctx.flush()

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "tool.progress")
        job = await detach(at, run)
        at.stage.open()
        _, events = await job_of(at, job)
    ids = {"toolCallId": "call-1", "toolName": "works"}
    assert custom(events, "tool.progress") == [{**ids, "progress": 70, "total": 100, "percent": 70}]


async def test_progress_that_is_kept_back_goes_out_before_the_news_of_the_move() -> None:
    async def work(ctx: ToolContext) -> None:
        for number in range(5):
            ctx.report_progress(number, 5)
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert [value["progress"] for value in custom(events, "tool.progress")] == [0, 4]
        assert names_of(events)[4:8] == ["tool.progress", "begun", "tool.progress", "tool.detached"]
        at.stage.open()
        _, events = await job_of(at, job)
        assert "tool.progress" not in names_of(events)


async def test_a_task_of_before_the_move_reports_in_order_with_what_is_emitted_after_it() -> None:
    async def work(ctx: ToolContext) -> None:
        task = ctx.task
        assert task is not None
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        await task.update_progress("half", 50)
        ctx.emit_custom_event("after", {})
        await ctx.flush()

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        _, events = await job_of(at, job)
    assert names_of(events) == ["RUN_STARTED", "tool.progress", "after", "tool.result", "RUN_FINISHED"]
    assert custom(events, "tool.progress")[0]["message"] == "half"


async def test_a_task_of_before_the_move_can_end_the_job_itself() -> None:
    async def work(ctx: ToolContext) -> None:
        task = ctx.task
        assert task is not None
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        await task.cancel()
        assert task.cancelled
        await asyncio.Event().wait()

    async with desk() as at:
        run = await at.start(detachable(work), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        record, events = await job_of(at, job)
        assert record.status == "completed"
        ended = f'Error [interrupted]: "works" was ended by its own request before it finished. {BEYOND}'
        assert text_of(result_of(events)) == ended
        assert await notes(at) == [f"Background job call-1 ended.\n{ended}"]


async def test_a_signal_of_before_the_move_hears_of_the_jobs_stop_and_of_no_other() -> None:
    heard: list[str] = []

    async def work(ctx: ToolContext) -> None:
        signal = ctx.abort_signal
        signal.on_abort(lambda reason: heard.append(f"called {reason}"))
        waiting = asyncio.create_task(signal.wait())
        ctx.emit_custom_event("begun", {})
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(f"waited {await waiting}")

    async with desk() as at:
        run = await at.start(detachable(work), sibling)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(run)
        await at.finish(run)
        assert heard == []
        await at.stop(job)
        await job_of(at, job)
        assert heard == ["called user", "waited user"]


async def test_detach_taken_before_the_move_neither_gives_work_to_the_call_that_was_nor_moves_the_job_again() -> None:
    offered, answered, more = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        offer = ctx.detach
        assert offer is not None
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        part = asyncio.create_task(more.wait())
        note = offer(part)
        offered.set()
        await first_of(part, note)
        return f"{part.done() and await part} {note.done()}"

    async def slowly(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        await answered.wait()
        return output

    async with desk([slowly]) as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await offered.wait()
        answered.set()
        await at.finish(run)
        assert await refused(at, job) == NOT_NOW
        more.set()
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "True False"


# -- calls inside --


@tool(timeout=0)
async def inner(ctx: ToolContext, number: int) -> dict[str, Any]:
    """Says where it is; the call with number 1 waits in between."""
    ctx.emit_custom_event(f"begun {number}", {"run": ctx.run_id})
    if number == 1:
        await ctx.context.go.wait()
    ctx.emit_custom_event(f"done {number}", {"run": ctx.run_id})
    return {"run": ctx.run_id, "aborted": ctx.abort_signal.aborted}


async def test_a_nested_call_that_has_begun_comes_along_and_later_ones_belong_to_the_job() -> None:
    async def work(ctx: ToolContext) -> list[Any]:
        outputs = [await ctx.call_tool("inner", {"number": number}) for number in (0, 1, 2)]
        return [[output.status, output.structured_content] for output in outputs]

    async with desk() as at:
        run = await at.start(detachable(work), run_id="parent", others=[inner])
        await at.saw(run, "begun 1")
        job = await detach(at, run)
        record, before = await at.finish(run)
        assert [call.call_id for call in record.calls] == ["call-1"]
        at.stage.open()
        record, after = await job_of(at, job)
        assert [call.call_id for call in record.calls] == ["call-1"]

    def told(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [
            (e["name"], e["value"]["toolCallId"], e["metadata"]["parentToolCallId"], e["value"].get("run"))
            for e in events
            if "parentToolCallId" in e.get("metadata", {})
        ]

    there = job.key.run_id
    assert told(before) == [
        ("begun 0", "call-1/1", "call-1", "parent"),
        ("done 0", "call-1/1", "call-1", "parent"),
        ("tool.result", "call-1/1", "call-1", None),
        ("begun 1", "call-1/2", "call-1", "parent"),
    ]
    assert told(after) == [
        ("done 1", "call-1/2", "call-1", there),
        ("tool.result", "call-1/2", "call-1", None),
        ("begun 2", "call-1/3", "call-1", there),
        ("done 2", "call-1/3", "call-1", there),
        ("tool.result", "call-1/3", "call-1", None),
    ]
    assert result_of(after)["structuredContent"]["result"] == [
        ["completed", {"run": run_id, "aborted": False}] for run_id in ("parent", there, there)
    ]


async def test_stop_of_the_job_reaches_the_nested_call_that_came_along() -> None:
    @tool(timeout=0)
    async def deep(ctx: ToolContext, depth: int) -> str:
        """Calls itself, then waits for ever."""
        if depth:
            return (await ctx.call_tool("deep", {"depth": depth - 1})).text
        ctx.emit_custom_event("deep", {})
        await asyncio.Event().wait()
        return "never"

    async def work(ctx: ToolContext) -> str:
        return (await ctx.call_tool("deep", {"depth": 2})).text

    async with desk() as at:
        run = await at.start(detachable(work), sibling, others=[deep])
        await at.saw(run, "deep")
        job = await detach(at, run)
        await at.stop(run)
        await at.finish(run)
        assert not job.signal.aborted
        await at.stop(job)
        record, events = await job_of(at, job)
    assert record.status == "cancelled"
    found = {value["toolCallId"]: (value["status"], text_of(value)) for value in custom(events, "tool.result")}
    ids = ["call-1", "call-1/1", "call-1/1/1", "call-1/1/1/1"]
    assert found == dict.fromkeys(ids, ("cancelled", CANCELLED))


# -- nothing is lost, doubled or out of order --


def pump(ctx: ToolContext, count: int, at: int, reached: Callable[[], object]) -> None:
    """Emits `count` rows as fast as it can, the quick way and all the slow ones; tells when it has come to `at`."""
    for n in range(count):
        if n == at:
            reached()
        if n % 7 == 3:
            ctx.emit_custom_event("row", {"n": n, "more": [1, {"a": None}]})
        elif n % 7 == 5:
            ctx.emit_custom_event("row", {"n": n, "toolCallId": "overwritten"}, batch=True)
        else:
            ctx.emit_custom_event("row", {"n": n})
        if n % 50 == 0:
            ctx.report_progress(n, count)


async def pumped(at: Desk, made: Tool, others: list[Tool], reached: asyncio.Event) -> list[dict[str, Any]]:
    """The events of a run and, behind them, of the job that its call becomes while it emits."""
    run = await at.start(made, others=others)
    async with asyncio.timeout(LONG):
        await reached.wait()
    job = await detach(at, run)
    _, before = await at.finish(run)
    _, after = await at.finish(job)
    assert rows(before)
    assert rows(after), "the move was in the middle"
    return [*before, *after]


@pytest.mark.parametrize("point", [1, 100, 5_000, 25_000])
async def test_a_thread_that_emits_fifty_thousand_events_meanwhile_loses_doubles_and_reorders_none(point: int) -> None:
    count, reached = 50_000, asyncio.Event()
    loop = asyncio.get_running_loop()

    async def work(ctx: ToolContext) -> None:
        await asyncio.to_thread(pump, ctx, count, point, lambda: loop.call_soon_threadsafe(reached.set))

    async with desk() as at:
        events = await pumped(at, detachable(work), [], reached)
        assert at.supervisor.counts["late_emits"] == 0
    assert rows(events) == list(range(count))
    progress = [value["progress"] for value in custom(events, "tool.progress")]
    assert progress == sorted(progress)
    assert progress[-1] == (count - 1) // 50 * 50


async def test_nested_calls_in_threads_that_emit_meanwhile_lose_double_and_reorder_nothing() -> None:
    count, reached = 15_000, asyncio.Event()
    loop = asyncio.get_running_loop()
    arrived: list[int] = []

    @tool(timeout=0, name="pumps")
    def pumps(ctx: ToolContext) -> None:
        """Emits, in a thread of the gateway."""

        def here() -> None:
            arrived.append(1)
            if len(arrived) == 3:
                reached.set()

        pump(ctx, count, count // 10, lambda: loop.call_soon_threadsafe(here))

    async def work(ctx: ToolContext) -> None:
        outputs = await asyncio.gather(*(ctx.call_tool("pumps", {}) for _ in range(3)))
        assert [output.status for output in outputs] == ["completed"] * 3

    async with desk() as at:
        events = await pumped(at, detachable(work), [pumps], reached)
        assert at.supervisor.counts["late_emits"] == 0
    for call_id in ("call-1/1", "call-1/2", "call-1/3"):
        mine = [e for e in events if e.get("value", {}).get("toolCallId") == call_id]
        assert rows(mine) == list(range(count))
        progress = [value["progress"] for value in custom(mine, "tool.progress")]
        assert progress == sorted(progress)


@pytest.mark.allow_blocking
async def test_what_a_thread_emits_in_the_middle_of_the_move_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's thread may be suspended anywhere inside the move: here at each of its steps, one after the other."""
    numbers: dict[str, int] = {}
    held: list[ToolContext] = []

    def emit() -> None:
        for ctx in held:
            for number in range(6):
                emitted = numbers[ctx.tool_call_id] = numbers.get(ctx.tool_call_id, -1) + 1
                ctx.emit_custom_event("row", {"n": emitted}, batch=number % 2 == 1)

    @tool(timeout=0)
    async def deep(ctx: ToolContext, depth: int) -> None:
        """Calls itself, and waits."""
        held.append(ctx)
        await (ctx.call_tool("deep", {"depth": depth - 1}) if depth else ctx.context.go.wait())

    def elsewhere(step: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            for part in (emit, None, emit):
                if part is None:
                    result = step(*given, **more)
                else:
                    thread = threading.Thread(target=part)
                    thread.start()
                    thread.join()
            return result

        return wrapped

    async def work(ctx: ToolContext) -> None:
        held.append(ctx)
        inside = asyncio.create_task(ctx.call_tool("deep", {"depth": 1}))
        await quiet(lambda: len(held) == 3)
        emit()
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()
        emit()
        await inside

    async with desk() as at:
        run = await at.start(detachable(work), others=[deep])
        await at.saw(run, "begun")
        for owner, name in (
            (type(run.calls["call-1"]), "become"),
            (type(run.calls["call-1"]), "stop_clock"),
            (ToolContext, "_rebind"),
            (LiveRun, "move_tails"),
        ):
            monkeypatch.setattr(owner, name, elsewhere(getattr(owner, name)))
        job = await detach(at, run)
        monkeypatch.undo()
        at.stage.open()
        _, before = await at.finish(run)
        _, after = await job_of(at, job)
    assert list(numbers) == ["call-1", "call-1/1", "call-1/1/1"]
    for call_id, last in numbers.items():
        mine = [event for event in (*before, *after) if event.get("value", {}).get("toolCallId") == call_id]
        assert rows(mine) == list(range(last + 1))


@pytest.mark.allow_blocking
async def test_what_a_thread_reports_in_the_middle_of_the_move_needs_no_more_reports_to_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[ToolContext] = []

    def report() -> None:
        for number in (1, 2):
            held[0].report_progress(number)

    def move_tails(run: LiveRun, *given: Any) -> None:
        thread = threading.Thread(target=report)
        thread.start()
        thread.join()
        moves(run, *given)

    async def work(ctx: ToolContext) -> None:
        held.append(ctx)
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        moves = LiveRun.move_tails
        monkeypatch.setattr(LiveRun, "move_tails", move_tails)
        job = await detach(at, run)
        assert (await at.saw(job, "tool.progress"))["value"]["progress"] == 2
        at.stage.open()
        _, before = await at.finish(run)
        _, after = await job_of(at, job)
    assert [value["progress"] for value in custom([*before, *after], "tool.progress")] == [1, 2]


# -- what cannot be detached --


async def refusal(at: Desk, made: Tool, seen: str = "begun", **options: Any) -> Rejected:
    """What a detach of a call is answered while it is at work."""
    run = await at.start(made, **options)
    await at.saw(run, seen)
    found = await refused(at, run)
    at.stage.open()
    _, events = await at.finish(run)
    assert "tool.detached" not in names_of(events)
    return found


async def test_a_plain_function_cannot_be_detached() -> None:
    @tool(timeout=0)
    def works(ctx: ToolContext) -> None:
        """Works in a thread."""
        assert ctx.detach is None
        ctx.emit_custom_event("begun", {})
        ctx.context.thread_go.wait()

    async with desk() as at:
        assert await refusal(at, works) == NOT_NOW


async def test_a_tool_that_offers_nothing_cannot_be_detached() -> None:
    @tool(timeout=0)
    async def works(ctx: ToolContext) -> None:
        """Never says what could go on."""
        ctx.emit_custom_event("begun", {})
        await ctx.context.go.wait()

    async with desk() as at:
        assert await refusal(at, works) == NOT_NOW


async def test_a_tool_can_be_detached_only_from_the_moment_in_which_it_offers_its_work() -> None:
    offering = asyncio.Event()

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Prepares first."""
        ctx.emit_custom_event("preparing", {})
        await offering.wait()
        return await ctx.run_detachable(waits(ctx))

    async with desk() as at:
        run = await at.start(works)
        await at.saw(run, "preparing")
        assert await refused(at, run) == NOT_NOW
        offering.set()
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await job_of(at, job)
        await at.finish(run)


async def test_a_nested_call_offers_nothing_of_its_own() -> None:
    @tool(timeout=0, name="nested")
    async def nested(ctx: ToolContext) -> Any:
        """Just awaits."""
        assert ctx.detach is None
        return await ctx.run_detachable(waits(ctx))

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> str:
        """Calls one that would be detachable alone."""
        return (await ctx.call_tool("nested", {})).text

    async with desk() as at:
        run = await at.start(works, others=[nested])
        await at.saw(run, "begun")
        assert await refused(at, run) == NOT_NOW
        assert await refused(at, run, "call-1/1") == Rejected("not_running", "This call is not running any more.")
        at.stage.open()
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == f'{{"run":"{run.key.run_id}"}}'


async def test_a_call_is_detached_once() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), sibling)
        await at.saw(run, "begun")
        answers = await asyncio.gather(*(at.supervisor.detach(run.key, "call-1") for _ in range(5)))
        (moved,) = [answer for answer in answers if isinstance(answer, Detached)]
        gone = Rejected("not_running", '"works" is not running any more.')
        assert [answer for answer in answers if answer != moved] == [gone] * 4
        assert await refused(at, run) == gone
        job = at.supervisor.live(RunKey(None, moved.run_id))
        assert job is not None
        again = await refused(at, job)
        assert again == NOT_NOW, "a job is in the background already"
        assert at.supervisor.active == 2
        at.stage.open()
        await at.finish(run)
        await job_of(at, job)


async def test_a_run_that_never_came_to_be_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two who detach a call, one has made a record of a job in vain: nobody may find it."""
    async with desk() as at:
        run = await at.start(detachable(waits), sibling, owner=ADA)
        await at.saw(run, "begun")
        create, both = at.store.create, asyncio.Barrier(2)

        async def together(*given: Any) -> Any:
            created = await create(*given)
            await both.wait()
            return created

        monkeypatch.setattr(at.store, "create", together)
        answers = await asyncio.gather(*(at.supervisor.detach(run.key, "call-1") for _ in range(2)))
        monkeypatch.undo()
        assert sorted(type(answer).__name__ for answer in answers) == ["Detached", "Rejected"]
        assert len((await at.store.list_runs(ADA)).items) == 2
        at.stage.open()
        await at.finish(run)
        for job in run.jobs:
            await job_of(at, job)


async def test_a_call_that_is_over_or_unknown_or_waits_its_turn_is_refused() -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), "missing", sibling)
        await at.ended(run, "call-2")
        assert await refused(at, run, "call-2") == Rejected("not_running", '"missing" is not running any more.')
        assert await refused(at, run, "call-9") == Rejected("not_running", "This call is not running any more.")
        at.stage.open()
        await at.finish(run)
        assert await refused(at, run) == Rejected("not_running", "This call is not running any more.")


# -- races --


@pytest.mark.parametrize("turns", range(8))
async def test_the_end_of_the_work_and_the_move_never_both_count(turns: int) -> None:
    """The work ends, and so many turns of the loop later somebody detaches it."""
    async with desk() as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        at.stage.open()
        for _ in range(turns):
            await asyncio.sleep(0)
        answer = await at.supervisor.detach(run.key, "call-1")
        _, events = await at.finish(run)
        if isinstance(answer, Rejected):
            assert answer.reason in ("not_running", "not_detachable")
            assert result_of(events)["structuredContent"] == {"run": run.key.run_id}
            assert await notes(at) == []
        else:
            assert text_of(result_of(events)) == NOTE
            (job,) = run.jobs
            _, after = await at.finish(job)
            assert result_of(after)["status"] == "completed"
            assert len(custom(events, "done")) + len(custom(after, "done")) == 1
            assert len(await notes(at)) == 1


@pytest.mark.parametrize("what", ["run", "call"])
@pytest.mark.parametrize("first", ["stop", "detach"])
async def test_of_stop_and_detach_the_first_one_counts(first: str, what: str) -> None:
    call_id = "call-1" if what == "call" else None
    async with desk() as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        if first == "stop":
            _, answer = await asyncio.gather(at.stop(run, call_id), at.supervisor.detach(run.key, "call-1"))
            assert answer == Rejected("not_running", '"works" is not running any more.')
            _, events = await at.finish(run)
            assert text_of(result_of(events)) == CANCELLED
            assert await notes(at) == []
            return
        answer, _ = await asyncio.gather(at.supervisor.detach(run.key, "call-1"), at.stop(run, call_id))
        assert isinstance(answer, Detached)
        record, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        assert record.status == ("cancelled" if what == "run" else "completed")
        at.stage.open()
        (job,) = run.jobs
        _, events = await job_of(at, job)
        assert result_of(events)["status"] == "completed"


async def test_a_stop_that_comes_while_the_job_is_being_made_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        create = at.store.create

        async def slowly(*given: Any) -> Any:
            created = await create(*given)
            await at.stop(run)
            return created

        monkeypatch.setattr(at.store, "create", slowly)
        assert await refused(at, run) == Rejected("not_running", '"works" is not running any more.')
        record, events = await at.finish(run)
        assert (record.status, text_of(result_of(events))) == ("cancelled", CANCELLED)
        assert [item.key for item in (await at.store.list_runs(ADA)).items] == [run.key]
