"""What may be left to the background, how it ends, and what the code around it hears of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.errors import AccessDenied
from gateway.execution.background import Rejected
from gateway.execution.context import ToolContext
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import CANCELLED, ToolOutput
from gateway.execution.tools import tool
from gateway.stores.base import StopRequest
from tests.execution.detached import (
    ADA,
    NOTE,
    custom,
    detach,
    detachable,
    first_of,
    in_virtual_time,
    job_of,
    names_of,
    notes,
    refused,
    result_of,
    sibling,
    text_of,
    waits,
)
from tests.execution.running import LONG, desk, quiet

# -- kinds of work --


async def test_work_may_be_a_task_a_future_or_a_coroutine() -> None:
    @tool(timeout=0)
    async def works(kind: str, ctx: ToolContext) -> Any:
        """Offers its work as this kind of thing."""
        ctx.emit_custom_event("begun", {})
        kinds: dict[str, Callable[[], Any]] = {
            "task": lambda: asyncio.create_task(waits(ctx)),
            "future": lambda: asyncio.gather(waits(ctx), waits(ctx)),
            "bare future": lambda: (
                ctx.context.notes.append(asyncio.get_running_loop().create_future()) or ctx.context.notes[-1]
            ),
            "coroutine": lambda: waits(ctx),
            "awaitable": lambda: Later(waits(ctx)),
        }
        return await ctx.run_detachable(kinds[kind]())

    class Later:
        def __init__(self, work: Awaitable[Any]) -> None:
            self.work = work

        def __await__(self) -> Any:
            return self.work.__await__()

    async with desk() as at:
        for kind in ("task", "future", "bare future", "coroutine", "awaitable"):
            at.stage.go.clear()
            run = await at.start(works, arguments={"kind": kind})
            await at.saw(run, "begun")
            await quiet(lambda run=run: bool(run.calls["call-1"].offers))  # type: ignore[misc]
            job = await detach(at, run)
            await at.finish(run)
            at.stage.open()
            for bare in at.stage.notes:
                if not bare.done():
                    bare.set_result({"run": job.key.run_id})
            _, events = await job_of(at, job)
            there = {"run": job.key.run_id}
            assert result_of(events)["structuredContent"] == ({"result": [there] * 2} if kind == "future" else there)


@pytest.mark.parametrize("kind", ["bare future", "gathered", "shielded"])
async def test_stop_ends_work_of_every_kind(kind: str) -> None:
    ended: list[str] = []

    async def unwinds() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("unwound")

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Offers a future that is no task."""
        inside = asyncio.create_task(unwinds())
        ctx.context.notes.append(inside)
        await asyncio.sleep(0)
        ctx.emit_custom_event("begun", {})
        if kind == "bare future":
            return await ctx.run_detachable(asyncio.get_running_loop().create_future())
        return await ctx.run_detachable(asyncio.gather(inside) if kind == "gathered" else asyncio.shield(inside))

    async with desk() as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        await quiet(lambda: bool(run.calls["call-1"].offers))
        job = await detach(at, run)
        await at.stop(job)
        _, events = await job_of(at, job)
        assert (result_of(events)["status"], result_of(events).get("stillRunning")) == ("cancelled", None)
        assert ended == (["unwound"] if kind == "gathered" else [])
        at.stage.notes[0].cancel()


async def test_what_is_no_work_is_the_tools_mistake() -> None:
    @tool
    async def works(ctx: ToolContext) -> Any:
        """Offers a number."""
        return await ctx.run_detachable(5)  # type: ignore[arg-type]

    async with desk() as at:
        _, events = await at.outcome(works)
        assert (result_of(events)["status"], result_of(events)["error"]["code"]) == ("failed", "failed")


