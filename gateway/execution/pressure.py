"""What is emitted and not stored yet is bounded (`max_pending_bytes`, contract 4.3).

Beyond the bound an emit waits in threads, raises `Backpressure` on the loop, and a process is not read from. With a
store that takes everything at once none of that ever happens.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from gateway.errors import Backpressure
from gateway.stores.base import RunWriter

__all__ = ["Pressure"]

LOOK_SECONDS = 0.01


class Pressure:
    """Of one run; made on the loop that it lives on. `ended` says that nothing of it is stored any more."""

    __slots__ = ("_ended", "_limit", "_loop", "_thread", "_waiting", "_writer", "full")

    def __init__(self, writer: RunWriter, limit: int, ended: Callable[[], bool]) -> None:
        self.full = False
        self._writer = writer
        self._limit = limit
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: list[Callable[[], object]] = []

    def look(self) -> None:
        """*On the loop*, after a write."""
        if not self.full and self._writer.pending_bytes > self._limit:
            self.full = True
            self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if not self._ended() and self._writer.pending_bytes > self._limit // 2:
            self._loop.call_later(LOOK_SECONDS, self._look_again)
            return
        self.full = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def hold(self) -> None:
        """*Any thread*, before an emit while it is `full`: waits, or raises `Backpressure` where nothing may wait."""
        if threading.get_ident() == self._thread:
            raise Backpressure("More is emitted than the store has taken: await ctx.flush(), then go on.")
        while self.full:
            time.sleep(LOOK_SECONDS)

    def when_free(self, callback: Callable[[], object]) -> None:
        """*On the loop*: calls back once there is room."""
        if self.full:
            self._waiting.append(callback)
        else:
            callback()
