"""The log of one run in this process, and those who follow it. It lives on the loop.

Followers are woken in slices, so that Stop and new requests get in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from gateway.errors import CursorExpired
from gateway.run.log import BlockLog

__all__ = ["Feed", "FeedFollower"]

SLICE = 64  # followers woken in one go: 1 000 at once would hold the loop for 6 to 10 ms


class Feed:
    """A `BlockLog` with followers."""

    __slots__ = ("_loop", "log", "waiting")

    def __init__(self) -> None:
        self.log = BlockLog()
        self.waiting: dict[asyncio.Future[None], None] = {}
        self._loop = asyncio.get_running_loop()

    def append(self, data: bytes, count: int = 1) -> bool:
        """Adds `count` frames. True when a block was sealed: the time to look at sizes."""
        sealed = self.log.append(data, count)
        if self.waiting:
            self._wake_all()
        return sealed

    def close(self) -> None:
        """No more frames will come."""
        self.log.closed = True
        self._wake_all()

    def follow(self, cursor: int) -> FeedFollower:
        return FeedFollower(self, cursor)

    def _wake_all(self) -> None:
        waiting, self.waiting = self.waiting, {}
        self._wake(iter(waiting))

    def _wake(self, waiting: Iterator[asyncio.Future[None]]) -> None:
        count = 0
        for future in islice(waiting, SLICE):
            count += 1
            if not future.done():
                future.set_result(None)
        if count == SLICE:
            self._loop.call_soon(self._wake, waiting)


class FeedFollower:
    """A cursor over a feed, see `stores.base.Follower`."""

    __slots__ = ("_closed", "_feed", "_future", "cursor")

    def __init__(self, feed: Feed, cursor: int) -> None:
        self._feed = feed
        self.cursor = cursor
        self._future: asyncio.Future[None] | None = None
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next piece; `b""` after `wake()`; `StopAsyncIteration` at the end or after `close()`."""
        log = self._feed.log
        if self._closed:
            raise StopAsyncIteration
        if self.cursor >= log.last:
            if log.closed:
                raise StopAsyncIteration
            await self._wait()
        if self.cursor < log.first - 1:
            details = {"firstEventId": log.first, "lastEventId": log.last}
            self.cursor = log.first - 1  # whoever reads on in spite of it gets what is left
            raise CursorExpired("The events after this cursor are gone.", details=details)
        data, self.cursor = log.read(self.cursor)
        return data

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def close(self) -> None:
        self._closed = True
        self.wake()

    async def _wait(self) -> None:
        future = self._future = asyncio.get_running_loop().create_future()
        self._feed.waiting[future] = None
        try:
            await future
        finally:
            self._future = None
            self._feed.waiting.pop(future, None)
        if self._closed or (self._feed.log.closed and self.cursor >= self._feed.log.last):
            raise StopAsyncIteration