async def test_all_work_that_was_offered_moves_and_the_last_one_has_the_result() -> None:
    trail: list[str] = []
    gates = {name: asyncio.Event() for name in ("first", "second", "third")}

    async def part(name: str, ctx: ToolContext) -> str:
        await gates[name].wait()
        ctx.emit_custom_event("part", {"name": name})
        trail.append(name)
        if name == "second":
            raise ValueError("seen by nobody but the tool")
        return name

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Offers three things."""
        assert ctx.detach is not None
        over = asyncio.create_task(asyncio.sleep(0, "over before"))
        tasks = [over, *(asyncio.create_task(part(name, ctx)) for name in gates)]
        told = [ctx.detach(task) for task in tasks]
        await over
        ctx.emit_custom_event("begun", {})
        await first_of(*tasks[1:], *told)
        assert [note.done() for note in told] == [False, True, True, True]
        return "never seen"

    async with desk() as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        for name in ("third", "first", "second"):
            assert not job.machine.over
            gates[name].set()
            await quiet(lambda name=name: name in trail)  # type: ignore[misc]
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "third"
        assert [value["name"] for value in custom(events, "part")] == ["third", "first", "second"]


async def test_work_that_swallows_its_cancellation_still_ends_on_time_and_says_that_it_runs() -> None:
    go, gone = asyncio.Event(), asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        ctx.emit_custom_event("begun", {})
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                ctx.emit_custom_event("swallowed", {})
        gone.set()
        return "never seen"

    async with desk(stop_grace=0.05) as at:
        run = await at.start(detachable(work), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(job)
        record, events = await job_of(at, job)
        assert record.status == "cancelled"
        assert (result_of(events)["status"], result_of(events)["stillRunning"]) == ("cancelled", True)
        assert custom(events, "swallowed")
        assert await notes(at) == [f"Background job call-1 ended.\n{CANCELLED}"]
        go.set()
        await gone.wait()


async def test_work_that_was_stopped_may_not_answer_any_more_but_what_it_had_answered_counts() -> None:
    async def stubborn(ctx: ToolContext) -> str:
        ctx.emit_custom_event("begun", {})
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"
        return "never"

    async with desk() as at:
        run = await at.start(detachable(stubborn))
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.stop(job)
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == CANCELLED

        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def prompt(ctx: ToolContext) -> str:
            ctx.emit_custom_event("begun", {})
            return await ready

        run = await at.start(detachable(prompt))
        await at.saw(run, "begun")
        work = run.calls["call-1"].offers[0].work
        job = await detach(at, run)
        await at.finish(run)
        work.add_done_callback(lambda _: at.supervisor._carry_out(job, StopRequest(job.key, "user")))
        ready.set_result("in time")
        record, events = await job_of(at, job)
        assert (record.status, text_of(result_of(events))) == ("cancelled", "in time")


async def test_exit_in_work_that_is_not_detached_is_a_failure_of_the_call_and_not_the_end_of_the_server() -> None:
    async def work(ctx: ToolContext) -> None:
        raise SystemExit(3)

    async with desk() as at:
        _, events = await at.outcome(detachable(work))
        assert (result_of(events)["status"], text_of(result_of(events))) == ("failed", "Error [failed]: 3")


async def test_work_that_never_began_is_not_complained_about() -> None:
    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Offers work that is given up before its first step."""
        assert ctx.detach is not None
        ctx.detach(waits(ctx))
        ctx._call.offers[0].work.cancel()
        return "done"

    async with desk() as at:
        _, events = await at.outcome(works)
        assert text_of(result_of(events)) == "done"
        assert "begun" not in names_of(events)


@pytest.mark.parametrize("end", ["return", "stop", "timeout"])
async def test_work_that_was_offered_and_not_moved_ends_with_its_call(end: str) -> None:
    ended = asyncio.Event()

    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @tool(timeout=0.05 if end == "timeout" else 0)
    async def works(ctx: ToolContext) -> str:
        """Leaves its work behind."""
        assert ctx.detach is not None
        task = asyncio.create_task(work(ctx))
        note = ctx.detach(task)
        if end == "return":
            await ctx.context.go.wait()
            return "done"
        await first_of(task, note)
        return "never"

    async with desk() as at:
        run = await at.start(works, timeout=0)
        await at.saw(run, "begun")
        at.stage.open()
        if end == "stop":
            await at.stop(run)
        _, events = await at.finish(run)
        statuses = {"return": "completed", "stop": "cancelled", "timeout": "timeout"}
        assert result_of(events)["status"] == statuses[end]
        async with asyncio.timeout(LONG):
            await ended.wait()


