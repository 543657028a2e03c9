"""What a worker that shares its store owes to the others, and to its own runs when a message is lost (contract 7).

It renews its leases from a thread, looks now and then at the state that messages only announce, and ends the runs of
workers that have died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle, islice
from random import uniform
from typing import Any

from gateway.errors import StoreError
from gateway.execution.heartbeat import Heartbeat
from gateway.execution.recovery import Owed, recover_orphans
from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import Store

__all__ = ["Duties"]

logger = logging.getLogger("gateway")

LOOK_SECONDS = 1.0
LOOKS = 200  # runs whose state is looked at in one go
RENEWALS = 3  # in the time of a lease: two may fail

Spawn = Callable[..., asyncio.Task[Any]]


class Duties:
    """`runs` are this worker's own; `check` looks at the state of one of them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        worker: str,
        runs: Callable[[], list[RunKey]],
        check: Callable[[RunKey], Awaitable[None]],
    ) -> None:
        self._store = store
        self._worker = worker
        self._runs = runs
        self._check = check
        self._every = settings.lease_seconds / RENEWALS
        self._heartbeat = Heartbeat(partial(store.renew_blocking, worker), self._every, settings.loop_dead_after)
        self._open = False
        self._owed: Owed = {}

    def owe(self, key: RunKey, ending: str) -> None:
        """The store failed this run of ours, whose log has no end: it gets one once the store is back."""
        self._owed[key] = ending

    async def open(self, spawn: Spawn) -> None:
        """Ends what died before, says that this worker lives, and goes on doing so."""
        if not self._store.shared:
            return
        await self._store.renew(self._worker)
        self._open = True
        self._heartbeat.start()
        spawn(self._look_at_runs(), name="lost messages")
        spawn(self._look_for_orphans(), name="orphans")

    async def close(self) -> None:
        """From now on what is left of this worker may be taken over at once."""
        if not self._open:
            return
        self._open = False
        await self._heartbeat.stop()
        try:
            await self._store.retire(self._worker)
        except StoreError as error:
            logger.warning("This worker could not say that it ends: %s", error)

    async def others(self) -> bool:
        """Whether another worker lives, which can serve what this one leaves."""
        return self._store.shared and any(worker != self._worker for worker in await self._store.workers())

    async def _look_at_runs(self) -> None:
        """A Stop or an answer whose message was lost is found here, a second later."""
        position = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            runs = self._runs()
            count = min(LOOKS, len(runs))
            for key in islice(cycle(runs), position, position + count) if runs else ():
                await self._quietly(self._check(key))
            position = (position + count) % max(len(runs), 1)

    async def _look_for_orphans(self) -> None:
        while True:
            await self._quietly(recover_orphans(self._store, self._worker, self._owed, self._sure))
            await asyncio.sleep(uniform(0.5, 1) * self._every)  # noqa: S311 - apart from the other workers

    def _sure(self) -> bool:
        return self._heartbeat.steady

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StoreError as error:
            logger.warning("The store did not answer: %s", error)
