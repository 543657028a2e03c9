"""The store in Redis or Valkey: many workers on many machines share runs, which live as long as Redis keeps them.

One stream per run with an entry per batch, one hash with what is known of the run; every change that must be one is a
Lua script over the keys of one run (`redis_scripts`). Needs Redis 6.2 or later with `maxmemory-policy noeviction`, and
append-only files (AOF) for runs to outlive a restart of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from gateway.errors import Conflict, StoreError
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.ahead import Ahead, Piece
from gateway.stores.base import Bounds, Created, Lease, Message, Page, QuestionChanged, StopRequest, ViewersChanged
from gateway.stores.redis_client import AuthenticationError, check_server, make_pool
from gateway.stores.redis_commit import Committer
from gateway.stores.redis_follower import RedisFollower
from gateway.stores.redis_keys import Keys, raw
from gateway.stores.redis_leases import RedisLeases
from gateway.stores.redis_line import Again, Line, Wire
from gateway.stores.redis_runs import Index, RunFields, fields_command, read_run
from gateway.stores.redis_scripts import CREATE, DISCARD, FIELDS, STOP, Argument, Command
from gateway.stores.redis_state import NONCE, RedisState, nonce
from gateway.stores.redis_sync import Renewer
from gateway.stores.redis_tail import RunFeed, Tail
from gateway.stores.redis_watch import Watch
from gateway.stores.redis_writer import Entry, Item, RedisWriter, Taken, record_bytes
from gateway.stores.values import dump, load

__all__ = ["RedisStore"]

logger = logging.getLogger(__name__)

PAGES = 4  # pages of events in one round trip
LARGE = 16 * 1024  # bytes whose delivery is worth to be done beside the next round trip
MESSAGES = 1_000  # that wait for one worker, at most
MESSAGE_SECONDS = 60  # a message only saves time: the run itself says whether it is to stop
LAST_SECONDS = 1.0  # what is still to be stored when the store is closed has so long


KINDS: dict[type[Message], str] = {StopRequest: "stop", QuestionChanged: "question", ViewersChanged: "viewers"}


class RedisStore(RedisState, RedisLeases):
    """Runs, their logs, Stop, and messages; the rest is in `RedisState` and `RedisLeases`.

    `url` is `redis://[user:password@]host[:6379][/database]`, `rediss://` or `unix://`. `clock` is for tests: without
    it all times are the server's.
    """

    shared = True

    def __init__(self, url: str, settings: Settings | None = None, clock: Callable[[], float] | None = None) -> None:
        self._settings = settings or Settings()
        self._clock = clock
        self._keys = Keys(self._settings.redis_prefix)
        self._pool = make_pool(url, self._settings)
        self._renewer = Renewer(url, self._settings)
        #: By run: the writer of the newest lease that this process has had, until the run is over.
        self._writers: dict[RunKey, RedisWriter] = {}
        self._stale = {}

    async def __aenter__(self) -> Self:
        await self._check()
        settings, timeout = self._settings, self._settings.store_timeout
        self._line = Line(Wire(self._pool), timeout)
        self._pages = Line(Wire(self._pool), timeout, PAGES)
        self._committer = Committer(Wire(self._pool), settings, self, self._now)
        self._tail = Tail(Wire(self._pool), self._line, self._keys, timeout)
        self._index = Index(settings, self._keys, self._line)
        self._watch = Watch(
            self._line, self._tail, self._writers.values, self._committer.lose, max(settings.lease_seconds, 1)
        )
        self._tail.hear, self._tail.own, self._tail.ahead = self._hear, self._own, self._ahead
        for wire in (self._line.wire, self._committer.wire):
            wire.connected = self._watch.poke
        self._parts: tuple[Watch | Committer | Tail | Line, ...] = (
            self._watch, self._committer, self._tail, self._pages, self._line,
        )  # fmt: skip
        for part in self._parts:
            part.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flushes = [writer.flush() for writer in self._writers.values() if writer.due]
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await asyncio.gather(*flushes, return_exceptions=True)
        for part in self._parts:
            await part.close()
        await asyncio.to_thread(self._renewer.close)

    async def _check(self) -> None:
        """Raises `StoreError` when there is no Redis, or one that cannot be used."""
        wire, loop = Wire(self._pool), asyncio.get_running_loop()
        deadline = loop.time() + self._settings.store_timeout
        try:
            while True:
                (info,) = await wire.round([("INFO",)], max(self._settings.store_timeout / 4, 0.05))
                if not isinstance(info, Again):
                    break
                if isinstance(info.cause, AuthenticationError) or loop.time() > deadline:
                    raise StoreError(f"Redis cannot be used: {info.cause}") from info.cause
                await asyncio.sleep(0.1)
        finally:
            await wire.drop()
        check_server(info)

    # -- runs --

    async def create(self, record: RunRecord, fingerprint: bytes, worker: str) -> Created:
        key, token, now = record.key, nonce(), self._now()
        fields: list[Argument] = ["record", record_bytes(record)]
        for name, value in (("messages", record.messages), ("result", record.result)):
            if value is not None:
                fields += [name, value]
        commands: list[Command] = [*self._holds(key, worker)]
        if key.owner is not None:
            commands.append(self._index.add(key.owner, record, now))
        commands.append(CREATE(self._keys.run(key), now, fingerprint, raw(worker), token, *fields))
        asked = self._line.submit(*commands)
        try:
            *others, answer = await asyncio.shield(asked)
        except (asyncio.CancelledError, StoreError):
            # Nobody has its lease, so nobody would ever end it.
            asked.add_done_callback(lambda _: self._abandon(Lease(key, worker, 1), token))
            raise
        if answer[0] == 2:
            raise Conflict(f"Run {key.run_id!r} exists and came from a different request.")
        if key.owner is not None:
            self._index.added(key.owner, record, others[-1], now, created=answer[0] == 0)
        if answer[0] == 1:
            found = RunFields(answer[1])
            if found.worker != worker:
                self._line.tell(("SREM", self._keys.held(worker), dump(key)))
            return Created(found.record, None)
        lease = Lease(key, worker, 1)
        self._granted(lease, 0)
        self._writers[key].holds(record)
        return Created(record, lease)

    async def discard(self, lease: Lease) -> None:
        await self._forget(lease)

    async def get(self, key: RunKey) -> RunRecord | None:
        await self._caught_up(key)
        found = read_run(await self._line.ask(fields_command(self._keys.run(key).run)), self._time())
        return None if found is None else found.record

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord | None = None) -> None:
        writer = self.writer(lease)
        while writer.last is None:
            await writer.flush()
        if first > writer.last + 1:
            raise StoreError(f"Append at {first} after {writer.last} would leave a gap.")
        for frame in frames[writer.last + 1 - first :]:
            writer.write(frame)
        if record is not None:
            writer.save(record)
        await writer.flush()

    async def close_run(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord) -> bool:
        writer, taken = self.writer(lease), Taken(first)
        for frame in frames:
            taken.add(Item(frame, 1, None))
        taken.add(Item(b"", 0, record))
        taken.cut()
        closed = await self._committer.close_run(self._line, writer, taken)
        if closed:
            writer.ended = True
            self.stored(writer, taken.entries)
            self.ended(writer)
        return closed

    async def bounds(self, key: RunKey) -> Bounds | None:
        await self._caught_up(key)
        if not await self._there(key):
            return None
        found = await self._line.ask(("HMGET", self._keys.run(key).run, "first", "last", "over"))
        return None if found[0] is None else Bounds(int(found[0]), int(found[1]), found[2] is not None)

    async def list_runs(
        self,
        owner: str,
        *,
        thread_id: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        return await self._index.page(owner, thread_id, status, limit, after, self._time())

    def writer(self, lease: Lease) -> RedisWriter:
        known = self._writers.get(lease.key)
        if known is not None and known.lease.epoch == lease.epoch:
            return known
        writer = RedisWriter(self._committer, lease, self._keys.run(lease.key), None)
        if known is None or known.lease.epoch < lease.epoch:
            self._writers[lease.key] = writer
        return writer

    def follow(self, key: RunKey, cursor: int) -> RedisFollower:
        return RedisFollower(self._tail, self._pages, key, cursor)

    # -- Stop and messages --

    async def request_stop(self, request: StopRequest) -> RunRecord | None:
        keys = self._keys.run(request.key)
        reason = raw(request.reason) if request.call_id is None else b""
        answer = await self._line.ask(STOP([keys.run, keys.stops], self._now(), nonce(), dump(request), reason))
        if answer is None:
            return None
        found = RunFields(answer)
        if answer[len(FIELDS)] == b"0":
            self._notify(found.worker, request)
        return found.record

    async def stop_requests(self, key: RunKey) -> list[StopRequest]:
        if not await self._there(key):
            return []
        values: list[bytes] = await self._line.ask(("LRANGE", self._keys.run(key).stops, 0, -1))
        return [load(StopRequest, value[NONCE:].decode()) for value in values]

    async def messages(self, worker: str) -> AsyncIterator[Message]:
        letters = self._tail.subscribe(worker)
        while (message := await letters.queue.get()) is not None:
            yield message

    def _notify(self, worker: str, message: Message) -> None:
        letters = self._tail.letters.get(worker)
        if letters is not None:
            letters.queue.put_nowait(message)
        else:
            self._send(worker, KINDS[type(message)], dump(message))

    def _superseded(self, worker: str, key: RunKey) -> None:
        if worker in self._tail.letters:
            self._watch.poke()
        else:
            self._send(worker, "superseded", dump(key))

    def _send(self, worker: str, kind: str, body: str) -> None:
        name = self._keys.messages(worker)
        self._line.tell(("XADD", name, "MAXLEN", "~", MESSAGES, "*", kind, body), ("EXPIRE", name, MESSAGE_SECONDS))

    def _hear(self, worker: str, fields: list[bytes]) -> None:
        kind, body = fields[0].decode(), fields[1].decode()
        if kind == "superseded":
            self._watch.poke()
            return
        for message, name in KINDS.items():
            if name == kind:
                self._tail.letters[worker].queue.put_nowait(load(message, body))

    # -- what becomes of this process's runs (`redis_writer.Ward`) --

    def stored(self, writer: RedisWriter, entries: list[Entry]) -> None:
        feed = self._tail.feeds.get(writer.lease.key)
        if feed is not None:
            feed.own = True
            if sum(len(entry.data) for entry in entries) < LARGE:
                self._feed(writer, feed, entries)
            else:
                # In a moment: first the next round trip goes out, and Redis works while viewers are served.
                self._committer.loop.call_soon(self._feed, writer, feed, entries)

    def _feed(self, writer: RedisWriter, feed: RunFeed, entries: list[Entry]) -> None:
        feed.take(entries, writer.pending_bytes)

    def ended(self, writer: RedisWriter) -> None:
        key = writer.lease.key
        if self._writers.get(key) is writer:
            del self._writers[key]
        feed = self._tail.feeds.get(key)
        if feed is not None and feed.opened:
            self._committer.loop.call_soon(feed.close)
        self._line.tell(("SREM", self._keys.held(writer.lease.worker), dump(key)))

    def lost(self, writer: RedisWriter) -> None:
        key = writer.lease.key
        if self._writers.get(key) is writer:
            del self._writers[key]
            feed = self._tail.feeds.get(key)
            if feed is not None and self._settings.write_behind and feed.log.last > writer.stored:
                feed.fail(StoreError("Redis did not keep what was seen of this run."))
            self._tail.release(key)

    def _granted(self, lease: Lease, last: int) -> None:
        writer = RedisWriter(self._committer, lease, self._keys.run(lease.key), last)
        self._writers[lease.key] = writer
        if self._settings.write_behind:
            writer.ahead = Ahead(last, partial(self._show, lease.key))
        feed = self._tail.feeds.get(lease.key)
        if feed is not None:
            feed.adopt(last)

    def _show(self, key: RunKey, pieces: Sequence[Piece]) -> None:
        feed = self._tail.feeds.get(key)
        if feed is not None:
            feed.show(pieces)

    def _ahead(self, key: RunKey) -> Sequence[Piece]:
        writer = self._writers.get(key)
        return () if writer is None or writer.ahead is None else writer.ahead.pieces

    def _own(self, key: RunKey) -> int | None:
        writer = self._writers.get(key)
        return None if writer is None or writer.last is None else writer.stored

    async def _caught_up(self, key: RunKey) -> None:
        """Who asks this process for a run sees what this process has written of it."""
        writer = self._writers.get(key)
        if writer is not None and writer.busy:
            with suppress(StoreError):
                await writer.flush()

    def _abandon(self, lease: Lease, token: str) -> None:
        self._line.tell(DISCARD(self._keys.run(lease.key), self._now(), lease.epoch, token))

    async def _forget(self, lease: Lease) -> None:
        record: bytes | None = await self._line.ask(DISCARD(self._keys.run(lease.key), self._now(), lease.epoch))
        if record is not None:
            self._writers.pop(lease.key, None)
            self._line.tell(("SREM", self._keys.held(lease.worker), dump(lease.key)))
            self._index.remove(lease.key, load(RunRecord, record.decode()).thread_id)

    # -- time --

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock())

    def _time(self) -> float | None:
        return None if self._clock is None else self._clock()

    async def _there(self, key: RunKey) -> bool:
        if self._clock is None:
            return True
        return read_run(await self._line.ask(fields_command(self._keys.run(key).run)), self._clock()) is not None
