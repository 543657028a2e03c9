"""The one thread of a process that writes to the file. It sets its own pace: while it commits, the next batch gathers.

A batch is a transaction over all runs and calls. When it fails, it is tried again, with what has come meanwhile, until
what is oldest in it has waited for `store_timeout`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from gateway.errors import GatewayError, StoreError
from gateway.stores.sqlite_file import StoreFile, is_trouble
from gateway.stores.sqlite_runs import RunTable
from gateway.stores.sqlite_stream import Stored, Stream

__all__ = ["Call", "Reports", "WriterThread"]

logger = logging.getLogger("gateway")

PAUSE = 0.05  # seconds between two attempts
LOOK_SECONDS = 1.0  # between two looks whether the file is still the same
LONG_TRY = 2.0  # seconds: an attempt takes no longer, unless the process stood still
BATCH_ITEMS = 2_000  # of calls and runs: a batch that nobody has to wait for long

Reports = list[tuple["Stream | Call", Any]]


class Call:
    """Something else to do in a transaction: `work` raises a `GatewayError` only before it has changed anything.

    `fences`: it may change the leases or the logs of runs. `future` is of asyncio, and resolved on the loop, or of
    `concurrent.futures`.
    """

    __slots__ = ("error", "fences", "future", "result", "since", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], Any],
        future: asyncio.Future[Any] | concurrent.futures.Future[Any],
        fences: bool = False,
    ) -> None:
        self.work = work
        self.future = future
        self.fences = fences
        self.since = 0.0
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Tells whoever waits."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Unexpected(Exception):
    """An item of a batch raised what it should not: the others are to be done without it."""

    def __init__(self, item: Stream | Call, error: Exception) -> None:
        super().__init__(str(error))
        self.item = item
        self.error = error


class WriterThread:
    """`put` and `close` are for any thread; `report` is called on the loop with what is in the file, `grown` on
    the thread with the bytes of events that a batch has added."""

    def __init__(
        self,
        file: StoreFile,
        runs: RunTable,
        sweep: Callable[[sqlite3.Connection], bool],
        sweep_seconds: float,
        timeout: float,
        report: Callable[[list[tuple[Stream, Stored]], list[Call]], None],
        grown: Callable[[int], None],
    ) -> None:
        self._file = file
        self._runs = runs
        self._sweep = sweep
        self._sweep_seconds = sweep_seconds
        self._next_sweep = time.monotonic() + sweep_seconds
        self._next_look = self._tried = 0.0
        self._timeout = timeout
        self._report = report
        self._grown = grown
        self._queue: SimpleQueue[Stream | Call | None] = SimpleQueue()
        self._reports: deque[tuple[list[tuple[Stream, Stored]], list[Call]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._checked = 0
        self._failing: str | None = None

    async def open(self) -> None:
        """Starts the thread; raises `StoreError` when the file cannot be used."""
        opened: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, args=(opened,), name="agui-sqlite-writer", daemon=True).start()
        await opened

    def put(self, item: Stream | Call) -> None:
        self._queue.put(item)

    def deliver(self) -> None:
        """*The loop.* Reports what is in the file and not reported yet; a writer that holds the loop for long asks."""
        while self._reports:
            self._report(*self._reports.popleft())

    async def close(self) -> None:
        """Returns when everything is in the file, or given up."""
        self._queue.put(None)
        await asyncio.shield(self._ended)

    # -- the thread's --

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            self._db = self._file.open()
        except Exception as error:  # noqa: BLE001 - whoever opens the store gets it
            self._on_loop(_fail, opened, error if isinstance(error, StoreError) else StoreError(str(error)))
            return
        self._on_loop(_settle, opened)
        batch: dict[Stream | Call, None] = {}
        while self._gather(batch):
            if self._due():
                self._swept()
            if batch:
                self._store(batch)
        if self._db is not None:
            self._db.close()
        self._refuse_rest()
        self._on_loop(_settle, self._ended)

    def _refuse_rest(self) -> None:
        """Whatever another thread has asked for in the last moment."""
        while self._queue.qsize():
            item = self._queue.get_nowait()
            if isinstance(item, Call):
                item.error = StoreError("The store is closed.")
                self._deliver([], [item])

    def _gather(self, batch: dict[Stream | Call, None]) -> bool:
        """Adds what is waiting; waits for something when there is nothing. False at the end."""
        now = time.monotonic()
        wait = not batch and not self._closing
        rest: list[Stream] = []
        while wait or (self._queue.qsize() and len(batch) < BATCH_ITEMS):
            try:
                item = self._queue.get(timeout=max(self._next_sweep - now, 0)) if wait else self._queue.get_nowait()
            except Empty:
                return True
            if wait:
                now = self._tried = time.monotonic()
            wait = False
            if item is None:
                self._closing = True
                continue
            if isinstance(item, Stream):
                if item.take(now):
                    rest.append(item)
            else:
                item.since = now
            batch[item] = None
        for stream in rest:  # behind those that have come meanwhile
            self._queue.put(stream)
        return bool(batch) or not self._closing

    def _store(self, batch: dict[Stream | Call, None]) -> None:
        """One attempt; what is left in `batch` is to be tried again."""
        try:
            reports = self._transact(batch)
        except Unexpected as unexpected:
            logger.error("The store could not keep a value", exc_info=unexpected.error)
            self._give_up(batch, [unexpected.item], unexpected.error)
        except Exception as error:
            if not is_trouble(error):
                logger.exception("The store failed by a mistake of its own")
            self._suffer(batch, error)
        else:
            if self._failing is not None:
                logger.warning("The store works again")
                self._failing = None
            self._tried = time.monotonic()
            streams = [(item, report) for item, report in reports if isinstance(item, Stream)]
            for stream, _ in streams:
                stream.done()
            self._deliver(streams, [item for item in batch if isinstance(item, Call)])
            batch.clear()
            self._grown(sum(report.size for _, report in streams))

    def _transact(self, batch: dict[Stream | Call, None]) -> Reports:
        db = self._connection()
        if len(batch) == 1:
            (only,) = batch
            if isinstance(only, Stream) and (report := only.store_alone(db, self._runs, self._checked)) is not None:
                return [(only, report)]
        db.execute("BEGIN IMMEDIATE")
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:  # another process has been here: any run may be another's now
            self._version = version
            self._checked += 1
        reports: Reports = []
        for item in batch:
            try:
                if isinstance(item, Stream):
                    reports.append((item, item.store(db, self._runs, self._checked)))
                else:
                    self._call(db, item)
            except Exception as error:
                if is_trouble(error):
                    raise
                raise Unexpected(item, error) from error
        db.execute("COMMIT")
        return reports

    def _call(self, db: sqlite3.Connection, call: Call) -> None:
        call.result = call.error = None
        if call.future.cancelled():
            return
        try:
            call.result = call.work(db)
        except GatewayError as error:
            call.error = error
        if call.fences:
            self._checked += 1

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            if self._file.replaced:
                logger.warning("The file of the store was replaced")
                self._drop()
        if self._db is None:
            self._db = self._file.open()
            self._version = -1
        return self._db

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _suffer(self, batch: dict[Stream | Call, None], error: Exception) -> None:
        """After trouble: what has waited for too long is given up, the rest waits a moment."""
        self._checked += 1
        if self._failing is None:
            logger.warning("The store fails and is tried again: %s", error)
        self._failing = str(error)
        if not _rolled_back(self._db):
            self._drop()
        self._excuse(batch)
        horizon = time.monotonic() - self._timeout
        if late := [item for item in batch if item.since <= horizon]:
            self._give_up(batch, late, StoreError(f"The store failed: {error}"))
        if batch:
            time.sleep(min(PAUSE, self._timeout / 10))

    def _excuse(self, batch: dict[Stream | Call, None]) -> None:
        """A process that stood still has not tried: what waits has as much longer."""
        now = time.monotonic()
        tried, self._tried = now - self._tried, now
        if tried > LONG_TRY:
            for item in batch:
                item.since = min(item.since + tried, now)

    def _give_up(self, batch: dict[Stream | Call, None], items: list[Stream | Call], error: Exception) -> None:
        self._checked += 1
        if not _rolled_back(self._db):
            self._drop()
        streams, calls = [], []
        for item in items:
            del batch[item]
            if isinstance(item, Stream):
                streams.append((item, item.give_up("store")))
            else:
                item.error = error
                calls.append(item)
        self._deliver(streams, calls)

    def _due(self) -> bool:
        return time.monotonic() >= self._next_sweep

    def _swept(self) -> None:
        """Old things leave in small steps, each a transaction of its own."""
        more = False
        try:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            more = self._sweep(db)
            db.execute("COMMIT")
        except Exception as error:
            if not is_trouble(error):
                logger.exception("The store failed to forget what is old")
            if not _rolled_back(self._db):
                self._drop()
        self._checked += 1
        self._next_sweep = time.monotonic() + (PAUSE if more else self._sweep_seconds)

    def _deliver(self, streams: list[tuple[Stream, Stored]], calls: list[Call]) -> None:
        here = [call for call in calls if isinstance(call.future, asyncio.Future)]
        for call in calls:
            if isinstance(call.future, concurrent.futures.Future):
                call.settle()
        if streams or here:
            self._reports.append((streams, here))
            self._on_loop(self.deliver)

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has gone, and with it whoever waits
            self._loop.call_soon_threadsafe(callback, *arguments)


def _rolled_back(db: sqlite3.Connection | None) -> bool:
    """Ends a transaction that failed; false when the connection is of no use any more."""
    if db is None:
        return True
    try:
        if db.in_transaction:
            db.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return True


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
