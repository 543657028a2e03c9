"""Runs in the file: records, lists, Stop requests. Everything here is called inside a transaction of its caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.errors import Conflict, Fenced, StoreError
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores import sqlite_log as log
from gateway.stores.base import Bounds, Created, Lease, Page, StopRequest
from gateway.stores.sqlite_log import Held
from gateway.stores.values import dump, load

__all__ = ["Found", "RunTable"]

# A run whose time is up is not there any more, although its rows leave later, a few at a time.
KEPT = "(expires_at IS NULL OR expires_at > ?)"
RECORD = """
    SELECT runs.record, runs.stop_requested, bodies.messages, bodies.result,
        coalesce((SELECT max(last) FROM blocks WHERE blocks.run = runs.run), 0)
    FROM runs LEFT JOIN bodies ON bodies.run = runs.run """


class Found(NamedTuple):
    """A run, as its row says."""

    run: int
    epoch: int
    worker: str
    over: bool
    fingerprint: bytes


class RunTable:
    """The runs, by the settings and the clock of the store."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self.now = clock
        #: What is kept of one run: bytes and events.
        self.limits = (settings.max_run_bytes, settings.max_run_events)

    def find(self, db: sqlite3.Connection, key: RunKey) -> Found | None:
        query = """
            SELECT run, epoch, worker, ended_at IS NOT NULL, fingerprint FROM runs
            WHERE run_id = ? AND owner IS ? AND (expires_at IS NULL OR expires_at > ?)"""
        found = db.execute(query, (key.run_id, key.owner, self.now())).fetchone()
        return None if found is None else Found(*found)

    def create(
        self, db: sqlite3.Connection, record: RunRecord, fingerprint: bytes, worker: str
    ) -> tuple[Created, Held | None]:
        found = self.find(db, record.key)
        if found is not None:
            if found.fingerprint != fingerprint:
                raise Conflict(f"Run {record.key.run_id!r} exists and came from a different request.")
            return Created(self.record(db, found.run), None), None
        self._set_aside(db, record.key)
        run = db.execute(
            "INSERT INTO runs (owner, run_id, thread_id, status, fingerprint, worker, epoch, record) "
            "VALUES (?, ?, ?, ?, ?, ?, 0, '')",
            (record.key.owner, record.key.run_id, record.thread_id, record.status, fingerprint, worker),
        ).lastrowid
        assert run is not None  # noqa: S101 - what an INSERT gives
        # Its number is never used again, so it is a good first epoch: a run of the same name is fenced by it, too.
        db.execute("UPDATE runs SET epoch = run WHERE run = ?", (run,))
        self.save(db, run, record)
        # Being there is a sign of life of a worker that has not renewed yet.
        db.execute("INSERT OR IGNORE INTO workers VALUES (?, ?)", (worker, self.now()))
        return Created(record, Lease(record.key, worker, run)), Held(run, 1, 0, 0)

    def discard(self, db: sqlite3.Connection, lease: Lease) -> None:
        found = log.find_lease(db, lease.key)
        if found is not None and found[1] == lease.epoch and log.last_of(db, found[0])[1] == 0:
            self.forget(db, found[0], lease.key)

    def save(self, db: sqlite3.Connection, run: int, record: RunRecord, saved: RunRecord | None = None) -> None:
        """Keeps the record; `saved` is the one before, whose bodies need not be written again.

        A Stop that was asked for stays: the worker may not have heard of it.
        """
        bare = replace(record, messages=None, result=None)
        db.execute(
            "UPDATE runs SET thread_id = ?, status = ?, ended_at = ?, expires_at = ?, "
            "stop_requested = coalesce(stop_requested, ?), record = ? WHERE run = ?",
            (
                record.thread_id,
                record.status,
                record.ended_at,
                self._expiry(record),
                record.stop_requested,
                dump(bare),
                run,
            ),
        )
        before = (None, None) if saved is None else (saved.messages, saved.result)
        if (record.messages, record.result) != before:
            db.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?)", (run, record.messages, record.result))

    def _expiry(self, record: RunRecord) -> float | None:
        if record.ended_at is None:
            return None
        waits = self._settings.interrupt_ttl if record.status == "interrupted" else 0
        return record.ended_at + self._settings.run_ttl + waits

    def append(
        self, db: sqlite3.Connection, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord | None
    ) -> None:
        """See `Store.append`."""
        held = self._held_by(db, lease)
        if first > held.last + 1:
            raise StoreError(f"Append at {first} after {held.last} would leave a gap.")
        rows = log.rows_of(((frame, 1) for frame in frames[held.last + 1 - first :]), held.last)
        if rows:
            held = log.append(db, held, rows)
        if record is not None:
            self.save(db, held.run, record)
        log.trim(db, held, *self.limits)

    def close(
        self, db: sqlite3.Connection, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord
    ) -> bool:
        """See `Store.close_run`."""
        held = self._held_by(db, lease)
        (stopped,) = db.execute("SELECT stop_requested FROM runs WHERE run = ?", (held.run,)).fetchone()
        if stopped not in (None, record.stop_requested):
            return False
        self.append(db, lease, first, frames, record)
        return True

    def _held_by(self, db: sqlite3.Connection, lease: Lease) -> Held:
        found = log.find_lease(db, lease.key)
        if found is None:
            raise StoreError("The store has lost this run.")
        if found[1] != lease.epoch:
            raise Fenced("Another worker has taken this run over.")
        return log.hold(db, found[0])

    def get(self, db: sqlite3.Connection, key: RunKey) -> RunRecord | None:
        query = f"{RECORD} WHERE runs.run_id = ? AND runs.owner IS ? AND {KEPT}"
        found = db.execute(query, (key.run_id, key.owner, self.now())).fetchone()
        return None if found is None else _record(found)

    def record(self, db: sqlite3.Connection, run: int) -> RunRecord:
        return _record(db.execute(f"{RECORD} WHERE runs.run = ?", (run,)).fetchone())

    def bounds(self, db: sqlite3.Connection, key: RunKey) -> Bounds | None:
        query = """
            SELECT
                coalesce((SELECT first FROM blocks WHERE blocks.run = runs.run ORDER BY last LIMIT 1), 1),
                coalesce((SELECT max(last) FROM blocks WHERE blocks.run = runs.run), 0),
                ended_at IS NOT NULL
            FROM runs WHERE run_id = ? AND owner IS ? AND (expires_at IS NULL OR expires_at > ?)"""
        found = db.execute(query, (key.run_id, key.owner, self.now())).fetchone()
        return None if found is None else Bounds(found[0], found[1], bool(found[2]))

    def page(
        self,
        db: sqlite3.Connection,
        owner: str,
        thread_id: str | None,
        status: str | None,
        limit: int,
        after: str | None,
    ) -> Page:
        where, values = ["runs.owner = ?", KEPT], [owner, self.now()]
        for name, value in (("thread_id", thread_id), ("status", status)):
            if value is not None:
                where.append(f"runs.{name} = ?")
                values.append(value)
        if after is not None:
            where.append("runs.run < (SELECT run FROM runs WHERE run_id = ? AND owner = ?)")
            values += [after, owner]
        query = f"{RECORD} WHERE {' AND '.join(where)} ORDER BY runs.run DESC LIMIT ?"
        found = [_record(row) for row in db.execute(query, (*values, limit + 1))]
        return Page(found[:limit], found[limit - 1].key.run_id if len(found) > limit else None)

    # -- Stop --

    def request_stop(
        self, db: sqlite3.Connection, request: StopRequest, here: Container[str]
    ) -> tuple[RunRecord | None, str | None]:
        """The record, and the worker to be told; one that is `here` is told without the file."""
        found = self.find(db, request.key)
        if found is None:
            return None, None
        if found.over:
            return self.record(db, found.run), None
        db.execute("INSERT INTO stops (run, body) VALUES (?, ?)", (found.run, dump(request)))
        if request.call_id is None:
            query = "UPDATE runs SET stop_requested = coalesce(stop_requested, ?) WHERE run = ?"
            db.execute(query, (request.reason, found.run))
        if found.worker not in here:
            self.tell(db, found.worker, "stop", dump(request))
        return self.record(db, found.run), found.worker

    def stop_requests(self, db: sqlite3.Connection, key: RunKey) -> list[StopRequest]:
        query = """
            SELECT stops.body FROM stops JOIN runs ON runs.run = stops.run
            WHERE run_id = ? AND owner IS ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY stop"""
        return [load(StopRequest, body) for (body,) in db.execute(query, (key.run_id, key.owner, self.now()))]

    def tell(self, db: sqlite3.Connection, worker: str, kind: str, body: str) -> None:
        """Leaves a message for a worker of another process."""
        query = "INSERT INTO messages (worker, sent_at, kind, body) VALUES (?, ?, ?, ?)"
        db.execute(query, (worker, self.now(), kind, body))

    # -- the end --

    def forget(self, db: sqlite3.Connection, run: int, key: RunKey) -> None:
        """Drops a run and what belongs to it."""
        db.execute("DELETE FROM tickets WHERE run_id = ? AND owner IS ?", (key.run_id, key.owner))
        for table in ("blocks", "bodies", "stops", "watching", "questions", "asked", "runs"):
            db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - the names above

    def _set_aside(self, db: sqlite3.Connection, key: RunKey) -> None:
        """Takes the name from a run whose time is up, for a new one; its rows leave in their own time."""
        query = "SELECT run FROM runs WHERE run_id = ? AND owner IS ?"
        for (run,) in db.execute(query, (key.run_id, key.owner)).fetchall():
            db.execute("DELETE FROM tickets WHERE run_id = ? AND owner IS ?", (key.run_id, key.owner))
            db.execute("DELETE FROM asked WHERE run = ?", (run,))
            db.execute("UPDATE runs SET owner = NULL, run_id = ? WHERE run = ?", (f"\0{run}", run))


def _record(row: Any) -> RunRecord:
    text, stopped, messages, result, last = row
    record = load(RunRecord, text)
    return replace(record, stop_requested=stopped, messages=messages, result=result, last_event_id=last)
