"""What only the SQLite store promises: its file, several workers on it, retention, and a bounded memory."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from gateway.errors import Fenced, StoreError
from gateway.run.questions import Note, Question
from gateway.run.records import CallRecord, RunKey
from gateway.settings import Settings
from gateway.stores import sqlite_feed, sqlite_sweep, sqlite_tail
from gateway.stores.base import QuestionChanged, StopRequest, Ticket, Visibility
from gateway.stores.sqlite import SqliteStore
from tests.conformance.stores import LONG, Clock, cancelling, frame, frames, new_run, read, record, rest
from tests.stores.sqlite_stores import KEY, change, ended, heard, opened, rows, until

QUESTION = Question("i-1", "call-1", "tool", 1_700_000_000.0, message="Which?")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


# -- the file --


async def test_everything_is_there_again_in_a_store_that_is_opened_anew(path: Path) -> None:
    call = CallRecord("call-1", "tool", "completed", 1.0, 2.0)
    ticket, rule, note = Ticket("d", KEY, "follow", None), Visibility(frozenset("a")), Note("j", "c", "t", 1.0)
    clock = Clock()
    async with opened(path, clock) as store:
        lease = await new_run(store, messages=b"[1]")
        await store.append(lease, 1, frames(1, 5), replace(record(messages=b"[1]").with_call(call), result=b"\x00\xff"))
        await store.ask(lease, QUESTION)
        await store.request_stop(StopRequest(KEY, "user", "enough"))
        await store.put_ticket(ticket)
        await store.set_visibility("anon:ada", rule)
        await store.add_note("anon:ada", "thread-1", replace(note, ended_at=clock.now))
        before = await store.get(KEY)
    async with opened(path, clock) as store:
        assert await store.get(KEY) == before
        assert before is not None
        assert (before.calls, before.messages, before.result, before.stop_requested) == (
            (call,),
            b"[1]",
            b"\x00\xff",
            "user",
        )
        assert await store.bounds(KEY) == (1, 5, False)
        assert await store.find_question("i-1") == (KEY, QUESTION)
        assert await store.stop_requests(KEY) == [StopRequest(KEY, "user", "enough")]
        assert await store.ticket("d") == ticket
        assert await store.visibility("anon:ada") == rule
        assert [item.run_id for item in await store.notes("anon:ada", "thread-1")] == ["j"]
        await store.append(lease, 6, frames(6, 7), record(status="failed", ended_at=clock.now))
        assert await rest(store.follow(KEY, 3)) == b"".join(frames(4, 7))


async def test_what_was_written_is_stored_when_the_store_is_closed(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        for item in frames(1, 500, 1024):
            writer.write(item)
        assert writer.pending_bytes
    async with opened(path) as store:
        assert await store.bounds(KEY) == (1, 500, False)


async def test_a_closed_store_says_so(path: Path) -> None:
    store = opened(path)
    with pytest.raises(StoreError, match="not open"):
        await store.get(KEY)
    async with store:
        lease = await new_run(store)
        writer = store.writer(lease)
        follower = store.follow(KEY, 0)
    for call in (store.get(KEY), store.renew("worker-1"), writer.flush()):
        with pytest.raises(StoreError, match="closed"):
            await call
    writer.write(frame(1))  # dropped
    assert writer.pending_bytes == 0
    with pytest.raises(StopAsyncIteration):
        await read(follower)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path / "missing" / "runs.db", "folder of the SQLite store does not exist"),
        (lambda path: path, "is a folder, not a file"),
    ],
)
async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, make: object, text: str) -> None:
    place = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(StoreError, match=text) as refused:
        async with opened(place):
            pass
    assert str(tmp_path) in str(refused.value)


def test_a_file_that_is_no_database_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"something else, and long enough to have a header" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no SQLite database"):
        asyncio.run(open_and_close(path))
    assert path.read_bytes() == before


async def open_and_close(path: Path) -> None:
    async with opened(path):
        pass


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        asyncio.run(open_and_close(path))
    assert path.read_bytes() == before


async def test_a_newer_format_is_refused(path: Path) -> None:
    async with opened(path):
        pass
    change(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer version of the gateway"):
        async with opened(path):
            pass


async def test_many_open_one_new_file_at_the_same_time(path: Path) -> None:
    stores = [opened(path) for _ in range(8)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    created = await asyncio.gather(*(store.create(record(), b"f", f"w-{n}") for n, store in enumerate(stores)))
    await asyncio.gather(*(store.__aexit__(None, None, None) for store in stores))
    assert len([item for item in created if item.lease is not None]) == 1


async def test_a_batch_is_one_row(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        for item in frames(1, 100):
            writer.write(item)
        await writer.flush()
    (count,) = rows(path, "SELECT count(*) FROM blocks")[0]
    assert count < 10


async def test_the_small_rows_of_a_slow_run_are_joined_while_others_read_them(path: Path) -> None:
    items = frames(1, 1_000, 300)
    async with opened(path) as store, opened(path) as other:
        writer = store.writer(await new_run(store))
        reading = [asyncio.create_task(rest(where.follow(KEY, n))) for where in (store, other) for n in (0, 1, 333)]
        for item in items:
            writer.write(item)
            await writer.flush()
        assert rows(path, "SELECT count(*) FROM blocks")[0][0] < 1_000 // 2
        late = [asyncio.create_task(rest(where.follow(KEY, n))) for where in (store, other) for n in (0, 500, 999)]
        writer.save(record(status="completed", ended_at=1_700_000_000_000.0))
        expected = [b"".join(items[n:]) for n in (0, 1, 333, 0, 1, 333, 0, 500, 999, 0, 500, 999)]
        async with asyncio.timeout(LONG):
            assert await asyncio.gather(*reading, *late) == expected


async def test_the_history_of_a_request_is_written_once(path: Path) -> None:
    async with opened(path) as store:
        lease = await new_run(store, messages=b"x" * 1_000_000)
        found = await store.get(KEY)
        assert found is not None
        writer = store.writer(lease)
        for number in range(50):
            writer.save(replace(found, reason=str(number)))
            await writer.flush()
        assert await store.get(KEY) == replace(found, reason="49")
        sizes = sum(item.stat().st_size for item in path.parent.iterdir())
    assert sizes < 10_000_000


# -- memory --


async def test_followers_that_lag_behind_what_memory_holds_miss_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early, late, slow and fast ones, with and without a sink, from memory and from the file."""
    monkeypatch.setattr(sqlite_feed, "FEED_BYTES", 100_000)
    dice = random.Random(7)
    total = 3_000
    items = frames(1, total, 200)

    async with opened(path) as store, opened(path) as other:

        async def follow(where: SqliteStore, cursor: int, pause: float, sink: bool) -> tuple[int, bytes]:
            pieces: list[bytes] = []
            follower = where.follow(KEY, cursor)

            def take(data: bytes) -> bool:
                if dice.random() < 0.3:
                    return False
                pieces.append(data)
                return True

            follower.sink = take if sink else None
            async for piece in follower:
                pieces.append(piece)
                await asyncio.sleep(pause)
            return cursor, b"".join(pieces)

        writer = store.writer(await new_run(store))
        readers = []
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            written = 0
            while written < total:
                last = min(written + dice.choice([1, 3, 100, 400]), total)
                writer.write(b"".join(items[written:last]), last - written)
                written = last
                where, pause = dice.choice([store, store, other]), dice.choice([0, 0, 0.001, 0.01])
                readers.append(group.create_task(follow(where, dice.randint(0, written), pause, dice.random() < 0.5)))
                await asyncio.sleep(dice.choice([0, 0.002]))
            writer.save(record(status="completed", ended_at=1_700_000_000_000.0))
        for reader in readers:
            cursor, data = reader.result()
            assert data == b"".join(items[cursor:])


