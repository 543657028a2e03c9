"""Keeps a worker's leases alive, from a thread: a blocked loop alone must not lose its runs (contract 7).

After `loop_dead_after` seconds without a turn of the loop the thread gives up: then the runs are better off elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic

from gateway.errors import StoreError

__all__ = ["Heartbeat"]

logger = logging.getLogger("gateway")

TICK = 1.0  # seconds between two signs of life of the loop


class Heartbeat:
    """`renew` is called in the thread every `every` seconds; `clock` is monotonic."""

    def __init__(
        self,
        renew: Callable[[], None],
        every: float,
        loop_dead_after: float,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._renew = renew
        self._every = every
        self._dead_after = loop_dead_after
        self._clock = clock
        self._seen = clock()
        self._failing = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the loop whose life counts."""
        self._tick()
        self._thread = threading.Thread(target=self._beat, name="agui-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Returns when the thread has ended: it renews nothing any more."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _tick(self) -> None:
        self._seen = self._clock()
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            self.beat()

    def beat(self) -> None:
        """One renewal, unless the loop is dead. A store that fails is told once, and asked again."""
        if self._clock() - self._seen > self._dead_after:
            if not self._failing:
                logger.error("The event loop has not turned for %g s: its runs are given up", self._dead_after)
            self._failing = True
            return
        try:
            self._renew()
        except StoreError as error:
            if not self._failing:
                logger.warning("The leases of this worker could not be renewed: %s", error)
            self._failing = True
        else:
            self._failing = False
