"""The order of AG-UI events within one run: what is open, what may come next, what closes it.

The rules are those of the official client's verifier (reference/agui-protocol.md 2.6), as a table of brackets. The
gateway's own runs are written through it, so a wrong order is a bug found here and not in a browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import OrderError

__all__ = ["BRACKETS", "TERMINALS", "OrderMachine"]

TERMINALS = frozenset({"RUN_FINISHED", "RUN_ERROR"})


class Bracket(NamedTuple):
    """One kind of thing that an event opens and another closes; `key` is the field that names it."""

    start: str
    inner: tuple[str, ...]
    end: str
    key: str


BRACKETS = (
    Bracket("TEXT_MESSAGE_START", ("TEXT_MESSAGE_CONTENT",), "TEXT_MESSAGE_END", "messageId"),
    Bracket("TOOL_CALL_START", ("TOOL_CALL_ARGS",), "TOOL_CALL_END", "toolCallId"),
    Bracket("REASONING_START", (), "REASONING_END", "messageId"),
    Bracket("REASONING_MESSAGE_START", ("REASONING_MESSAGE_CONTENT",), "REASONING_MESSAGE_END", "messageId"),
    Bracket("STEP_STARTED", (), "STEP_FINISHED", "stepName"),
)
_STARTS = {bracket.start: bracket for bracket in BRACKETS}
_INNER = {name: bracket for bracket in BRACKETS for name in bracket.inner}
_ENDS = {bracket.end: bracket for bracket in BRACKETS}


class OrderMachine:
    """Feed it every event in order; it raises `OrderError` for one that the verifier would refuse."""

    __slots__ = ("_open", "over", "started")

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Bracket] = {}
        self.started = False
        self.over = False

    def feed(self, kind: str, event: Mapping[str, Any]) -> None:
        """Takes the next event; an event that is refused changes nothing."""
        if self.over:
            raise OrderError(f"{kind} after the end of the run")
        if kind == "RUN_STARTED":
            self._start(kind)
        elif not self.started:
            raise OrderError(f"{kind} before RUN_STARTED")
        elif kind in TERMINALS:
            self._end(kind)
        else:
            self._bracket(kind, event)

    def closers(self) -> Iterator[dict[str, Any]]:
        """The events that close what is open, innermost first; feed them before a `RUN_FINISHED`."""
        for (_, name), bracket in reversed(self._open.items()):
            yield {"type": bracket.end, bracket.key: name}

    def _start(self, kind: str) -> None:
        if self.started:
            raise OrderError(f"{kind} twice")
        self.started = True

    def _end(self, kind: str) -> None:
        if kind == "RUN_FINISHED" and self._open:
            raise OrderError(f"{kind} while {next(reversed(self._open))} is open")
        self.over = True

    def _bracket(self, kind: str, event: Mapping[str, Any]) -> None:
        if bracket := _STARTS.get(kind):
            key = (bracket.start, event[bracket.key])
            if key in self._open:
                raise OrderError(f"{kind} of {key[1]!r}, which is open")
            self._open[key] = bracket
        elif bracket := _INNER.get(kind) or _ENDS.get(kind):
            key = (bracket.start, event[bracket.key])
            if key not in self._open:
                raise OrderError(f"{kind} of {key[1]!r}, which is not open")
            if kind == bracket.end:
                del self._open[key]
