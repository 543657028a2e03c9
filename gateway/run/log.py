"""An append-only log of frames with cursors: what every viewer of a run reads.

Frames are kept in a short tail; whenever the tail would pass 64 KiB it is sealed into one block of bytes that all
readers share, so replaying costs a slice and no joins. A cursor is the number of the last frame a reader has seen
(0: none), so a position is arithmetic, and old blocks can leave from the front without renumbering.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

__all__ = ["BLOCK_BYTES", "BlockLog", "Chunk"]

# One socket write of this size reaches the rate of raw TCP on loopback; larger ones only delay other streams
# (measured: reference/performance.md 7 and 8).
BLOCK_BYTES = 64 * 1024


class Chunk(NamedTuple):
    """Frames `(after, last]` as one piece of bytes; `last` is the reader's next cursor."""

    data: bytes
    last: int


class Block:
    """Sealed frames; `ends[i]` is where frame `first + i` ends in `data`."""

    __slots__ = ("data", "ends", "first")

    def __init__(self, first: int, frames: list[bytes]) -> None:
        self.first = first
        self.ends = array("I")
        end = 0
        for frame in frames:
            end += len(frame)
            self.ends.append(end)
        self.data = b"".join(frames)

    @property
    def last(self) -> int:
        return self.first + len(self.ends) - 1

    def after(self, cursor: int) -> bytes:
        if cursor < self.first:
            return self.data
        return self.data[self.ends[cursor - self.first] :]


class BlockLog:
    """Frames numbered 1, 2, 3 …; `first` and `last` bound what is still there (`first > last`: nothing)."""

    __slots__ = ("_blocks", "_firsts", "_join", "_tail", "_tail_bytes", "_tail_first", "closed", "last", "size")

    def __init__(self, last: int = 0) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._tail_first = last + 1
        self._join: tuple[int, int, bytes] = (-1, -1, b"")
        self.last = last
        self.size = 0
        self.closed = False

    @property
    def first(self) -> int:
        """Number of the oldest frame that can still be read; `last + 1` when there is none."""
        return self._firsts[0] if self._firsts else self._tail_first

    def append(self, frame: bytes) -> bool:
        """Adds the frame with number `last + 1`; true when that sealed a block."""
        size = len(frame)
        sealed = self._tail_bytes + size > BLOCK_BYTES and bool(self._tail)
        if sealed:
            self._seal()
        self._tail.append(frame)
        self.last += 1
        self.size += size
        self._tail_bytes += size
        return sealed

    def read(self, cursor: int) -> Chunk:
        """What comes after `cursor`, at most one block of it; `Chunk(b"", cursor)` when there is nothing yet.

        A frame larger than a block arrives whole. The cursor must not lie before `first - 1`.
        """
        if cursor >= self._tail_first - 1:
            return self._read_tail(cursor)
        block = self._blocks[max(bisect_right(self._firsts, cursor + 1) - 1, 0)]
        return Chunk(block.after(cursor), block.last)

    def trim(self, keep_bytes: int, keep_frames: int) -> int:
        """Drops the oldest blocks until both bounds hold (the tail always stays); returns how many frames left."""
        start = self.first
        gone = 0
        for block in self._blocks:
            if self.size <= keep_bytes and self.last - block.first + 1 <= keep_frames:
                break
            self.size -= len(block.data)
            gone += 1
        del self._blocks[:gone], self._firsts[:gone]
        return self.first - start

    def frame(self, number: int) -> bytes:
        """One frame; the number must lie between `first` and `last`."""
        if number >= self._tail_first:
            return self._tail[number - self._tail_first]
        block = self._blocks[bisect_right(self._firsts, number) - 1]
        index = number - block.first
        return block.data[block.ends[index - 1] if index else 0 : block.ends[index]]

    def _read_tail(self, cursor: int) -> Chunk:
        if cursor >= self.last:
            return Chunk(b"", cursor)
        after, last, data = self._join
        if after != cursor or last != self.last:
            # Viewers that keep up all ask for the same piece, so the last join is kept.
            data = b"".join(self._tail[cursor - self._tail_first + 1 :])
            self._join = (cursor, self.last, data)
        return Chunk(data, self.last)

    def _seal(self) -> None:
        block = Block(self._tail_first, self._tail)
        self._blocks.append(block)
        self._firsts.append(block.first)
        self._tail = []
        self._tail_bytes = 0
        self._tail_first = self.last + 1
        self._join = (-1, -1, b"")
