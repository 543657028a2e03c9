"""What followers in this process read from: one feed per followed run, and one reader of Redis for all of them.

A feed has the newest events only. They come from this process's own writer, as soon as they are stored, or, for a run
of another worker, from the tail: one blocking `XREAD` over all such runs. A follower that is further behind reads the
log in pages. Feeds live as long as somebody holds a follower.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakValueDictionary

from gateway.errors import NotFound, StoreError
from gateway.run.log import BlockLog, frames_after
from gateway.run.records import RunKey
from gateway.stores.ahead import Piece
from gateway.stores.base import Message
from gateway.stores.feed import Feed
from gateway.stores.redis_client import ResponseError
from gateway.stores.redis_keys import Keys, RunKeys
from gateway.stores.redis_line import LONGEST_PAUSE, SHORTEST_PAUSE, Again, Line, Wire
from gateway.stores.redis_scripts import Command

__all__ = ["Letters", "RunFeed", "Tail"]

logger = logging.getLogger(__name__)

WINDOW = 512 * 1024  # bytes that a feed holds for those that are a little behind
ENTRIES = 32  # of one stream in one answer
BLOCK_MS = 5_000
WAKEUP_SECONDS = 60
LARGEST = 2**64 - 1  # the second half of an entry's id


class RunFeed(Feed):
    """The newest events of a run. `opened`: it is known how far the log has come; `own`: a writer here feeds it."""

    def __init__(self, key: RunKey, keys: RunKeys) -> None:
        super().__init__()
        self.key = key
        self.keys = keys
        self.opened = False
        self.own = False
        self.shut = False

    def open(self, last: int, over: bool) -> None:
        self.log = BlockLog(last)
        self.opened = True
        if over:
            self.close()
        self.rouse()

    def take(self, entries: Iterable[tuple[int, int, bytes]], unstored: int = 0) -> None:
        """Frames that are stored; those that are here already are skipped. So many bytes of these are not, and stay."""
        if not self.opened or self.log.closed:
            return
        for first, last, data in entries:
            if first > self.log.last + 1:
                self.log = BlockLog(first - 1)  # whoever has not seen what is missing reads it in pages
            if last > (known := self.log.last):
                self.append(frames_after(data, first, known), last - known)
        self.log.trim(WINDOW + unstored, sys.maxsize)

    def show(self, pieces: Iterable[Piece]) -> None:
        """Frames that are not stored yet; what follows on nothing here comes when it is."""
        for piece in pieces:
            if self.opened and not self.log.closed and piece.first == self.log.last + 1:
                self.append(piece.data, piece.last - piece.first + 1)

    def adopt(self, last: int) -> None:
        """A writer of this process feeds it from now on; the log has come to `last`."""
        self.own = True
        if self.opened and self.log.last < last and not self.log.closed:
            self.log = BlockLog(last)
            self.rouse()


class Letters:
    """What a worker hears, until its store is closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self.after = "0-0"


class Stream(NamedTuple):
    """One stream of the tail: from where on it is read, and who takes an entry's id and fields."""

    after: str
    take: Callable[[bytes, list[bytes]], None]


