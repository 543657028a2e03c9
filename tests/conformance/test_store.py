"""What every store promises (`gateway.stores.base`), held against each of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import Conflict, CursorExpired, Fenced, NotFound, StoreError
from gateway.run.questions import Answer, Claim, Note, Question
from gateway.run.records import CallRecord, RunKey
from gateway.settings import Settings
from gateway.stores.base import (
    Follower,
    QuestionChanged,
    RunWriter,
    StopRequest,
    Store,
    Ticket,
    ViewersChanged,
    Visibility,
)
from tests.conformance.stores import (
    LONG,
    STORES,
    Clock,
    cancelling,
    frame,
    frames,
    new_run,
    read,
    record,
    rest,
    write,
)

OpenStore = Callable[..., Awaitable[Store]]
KEY = RunKey("anon:ada", "run-1")
KIB = 1024


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
async def open_store(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stack:

        async def opens(**settings: Any) -> Store:
            return await stack.enter_async_context(STORES[request.param](Settings(**settings), clock))

        yield opens


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


async def finish(store: Store, key: RunKey = KEY, *, at: float = 1_700_000_000.0) -> None:
    """Ends a run that `worker-1` holds with the lease of epoch 1."""
    found = await store.get(key)
    assert found is not None
    lease = (await store.create(found, b"fingerprint", "worker-1")).lease
    assert lease is None
    writer = store.writer(LEASES[key])
    writer.save(replace(found, status="completed", ended_at=at))
    await writer.flush()


LEASES: dict[RunKey, Any] = {}


async def run_of(store: Store, run_id: str = "run-1", owner: str | None = "anon:ada", **fields: Any) -> Any:
    """A new run; its lease is kept for `finish`."""
    lease = await new_run(store, run_id, owner, **fields)
    LEASES[lease.key] = lease
    return lease


# -- creation is atomic --


async def test_of_many_that_create_one_run_exactly_one_gets_the_lease(store: Store) -> None:
    created = await asyncio.gather(*(store.create(record(), b"same", f"worker-{n}") for n in range(50)))
    leases = [item.lease for item in created if item.lease is not None]
    assert len(leases) == 1
    assert leases[0].key == KEY
    assert {item.record.key for item in created} == {KEY}
    writer = store.writer(leases[0])
    write(writer, frames(1, 1))
    await writer.flush()


async def test_a_different_request_for_the_same_run_is_a_conflict_also_when_it_is_over(store: Store) -> None:
    await run_of(store)
    with pytest.raises(Conflict) as refused:
        await store.create(record(), b"other", "worker-2")
    assert refused.value.code == "run_conflict"
    await finish(store)
    with pytest.raises(Conflict):
        await store.create(record(), b"other", "worker-2")
    assert (await store.create(record(), b"fingerprint", "worker-2")).lease is None


async def test_owners_do_not_share_run_ids(store: Store) -> None:
    owners: list[str | None] = ["anon:ada", "anon:bob", None]
    leases = [await new_run(store, "run-1", owner) for owner in owners]
    for lease in leases:
        await store.append(lease, 1, [frame(1)])
    for owner in owners:
        found = await store.get(RunKey(owner, "run-1"))
        assert found is not None
        assert found.last_event_id == 1
    assert await store.get(RunKey("anon:eve", "run-1")) is None


# -- appending is idempotent by number --


async def test_appending_again_what_is_there_changes_nothing(store: Store) -> None:
    lease = await run_of(store)
    await store.append(lease, 1, frames(1, 3))
    await store.append(lease, 1, frames(1, 3))
    await store.append(lease, 2, frames(2, 5))
    await store.append(lease, 6, [])
    await finish(store)
    assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 5))


async def test_a_gap_is_refused_and_leaves_the_log_as_it_was(store: Store) -> None:
    lease = await run_of(store)
    await store.append(lease, 1, frames(1, 2))
    with pytest.raises(StoreError):
        await store.append(lease, 4, frames(4, 5))
    await store.append(lease, 3, frames(3, 4))
    await finish(store)
    assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 4))


async def test_record_and_frames_are_appended_together(store: Store) -> None:
    lease = await run_of(store)
    call = CallRecord("call-1", "tool", "running", 1.0, open=True)
    await store.append(lease, 1, frames(1, 2), record().with_call(call))
    found = await store.get(KEY)
    assert found is not None
    assert found.calls == (call,)
    assert found.last_event_id == 2
    assert await store.bounds(KEY) == (1, 2, False)
    over = replace(found, status="failed", ended_at=1_700_000_000.0, error={"code": "x", "message": "y"}, result=b"{}")
    await store.append(lease, 3, frames(3, 3), over)
    assert await store.get(KEY) == replace(over, last_event_id=3)
    assert await store.bounds(KEY) == (1, 3, True)


async def test_a_run_that_is_not_there_has_no_record_and_no_events(store: Store) -> None:
    assert await store.get(KEY) is None
    assert await store.bounds(KEY) is None
    with pytest.raises(NotFound):
        await rest(store.follow(KEY, 0))


# -- fencing --


async def test_only_the_newest_lease_may_append(store: Store) -> None:
    old = await run_of(store)
    old_writer = store.writer(old)
    write(old_writer, frames(1, 2))
    await old_writer.flush()
    new = await store.take_over(KEY, "worker-2")
    assert new is not None
    assert new.epoch > old.epoch
    with pytest.raises(Fenced):
        await _write_and_flush(old_writer)
    with pytest.raises(Fenced):
        await store.append(old, 3, frames(3, 3))
    with pytest.raises(Fenced):
        await _save_and_flush(old_writer)
    await store.append(new, 3, frames(3, 3), record(status="failed", ended_at=1_700_000_000.0))
    assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 3))


async def _write_and_flush(writer: RunWriter) -> None:
    write(writer, frames(3, 3))
    await writer.flush()


async def _save_and_flush(writer: RunWriter) -> None:
    writer.save(record(status="failed", ended_at=1_700_000_000.0))
    await writer.flush()


async def test_a_run_that_is_over_or_unknown_cannot_be_taken_over(store: Store) -> None:
    assert await store.take_over(KEY, "worker-2") is None
    await run_of(store)
    await finish(store)
    assert await store.take_over(KEY, "worker-2") is None


async def test_a_dead_workers_run_is_closed_unless_a_stop_came_that_its_end_does_not_know(store: Store) -> None:
    old = await run_of(store)
    await store.append(old, 1, frames(1, 2))
    new = await store.take_over(KEY, "worker-2")
    assert new is not None
    reading = asyncio.create_task(rest(store.follow(KEY, 0)))
    await store.request_stop(StopRequest(KEY, "user", None, "call-1"))  # of a call: its run's end is what it is
    await store.request_stop(StopRequest(KEY, "user"))
    failed = record(status="failed", ended_at=1_700_000_000.0)
    assert not await store.close_run(new, 3, frames(3, 4), failed)
    assert await store.bounds(KEY) == (1, 2, False)
    cancelled = replace(failed, status="cancelled", stop_requested="user")
    with pytest.raises(Fenced):
        await store.close_run(old, 3, frames(3, 5), cancelled)
    assert await store.close_run(new, 3, frames(3, 5), cancelled)
    assert await store.close_run(new, 3, frames(3, 5), cancelled)  # again changes nothing
    assert await reading == await rest(store.follow(KEY, 0)) == b"".join(frames(1, 5))
    assert await store.get(KEY) == replace(cancelled, last_event_id=5)


# -- readers are cursors --


async def test_every_follower_sees_every_event_once_in_order_and_then_the_end(store: Store) -> None:
    """Early, late and lagging ones, while frames are written one by one and in pieces."""
    dice = random.Random(2)
    lease = await run_of(store)
    writer = store.writer(lease)
    total, written = 3_000, 0

    def next_frame(number: int) -> bytes:
        return frame(number, number % 90)

    async def follow(cursor: int, pauses: int) -> tuple[int, bytes]:
        data = b""
        async for piece in store.follow(KEY, cursor):
            data += piece
            for _ in range(pauses):
                await asyncio.sleep(0)
        return cursor, data

    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        readers = [group.create_task(follow(0, 0))]
        while written < total:
            last = min(written + dice.choice([1, 1, 2, 30]), total)
            writer.write(b"".join(map(next_frame, range(written + 1, last + 1))), last - written)
            written = last
            if len(readers) < 200:
                readers.append(group.create_task(follow(dice.randint(0, written), dice.choice([0, 0, 1, 20]))))
            if dice.random() < 0.7:
                await asyncio.sleep(0)
        readers += [group.create_task(follow(cursor, 0)) for cursor in (0, 1, total - 1, total)]
        await writer.flush()
        await finish(store)
    for reader in readers:
        cursor, data = reader.result()
        assert data == b"".join(map(next_frame, range(cursor + 1, total + 1)))


async def test_an_event_wakes_a_follower_that_waits(store: Store) -> None:
    lease = await run_of(store)
    writer = store.writer(lease)
    for number in (1, 2):
        reading = asyncio.create_task(read(store.follow(KEY, number - 1)))
        await asyncio.sleep(0)
        writer.write(frame(number))
        assert await reading == frame(number)


async def test_a_thousand_followers_all_wake_up(store: Store) -> None:
    lease = await run_of(store)
    writer = store.writer(lease)
    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        readers = [group.create_task(read(store.follow(KEY, 0))) for _ in range(1_000)]
        await asyncio.sleep(0)
        write(writer, frames(1, 1))
        await writer.flush()
    assert {reader.result() for reader in readers} == {frame(1)}


async def test_a_follower_at_the_end_of_a_finished_run_ends_at_once(store: Store) -> None:
    lease = await run_of(store)
    await store.append(lease, 1, frames(1, 2))
    await finish(store)
    assert await rest(store.follow(KEY, 2)) == b""
    assert await rest(store.follow(KEY, 1)) == frame(2)


async def test_wake_gives_a_waiting_follower_an_empty_piece_and_loses_nothing(store: Store) -> None:
    lease = await run_of(store)
    follower = store.follow(KEY, 0)
    for _ in range(3):
        reading = asyncio.create_task(read(follower))
        await asyncio.sleep(0)
        follower.wake()
        follower.wake()
        assert await reading == b""
    follower.wake()
    await store.append(lease, 1, frames(1, 1))
    assert await read(follower) == frame(1)


async def test_close_ends_a_follower_that_waits_and_one_that_does_not(store: Store) -> None:
    lease = await run_of(store)
    waiting = store.follow(KEY, 0)
    reading = asyncio.create_task(rest(waiting))
    await asyncio.sleep(0)
    waiting.close()
    assert await reading == b""
    await store.append(lease, 1, frames(1, 1))
    behind = store.follow(KEY, 0)
    behind.close()
    assert await rest(behind) == b""
    with pytest.raises(StopAsyncIteration):
        await read(behind)


async def test_followers_that_left_keep_nothing_alive(store: Store) -> None:
    await run_of(store)
    before = asyncio.all_tasks()
    readers = [asyncio.create_task(read(store.follow(KEY, 0))) for _ in range(100)]
    await asyncio.sleep(0)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert asyncio.all_tasks() == before
    await finish(store)
    assert await rest(store.follow(KEY, 0)) == b""


# -- a cancel at any await loses and doubles nothing --


async def test_a_cancel_at_any_await_of_append_loses_and_doubles_nothing(open_store: OpenStore) -> None:
    store = await open_store()
    step, done = 0, False
    while not done:
        lease = await run_of(store, f"run-{step}")
        done = (await cancelling(_append_all(store, lease), step)).done
        # The writer has not forgotten what it did not see stored.
        await store.append(lease, 1, frames(1, 9), record(f"run-{step}", status="completed", ended_at=1_700_000_000.0))
        assert await rest(store.follow(lease.key, 0)) == b"".join(frames(1, 9))
        step += 1
    assert step >= 1


async def test_a_cancel_at_any_await_of_create_leaves_no_run_that_nobody_holds(open_store: OpenStore) -> None:
    store = await open_store()
    step, done = 0, False
    while not done:
        outcome = await cancelling(store.create(record(f"run-{step}"), b"fingerprint", "worker-1"), step)
        done = outcome.done
        if not done:
            async with asyncio.timeout(LONG):
                await _create_in_the_end(store, f"run-{step}")
        step += 1
    assert outcome.value.lease is not None


async def _create_in_the_end(store: Store, run_id: str) -> None:
    """A store may need a moment to take a run back."""
    lease = None
    while lease is None:
        with contextlib.suppress(Conflict):
            lease = (await store.create(record(run_id), b"another", "worker-1")).lease


async def _append_all(store: Store, lease: Any) -> None:
    await store.append(lease, 1, frames(1, 4))
    await store.append(lease, 5, frames(5, 9), record(lease.key.run_id, status="completed", ended_at=1_700_000_000.0))


async def test_a_cancel_at_any_await_of_flush_loses_and_doubles_nothing(open_store: OpenStore) -> None:
    store = await open_store()
    step, done = 0, False
    while not done:
        lease = await run_of(store, f"run-{step}")
        writer = store.writer(lease)
        write(writer, frames(1, 5))
        done = (await cancelling(_coroutine(writer.flush()), step)).done
        write(writer, frames(6, 9))
        await writer.flush()
        await finish(store, lease.key)
        assert await rest(store.follow(lease.key, 0)) == b"".join(frames(1, 9))
        step += 1
    assert step >= 2


async def _coroutine(work: Awaitable[Any]) -> Any:
    return await work


async def test_a_cancel_at_any_await_of_a_follower_loses_and_doubles_nothing(open_store: OpenStore) -> None:
    """The reader is cancelled at its k-th wait, for every k, and goes on with the same follower."""
    store = await open_store()
    step, done = 0, False
    while not done:
        lease = await run_of(store, f"run-{step}")
        writer = store.writer(lease)
        follower = store.follow(lease.key, 0)
        seen: list[bytes] = []

        async def consume(follower: Follower = follower, seen: list[bytes] = seen) -> None:
            async for piece in follower:
                seen.append(piece)
                await asyncio.sleep(0)

        writing = asyncio.create_task(_write_slowly(store, writer, lease.key))
        outcome = await cancelling(consume(), step)
        done = outcome.done
        if not done:
            await consume()
        await writing
        assert b"".join(seen) == b"".join(frames(1, 12))
        step += 1
    assert step > 6


async def _write_slowly(store: Store, writer: Any, key: RunKey) -> None:
    for number in range(1, 13):
        write(writer, [frame(number)])
        await writer.flush()
        await asyncio.sleep(0)
    await finish(store, key)


# -- lists --


async def test_a_list_shows_an_owners_runs_newest_first_by_thread_and_status(store: Store) -> None:
    for number in range(6):
        await run_of(store, f"run-{number}", thread_id=f"thread-{number % 2}")
    await run_of(store, "foreign", "anon:bob")
    await run_of(store, "nobody", None)
    await finish(store, RunKey("anon:ada", "run-3"))

    async def ids(**query: Any) -> list[str]:
        return [item.key.run_id for item in (await store.list_runs("anon:ada", **query)).items]

    assert await ids() == ["run-5", "run-4", "run-3", "run-2", "run-1", "run-0"]
    assert await ids(thread_id="thread-1") == ["run-5", "run-3", "run-1"]
    assert await ids(status="completed") == ["run-3"]
    assert await ids(thread_id="thread-0", status="completed") == []
    assert (await store.list_runs("anon:eve")).items == []


@pytest.mark.parametrize("query", [{}, {"thread_id": "thread-1"}, {"status": "completed"}])
async def test_pages_together_are_the_list_whatever_comes_in_between(store: Store, query: dict[str, str]) -> None:
    for number in range(10):
        await run_of(store, f"run-{number}", thread_id=f"thread-{number % 2}")
        if number % 3 == 0:
            await finish(store, RunKey("anon:ada", f"run-{number}"))
    whole = [item.key.run_id for item in (await store.list_runs("anon:ada", **query)).items]  # type: ignore[arg-type]
    for limit in (1, 2, 3, 10):
        after, seen = None, []
        while True:
            page = await store.list_runs("anon:ada", limit=limit, after=after, **query)
            assert len(page.items) <= limit
            seen += [item.key.run_id for item in page.items]
            await run_of(store, f"later-{limit}-{len(seen)}", thread_id="thread-9")
            if page.next is None:
                break
            after = page.next
        assert [run_id for run_id in seen if not run_id.startswith("later")] == whole


# -- Stop is state --


async def test_a_stop_is_kept_although_nobody_hears_of_it(store: Store) -> None:
    await run_of(store)
    stop = StopRequest(KEY, "user", "enough")
    found = await store.request_stop(stop)
    assert found is not None
    assert found.stop_requested == "user"
    await store.request_stop(StopRequest(KEY, "user", None, "call-1"))
    assert await store.stop_requests(KEY) == [stop, StopRequest(KEY, "user", None, "call-1")]


async def test_a_stop_reaches_the_worker_that_owns_the_run(store: Store) -> None:
    await run_of(store)
    messages = store.messages("worker-1")
    hearing = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    stop = StopRequest(KEY, "user", None, "call-1")
    found = await store.request_stop(stop)
    async with asyncio.timeout(LONG):
        assert await hearing == stop
    assert found is not None
    assert found.stop_requested is None  # of a call, not of the run


async def test_a_stop_of_a_run_that_is_over_or_unknown_is_not_kept(store: Store) -> None:
    assert await store.request_stop(StopRequest(KEY, "user")) is None
    assert await store.stop_requests(KEY) == []
    await run_of(store)
    await finish(store)
    found = await store.request_stop(StopRequest(KEY, "user"))
    assert found is not None
    assert found.stop_requested is None
    assert await store.stop_requests(KEY) == []


async def test_a_stop_survives_the_saves_of_the_worker_that_has_not_heard_of_it(store: Store) -> None:
    lease = await run_of(store)
    writer = store.writer(lease)
    await store.request_stop(StopRequest(KEY, "user"))
    writer.save(record().with_call(CallRecord("call-1", "tool", "running", 1.0, open=True)))
    await writer.flush()
    found = await store.get(KEY)
    assert found is not None
    assert found.stop_requested == "user"


# -- viewers at other workers --


async def test_viewers_at_other_workers_count_while_they_are_there(store: Store) -> None:
    assert await store.watched(KEY) is None
    await store.set_watching(KEY, "worker-2", watching=True)  # of a run that is not there
    assert await store.watched(KEY) is None
    await run_of(store)
    for worker in ("worker-2", "worker-3"):
        await store.renew(worker)
        await store.set_watching(KEY, worker, watching=True)
        assert await store.watched(KEY) is True
    await store.set_watching(KEY, "worker-2", watching=False)
    assert await store.watched(KEY) is True
    await store.set_watching(KEY, "worker-3", watching=False)
    assert await store.watched(KEY) is False
    await finish(store)
    await store.set_watching(KEY, "worker-3", watching=True)  # of one that is over
    assert await store.watched(KEY) is not True


async def test_viewers_at_a_worker_that_is_dead_are_gone(open_store: OpenStore, clock: Clock) -> None:
    store = await open_store(lease_seconds=15)
    if not store.shared:
        return  # there are no other workers
    await run_of(store)
    await store.renew("worker-2")
    await store.set_watching(KEY, "worker-2", watching=True)
    clock.now += 14
    assert await store.watched(KEY) is True
    clock.now += 2
    assert await store.watched(KEY) is False


async def test_the_worker_of_the_run_hears_of_viewers_at_others(store: Store) -> None:
    await run_of(store)
    messages = store.messages("worker-1")
    hearing = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    await store.set_watching(KEY, "worker-2", watching=True)
    async with asyncio.timeout(LONG):
        assert await hearing == ViewersChanged(KEY)


# -- questions --

QUESTION = Question("i-1", "call-1", "tool", 1_700_000_000.0, message="Which?")
ANSWER = Answer("resolved", {"n": 1})


async def test_a_question_is_asked_once(store: Store) -> None:
    lease = await run_of(store)
    await store.ask(lease, QUESTION)
    await store.ask(lease, QUESTION)
    assert await store.questions(KEY) == [QUESTION]
    assert await store.find_question("i-1") == (KEY, QUESTION)
    answered = replace(QUESTION, answer=ANSWER)
    assert await store.replace_questions(KEY, [(QUESTION, answered)])
    await store.ask(lease, QUESTION)  # asking again does not take the answer back
    assert await store.questions(KEY) == [answered]
    assert await store.find_question("i-1") == (KEY, answered)


async def test_of_many_answers_exactly_one_counts(store: Store) -> None:
    await store.ask(await run_of(store), QUESTION)
    answers = [replace(QUESTION, answer=Answer("resolved", n)) for n in range(20)]
    swapped = await asyncio.gather(*(store.replace_questions(KEY, [(QUESTION, answer)]) for answer in answers))
    assert sorted(swapped) == [False] * 19 + [True]
    assert await store.questions(KEY) == [answers[swapped.index(True)]]


async def test_several_questions_change_together_or_not_at_all(store: Store) -> None:
    lease = await run_of(store)
    asked = [replace(QUESTION, interrupt_id=f"i-{n}") for n in range(3)]
    for question in asked:
        await store.ask(lease, question)
    first = replace(asked[0], closed=True)
    assert await store.replace_questions(KEY, [(asked[0], first)])
    assert not await store.replace_questions(KEY, [(old, replace(old, answer=ANSWER)) for old in asked])
    assert await store.questions(KEY) == [first, *asked[1:]]
    pairs = [(old, replace(old, answer=ANSWER)) for old in asked[1:]]
    assert await store.replace_questions(KEY, pairs)
    assert await store.questions(KEY) == [first, *(new for _, new in pairs)]


async def test_the_worker_of_the_run_hears_of_a_changed_question(store: Store) -> None:
    await store.ask(await run_of(store), QUESTION)
    messages = store.messages("worker-1")
    hearing = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    await store.replace_questions(KEY, [(QUESTION, replace(QUESTION, claim=Claim("c-1")))])
    async with asyncio.timeout(LONG):
        assert await hearing == QuestionChanged(KEY, "i-1")


async def test_a_question_that_nobody_asked_is_not_answered(store: Store) -> None:
    assert await store.find_question("i-1") is None
    assert not await store.replace_questions(KEY, [(QUESTION, replace(QUESTION, answer=ANSWER))])
    assert await store.questions(KEY) == []


async def test_a_question_that_moved_to_another_run_is_found_there(store: Store) -> None:
    await store.ask(await run_of(store), QUESTION)
    await store.ask(await run_of(store, "job-1"), QUESTION)
    assert await store.find_question("i-1") == (RunKey("anon:ada", "job-1"), QUESTION)


async def test_stop_of_an_interrupted_run_closes_its_questions_and_changes_its_record(store: Store) -> None:
    lease = await run_of(store)
    await store.ask(lease, QUESTION)
    running = await store.cancel_interrupted(KEY)
    assert running is not None
    assert running.status == "running"
    writer = store.writer(lease)
    writer.save(replace(running, status="interrupted", ended_at=1_700_000_000.0, outcome={"type": "interrupt"}))
    await writer.flush()
    for _ in range(2):
        found = await store.cancel_interrupted(KEY)
        assert found is not None
        assert (found.status, found.outcome) == ("cancelled", {"type": "cancelled"})
    assert [question.open for question in await store.questions(KEY)] == [False]
    assert await store.cancel_interrupted(RunKey("anon:ada", "unknown")) is None


async def test_an_interrupted_run_that_was_resumed_stays_as_it_is(store: Store) -> None:
    lease = await run_of(store)
    await store.ask(lease, replace(QUESTION, answer=ANSWER))
    writer = store.writer(lease)
    writer.save(replace(record(), status="interrupted", ended_at=1_700_000_000.0))
    await writer.flush()
    found = await store.cancel_interrupted(KEY)
    assert found is not None
    assert found.status == "interrupted"


async def test_an_interrupted_run_is_kept_until_its_answer_is_overdue(open_store: OpenStore, clock: Clock) -> None:
    store = await open_store(run_ttl=60, interrupt_ttl=600)
    lease = await run_of(store)
    await store.ask(lease, QUESTION)
    writer = store.writer(lease)
    writer.save(replace(record(), status="interrupted", ended_at=clock.now))
    await writer.flush()
    clock.now += 659
    assert await store.get(KEY) is not None
    clock.now += 2
    assert await store.get(KEY) is None
    assert await store.find_question("i-1") is None


async def test_a_run_that_never_began_can_be_discarded(store: Store) -> None:
    lease = await run_of(store)
    await store.discard(lease)
    assert await store.get(KEY) is None
    again = await run_of(store)
    await store.append(again, 1, [frame(1)])
    await store.discard(again)
    assert await store.get(KEY) is not None


# -- notes --


def note(number: int, ended_at: float = 1_700_000_000.0) -> Note:
    return Note(f"job-{number}", f"call-{number}", f"Background job call-{number} ended.", ended_at + number)


async def test_a_note_is_taken_by_one_run_only_and_by_that_one_again(store: Store) -> None:
    await store.add_note("anon:ada", "thread-1", note(2))
    await store.add_note("anon:ada", "thread-1", note(1))
    await store.add_note("anon:ada", "thread-1", note(1))
    taken = await asyncio.gather(*(store.take_notes("anon:ada", "thread-1", f"run-{n}") for n in range(20)))
    (winner,) = [n for n in range(20) if taken[n]]
    assert [item.text for item in taken[winner]] == [note(1).text, note(2).text]
    assert await store.take_notes("anon:ada", "thread-1", f"run-{winner}") == taken[winner]
    assert [item.delivered_to for item in await store.notes("anon:ada", "thread-1")] == [f"run-{winner}"] * 2
    await store.add_note("anon:ada", "thread-1", note(1))  # told already
    await store.add_note("anon:ada", "thread-1", note(3))
    assert [item.run_id for item in await store.take_notes("anon:ada", "thread-1", "run-x")] == ["job-3"]


async def test_a_run_whose_worker_seems_dead_takes_no_more_notes(store: Store) -> None:
    await run_of(store)
    await store.add_note("anon:ada", "thread-1", note(1))
    (taken,) = await store.take_notes("anon:ada", "thread-1", "run-1")
    await store.add_note("anon:ada", "thread-1", note(2))
    assert await store.close_notes(KEY, "thread-1") == [taken]
    await store.take_notes("anon:ada", "thread-1", "run-1")  # its worker was only asleep
    assert [item.run_id for item in await store.take_notes("anon:ada", "thread-1", "run-2")] == ["job-2"]
    assert await store.close_notes(RunKey(None, "run-1"), "thread-1") == []


async def test_notes_belong_to_an_owner_and_a_thread(store: Store) -> None:
    await store.add_note("anon:ada", "thread-1", note(1))
    assert await store.notes("anon:bob", "thread-1") == []
    assert await store.take_notes("anon:ada", "thread-2", "run-1") == []


async def test_an_old_note_is_forgotten(open_store: OpenStore, clock: Clock) -> None:
    store = await open_store(interrupt_ttl=60)
    await store.add_note("anon:ada", "thread-1", note(1, clock.now))
    clock.now += 60
    assert len(await store.notes("anon:ada", "thread-1")) == 1
    clock.now += 3
    assert await store.notes("anon:ada", "thread-1") == []


# -- visibility, tickets --


async def test_visibility_is_a_sessions_own(store: Store) -> None:
    rule = Visibility(frozenset({"a"}), frozenset({"b"}))
    assert await store.visibility("anon:ada") == Visibility()
    await store.set_visibility("anon:ada", rule)
    assert await store.visibility("anon:ada") == rule
    assert await store.visibility("anon:bob") == Visibility()


async def test_a_ticket_is_swapped_by_one_only(store: Store) -> None:
    ticket = Ticket("digest", KEY, "follow", 1_700_000_060.0)
    assert await store.ticket("digest") is None
    await store.put_ticket(ticket)
    assert await store.ticket("digest") == ticket
    swaps = await asyncio.gather(*(store.replace_ticket(ticket, replace(ticket, last_event_id=n)) for n in range(20)))
    assert sorted(swaps) == [False] * 19 + [True]
    winner = await store.ticket("digest")
    assert winner is not None
    assert winner.last_event_id == swaps.index(True)


# -- retention and limits --


async def test_a_finished_run_is_forgotten_after_its_time_and_a_running_one_never(
    open_store: OpenStore, clock: Clock
) -> None:
    store = await open_store(run_ttl=60)
    await run_of(store, "old")
    await run_of(store, "live")
    await store.ask(LEASES[RunKey("anon:ada", "old")], QUESTION)
    await finish(store, RunKey("anon:ada", "old"), at=clock.now)
    clock.now += 59
    assert await store.get(RunKey("anon:ada", "old")) is not None
    clock.now += 2
    assert await store.get(RunKey("anon:ada", "old")) is None
    assert await store.bounds(RunKey("anon:ada", "old")) is None
    assert await store.questions(RunKey("anon:ada", "old")) == []
    assert [item.key.run_id for item in (await store.list_runs("anon:ada")).items] == ["live"]
    await run_of(store, "old")
    clock.now += 10_000
    assert await store.get(RunKey("anon:ada", "live")) is not None


async def test_a_run_keeps_its_newest_events_and_older_cursors_expire(open_store: OpenStore) -> None:
    store = await open_store(max_run_bytes=200 * KIB)
    lease = await run_of(store)
    lagging = store.follow(KEY, 0)
    await store.append(lease, 1, frames(1, 600, KIB))
    await finish(store)
    bounds = await store.bounds(KEY)
    assert bounds is not None
    assert 1 < bounds.first < bounds.last == 600
    assert await rest(store.follow(KEY, bounds.first - 1)) == b"".join(frames(bounds.first, 600, KIB))
    for follower in (lagging, store.follow(KEY, bounds.first - 2)):
        with pytest.raises(CursorExpired) as refused:
            await read(follower)
        assert refused.value.code == "cursor_expired"
        assert refused.value.details == {"firstEventId": bounds.first, "lastEventId": 600}
        assert await rest(follower) == b"".join(frames(bounds.first, 600, KIB))


async def test_the_writer_hears_once_that_its_oldest_events_have_left(open_store: OpenStore) -> None:
    store = await open_store(max_run_bytes=200 * KIB)
    lease = await run_of(store)
    writer = store.writer(lease)
    heard: list[bool] = []
    told = asyncio.Event()

    def hear() -> None:
        heard.append(True)
        told.set()

    writer.on_trim(hear)
    write(writer, frames(1, 100, KIB))
    await writer.flush()
    assert not heard
    write(writer, frames(101, 900, KIB))
    assert not heard  # never in the writer's own frame
    async with asyncio.timeout(LONG):
        await told.wait()
    write(writer, frames(901, 1_500, KIB))
    await writer.flush()
    await asyncio.sleep(0)
    assert heard == [True]


async def test_a_run_keeps_no_more_events_than_it_may(open_store: OpenStore) -> None:
    store = await open_store(max_run_events=100)
    lease = await run_of(store)
    await store.append(lease, 1, frames(1, 1_000, KIB))
    bounds = await store.bounds(KEY)
    assert bounds is not None
    assert 900 - 64 <= bounds.first <= 1_000  # to the block


async def test_the_end_of_the_store_ends_its_followers(open_store: OpenStore, request: pytest.FixtureRequest) -> None:
    opens = STORES[request.node.callspec.params["open_store"]]
    async with opens(Settings(), Clock()) as store:
        await run_of(store)
        reading = asyncio.create_task(rest(store.follow(KEY, 0)))
        await asyncio.sleep(0)
    assert await reading == b""
