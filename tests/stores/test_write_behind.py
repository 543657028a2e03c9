"""`write_behind`: viewers see events before they are stored, but not what changes the run, nor what follows on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any

import pytest

from gateway.errors import StoreError
from gateway.settings import Settings
from gateway.stores.base import Follower, RunWriter, Store
from gateway.stores.redis_store import RedisStore
from gateway.stores.sqlite import SqliteStore
from gateway.stores.urls import open_store
from tests.conformance.stores import LONG, frame, frames, new_run, read, record, rest
from tests.stores.sqlite_stores import KEY, locked
from tests.support.redis import RedisServer

KIB = 1024
NOT_SEEN = 0.2  # seconds in which nothing may come


@contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


@dataclass
class Place:
    """A store that can stand still: nothing is stored meanwhile."""

    store: Store
    still: Callable[[], AbstractContextManager[None]]


STORES = ["sqlite", "redis"]


@asynccontextmanager
async def opened(kind: str, folder: Path, **settings: Any) -> AsyncIterator[Place]:
    given = Settings(write_behind=True, **settings)
    if kind == "sqlite":
        path = folder / "runs.db"
        async with SqliteStore(path, given) as sqlite:
            yield Place(sqlite, lambda: locked(path))
        return
    server = RedisServer()
    try:
        async with RedisStore(server.url, given) as redis:
            yield Place(redis, lambda: paused(server))
    finally:
        server.close()


@pytest.fixture(params=STORES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with opened(request.param, tmp_path) as there:
        yield there


async def started(store: Store) -> RunWriter:
    """The writer of a run that has two stored events."""
    writer = store.writer(await new_run(store))
    writer.write(frame(1))
    writer.write(frame(2))
    await writer.flush()
    return writer


async def seen(follower: Follower, last: int) -> bytes:
    """What it reads up to the event with this number."""
    data = b""
    while follower.cursor < last:
        data += await read(follower)
    return data


async def end(writer: RunWriter) -> None:
    writer.save(replace(record(), status="completed", ended_at=time()))
    async with asyncio.timeout(LONG):
        await writer.flush()


async def test_viewers_see_events_that_are_not_stored_yet_also_who_comes_late(place: Place) -> None:
    writer = await started(place.store)
    early = place.store.follow(KEY, 0)
    assert await seen(early, 2) == b"".join(frames(1, 2))
    with place.still():
        for number in (3, 4):
            writer.write(frame(number))
            assert await seen(early, number) == frame(number)
        assert await seen(place.store.follow(KEY, 2), 4) == b"".join(frames(3, 4))
        assert writer.pending_bytes == len(frame(3) + frame(4))
    await writer.flush()
    assert await place.store.bounds(KEY) == (1, 4, False)
    await end(writer)
    assert await rest(early) == b""
    assert await rest(place.store.follow(KEY, 0)) == b"".join(frames(1, 4))


async def test_what_changes_the_record_is_stored_first_and_what_comes_after_it_waits(place: Place) -> None:
    writer = await started(place.store)
    follower = place.store.follow(KEY, 2)
    with place.still():
        writer.write(frame(3))
        assert await read(follower) == frame(3)
        writer.write(frame(4))
        writer.save(record(status="waiting"))
        writer.write(frame(5))
        reading = asyncio.create_task(read(follower))
        await asyncio.wait({reading}, timeout=NOT_SEEN)
        assert not reading.done()
    assert (await reading).startswith(frame(4))
    found = await place.store.get(KEY)
    assert found is not None
    assert found.status == "waiting"
    await end(writer)
    assert follower.cursor == 5 or await rest(follower) == frame(5)


async def test_a_tool_that_never_gives_way_is_seen_while_it_emits(place: Place) -> None:
    writer = await started(place.store)
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    follower = place.store.follow(KEY, 2)
    follower.sink = take
    reading = asyncio.create_task(rest(follower))
    await asyncio.sleep(0)
    with place.still():
        for number in range(3, 13):
            writer.write(frame(number, 20 * KIB))  # in one turn of the loop
        assert b"".join(taken) == b"".join(frames(3, 11, 20 * KIB))  # a record may follow on the last one
    await writer.flush()
    await end(writer)
    assert b"".join(taken) + await reading == b"".join(frames(3, 12, 20 * KIB))


async def test_a_viewer_that_is_far_behind_reads_what_is_stored_and_then_what_is_not(place: Place) -> None:
    writer = await started(place.store)
    slow = place.store.follow(KEY, 0)
    assert await seen(slow, 2) == b"".join(frames(1, 2))
    for number in range(3, 40):
        writer.write(frame(number, 64 * KIB))
        await asyncio.sleep(0)
    await writer.flush()
    with place.still():
        for number in range(40, 80):
            writer.write(frame(number, 64 * KIB))
            await asyncio.sleep(0)
        fast = place.store.follow(KEY, 39)
        assert await seen(fast, 79) == b"".join(frames(40, 79, 64 * KIB))
    assert await seen(slow, 79) == b"".join(frames(3, 79, 64 * KIB))
    await end(writer)
    assert await rest(slow) == await rest(fast) == b""


@pytest.mark.parametrize("kind", STORES)
async def test_what_was_seen_and_is_lost_is_an_error_for_who_saw_it_and_not_there_for_others(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path, store_timeout=0.5) as place:
        store, writer = place.store, await started(place.store)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        writer.on_lost(lost.set_result)
        follower = store.follow(KEY, 2)
        with place.still():
            writer.write(frame(3))
            assert await read(follower) == frame(3)
            async with asyncio.timeout(LONG):
                assert await lost == "store"
            with pytest.raises(StoreError):
                await read(follower)
        lease = await store.take_over(KEY, "worker-2")
        assert lease is not None
        bounds = await store.bounds(KEY)
        assert bounds is not None
        first = bounds.last + 1  # Redis may have done what it did not answer
        await store.append(lease, first, [frame(first, 9)], record(status="failed", ended_at=time()))
        assert await rest(store.follow(KEY, 0)) == b"".join([*frames(1, bounds.last), frame(first, 9)])


def test_a_store_says_at_its_start_that_it_writes_behind(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    open_store(Settings(store=url))
    open_store(Settings(write_behind=True))  # in memory it means nothing
    assert not caplog.records
    open_store(Settings(store=url, write_behind=True))
    assert ["write_behind" in said.message for said in caplog.records] == [True]