def test_a_time_limit_that_the_tool_has_set_itself_ends_no_work_that_has_moved() -> None:
    async def work(ctx: ToolContext) -> str:
        ctx.emit_custom_event("begun", {})
        await asyncio.sleep(10)
        return "done"

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Has no patience while somebody waits for it."""
        async with asyncio.timeout(5):
            return await ctx.run_detachable(work(ctx))

    async def life() -> None:
        async with desk() as at:
            _, events = await at.outcome(works)
            assert (result_of(events)["status"], text_of(result_of(events))) == (
                "failed",
                "Error [failed]: TimeoutError",
            )
            run = await at.start(works)
            await at.saw(run, "begun")
            await asyncio.sleep(1)
            job = await detach(at, run)
            _, events = await job_of(at, job)
            assert text_of(result_of(events)) == "done"
            await at.finish(run)

    in_virtual_time(life)


def test_stop_of_a_call_that_has_not_moved_gives_its_work_the_time_to_unwind_and_presses_again() -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        for word in ("swallowed", "unwound"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)
                ctx.emit_custom_event(word, {})
        raise asyncio.CancelledError

    async def life() -> None:
        loop = asyncio.get_running_loop()
        async with desk(stop_grace=5) as at:
            run = await at.start(detachable(work))
            await at.saw(run, "begun")
            pressed = loop.time()
            await at.stop(run)
            _, events = await at.finish(run)
            assert 1 < loop.time() - pressed < 2
            assert names_of(events)[4:-2] == ["begun", "run.stopping", "swallowed", "unwound", "tool.result"]
            assert (result_of(events)["status"], result_of(events).get("stillRunning")) == ("cancelled", None)

    in_virtual_time(life)


async def test_what_the_work_emits_after_its_result_is_dropped_and_counted() -> None:
    held: list[ToolContext] = []

    async def work(ctx: ToolContext) -> None:
        held.append(ctx)
        await waits(ctx)

    async with desk() as at:
        run = await at.start(detachable(work))
        await at.saw(run, "begun")
        job = await detach(at, run)
        at.stage.open()
        await job_of(at, job)
        await at.finish(run)
        late = at.supervisor.counts["late_emits"]
        held[0].emit_custom_event("late", {})
        held[0].report_progress(1)
        await quiet(lambda: at.supervisor.counts["late_emits"] == late + 2)


# -- the tool's own code --


async def some_turns() -> None:
    """Longer than anybody who does not wait for it gives it."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_tool_in_a_task_group_gets_its_note_at_once_and_ends_with_its_work() -> None:
    trail: list[str] = []

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Waits for its work wherever that is."""
        assert ctx.detach is not None
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(waits(ctx))
                note = ctx.detach(work)
                await first_of(work, note)
            trail.append("left the group")
            await some_turns()
            trail.append("closed")
            return note.result()
        finally:
            await some_turns()
            trail.append("cleaned up")
            ctx.emit_custom_event("cleaned up", {"run": ctx.run_id})

    async with desk() as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        assert trail == []
        at.stage.open()
        _, events = await job_of(at, job)
        assert trail == ["left the group", "closed", "cleaned up"], "the tool's own code is given time to return"
        assert names_of(events)[1:-2] == ["done", "cleaned up"]
        assert result_of(events)["structuredContent"] == {"run": job.key.run_id}


async def test_stop_of_the_job_ends_a_task_group_around_its_work() -> None:
    trail: list[str] = []

    async def work(ctx: ToolContext) -> None:
        try:
            ctx.emit_custom_event("begun", {})
            await asyncio.Event().wait()
        finally:
            await some_turns()
            trail.append("work unwound")

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Waits for its work wherever that is."""
        assert ctx.detach is not None
        try:
            async with asyncio.TaskGroup() as group:
                made = group.create_task(work(ctx))
                note = ctx.detach(made)
                await first_of(made, note)
        finally:
            await some_turns()
            trail.append("tool unwound")

    async with desk(stop_grace=LONG) as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        await at.stop(job)
        _, events = await job_of(at, job)
        assert (result_of(events)["status"], result_of(events).get("stillRunning")) == ("cancelled", None)
        assert trail == ["work unwound", "tool unwound"]


async def test_a_tool_that_does_not_return_after_its_note_is_ended_with_the_job() -> None:
    ended = asyncio.Event()

    @tool(timeout=0)
    async def works(ctx: ToolContext) -> None:
        """Takes no notice of its note."""
        assert ctx.detach is not None
        ctx.detach(waits(ctx))
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with desk(stop_grace=0.05) as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        assert not ended.is_set()
        at.stage.open()
        _, events = await job_of(at, job)
        assert result_of(events)["structuredContent"] == {"run": job.key.run_id}
        async with asyncio.timeout(LONG):
            await ended.wait()


async def test_a_generator_can_leave_its_work_to_the_background() -> None:
    @tool(timeout=0)
    async def works(ctx: ToolContext) -> AsyncIterator[Any]:
        """Yields, then waits."""
        yield "first"
        yield await ctx.run_detachable(waits(ctx))

    async with desk() as at:
        run = await at.start(works)
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert names_of(events)[4:8] == ["tool.output", "begun", "tool.detached", "tool.result"]
        assert text_of(result_of(events)) == NOTE
        at.stage.open()
        _, events = await job_of(at, job)
        assert result_of(events)["structuredContent"] == {"run": job.key.run_id}


# -- middleware --


