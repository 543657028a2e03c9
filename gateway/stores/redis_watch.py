"""Looks now and then whether this process still holds its runs, and whether the runs of others are still there.

Writers and the tail notice most of it themselves; this is for what is silent: a run that was taken over, or a Redis
that came back empty, while nothing is written. So it also looks whenever a connection had to be made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from gateway.errors import StoreError
from gateway.stores.redis_commit import GONE, SUPERSEDED
from gateway.stores.redis_line import Line
from gateway.stores.redis_tail import RunFeed, Tail
from gateway.stores.redis_writer import RedisWriter

__all__ = ["Watch"]

MOST = 200  # runs looked at in one request


class Watch:
    """A task; `poke` makes it look at once."""

    def __init__(
        self,
        line: Line,
        tail: Tail,
        writers: Callable[[], Iterable[RedisWriter]],
        lose: Callable[[RedisWriter, str, str], None],
        seconds: float,
    ) -> None:
        self._line = line
        self._tail = tail
        self._writers = writers
        self._lose = lose
        self._seconds = seconds
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def poke(self) -> None:
        self._poked.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()
            try:
                await self._look()
            except StoreError:
                continue  # those who write and read say so themselves

    async def _look(self) -> None:
        held = list(self._writers())
        for start in range(0, len(held), MOST):
            some = held[start : start + MOST]
            for writer, reply in zip(some, await self._ask([writer.keys.run for writer in some]), strict=True):
                self._judge(writer, reply)
        followed = [feed for feed in self._tail.feeds.values() if feed.opened and not feed.own and not feed.log.closed]
        for start in range(0, len(followed), MOST):
            group = followed[start : start + MOST]
            for feed, reply in zip(group, await self._ask([feed.keys.run for feed in group]), strict=True):
                _compare(feed, reply)

    async def _ask(self, keys: list[bytes]) -> list[Any]:
        return await self._line.submit(*(("HMGET", key, "epoch", "last", "over") for key in keys))

    def _judge(self, writer: RedisWriter, reply: list[bytes | None]) -> None:
        epoch, _, _ = reply
        if writer.ended:
            return
        if epoch is None:
            self._lose(writer, "store_lost", GONE)
        elif int(epoch) != writer.lease.epoch:  # also when it is over by now: another one has ended it
            self._lose(writer, "superseded", SUPERSEDED)


def _compare(feed: RunFeed, reply: list[bytes | None]) -> None:
    epoch, last, over = reply
    if epoch is None or last is None:
        feed.fail(StoreError(GONE))
    elif over is not None and int(last) <= feed.log.last:
        feed.close()
