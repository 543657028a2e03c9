"""A follower of a run in Redis: in pages from the log while it is behind, from the feed of its run when it is not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from gateway.errors import CursorExpired, NotFound
from gateway.run.log import BLOCK_BYTES, Chunk
from gateway.run.records import RunKey
from gateway.stores.feed import FeedFollower
from gateway.stores.redis_line import Line
from gateway.stores.redis_scripts import PAGE
from gateway.stores.redis_tail import RunFeed, Tail

__all__ = ["RedisFollower"]

PAGE_BYTES = 512 * 1024
FRAME = b"\n\nid: "  # nothing else looks so: payloads have no line ends


class RedisFollower(FeedFollower):
    """See `stores.base.Follower`. A page that is on its way stays on its way when the iteration is cancelled."""

    __slots__ = ("_asked", "_attached", "_key", "_page", "_pages", "_tail", "_trouble")

    _feed: RunFeed

    def __init__(self, tail: Tail, pages: Line, key: RunKey, cursor: int) -> None:
        self.cursor = cursor
        self.sink = None
        self._future = None
        self._closed = False
        self._tail = tail
        self._pages = pages
        self._key = key
        self._attached = False
        self._page: deque[Chunk] = deque()
        self._asked = False
        self._trouble: Exception | None = None

    async def __anext__(self) -> bytes:
        """The next piece; `b""` after `wake()`; `StopAsyncIteration` at the end or after `close()`."""
        while not self._closed:
            feed = self._attach()
            if self._page:
                data, self.cursor = self._page.popleft()
                return data
            if feed.shut:
                break
            if feed.opened and not self._asked:
                if self.cursor < feed.log.first - 1:
                    self._ask(feed)
                elif self.cursor < feed.log.last:
                    return self._read()
                elif feed.log.closed:
                    break
            # Waiting here and not in a method of its own: this frame is held once per viewer.
            future: asyncio.Future[bool] = feed.loop.create_future()
            self._future = future
            if not self._asked:
                feed.waiting[future] = self
            try:
                news = await future
            finally:
                self._future = None
                feed.waiting.pop(future, None)
            if not news and not self._closed:
                return b""
        raise StopAsyncIteration

    def _attach(self) -> RunFeed:
        """The feed; raises what is wrong with it, or with the cursor, once."""
        if not self._attached:
            self._feed = self._tail.feed(self._key)
            self._attached = True
        trouble, self._trouble = self._trouble or self._feed.error, None
        if trouble is not None:
            self._attached = self._feed.error is None
            raise trouble
        return self._feed

    def _ask(self, feed: RunFeed) -> None:
        self._asked = True
        command = PAGE([feed.keys.log], "", self.cursor + 1, PAGE_BYTES)
        self._pages.submit(command).add_done_callback(self._answered)

    def _answered(self, asked: asyncio.Future[list[Any]]) -> None:
        self._asked = False
        error = None if asked.cancelled() else asked.exception()
        if isinstance(error, Exception):
            self._trouble = error
        elif not asked.cancelled():
            self._turn(asked.result()[0])
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def _turn(self, page: list[Any] | None) -> None:
        """Takes a page. Where the oldest events have left, the iteration says so before it goes on."""
        if page is None:
            self._trouble = NotFound(f"No run {self._key.run_id!r}.", code="run_not_found")
            return
        first, last, data = page
        if first > self.cursor + 1:
            details = {"firstEventId": first, "lastEventId": max(last, self._feed.log.last)}
            self._trouble = CursorExpired("The events after this cursor are gone.", details=details)
            self.cursor = first - 1
        self._page.extend(_pieces(data, first, last, self.cursor))


def _pieces(data: bytes, first: int, last: int, cursor: int) -> Iterator[Chunk]:
    """The frames after `cursor` of those from `first` to `last`, in pieces of a block; a larger frame stays whole."""
    start = 0 if cursor < first else data.index(b"\n\nid: %d\n" % (cursor + 1)) + 2
    while len(data) - start > BLOCK_BYTES:
        end = data.rfind(FRAME, start, start + BLOCK_BYTES)
        if end < 0:
            end = data.find(FRAME, start + 1)
        if end < 0:
            break
        end += 2
        number = int(data[end + len(b"id: ") : data.index(b"\n", end)])
        yield Chunk(data[start:end], number - 1)
        start = end
    yield Chunk(data[start:], last)
