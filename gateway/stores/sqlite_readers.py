"""Threads that read the file, each with a connection of its own: the loop asks, and goes on meanwhile."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from gateway.errors import StoreError
from gateway.stores.sqlite_file import StoreFile, is_trouble

__all__ = ["Readers", "Reading"]

logger = logging.getLogger("gateway")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Job = tuple[Work, "asyncio.Future[Any]"]

THREADS = 4  # started when they have something to do
PAUSE = 0.05  # seconds between two attempts


class Reading:
    """A connection of one thread that is opened when it is needed, and anew after trouble."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._db: sqlite3.Connection | None = None
        self._opened = 0

    def connection(self) -> sqlite3.Connection:
        if self._db is None or self._opened != self._file.opened:
            self.close()
            self._opened = self._file.opened
            self._db = self._file.reader()
        return self._db

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


class Readers:
    """`read` is for the loop."""

    def __init__(self, file: StoreFile, timeout: float) -> None:
        self._file = file
        self._timeout = timeout
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._ended: list[asyncio.Future[None]] = []

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` makes of a connection; `StoreError` when the file could not be read for `store_timeout`."""
        if self._closed:
            raise StoreError("The store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        if self._waiting > len(self._threads) and len(self._threads) < THREADS:
            self._start()
        self._jobs.put((work, future))
        return await future

    async def close(self) -> None:
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        if self._ended:
            await asyncio.wait(self._ended)

    def _start(self) -> None:
        ended: asyncio.Future[None] = self._loop.create_future()
        self._ended.append(ended)
        thread = threading.Thread(target=self._run, args=(ended,), name="agui-sqlite-reader", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _done(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._waiting -= 1
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    # -- the threads' --

    def _run(self, ended: asyncio.Future[None]) -> None:
        reading = Reading(self._file)
        while (job := self._jobs.get()) is not None:
            work, future = job
            result, error = self._attempt(reading, work)
            with suppress(RuntimeError):  # the loop has gone, and with it whoever waits
                self._loop.call_soon_threadsafe(self._done, future, result, error)
            del job, work, future, result, error
        reading.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(ended.set_result, None)

    def _attempt(self, reading: Reading, work: Work) -> tuple[Any, Exception | None]:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return work(reading.connection()), None
            except Exception as error:
                reading.close()
                if not is_trouble(error):
                    logger.exception("The store could not read")
                    return None, StoreError("The store could not read: a mistake of its own.")
                if self._closed or time.monotonic() >= deadline:
                    failed = StoreError(f"The store failed: {error}")
                    failed.__cause__ = error
                    return None, failed
            time.sleep(PAUSE)
