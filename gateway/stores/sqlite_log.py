"""The events of runs in the file: rows of joined frames, appended, read by cursor, and trimmed. Inside a transaction.

A batch of one run is one row, unless it is larger than a block; a row is the unit in which the oldest events leave.
Small rows of a slow run are joined to blocks when there are enough: reading them one by one costs 15 times as much.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.run.log import BLOCK_BYTES
from gateway.run.records import RunKey

__all__ = [
    "Held",
    "Look",
    "Row",
    "append",
    "find_lease",
    "hold",
    "last_of",
    "look",
    "read_after",
    "rows_of",
    "trim",
]

MANY = 8  # rows in a block, from which on it is worth to join them
READ_BYTES = 4 * BLOCK_BYTES  # read ahead by a late viewer in one go


class Row(NamedTuple):
    """Frames `first` to `last`."""

    first: int
    last: int
    data: bytes


class Held(NamedTuple):
    """What is known of the log of a run that is appended to: its bounds, its bytes, and the rows not joined yet.

    These are the `loose` ones after event `sealed`, of `loose_size` bytes.
    """

    run: int
    first: int
    last: int
    size: int
    sealed: int = 0
    loose: int = 0
    loose_size: int = 0

    def longer(self, rows: Sequence[Row]) -> Held:
        size = sum(len(row.data) for row in rows)
        return self._replace(
            last=rows[-1].last,
            size=self.size + size,
            loose=self.loose + len(rows),
            loose_size=self.loose_size + size,
        )


class Look(NamedTuple):
    """A run as a reader finds it."""

    run: int
    last: int
    over: bool


def rows_of(pieces: Iterable[tuple[bytes, int]], last: int) -> list[Row]:
    """Pieces, each with its number of frames, joined to rows of at most a block; a larger piece stays whole."""
    rows: list[Row] = []
    parts: list[bytes] = []
    size, first = 0, last + 1
    for data, count in pieces:
        if parts and size + len(data) > BLOCK_BYTES:
            rows.append(Row(first, last, b"".join(parts)))
            parts, size, first = [], 0, last + 1
        parts.append(data)
        size += len(data)
        last += count
    if parts:
        rows.append(Row(first, last, parts[0] if len(parts) == 1 else b"".join(parts)))
    return rows


def find_lease(db: sqlite3.Connection, key: RunKey) -> tuple[int, int] | None:
    """Number and epoch of a run."""
    query = "SELECT run, epoch FROM runs WHERE run_id = ? AND owner IS ?"
    found: tuple[int, int] | None = db.execute(query, (key.run_id, key.owner)).fetchone()
    return found


def last_of(db: sqlite3.Connection, run: int) -> tuple[int | None, int]:
    """Epoch of the run, None when it is not there, and the number of its last event."""
    query = "SELECT (SELECT epoch FROM runs WHERE run = ?1), (SELECT max(last) FROM blocks WHERE run = ?1)"
    epoch, last = db.execute(query, (run,)).fetchone()
    return epoch, last or 0


def hold(db: sqlite3.Connection, run: int) -> Held:
    query = "SELECT coalesce(min(first), 1), coalesce(max(last), 0), coalesce(sum(length(data)), 0) FROM blocks"
    first, last, size = db.execute(query + " WHERE run = ?", (run,)).fetchone()
    return Held(run, first, last, size, sealed=last)


def append(db: sqlite3.Connection, held: Held, rows: list[Row]) -> Held:
    db.executemany("INSERT INTO blocks VALUES (?, ?, ?, ?)", [(held.run, *row) for row in rows])
    return held.longer(rows)


def append_alone(db: sqlite3.Connection, held: Held, row: Row, epoch: int) -> bool:
    """Outside a transaction: appends one row if the run still has this epoch, and ends as we know it."""
    query = """
        INSERT INTO blocks SELECT ?1, ?2, ?3, ?4 FROM runs WHERE run = ?1 AND epoch = ?5
        AND coalesce((SELECT max(last) FROM blocks WHERE run = ?1), 0) = ?6"""
    return db.execute(query, (held.run, *row, epoch, held.last)).rowcount == 1


def seal(db: sqlite3.Connection, held: Held) -> Held:
    """Joins the loose rows when they fill a block."""
    if held.loose_size < BLOCK_BYTES:
        return held
    if held.loose >= MANY:
        query = "SELECT first, last, data FROM blocks WHERE run = ? AND last > ? ORDER BY last"
        rows = _joined([Row(*row) for row in db.execute(query, (held.run, held.sealed))])
        db.execute("DELETE FROM blocks WHERE run = ? AND last > ?", (held.run, held.sealed))
        db.executemany("INSERT INTO blocks VALUES (?, ?, ?, ?)", [(held.run, *row) for row in rows])
    return held._replace(sealed=held.last, loose=0, loose_size=0)


def too_large(held: Held, max_bytes: int, max_events: int) -> bool:
    return held.size > max_bytes or held.last - held.first >= max_events


def trim(db: sqlite3.Connection, held: Held, max_bytes: int, max_events: int) -> Held:
    """Drops the oldest rows until both bounds hold; the last row always stays."""
    if not too_large(held, max_bytes, max_events):
        return held
    first, size, gone = held.first, held.size, 0
    query = "SELECT first, last, length(data) FROM blocks WHERE run = ? ORDER BY last"
    oldest = db.execute(query, (held.run,))
    for first, last, length in oldest:
        if last == held.last or (size <= max_bytes and held.last - first < max_events):
            break
        size, gone = size - length, last
    oldest.close()
    db.execute("DELETE FROM blocks WHERE run = ? AND last <= ?", (held.run, gone))
    return held._replace(first=first, size=size)


def look(db: sqlite3.Connection, key: RunKey, now: float) -> Look | None:
    query = """
        SELECT run, coalesce((SELECT max(last) FROM blocks WHERE blocks.run = runs.run), 0), ended_at IS NOT NULL
        FROM runs WHERE run_id = ? AND owner IS ? AND (expires_at IS NULL OR expires_at > ?)"""
    found = db.execute(query, (key.run_id, key.owner, now)).fetchone()
    return None if found is None else Look(found[0], found[1], bool(found[2]))


def read_after(db: sqlite3.Connection, run: int, cursor: int, limit: int = READ_BYTES) -> list[Row]:
    """The rows after a cursor, small ones joined, until there are `limit` bytes; the first may begin before it."""
    found: list[Row] = []
    size = 0
    rows = db.execute("SELECT first, last, data FROM blocks WHERE run = ? AND last > ? ORDER BY last", (run, cursor))
    for row in rows:
        found.append(Row(*row))
        size += len(row[2])
        if size >= limit:
            break
    rows.close()
    return _joined(found)


def _joined(rows: list[Row]) -> list[Row]:
    if len(rows) < 2:
        return rows
    first = rows[0].first
    return rows_of(((row.data, row.last - row.first + 1) for row in rows), first - 1)
