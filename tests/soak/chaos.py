"""Trouble at random times: workers that are killed or stand still, a Redis that restarts, a file that is locked."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from tests.soak.fleet import Fleet, Worker
from tests.soak.tally import Tally
from tests.support.redis import RedisServer

__all__ = ["DRAIN", "Chaos"]

DRAIN = 3.0  # seconds that runs have after SIGTERM
STARTS = 10
EXIT_WITHIN = DRAIN + 2 + 1  # contract 8, and some time to be noticed on a busy machine


class Chaos:
    """`lease` is that of the workers: a pause may be longer, an outage of the store has to be shorter."""

    def __init__(self, fleet: Fleet, store: RedisServer | Path, tally: Tally, rng: random.Random, lease: float) -> None:
        self._fleet = fleet
        self._store = store
        self._tally = tally
        self._rng = rng
        self._lease = lease
        self._tasks: set[asyncio.Task[None]] = set()
        #: What was done and when, for whoever looks into it and for times that count only in calm.
        self.done: list[tuple[float, float, str]] = []
        self._open: dict[int, tuple[float, str]] = {}

    def calm(self, since: float, until: float) -> bool:
        """Whether nothing was wrong in this time, nor just before it."""
        past = any(start <= until and end >= since - 1 for start, end, _ in self.done)
        return not past and not any(start <= until for start, _ in self._open.values())

    async def go_on(self, after: float) -> None:
        """Until it is cancelled; the first `after` seconds are calm."""
        troubles: list[Callable[[], Awaitable[None]]] = [self._kill, self._kill, self._pause, self._pause, self._drain]
        if isinstance(self._store, RedisServer):
            troubles += [self._restart, self._restart, self._stall, self._drop]
        else:
            troubles += [self._lock]
        await asyncio.sleep(after)
        while True:
            await asyncio.sleep(self._rng.uniform(1, 5))
            task = asyncio.ensure_future(self._run(self._rng.choice(troubles)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Returns when all is well again; raises what went wrong with the trouble itself."""
        await asyncio.gather(*self._tasks)

    async def _run(self, trouble: Callable[[], Awaitable[None]]) -> None:
        await trouble()

    def _begin(self, what: str) -> int:
        self._open[number := len(self._open) + len(self.done)] = (time.time(), what)
        return number

    def _end(self, number: int) -> None:
        since, what = self._open.pop(number)
        self.done.append((since, time.time(), what))

    def _victim(self) -> Worker | None:
        """One that is well, unless it is the last one."""
        well = self._fleet.well
        return self._rng.choice(well) if len(well) > 1 else None

    async def _start(self, worker: Worker) -> None:
        """As whoever looks after a service does: again, when it has failed."""
        for _ in range(STARTS):
            try:
                await worker.start()
            except RuntimeError as error:
                self._tally.bad("failed starts", str(error))
            else:
                return

    async def _kill(self) -> None:
        if (worker := self._victim()) is None:
            return
        trouble = self._begin(f"kill -9 {worker.name} ({worker.lives[-1].pid})")
        self._tally.counts["kills"] += 1
        worker.kill()
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._start(worker)
        self._end(trouble)

    async def _pause(self) -> None:
        if (worker := self._victim()) is None:
            return
        seconds = self._lease * self._rng.choice([0.3, 1.5, 2.5])
        trouble = self._begin(f"SIGSTOP {worker.name} ({worker.lives[-1].pid}) for {seconds:.1f} s")
        self._tally.counts["pauses beyond the lease" if seconds > self._lease else "pauses within the lease"] += 1
        await worker.pause(seconds)
        self._end(trouble)

    async def _drain(self) -> None:
        if (worker := self._victim()) is None:
            return
        trouble = self._begin(f"SIGTERM {worker.name} ({worker.lives[-1].pid})")
        self._tally.counts["drains (SIGTERM)"] += 1
        took = await worker.drain()
        self._tally.times["drained worker's exit after"].append(took)
        if took > EXIT_WITHIN:
            self._tally.bad("late exits", f"{worker.name} took {took:.1f} s to drain")
        await self._start(worker)
        self._end(trouble)

    # -- Redis --

    @property
    def _redis(self) -> RedisServer:
        assert isinstance(self._store, RedisServer)
        return self._store

    def _store_is_in_trouble(self) -> bool:
        return any(what.startswith("store") for _, what in self._open.values())

    async def _restart(self) -> None:
        if self._store_is_in_trouble():
            return
        hard = self._rng.random() < 0.5
        trouble = self._begin(f"store: restart by {'SIGKILL' if hard else 'SIGTERM'}")
        self._tally.counts[f"Redis restarts ({'kill -9' if hard else 'SIGTERM'})"] += 1
        await asyncio.to_thread(self._redis.kill if hard else self._redis.stop)
        await asyncio.sleep(self._rng.uniform(0, 0.3) * self._lease)
        await asyncio.to_thread(self._redis.start)
        self._end(trouble)

    async def _stall(self) -> None:
        if self._store_is_in_trouble():
            return
        trouble = self._begin("store: SIGSTOP")
        self._tally.counts["Redis pauses"] += 1
        self._redis.pause()
        await asyncio.sleep(self._rng.uniform(0.05, 0.4) * self._lease)
        self._redis.resume()
        self._end(trouble)

    async def _drop(self) -> None:
        if self._store_is_in_trouble():
            return
        trouble = self._begin("store: connections dropped")
        self._tally.counts["Redis connections dropped"] += 1
        await asyncio.to_thread(self._redis.drop_connections)
        self._end(trouble)

    # -- SQLite --

    async def _lock(self) -> None:
        if self._store_is_in_trouble():
            return
        trouble = self._begin("store: locked by somebody else")
        self._tally.counts["SQLite file locked"] += 1
        await asyncio.to_thread(self._hold, self._rng.uniform(0.05, 0.4) * self._lease)
        self._end(trouble)

    def _hold(self, seconds: float) -> None:
        assert isinstance(self._store, Path)
        with closing(sqlite3.connect(self._store, timeout=20, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            db.execute("ROLLBACK")
