"""The writer of one run: what its worker wrote, until it is in the file.

The upper half is for the loop, the lower one for the writing thread. Between them is one list, to which the loop adds
at one end while the thread takes from the other, in single steps of the interpreter: no lock, which the loop would
have to wait for.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gateway.errors import Fenced, StoreError
from gateway.run.log import BLOCK_BYTES
from gateway.run.records import RunRecord
from gateway.stores import sqlite_log as log
from gateway.stores.ahead import Ahead
from gateway.stores.base import Lease
from gateway.stores.feed import LARGE
from gateway.stores.sqlite_log import Held, Row

if TYPE_CHECKING:
    from gateway.stores.sqlite_runs import RunTable

__all__ = ["Stored", "Stream"]

logger = logging.getLogger("gateway")

# Of one run in one transaction: the events of the others need not wait for more.
TAKE_BYTES = 4 * 1024 * 1024

Item = tuple[bytes, int] | RunRecord

ERRORS: dict[str, tuple[type[StoreError], str]] = {
    "superseded": (Fenced, "Another worker has taken this run over."),
    "store": (StoreError, "The store failed, and this run is stored no more."),
    "store_lost": (StoreError, "The store has lost this run."),
    "closed": (StoreError, "The store is closed."),
}


class Stored(NamedTuple):
    """What became of a batch of one run, which now ends with event `last`: `lost` says why it was not stored."""

    items: int
    size: int
    run: int
    last: int
    rows: list[Row]
    over: bool = False
    trimmed: bool = False
    lost: str | None = None


class Stream:
    """See `stores.base.RunWriter`. `enqueue` hands it to the writing thread, `deliver` lets viewers see what is stored.

    `held` and `record` are what is known of the run.
    """

    __slots__ = (
        "_base", "_checked", "_dead", "_deliver", "_enqueue", "_held", "_items", "_loop", "_next", "_on_lost",
        "_on_trim", "_queued", "_saved", "_size", "_skip", "_stored", "_taken", "_tried", "_waiting", "_written",
        "ahead", "last", "lease", "lost", "pending_bytes", "run", "since",
    )  # fmt: skip

    def __init__(
        self,
        lease: Lease,
        enqueue: Callable[[Stream], None],
        deliver: Callable[[], None],
        held: Held | None = None,
        record: RunRecord | None = None,
    ) -> None:
        self.lease = lease
        #: The run's number in the file, once it is known, and that of its last stored event.
        self.run = None if held is None else held.run
        self.last = 0 if held is None else held.last
        self.lost: str | None = None
        self.pending_bytes = 0
        #: With `write_behind`: what viewers may see of what is pending.
        self.ahead: Ahead | None = None
        self._loop = asyncio.get_running_loop()
        self._enqueue = enqueue
        self._deliver = deliver
        self._items: list[Item] = []
        self._queued = False
        self._written = self._stored = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._on_trim: Callable[[], None] | None = None
        self._on_lost: Callable[[str], None] | None = None
        # The thread's. `_taken` is what the next transaction stores, numbered from `_base`, but for the first `_skip`.
        self._held = held
        self._checked = -1
        self._taken: list[Item] = []
        self._size = 0
        self._base: int | None = None
        self._skip = 0
        self._tried = (0, 0)
        self._next: tuple[Held | None, RunRecord | None] = (held, record)
        self._saved = record
        self._dead: str | None = None
        #: When the oldest thing that is not stored was first tried.
        self.since = 0.0

    # -- the loop's --

    def write(self, data: bytes, count: int = 1) -> None:
        if self.lost is None:
            self.pending_bytes += len(data)
            self._add((data, count))
            if self.ahead is not None:
                self.ahead.write(data, count)
            if len(data) >= LARGE:  # from a tool that has not given way for long and may not soon
                self._deliver()

    def save(self, record: RunRecord) -> None:
        if self.lost is None:
            self._add(record)
            if self.ahead is not None:
                self.ahead.save()

    async def flush(self) -> None:
        """Raises `Fenced` or `StoreError` when it cannot be stored any more."""
        if self._stored == self._written and self.lost is None:
            await asyncio.sleep(0)  # the way to give way in a tight loop (contract 2.2)
        elif self.lost is None:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((self._written, future))
            await future
        if self.lost is not None:
            kind, message = ERRORS[self.lost]
            raise kind(message)

    def on_trim(self, callback: Callable[[], None]) -> None:
        self._on_trim = callback

    def on_lost(self, callback: Callable[[str], None]) -> None:
        if self.lost is None:
            self._on_lost = callback
        elif self.lost != "closed":
            self._loop.call_soon(callback, self.lost)

    def stored(self, report: Stored) -> None:
        """The thread has come this far."""
        if report.lost is not None:
            self.lose(report.lost)
        if self.lost is not None:
            return
        self._stored += report.items
        self.pending_bytes -= report.size
        self.run = report.run
        self.last = report.last
        if self.ahead is not None:
            self.ahead.stored(report.items)
        if report.trimmed and self._on_trim is not None:
            callback, self._on_trim = self._on_trim, None
            self._loop.call_soon(callback)
        if report.over:
            self._on_trim = self._on_lost = None  # they hold the whole live run
        self._release(self._stored)

    def lose(self, reason: str) -> None:
        """Nothing more will be stored."""
        if self.lost is not None:
            return
        self.lost = reason
        self.pending_bytes = 0
        self.ahead = None
        callback, self._on_lost = self._on_lost, None
        if callback is not None and reason != "closed":
            self._loop.call_soon(callback, reason)
        self._release(self._written)

    def _add(self, item: Item) -> None:
        self._written += 1
        self._items.append(item)
        if not self._queued:  # after the item is there: who takes it away from here on is asked again
            self._queued = True
            self._enqueue(self)

    def _release(self, upto: int) -> None:
        while self._waiting and self._waiting[0][0] <= upto:
            _, future = self._waiting.pop(0)
            if not future.done():
                future.set_result(None)

    # -- the thread's --

    def take(self, now: float) -> bool:
        """Takes what there is, to be stored by the next transaction that succeeds; true when that is not all."""
        self._queued = False  # before the look: whoever adds later sees it, and queues this again
        if not self._taken:
            self.since, self._base, self._skip, self._tried, self._size = now, None, 0, (0, 0), 0
        count = 0
        for item in self._items[:]:
            if self._size >= TAKE_BYTES:
                break
            self._size += _size(item)
            count += 1
        self._taken += self._items[:count]
        del self._items[:count]
        return bool(self._items)

    def store(self, db: sqlite3.Connection, runs: RunTable, checked: int) -> Stored:
        """Stores what was taken. `checked` is a number that is another one when somebody may have changed the run."""
        if self._dead is None and self._checked != checked:
            self._dead = self._check(db)
        held = self._held
        if self._dead is not None or held is None:
            return self._failed()
        if self._base is None:
            self._base = held.last
        pieces = [item for item in self._taken[self._skip :] if isinstance(item, tuple)]
        records = [item for item in self._taken if isinstance(item, RunRecord)]
        self._tried = (len(self._taken), sum(count for _, count in pieces))
        rows = log.rows_of(pieces, self._base)
        if rows:
            held = log.seal(db, log.append(db, held, rows))
        if records:
            runs.save(db, held.run, records[-1], self._saved)
        trimmed = log.trim(db, held, *runs.limits)
        self._checked = checked
        self._next = (trimmed, records[-1] if records else self._saved)
        over = bool(records) and records[-1].over
        return Stored(len(self._taken), self._size, held.run, held.last, rows, over, trimmed.first != held.first)

    def store_alone(self, db: sqlite3.Connection, runs: RunTable, checked: int) -> Stored | None:
        """Stores what was taken in one statement, a transaction of its own; None when it takes more than that.

        It is the same as `store`, for what most batches of a slow run are: half of the time of a commit is calls.
        """
        held = self._held
        if self._checked != checked or self._dead is not None or held is None or self._base is not None:
            return None
        if any(isinstance(item, RunRecord) for item in self._taken):
            return None
        rows = log.rows_of(self._taken, held.last)  # type: ignore[arg-type]
        if len(rows) != 1:
            return None
        after = held.longer(rows)
        if log.too_large(after, *runs.limits) or after.loose_size >= BLOCK_BYTES:
            return None
        self._base, self._tried = held.last, (len(self._taken), after.last - held.last)
        if not log.append_alone(db, held, rows[0], self.lease.epoch):
            self._base, self._checked = None, -1
            return None
        self._next = (after, self._saved)
        return Stored(len(self._taken), len(rows[0].data), held.run, after.last, rows)

    def done(self) -> None:
        """What `store` did is in the file."""
        self._held, self._saved = self._next
        self._taken, self._size = [], 0

    def give_up(self, reason: str) -> Stored:
        """Nothing of it is stored any more: else what comes later would follow on what is missing."""
        self._dead = reason
        report = self._failed()
        self.done()
        return report

    def _failed(self) -> Stored:
        self._next = (self._held, None)
        return Stored(len(self._taken), self._size, 0, 0, [], lost=self._dead)

    def _check(self, db: sqlite3.Connection) -> str | None:
        """Why nothing can be stored: the run is not there, or not ours, or not as we left it."""
        if self._held is None:
            found = log.find_lease(db, self.lease.key)
            if found is None:
                return "store_lost"
            self._held = log.hold(db, found[0])
        epoch, last = log.last_of(db, self._held.run)
        if epoch is None:
            return "store_lost"
        if epoch != self.lease.epoch:
            return "superseded"
        if last < self._held.last:  # the file was restored from an older copy
            return "store_lost"
        if self._base is None:
            self._held = self._held._replace(last=last)
        elif last == self._base + self._tried[1]:  # the transaction that seemed to fail did not
            self._skip, self._base = self._tried[0], last
            self._held = self._held._replace(last=last)
        elif last != self._base:
            return "store_lost"
        return None


def _size(item: Item) -> int:
    return len(item[0]) if isinstance(item, tuple) else 0
