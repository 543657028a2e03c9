"""What leaves the file when its time is up, a little at a time, by whichever worker looks first.

The file does not shrink: what leaves makes room for what comes, and moving pages to its end to cut them off would cost
the one writer more than the disk is worth. `VACUUM` does it in a quiet hour.
"""

from __future__ import annotations

import sqlite3

from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.sqlite_runs import RunTable

__all__ = ["SWEEP_SECONDS", "Sweep"]

SWEEP_SECONDS = 15.0
SLICE_ROWS = 64  # of events, at most 4 MiB: a transaction that no event has to wait for
SLICE_RUNS = 32
MESSAGE_SECONDS = 60.0  # a worker hears within milliseconds; what is older is for one that is not there any more
DEAD_SECONDS = 86_400.0


class Sweep:
    """One step a call, inside a transaction."""

    def __init__(self, runs: RunTable, settings: Settings) -> None:
        self._runs = runs
        self._settings = settings

    def step(self, db: sqlite3.Connection) -> bool:
        """True when there is more to do at once."""
        now = self._runs.now()
        (swept_at,) = db.execute("SELECT swept_at FROM upkeep").fetchone()
        if abs(now - swept_at) < SWEEP_SECONDS / 2:  # also after a clock that went back
            return False
        if self._forget_runs(db, now):
            return True
        self._forget_rest(db, now)
        db.execute("UPDATE upkeep SET swept_at = ?", (now,))
        return False

    def _forget_runs(self, db: sqlite3.Connection, now: float) -> bool:
        query = "SELECT run, owner, run_id FROM runs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
        for run, owner, run_id in db.execute(query, (now, SLICE_RUNS)).fetchall():
            query = "DELETE FROM blocks WHERE rowid IN (SELECT rowid FROM blocks WHERE run = ? LIMIT ?)"
            if db.execute(query, (run, SLICE_ROWS)).rowcount == SLICE_ROWS:
                return True
            self._runs.forget(db, run, RunKey(owner, run_id))
        return db.execute("SELECT 1 FROM runs WHERE expires_at <= ?", (now,)).fetchone() is not None

    def _forget_rest(self, db: sqlite3.Connection, now: float) -> None:
        db.execute("DELETE FROM messages WHERE sent_at < ?", (now - MESSAGE_SECONDS,))
        db.execute("DELETE FROM notes WHERE ended_at < ?", (now - self._settings.interrupt_ttl,))
        db.execute("DELETE FROM visibility WHERE used_at < ?", (now - self._settings.session_ttl,))
        # Its runs are orphans either way.
        db.execute("DELETE FROM workers WHERE renewed_at < ?", (now - DEAD_SECONDS - self._settings.lease_seconds,))
