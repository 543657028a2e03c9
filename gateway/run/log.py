"""An append-only log of frames with cursors: what every viewer of a run reads.

Frames come in pieces of one or many. They form a short tail; when it would pass 64 KiB it is sealed into one block that
all readers share, so replaying costs no joins. A cursor is the number of the last frame a reader has seen (0: none).
Inside a piece it is found by the frame's own `id:` line, so that appending, which happens a million times, keeps no
index for resuming, which happens once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

__all__ = ["BLOCK_BYTES", "BlockLog", "Chunk", "frames_after"]

# One socket write of this size reaches the rate of raw TCP on loopback; larger ones only delay other streams
# (measured: reference/performance.md 7 and 8).
BLOCK_BYTES = 64 * 1024


class Chunk(NamedTuple):
    """Frames `(after, last]` as one piece of bytes; `last` is the reader's next cursor."""

    data: bytes
    last: int


NOTHING = (-1, Chunk(b"", -1))


class Block(NamedTuple):
    """Sealed frames `first` to `last`."""

    first: int
    last: int
    data: bytes


class BlockLog:
    """Frames numbered 1, 2, 3 …; `first` and `last` bound what is still there (`first > last`: nothing).

    A frame is what `wire.sse.frame` makes: `id: <number>`, a line of data, an empty line.
    """

    __slots__ = ("_blocks", "_firsts", "_join", "_room", "_sealed", "_tail", "_tail_firsts", "closed", "last")

    def __init__(self, last: int = 0) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._sealed = 0
        self._tail: list[bytes] = []
        self._tail_firsts: list[int] = []
        self._room = BLOCK_BYTES
        self._join = NOTHING
        self.last = last
        self.closed = False

    @property
    def first(self) -> int:
        """Number of the oldest frame that can still be read; `last + 1` when there is none."""
        if self._firsts:
            return self._firsts[0]
        return self._tail_firsts[0] if self._tail_firsts else self.last + 1

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._sealed + BLOCK_BYTES - self._room

    def append(self, data: bytes, count: int = 1) -> bool:
        """Adds the frames `last + 1` to `last + count`; true when that sealed a block."""
        size = len(data)
        sealed = size > self._room and bool(self._tail)
        if sealed:
            self._seal()
        self._tail.append(data)
        self._tail_firsts.append(self.last + 1)
        self._room -= size
        self.last += count
        return sealed

    def read(self, cursor: int) -> Chunk:
        """What comes after `cursor`, at most one block of it; `Chunk(b"", cursor)` when there is nothing yet.

        A piece larger than a block arrives whole. The cursor must not lie before `first - 1`.
        """
        if cursor >= self.last:
            return Chunk(b"", cursor)
        if self._tail_firsts and cursor + 1 >= self._tail_firsts[0]:
            return self._read_tail(cursor)
        block = self._blocks[bisect_right(self._firsts, cursor + 1) - 1]
        return Chunk(frames_after(block.data, block.first, cursor), block.last)

    def trim(self, keep_bytes: int, keep_frames: int) -> int:
        """Drops the oldest blocks until both bounds hold (the tail always stays); returns how many frames left."""
        start = self.first
        gone = 0
        for block in self._blocks:
            if self.size <= keep_bytes and self.last - block.first + 1 <= keep_frames:
                break
            self._sealed -= len(block.data)
            gone += 1
        del self._blocks[:gone], self._firsts[:gone]
        return self.first - start

    def _read_tail(self, cursor: int) -> Chunk:
        after, chunk = self._join
        if after != cursor or chunk.last != self.last:
            # Viewers that keep up all ask for the same piece, so the last join is kept.
            index = bisect_right(self._tail_firsts, cursor + 1) - 1
            data = b"".join(self._tail[index:])
            chunk = Chunk(frames_after(data, self._tail_firsts[index], cursor), self.last)
            self._join = (cursor, chunk)
        return chunk

    def _seal(self) -> None:
        block = Block(self._tail_firsts[0], self.last, b"".join(self._tail))
        self._blocks.append(block)
        self._firsts.append(block.first)
        self._sealed += len(block.data)
        self._tail, self._tail_firsts = [], []
        self._room = BLOCK_BYTES
        self._join = NOTHING


def frames_after(data: bytes, first: int, cursor: int) -> bytes:
    """The frames after `cursor` of those from `first` on. Only a frame can begin so: payloads have no line ends."""
    return data if cursor < first else data[data.index(b"\n\nid: %d\n" % (cursor + 1)) + 2 :]
