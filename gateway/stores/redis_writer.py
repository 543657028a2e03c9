"""The writer of a run in Redis: keeps what was written until it is stored, in order and with the records in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gateway.errors import Fenced, StoreError
from gateway.run.log import BLOCK_BYTES
from gateway.run.records import RunRecord
from gateway.stores.ahead import Ahead
from gateway.stores.base import Lease
from gateway.stores.redis_keys import RunKeys
from gateway.stores.redis_scripts import Argument
from gateway.stores.values import dump

if TYPE_CHECKING:
    from gateway.stores.redis_commit import Committer

__all__ = ["Entry", "Item", "RedisWriter", "Taken", "record_bytes"]

RUN_BYTES = 1024 * 1024  # of one run in one round trip: the others must not wait for long


class Entry(NamedTuple):
    """Frames `first` to `last` as they are stored: one entry of the stream."""

    first: int
    last: int
    data: bytes


class Item(NamedTuple):
    """Something written: `frames` of them as one piece, or a record that was saved after what came before."""

    data: bytes
    frames: int
    record: RunRecord | None


class RedisWriter:
    """See `stores.base.RunWriter`. One per lease; `last` is None until it is known how far the log has come."""

    __slots__ = (
        "_added", "_bodies", "_code", "_committer", "_flushes", "_flying", "_items", "_kept", "_on_lost", "_on_trim",
        "ahead", "ended", "error", "keys", "last", "lease", "pending_bytes", "stored",
    )  # fmt: skip

    def __init__(self, committer: Committer, lease: Lease, keys: RunKeys, last: int | None) -> None:
        self._committer = committer
        self.lease = lease
        self.keys = keys
        self.last = last  # number of the last frame written
        self.stored = last or 0  # and of the last one confirmed
        self.pending_bytes = 0
        self.ahead: Ahead | None = None  # with `write_behind`: what viewers may see of what is pending
        self._items: deque[Item] = deque()
        self._added = self._kept = 0  # items
        self._flying = 0  # of those at the front, that are on their way
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._bodies: tuple[bytes | None, bytes | None] = (None, None)  # as Redis has them
        self._on_trim: Callable[[], None] | None = None
        self._on_lost: Callable[[str], None] | None = None
        self._code = ""
        self.error: StoreError | None = None  # why nothing more is stored
        self.ended = False  # whether Redis knows that the run is over

    def __repr__(self) -> str:
        return f"<RedisWriter {self.lease.key.label} at {self.stored}>"

    @property
    def due(self) -> bool:
        """Whether there is something to send, or to ask first."""
        return self.error is None and self._flying == 0 and (bool(self._items) or self.last is None)

    @property
    def busy(self) -> bool:
        """Whether something is not stored yet."""
        return bool(self._items)

    def write(self, data: bytes, count: int = 1) -> None:
        if self.error is None:
            if self.last is not None:
                self.last += count
            self.pending_bytes += len(data)
            self._add(Item(data, count, None))
            if self.ahead is not None:
                self.ahead.write(data, count)

    def save(self, record: RunRecord) -> None:
        if self.error is not None:
            return
        if len(self._items) > self._flying and self._items[-1].record is not None:
            self._items[-1] = Item(b"", 0, record)
        else:
            self._add(Item(b"", 0, record))
            if self.ahead is not None:
                self.ahead.save()

    async def flush(self) -> None:
        if self.error is not None:
            raise self.error
        if not self._items and self.last is not None:
            await asyncio.sleep(0)  # the way to give way in a tight loop (contract 2.2)
            return
        future: asyncio.Future[None] = self._committer.loop.create_future()
        self._flushes.append((self._added, future))
        self._committer.want(self)
        await future

    def on_trim(self, callback: Callable[[], None]) -> None:
        self._on_trim = callback

    def on_lost(self, callback: Callable[[str], None]) -> None:
        self._on_lost = callback
        if self.error is not None:
            self._tell_lost()

    def take(self) -> Taken:
        """What is stored next, at most `RUN_BYTES`; it stays here until it is confirmed."""
        taken = Taken(self.stored + 1)
        for item in self._items:
            if taken.size >= RUN_BYTES:
                break
            taken.add(item)
        taken.cut()
        self._flying = taken.items
        return taken

    def fields(self, record: RunRecord) -> list[Argument]:
        """Names and values for the hash. Messages and result are large, so they go only when they have changed."""
        fields: list[Argument] = ["record", record_bytes(record)]
        for name, value, known in zip(("messages", "result"), _bodies(record), self._bodies, strict=True):
            if value is not None and value is not known:
                fields += [name, value]
        return fields

    def holds(self, record: RunRecord) -> None:
        """Redis has the messages and the result of this record."""
        self._bodies = _bodies(record)

    def confirmed(self, taken: Taken) -> None:
        """What was taken is stored."""
        for _ in range(taken.items):
            self._items.popleft()
        self._flying = 0
        self.pending_bytes -= taken.size
        self.stored = max(self.stored, taken.last)
        if taken.record is not None:
            self.holds(taken.record)
        if self.ahead is not None:
            self.ahead.stored(taken.items)
        self._settle(taken.items)

    def opened(self, last: int) -> None:
        """The log has come this far, under an earlier lease or in another process."""
        self.stored = last
        self.last = last + sum(item.frames for item in self._items)
        self._settle(0)

    def trimmed(self) -> None:
        """The oldest frames have left the log."""
        callback, self._on_trim = self._on_trim, None
        if callback is not None:
            self._committer.loop.call_soon(callback)

    def lose(self, code: str, message: str) -> None:
        """Nothing more will be stored: `superseded`, `store` or `store_lost`."""
        if self.error is not None:
            return
        self.error = Fenced(message) if code == "superseded" else StoreError(message)
        self._code = code
        self._items.clear()
        self._on_trim = self.ahead = None
        self.pending_bytes = self._flying = 0
        for _, future in self._flushes:
            if not future.done():
                future.set_exception(self.error)
        self._flushes.clear()
        self._tell_lost()

    def _tell_lost(self) -> None:
        callback, self._on_lost = self._on_lost, None
        if callback is not None:
            self._committer.loop.call_soon(callback, self._code)

    def _settle(self, items: int) -> None:
        self._kept += items
        while self._flushes and self._flushes[0][0] <= self._kept:
            _, future = self._flushes.popleft()
            if not future.done():
                future.set_result(None)

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self._added += 1
        self._committer.want(self)


def _bodies(record: RunRecord) -> tuple[bytes | None, bytes | None]:
    return record.messages, record.result


def record_bytes(record: RunRecord) -> bytes:
    """A record without what the run's hash has in fields of its own."""
    return dump(replace(record, messages=None, result=None)).encode()


class Taken:
    """Some of what a run has written, as entries of at most one block (a larger piece stays whole)."""

    __slots__ = ("_pieces", "_room", "entries", "first", "items", "last", "record", "size")

    def __init__(self, first: int) -> None:
        self.entries: list[Entry] = []
        self.items = self.size = 0
        self.first = first  # of the entry that is being filled
        self.last = first - 1
        self.record: RunRecord | None = None
        self._pieces: list[bytes] = []
        self._room = BLOCK_BYTES

    def add(self, item: Item) -> None:
        self.items += 1
        if item.record is not None:
            self.record = item.record
            return
        size = len(item.data)
        if size > self._room:
            self.cut()
        self._pieces.append(item.data)
        self._room -= size
        self.size += size
        self.last += item.frames

    def cut(self) -> None:
        """The next piece begins another entry."""
        if self._pieces:
            self.entries.append(Entry(self.first, self.last, b"".join(self._pieces)))
            self._pieces = []
        self.first = self.last + 1
        self._room = BLOCK_BYTES
