"""Application events inside the process: what one part of an application tells the others, apart from any stream.

A handler that fails is logged and never reaches the one who emits. Source: contract 2.3.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

__all__ = ["EventEmitter", "Finished", "default_emitter", "emit_event", "on_event"]

logger = logging.getLogger("gateway.events")

# A handler that cancels itself or calls `sys.exit()` fails, and ends neither the tool that emits nor the server.
FAILURES = (Exception, asyncio.CancelledError, SystemExit)

Handler = Callable[[Any], Any]
H = TypeVar("H", bound=Handler)


class Finished:
    """What a synchronous call returns where others await: awaiting it waits for `work`, if there is any."""

    def __init__(self, work: asyncio.Future[Any] | None = None) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, None, None]:
        if self._work is not None:
            yield from asyncio.shield(self._work).__await__()


class EventEmitter:
    """Handlers by event name. `emit` calls them in the order in which they came; usable from every thread.

    A handler is a function of the payload, plain or async. A plain one runs in the frame of `emit`, an async one as a
    task on the loop that runs there, else on the gateway's.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, list[_Entry]] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop for async handlers of events that are emitted in threads; the gateway's start does this."""
        self._loop = loop

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Adds a handler; returns what removes it."""
        return self._add(name, _Entry(handler, once=False))

    def once(self, name: str, handler: Handler) -> Callable[[], None]:
        """Adds a handler for the next event only."""
        return self._add(name, _Entry(handler, once=True))

    def off(self, name: str, handler: Handler) -> None:
        """Removes a handler; nothing happens when it is not there."""
        with self._lock:
            for entry in self._handlers.get(name, ()):
                if entry.handler == handler:
                    self._remove(name, entry)
                    return

    def emit(self, name: str, payload: Any = None) -> Awaitable[None]:
        """Calls the handlers. Need not be awaited; awaiting waits for the async ones. Never raises for a handler."""
        with self._lock:
            entries = list(self._handlers.get(name, ()))
            for entry in entries:
                if entry.once:  # now: of events that are emitted at the same time only one reaches it
                    self._remove(name, entry)
        works = [work for entry in entries if (work := self._call(name, entry.handler, payload)) is not None]
        return Finished(asyncio.gather(*works, return_exceptions=True) if works else None)

    def listener_count(self, name: str) -> int:
        """How many handlers an event has."""
        return len(self._handlers.get(name, ()))

    def event_names(self) -> list[str]:
        """The events that have handlers, sorted."""
        return sorted(self._handlers)

    def remove_all_listeners(self, name: str | None = None) -> None:
        """Forgets the handlers of one event, or all."""
        with self._lock:
            if name is None:
                self._handlers.clear()
            else:
                self._handlers.pop(name, None)

    def _add(self, name: str, entry: _Entry) -> Callable[[], None]:
        def remove() -> None:
            with self._lock:
                self._remove(name, entry)

        with self._lock:
            self._handlers.setdefault(name, []).append(entry)
        return remove

    def _remove(self, name: str, entry: _Entry) -> None:
        """With the lock."""
        entries = self._handlers.get(name, [])
        if entry in entries:
            entries.remove(entry)
            if not entries:
                del self._handlers[name]

    def _call(self, name: str, handler: Handler, payload: Any) -> asyncio.Future[Any] | None:
        try:
            result = handler(payload)
        except BaseException:  # the boundary to a handler's code
            logger.exception("A handler of the event %r failed", name)
            return None
        return self._start(name, result) if isawaitable(result) else None

    def _start(self, name: str, result: Awaitable[Any]) -> asyncio.Future[Any] | None:
        running = _running_loop()
        if running is None:
            if self._loop is not None and self._loop.is_running():
                asyncio.run_coroutine_threadsafe(_watched(name, result), self._loop)
            else:
                logger.error("An async handler of the event %r has no loop to run on", name)
                if asyncio.iscoroutine(result):
                    result.close()
            return None
        task = running.create_task(_watched(name, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Entry:
    """One registration; the same handler may have several."""

    __slots__ = ("handler", "once")

    def __init__(self, handler: Handler, *, once: bool) -> None:
        self.handler = handler
        self.once = once


async def _watched(name: str, result: Awaitable[Any]) -> None:
    try:
        await result
    except FAILURES as error:  # the boundary to a handler's code
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # not the handler's own: its loop is being closed
        logger.exception("A handler of the event %r failed", name)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


default_emitter = EventEmitter()


def emit_event(name: str, payload: Any = None) -> Awaitable[None]:
    """Emits an application event to the handlers of `@on_event(name)`; see `EventEmitter.emit`."""
    return default_emitter.emit(name, payload)


def on_event(name: str) -> Callable[[H], H]:
    """`@on_event("order.paid")`: the function is called with the payload of every such event of `emit_event`."""

    def register(handler: H) -> H:
        default_emitter.on(name, handler)
        return handler

    return register
