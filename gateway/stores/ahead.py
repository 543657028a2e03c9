"""What viewers of this process see before it is stored (`write_behind`, contract 7).

Events only: what changes the record of the run, and all that comes after it, is stored first. So whoever acts on what
it sees (answers a question, stops a call, goes on after the end) finds the run like that at every worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.stores.feed import LARGE

__all__ = ["Ahead", "Piece"]


class Piece(NamedTuple):
    """Frames `first` to `last`, written and not stored yet."""

    first: int
    last: int
    data: bytes


class Ahead:
    """Of one run, whose stored events end with `last`. `show` is called on the loop with pieces, each of them once."""

    __slots__ = ("_due", "_fresh", "_last", "_loop", "_records", "_show", "_waiting")

    def __init__(self, last: int, show: Callable[[Sequence[Piece]], None]) -> None:
        self._last = last
        self._show = show
        self._waiting: deque[Piece | None] = deque()  # None: a record
        self._records = 0  # of them
        self._fresh: list[Piece] = []  # not shown yet
        self._due = False
        self._loop = asyncio.get_running_loop()

    @property
    def pieces(self) -> list[Piece]:
        """All that is not stored and may be seen, for a viewer that comes now."""
        return [] if self._records else [piece for piece in self._waiting if piece is not None]

    def write(self, data: bytes, count: int) -> None:
        """It is shown in the next turn of the loop: by then the record that belongs to it has been saved, too."""
        if len(data) >= LARGE:  # from a tool that has not given way for long and may not soon
            self._look()
        piece = Piece(self._last + 1, self._last + count, data)
        self._last = piece.last
        self._waiting.append(piece)
        self._fresh.append(piece)
        self._look_soon()

    def save(self) -> None:
        """The record was changed by what was written before."""
        self._waiting.append(None)
        self._records += 1

    def stored(self, items: int) -> None:
        """So many of what was written and saved are in the store, oldest first."""
        for _ in range(items):
            if self._waiting.popleft() is None:
                self._records -= 1
        if self._fresh:
            self._look_soon()

    def _look_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._look_now)

    def _look_now(self) -> None:
        self._due = False
        self._look()

    def _look(self) -> None:
        if self._fresh and not self._records:
            fresh, self._fresh = self._fresh, []
            self._show(fresh)
