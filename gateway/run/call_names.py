"""The ids of an agent's calls: as the agent has them, and as the run has them. Pure.

Clients know a call by its id for good. Agents use one again, in another turn or for another call of the same answer,
or count anew in each run; some have ids that no path can hold. Such a call gets another id here, in every field that
names it, and its own again in what the agent is sent. Source: contract 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.run.order import CALL_START
from gateway.wire.inputs import MAX_ID, valid_id

__all__ = ["CallNames"]

Event = dict[str, Any]

_NOT_IN_IDS = re.compile(r"[/\x00-\x1f\x7f-\x9f]")


class CallNames:
    """Of one run. `messages` are those that the client has; `answer` tells of results that the agent has not sent."""

    def __init__(self, messages: Iterable[Mapping[str, Any]] = ()) -> None:
        self._uses: dict[str, list[str]] = {}  # the agent's id: the run's ids for it, in the order of the calls
        self._own: dict[str, str] = {}  # the run's id: the agent's, where they differ
        self._taken: set[str] = set()
        self._answered: set[str] = set()
        self._by_others: set[str] = set()  # of those, the ones whose result is not the agent's
        self._of_answer: set[str] = set()
        self._current: dict[str, str] = {}  # the agent's id: the call that has begun last in this answer
        for call_id in _ids_of(messages):
            self.take(call_id)
        for message in messages:
            if message["role"] == "tool":
                self.answer(message["toolCallId"])

    def take(self, name: str) -> None:
        """The run has a call of this id that the agent knows by it."""
        if name not in self._taken:
            self._taken.add(name)
            self._uses.setdefault(name, []).append(name)

    def answer(self, name: str) -> None:
        """The call has its result, from somebody else than the agent."""
        self._answered.add(name)
        self._by_others.add(name)

    def begin(self) -> None:
        """Another answer of the agent: a call that begins in it is none of those before."""
        self._of_answer.clear()
        self._current.clear()

    def goes_on(self, name: str) -> bool:
        """Whether it has begun in this answer, and has no result."""
        return name in self._of_answer and name not in self._answered

    def agents(self, name: str) -> str:
        """The agent's own id of a call of the run."""
        return self._own.get(name, name)

    def named(self, event: Event, is_open: Callable[[str], bool]) -> Event | None:
        """The event with the run's ids, the very same one where they are the agent's; None for a result that somebody
        else has given before.

        `is_open` says of a call of the run whether what begins now is that one again.
        """
        rule = _RULES.get(event["type"])
        if rule is not None:
            return rule(self, event, is_open)
        if self._own and event["type"] == "CUSTOM" and isinstance(value := event["value"], dict):
            named = self._field(value, "toolCallId")
            return event if named is value else {**event, "value": named}
        return event

    def sent(self, messages: Sequence[Event]) -> Sequence[Event]:
        """Messages as the agent is sent them: with its own ids."""
        if not self._own:
            return messages
        return [_mapped(message, self.agents, self.agents) for message in messages]

    def _started(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        given = event["toolCallId"]
        if not is_open(name := self._last(given)):  # else it begins once more, for nothing
            name = self._current[given] = self._begun(given)
        return self._as(event, name)

    def _begun(self, given: str) -> str:
        name = self._free(given)
        self._taken.add(name)
        self._uses.setdefault(given, []).append(name)
        self._of_answer.add(name)
        if name != given:
            self._own[name] = given
        return name

    def _free(self, given: str) -> str:
        name = given
        try:
            valid_id(given)
        except ValueError:
            name = _NOT_IN_IDS.sub("_", given)[:MAX_ID] or "call"
        number, base = 1, name
        while name in self._taken:
            number += 1
            suffix = f"~{number}"
            name = base[: MAX_ID - len(suffix)] + suffix
        return name

    def _continued(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        return self._as(event, self._last(event["toolCallId"]))

    def _answers(self, event: Event, is_open: Callable[[str], bool]) -> Event | None:
        given = event["toolCallId"]
        if given not in self._uses:  # of a call that neither the run nor its request has shown
            self._begun(given)
        name = next((name for name in self._uses[given] if name not in self._answered), self._last(given))
        if name in self._by_others:
            return None
        self._answered.add(name)
        return self._as(event, name)

    def _last(self, given: str) -> str:
        return self._current.get(given) or self._uses.get(given, [given])[-1]

    def _as(self, event: Event, name: str) -> Event:
        return event if event["toolCallId"] == name else {**event, "toolCallId": name}

    def _field(self, event: Event, field: str) -> Event:
        given = event.get(field)
        name = self._last(given) if isinstance(given, str) else given
        return event if name == given else {**event, field: name}

    def _encrypted(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        return self._field(event, "entityId") if event["subtype"] == "tool-call" else event

    def _subagent(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        return self._field(event, "parentToolCallId")

    def _finished(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        outcome = event.get("outcome") or {}
        named = dict(outcome)
        if asked := outcome.get("interrupts"):
            named["interrupts"] = [self._field(interrupt, "toolCallId") for interrupt in asked]
        if pending := outcome.get("pendingToolCallIds"):
            named["pendingToolCallIds"] = [self._last(given) for given in pending]
        return event if named == outcome else {**event, "outcome": named}

    def _snapshot(self, event: Event, is_open: Callable[[str], bool]) -> Event:
        """Of several calls of one id the last ones are those that the run knows of: an agent may tell only the newest.

        A result belongs to the call before it.
        """
        messages = event["messages"]
        names: dict[str, Iterator[str]] = {}
        told: dict[str, int] = {}
        for given in _ids_of(messages):
            told[given] = told.get(given, 0) + 1
        for given, count in told.items():
            while len(self._uses.get(given, ())) < count:
                self._begun(given)
            names[given] = iter(self._uses[given][-count:])
        current: dict[str, str] = {}

        def call(given: str) -> str:
            current[given] = next(names[given])
            return current[given]

        def result(given: str) -> str:
            return current.get(given) or self._last(given)

        made = [_mapped(message, call, result) for message in messages]
        self._answered.update(message["toolCallId"] for message in made if message["role"] == "tool")
        return event if all(map(_is, made, messages)) else {**event, "messages": made}


def _ids_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (call["id"] for message in messages for call in message.get("toolCalls") or ())


def _mapped(message: Event, call: Callable[[str], str], result: Callable[[str], str]) -> Event:
    """The message with other ids of calls; the very same one where they are not others."""
    if message["role"] == "tool":
        name = result(message["toolCallId"])
        return message if name == message["toolCallId"] else {**message, "toolCallId": name}
    if not (calls := message.get("toolCalls")):
        return message
    names = [call(each["id"]) for each in calls]
    if names == [each["id"] for each in calls]:
        return message
    return {**message, "toolCalls": [{**each, "id": name} for each, name in zip(calls, names, strict=True)]}


def _is(one: object, other: object) -> bool:
    return one is other


_RULES: Mapping[str, Callable[[CallNames, Event, Callable[[str], bool]], Event | None]] = {
    CALL_START: CallNames._started,
    "TOOL_CALL_ARGS": CallNames._continued,
    "TOOL_CALL_END": CallNames._continued,
    "TOOL_CALL_RESULT": CallNames._answers,
    "REASONING_ENCRYPTED_VALUE": CallNames._encrypted,
    "SUBAGENT_STARTED": CallNames._subagent,
    "MESSAGES_SNAPSHOT": CallNames._snapshot,
    "RUN_FINISHED": CallNames._finished,
}
