"""`*_CHUNK` events as the START, CONTENT and END that they stand for. Pure.

An official client ends a chunked message at almost any other event; whole brackets let others come between. A message
goes on until a chunk of another one, an explicit message event of the same agent or subagent, or the end of the run.
Source: contract 6, reference/agui-protocol.md 2.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import OrderError

__all__ = ["CHUNKS", "Chunks"]

Event = dict[str, Any]

OWNER = "subagentRunId"


class Shape(NamedTuple):
    """What one kind of chunk stands for. `key` names the message; `first` are fields of its START, `needs` of them must
    be there."""

    start: str
    content: str
    end: str
    key: str
    first: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()


SHAPES: Mapping[str, Shape] = {
    "TEXT_MESSAGE_CHUNK": Shape(
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId", ("role", "name")
    ),
    "TOOL_CALL_CHUNK": Shape(
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "toolCallId",
        ("toolCallName", "parentMessageId"),
        ("toolCallName",),
    ),
    "REASONING_MESSAGE_CHUNK": Shape(
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "messageId",
        fixed=(("role", "reasoning"),),
    ),
}
_MESSAGES = ("TEXT_MESSAGE_", "TOOL_CALL_", "REASONING_")
#: The types of chunks.
CHUNKS = frozenset(SHAPES)
# The fields of a chunk that have their place; others go along with the first event that it makes.
_PLACED = {
    kind: frozenset(("type", "timestamp", OWNER, "delta", shape.key, *shape.first)) for kind, shape in SHAPES.items()
}
_OF_THE_RUN = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT")
_SUBAGENT_ENDS = ("SUBAGENT_FINISHED", "SUBAGENT_ERROR")


class Chunks:
    """Feed it a run's events in order. It raises `OrderError` for a chunk that says too little to begin a message."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        # By owner: an agent and its subagents have one message each that chunks go on with.
        self._lanes: dict[str | None, tuple[Shape, str]] = {}

    def __bool__(self) -> bool:
        """Whether there is a message that chunks may go on with."""
        return bool(self._lanes)

    def feed(self, event: Mapping[str, Any]) -> Iterator[Event]:
        """The event, or the events in its place."""
        if (shape := SHAPES.get(event["type"])) is not None:
            yield from self._chunk(shape, event)
            return
        yield from self.before(event)
        yield dict(event)

    def before(self, event: Mapping[str, Any]) -> Iterator[Event]:
        """What ends because of an event that is no chunk."""
        kind = event["type"]
        if kind in _OF_THE_RUN:
            for other in list(self._lanes):
                yield from self._close(other, event)
        elif kind in _SUBAGENT_ENDS or (kind.startswith(_MESSAGES) and kind != "REASONING_ENCRYPTED_VALUE"):
            yield from self._close(event.get(OWNER), event)

    def _chunk(self, shape: Shape, event: Mapping[str, Any]) -> Iterator[Event]:
        owner = self._owner(shape, event)
        known_shape, known = self._lanes.get(owner, (None, ""))
        name = event.get(shape.key) or (known if known_shape is shape else "")
        if not name:
            raise OrderError(f"{event['type']} without {shape.key}, and there is none that it goes on with")
        about: Event = {} if owner is None else {OWNER: owner}
        if "timestamp" in event:
            about["timestamp"] = event["timestamp"]
        more = {key: item for key, item in event.items() if key not in _PLACED[event["type"]]}
        if (known_shape, known) != (shape, name):
            missing = [key for key in shape.needs if key not in event]
            if missing:
                raise OrderError(f"{event['type']} of {name!r}, the first one, without {missing[0]}")
            yield from self._close(owner, event)
            first = {key: event[key] for key in shape.first if key in event}
            yield {"type": shape.start, **about, shape.key: name, **first, **more, **dict(shape.fixed)}
            self._lanes[owner] = shape, name
            more = {}
        if event.get("delta"):
            yield {"type": shape.content, **about, shape.key: name, "delta": event["delta"], **more}

    def _owner(self, shape: Shape, event: Mapping[str, Any]) -> str | None:
        """Whose chunk it is: of who has begun the message that it names, or that alone it can mean."""
        lanes = self._lanes
        if name := event.get(shape.key):
            return next((owner for owner, lane in lanes.items() if lane == (shape, name)), event.get(OWNER))
        if OWNER in event or lanes.get(None, (None,))[0] is shape:
            return event.get(OWNER)
        begun = [owner for owner, lane in lanes.items() if lane[0] is shape]
        return begun[0] if len(begun) == 1 else None

    def _close(self, owner: str | None, event: Mapping[str, Any]) -> Iterator[Event]:
        if (lane := self._lanes.pop(owner, None)) is not None:
            shape, name = lane
            at = {"timestamp": event["timestamp"]} if "timestamp" in event else {}
            whose = {} if owner is None else {OWNER: owner}
            yield {"type": shape.end, **at, shape.key: name, **whose}
