"""Ctrl-C in two steps."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["on_interrupt"]


@contextmanager
def on_interrupt(*steps: Callable[[], object]) -> Iterator[None]:
    """The first Ctrl-C calls the first of `steps` on the loop, the next the second; a further one ends the process.

    For the main thread, inside of a running loop.
    """
    loop = asyncio.get_running_loop()
    remaining = iter(steps)

    def handle(number: int, frame: FrameType | None) -> None:
        step = next(remaining, None)
        if step is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        else:
            loop.call_soon_threadsafe(step)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