class Tail:
    """Feeds by run, letters by worker, and the task that reads for them."""

    def __init__(self, wire: Wire, line: Line, keys: Keys, store_timeout: float) -> None:
        self.feeds: WeakValueDictionary[RunKey, RunFeed] = WeakValueDictionary()
        self.letters: dict[str, Letters] = {}
        #: Takes the fields of an entry of a worker's stream.
        self.hear: Callable[[str, list[bytes]], None] = lambda worker, fields: None
        #: How far the writer that this process has for a run has come; None: it has none.
        self.own: Callable[[RunKey], int | None] = lambda key: None
        #: What that has not stored yet, as far as it may be seen.
        self.ahead: Callable[[RunKey], Iterable[Piece]] = lambda key: ()
        self.closed = False
        self._wire = wire
        self._line = line
        self._keys = keys
        self._timeout = store_timeout
        self._wakeup = keys.wakeup(uuid4().hex)
        self._woken = "0-0"
        self._waking = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Followers end."""
        self.closed = True
        for feed in list(self.feeds.values()):
            feed.shut = True
            feed.rouse()
        for letters in self.letters.values():
            letters.queue.put_nowait(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._wire.drop()

    def feed(self, key: RunKey) -> RunFeed:
        """The feed of a run, opened as soon as Redis has said how far its log is."""
        feed = self.feeds.get(key)
        if feed is None or feed.error is not None:
            feed = self.feeds[key] = RunFeed(key, self._keys.run(key))
            feed.shut = self.closed
            last = self.own(key)
            if last is not None:
                feed.own = True
                feed.open(last, False)
                feed.show(self.ahead(key))
            else:
                asked = self._line.submit(("HMGET", feed.keys.run, "last", "over", "gone"))
                asked.add_done_callback(partial(self._opened, feed))
        return feed

    def subscribe(self, worker: str) -> Letters:
        if worker not in self.letters:
            self.letters[worker] = Letters()
            self.wake()
        return self.letters[worker]

    def release(self, key: RunKey) -> None:
        """This process does not write the run any more: what others write comes from Redis."""
        feed = self.feeds.get(key)
        if feed is not None and feed.own:
            feed.own = False
            self.wake()

    def wake(self) -> None:
        """The streams to read are others now: interrupts the read."""
        if not self._waking and not self.closed:
            self._waking = True
            note: Command = ("XADD", self._wakeup, "MAXLEN", 1, "*", "w", "")
            self._line.tell(note, ("EXPIRE", self._wakeup, WAKEUP_SECONDS))

    def _opened(self, feed: RunFeed, asked: asyncio.Future[list[Any]]) -> None:
        if asked.cancelled():
            feed.fail(StoreError("The store is closed."))
            return
        error = asked.exception()
        if error is not None:
            feed.fail(error if isinstance(error, Exception) else StoreError(str(error)))
            return
        last, over, _ = asked.result()[0]
        if last is None:
            feed.fail(NotFound(f"No run {feed.key.run_id!r}.", code="run_not_found"))
            return
        own = self.own(feed.key)
        feed.own = own is not None
        feed.open(max(int(last), own or 0), over is not None)
        feed.show(self.ahead(feed.key))
        if not feed.own and not feed.log.closed:
            self.wake()

    # -- reading --

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failing_since, pause = None, 0.0
        while True:
            self._waking = False
            streams = self._streams()
            ids = [stream.after for stream in streams.values()]
            read: Command = ("XREAD", "COUNT", ENTRIES, "BLOCK", BLOCK_MS, "STREAMS", *streams, *ids)
            (reply,) = await self._wire.round([read], BLOCK_MS / 1000 + self._timeout / 4)
            if isinstance(reply, Again | ResponseError):
                failing_since = failing_since or loop.time()
                if loop.time() - failing_since > self._timeout:
                    self._give_up(reply)
                pause = min(max(2 * pause, SHORTEST_PAUSE), LONGEST_PAUSE)
                await asyncio.sleep(pause)
                continue
            failing_since, pause = None, 0.0
            for name, entries in reply or ():
                for number, fields in entries:
                    streams[name].take(number, fields)

    def _streams(self) -> dict[bytes, Stream]:
        streams = {self._wakeup: Stream(self._woken, self._wake_read)}
        for worker, letters in self.letters.items():
            streams[self._keys.messages(worker)] = Stream(letters.after, partial(self._letter, worker))
        for feed in list(self.feeds.values()):
            if feed.opened and not feed.own and not feed.log.closed and feed.error is None:
                streams[feed.keys.log] = Stream(f"{feed.log.last}-{LARGEST}", partial(_entry, feed))
        return streams

    def _wake_read(self, number: bytes, fields: list[bytes]) -> None:
        self._woken = number.decode()

    def _letter(self, worker: str, number: bytes, fields: list[bytes]) -> None:
        self.letters[worker].after = number.decode()
        self.hear(worker, fields)

    def _give_up(self, reply: Any) -> None:
        """Nobody can say what the runs of other workers do."""
        cause = reply.cause if isinstance(reply, Again) else reply
        logger.error("Redis cannot be read: %s", cause)
        for feed in list(self.feeds.values()):
            if not feed.own and not feed.log.closed:
                feed.fail(StoreError(f"Redis cannot be read: {cause}"))


def _entry(feed: RunFeed, number: bytes, fields: list[bytes]) -> None:
    """An entry of a run's log: frames, or its end."""
    last, _, span = number.partition(b"-")
    if fields[0] == b"e":
        feed.close()
    else:
        feed.take([(int(last) - int(span), int(last), fields[1])])
