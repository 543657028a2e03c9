"""The log of one run in this process, and those who follow it. It lives on the loop.

A follower that waits and can take a piece at once is handed it, without waking its task; the others are woken. That
happens once a turn of the loop, in slices, so that Stop and new requests get in between; but at once for a large piece,
for it comes from a writer that has not given way for long and may not soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice

from gateway.errors import CursorExpired
from gateway.run.log import BlockLog

__all__ = ["LARGE", "Feed", "FeedFollower"]

SLICE = 64  # followers served in one go: 1 000 at once would hold the loop for 6 to 10 ms
LARGE = 16 * 1024  # bytes


class Feed:
    """A `BlockLog` with followers."""

    __slots__ = ("_due", "error", "log", "loop", "waiting")

    def __init__(self) -> None:
        self.log = BlockLog()
        self.waiting: dict[asyncio.Future[bool], FeedFollower] = {}
        self.loop = asyncio.get_running_loop()
        self.error: Exception | None = None
        self._due = False

    def append(self, data: bytes, count: int = 1) -> bool:
        """Adds `count` frames. True when a block was sealed: the time to look at sizes."""
        sealed = self.log.append(data, count)
        if self.waiting:
            if len(data) >= LARGE and len(self.waiting) <= SLICE:
                self._serve(self.waiting)
            elif not self._due:
                self._due = True
                self.loop.call_soon(self._serve_all)
        return sealed

    def close(self) -> None:
        """No more frames will come."""
        self.log.closed = True
        self.rouse()

    def fail(self, error: Exception) -> None:
        """Followers raise it."""
        self.error = error
        self.rouse()

    def rouse(self) -> None:
        """Those that wait look again."""
        waiting, self.waiting = self.waiting, {}
        self._wake(iter(waiting))

    def follow(self, cursor: int) -> FeedFollower:
        return FeedFollower(self, cursor)

    def _serve_all(self) -> None:
        self._round(self.log.last, iter(list(self.waiting)))

    def _round(self, last: int, waiting: Iterator[asyncio.Future[bool]]) -> None:
        """One slice of a round. Only one round is under way: what comes meanwhile shares the writes of the next."""
        now = list(islice(waiting, SLICE))
        self._serve(now)
        if len(now) == SLICE:
            self.loop.call_soon(self._round, last, waiting)
        elif self.log.last != last and self.waiting:
            self.loop.call_soon(self._serve_all)
        else:
            self._due = False

    def _serve(self, waiting: Iterable[asyncio.Future[bool]]) -> None:
        """Followers that take all there is go on waiting; the others are woken."""
        for future in list(waiting):
            follower = self.waiting.get(future)
            if follower is not None and not follower.take():
                del self.waiting[future]
                _resolve(future)

    def _wake(self, waiting: Iterator[asyncio.Future[bool]]) -> None:
        count = 0
        for future in islice(waiting, SLICE):
            count += 1
            _resolve(future)
        if count == SLICE:
            self.loop.call_soon(self._wake, waiting)


def _resolve(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


class FeedFollower:
    """A cursor over a feed, see `stores.base.Follower`."""

    __slots__ = ("_closed", "_feed", "_future", "cursor", "sink")

    def __init__(self, feed: Feed, cursor: int) -> None:
        self._feed = feed
        self.cursor = cursor
        self.sink: Callable[[bytes], bool] | None = None
        self._future: asyncio.Future[bool] | None = None
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next piece; `b""` after `wake()`; `StopAsyncIteration` at the end or after `close()`."""
        while not self._closed:
            feed = self._feed
            if feed.error is not None:
                raise feed.error
            if self.cursor < feed.log.last:
                data = self._read() if self.cursor >= feed.log.first - 1 else await self._older()
                if data is not None:
                    return data
                continue
            if feed.log.closed:
                break
            # Waiting here and not in a method of its own: this frame is held once per viewer.
            future: asyncio.Future[bool] = feed.loop.create_future()
            self._future = future
            feed.waiting[future] = self
            try:
                news = await future
            finally:
                self._future = None
                feed.waiting.pop(future, None)
            if not news and not self._closed:
                return b""
        raise StopAsyncIteration

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(False)

    def close(self) -> None:
        self._closed = True
        self.wake()

    def take(self) -> bool:
        """Gives the sink what there is, while this waits; false when it does not take all of it."""
        log = self._feed.log
        while self.sink is not None and log.first - 1 <= self.cursor < log.last:
            data, last = log.read(self.cursor)
            if not self.sink(data):
                return False
            self.cursor = last
        return self.cursor == log.last

    async def _older(self) -> bytes | None:
        """What comes after the cursor and is not in the feed; None: look again."""
        self._expire(self._feed.log.first, self._feed.log.last)
        return None

    def _expire(self, first: int, last: int) -> None:
        self.cursor = first - 1  # told once; who reads on gets what is left
        details = {"firstEventId": first, "lastEventId": last}
        raise CursorExpired("The events after this cursor are gone.", details=details)

    def _read(self) -> bytes:
        data, self.cursor = self._feed.log.read(self.cursor)
        return data
