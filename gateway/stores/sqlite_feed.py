"""What the viewers of this process read: the newest events of a run from memory, older ones from the file.

A feed lives while somebody follows its run. It begins with what comes from then on, fed by the run's writer if that is
here, else by the tail reader, and forgets what is too old to be waited for. Rows come with their numbers, so whoever
feeds it may come twice, or late.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from weakref import WeakValueDictionary

from gateway.errors import NotFound, StoreError
from gateway.run.log import BlockLog, frames_after
from gateway.run.records import RunKey
from gateway.stores import sqlite_log as log
from gateway.stores.ahead import Ahead, Piece
from gateway.stores.base import Lease
from gateway.stores.feed import Feed, FeedFollower
from gateway.stores.sqlite_log import Row
from gateway.stores.sqlite_readers import Readers
from gateway.stores.sqlite_stream import Stored, Stream

__all__ = ["FEED_BYTES", "Feeds", "FileFollower", "RunFeed"]

FEED_BYTES = 1024 * 1024  # what a viewer may lag behind before it has to read the file
FAR = sys.maxsize  # the last event of a run that has not been looked at: everybody is behind it


class RunFeed(Feed):
    """The newest events of run number `run`; `local` while its writer is in this process."""

    __slots__ = ("__weakref__", "local", "run")

    def __init__(self, run: int, last: int, local: bool = False) -> None:
        super().__init__()
        self.run = run
        self.local = local
        self.log = BlockLog(last)

    def add(self, rows: Iterable[Row], unstored: int = 0) -> None:
        """Events that are in the file; so many bytes of what is here are not, and stay."""
        for row in rows:
            known = self.log.last
            if row.first > known + 1:
                self.skip(row.last)
            elif row.last > known:
                self.append(frames_after(row.data, row.first, known), row.last - known)
        self.log.trim(FEED_BYTES + unstored, sys.maxsize)

    def show(self, pieces: Iterable[Piece]) -> None:
        """Events that are not in the file yet; what follows on nothing here comes when it is."""
        for piece in pieces:
            if piece.first == self.log.last + 1:
                self.append(piece.data, piece.last - piece.first + 1)

    def skip(self, last: int) -> None:
        """Events up to `last` are in the file and did not come by here: viewers read them there."""
        if last <= self.log.last:
            return
        self.log = BlockLog(last)
        if self.waiting and not self._due:
            self._due = True
            self.loop.call_soon(self._serve_all)


class Feeds:
    """The feeds of this process, and the writers that feed some of them; `behind`: before what they write is stored."""

    def __init__(
        self, readers: Readers, now: Callable[[], float], foreign: Callable[[], None], *, behind: bool = False
    ) -> None:
        self._behind = behind
        self._readers = readers
        self._now = now
        self._foreign = foreign
        self._feeds: WeakValueDictionary[int, RunFeed] = WeakValueDictionary()
        self._streams: dict[RunKey, Stream] = {}
        self.unopened = RunFeed(0, FAR)

    def open(self, stream: Stream) -> None:
        """From now on this writer feeds its run."""
        self._streams[stream.lease.key] = stream
        if self._behind and stream.run is not None:
            stream.ahead = Ahead(stream.last, partial(self._show, stream.run))

    def _show(self, run: int, pieces: Sequence[Piece]) -> None:
        feed = self._feeds.get(run)
        if feed is not None:
            feed.show(pieces)

    def close(self) -> None:
        """No more events for anybody."""
        for feed in list(self._feeds.values()):
            feed.close()
        for stream in list(self._streams.values()):
            stream.lose("closed")
        self._streams.clear()

    def stored(self, stream: Stream, report: Stored) -> None:
        """A batch of the writer is in the file, or the writer has ended."""
        stream.stored(report)
        ended = report.over or stream.lost is not None
        if ended and self._streams.get(stream.lease.key) is stream:
            del self._streams[stream.lease.key]
        feed = self._feeds.get(stream.run) if stream.run is not None else None
        if feed is None:
            return
        if stream.lost is not None and feed.local and feed.log.last > stream.last:
            del self._feeds[feed.run]
            feed.fail(StoreError("The store did not keep what was seen of this run."))
            return
        feed.local = not ended
        feed.add(report.rows, stream.pending_bytes)
        feed.skip(report.last)
        if report.over:
            feed.close()
        elif ended:
            self._foreign()

    def fence(self, lease: Lease) -> None:
        """Somebody has a newer lease: what is written here is not the run any more."""
        stream = self._streams.get(lease.key)
        if stream is not None and stream.lease.epoch < lease.epoch:
            self.stored(stream, Stored(0, 0, 0, 0, [], lost="superseded"))

    def followed(self) -> list[RunFeed]:
        """*Any thread.* The feeds that the tail reader has to look after."""
        found = [ref() for ref in self._feeds.valuerefs()]
        return [feed for feed in found if feed is not None and not feed.local and not feed.log.closed]

    def here(self, key: RunKey) -> RunFeed | None:
        """The feed of a run that is written in this process, which is known without the file."""
        stream = self._streams.get(key)
        if stream is None or stream.run is None:
            return None
        feed = self._feeds.get(stream.run)
        if feed is None:
            feed = self._feeds[stream.run] = RunFeed(stream.run, stream.last, local=True)
            if stream.ahead is not None:
                feed.show(stream.ahead.pieces)
        return feed

    async def find(self, key: RunKey) -> RunFeed:
        """The feed of any run; `NotFound` when there is none."""
        found = await self._readers.read(partial(log.look, key=key, now=self._now()))
        if found is None:
            raise NotFound(f"No run {key.run_id!r}.", code="run_not_found")
        if (feed := self.here(key)) is not None and feed.run == found.run:
            return feed
        feed = self._feeds.get(found.run)
        if feed is None:
            feed = self._feeds[found.run] = RunFeed(found.run, found.last)
            feed.log.closed = found.over
        if not feed.log.closed:
            self._foreign()
        return feed

    async def read(self, run: int, cursor: int) -> list[Row]:
        """Rows of the file after a cursor."""
        return await self._readers.read(partial(log.read_after, run=run, cursor=cursor))


class FileFollower(FeedFollower):
    """See `stores.base.Follower`; opened when it is first read."""

    __slots__ = ("_ahead", "_feeds", "_key", "_reading", "_woken")

    _feed: RunFeed

    def __init__(self, feeds: Feeds, key: RunKey, cursor: int) -> None:
        super().__init__(feeds.here(key) or feeds.unopened, cursor)
        self._feeds = feeds
        self._key = key
        self._ahead: deque[Row] = deque()
        self._reading = self._woken = False

    def wake(self) -> None:
        """As for every follower; one that reads the file is awake, and yields `b""` if it finds nothing."""
        if self._reading:
            self._woken = True
        else:
            super().wake()

    def close(self) -> None:
        super().close()
        self._ahead.clear()
        self._feed = self._feeds.unopened  # so that nobody feeds what nobody reads

    async def _older(self) -> bytes | None:
        if self._ahead:
            return self._next()
        self._reading, self._woken = True, False
        try:
            if self._feed is self._feeds.unopened:
                feed = self._feeds.here(self._key) or await self._feeds.find(self._key)
            else:
                feed = self._feed
                self._ahead.extend(await self._feeds.read(feed.run, self.cursor))
        finally:
            self._reading = False
        if self._closed:
            self._ahead.clear()
            return None
        if feed is self._feed:
            return self._next()
        self._feed = feed
        return b"" if self._woken else None

    def _next(self) -> bytes:
        last = self._feed.log.last
        if not self._ahead:  # it has been forgotten
            self._expire(last + 1, last)
        row = self._ahead[0]
        if row.first > self.cursor + 1:
            self._expire(row.first, max(last, row.last))
        self._ahead.popleft()
        data = frames_after(row.data, row.first, self.cursor)
        self.cursor = row.last
        if self.cursor >= self._feed.log.first - 1:  # it has caught up: the rest comes from the feed
            self._ahead.clear()
        return data
