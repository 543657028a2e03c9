"""The stores that the conformance suite is run against, and how a test drives one."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Follower, Lease, RunWriter, Store
from gateway.stores.memory import MemoryStore
from gateway.stores.redis_store import RedisStore
from gateway.stores.sqlite import SqliteStore
from gateway.wire import sse
from tests.support.redis import new_prefix, shared_redis

__all__ = ["LONG", "STORES", "Clock", "Outcome", "cancelling", "frame", "frames", "new_run", "read", "record", "rest"]

LONG = 20  # seconds; reached only by a test that fails
T = TypeVar("T")
Opens = Callable[[Settings, "Clock"], AbstractAsyncContextManager[Store]]


class Clock:
    """The store's time, which only the test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def sqlite(settings: Settings, clock: Clock) -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "runs.db", settings, clock) as store:
            yield store


def redis(settings: Settings, clock: Clock) -> RedisStore:
    own = settings.model_copy(update={"redis_prefix": new_prefix()})
    return RedisStore(shared_redis().url, own, clock)


def behind(opens: Opens) -> Opens:
    """The same store, which shows events before it has stored them."""
    return lambda settings, clock: opens(settings.model_copy(update={"write_behind": True}), clock)


# A new store is held to every promise by one line here.
STORES: dict[str, Opens] = {
    "memory": lambda settings, clock: MemoryStore(settings, clock=clock),
    "sqlite": sqlite,
    "sqlite, write-behind": behind(sqlite),
    "redis": redis,
    "redis, write-behind": behind(redis),
}


def record(run_id: str = "run-1", owner: str | None = "anon:ada", **fields: Any) -> RunRecord:
    return RunRecord(RunKey(owner, run_id), fields.pop("thread_id", "thread-1"), "tools", 1_700_000_000.0, **fields)


async def new_run(store: Store, run_id: str = "run-1", owner: str | None = "anon:ada", **fields: Any) -> Lease:
    created = await store.create(record(run_id, owner, **fields), b"fingerprint", "worker-1")
    assert created.lease is not None
    return created.lease


def frame(number: int, size: int = 0) -> bytes:
    return sse.frame(number, b'{"n":%d%b}' % (number, b',"x":"%b"' % (b"x" * size) if size else b""))


def frames(first: int, last: int, size: int = 0) -> list[bytes]:
    """The frames `first` to `last`, both included."""
    return [frame(number, size) for number in range(first, last + 1)]


def write(writer: RunWriter, items: list[bytes]) -> None:
    """Some one by one, the rest as one piece."""
    first = len(items) // 2
    for item in items[:first]:
        writer.write(item)
    writer.write(b"".join(items[first:]), len(items) - first)


async def read(follower: Follower) -> bytes:
    """One piece."""
    async with asyncio.timeout(LONG):
        return await anext(follower.__aiter__())


async def rest(follower: Follower) -> bytes:
    """Everything up to the end."""
    async with asyncio.timeout(LONG):
        return b"".join([data async for data in follower])


class Outcome(Exception):
    """Raised by nobody; carries what a cancelled coroutine did: `done`, and its `value`."""

    def __init__(self, done: bool, value: Any = None) -> None:
        self.done = done
        self.value = value


@types.coroutine
def cancelling(work: Coroutine[Any, Any, Any], at: int) -> Generator[Any, Any, Outcome]:
    """Runs `work` as a part of this task, and cancels it where it waits for the `at`-th time (counted from 0).

    `Outcome.done` is true when it never waited that often, or went on in spite of it.
    """
    waits = 0
    thrown: BaseException | None = None
    while True:
        try:
            waiting = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration as stop:
            return Outcome(True, stop.value)
        except asyncio.CancelledError:
            return Outcome(False)
        thrown = None
        if waits == at:
            thrown = asyncio.CancelledError()
            if waiting is not None:
                waiting._asyncio_future_blocking = False  # nobody waits for it any more
                waiting.cancel()
        else:
            yield waiting
        waits += 1
