"""The file of a SQLite store: how it is opened, what tables it has, and what is wrong with one that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from gateway.errors import StoreError

__all__ = ["StoreFile", "is_trouble"]

VERSION = 1
APPLICATION = 0x41475549  # "AGUI": tells our file from another program's
BUSY_SECONDS = 1.0  # what one attempt waits for another process; the attempts are repeated
WAL_PAGES = 16_000  # 64 MB: when a commit empties the log after all, which `sqlite_keeper` does before it is due
WAL_BYTES = 64 * 1024 * 1024  # what is left of a log that a burst made longer

# A run is a number, `run`, that is never used twice: who still holds that of a run that has gone finds nothing.
# The sequence also counts the epochs. What changes with every transition is apart from what never does (`bodies`),
# and a batch of events is one row, whoever it belongs to, so that a commit touches few pages.
SCHEMA = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT, run_id TEXT NOT NULL, thread_id TEXT NOT NULL, status TEXT NOT NULL,
    fingerprint BLOB NOT NULL, worker TEXT NOT NULL, epoch INTEGER NOT NULL,
    ended_at REAL, expires_at REAL, stop_requested TEXT, record TEXT NOT NULL, takes_notes INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX runs_by_key ON runs (run_id, owner);
CREATE INDEX runs_by_owner ON runs (owner);
CREATE INDEX runs_by_thread ON runs (owner, thread_id);
CREATE INDEX runs_at_work ON runs (worker) WHERE ended_at IS NULL;
CREATE INDEX runs_by_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE bodies (run INTEGER PRIMARY KEY, messages BLOB, result BLOB);
CREATE TABLE blocks (
    run INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, last)
);
CREATE TABLE stops (stop INTEGER PRIMARY KEY, run INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX stops_by_run ON stops (run);
CREATE TABLE messages (
    message INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT NOT NULL, sent_at REAL NOT NULL,
    kind TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX messages_by_worker ON messages (worker);
CREATE TABLE watching (
    run INTEGER NOT NULL, worker TEXT NOT NULL, watching INTEGER NOT NULL, PRIMARY KEY (run, worker)
) WITHOUT ROWID;
CREATE TABLE workers (worker TEXT PRIMARY KEY, renewed_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE questions (
    question INTEGER PRIMARY KEY, run INTEGER NOT NULL, interrupt_id TEXT NOT NULL, body TEXT NOT NULL,
    UNIQUE (run, interrupt_id)
);
CREATE TABLE asked (interrupt_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX asked_by_run ON asked (run);
CREATE TABLE notes (
    owner TEXT NOT NULL, thread_id TEXT NOT NULL, run_id TEXT NOT NULL, ended_at REAL NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (owner, thread_id, run_id)
);
CREATE INDEX notes_by_age ON notes (ended_at);
CREATE TABLE visibility (session TEXT PRIMARY KEY, used_at REAL NOT NULL, body TEXT NOT NULL);
CREATE INDEX visibility_by_age ON visibility (used_at);
CREATE TABLE tickets (digest TEXT PRIMARY KEY, owner TEXT, run_id TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX tickets_by_run ON tickets (run_id, owner);
CREATE TABLE upkeep (swept_at REAL NOT NULL);
INSERT INTO upkeep VALUES (0);
"""


def is_trouble(error: BaseException) -> bool:
    """Whether the file may recover from it: a lock, a full disk, a file that has gone; not a mistake of ours."""
    return isinstance(error, sqlite3.OperationalError | OSError | StoreError) or type(error) is sqlite3.DatabaseError


class StoreFile:
    """One database file; `opened` counts how often it was opened anew because another file had taken its place."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path.absolute()  # whatever becomes of the working directory
        self._busy = min(BUSY_SECONDS, timeout / 4)
        self.opened = 0
        self._identity: tuple[int, int] | None = None

    def open(self) -> sqlite3.Connection:
        """A connection that writes; makes the file and its tables. Raises `StoreError` when it cannot be used."""
        self._check_place()
        connection = None
        try:
            connection = self._connect("rwc")
            _is_empty(connection, self.path)  # before anything is changed in a file that is not ours
            _use_wal(connection)
            _make_tables(connection, self.path)
            self._identity = self._look()
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise StoreError(self._explain(error)) from error
            raise
        self.opened += 1
        return connection

    def reader(self) -> sqlite3.Connection:
        """A connection that only reads."""
        connection = self._connect("rw")
        connection.execute("PRAGMA query_only = 1")
        return connection

    @property
    def replaced(self) -> bool:
        """Whether the file has gone, or is another one than was opened: somebody has deleted or restored it."""
        try:
            return self._look() != self._identity
        except OSError:
            return True

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self._busy,
            isolation_level=None,  # we say ourselves where a transaction begins
            check_same_thread=False,  # one thread each; the last one may be closed by another
            cached_statements=256,
        )

    def _look(self) -> tuple[int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def _check_place(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreError(f"The folder of the SQLite store does not exist: {folder}")
        if self.path.is_dir():
            raise StoreError(f"The SQLite store is a folder, not a file: {self.path}")
        # SQLite keeps two more files beside it.
        if not os.access(folder, os.W_OK):
            raise StoreError(f"The folder of the SQLite store is not writable: {folder}")
        if self.path.exists() and not os.access(self.path, os.W_OK):
            raise StoreError(f"The SQLite store is not writable: {self.path}")

    def _explain(self, error: sqlite3.Error) -> str:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return f"The SQLite store is no SQLite database: {self.path}"
        return f"The SQLite store cannot be opened: {self.path}: {error}"


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers do not wait for the writer, and a commit appends to one file."""
    (mode,) = _patiently(connection, "PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise sqlite3.OperationalError("its file system has no shared memory, which WAL needs")
    # Without power a commit of the last moments may be lost, never the file; a process that dies loses nothing.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute("PRAGMA foreign_keys = OFF")  # what belongs to a run is deleted in slices, by us


def _patiently(connection: sqlite3.Connection, statement: str) -> tuple[str]:
    """SQLite does not wait for the lock of a change of its mode, so several that start together collide."""
    deadline = time.monotonic() + BUSY_SECONDS * 5
    while True:
        try:
            found: tuple[str] = connection.execute(statement).fetchone()
            return found
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables are still to be made; `StoreError` when there are some that this code does not know."""
    # First: another worker may make the tables between the looks, and whoever sees them is to see whose they are.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if tables and application != APPLICATION:
        raise StoreError(f"The SQLite store is a database of another program: {path}")
    if version > VERSION:
        raise StoreError(
            f"The SQLite store was written by a newer version of the gateway (format {version}, this one knows "
            f"{VERSION}): {path}"
        )
    return not tables


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    if not _is_empty(connection, path):
        return  # without the lock: whoever has it, a worker that stands still perhaps, keeps nobody from starting
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection, path):
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
