"""Group commit: stores what all runs of this process have written.

While one round trip runs the next batch gathers: no timer, and no wait when nothing is under way. Followers in this
process are handed what Redis has confirmed (or sooner, see `ahead`); it is not read back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from gateway.errors import Fenced, StoreError
from gateway.settings import Settings
from gateway.stores.redis_keys import raw
from gateway.stores.redis_line import Line, Pump, Request, Wire, whole
from gateway.stores.redis_scripts import APPEND, GUARD, UNGUARD, Argument, Command
from gateway.stores.redis_writer import Entry, RedisWriter, Taken

__all__ = ["GONE", "SUPERSEDED", "Committer", "Ward"]

logger = logging.getLogger(__name__)

ROUND_BYTES = 1024 * 1024
LARGE = 32 * 1024  # a batch without a record that has more goes past Lua, in a transaction
SMALL = 16 * 1024  # who has no more than this goes along whatever the others send

# Orders what one process saves, so that a copy that was sent twice and comes late replaces nothing newer.
REVISIONS = count(1)

GONE = "Redis does not have this run any more."
SUPERSEDED = "Another worker has taken this run over."
STORED, STOPPED = 1, -5
# What `redis_scripts.APPEND` answers. A gap: what was confirmed is gone, as after a failover.
REFUSALS = {
    -1: ("store_lost", GONE),
    -2: ("superseded", SUPERSEDED),
    -3: ("store_lost", "Redis has lost the last events of this run."),
    -4: ("store", "This run is over."),
}


class Ward(Protocol):
    """Who looks after the runs of this process: the store."""

    def stored(self, writer: RedisWriter, entries: list[Entry]) -> None:
        """These are in Redis now."""

    def ended(self, writer: RedisWriter) -> None:
        """The record that says that the run is over is in Redis now."""

    def lost(self, writer: RedisWriter) -> None:
        """Nothing more of this writer will be stored."""


class Committer(Pump):
    """Stores what the writers have; each has one batch at most under way."""

    def __init__(self, wire: Wire, settings: Settings, ward: Ward, now: Callable[[], str]) -> None:
        super().__init__(wire, settings.store_timeout)
        self.loop = asyncio.get_running_loop()
        self._settings = settings
        self._ward = ward
        self._now = now
        self._wanting: dict[RedisWriter, None] = {}

    def want(self, writer: RedisWriter) -> None:
        """This one has something to store."""
        if self._closed is not None:
            writer.lose("store", str(self._closed))
        self._wanting[writer] = None
        self.wake()

    def gather(self, most: int) -> list[Request]:
        batch: list[Request] = []
        size = 0
        for writer in list(self._wanting):
            if len(batch) >= most:
                break
            if size >= ROUND_BYTES and writer.pending_bytes > SMALL:
                continue
            del self._wanting[writer]
            if writer.due and writer.last is None:
                batch.append(Opening(self, writer))
            elif writer.due:
                commit = Commit(self, writer)
                size += commit.taken.size
                batch.append(commit)
        return batch

    def commands(self, writer: RedisWriter, taken: Taken) -> list[Command]:
        """What stores a batch; the answer to the last one says what became of it."""
        if taken.size < LARGE or taken.record is not None or not writer.stored:
            return [self._append(writer, taken)]
        settings, entries = self._settings, taken.entries
        batch = (entries[0].first, entries[-1].last, taken.size)
        limits = (settings.max_run_events, settings.max_run_bytes)
        guard = GUARD(writer.keys, self._now(), writer.lease.epoch, *limits, *batch)
        log = writer.keys.log
        added: list[Command] = [
            ("XADD", log, "NOMKSTREAM", f"{last}-{last - first}", "d", data) for first, last, data in entries
        ]
        # As text: a script that the server does not know would fail, and what it guards would not.
        return [("MULTI",), whole(guard), *added, whole(UNGUARD(writer.keys, "")), ("EXEC",)]

    async def close_run(self, line: Line, writer: RedisWriter, taken: Taken) -> bool:
        """See `Store.close_run`."""
        (code, *_) = await line.ask(self._append(writer, taken, stops=True))
        if code == STOPPED:
            return False
        if code != STORED:
            _, message = REFUSALS[code]
            raise Fenced(message) if message == SUPERSEDED else StoreError(message)
        return True

    def _append(self, writer: RedisWriter, taken: Taken, *, stops: bool = False) -> Command:
        """`stops`: not when there is a Stop that the record does not know."""
        settings, record = self._settings, taken.record
        revision, kept, stop, fields = 0, "", "", list[Argument]()
        if record is not None:
            revision, fields = next(REVISIONS), writer.fields(record)
            stop = record.stop_requested or ""
            kept = str(seconds_kept(settings, record.status)) if record.over else ""
        limits = (settings.max_run_events, settings.max_run_bytes)
        head = (self._now(), writer.lease.epoch, revision, *limits, kept, raw(stop), int(stops), len(fields))
        entries = [part for first, last, data in taken.entries for part in (first, last, data)]
        return APPEND(writer.keys, *head, *fields, *entries)

    def opened(self, writer: RedisWriter, last: int, over: bool) -> None:
        writer.opened(last)
        if over:
            writer.ended = True
            self._ward.ended(writer)
        if writer.due:
            self.want(writer)

    def stored(self, writer: RedisWriter, taken: Taken, trimmed: bool) -> None:
        writer.confirmed(taken)
        if taken.entries:
            self._ward.stored(writer, taken.entries)
        if trimmed:
            writer.trimmed()
        if taken.record is not None and taken.record.over:
            writer.ended = True
            self._ward.ended(writer)
        if writer.due:
            self.want(writer)

    def lose(self, writer: RedisWriter, code: str, message: str) -> None:
        if writer.error is None:
            logger.error("Nothing more of run %s is stored: %s", writer.lease.key.label, message)
            writer.lose(code, message)
            self._ward.lost(writer)


class Opening(Request):
    """Asks how far the log of a run has come."""

    __slots__ = ("_committer", "_writer")

    def __init__(self, committer: Committer, writer: RedisWriter) -> None:
        super().__init__([("HMGET", writer.keys.run, "last", "epoch", "over")], committer.deadline())
        self._committer = committer
        self._writer = writer

    def answered(self, replies: list[Any]) -> None:
        (reply,) = replies
        if isinstance(reply, Exception):
            self._committer.lose(self._writer, "store", f"Redis refused a command: {reply}")
        elif reply[0] is None:
            self._committer.lose(self._writer, "store_lost", GONE)
        elif int(reply[1]) != self._writer.lease.epoch:
            self._committer.lose(self._writer, "superseded", SUPERSEDED)
        else:
            self._committer.opened(self._writer, int(reply[0]), reply[2] is not None)

    def failed(self, error: StoreError) -> None:
        self._committer.lose(self._writer, "store", error.message)


class Commit(Request):
    """Stores one batch of a run."""

    __slots__ = ("_committer", "_writer", "taken")

    whole = True

    def __init__(self, committer: Committer, writer: RedisWriter) -> None:
        self.taken = writer.take()
        super().__init__(committer.commands(writer, self.taken), committer.deadline())
        self._committer = committer
        self._writer = writer

    def answered(self, replies: list[Any]) -> None:
        if self._writer.error is not None:
            return
        reply = replies[-1]
        if len(replies) > 1 and not isinstance(reply, Exception):
            reply = reply[0]  # of a transaction: what the guard said
        if isinstance(reply, Exception):
            self._committer.lose(self._writer, "store", f"Redis refused a command: {reply}")
        elif reply[0] == STORED:
            self._committer.stored(self._writer, self.taken, bool(reply[2]))
        else:
            self._committer.lose(self._writer, *REFUSALS[reply[0]])

    def failed(self, error: StoreError) -> None:
        self._committer.lose(self._writer, "store", error.message)


def seconds_kept(settings: Settings, status: str) -> float:
    """How long a run is kept after its end."""
    return settings.run_ttl + (settings.interrupt_ttl if status == "interrupted" else 0)
