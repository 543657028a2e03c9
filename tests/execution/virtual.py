"""An event loop whose time jumps: whenever it has nothing to do, the next timer is due. Nothing waits for real."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

__all__ = ["VirtualLoop"]


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0. A loop that would wait for ever has a mistake, which is an error here."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self.now


class _Impatient(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("Everything waits, and nothing will ever happen.")
        if not ready and timeout:
            self._of.now += timeout
        return ready
