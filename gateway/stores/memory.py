"""The store that lives in this process: the default, the fastest, and the one the others are measured against.

An event is in the log when `write` returns. Nothing survives the process, and one process is all there may be.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from time import time
from types import TracebackType
from typing import Self

from gateway.errors import Conflict, Fenced, NotFound, StoreError, Unavailable
from gateway.run.log import BLOCK_BYTES
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Bounds, Created, Lease, Message, Page, QuestionChanged, StopRequest, ViewersChanged
from gateway.stores.feed import Feed, FeedFollower
from gateway.stores.memory_state import MemoryState

__all__ = ["MemoryStore"]


class Entry:
    """One run: its record, its log, and who may append."""

    __slots__ = ("counted", "epoch", "feed", "fingerprint", "on_trim", "record", "stops", "watching", "worker")

    def __init__(self, record: RunRecord, fingerprint: bytes, worker: str) -> None:
        self.record = record
        self.fingerprint = fingerprint
        self.worker = worker
        self.epoch = 1
        self.feed = Feed()
        self.counted = self.weight
        self.stops: list[StopRequest] = []
        self.on_trim: Callable[[], None] | None = None
        self.watching: dict[str, bool] = {}

    @property
    def weight(self) -> int:
        """Bytes held: the log, and what the record carries of the request and the result."""
        return self.feed.log.size + len(self.record.messages or b"") + len(self.record.result or b"")

    def current(self) -> RunRecord:
        """The record with the number of the last event, which only the log knows."""
        return replace(self.record, last_event_id=self.feed.log.last)


class MemoryWriter:
    """See `stores.base.RunWriter`; nothing is ever pending."""

    __slots__ = ("_entry", "_epoch", "_feed", "_store")

    pending_bytes = 0

    def __init__(self, store: MemoryStore, entry: Entry, lease: Lease) -> None:
        self._store = store
        self._entry = entry
        self._feed = entry.feed
        self._epoch = lease.epoch

    def write(self, data: bytes, count: int = 1) -> None:
        self._check()
        if self._feed.append(data, count):
            self._store.account(self._entry)

    def save(self, record: RunRecord) -> None:
        self._check()
        stopped = self._entry.record.stop_requested
        # The worker may not have heard of a Stop that the record knows.
        self._entry.record = record if stopped is None else replace(record, stop_requested=stopped)
        if record.over:
            self._entry.on_trim = None  # it holds the whole live run: calls, arguments, results
            self._feed.close()
            self._store.account(self._entry)
            self._store.ended(record)

    async def flush(self) -> None:
        # Nothing to store, but the way to give way in a tight loop (contract 2.2).
        await asyncio.sleep(0)

    def on_trim(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the oldest events have left the log for the first time."""
        self._entry.on_trim = callback

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Nothing is ever lost but with the process."""

    def _check(self) -> None:
        if self._entry.epoch != self._epoch:
            raise Fenced("Another worker has taken this run over.")


class MemoryStore(MemoryState):
    """Runs in dictionaries; questions, notes, visibility and tickets are in `MemoryState`."""

    shared = False

    def __init__(self, settings: Settings | None = None, *, clock: Callable[[], float] = time) -> None:
        self._settings = settings or Settings()
        super().__init__(self._settings.session_ttl, self._settings.interrupt_ttl, clock)
        self._runs: dict[RunKey, Entry] = {}
        self._threads: dict[str, dict[str, None]] = {}
        # Each in the order in which they ended; those that wait for an answer are kept for longer.
        self._ended: OrderedDict[RunKey, None] = OrderedDict()
        self._interrupted: OrderedDict[RunKey, None] = OrderedDict()
        self._bytes = 0
        self._subscribers: dict[str, asyncio.Queue[Message]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for entry in self._runs.values():
            entry.feed.close()

    @property
    def bytes_held(self) -> int:
        """Bytes of sealed and finished logs, as counted against `max_store_bytes`."""
        return self._bytes

    # -- runs --

    async def create(self, record: RunRecord, fingerprint: bytes, worker: str) -> Created:
        self.sweep()
        entry = self._runs.get(record.key)
        if entry is not None:
            if entry.fingerprint != fingerprint:
                raise Conflict(f"Run {record.key.run_id!r} exists and came from a different request.")
            return Created(entry.current(), None)
        if self._full() and not self._make_room() and not record.background:  # a detach is never refused
            raise Unavailable("The store is full.", code="store_full")
        entry = self._runs[record.key] = Entry(record, fingerprint, worker)
        self._bytes += entry.counted
        if record.key.owner is not None:
            self._threads.setdefault(record.key.owner, {})[record.key.run_id] = None
        return Created(record, Lease(record.key, worker, 1))

    async def discard(self, lease: Lease) -> None:
        entry = self._runs.get(lease.key)
        if entry is not None and entry.feed.log.last == 0:
            self._forget(lease.key)

    async def get(self, key: RunKey) -> RunRecord | None:
        self.sweep()
        entry = self._runs.get(key)
        return None if entry is None else entry.current()

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord | None = None) -> None:
        entry = self._entry(lease.key)
        writer = MemoryWriter(self, entry, lease)
        last = entry.feed.log.last
        if first > last + 1:
            raise StoreError(f"Append at {first} after {last} would leave a gap.")
        for frame in frames[last + 1 - first :]:
            writer.write(frame)
        if record is not None:
            writer.save(record)

    async def close_run(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord) -> bool:
        if self._entry(lease.key).record.stop_requested not in (None, record.stop_requested):
            return False
        await self.append(lease, first, frames, record)
        return True

    async def bounds(self, key: RunKey) -> Bounds | None:
        entry = self._runs.get(key)
        if entry is None:
            return None
        return Bounds(entry.feed.log.first, entry.feed.log.last, entry.feed.log.closed)

    async def list_runs(
        self,
        owner: str,
        *,
        thread_id: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        self.sweep()
        ids = list(reversed(self._threads.get(owner, {})))
        if after is not None:
            ids = ids[ids.index(after) + 1 :] if after in ids else []
        found = [self._runs[RunKey(owner, run_id)].current() for run_id in ids]
        items = [
            record for record in found if thread_id in (None, record.thread_id) and status in (None, record.status)
        ]
        more = len(items) > limit
        return Page(items[:limit], items[limit - 1].key.run_id if more else None)

    def writer(self, lease: Lease) -> MemoryWriter:
        return MemoryWriter(self, self._entry(lease.key), lease)

    def follow(self, key: RunKey, cursor: int) -> FeedFollower:
        return self._entry(key).feed.follow(cursor)

    # -- Stop --

    async def request_stop(self, request: StopRequest) -> RunRecord | None:
        entry = self._runs.get(request.key)
        if entry is None:
            return None
        if not entry.record.over:
            entry.stops.append(request)
            if request.call_id is None and entry.record.stop_requested is None:
                entry.record = replace(entry.record, stop_requested=request.reason)
            self._tell(entry, request)
        return entry.current()

    async def stop_requests(self, key: RunKey) -> list[StopRequest]:
        entry = self._runs.get(key)
        return [] if entry is None else list(entry.stops)

    async def messages(self, worker: str) -> AsyncIterator[Message]:
        queue = self._subscribers.setdefault(worker, asyncio.Queue())
        while True:
            yield await queue.get()

    def changed(self, key: RunKey, interrupt_id: str) -> None:
        entry = self._runs.get(key)
        if entry is not None:
            self._tell(entry, QuestionChanged(key, interrupt_id))

    def _tell(self, entry: Entry, message: Message) -> None:
        if queue := self._subscribers.get(entry.worker):
            queue.put_nowait(message)

    async def cancel_interrupted(self, key: RunKey) -> RunRecord | None:
        entry = self._runs.get(key)
        if entry is None:
            return None
        if entry.record.status == "interrupted" and self.close_questions(key):
            entry.record = entry.record.stopped()
        return entry.current()

    # -- leases: one process, so a worker is alive as long as the store is --

    async def renew(self, worker: str) -> None:
        return None

    def renew_blocking(self, worker: str) -> None:
        return None

    async def retire(self, worker: str) -> None:
        return None

    async def workers(self) -> list[str]:
        return []

    async def orphans(self) -> list[RunKey]:
        return []

    async def take_over(self, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        entry = self._runs.get(key)
        if entry is None or entry.record.over or orphaned:
            return None
        entry.epoch += 1
        entry.worker = worker
        return Lease(key, worker, entry.epoch)

    async def set_watching(self, key: RunKey, worker: str, watching: bool) -> None:
        entry = self._runs.get(key)
        if entry is not None and not entry.record.over:
            entry.watching[worker] = watching
            self._tell(entry, ViewersChanged(key))

    async def watched(self, key: RunKey) -> bool | None:
        entry = self._runs.get(key)
        return any(entry.watching.values()) if entry is not None and entry.watching else None

    # -- retention --

    def sweep(self) -> None:
        """Forgets the runs that ended more than `run_ttl` ago, and interrupted ones whose answer is overdue by that."""
        settings, now = self._settings, self._clock()
        self._forget_before(self._ended, now - settings.run_ttl)
        self._forget_before(self._interrupted, now - settings.run_ttl - settings.interrupt_ttl)

    def _forget_before(self, ended: OrderedDict[RunKey, None], horizon: float) -> None:
        while ended:
            key = next(iter(ended))
            ended_at = self._runs[key].record.ended_at
            if ended_at is None or ended_at > horizon:
                return
            self._forget(key)

    def ended(self, record: RunRecord) -> None:
        ended = self._interrupted if record.status == "interrupted" else self._ended
        ended[record.key] = None

    def account(self, entry: Entry) -> None:
        """Counts what a run has grown, and trims it to the limits of one run."""
        left = entry.feed.log.trim(self._settings.max_run_bytes, self._settings.max_run_events)
        self._count(entry)
        if left:
            self._trimmed(entry)
        if self._bytes > self._settings.max_store_bytes:
            self._make_room()

    def _count(self, entry: Entry) -> None:
        self._bytes += entry.weight - entry.counted
        entry.counted = entry.weight

    def _full(self) -> bool:
        """Whether there is no room, also counting what is not sealed yet, which is looked at when it could matter."""
        limit = self._settings.max_store_bytes
        if self._bytes + len(self._runs) * BLOCK_BYTES > limit:
            for entry in self._runs.values():
                self._count(entry)
        return self._bytes > limit

    def _make_room(self) -> bool:
        """Finished runs go first, oldest first; then the largest live one is trimmed. True when it is enough."""
        limit = self._settings.max_store_bytes
        while self._bytes > limit and (ended := self._ended or self._interrupted):
            self._forget(next(iter(ended)))
        if self._bytes > limit and self._runs:
            largest = max(self._runs.values(), key=lambda entry: entry.feed.log.size)
            log = largest.feed.log
            left = log.trim(max(log.size - (self._bytes - limit), 0), sys.maxsize)
            self._count(largest)
            if left:
                self._trimmed(largest)
        return self._bytes <= limit

    def _trimmed(self, entry: Entry) -> None:
        callback, entry.on_trim = entry.on_trim, None
        if callback is not None:
            # Never in the writer's frame: the callback emits an event.
            asyncio.get_running_loop().call_soon(callback)

    def _forget(self, key: RunKey) -> None:
        entry = self._runs.pop(key)
        self._ended.pop(key, None)
        self._interrupted.pop(key, None)
        self.forget(key)
        if key.owner is not None:
            ids = self._threads[key.owner]
            ids.pop(key.run_id, None)
            if not ids:
                del self._threads[key.owner]
        self._bytes -= entry.counted

    def _entry(self, key: RunKey) -> Entry:
        entry = self._runs.get(key)
        if entry is None:
            raise NotFound(f"No run {key.run_id!r}.", code="run_not_found")
        return entry
