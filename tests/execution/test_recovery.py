"""Runs whose worker has died: another one brings them to their end, once, and says what became of their calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from ag_ui.core import CustomEvent, RunAgentInput

from gateway.errors import StoreError
from gateway.execution.background import Detached
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.recovery import Owed, recover, recover_orphans
from gateway.execution.supervisor import Supervisor
from gateway.execution.tools import tool
from gateway.run.questions import Answer, Question
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Lease, StopRequest
from gateway.stores.memory import MemoryStore
from tests.execution.agents import ADA, AgentContext, names, note, spec_of, told
from tests.execution.running import LONG, Desk, Stage, check_order, check_stream, desk, events_of, quiet

Events = AsyncGenerator[Any, None]
LOST = "Background job call-1 stopped when the host restarted."


class SharedStore(MemoryStore):
    """A store whose workers may die: what they hold is an orphan then, until somebody takes it over."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[str] = set()

    async def orphans(self) -> list[RunKey]:
        return [key for key, entry in self._runs.items() if not entry.record.over and entry.worker in self.dead]

    async def take_over(self, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        if orphaned and key not in await self.orphans():
            return None
        return await super().take_over(key, worker)


@dataclass
class World:
    """A worker that is at work, and the store that outlives it."""

    at: Desk
    store: SharedStore

    def die(self) -> None:
        """The worker is gone, without a word; whatever it would still write comes too late."""
        self.store.dead.add(self.at.supervisor.worker)

    async def recovered(self, run: LiveRun) -> tuple[RunRecord, list[dict[str, Any]]]:
        """Another worker ends the run; its stream is one that every client accepts."""
        record = await recover(self.store, run.key, "survivor")
        assert record is not None
        stored = await self.store.get(run.key)
        assert stored == replace(record, last_event_id=stored.last_event_id) if stored else False
        assert record.opened == ()
        return record, check_order(await events_of(self.store, run.key))


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    """A supervisor that is never closed: its tasks end as those of a process that dies."""
    store = SharedStore()
    supervisor = Supervisor(Settings(**{"stop_grace": 0.3, **options}), store)
    await supervisor.open()
    stage = Stage()
    try:
        yield World(Desk(supervisor, store, stage), store)
    finally:
        logging.disable()  # what a dead worker has to say
        for task in list(supervisor._tasks):
            task.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.gather(*supervisor._tasks, return_exceptions=True)
        logging.disable(logging.NOTSET)
        supervisor.threads.close()
        await supervisor.duties._heartbeat.stop()


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits for the test."""
    ctx.emit_custom_event("waiting", {})
    await ctx.context.go.wait()
    return "went"


@tool
async def quick() -> str:
    """Answers at once."""
    return "done"


@tool(timeout=0)
async def long(ctx: ToolContext) -> str:
    """Can move to the background."""

    async def work() -> str:
        ctx.emit_custom_event("working", {})
        await ctx.context.go.wait()
        return "went"

    return await ctx.run_detachable(work())


async def streaming(given: RunAgentInput, ctx: AgentContext) -> Events:
    yield {"type": "STEP_STARTED", "stepName": "think"}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m"}
    yield CustomEvent(name="begun", value={})
    await asyncio.Event().wait()


async def started(world: World, agent: Any, **options: Any) -> LiveRun:
    spec = spec_of(world.at, agent, **options)
    await world.at.supervisor.start(spec)
    run = world.at.supervisor.live(spec.key)
    assert run is not None
    return run


# -- what the stream gets --


async def test_an_open_call_is_interrupted_and_its_run_fails_as_interrupted() -> None:
    async with world() as now:
        run = await now.at.start(waits, quick)
        await now.at.saw(run, "waiting")
        await now.at.ended(run, "call-2")
        viewer = asyncio.create_task(events_of(now.store, run.key))
        now.die()
        record, events = await now.recovered(run)
        check_stream(await events_of(now.store, run.key), await now.store.get(run.key))
        assert record.status == "failed"
        assert record.error == {"code": "interrupted", "message": "The run was ended by the death of its worker."}
        assert [(call.call_id, call.status, call.open) for call in record.calls] == [
            ("call-1", "interrupted", False),
            ("call-2", "completed", False),
        ]
        result = events[-3]["value"]
        assert (result["toolCallId"], result["toolName"], result["status"]) == ("call-1", "waits", "interrupted")
        assert result["error"] == {"code": "interrupted", "message": events[-2]["content"], "retryable": False}
        assert events[-2]["content"].startswith('Error [interrupted]: "waits" was ended by the death of its worker')
        async with asyncio.timeout(LONG):
            assert [event for _, event in await viewer] == events


@pytest.mark.parametrize("heard", [True, False])
async def test_a_run_that_somebody_has_stopped_ends_cancelled(heard: bool) -> None:
    async with world() as now:
        run = await started(now, streaming)
        await now.at.saw(run, "begun")
        if heard:  # it has said so, and was unwinding
            run.writer.write(run.machine.stop(1.0, "user"))
            run.writer.save(run.machine.record)
        now.die()
        await now.store.request_stop(StopRequest(run.key, "user"))
        record, events = await now.recovered(run)
        assert record.status == "cancelled"
        assert names(events)[-4:] == ["run.stopping", "TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
        assert names(events).count("run.stopping") == 1


async def test_a_stop_while_it_is_being_recovered_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        now.die()
        asked = now.store.questions

        async def stopped(key: RunKey) -> list[Question]:
            await now.store.request_stop(StopRequest(key, "user"))
            return await asked(key)

        monkeypatch.setattr(now.store, "questions", stopped)
        record, _ = await now.recovered(run)
        assert record.status == "cancelled"


async def test_a_stop_in_the_very_moment_of_its_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        now.die()
        close = now.store.close_run

        async def stopped(lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord) -> bool:
            await now.store.request_stop(StopRequest(lease.key, "user"))
            return await close(lease, first, frames, record)

        monkeypatch.setattr(now.store, "close_run", stopped)
        record, events = await now.recovered(run)
        assert record.status == "cancelled"
        assert names(events).count("run.stopping") == 1


async def test_a_run_that_something_else_was_stopping_fails() -> None:
    async with world() as now:
        run = await started(now, streaming)
        await now.at.saw(run, "begun")
        run.writer.write(run.machine.stop(1.0, "run_timeout"))
        run.writer.save(run.machine.record)
        now.die()
        record, _ = await now.recovered(run)
        assert record.error is not None
        assert (record.status, record.reason, record.error["code"]) == ("failed", "run_timeout", "interrupted")


async def test_a_stop_of_a_run_that_something_else_was_stopping_counts() -> None:
    async with world() as now:
        run = await started(now, streaming)
        await now.at.saw(run, "begun")
        run.writer.write(run.machine.stop(1.0, "shutdown"))
        run.writer.save(run.machine.record)
        await now.store.request_stop(StopRequest(run.key, "user"))
        now.die()
        record, events = await now.recovered(run)
        assert (record.status, record.reason) == ("cancelled", "user")
        assert names(events).count("run.stopping") == 1


async def test_what_a_stream_has_open_is_closed() -> None:
    async with world() as now:
        run = await started(now, streaming)
        await now.at.saw(run, "begun")
        now.die()
        record, events = await now.recovered(run)
        assert record.status == "failed"
        assert names(events)[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_ERROR"]


async def test_a_run_that_had_not_said_a_word_begins_and_ends() -> None:
    store = SharedStore()
    key = RunKey(ADA, "r")
    await store.create(RunRecord(key, "t", "tools", created_at=1.0), b"", "gone")
    store.dead.add("gone")
    record = await recover(store, key, "survivor")
    assert record is not None
    assert names(check_order(await events_of(store, key))) == ["RUN_STARTED", "RUN_ERROR"]


async def test_a_call_that_had_not_begun_is_not_heard_of_but_the_record_does_not_leave_it_open() -> None:
    async with world(parallel_tool_calls=False) as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        run.save_call(CallRecord("call-2", "quick"))
        now.die()
        record, events = await now.recovered(run)
        assert [call.status for call in record.calls] == ["interrupted", "interrupted"]
        assert [event["value"]["toolCallId"] for event in events if event.get("name") == "tool.result"] == ["call-1"]


async def test_a_call_that_an_agent_has_streamed_gets_its_result_although_it_had_not_begun() -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        for event in (
            {"type": "TOOL_CALL_START", "toolCallId": "streamed", "toolCallName": "quick"},
            {"type": "TOOL_CALL_ARGS", "toolCallId": "streamed", "delta": "{}"},
            {"type": "TOOL_CALL_END", "toolCallId": "streamed"},
        ):
            run.write(event)
        run.save_call(CallRecord("streamed", "quick", open=True))
        run.write({"type": "CUSTOM", "name": "written", "value": {}})
        await now.at.saw(run, "written")
        now.die()
        record, events = await now.recovered(run)
        assert {call.call_id: (call.status, call.open) for call in record.calls} == dict.fromkeys(
            ("call-1", "streamed"), ("interrupted", False)
        )
        [told] = [
            event["value"]
            for event in events
            if event.get("name") == "tool.result" and event["value"]["toolCallId"] == "streamed"
        ]
        assert (told["toolName"], told["status"], told["durationMs"]) == ("quick", "interrupted", 0)
        [result] = [
            event for event in events if event["type"] == "TOOL_CALL_RESULT" and event["toolCallId"] == "streamed"
        ]
        assert result["content"].startswith('Error [interrupted]: "quick" was ended by the death of its worker')


async def test_the_one_call_of_a_run_of_tools_leaves_its_output_for_who_waits_for_json() -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        now.die()
        record, _ = await now.recovered(run)
        assert record.result is not None
        assert b'"status":"interrupted"' in record.result


# -- once --


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes two workers take the run over, and know what to write, before one of them does."""
    barrier = asyncio.Barrier(2)
    waited: list[str] = []
    plain = SharedStore.take_over, SharedStore.append

    async def take_over(store: SharedStore, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        lease = await plain[0](store, key, worker, orphaned=orphaned)
        store.dead.add(worker)  # it may die on the way, too
        return lease

    async def append(store: SharedStore, lease: Lease, *rest: Any) -> None:
        waited.append(lease.worker)
        await barrier.wait()
        await plain[1](store, lease, *rest)

    monkeypatch.setattr(SharedStore, "take_over", take_over)
    monkeypatch.setattr(SharedStore, "append", append)
    return waited


async def test_of_two_workers_that_find_it_one_ends_it(both: list[str]) -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        now.die()
        records = await asyncio.gather(*(recover(now.store, run.key, worker) for worker in ("one", "two")))
        assert both == ["one", "two"]
        assert [record is None for record in records] == [True, False]
        events = check_order(await events_of(now.store, run.key))
        assert names(events).count("tool.result") == 1


async def test_a_run_that_is_over_or_at_work_is_left_alone() -> None:
    async with world() as now:
        over = await now.at.start(quick)
        await now.at.finish(over)
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        assert await recover(now.store, run.key, "survivor") is None  # its worker lives
        now.die()
        assert await recover(now.store, over.key, "survivor") is None
        assert await recover(now.store, RunKey(None, "unknown"), "survivor") is None
        assert await recover(now.store, run.key, "survivor") is not None
        assert await recover(now.store, run.key, "survivor") is None
        assert await now.store.orphans() == []


async def test_the_worker_that_was_thought_dead_writes_nothing_any_more(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        now.die()
        _, events = await now.recovered(run)
        now.at.stage.open()
        async with asyncio.timeout(LONG):
            await run.done.wait()
        assert check_order(await events_of(now.store, run.key)) == events


@tool(timeout=0)
async def asks(ctx: ToolContext) -> str:
    """Asks twice at once."""
    answers = await asyncio.gather(ctx.request_input("Which?"), ctx.request_input("When?"))
    return str(answers)


@pytest.mark.parametrize("answered", [False, True])
async def test_what_a_lost_run_has_asked_is_closed_and_an_answer_stays(
    answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as now:
        run = await now.at.start(asks)
        call = run.calls["call-1"]
        await quiet(lambda: len(call.waits) == 2)
        asked = await now.store.questions(run.key)
        now.die()
        given = replace(asked[0], answer=Answer("resolved", 7))
        replaced = now.store.replace_questions

        async def late(*arguments: Any) -> bool:
            monkeypatch.setattr(now.store, "replace_questions", replaced)
            assert await replaced(run.key, [(asked[0], given)])
            return await replaced(*arguments)

        if answered:  # just before they are closed
            monkeypatch.setattr(now.store, "replace_questions", late)
        await now.recovered(run)
        closed = [replace(question, closed=True) for question in asked]
        assert await now.store.questions(run.key) == ([given, closed[1]] if answered else closed)


# -- background jobs --


async def detached(now: World) -> LiveRun:
    run = await now.at.start(long, owner=ADA)
    await now.at.saw(run, "working")
    moved = await now.at.supervisor.detach(run.key, "call-1")
    assert isinstance(moved, Detached)
    job = now.at.supervisor.live(RunKey(ADA, moved.run_id))
    assert job is not None
    await now.at.finish(run)
    return job


async def notes_in(store: MemoryStore) -> list[str]:
    return [item.text for item in await store.notes(ADA, "thread-1")]


async def test_a_call_that_cannot_be_offered_to_others_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SharedStore, "ask", fails)
    async with world() as now:
        run = await now.at.start(long)
        await now.at.saw(run, "working")
        now.at.stage.open()
        assert (await now.at.ended(run, "call-1"))["value"]["status"] == "completed"
    assert "Call call-1 of run" in caplog.text
    assert "Task offer" not in caplog.text


async def test_a_background_job_that_is_lost_leaves_a_note() -> None:
    async with world() as now:
        job = await detached(now)
        now.die()
        record, events = await now.recovered(job)
        assert [call.status for call in record.calls] == ["interrupted"]
        assert names(events)[-2:] == ["tool.result", "RUN_ERROR"]
        assert "TOOL_CALL_RESULT" not in names(events)
        assert await notes_in(now.store) == [LOST]
        await recover(now.store, job.key, "survivor")
        assert await notes_in(now.store) == [LOST]


async def test_a_job_that_is_lost_before_its_first_event_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as now:
        run = await now.at.start(long, owner=ADA)
        await now.at.saw(run, "working")
        plain = SharedStore.create

        async def dies(store: SharedStore, *rest: Any) -> Any:
            await plain(store, *rest)
            raise StoreError("The worker is gone.")

        monkeypatch.setattr(SharedStore, "create", dies)
        with pytest.raises(StoreError):
            await now.at.supervisor.detach(run.key, "call-1")
        now.die()
        (job,) = [key for key in await now.store.orphans() if key != run.key]
        await recover_orphans(now.store, "survivor", {})
        assert names(check_order(await events_of(now.store, job))) == ["RUN_STARTED", "tool.result", "RUN_ERROR"]
        assert await notes_in(now.store) == [LOST]


async def test_two_workers_leave_one_note(both: list[str]) -> None:
    async with world() as now:
        job = await detached(now)
        now.die()
        await asyncio.gather(*(recover(now.store, job.key, worker) for worker in ("one", "two")))
        assert await notes_in(now.store) == [LOST]


async def test_a_worker_that_dies_while_it_recovers_leaves_the_rest_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as now:
        job = await detached(now)
        now.die()
        with monkeypatch.context() as broken:
            broken.setattr(SharedStore, "append", fails)
            with pytest.raises(StoreError):
                await recover(now.store, job.key, "survivor")
        now.store.dead.add("survivor")
        await recover_orphans(now.store, "third", {})
        events = check_order(await events_of(now.store, job.key))
        assert names(events).count("tool.result") == 1
        assert await notes_in(now.store) == [LOST]


async def fails(*_: Any, **__: Any) -> None:
    raise StoreError("The store is away.")


async def test_a_job_that_had_left_its_note_keeps_it() -> None:
    async with world() as now:
        job = await detached(now)
        await now.store.add_note(ADA, "thread-1", replace(note(1), run_id=job.key.run_id))
        now.die()
        await now.recovered(job)
        assert await notes_in(now.store) == [note(1).text]


async def test_a_job_of_nobody_leaves_no_note() -> None:
    store = SharedStore()
    key = RunKey(None, "job")
    call = CallRecord("call-1", "long", "running", 1.0)
    await store.create(RunRecord(key, "t", "tools", 1.0, background=True, calls=(call,)), b"", "gone")
    store.dead.add("gone")
    record = await recover(store, key, "survivor")
    assert record is not None
    assert record.status == "failed"
    assert store._notes == {}


# -- notes that a run had taken --


@pytest.mark.parametrize("when", ["before it told them", "after", "the client had them"])
async def test_notes_that_a_dead_run_had_taken_are_told_once(when: str) -> None:
    async with world() as now:
        await now.store.add_note(ADA, "thread-1", note(1))
        held = [{"id": "call-1:note", "role": "assistant", "content": note(1).text}]
        messages: Sequence[dict[str, Any]] = held if when == "the client had them" else []
        run = await started(now, streaming, messages=messages)
        if when == "before it told them":
            now.die()
            assert await now.store.take_notes(ADA, "thread-1", run.key.run_id)
        else:
            await now.at.saw(run, "begun")
            now.die()
        _, events = await now.recovered(run)
        assert (told(events).get("call-1:note") is None) is (when == "the client had them")
        assert names(events).count("TEXT_MESSAGE_CONTENT") == (0 if when == "the client had them" else 1)
        assert await now.store.take_notes(ADA, "thread-1", "next") == []


# -- a supervisor that opens --


async def test_a_supervisor_that_opens_ends_what_its_predecessor_has_left(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as now:
        runs = [await now.at.start(waits), await started(now, streaming), await detached(now)]
        await now.at.saw(runs[0], "waiting")
        await now.at.saw(runs[1], "begun")
        now.die()
        survivor = Supervisor(Settings(lease_seconds=0.3), now.store)
        with caplog.at_level(logging.INFO, "gateway.runs"):
            await survivor.open()
            try:
                for run in runs:
                    check_order(await events_of(now.store, run.key))  # up to its end
                    record = await now.store.get(run.key)
                    assert record is not None
                    assert record.status == "failed"
            finally:
                await survivor.close()
        for run in runs:
            assert f"run {run.key.label} recovered: status=failed" in caplog.text


async def test_a_run_that_cannot_be_recovered_does_not_keep_the_others_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as now:
        first, second = await now.at.start(waits), await now.at.start(waits)
        now.die()
        plain = SharedStore.append

        async def append(store: SharedStore, lease: Lease, *rest: Any) -> None:
            if lease.key == first.key:
                raise StoreError("The store is away.")
            await plain(store, lease, *rest)

        monkeypatch.setattr(SharedStore, "append", append)
        owed: Owed = {}
        await recover_orphans(now.store, "survivor", owed)
        assert "could not be recovered yet" in caplog.text
        record = await now.store.get(second.key)
        assert record is not None
        assert record.over
        # It belongs to one that lives now: nobody else finds it, so this one ends it as soon as it can.
        assert owed == {first.key: "lost"}
        assert await now.store.orphans() == []
        monkeypatch.setattr(SharedStore, "append", plain)
        await recover_orphans(now.store, "survivor", owed)
        assert owed == {}
        assert names(check_order(await events_of(now.store, first.key)))[-1] == "RUN_ERROR"


async def test_after_trouble_nobody_is_taken_for_dead_and_what_is_owed_is_ended_all_the_same() -> None:
    async with world() as now:
        first, second = await now.at.start(waits), await now.at.start(waits)
        await now.at.saw(second, "waiting")
        now.die()
        owed = {first.key: "store"}
        await recover_orphans(now.store, "survivor", owed, lambda: False)
        assert owed == {}
        assert await now.store.orphans() == [second.key]


@pytest.mark.parametrize(("why", "code"), [("store", "store_unavailable"), ("store_lost", "store_lost")])
async def test_a_run_that_the_store_has_failed_gets_its_end_from_its_own_worker(why: str, code: str) -> None:
    async with world(lease_seconds=0.1) as now:
        run = await now.at.start(waits)
        await now.at.saw(run, "waiting")
        await now.store.take_over(run.key, now.at.supervisor.worker)  # what is still written comes to nothing
        now.at.supervisor._lost(run, why)
        async with asyncio.timeout(LONG):
            events = check_order(await events_of(now.store, run.key))  # up to its end
        assert events[-1]["code"] == code
        record = await now.store.get(run.key)
        assert record is not None
        assert (record.status, record.calls[0].status) == ("failed", "interrupted")
        assert "was ended by a failure of the store" in events[-2]["content"]


async def test_a_store_in_memory_has_nothing_to_recover() -> None:
    async with desk() as at:
        run = await at.start(waits)
        assert await at.store.orphans() == []
        assert await recover(at.store, run.key, "survivor") is None
