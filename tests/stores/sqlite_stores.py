"""Help for the tests of the SQLite store: opening it, looking into its file, making it fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Settings
from gateway.stores.base import Lease
from gateway.stores.sqlite import SqliteStore
from tests.conformance.stores import LONG, Clock, record

__all__ = ["KEY", "Faults", "change", "ended", "heard", "locked", "opened", "rows", "until"]

KEY = record().key


def opened(path: Path, clock: Clock | None = None, **settings: Any) -> SqliteStore:
    return SqliteStore(path, Settings(**settings), clock)


def rows(path: Path, query: str) -> list[Any]:
    """What somebody else sees in the file."""
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def change(path: Path, statement: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute(statement)
    finally:
        db.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Meanwhile nobody else can write."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
    finally:
        db.close()


async def ended(store: SqliteStore, lease: Lease, at: float = 1_700_000_000.0, **fields: Any) -> None:
    """Ends the run of a lease."""
    over = record(lease.key.run_id, lease.key.owner, status="completed", ended_at=at, **fields)
    await store.append(lease, 1, [], over)


async def heard(call: Callable[[Callable[[str], None]], None]) -> str:
    """What a callback of one text is called with."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    call(future.set_result)  # a second call would be an error
    async with asyncio.timeout(LONG):
        return await future


async def until(look: Callable[[], Any]) -> Any:
    """What `look` returns once it is true."""
    async with asyncio.timeout(LONG):
        while not (found := look()):  # noqa: ASYNC110 - what is looked at is in a file or a thread
            await asyncio.sleep(0.005)
    return found


class Faults:
    """Makes statements fail. `before` and `after`: a list of errors for the next statements that begin with `on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = ""
        self.before: list[Exception | None] = []
        self.after: list[Exception | None] = []
        faults = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return faults.run(sql, lambda: super(Connection, self).execute(sql, *values))

            def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return faults.run(sql, lambda: super(Connection, self).executemany(sql, *values))

        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Connection}))

    def run(self, sql: str, execute: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        hit = bool(self.on) and sql.lstrip().startswith(self.on)
        if hit and self.before and (error := self.before.pop(0)) is not None:
            raise error
        cursor = execute()
        if hit and self.after and (error := self.after.pop(0)) is not None:
            raise error
        return cursor
