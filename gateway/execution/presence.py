"""Who watches a run, here and at other workers: with `on_disconnect="cancel"` it ends when nobody does (contract 5.3).

A worker that has viewers of another one's run says so in the store, where that counts as long as the worker lives; the
message about it only saves time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gateway.errors import StoreError
from gateway.run.records import RunKey
from gateway.stores.base import Store

__all__ = ["Guests", "Presence", "Watchers"]

logger = logging.getLogger("gateway")

ASK_AGAIN = 1.0  # seconds, when the store did not say who is there


class Spawn(Protocol):
    """Starts a task that somebody owns."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


class Watchers(Protocol):
    """Told of each viewer of a run that counts."""

    def joined(self) -> None: ...
    def left(self) -> None: ...


class Presence:
    """The viewers of a run of this worker. `leave` is called `grace` seconds after the last has gone, if none came."""

    __slots__ = (
        "_asking", "_elsewhere", "_leave", "_loop", "_timer", "_visits", "ask", "cancels", "grace", "here",
    )  # fmt: skip

    def __init__(self, leave: Callable[[], object], *, cancels: bool, grace: float) -> None:
        self.cancels = cancels
        self.grace = grace
        self.here = 0
        #: Asks the store whether other workers have viewers; None: nobody shares it.
        self.ask: Callable[[], Awaitable[bool | None]] | None = None
        self._leave = leave
        self._elsewhere = False
        self._visits = 0  # so far: a run that nobody has watched yet goes on
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def want(self, on_disconnect: str | None, grace: float | None) -> None:
        """What the request wants instead of the gateway's own."""
        if on_disconnect is not None:
            self.cancels = on_disconnect == "cancel"
        if grace is not None:
            self.grace = grace

    def joined(self) -> None:
        self.here += 1
        self._visits += 1
        self._look()

    def left(self) -> None:
        self.here -= 1
        self._look()

    def told(self, elsewhere: bool | None) -> None:
        """Whether other workers have viewers; None: they never had any."""
        if elsewhere or (elsewhere is not None and not self._visits):
            self._visits += 1
        self._elsewhere = bool(elsewhere)
        self._look()

    def close(self) -> None:
        """The run is over."""
        self.cancels = False
        self._look()
        if self._asking is not None:
            self._asking.cancel()

    @property
    def _alone(self) -> bool:
        return self.cancels and self._visits > 0 and not self.here and not self._elsewhere

    def _look(self) -> None:
        alone = self._alone
        if not alone and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif alone and self._timer is None and self._asking is None:
            self._timer = self._loop.call_later(self.grace, self._due)

    def _due(self) -> None:
        self._timer = None
        if self.ask is None:
            self._leave()
        else:
            self._asking = self._loop.create_task(self._confirm(self.ask), name="viewers elsewhere")

    async def _confirm(self, ask: Callable[[], Awaitable[bool | None]]) -> None:
        """Messages may be late or lost: what the store says now holds."""
        visits = self._visits
        try:
            self._elsewhere = bool(await ask())
        except StoreError:
            self._asking = None
            self._timer = self._loop.call_later(ASK_AGAIN, self._due)
            return
        self._asking = None
        if self._alone and self._visits == visits:
            self._leave()
        else:
            self._look()


class Guests:
    """The viewers that this worker has of runs of others."""

    def __init__(self, store: Store, worker: str, spawn: Spawn) -> None:
        self._store = store
        self._worker = worker
        self._spawn = spawn
        self._of: WeakValueDictionary[RunKey, Guest] = WeakValueDictionary()

    def of(self, key: RunKey) -> Guest:
        """Those of one run."""
        guest = self._of.get(key)
        if guest is None:
            guest = self._of[key] = Guest(key, self._store, self._worker, self._spawn)
        return guest


class Guest:
    """The run's own worker hears of the first one that comes and of the last one that goes."""

    def __init__(self, key: RunKey, store: Store, worker: str, spawn: Spawn) -> None:
        self._key = key
        self._store = store
        self._worker = worker
        self._spawn = spawn
        self._count = 0
        self._told = self._telling = False

    def joined(self) -> None:
        self._count += 1
        self._tell()

    def left(self) -> None:
        self._count -= 1
        self._tell()

    def _tell(self) -> None:
        if not self._telling:
            self._telling = True
            self._spawn(self._settle(), name=f"viewers of {self._key.label}")

    async def _settle(self) -> None:
        try:
            while (there := self._count > 0) != self._told:
                await self._store.set_watching(self._key, self._worker, there)
                self._told = there
        except StoreError as error:
            logger.warning("The worker of run %s was not told who watches it here: %s", self._key.label, error)
        finally:
            self._telling = False
