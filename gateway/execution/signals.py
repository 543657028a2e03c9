"""The abort signal: one flag with a reason, seen by coroutines, threads and processes alike.

After the web's AbortSignal, with a reason, one of eight words, and `child()` for "this call of that run".
It knows no event loop: whoever waits brings its own. Tools read it; only the gateway aborts it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

from gateway.errors import AbortError

logger = logging.getLogger(__name__)

# Contract 2.2. `user` is the Stop button; only that one ends a call as `cancelled`.
REASONS = ("user", "timeout", "disconnect", "run_timeout", "shutdown", "superseded", "store", "tool")


class AbortSignal:
    """Tells a tool that its result is no longer wanted. Usable from every thread.

    `AbortSignal()` is open, `AbortSignal("user")` is aborted from the start, for tests of tools.
    Once aborted it stays so, with its first reason.
    """

    __slots__ = ("__weakref__", "_callbacks", "_link", "_lock", "_reason")

    def __init__(self, reason: str | None = None) -> None:
        self._reason = reason
        # Reentrant: the garbage collector may remove a callback while this thread is registering one.
        self._lock = threading.RLock()
        self._callbacks: dict[object, Callable[[str], object] | AbortSignal] = {}
        self._link: tuple[weakref.ref[AbortSignal], object] | None = None

    def __repr__(self) -> str:
        return f"<AbortSignal {self._reason or 'open'}>"

    @property
    def aborted(self) -> bool:
        """Whether somebody has asked this call to end."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why: `user timeout disconnect run_timeout shutdown superseded store tool`; `None` while open."""
        return self._reason

    def throw_if_aborted(self) -> None:
        """Raise `AbortError(reason)` if the signal is aborted; the usual line at the top of a loop."""
        if self._reason is not None:
            raise AbortError(self._reason)

    async def wait(self) -> str:
        """Wait until the signal is aborted, on whichever loop this runs; returns the reason."""
        if self._reason is not None:
            return self._reason
        loop = asyncio.get_running_loop()
        aborted: asyncio.Future[str] = loop.create_future()
        remove = self.on_abort(partial(_wake, loop, aborted))
        try:
            return await aborted
        finally:
            remove()

    def on_abort(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback(reason)` at the abort, in the aborting thread; at once if that has happened.

        Returns a function that removes the callback. An exception in a callback is logged, never raised.
        """
        key = object()
        with self._lock:
            if self._reason is None:
                self._callbacks[key] = callback
                return partial(self._forget, key)
        _call(callback, self._reason)
        return _nothing

    def abort(self, reason: str) -> bool:
        """For the gateway: abort with `reason`. True the first time; later calls change nothing."""
        if (first := self._take(reason)) is None:
            return False
        # Without recursion: calls may be nested deeper than Python's stack.
        pending = list(reversed(first))
        while pending:
            callback = pending.pop()
            if isinstance(callback, AbortSignal):
                pending += reversed(callback._take(reason) or [])
            else:
                _call(callback, reason)
        return True

    def _take(self, reason: str) -> list[Callable[[str], object] | AbortSignal] | None:
        """Marks this one alone as aborted; what is to be called then, or None when it was before."""
        with self._lock:
            if self._reason is not None:
                return None
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, {}
        return list(callbacks.values())

    def child(self) -> AbortSignal:
        """A signal of its own that is also aborted, with the same reason, when this one is."""
        child = AbortSignal()
        self.adopt(child)
        return child

    def adopt(self, child: AbortSignal) -> None:
        """Makes an open signal a child of this one, and of no other.

        The parent holds the child until `detach()`; the child holds nothing, so there is no cycle.
        """
        child.detach()
        key = object()
        with self._lock:
            if self._reason is None:
                self._callbacks[key] = child
                child._link = (weakref.ref(self), key)
                return
        child.abort(self._reason)

    def detach(self) -> None:
        """Unlink from the parent: its abort no longer reaches this signal, and it lets go of it."""
        link, self._link = self._link, None
        parent = link[0]() if link else None
        if link and parent is not None:
            parent._forget(link[1])

    def _forget(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _call(callback: Callable[[str], object], reason: str) -> None:
    try:
        callback(reason)
    except BaseException:  # foreign code; sys.exit() in it must neither stop the others nor the gateway
        logger.exception("A callback of an abort signal failed")


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[str], reason: str) -> None:
    # A loop that is closed has nobody left who waits.
    if not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, waiter, reason)


def _resolve(waiter: asyncio.Future[str], reason: str) -> None:
    if not waiter.done():
        waiter.set_result(reason)


def _nothing() -> None:
    """Removes a callback that was never kept."""
