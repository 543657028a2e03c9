"""The log of one run in this process, and those who follow it.

Writers may be on any thread; followers live on the loop. An emit is in the log when `append` returns; only the wake-up
waits: after a quiet time for the next loop iteration, while events come quickly until one iteration brought nothing
new, at most 2 ms (performance.md 1). Followers are woken in slices, so that Stop and new requests get in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from time import monotonic

from gateway.errors import CursorExpired
from gateway.run.log import BlockLog

__all__ = ["Feed", "FeedFollower"]

BUSY = 0.002  # seconds: the longest a wake-up waits while events keep coming
BATCH_SECONDS = 0.05
BATCH_EVENTS = 32
SLICE = 64  # followers woken in one go: 1 000 at once would hold the loop for 6 to 10 ms


class Feed:
    """A `BlockLog` with a lock, a wake-up and followers."""

    __slots__ = ("_batched", "_flushed_at", "_loop", "_seen", "_thread", "_timer", "_waking", "lock", "log", "waiting")

    def __init__(self) -> None:
        self.log = BlockLog()
        self.lock = threading.Lock()
        self.waiting: dict[asyncio.Future[None], None] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waking = False
        self._timer = False
        self._batched = 0
        self._seen = 0
        self._flushed_at = 0.0

    def append(self, frame: bytes, batch: bool = False) -> bool:
        """Adds a frame; the caller holds `lock`. True when a block was sealed: the time to look at sizes."""
        if self.waiting and not self._waking:
            self._schedule(batch)
        return self.log.append(frame)

    def close(self) -> None:
        """No more frames will come; the caller holds `lock`."""
        self.log.closed = True
        if self.waiting and not self._waking:
            self._schedule(False)

    def follow(self, cursor: int) -> FeedFollower:
        return FeedFollower(self, cursor)

    def _schedule(self, batch: bool) -> None:
        if batch:
            self._batched += 1
            if self._batched < BATCH_EVENTS:
                if not self._timer:
                    self._timer = True
                    self._on_loop(self._start_timer)
                return
        self._waking = True
        self._on_loop(self._look)

    def _on_loop(self, callback: object) -> None:
        if threading.get_ident() == self._thread:
            self._loop.call_soon(callback)  # type: ignore[arg-type]  # a bound method without arguments
        else:
            self._loop.call_soon_threadsafe(callback)  # type: ignore[arg-type]

    def _start_timer(self) -> None:
        self._loop.call_later(BATCH_SECONDS, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = False
        if not self._waking:
            self._flush(monotonic())

    def _look(self) -> None:
        now = monotonic()
        last = self.log.last
        if last != self._seen and now - self._flushed_at < BUSY and not self.log.closed:
            # Busy: look again in the next iteration; a producer that gives way after each event runs in between.
            self._seen = last
            self._loop.call_soon(self._look)
            return
        self._flush(now)

    def _flush(self, now: float) -> None:
        with self.lock:
            self._waking = False
            self._batched = 0
            self._seen = self.log.last
            waiting, self.waiting = self.waiting, {}
        self._flushed_at = now
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
        future = self._ready()
        if future is None:
            return self._read()
        self._future = future
        try:
            await future
        finally:
            self._future = None
            self._feed.waiting.pop(future, None)
        if self._closed:
            raise StopAsyncIteration
        return self._read()

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def close(self) -> None:
        self._closed = True
        self.wake()

    def _ready(self) -> asyncio.Future[None] | None:
        """None when there is something to read; else a future that the next flush resolves."""
        if self._closed:
            raise StopAsyncIteration
        feed = self._feed
        with feed.lock:
            # Looking and waiting under one lock: a frame that a thread adds in between cannot be missed.
            if self.cursor < feed.log.last:
                return None
            if feed.log.closed:
                raise StopAsyncIteration
            future = asyncio.get_running_loop().create_future()
            feed.waiting[future] = None
            return future

    def _read(self) -> bytes:
        feed = self._feed
        with feed.lock:
            log = feed.log
            if self.cursor < log.first - 1:
                raise CursorExpired(
                    "The events after this cursor are gone.",
                    code="cursor_expired",
                    details={"firstEventId": log.first, "lastEventId": log.last},
                )
            data, self.cursor = log.read(self.cursor)
        return data
