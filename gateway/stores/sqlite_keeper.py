"""A thread that moves what is committed from the log of the file to the file itself, so that no commit has to.

It is the one work here that waits for the disk: 16 MB and an fsync, which would hold up every event behind it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from contextlib import suppress
from queue import SimpleQueue

from gateway.stores.sqlite_file import StoreFile
from gateway.stores.sqlite_readers import Reading

__all__ = ["Keeper"]

logger = logging.getLogger("gateway")

DUE_BYTES = 8 * 1024 * 1024
BATCH_BYTES = 16 * 1024  # what a commit adds to the log in any case: whole pages


class Keeper:
    """`grown` is for the writing thread: it has committed so many bytes of events."""

    def __init__(self, file: StoreFile) -> None:
        self._reading = Reading(file)
        self._due: SimpleQueue[bool] = SimpleQueue()
        self._grown = 0
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, name="agui-sqlite-keeper", daemon=True).start()

    def grown(self, size: int) -> None:
        self._grown += size + BATCH_BYTES
        if self._grown >= DUE_BYTES:
            self._grown = 0
            self._due.put(True)

    async def close(self) -> None:
        self._due.put(False)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        while self._due.get():
            try:
                self._reading.connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:  # the writer does it when the log has become far too long
                logger.debug("The log of the store could not be moved: %s", error)
                self._reading.close()
        self._reading.close()
        with suppress(RuntimeError):  # the loop has gone
            self._loop.call_soon_threadsafe(self._ended.set_result, None)