async def test_a_run_that_nobody_follows_holds_no_events_in_memory(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        follower = store.follow(KEY, 0)
        writer.write(frame(1))
        assert await read(follower) == frame(1)
        assert len(store._feeds._feeds) == 1
        follower.close()
        del follower
        assert not store._feeds._feeds


async def test_nothing_is_polled_while_nobody_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Kicks(SimpleQueue[bool]):
        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().get(block, timeout)

    monkeypatch.setattr(sqlite_tail, "SimpleQueue", Kicks)
    async with opened(path) as store, opened(path) as other:
        await new_run(other)
        for _ in range(2):
            follower = store.follow(KEY, 0)
            reading = asyncio.create_task(rest(follower))
            await until(lambda: waits[-3:] == [sqlite_tail.POLL_SECONDS] * 3)
            follower.close()
            assert await reading == b""
            await until(lambda: waits[-1] is None)
        messages = store.messages("worker-1")
        hearing = asyncio.ensure_future(anext(messages))
        await until(lambda: waits[-1] is not None)
        hearing.cancel()
        await until(lambda: waits[-1] is None)


# -- several workers: here two stores on one file, in test_sqlite_processes two processes --


async def test_a_run_is_followed_in_another_worker(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        writer = store.writer(await new_run(store))
        follower = other.follow(KEY, 0)
        for number in range(1, 6):
            writer.write(frame(number))
            assert await read(follower) == frame(number)
        writer.write(b"".join(frames(6, 20_000, 300)), 19_995)  # more than is brought
        writer.save(record(status="completed", ended_at=1_700_000_000_000.0))
        assert await rest(follower) == b"".join(frames(6, 20_000, 300))


async def test_a_stop_and_an_answer_reach_the_worker_of_the_run(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        await store.ask(await new_run(store), QUESTION)
        messages = store.messages("worker-1")
        hearing = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        stop = StopRequest(KEY, "user", None, "call-1")
        await other.request_stop(stop)
        async with asyncio.timeout(LONG):
            assert await hearing == stop
            assert await other.replace_questions(KEY, [(QUESTION, replace(QUESTION, closed=True))])
            assert await anext(messages) == QuestionChanged(KEY, "i-1")
        assert await store.stop_requests(KEY) == [stop]


async def test_a_message_waits_for_a_worker_that_is_about_to_listen(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        await new_run(store)
        await other.request_stop(StopRequest(KEY, "user"))
        async with asyncio.timeout(LONG):
            assert await anext(store.messages("worker-1")) == StopRequest(KEY, "user")


async def test_a_worker_whose_run_was_taken_over_is_lost_and_its_viewers_go_on(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        writer = store.writer(await new_run(store))
        messages = store.messages("worker-1")
        hearing = asyncio.ensure_future(anext(messages))
        writer.write(frame(1))
        follower = store.follow(KEY, 0)
        assert await read(follower) == frame(1)
        lease = await other.take_over(KEY, "worker-2")
        assert lease is not None
        assert await heard(writer.on_lost) == "superseded"  # without having written anything
        await other.append(lease, 2, [frame(2)], record(status="failed", ended_at=1_700_000_000_000.0))
        assert await rest(follower) == frame(2)
        writer.write(frame(2))
        with pytest.raises(Fenced):
            await writer.flush()
        hearing.cancel()
    assert rows(path, "SELECT last FROM blocks ORDER BY last") == [(1,), (2,)]


async def test_a_fenced_worker_that_has_heard_nothing_stores_nothing(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        writer = store.writer(await new_run(store))
        writer.write(frame(1))
        await writer.flush()
        assert await other.take_over(KEY, "worker-2") is not None
        writer.write(frame(2))
        assert await heard(writer.on_lost) == "superseded"
        assert writer.pending_bytes == 0
        with pytest.raises(Fenced):
            await store.ask(writer.lease, QUESTION)
    assert rows(path, "SELECT last FROM blocks") == [(1,)]


async def test_a_run_that_was_taken_over_goes_on_after_its_last_event(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        await store.append(await new_run(store), 1, frames(1, 3))
        lease = await other.take_over(KEY, "worker-2")
        assert lease is not None
        writer = other.writer(lease)
        following = asyncio.create_task(rest(other.follow(KEY, 0)))
        for number in (4, 5):
            writer.write(frame(number))
        writer.save(record(status="failed", ended_at=1_700_000_000_000.0))
        async with asyncio.timeout(LONG):
            assert await following == b"".join(frames(1, 5))


# -- leases --


async def test_a_worker_lives_for_a_lease_after_its_last_renewal(path: Path) -> None:
    clock = Clock()
    async with opened(path, clock, lease_seconds=15) as store:
        await store.renew("worker-1")
        await new_run(store)
        clock.now += 14
        assert (await store.workers(), await store.orphans()) == (["worker-1"], [])
        await store.renew("worker-1")
        clock.now += 14
        assert await store.take_over(KEY, "worker-2", orphaned=True) is None
        clock.now += 2
        assert (await store.workers(), await store.orphans()) == ([], [KEY])
        await store.renew("worker-1")  # it comes back in time
        assert await store.take_over(KEY, "worker-2", orphaned=True) is None
        clock.now += 16
        lease = await store.take_over(KEY, "worker-2", orphaned=True)
        assert lease is not None
        assert await store.orphans() == []
        assert await store.take_over(KEY, "worker-3", orphaned=True) is None
        await ended(store, lease)
        clock.now += 16
        assert await store.orphans() == []


async def test_what_a_retired_worker_holds_is_an_orphan_at_once(path: Path) -> None:
    async with opened(path, Clock()) as store:
        await store.renew("worker-1")
        await new_run(store)
        await store.retire("worker-1")
        assert (await store.workers(), await store.orphans()) == ([], [KEY])


async def test_of_many_survivors_one_gets_an_orphan(path: Path) -> None:
    clock = Clock()
    async with opened(path, clock) as store, opened(path, clock) as other:
        await new_run(store)
        clock.now += 60
        for number in range(8):
            await store.renew(f"survivor-{number}")
        tries = [(store, other)[n % 2].take_over(KEY, f"survivor-{n}", orphaned=True) for n in range(8)]
        assert len([lease for lease in await asyncio.gather(*tries) if lease is not None]) == 1


async def test_a_thread_renews_while_the_loop_stands_still(path: Path) -> None:
    clock = Clock()
    async with opened(path, clock) as store:
        thread = threading.Thread(target=store.renew_blocking, args=("worker-1",))
        thread.start()
        thread.join(LONG)  # the loop can do nothing meanwhile
        assert not thread.is_alive()
        assert await store.workers() == ["worker-1"]


# -- a cancel leaves nothing behind --


async def test_a_cancelled_create_leaves_no_run_that_nobody_holds(path: Path) -> None:
    async with opened(path) as store:
        for ticks in (0, 1):
            task = asyncio.create_task(store.create(record(f"run-{ticks}"), b"f", "worker-1"))
            await asyncio.sleep(0)
            if ticks:
                await until(lambda: rows(path, "SELECT 1 FROM runs"))
            task.cancel()
            await asyncio.wait([task])
            assert (await store.create(record(f"run-{ticks}"), b"other", "worker-1")).lease is not None


async def test_a_cancelled_take_over_leaves_an_orphan(path: Path) -> None:
    async with opened(path) as store:
        await store.renew("worker-1")
        await store.renew("worker-2")
        await new_run(store)
        outcome = await cancelling(store.take_over(KEY, "worker-2"), 0)
        assert not outcome.done
        again = await store.take_over(KEY, "worker-3")  # after whatever became of the first
        assert again is not None


# -- retention --


async def test_what_is_overdue_leaves_the_file_by_and_by(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_sweep, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("gateway.stores.sqlite.SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(sqlite_sweep, "SLICE_ROWS", 2)
    clock = Clock()
    async with opened(path, clock, run_ttl=60, interrupt_ttl=600, session_ttl=600) as store:
        for number in range(5):
            lease = await new_run(store, f"run-{number}")
            await store.append(lease, 1, frames(1, 500, 1024))
            await store.ask(lease, replace(QUESTION, interrupt_id=f"i-{number}"))
            await store.put_ticket(Ticket(f"d-{number}", lease.key, "follow", None))
            await store.request_stop(StopRequest(lease.key, "user"))
            await ended(store, lease, clock.now)
        await new_run(store, "live")
        await store.set_visibility("anon:ada", Visibility(frozenset("a")))
        await store.add_note("anon:ada", "thread-1", Note("job", "call", "text", clock.now))
        clock.now += 61
        again = await new_run(store, "run-0")  # while the old one may still be there
        await store.append(again, 1, [frame(1)])
        await until(lambda: len(rows(path, "SELECT run_id FROM runs")) == 2)
        clock.now += 100_000
        await until(lambda: not rows(path, "SELECT 1 FROM notes UNION SELECT 1 FROM visibility"))
        assert rows(path, "SELECT count(*) FROM blocks") == [(1,)]
        left = """
            SELECT body FROM questions UNION SELECT interrupt_id FROM asked UNION SELECT body FROM tickets
            UNION SELECT body FROM stops UNION SELECT body FROM messages"""
        assert rows(path, left) == []
        assert [item.key.run_id for item in (await store.list_runs("anon:ada")).items] == ["run-0", "live"]


async def test_a_follower_of_a_run_that_is_forgotten_ends(path: Path) -> None:
    clock = Clock()
    async with opened(path, clock, run_ttl=60) as store:
        lease = await new_run(store)
        await store.append(lease, 1, frames(1, 3))
        await ended(store, lease, clock.now)
        follower = store.follow(KEY, 0)
        assert await read(follower) == b"".join(frames(1, 3))
        clock.now += 61
        assert await rest(follower) == b""


async def test_a_session_that_is_used_is_kept(path: Path) -> None:
    clock, rule = Clock(), Visibility(frozenset({"a"}))
    async with opened(path, clock, session_ttl=100) as store:
        await store.set_visibility("anon:ada", rule)
        for _ in range(4):
            clock.now += 99
            assert await store.visibility("anon:ada") == rule
        clock.now += 101
        assert await store.visibility("anon:ada") == Visibility()


def test_limits_come_from_the_settings() -> None:
    settings = Settings()
    assert (settings.lease_seconds, settings.store_timeout, settings.max_pending_bytes) == (15, 10, 64 * 1024 * 1024)


async def test_nobodys_runs_are_kept_and_not_listed(path: Path) -> None:
    async with opened(path) as store:
        await new_run(store, "run-1", None)
        assert await store.get(RunKey(None, "run-1")) is not None
        assert await store.get(RunKey("", "run-1")) is None
        assert (await store.list_runs("")).items == []
