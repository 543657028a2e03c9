"""Mends what an agent behind HTTP sends, event by event, so that every official client takes it. Pure.

What is right passes as its own bytes. The rest is checked and mended by itself (`wire.proxied`), brought up to date
(`run.thinking`, `run.chunks`), and put in order by the machine that the gateway's own runs go through (`run.order`).
A run has one beginning and one end, its own: those of the agent are held here. Source: contract 6,
reference/agui-protocol.md 2.5 to 2.7 and 8, tanstack.md fact 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import OrderError
from gateway.run.call_names import CallNames
from gateway.run.chunks import CHUNKS, Chunks
from gateway.run.order import CALL_START, NOBODY, OWNER, Open, OrderMachine
from gateway.run.thinking import Thinking
from gateway.wire.codec import one_line
from gateway.wire.proxied import check, read

__all__ = ["REPAIRS", "Repair", "Repaired"]

Event = dict[str, Any]

#: Every kind of repair, as the metric names it, and what it means.
REPAIRS: Mapping[str, str] = {
    "json": "what was nearly JSON: `NaN` and `Infinity` are `null`, lone surrogates and bytes that are no UTF-8 U+FFFD",
    "escaped": "U+0085, U+2028 and U+2029, at which some readers end a line, are escaped",
    "renamed": "a field in `snake_case`, a call of a taken id, a CUSTOM `tool.requested` or `tool.waiting` is renamed",
    "null": "`null` for a field that is optional is left out",
    "type": "a value of a wrong type is converted where that is safe, else left out; so is a malformed part",
    "filled": "a field that is needed and goes without saying is there",
    "legacy": "`THINKING_*` of protocol 0.x is `REASONING_*`",
    "chunk": "a `*_CHUNK` is START, CONTENT and END",
    "order": "an event too early, too late or in another's name is let through, or gets what it lacks around it",
    "dropped": "an event that no client would take, or a payload that is none, is left out",
}
_CONTENTS: Mapping[str, tuple[str, str]] = {
    "TEXT_MESSAGE_CONTENT": ("TEXT_MESSAGE_START", "assistant"),
    "REASONING_MESSAGE_CONTENT": ("REASONING_MESSAGE_START", "reasoning"),
}


class Repaired(NamedTuple):
    """An event in wire names; `payload` is the agent's own line of JSON for it, None where it is not that any more."""

    event: Event
    payload: bytes | None


