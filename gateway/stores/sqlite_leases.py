"""Who may write which run: the lives of workers, and the runs of those that are dead. Inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Container

from gateway.run.records import RunKey
from gateway.stores import sqlite_log as log
from gateway.stores.base import Lease, ViewersChanged
from gateway.stores.sqlite_log import Held
from gateway.stores.sqlite_runs import RunTable
from gateway.stores.values import dump

__all__ = ["LeaseTable"]

NOBODY = ""  # holds a run that was taken over by somebody who was cancelled


class LeaseTable:
    """Leases of `lease_seconds`, in the time of the runs' table."""

    def __init__(self, runs: RunTable, lease_seconds: float) -> None:
        self._runs = runs
        self._lease = lease_seconds

    def renew(self, db: sqlite3.Connection, worker: str) -> None:
        query = "INSERT INTO workers VALUES (?, ?) ON CONFLICT (worker) DO UPDATE SET renewed_at = excluded.renewed_at"
        db.execute(query, (worker, self._runs.now()))

    def retire(self, db: sqlite3.Connection, worker: str) -> None:
        db.execute("DELETE FROM workers WHERE worker = ?", (worker,))

    def workers(self, db: sqlite3.Connection) -> list[str]:
        query = "SELECT worker FROM workers WHERE renewed_at > ? ORDER BY worker"
        return [worker for (worker,) in db.execute(query, (self._horizon,))]

    def orphans(self, db: sqlite3.Connection) -> list[RunKey]:
        query = """
            SELECT owner, run_id FROM runs WHERE ended_at IS NULL
            AND worker NOT IN (SELECT worker FROM workers WHERE renewed_at > ?) ORDER BY run"""
        return [RunKey(*row) for row in db.execute(query, (self._horizon,))]

    def take_over(self, db: sqlite3.Connection, key: RunKey, worker: str, orphaned: bool) -> tuple[Lease, Held] | None:
        found = self._runs.find(db, key)
        if found is None or found.over or (orphaned and self._lives(db, found.worker)):
            return None
        epoch = self._next_epoch(db)
        db.execute("UPDATE runs SET worker = ?, epoch = ? WHERE run = ?", (worker, epoch, found.run))
        db.execute("INSERT OR IGNORE INTO workers VALUES (?, ?)", (worker, self._runs.now()))
        lease = Lease(key, worker, epoch)
        # The old worker would find out with its next event; until then its viewers would wait for nothing.
        self._runs.tell(db, found.worker, "fenced", dump(lease))
        return lease, log.hold(db, found.run)

    def abandon(self, db: sqlite3.Connection, lease: Lease) -> None:
        """Makes an orphan of a run whose lease nobody has."""
        query = "UPDATE runs SET worker = ? WHERE run_id = ? AND owner IS ? AND epoch = ?"
        db.execute(query, (NOBODY, lease.key.run_id, lease.key.owner, lease.epoch))

    def set_watching(
        self, db: sqlite3.Connection, key: RunKey, worker: str, watching: bool, here: Container[str]
    ) -> str | None:
        """The worker of the run, which is told; one that is `here` without the file."""
        found = self._runs.find(db, key)
        if found is None or found.over:
            return None
        db.execute("INSERT OR REPLACE INTO watching VALUES (?, ?, ?)", (found.run, worker, watching))
        if found.worker not in here:
            self._runs.tell(db, found.worker, "viewers", dump(ViewersChanged(key)))
        return found.worker

    def watched(self, db: sqlite3.Connection, key: RunKey) -> bool | None:
        query = """
            SELECT max(watching AND worker IN (SELECT worker FROM workers WHERE renewed_at > ?)) FROM watching
            WHERE run = (SELECT run FROM runs WHERE run_id = ? AND owner IS ?)"""
        (watched,) = db.execute(query, (self._horizon, key.run_id, key.owner)).fetchone()
        return None if watched is None else bool(watched)

    @property
    def _horizon(self) -> float:
        return self._runs.now() - self._lease

    def _lives(self, db: sqlite3.Connection, worker: str) -> bool:
        query = "SELECT 1 FROM workers WHERE worker = ? AND renewed_at > ?"
        return db.execute(query, (worker, self._horizon)).fetchone() is not None

    def _next_epoch(self, db: sqlite3.Connection) -> int:
        """From the sequence that also numbers runs: no two leases of one name have the same, whatever was deleted."""
        db.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'runs'")
        (epoch,) = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
        return int(epoch)
