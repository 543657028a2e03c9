"""One thread a process that reads what other processes have written: events of the runs followed here, and messages.

It looks every few milliseconds whether the file has changed, and only while somebody waits for something.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from gateway.stores.sqlite_feed import FEED_BYTES, RunFeed
from gateway.stores.sqlite_file import StoreFile
from gateway.stores.sqlite_log import Row
from gateway.stores.sqlite_readers import Reading

__all__ = ["News", "Tail"]

logger = logging.getLogger("gateway")

POLL_SECONDS = 0.015  # workers see each other's events within 25 ms (contract 7)


class News(NamedTuple):
    """What has come of one run. `last`: the file is this far, but it is too much to be brought."""

    feed: RunFeed
    rows: list[Row]
    last: int
    over: bool


class Tail:
    """`followed` and `subscribed` say what is waited for, on the thread; `report` is called on the loop."""

    def __init__(
        self,
        file: StoreFile,
        followed: Callable[[], list[RunFeed]],
        subscribed: Callable[[], Iterable[str]],
        report: Callable[[list[News], list[tuple[str, str, str]]], None],
    ) -> None:
        self._reading = Reading(file)
        self._followed = followed
        self._subscribed = subscribed
        self._report = report
        self._kicks: SimpleQueue[bool] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] | None = None
        self._closed = False
        self._version = -1
        self._brought: dict[int, int] = {}
        self._heard: dict[str, int] = {}

    def kick(self) -> None:
        """Somebody waits for something new."""
        if self._closed:  # what was read in the last moment
            return
        if self._ended is None:
            self._ended = self._loop.create_future()
            threading.Thread(target=self._run, args=(self._ended,), name="agui-sqlite-tail", daemon=True).start()
        self._kicks.put(True)

    async def close(self) -> None:
        self._closed = True
        if self._ended is not None:
            self._kicks.put(False)
            await asyncio.shield(self._ended)

    # -- the thread's --

    def _run(self, ended: asyncio.Future[None]) -> None:
        going, kicked = True, False
        while going:
            try:
                self._look(kicked)
            except sqlite3.Error as error:
                logger.debug("The store could not be read for news: %s", error)
                self._reading.close()
                self._version = -1
            going, kicked = self._wait()
        self._reading.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(ended.set_result, None)

    def _wait(self) -> tuple[bool, bool]:
        """Whether to go on, and whether somebody new waits for something."""
        idle = not self._followed() and not list(self._subscribed())
        try:
            going = self._kicks.get(timeout=None if idle else POLL_SECONDS)
        except Empty:
            return True, False
        while going and self._kicks.qsize():
            going = self._kicks.get_nowait()
        return going, True

    def _look(self, kicked: bool) -> None:
        db = self._reading.connection()
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version == self._version and not kicked:
            return
        news = [found for feed in self._followed() if (found := self._news(db, feed))]
        messages = [message for worker in self._subscribed() for message in self._messages(db, worker)]
        self._version = version  # as of before the look: what came during it is looked for again
        self._brought = {feed.run: max(self._brought.get(feed.run, 0), feed.log.last) for feed in self._followed()}
        self._brought.update((item.feed.run, item.last) for item in news)
        if news or messages:
            with suppress(RuntimeError):  # the loop has gone
                self._loop.call_soon_threadsafe(self._report, news, messages)

    def _news(self, db: sqlite3.Connection, feed: RunFeed) -> News | None:
        """The end is looked for before the events: then all of them are there with it."""
        found = db.execute("SELECT ended_at IS NOT NULL FROM runs WHERE run = ?", (feed.run,)).fetchone()
        over = found is None or bool(found[0])
        known = max(feed.log.last, self._brought.get(feed.run, 0))
        query = "SELECT first, last, data FROM blocks WHERE run = ? AND last > ? ORDER BY last"
        cursor = db.execute(query, (feed.run, known))
        rows: list[Row] = []
        size, last = 0, known
        for row in cursor:
            size, last = size + len(row[2]), row[1]
            if size > FEED_BYTES:
                rows = []
                break
            rows.append(Row(*row))
        cursor.close()
        if size > FEED_BYTES:
            (last,) = db.execute("SELECT max(last) FROM blocks WHERE run = ?", (feed.run,)).fetchone()
        return News(feed, rows, last or 0, over) if over or last != known else None

    def _messages(self, db: sqlite3.Connection, worker: str) -> list[tuple[str, str, str]]:
        query = "SELECT message, kind, body FROM messages WHERE worker = ? AND message > ? ORDER BY message"
        found = db.execute(query, (worker, self._heard.get(worker, 0))).fetchall()
        if found:
            self._heard[worker] = found[-1][0]
        return [(worker, kind, body) for _, kind, body in found]