class Repair:
    """What one run of the gateway makes of all that its agent sends, over several requests.

    `finished` and `failed` are the RUN_FINISHED and RUN_ERROR that are held, at most one of them; of several ends in
    one stream the last counts, and an error is not undone by what comes after it in its run. The `outcome` of
    `finished` is one that the protocol knows, or there is none. An answer that goes on after its RUN_FINISHED and is
    cut while something new is open has none. `seen` counts the events of this request that could be read at all,
    `counts` the repairs by their kind (`REPAIRS`).

    `names` give calls the ids that the run has for them, before anything else is asked: to give a call another id
    afterwards could give it another's owner.
    """

    def __init__(self, names: CallNames | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._names = CallNames() if names is None else names
        self._order = OrderMachine(started=True)
        self.begin()

    def begin(self) -> None:
        """Another request to the agent: its answer is a stream of its own, its events belong to the same run."""
        self.failed: Event | None = None
        self.seen = 0
        self._held: Event | None = None
        self._names.begin()
        self._running = False
        self._open_at_end: frozenset[Open] = frozenset()
        self._chunks = Chunks()
        self._thinking = Thinking()

    @property
    def finished(self) -> Event | None:
        """The RUN_FINISHED that is held; none while something is open that was opened after it."""
        return self._held if self._open_at_end.issuperset(self._order.opened) else None

    def feed(self, payload: bytes, now: int) -> list[Repaired]:
        """What goes into the run for this payload of one event, in order; `now` in Unix milliseconds."""
        repairs: list[str] = []
        event = read(payload, repairs)
        if event is None:
            return self._drop()
        self.seen += 1
        event = self._thinking.feed(given := event, now)
        if event is not given:
            repairs.append("legacy")
        event = check(event, repairs)
        if event is None:
            return self._drop()
        if repairs:
            self.counts.update(repairs)
            return self._take(event, None, now)
        return self._take(event, self._line(payload), now)

    def note(self, event: Event) -> None:
        """An event that the run has written itself: what the agent sends after it has to fit to it, too."""
        self._order.feed(event["type"], event)

    def close(self, now: int) -> list[Repaired]:
        """The answer is over: the events that close what is open, innermost first."""
        self._held = self.finished
        return self._close_all(now)

    def _line(self, payload: bytes) -> bytes:
        line = one_line(payload)
        if line is not payload and line != payload:
            self.counts["escaped"] += 1
        return line

    def _take(self, event: Event, payload: bytes | None, now: int) -> list[Repaired]:
        kind = event["type"]
        if (frame := _FRAME.get(kind)) is not None:
            return frame(self, event, now)
        if self.failed is not None:
            return self._drop()
        if not self._running:
            self.counts["order"] += 1
        if kind not in CHUNKS:
            if not self._chunks:
                return self._place(event, payload)
            return [*self._placed(self._chunks.before(event)), *self._place(event, payload)]
        try:
            parts = list(self._chunks.feed(event))
        except OrderError:
            return self._drop()
        self.counts["chunk"] += 1
        return [repaired for part in parts for repaired in self._place(part, None, self._names.goes_on)]

    def _started(self, event: Event, now: int) -> list[Repaired]:
        if self._running:
            return self._drop()
        self._running = True
        if self._held is None and self.failed is None:
            return []
        closed = self._close_all(now)  # another run of the same stream: what the one before has left open goes with it
        self._held = self.failed = None
        return closed

    def _finished(self, event: Event, now: int) -> list[Repaired]:
        if self.failed is not None:
            return self._drop()
        if not self._running:
            self.counts["order"] += 1
        before = self._placed(self._chunks.before(event))
        self._held, self._running = self._names.named(event, self._is_open) or event, False
        self._open_at_end = frozenset(self._order.opened)
        return before

    def _failed(self, event: Event, now: int) -> list[Repaired]:
        if self.failed is not None:
            return self._drop()
        self._held, self.failed, self._running = None, event, False
        return []

    def _close_all(self, now: int) -> list[Repaired]:
        closers = [{**closer, "timestamp": now} for closer in self._order.closers()]
        self._chunks = Chunks()
        if closers and self._held is not None:  # only a success must have closed everything itself
            self.counts["order"] += len(closers)
        return [repaired for closer in closers for repaired in self._ordered(closer, None)]  # in the run's own names

    def _placed(self, events: Iterable[Event]) -> list[Repaired]:
        return [repaired for event in events for repaired in self._place(event, None)]

    def _place(
        self, event: Event, payload: bytes | None, is_open: Callable[[str], bool] | None = None
    ) -> list[Repaired]:
        """The event where it may stand, with what has to come before it; nothing where it may not."""
        named = self._names.named(event, is_open or self._is_open)
        if named is None:
            return self._drop()
        if named is event:
            return self._ordered(event, payload)
        self.counts["renamed"] += 1
        return self._ordered(named, None)

    def _ordered(self, event: Event, payload: bytes | None) -> list[Repaired]:
        try:
            self._order.feed(event["type"], event)
        except OrderError:
            return self._mended(event)
        return [Repaired(event, payload)]

    def _is_open(self, call_id: str) -> bool:
        return self._order.holds(CALL_START, {"toolCallId": call_id})

    def _mended(self, event: Event) -> list[Repaired]:
        made: list[Repaired] = []
        for part in self._fitting(event["type"], event):
            try:
                self._order.feed(part["type"], part)
            except OrderError:
                return [*made, *self._drop()]
            made.append(Repaired(part, None))
        self.counts["order"] += 1
        return made

    def _fitting(self, kind: str, event: Event) -> Iterator[Event]:
        """An event that was refused, as it might be taken."""
        order = self._order
        if (owner := order.owner(kind, event)) is not NOBODY and event.get(OWNER) != owner:
            event = {key: value for key, value in event.items() if key != OWNER}
            if owner is not None:
                event[OWNER] = owner
        if kind == CALL_START and order.owner_of_parent(event) not in (NOBODY, event.get(OWNER)):
            event = {key: value for key, value in event.items() if key != "parentMessageId"}
        if kind == "SUBAGENT_STARTED" and not order.knows_subagent(event.get("parentSubagentRunId", "")):
            event = {key: value for key, value in event.items() if key != "parentSubagentRunId"}
        if kind in _CONTENTS and not order.holds(kind, event):
            start, role = _CONTENTS[kind]
            about = {key: event[key] for key in ("timestamp", OWNER) if key in event}
            yield {"type": start, "messageId": event["messageId"], "role": role, **about}
        yield event

    def _drop(self) -> list[Repaired]:
        self.counts["dropped"] += 1
        return []


_FRAME = {"RUN_STARTED": Repair._started, "RUN_FINISHED": Repair._finished, "RUN_ERROR": Repair._failed}