async def test_middleware_goes_along_and_says_what_the_job_comes_to() -> None:
    seen: list[Any] = []

    async def around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        ctx.emit_custom_event("before", {"run": ctx.run_id})
        output: ToolOutput = await call_next(call)
        ctx.emit_custom_event("after", {"run": ctx.run_id})
        seen.append((output.status, output.structured_content))
        again: ToolOutput = await call_next(call)
        seen.append((again.status, again.text))
        return ToolOutput([{"type": "text", "text": "It is done."}])

    async with desk([around]) as at:
        run = await at.start(detachable(waits), owner=ADA, run_id="parent")
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert (result_of(events)["status"], text_of(result_of(events))) == ("detached", NOTE), "no filter's business"
        assert names_of(events)[4:7] == ["before", "begun", "tool.detached"]
        assert seen == []
        at.stage.open()
        _, events = await job_of(at, job)
        assert seen == [
            ("completed", {"run": job.key.run_id}),
            ("failed", "Error [failed]: A call that has moved to the background cannot be made again."),
        ]
        assert names_of(events)[1:-1] == ["done", "after", "tool.result"]
        assert custom(events, "after")[0]["run"] == job.key.run_id
        assert (result_of(events)["status"], text_of(result_of(events))) == ("completed", "It is done.")
        assert await notes(at) == ["Background job call-1 ended.\nIt is done."]


async def test_stop_of_the_run_does_not_touch_middleware_that_went_along() -> None:
    at_work, go = asyncio.Event(), asyncio.Event()

    async def slowly(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        at_work.set()
        await go.wait()
        return output

    async with desk([slowly]) as at:
        run = await at.start(detachable(waits), sibling)
        await at.saw(run, "begun")
        job = await detach(at, run)
        assert await refused(at, run) == Rejected("not_running", '"works" is not running any more.')
        await at.stop(run)
        record, events = await at.finish(run)
        assert record.status == "cancelled"
        assert (result_of(events)["status"], text_of(result_of(events))) == ("detached", NOTE)
        at.stage.open()
        await at_work.wait()
        assert not job.signal.aborted
        assert not job.machine.over, "its result is not one before all that is around it has let it pass"
        go.set()
        _, events = await job_of(at, job)
        assert result_of(events)["structuredContent"] == {"run": job.key.run_id}


@pytest.mark.parametrize("where", ["in the work", "behind it"])
async def test_stop_of_the_job_ends_the_work_and_middleware_that_hangs(where: str) -> None:
    at_work = asyncio.Event()
    trail: list[str] = []

    async def hangs(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        trail.append((await call_next(call)).status)
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            trail.append("unwound")

    async with desk([hangs]) as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        if where == "behind it":
            at.stage.open()
            await at_work.wait()
        await at.stop(job)
        record, events = await job_of(at, job)
        assert (record.status, text_of(result_of(events))) == ("cancelled", CANCELLED)
        assert trail == ["cancelled" if where == "in the work" else "completed", "unwound"]
        assert await notes(at) == [f"Background job call-1 ended.\n{CANCELLED}"]


async def test_middleware_that_gives_the_call_up_in_the_background_ends_its_work_and_answers_for_it() -> None:
    moved, unwound = asyncio.Event(), asyncio.Event()

    async def work(ctx: ToolContext) -> None:
        ctx.emit_custom_event("begun", {})
        try:
            await asyncio.Event().wait()
        finally:
            unwound.set()

    async def impatient(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        waiting = asyncio.ensure_future(call_next(call))
        await moved.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        return "gave up"

    async with desk([impatient]) as at:
        run = await at.start(detachable(work), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        moved.set()
        _, events = await job_of(at, job)
        assert (result_of(events)["status"], text_of(result_of(events))) == ("completed", "gave up")
        assert await notes(at) == ["Background job call-1 ended.\ngave up"]
        async with asyncio.timeout(LONG):
            await unwound.wait()


async def test_what_middleware_raises_in_the_background_is_what_the_job_comes_to() -> None:
    async def refuses(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        await call_next(call)
        raise AccessDenied("Not for you.")

    async with desk([refuses]) as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        at.stage.open()
        _, events = await job_of(at, job)
        assert text_of(result_of(events)) == "Error [denied]: Not for you."
        assert await notes(at) == ["Background job call-1 ended.\nError [denied]: Not for you."]


async def test_a_shutdown_ends_middleware_that_went_along() -> None:
    async def slowly(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        await asyncio.Event().wait()
        return output

    async with desk([slowly]) as at:
        run = await at.start(detachable(waits), owner=ADA)
        await at.saw(run, "begun")
        job = await detach(at, run)
        await at.finish(run)
        await at.supervisor.drain(0)
        record, events = await job_of(at, job)
        assert record.error is not None
        assert record.error["code"] == "interrupted"
        assert "the gateway's shutdown" in text_of(result_of(events))


async def test_the_output_model_is_checked_inside_the_middleware_that_went_along() -> None:
    seen: list[str] = []

    async def around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output: ToolOutput = await call_next(call)
        seen.append(output.status)
        return output

    class Wanted(BaseModel):
        rows: int

    async with desk([around]) as at:
        run = await at.start(detachable(waits, output_model=Wanted))
        await at.saw(run, "begun")
        job = await detach(at, run)
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == NOTE
        at.stage.open()
        _, events = await job_of(at, job)
        assert (seen, result_of(events)["status"]) == (["failed"], "failed")
