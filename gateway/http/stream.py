"""What a viewer reads: a response that is a cursor over a run's log.

A subclass of sse-starlette's `EventSourceResponse` that keeps its contract (headers, HEAD, keep-alive, disconnect,
shutdown) and replaces the inside. Intended differences:

1. Frames are bytes already; nothing is encoded or copied here.
2. Two tasks instead of five: the request's own is the send loop, one more watches `receive`, because a server's `send`
   says nothing about a client that has left (uvicorn's returns silently). A disconnect closes the cursor, so the loop
   ends by itself and nothing is cancelled.
3. Keep-alive and `send_timeout` are looked after by one clock for all viewers (`Viewers`).
4. A stream that must be cut is left unterminated, so that every client sees a broken connection and none a success.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from gateway.errors import CursorExpired, StoreError, TooMany
from gateway.execution.presence import Watchers
from gateway.run.log import BLOCK_BYTES
from gateway.run.records import RunKey
from gateway.stores.base import Follower
from gateway.wire.sse import KEEP_ALIVE, retry

__all__ = ["HEADERS", "RAW_SEND", "ViewerResponse", "Viewers"]

logger = logging.getLogger("gateway")

LATE_SECONDS = 0.25
TICK = 1.0  # seconds between two looks at all viewers at most; half a millisecond of work for 5 000 of them
BREAK_SECONDS = 1.0
HALF_AN_EVENT = b'data: {"type":'
RETRY_MS = (1_000, 3_000)  # spread, so that viewers cut together do not come back together

# Where the gateway leaves the server's own `send`, for it may be wrapped by the time a response gets it.
RAW_SEND = "gateway.send"

# Without a charset: the media type has none, it is always UTF-8.
HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


class StreamCut(ConnectionError):
    """A stream that was left unterminated, for whoever stands between us and the server."""


class Viewers:
    """All open streams of this worker, and the clock that keeps them alive and cuts those that do not read."""

    def __init__(self, keep_alive: float, send_timeout: float, max_per_run: int) -> None:
        self._keep_alive = keep_alive
        self._send_timeout = send_timeout
        self._max_per_run = max_per_run
        self._tick = min([TICK, *(limit / 4 for limit in (keep_alive, send_timeout) if limit)])
        self._open: set[ViewerResponse] = set()
        self._per_run: Counter[RunKey] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._closed: str | None = None
        self.dropped: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, key: RunKey) -> None:
        """Raises `TooMany` (`too_many_viewers`) when this run has as many streams as it may."""
        if self._per_run[key] >= self._max_per_run:
            raise TooMany("This run has too many viewers.", code="too_many_viewers")

    def add(self, viewer: ViewerResponse) -> None:
        self._open.add(viewer)
        self._per_run[viewer.key] += 1
        if self._closed is not None:  # it gets what is there, and is not waited for
            asyncio.get_running_loop().call_later(LATE_SECONDS, viewer.cut, self._closed)
        if self._timer is None:
            self._schedule()

    def remove(self, viewer: ViewerResponse) -> None:
        self._open.discard(viewer)
        self._per_run[viewer.key] -= 1
        if not self._per_run[viewer.key]:
            del self._per_run[viewer.key]
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cut_all(self, reason: str, *, for_good: bool = False) -> None:
        """Leaves every stream unterminated; its viewer may resume. `for_good`: also those that are still to come."""
        if for_good:
            self._closed = reason
        for viewer in list(self._open):
            viewer.cut(reason)

    def cut_run(self, key: RunKey, reason: str, last: bytes = b"") -> None:
        """Leaves the streams of one run unterminated, after a `last` frame that has no number."""
        for viewer in [viewer for viewer in self._open if viewer.key == key]:
            viewer.cut(reason, last)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)

    def _look(self) -> None:
        now = monotonic()
        for viewer in list(self._open):
            if viewer.sending_since is not None:
                if self._send_timeout and now - viewer.sending_since > self._send_timeout:
                    viewer.cut("slow")
            elif self._keep_alive and now - viewer.sent_at >= self._keep_alive:
                viewer.follower.wake()
        self._schedule()


class ViewerResponse(EventSourceResponse):
    """One viewer. `follower` is its cursor; `watchers` are told when it has come and when it is gone."""

    def __init__(self, follower: Follower, key: RunKey, viewers: Viewers, watchers: Watchers | None = None) -> None:
        super().__init__(content=follower, headers=HEADERS, sep="\n")
        del self._send_lock  # ours is one task, so nothing is to be locked; 5 000 idle viewers feel it
        self.follower = follower
        self.key = key
        self.sent_at = monotonic()
        self.sending_since: float | None = None
        self._viewers = viewers
        self._watchers = watchers
        self._cut: str | None = None
        self._last = b""
        self._gone = False
        #: Called when the stream has ended, however it did.
        self.on_end: Callable[[], Awaitable[None]] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cycle: Any = None  # uvicorn's, when nothing wraps its `send`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._task = asyncio.current_task()
        self._cycle = getattr(scope.get(RAW_SEND, send), "__self__", None)
        if _knows_its_flow(self._cycle):
            self.follower.sink = self._send_now
        self._viewers.add(self)
        if self._watchers is not None:
            self._watchers.joined()
        watcher = asyncio.create_task(self._listen_for_disconnect(receive), name="viewer watcher")
        try:
            await self._stream_response(send)
        except asyncio.CancelledError:
            if self._cut is None or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self.follower.close()
            self._viewers.remove(self)
            if self._watchers is not None:
                self._watchers.left()
            if self._cut is None:
                watcher.cancel()
            if self.on_end is not None:
                await self.on_end()
        if self._cut is not None:
            await self._break(watcher, send)

    @classmethod
    async def wait_for_exit(cls) -> None:
        """Returns when the server is told to exit, as far as sse-starlette's hook can see it."""
        await cls._listen_for_exit_signal()

    def cut(self, reason: str, last: bytes = b"") -> None:
        """Ends the stream without its end; `last` still goes out if its viewer reads."""
        if self._cut is not None or self._gone:
            return
        self._cut, self._last = reason, last
        self._viewers.dropped[reason] += 1
        self.follower.close()
        if self.sending_since is not None and self._task is not None:
            # It hangs in `send`, and only a cancellation gets it out of there.
            self._task.cancel()

    async def _stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._send(send, retry(random.randint(*RETRY_MS)))  # noqa: S311 - jitter, not a secret
        try:
            async for data in self.follower:
                await self._send(send, data or KEEP_ALIVE)
                if self._gone:
                    return
        except CursorExpired:
            self.cut("lagged")
        except StoreError as error:  # its viewer may resume when the store is back
            logger.warning("A viewer of run %s was cut: %s", self.key.label, error)
            self.cut("store")
        if self._last and not self._gone:
            await self._send(send, self._last)
        if not self._gone and self._cut is None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        """In pieces of at most a block: flow control looks only before a write, so a piece bounds what is buffered."""
        for start in range(0, len(data), BLOCK_BYTES):
            piece = data if len(data) <= BLOCK_BYTES else data[start : start + BLOCK_BYTES]
            self.sending_since = monotonic()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self.sent_at, self.sending_since = monotonic(), None
            if len(piece) >= BLOCK_BYTES // 2:
                # Behind, so the next read will not wait, and `send` seldom does: let the others have the loop.
                await asyncio.sleep(0)

    def _send_now(self, data: bytes) -> bool:
        """Sends without a turn of the loop: uvicorn's `send` waits only before a write, while its transport is full."""
        if self._gone or self._cut is not None or self._cycle.flow.write_paused or len(data) > 2 * BLOCK_BYTES:
            return False
        sending = self._cycle.send({"type": "http.response.body", "body": data, "more_body": True})
        try:
            sending.send(None)
        except StopIteration:
            self.sent_at = monotonic()
            return True
        sending.close()
        return False

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        while not self._gone:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                self.follower.close()

    async def _break(self, watcher: asyncio.Task[None], send: Send) -> None:
        """Breaks the connection. A viewer that does not read would keep a closing one open for ever: abort it.

        Then waits until the server knows, or it would complain of a response that was not completed. Where somebody
        stands between us and the server, and would end the stream as if it were complete, half an event goes out: no
        client takes that for a success.
        """
        if not _knows_its_flow(self._cycle):
            watcher.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BREAK_SECONDS):
                    await send({"type": "http.response.body", "body": HALF_AN_EVENT, "more_body": True})
            raise StreamCut(f"This viewer's stream was cut: {self._cut}.")
        self._cycle.transport.abort()
        await asyncio.wait({watcher}, timeout=BREAK_SECONDS)
        watcher.cancel()


def _knows_its_flow(cycle: Any) -> bool:
    """Whether it is uvicorn's request cycle: ASGI cannot tell if a `send` would wait, nor break a connection."""
    return hasattr(getattr(cycle, "flow", None), "write_paused") and hasattr(cycle, "transport")
