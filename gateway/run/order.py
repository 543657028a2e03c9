"""The order of AG-UI events within one run: what is open, what may come next, what closes it.

The rules are those of the official client's verifier (reference/agui-protocol.md 2.6), as a table of brackets. The
gateway's own runs are written through it, so a wrong order is a bug found here and not in a browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import OrderError

__all__ = ["BRACKETS", "EDGES", "TERMINALS", "Open", "OrderMachine"]

OWNER = "subagentRunId"
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
    Bracket("SUBAGENT_STARTED", (), "SUBAGENT_FINISHED", OWNER),
)
_STARTS = {bracket.start: bracket for bracket in BRACKETS}
_INNER = {name: bracket for bracket in BRACKETS for name in bracket.inner}
_ENDS = {bracket.end: bracket for bracket in BRACKETS}
_ENDS["SUBAGENT_ERROR"] = _STARTS["SUBAGENT_STARTED"]
#: The events that change what is open.
EDGES = frozenset(_STARTS) | frozenset(_ENDS)


class Open(NamedTuple):
    """Something that is open: the event that has opened it, its name, and the subagent that it belongs to."""

    start: str
    name: str
    owner: str | None = None


class OrderMachine:
    """Feed it every event in order; it raises `OrderError` for one that the verifier would refuse.

    `opened` is what a run had open that goes on elsewhere.
    """

    __slots__ = ("_open", "_subagents", "over", "started")

    def __init__(self, opened: Iterable[Open] = (), *, started: bool = False) -> None:
        # Two subagents may have steps of one name; everything else has its name for itself.
        self._open = {_key(item): item for item in opened}
        self._subagents: set[str] = set()
        self.started = started
        self.over = False

    @property
    def opened(self) -> tuple[Open, ...]:
        """What is open, outermost first."""
        return tuple(self._open.values())

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
        for item in reversed(self._open.values()):
            bracket = _STARTS[item.start]
            owner = {} if item.owner is None else {OWNER: item.owner}
            yield {"type": bracket.end, bracket.key: item.name, **owner}

    def _start(self, kind: str) -> None:
        if self.started:
            raise OrderError(f"{kind} twice")
        self.started = True

    def _end(self, kind: str) -> None:
        if kind == "RUN_FINISHED" and self._open:
            start, name, _ = next(reversed(self._open.values()))
            raise OrderError(f"{kind} while {name!r} is open, by {start}")
        self.over = True

    def _bracket(self, kind: str, event: Mapping[str, Any]) -> None:
        if bracket := _STARTS.get(kind):
            item = _item(bracket, event)
            if _key(item) in self._open:
                raise OrderError(f"{kind} of {item.name!r}, which is open")
            if bracket.key == OWNER:
                self._subagent(item.name, event)
            self._open[_key(item)] = item
        elif bracket := _INNER.get(kind) or _ENDS.get(kind):
            item = _item(bracket, event)
            known = self._open.get(_key(item))
            if known is None:
                raise OrderError(f"{kind} of {item.name!r}, which is not open")
            if known.owner != item.owner:
                raise OrderError(f"{kind} of {item.name!r}, which belongs to {known.owner or 'no subagent'}")
            if kind in _ENDS:
                del self._open[_key(item)]

    def _subagent(self, name: str, event: Mapping[str, Any]) -> None:
        parent = event.get("parentSubagentRunId")
        if name in self._subagents:
            raise OrderError(f"SUBAGENT_STARTED of {name!r} twice")
        if parent is not None and parent not in self._subagents:
            raise OrderError(f"SUBAGENT_STARTED in {parent!r}, which was not started")
        self._subagents.add(name)


def _item(bracket: Bracket, event: Mapping[str, Any]) -> Open:
    return Open(bracket.start, event[bracket.key], None if bracket.key == OWNER else event.get(OWNER))


def _key(item: Open) -> tuple[str, ...]:
    if item.start == "STEP_STARTED" and item.owner is not None:
        return item.start, item.name, item.owner
    return item.start, item.name
