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
AGAIN = 0.5  # seconds until a renewal that failed is tried again: the lease may be nearly over
GAP = 1.5  # in the time between two renewals: one that took longer met trouble


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
        self._renewed = clock()
        self._well_since = float("-inf")
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the loop whose life counts, after a first renewal: the store may have come back at this moment only."""
        self._well_since = self._renewed = self._clock()
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

    @property
    def steady(self) -> bool:
        """Whether it renews without a break. After one the others need the time, too, before they count as dead."""
        now = self._clock()
        gap = self._failing or now - self._renewed > GAP * self._every
        return not gap and now - self._well_since >= self._every

    def _tick(self) -> None:
        self._seen = self._clock()
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _beat(self) -> None:
        while not self._over.wait(min(AGAIN, self._every) if self._failing else self._every):
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
            now = self._clock()
            if self._failing or now - self._renewed > GAP * self._every:
                self._well_since = now
            self._renewed = now
            self._failing = False
