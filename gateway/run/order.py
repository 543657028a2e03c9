"""The order of AG-UI events within one run: what is open, what may come next, what closes it, who owns it.

The rules are those of the official client's verifier (reference/agui-protocol.md 2.6), as a table of brackets. The
gateway's own runs are written through it, so a wrong order is a bug found here and not in a browser; what proxied
agents send is mended by it (`run.repair`).

Ownership: messages, calls, reasoning and activities belong to the agent or to the subagent that has made them, for
the whole run, also when they are closed. An event without an owner is always the owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import OrderError

__all__ = ["BRACKETS", "CALL_START", "EDGES", "NOBODY", "OWNER", "TERMINALS", "Open", "OrderMachine"]

OWNER = "subagentRunId"
TERMINALS = frozenset({"RUN_FINISHED", "RUN_ERROR"})
CALL_START = "TOOL_CALL_START"
STEP = "STEP_STARTED"
MESSAGE, CALL, ACTIVITY, REASONING = "message", "call", "activity", "reasoning"
#: The owner of what nobody has made yet.
NOBODY: Any = object()


class Bracket(NamedTuple):
    """One kind of thing that an event opens and another closes; `key` is the field that names it.

    Things of one `realm` share their names' owners; those of none have no owner beyond their own name.
    """

    start: str
    inner: tuple[str, ...]
    end: str
    key: str
    realm: str = ""


BRACKETS = (
    Bracket("TEXT_MESSAGE_START", ("TEXT_MESSAGE_CONTENT",), "TEXT_MESSAGE_END", "messageId", MESSAGE),
    Bracket("TOOL_CALL_START", ("TOOL_CALL_ARGS",), "TOOL_CALL_END", "toolCallId", CALL),
    Bracket("REASONING_START", (), "REASONING_END", "messageId", REASONING),
    Bracket("REASONING_MESSAGE_START", ("REASONING_MESSAGE_CONTENT",), "REASONING_MESSAGE_END", "messageId", REASONING),
    Bracket("STEP_STARTED", (), "STEP_FINISHED", "stepName"),
    Bracket("SUBAGENT_STARTED", (), "SUBAGENT_FINISHED", OWNER),
)
_STARTS = {bracket.start: bracket for bracket in BRACKETS}
_INNER = {name: bracket for bracket in BRACKETS for name in bracket.inner}
_ENDS = {bracket.end: bracket for bracket in BRACKETS}
_ENDS["SUBAGENT_ERROR"] = _STARTS["SUBAGENT_STARTED"]
_BRACKETS_BY_KIND = {**_STARTS, **_INNER, **_ENDS}
_STARTS_OF_REALMS = {
    realm: tuple(bracket.start for bracket in BRACKETS if bracket.realm == realm)
    for realm in (MESSAGE, CALL, ACTIVITY, REASONING)
}
_REALMS_OF_SUBTYPES = {"tool-call": (CALL,), "message": (MESSAGE, REASONING)}
_REALMS_OF_ROLES = {
    **dict.fromkeys(("developer", "system", "assistant", "user", "tool"), MESSAGE),
    "activity": ACTIVITY,
    "reasoning": REASONING,
}
#: The events that change what is open, or whose it is.
EDGES = frozenset(_STARTS) | frozenset(_ENDS) | {"MESSAGES_SNAPSHOT", "TOOL_CALL_RESULT"}


class Open(NamedTuple):
    """Something that is open: the event that has opened it, its name, and the subagent that it belongs to."""

    start: str
    name: str
    owner: str | None = None


class OrderMachine:
    """Feed it every event in order; it raises `OrderError` for one that the verifier would refuse.

    `opened` is what a run had open that goes on elsewhere.
    """

    __slots__ = ("_open", "_owners", "_subagents", "over", "started")

    def __init__(self, opened: Iterable[Open] = (), *, started: bool = False) -> None:
        self._open = {_key(*item): item for item in opened}
        self._owners = {(_STARTS[item.start].realm, item.name): item.owner for item in self._open.values()}
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
        if not self.started and kind != "RUN_STARTED":
            raise OrderError(f"{kind} before RUN_STARTED")
        if (rule := _RULES.get(kind)) is not None:
            rule(self, kind, event)

    def closers(self) -> Iterator[dict[str, Any]]:
        """The events that close what is open, innermost first; feed them before a `RUN_FINISHED`."""
        for item in reversed(self._open.values()):
            bracket = _STARTS[item.start]
            owner = {} if item.owner is None else {OWNER: item.owner}
            yield {"type": bracket.end, bracket.key: item.name, **owner}

    def holds(self, kind: str, event: Mapping[str, Any]) -> bool:
        """Whether what the event of a bracket opens, goes on with or closes is open."""
        bracket = _BRACKETS_BY_KIND[kind]
        return _key(bracket.start, event[bracket.key], event.get(OWNER)) in self._open

    def knows_subagent(self, name: str) -> bool:
        """Whether a subagent was started in this run, also one that has ended."""
        return name in self._subagents

    def owner(self, kind: str, event: Mapping[str, Any]) -> Any:
        """Whose it is what the event is about: a subagent's, the agent's (None) or, so far, `NOBODY`'s."""
        if kind == "STEP_FINISHED":
            return next((item.owner for item in self._open.values() if item[:2] == (STEP, event["stepName"])), NOBODY)
        if kind == "REASONING_ENCRYPTED_VALUE":
            return self._first(event["entityId"], *_REALMS_OF_SUBTYPES.get(event["subtype"], ()))
        if kind == "ACTIVITY_DELTA":
            return self._first(event["messageId"], ACTIVITY)
        bracket = _BRACKETS_BY_KIND.get(kind)
        known = NOBODY if bracket is None else self._first(event[bracket.key], bracket.realm)
        return self.owner_of_parent(event) if known is NOBODY and kind == CALL_START else known

    def owner_of_parent(self, event: Mapping[str, Any]) -> Any:
        """Whose message a tool call says that it is a part of."""
        parent = event.get("parentMessageId")
        return NOBODY if parent is None else self._first(parent, MESSAGE)

    def _first(self, name: str, *realms: str) -> Any:
        for realm in realms:
            if (owner := self._owners.get((realm, name), NOBODY)) is not NOBODY:
                return owner
        return NOBODY

    def _agreed(self, kind: str, event: Mapping[str, Any]) -> str | None:
        """The owner, where the event does not name another one."""
        named, known = event.get(OWNER), self.owner(kind, event)
        if known is NOBODY:
            return named
        if named is not None and named != known:
            raise OrderError(f"{kind} in the name of {named!r}, but it belongs to {known or 'no subagent'}")
        return known  # type: ignore[no-any-return]  # NOBODY, the only one that is not of this type, is gone

    def _start(self, kind: str, event: Mapping[str, Any]) -> None:
        if self.started:
            raise OrderError(f"{kind} twice")
        self.started = True

    def _finish(self, kind: str, event: Mapping[str, Any]) -> None:
        if self._open:
            start, name, _ = next(reversed(self._open.values()))
            raise OrderError(f"{kind} while {name!r} is open, by {start}")
        self.over = True

    def _fail(self, kind: str, event: Mapping[str, Any]) -> None:
        self.over = True

    def _open_one(self, kind: str, event: Mapping[str, Any]) -> None:
        bracket = _STARTS[kind]
        name, owner = event[bracket.key], event.get(OWNER)
        key = _key(kind, name, owner)
        if key in self._open:
            raise OrderError(f"{kind} of {name!r}, which is open")
        if bracket.key == OWNER:
            self._subagent(name, event)
            owner = None
        elif bracket.realm:
            owner = self._agreed(kind, event)
            if kind == CALL_START and self.owner_of_parent(event) not in (NOBODY, owner):
                raise OrderError(f"{kind} of {name!r} in a message of another owner")
            self._owners[bracket.realm, name] = owner
        self._open[key] = Open(kind, name, owner)

    def _go_on(self, kind: str, event: Mapping[str, Any]) -> None:
        bracket = _BRACKETS_BY_KIND[kind]
        name, owner = event[bracket.key], event.get(OWNER)
        key = _key(bracket.start, name, owner)
        if key not in self._open:
            raise OrderError(f"{kind} of {name!r}, which is not open")
        if owner is not None and bracket.realm:
            self._agreed(kind, event)
        if kind in _ENDS:
            del self._open[key]

    def _subagent(self, name: str, event: Mapping[str, Any]) -> None:
        parent = event.get("parentSubagentRunId")
        if name in self._subagents:
            raise OrderError(f"SUBAGENT_STARTED of {name!r} twice")
        if parent is not None and parent not in self._subagents:
            raise OrderError(f"SUBAGENT_STARTED in {parent!r}, which was not started")
        self._subagents.add(name)

    def _check_owner(self, kind: str, event: Mapping[str, Any]) -> None:
        self._agreed(kind, event)

    def _own_result(self, kind: str, event: Mapping[str, Any]) -> None:
        self._own(MESSAGE, event["messageId"], event.get(OWNER))

    def _own_activity(self, kind: str, event: Mapping[str, Any]) -> None:
        if event.get("replace") is not False or self._first(event["messageId"], ACTIVITY) is NOBODY:
            self._own(ACTIVITY, event["messageId"], event.get(OWNER))

    def _own_messages(self, kind: str, event: Mapping[str, Any]) -> None:
        for message in event["messages"]:
            if (realm := _REALMS_OF_ROLES.get(message["role"])) is not None:
                owner = message.get(OWNER)
                self._own(realm, message["id"], owner)
                for call in (message["role"] == "assistant" and message.get("toolCalls")) or ():
                    self._own(CALL, call["id"], owner)

    def _own(self, realm: str, name: str, owner: str | None) -> None:
        """A new owner, also of what is open."""
        self._owners[realm, name] = owner
        for start in _STARTS_OF_REALMS[realm]:
            if (item := self._open.get((start, name))) is not None:
                self._open[start, name] = item._replace(owner=owner)


_RULES: Mapping[str, Callable[[OrderMachine, str, Mapping[str, Any]], None]] = {
    "RUN_STARTED": OrderMachine._start,
    "RUN_FINISHED": OrderMachine._finish,
    "RUN_ERROR": OrderMachine._fail,
    **dict.fromkeys(_STARTS, OrderMachine._open_one),
    **dict.fromkeys([*_INNER, *_ENDS], OrderMachine._go_on),
    "TOOL_CALL_RESULT": OrderMachine._own_result,
    "MESSAGES_SNAPSHOT": OrderMachine._own_messages,
    "ACTIVITY_SNAPSHOT": OrderMachine._own_activity,
    "ACTIVITY_DELTA": OrderMachine._check_owner,
    "REASONING_ENCRYPTED_VALUE": OrderMachine._check_owner,
}


def _key(start: str, name: str, owner: str | None) -> tuple[str, ...]:
    """Two subagents may have steps of one name; everything else has its name for itself."""
    return (start, name) if start != STEP or owner is None else (start, name, owner)
