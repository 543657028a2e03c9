"""The store in a file: for one machine, restarts, and several workers. Contract 7, architecture rules 4 and 12.

Four kinds of threads share the work, and the loop waits for none of them: one writes (`sqlite_thread`), some read
(`sqlite_readers`), one looks for what other processes have written (`sqlite_tail`), one keeps the file's own log short
(`sqlite_keeper`). An event is in the file before a viewer sees it, unless `write_behind` says otherwise (`ahead`). What
was committed is found again whatever happens to the process; a power cut may take the last moments of it, never the
file.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.errors import StoreError
from gateway.run.questions import Note, Question
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import (
    Bounds,
    Created,
    Lease,
    Message,
    Page,
    QuestionChanged,
    StopRequest,
    Ticket,
    ViewersChanged,
    Visibility,
)
from gateway.stores.sqlite_feed import Feeds, FileFollower
from gateway.stores.sqlite_file import StoreFile
from gateway.stores.sqlite_keeper import Keeper
from gateway.stores.sqlite_leases import LeaseTable
from gateway.stores.sqlite_log import Held
from gateway.stores.sqlite_readers import Readers
from gateway.stores.sqlite_runs import RunTable
from gateway.stores.sqlite_state import StateTables
from gateway.stores.sqlite_stream import Stored, Stream
from gateway.stores.sqlite_sweep import SWEEP_SECONDS, Sweep
from gateway.stores.sqlite_tail import News, Tail
from gateway.stores.sqlite_thread import Call, WriterThread
from gateway.stores.values import load

__all__ = ["SqliteStore"]

# Seconds beyond `store_timeout`, after which the writing thread must have answered, or has ended just before.
LAST_WAIT = 5.0

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class SqliteStore:
    """See `stores.base.Store`. Entered, used and left on one loop; `renew_blocking` is for other threads."""

    shared = True

    def __init__(
        self, path: str | Path, settings: Settings | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self._settings = settings or Settings()
        self._file = StoreFile(Path(path), self._settings.store_timeout)
        self._runs = RunTable(self._settings, clock or time)
        self._leases = LeaseTable(self._runs, self._settings.lease_seconds)
        self._state = StateTables(self._runs, self._settings)
        self._subscribers: dict[str, asyncio.Queue[Message]] = {}
        # Leases that have no writer yet, with what is known of their runs.
        self._held: dict[Lease, tuple[Held, RunRecord | None]] = {}
        self._thread: WriterThread | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._readers = Readers(self._file, self._settings.store_timeout)
        behind = self._settings.write_behind
        self._feeds = Feeds(self._readers, self._runs.now, lambda: self._tail.kick(), behind=behind)
        self._tail = Tail(self._file, self._feeds.followed, lambda: list(self._subscribers), self._news)
        self._keeper = Keeper(self._file)
        sweep = Sweep(self._runs, self._settings).step
        timeout = self._settings.store_timeout
        thread = WriterThread(self._file, self._runs, sweep, SWEEP_SECONDS, timeout, self._reported, self._keeper.grown)
        try:
            await thread.open()
        except BaseException:
            await self._keeper.close()
            raise
        self._thread = thread
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._closed = self._thread, True
        if thread is None:
            return
        await thread.close()
        await self._tail.close()
        await self._readers.close()
        await self._keeper.close()
        self._feeds.close()

    # -- runs --

    async def create(self, record: RunRecord, fingerprint: bytes, worker: str) -> Created:
        call, done = self._call(lambda db: self._runs.create(db, record, fingerprint, worker))
        try:
            created, held = await done
        except asyncio.CancelledError:
            self._call(lambda db: self._undo_create(db, call), fences=True)
            raise
        if created.lease is not None:
            self._held[created.lease] = held, record
        return created  # type: ignore[no-any-return]

    def _undo_create(self, db: sqlite3.Connection, call: Call) -> None:
        """Nobody has the lease: the run would stand there for ever."""
        if call.result is not None and (lease := call.result[0].lease) is not None:
            self._runs.discard(db, lease)

    async def discard(self, lease: Lease) -> None:
        self._held.pop(lease, None)
        await self._write(lambda db: self._runs.discard(db, lease), fences=True)

    async def get(self, key: RunKey) -> RunRecord | None:
        return await self._read(partial(self._runs.get, key=key))

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord | None = None) -> None:
        await self._write(lambda db: self._runs.append(db, lease, first, frames, record), fences=True)

    async def close_run(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord) -> bool:
        return await self._write(lambda db: self._runs.close(db, lease, first, frames, record), fences=True)

    async def bounds(self, key: RunKey) -> Bounds | None:
        return await self._read(partial(self._runs.bounds, key=key))

    async def list_runs(
        self,
        owner: str,
        *,
        thread_id: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        return await self._read(lambda db: self._runs.page(db, owner, thread_id, status, limit, after))

    def writer(self, lease: Lease) -> Stream:
        held, record = self._held.pop(lease, (None, None))
        thread = self._open_thread()
        stream = Stream(lease, thread.put, thread.deliver, held, record)
        self._feeds.open(stream)
        return stream

    def follow(self, key: RunKey, cursor: int) -> FileFollower:
        self._open_thread()
        return FileFollower(self._feeds, key, cursor)

    # -- Stop --

    async def request_stop(self, request: StopRequest) -> RunRecord | None:
        record, worker = await self._write(lambda db: self._runs.request_stop(db, request, self._subscribers))
        self._tell(worker, request)
        return record

    async def stop_requests(self, key: RunKey) -> list[StopRequest]:
        return await self._read(partial(self._runs.stop_requests, key=key))

    async def messages(self, worker: str) -> AsyncIterator[Message]:
        self._open_thread()
        queue = self._subscribers.setdefault(worker, asyncio.Queue())
        self._tail.kick()
        try:
            while True:
                yield await queue.get()
        finally:
            if self._subscribers.get(worker) is queue:  # nobody looks for messages that nobody hears
                del self._subscribers[worker]

    def _tell(self, worker: str | None, message: Message) -> None:
        if worker is not None and (queue := self._subscribers.get(worker)):
            queue.put_nowait(message)

    # -- leases --

    async def renew(self, worker: str) -> None:
        await self._write(partial(self._leases.renew, worker=worker))

    def renew_blocking(self, worker: str) -> None:
        """`renew` for a thread that is not the loop's; the loop need not run meanwhile."""
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._open_thread().put(Call(partial(self._leases.renew, worker=worker), future))
        try:
            future.result(self._settings.store_timeout + LAST_WAIT)
        except TimeoutError:
            raise StoreError("The store did not answer.") from None

    async def retire(self, worker: str) -> None:
        await self._write(partial(self._leases.retire, worker=worker))

    async def workers(self) -> list[str]:
        return await self._read(self._leases.workers)

    async def orphans(self) -> list[RunKey]:
        return await self._read(self._leases.orphans)

    async def take_over(self, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        call, done = self._call(lambda db: self._leases.take_over(db, key, worker, orphaned), fences=True)
        try:
            taken = await done
        except asyncio.CancelledError:
            self._call(lambda db: self._undo_take_over(db, call), fences=True)
            raise
        if taken is None:
            return None
        lease, held = taken
        self._held[lease] = held, None
        self._feeds.fence(lease)
        return lease  # type: ignore[no-any-return]

    def _undo_take_over(self, db: sqlite3.Connection, call: Call) -> None:
        if call.result is not None:
            self._leases.abandon(db, call.result[0])

    # -- viewers at other workers --

    async def set_watching(self, key: RunKey, worker: str, watching: bool) -> None:
        told = await self._write(lambda db: self._leases.set_watching(db, key, worker, watching, self._subscribers))
        self._tell(told, ViewersChanged(key))

    async def watched(self, key: RunKey) -> bool | None:
        return await self._read(partial(self._leases.watched, key=key))

    # -- questions --

    async def ask(self, lease: Lease, question: Question) -> None:
        await self._write(lambda db: self._state.ask(db, lease, question))

    async def questions(self, key: RunKey) -> list[Question]:
        return await self._read(partial(self._state.questions, key=key))

    async def find_question(self, interrupt_id: str) -> tuple[RunKey, Question] | None:
        return await self._read(partial(self._state.find_question, interrupt_id=interrupt_id))

    async def replace_questions(self, key: RunKey, changes: Sequence[tuple[Question, Question]]) -> bool:
        swapped, worker = await self._write(
            lambda db: self._state.replace_questions(db, key, changes, self._subscribers)
        )
        if swapped:
            for _, new in changes:
                self._tell(worker, QuestionChanged(key, new.interrupt_id))
        return swapped

    async def cancel_interrupted(self, key: RunKey) -> RunRecord | None:
        return await self._write(partial(self._state.cancel_interrupted, key=key))

    # -- notes --

    async def add_note(self, owner: str, thread_id: str, note: Note) -> None:
        await self._write(lambda db: self._state.add_note(db, owner, thread_id, note))

    async def notes(self, owner: str, thread_id: str) -> list[Note]:
        return await self._read(lambda db: self._state.notes(db, owner, thread_id))

    async def take_notes(self, owner: str, thread_id: str, run_id: str) -> list[Note]:
        return await self._write(lambda db: self._state.take_notes(db, owner, thread_id, run_id))

    async def close_notes(self, key: RunKey, thread_id: str) -> list[Note]:
        return await self._write(lambda db: self._state.close_notes(db, key, thread_id))

    # -- visibility and tickets --

    async def visibility(self, session: str) -> Visibility:
        """The session's rules; asking keeps them alive for another `session_ttl`."""
        rules, stale = await self._read(partial(self._state.visibility, session=session))
        if stale:
            await self._write(partial(self._state.touch, session=session))
        return rules

    async def set_visibility(self, session: str, visibility: Visibility) -> None:
        await self._write(lambda db: self._state.set_visibility(db, session, visibility))

    async def put_ticket(self, ticket: Ticket) -> None:
        await self._write(partial(self._state.put_ticket, ticket=ticket))

    async def ticket(self, digest: str) -> Ticket | None:
        return await self._read(partial(self._state.ticket, digest=digest))

    async def replace_ticket(self, old: Ticket, new: Ticket) -> bool:
        return await self._write(lambda db: self._state.replace_ticket(db, old, new))

    # -- threads --

    async def _write(self, work: Work[T], *, fences: bool = False) -> T:
        _, done = self._call(work, fences=fences)
        result: T = await done
        return result

    async def _read(self, work: Work[T]) -> T:
        self._open_thread()
        return await self._readers.read(work)

    def _call(self, work: Work[Any], *, fences: bool = False) -> tuple[Call, asyncio.Future[Any]]:
        thread = self._open_thread()
        done: asyncio.Future[Any] = self._loop.create_future()
        call = Call(work, done, fences)
        thread.put(call)
        return call, done

    def _open_thread(self) -> WriterThread:
        if self._thread is None or self._closed:
            raise StoreError("The store is closed." if self._closed else "The store is not open.")
        return self._thread

    def _reported(self, streams: list[tuple[Stream, Stored]], calls: list[Call]) -> None:
        for call in calls:
            call.settle()
        for stream, report in streams:
            self._feeds.stored(stream, report)

    def _news(self, news: list[News], messages: list[tuple[str, str, str]]) -> None:
        """What other processes have written."""
        for feed, rows, last, over in news:
            feed.add(rows)
            feed.skip(last)
            if over:
                feed.close()
        for worker, kind, body in messages:
            if kind == "stop":
                self._tell(worker, load(StopRequest, body))
            elif kind == "question":
                self._tell(worker, load(QuestionChanged, body))
            elif kind == "viewers":
                self._tell(worker, load(ViewersChanged, body))
            else:
                self._feeds.fence(load(Lease, body))
