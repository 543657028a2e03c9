"""When the file cannot be written, for a while or for good: nothing is lost or doubled, and who waits hears of it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Conflict, StoreError
from gateway.stores import sqlite_file, sqlite_thread
from gateway.stores.base import StopRequest
from gateway.stores.sqlite import SqliteStore
from gateway.stores.sqlite_file import StoreFile
from tests.conformance.stores import LONG, frame, frames, new_run, record, rest
from tests.stores.sqlite_stores import KEY, Faults, change, heard, locked, opened, rows

BROKEN = sqlite3.OperationalError("disk I/O error")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    monkeypatch.setattr(sqlite_thread, "PAUSE", 0.001)
    return Faults(monkeypatch)


def impatient(path: Path) -> SqliteStore:
    return opened(path, store_timeout=0.2)


# -- for a while --


async def test_a_lock_of_another_process_delays_and_loses_nothing(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        with locked(path):
            for item in frames(1, 10):
                writer.write(item)
            flushing = asyncio.create_task(writer.flush())
            creating = asyncio.create_task(store.create(record("run-2"), b"f", "worker-1"))
            await asyncio.sleep(0.05)
            assert not flushing.done()
            assert writer.pending_bytes == sum(map(len, frames(1, 10)))
            assert await store.bounds(KEY) == (1, 0, False)  # readers do not wait
        await flushing
        assert writer.pending_bytes == 0
        assert (await creating).lease is not None
        assert await store.bounds(KEY) == (1, 10, False)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("on", ["BEGIN", "PRAGMA data", "INSERT INTO blocks", "UPDATE runs", "SELECT", "COMMIT"])
async def test_a_fault_of_any_statement_loses_and_doubles_nothing(
    path: Path, faults: Faults, on: str, when: str
) -> None:
    """Also of a COMMIT that says it failed and did not."""
    async with opened(path) as store:
        for number in range(5):
            lease = await new_run(store, f"run-{number}")
            writer = store.writer(lease)
            following = asyncio.create_task(rest(store.follow(lease.key, 0)))
            for step in range(6):
                errors: list[Exception | None] = [None] * number + [BROKEN, BROKEN]
                faults.on, faults.before, faults.after = on, [], []
                setattr(faults, when, errors)
                writer.write(frame(2 * step + 1))
                if step % 2:
                    writer.save(record(f"run-{number}", reason=str(step)))
                writer.write(frame(2 * step + 2))
                await writer.flush()
            writer.save(record(f"run-{number}", status="completed", ended_at=1_700_000_000_000.0))
            async with asyncio.timeout(LONG):
                assert await following == b"".join(frames(1, 12))
            faults.on = ""
            assert await rest(store.follow(lease.key, 0)) == b"".join(frames(1, 12))


async def test_a_full_disk_is_waited_for(path: Path, faults: Faults) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        faults.on, faults.before = "INSERT INTO blocks", [sqlite3.OperationalError("database or disk is full")] * 20
        for item in frames(1, 5):
            writer.write(item)
        await writer.flush()
        assert not faults.before
        assert await store.bounds(KEY) == (1, 5, False)


async def test_a_reader_tries_again(path: Path, faults: Faults) -> None:
    async with opened(path) as store:
        await store.append(await new_run(store), 1, frames(1, 3))
        faults.on, faults.before = "SELECT", [BROKEN] * 2
        assert await store.get(KEY) is not None
        assert not faults.before


async def test_one_call_that_fails_does_not_fail_the_others(path: Path) -> None:
    async with opened(path) as store:
        lease = await new_run(store)
        writer = store.writer(lease)
        with locked(path):  # so that they come together
            writer.write(frame(1))
            tasks = [
                asyncio.create_task(store.create(record(), b"other", "worker-1")),
                asyncio.create_task(store.create(record("run-2"), b"f", "worker-1")),
                asyncio.create_task(store.create(record("run-3", outcome={"x": object()}), b"f", "worker-1")),
                asyncio.create_task(store.request_stop(StopRequest(KEY, "user"))),
            ]
            await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await writer.flush()
        assert isinstance(outcomes[0], Conflict)
        assert isinstance(outcomes[2], TypeError)
        assert await store.get(record("run-2").key) is not None
        assert await store.get(record("run-3").key) is None
        assert len(await store.stop_requests(KEY)) == 1
        assert await store.bounds(KEY) == (1, 1, False)


async def test_a_record_that_cannot_be_kept_loses_its_run_only(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        other = store.writer(await new_run(store, "run-2"))
        with locked(path):
            other.write(frame(1))
            writer.save(record(outcome={"x": object()}))
            hearing = asyncio.create_task(heard(writer.on_lost))
            await asyncio.sleep(0.01)
        assert await hearing == "store"
        await other.flush()
        with pytest.raises(StoreError):
            await writer.flush()


# -- for good --


async def test_what_cannot_be_stored_in_time_is_lost_and_said(path: Path) -> None:
    async with impatient(path) as store:
        lease = await new_run(store)
        writer = store.writer(lease)
        writer.write(frame(1))
        await writer.flush()
        with locked(path):
            writer.write(frame(2))
            flushing = asyncio.create_task(writer.flush())
            getting = asyncio.create_task(store.create(record("run-2"), b"f", "worker-1"))
            renewing = asyncio.get_running_loop().run_in_executor(None, store.renew_blocking, "worker-1")
            assert await heard(writer.on_lost) == "store"
            assert writer.pending_bytes == 0
            writer.write(frame(3))
            for failing in (flushing, getting, renewing, writer.flush()):
                with pytest.raises(StoreError):
                    await failing
        # What came later does not follow on what is missing.
        await store.renew("worker-1")
        assert await store.bounds(KEY) == (1, 1, False)
        again = store.writer(await new_run(store, "run-3"))
        again.write(frame(1))
        await again.flush()


async def test_what_comes_while_a_run_is_being_lost_is_not_stored(path: Path) -> None:
    """Between the thread that gives up and the loop that hears of it."""
    async with impatient(path) as store:
        writer = store.writer(await new_run(store))
        lost: list[str] = []
        writer.on_lost(lost.append)
        with locked(path):
            number = 0
            while not lost:
                number += 1
                writer.write(frame(number))
                await asyncio.sleep(0)
        await store.renew("worker-1")
        assert lost == ["store"]
        assert rows(path, "SELECT * FROM blocks") == []


async def test_a_run_that_has_gone_from_the_file_is_lost(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        writer.write(frame(1))
        await writer.flush()
        follower = store.follow(KEY, 1)
        change(path, "DELETE FROM runs")
        writer.write(frame(2))
        assert await heard(writer.on_lost) == "store_lost"
        with pytest.raises(StoreError):
            await writer.flush()
        async with asyncio.timeout(LONG):
            assert await rest(follower) == b""


async def test_a_log_that_has_lost_its_end_is_lost(path: Path) -> None:
    """A file that was restored from an older copy."""
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        for number in (1, 2):
            writer.write(frame(number))
            await writer.flush()
        change(path, "DELETE FROM blocks WHERE last = 2")
        writer.write(frame(3))
        assert await heard(writer.on_lost) == "store_lost"


def test_a_file_that_was_removed_is_made_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_thread, "LOOK_SECONDS", 0)

    async def main() -> None:
        async with opened(path) as store:
            writer = store.writer(await new_run(store))
            writer.write(frame(1))
            await writer.flush()
            await asyncio.get_running_loop().run_in_executor(None, path.unlink)
            writer.write(frame(2))
            assert await heard(writer.on_lost) == "store_lost"
            again = store.writer(await new_run(store))
            again.write(frame(1))
            await again.flush()
            assert await store.bounds(KEY) == (1, 1, False)
            assert await store.get(KEY) is not None

    asyncio.run(main())
    assert rows(path, "SELECT last FROM blocks") == [(1,)]


async def test_a_lost_run_is_heard_of_also_by_who_asks_later(path: Path) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        change(path, "DELETE FROM runs")
        writer.write(frame(1))
        with pytest.raises(StoreError):
            await writer.flush()
        assert await heard(writer.on_lost) == "store_lost"


async def test_a_store_that_fails_is_closed_in_time(path: Path) -> None:
    store = impatient(path)
    async with asyncio.timeout(LONG):
        await store.__aenter__()
        writer = store.writer(await new_run(store))
        with locked(path):
            writer.write(frame(1))
            await store.__aexit__(None, None, None)
        with pytest.raises(StoreError):
            await writer.flush()


async def test_trouble_at_start_is_waited_for(path: Path) -> None:
    async with opened(path):
        pass
    with locked(path):
        opening = asyncio.create_task(opened(path).__aenter__())
        await asyncio.sleep(0.05)
    store = await opening
    await store.__aexit__(None, None, None)


async def test_who_holds_the_lock_keeps_no_worker_from_starting(path: Path) -> None:
    async with opened(path) as store:
        await store.append(await new_run(store), 1, frames(1, 3))
    with locked(path):
        async with asyncio.timeout(LONG), opened(path, store_timeout=0.2) as store:
            assert await store.bounds(KEY) == (1, 3, False)
            with pytest.raises(StoreError):
                await store.renew("worker-1")


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_file_that_another_worker_makes_between_two_looks_is_ours(path: Path, at: int) -> None:
    class Overtaken(sqlite3.Connection):
        looks = 0

        def execute(self, *statement: Any) -> sqlite3.Cursor:
            self.looks += 1
            if self.looks == at:
                StoreFile(path, 1).open().close()
            return super().execute(*statement)

    connection = sqlite3.connect(path, factory=Overtaken)
    assert sqlite_file._is_empty(connection, path) is (at > 1)
    assert connection.looks == 3
    connection.close()
