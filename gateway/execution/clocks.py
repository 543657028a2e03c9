"""A timer that can stand still: time in which a run waits for the person does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["PausableTimer"]


class PausableTimer:
    """Calls back once, after `seconds` in which it was not paused."""

    __slots__ = ("_callback", "_handle", "_left", "_loop")

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback: Callable[[], object] | None = callback
        self._left = seconds
        self._handle: asyncio.TimerHandle | None = None
        self.resume()

    def pause(self) -> None:
        """Stands still; again changes nothing."""
        if self._handle is not None:
            self._left = max(self._handle.when() - self._loop.time(), 0)
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        """Goes on."""
        if self._handle is None and self._callback is not None:
            self._handle = self._loop.call_later(self._left, self._ring)

    def cancel(self) -> None:
        """Never calls back any more."""
        self.pause()
        self._callback = None

    def _ring(self) -> None:
        callback, self._callback, self._handle = self._callback, None, None
        if callback is not None:
            callback()
