"""Custom events on their way into the log: parts of frames, in order, put together and numbered a batch at a time.

The hot path of the whole gateway. A tool adds four pieces of bytes by one `list.extend`, which no other thread can
interrupt, so any thread may add and no lock is needed; the loop takes what is there. Numbering and joining a batch
costs a fourth of doing it event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import orjson

from gateway.wire.codec import one_line

__all__ = ["END", "PIECES", "Batch", "Stage"]

PIECES = 4  # of an event: its number, which is `None` until it is taken, head, body, tail
ID = b"id: "
# A tail ends with the beginning of the next frame, which spares every event a piece.
END = b"\n\n" + ID


class Batch(NamedTuple):
    """Frames as one piece of bytes, how many they are, and how many were dropped."""

    data: bytes
    frames: int
    dropped: int


class Stage:
    """`add((None, head, body, tail))` for each event: together they are one frame, but for its number.

    A tail ends with `END`. It belongs to one call: it tells which events came after their call was closed.
    """

    __slots__ = ("add", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes | None] = []
        # Always this one list: a thread may hold its `extend` at any moment.
        self.add: Callable[[Iterable[bytes | None]], None] = self.pieces.extend

    def __len__(self) -> int:
        """How many events wait."""
        return len(self.pieces) // PIECES

    def take(self, first: int, closed: Collection[bytes]) -> Batch:
        """All that wait, numbered from `first`, without those whose tail is in `closed`."""
        waiting = len(self.pieces)
        pieces = self.pieces[:waiting]
        del self.pieces[:waiting]
        if closed:
            pieces = _without(pieces, closed)
        count = len(pieces) // PIECES
        if not count:
            return Batch(b"", 0, waiting // PIECES)
        # orjson and a split write a hundred numbers in half the time of a hundred formats.
        numbers = orjson.dumps(list(range(first, first + count)))[1:-1].split(b",")
        numbers[0] = ID + numbers[0]
        pieces[::PIECES] = numbers
        pieces[-1] = pieces[-1][: -len(ID)]  # type: ignore[index]  # a tail, never None
        # What the hot path has encoded may hold line ends of Unicode; a look at the whole batch costs next to nothing.
        data = one_line(b"".join(pieces))  # type: ignore[arg-type]  # no None is left
        return Batch(data, count, waiting // PIECES - count)

    def withdraw(self, tails: Collection[bytes | None]) -> list[bytes | None]:
        """Takes out the events with these tails: those of a call that has moved to another run."""
        waiting = len(self.pieces)
        pieces = self.pieces[:waiting]
        kept = _without(pieces, tails)
        if len(kept) == waiting:
            return []
        self.pieces[:waiting] = kept
        return _only(pieces, tails)


def _without(pieces: list[bytes | None], closed: Collection[bytes | None]) -> list[bytes | None]:
    return _picked(pieces, lambda tail: tail not in closed)


def _only(pieces: list[bytes | None], tails: Collection[bytes | None]) -> list[bytes | None]:
    return _picked(pieces, lambda tail: tail in tails)


def _picked(pieces: list[bytes | None], wanted: Callable[[bytes | None], bool]) -> list[bytes | None]:
    picked: list[bytes | None] = []
    for start in range(0, len(pieces), PIECES):
        if wanted(pieces[start + PIECES - 1]):
            picked += pieces[start : start + PIECES]
    return picked
