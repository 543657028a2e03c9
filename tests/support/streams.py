"""Streams of AG-UI events as backends send them: right ones, broken ones, and what nobody has thought of.

Everything comes from one `random.Random`, so that a seed is a corpus. Few names, so that they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

__all__ = ["RUN", "Event", "Streams"]

Event = dict[str, Any]
Make = Callable[[Random], Any]

NAMES = ("a", "b", "c")
OWNERS = ("s", "t")
JUNK: tuple[Any, ...] = (None, 0, 7, -1, 1.5, 2.0, 2**60, 1e300, True, "", "?", [], [None], [1, "x"], {}, {"x": None})


def pick(*options: Any) -> Make:
    return lambda rng: rng.choice(options)


def several(make: Make, least: int = 0) -> Make:
    return lambda rng: [make(rng) for _ in range(rng.randint(least, 3))]


def made(**fields: Make) -> Make:
    """An object; a field whose name ends with `_` is left out half the time."""

    def make(rng: Random) -> Event:
        return {
            name.rstrip("_"): field(rng)
            for name, field in fields.items()
            if not name.endswith("_") or rng.random() < 0.5
        }

    return make


def either(*makes: Make) -> Make:
    return lambda rng: rng.choice(makes)(rng)


name, owner, text = pick(*NAMES), pick(*OWNERS), pick("", "x", "two words", "\u00e9\u2026")
anything = pick(None, 0, 1.25, "x", [1, {"y": None}], {"k": {"n": [None]}}, True)
some = pick(0, 1.25, "x", [1, {"y": None}], {"k": {"n": [None]}}, False)
metadata = pick({}, {"k": 1}, {"ag-ui": None, "tanstack": {"x": [1]}}, {"tanstack": [None]}, {"tanstack": "x"})
stamp = pick(0, 1_700_000_000_000, -5, 2**53 - 1, 12.0)
count = pick(0, 5, 12.0, 2**53 - 1)
pointer = pick("", "/", "/x", "/a~1b/0", "/~0")

source = either(
    made(type=pick("data"), value=text, mimeType=text),
    made(type=pick("url"), value=text, mimeType_=text),
    made(type=pick("file"), value=text, provider_=text, mimeType_=text),
    made(type=pick("cloud"), where=text),
)
part = either(
    made(type=pick("text"), id_=name, text=text, metadata_=some),
    made(type=pick("image", "audio", "video", "document"), id_=name, source=source, metadata_=some),
    made(type=pick("hologram"), light=anything),
)
content = either(text, several(part))
call = made(
    id=name,
    type=pick("function"),
    function=made(name=text, arguments=text),
    encryptedValue_=text,
    metadata_=metadata,
)
MARKS: dict[str, Make] = {"metadata_": metadata, "subagentRunId_": owner}
message = either(
    made(id=name, role=pick("developer", "system"), content=text, name_=text, encryptedValue_=text, **MARKS),
    made(id=name, role=pick("assistant"), content_=text, toolCalls_=several(call), name_=text, **MARKS),
    made(id=name, role=pick("user"), content=content, **MARKS),
    made(id=name, role=pick("tool"), content=content, toolCallId=name, error_=text, **MARKS),
    made(id=name, role=pick("activity"), activityType=text, content=pick({}, {"x": 1}), **MARKS),
    made(id=name, role=pick("reasoning"), content=text, encryptedValue_=text, **MARKS),
    made(id=name, role=pick("oracle"), content=anything),
)
operation = either(
    made(op=pick("add", "replace", "test"), path=pointer, value=anything),
    made(op=pick("remove"), path=pointer, value_=anything),
    lambda rng: {"op": rng.choice(("move", "copy")), "from": rng.choice(("/x", "/~0")), "path": pointer(rng)},
    made(op=pick("teleport"), path=text),
)
usage = several(made(provider_=text, model_=text, inputTokens_=count, cachedInputTokens_=count))
interrupt = made(
    subagentRunId_=owner,
    id=name,
    reason=text,
    message_=text,
    toolCallId_=name,
    responseSchema_=pick({}, {"type": "object"}),
    expiresAt_=text,
    metadata_=metadata,
)
outcome = either(
    made(type=pick("success"), pendingToolCallIds_=several(name)),
    made(type=pick("interrupt"), interrupts=several(interrupt, 1)),
    made(type=pick("cancelled")),
    made(type=pick("postponed")),
)

MESSAGE: dict[str, Make] = {"messageId": name, "subagentRunId_": owner}
CALL: dict[str, Make] = {"toolCallId": name, "subagentRunId_": owner}
OWNED: dict[str, Make] = {"subagentRunId_": owner}
ROLE = pick("developer", "system", "assistant", "user")
#: The fields of every type of event; those of one that end with `_` may be missing.
FIELDS: dict[str, dict[str, Make]] = {
    "RUN_STARTED": {"threadId": name, "runId": name, "protocolVersion_": pick("1.0", "2.0"), "parentRunId_": name},
    "RUN_FINISHED": {"threadId": name, "runId": name, "result_": some, "outcome_": outcome, "usage_": usage},
    "RUN_ERROR": {"message": text, "code_": text, "usage_": usage},
    "STEP_STARTED": {"stepName": name, **OWNED},
    "STEP_FINISHED": {"stepName": name, **OWNED},
    "TEXT_MESSAGE_START": {**MESSAGE, "role_": ROLE, "name_": text},
    "TEXT_MESSAGE_CONTENT": {**MESSAGE, "delta": text},
    "TEXT_MESSAGE_END": MESSAGE,
    "TEXT_MESSAGE_CHUNK": {"messageId_": name, "role_": ROLE, "delta_": text, "name_": text, **OWNED},
    "TOOL_CALL_START": {**CALL, "toolCallName": text, "parentMessageId_": name},
    "TOOL_CALL_ARGS": {**CALL, "delta": text},
    "TOOL_CALL_END": CALL,
    "TOOL_CALL_CHUNK": {"toolCallId_": name, "toolCallName_": text, "parentMessageId_": name, "delta_": text, **OWNED},
    "TOOL_CALL_RESULT": {**CALL, "messageId": name, "content": content, "role_": pick("tool")},
    "STATE_SNAPSHOT": {"snapshot": anything, **OWNED},
    "STATE_DELTA": {"delta": several(operation), **OWNED},
    "MESSAGES_SNAPSHOT": {"messages": several(message)},
    "ACTIVITY_SNAPSHOT": {
        **MESSAGE,
        "activityType": text,
        "content": pick({}, {"x": 1}),
        "replace_": pick(True, False),
    },
    "ACTIVITY_DELTA": {**MESSAGE, "activityType": text, "patch": several(operation)},
    "RAW": {"event": anything, "source_": text, **OWNED},
    "CUSTOM": {"name": pick("", "row", "tool.result", "ns:x"), "value": anything, **OWNED},
    "REASONING_START": MESSAGE,
    "REASONING_END": MESSAGE,
    "REASONING_MESSAGE_START": {**MESSAGE, "role": pick("reasoning")},
    "REASONING_MESSAGE_CONTENT": {**MESSAGE, "delta": text},
    "REASONING_MESSAGE_END": MESSAGE,
    "REASONING_MESSAGE_CHUNK": {"messageId_": name, "delta_": text, **OWNED},
    "REASONING_ENCRYPTED_VALUE": {
        "subtype": pick("tool-call", "message"),
        "entityId": name,
        "encryptedValue": text,
        **OWNED,
    },
    "SUBAGENT_STARTED": {
        "subagentRunId": owner,
        "name": text,
        "description_": text,
        "parentSubagentRunId_": owner,
        "parentToolCallId_": name,
        "parentMessageId_": name,
    },
    "SUBAGENT_FINISHED": {
        "subagentRunId": owner,
        "result_": some,
        "outcome_": either(
            made(type=pick("success")),
            made(type=pick("suspended"), interruptIds_=several(name)),
            made(type=pick("later")),
        ),
    },
    "SUBAGENT_ERROR": {"subagentRunId": owner, "message": text, "code_": text},
}
COMMON: dict[str, Make] = {"timestamp_": stamp, "metadata_": metadata, "rawEvent_": some}
UNKNOWN = pick(
    "UNHEARD_OF",
    "THINKING_START",
    "THINKING_TEXT_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END",
    "THINKING_END",
)
RUN = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR")
#: What opens something: what goes on with it, what closes it, what names it, and among what else its names have owners.
BRACKETS = {
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId", "message"),
    "TOOL_CALL_START": ("TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId", "call"),
    "REASONING_START": (None, "REASONING_END", "messageId", "reasoning"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "messageId", "reasoning"),
    "STEP_STARTED": (None, "STEP_FINISHED", "stepName", "step"),
    "SUBAGENT_STARTED": (None, "SUBAGENT_FINISHED", "subagentRunId", "subagent"),
}
FREE = ("CUSTOM", "RAW", "STATE_SNAPSHOT", "STATE_DELTA", "UNHEARD_OF")


def make_event(rng: Random, kind: str, **fixed: Any) -> Event:
    """An event of this type that no client finds fault with, by itself; a field that is fixed to None is left out."""
    event = {"type": kind, **made(**FIELDS.get(kind, {}), **COMMON)(rng)}
    if rng.random() < 0.1:
        event["unheardOf"] = anything(rng)
    return {key: value for key, value in {**event, **fixed}.items() if key not in fixed or value is not None}


class Streams:
    """`right` streams, `bent` ones, in which a few things are wrong, and `wild` ones, in which most are."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def right(self, most: int = 14) -> list[Event]:
        """A run as the protocol describes it."""
        rng, run = self._rng, _Run(self._rng)
        events = [make_event(rng, "RUN_STARTED")]
        for _ in range(rng.randint(0, most)):
            events += run.step()
        if rng.random() < 0.2:
            return [*events, make_event(rng, "RUN_ERROR")]
        return [*events, *run.close(), make_event(rng, "RUN_FINISHED")]

    def bent(self, most: int = 14) -> list[Event]:
        """A right one in which events are missing, doubled, moved, or have a wrong field."""
        rng, events = self._rng, self.right(most)
        for _ in range(rng.randint(1, 4)):
            at, to = rng.randrange(len(events) + 1), rng.randrange(len(events) + 1)
            match rng.randrange(5):
                case 0:
                    del events[at : at + 1]
                case 1:
                    events[at:at] = events[to : to + 1]
                case 2:
                    events[at:at] = [self.event()]
                case 3 if at < len(events):
                    events.insert(to, events.pop(at))
                case _ if at < len(events):
                    events[at] = self._spoilt(events[at])
        return events

    def wild(self, most: int = 14) -> list[Event]:
        """Anything."""
        rng = self._rng
        events = [self.event() for _ in range(rng.randint(0, most))]
        spoilt = [self._spoilt(event) if rng.random() < 0.3 else event for event in events]
        return [make_event(rng, "RUN_STARTED"), *spoilt] if rng.random() < 0.7 else spoilt

    def event(self) -> Event:
        kind = UNKNOWN(self._rng) if self._rng.random() < 0.05 else self._rng.choice(list(FIELDS))
        return make_event(self._rng, kind)

    def _spoilt(self, event: Event) -> Event:
        """With a field that is null, of a wrong type, missing, or spelled as in Python; at any depth."""
        rng = self._rng
        if not event:
            return event  # it has lost its last field already
        spoilt = {**event}
        key = rng.choice(list(event))
        value = event[key]
        match rng.randrange(6):
            case 0 if isinstance(value, dict) and value:
                spoilt[key] = self._spoilt(value)
            case 0 | 1 if isinstance(value, list) and value:
                spoilt[key] = [self._spoilt(item) if isinstance(item, dict) and item else item for item in value]
            case 0 | 1:
                spoilt[key] = None
            case 2:
                del spoilt[key]
            case 3:
                spoilt["".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)] = spoilt.pop(
                    key
                )
            case 4:
                names = (
                    "timestamp",
                    "metadata",
                    "rawEvent",
                    "subagentRunId",
                    "role",
                    "outcome",
                    "id",
                    "content",
                    "delta",
                    "toolCalls",
                    "toolCallId",
                )
                spoilt[rng.choice(names)] = rng.choice(JUNK)
            case _:
                spoilt[key] = rng.choice(JUNK)
        return spoilt


class _Run:
    """What is open in a right run, and whose it is."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._open: list[tuple[str, str, str | None]] = []
        self._owners: dict[tuple[str, str], str | None] = {}
        self._subagents: list[str] = []

    def step(self) -> list[Event]:
        """The next event; none where there is nothing to do."""
        rng = self._rng
        what = rng.random()
        if what < 0.35:
            return self._start(rng.choice(list(BRACKETS)))
        if what < 0.75 and self._open:
            start, name, owner = rng.choice(self._open)
            inner, _, key, realm = BRACKETS[start]
            if inner is None or rng.random() < 0.4:
                return [self._end(start, name, owner)]
            return [make_event(rng, inner, **{key: name, "subagentRunId": self._tag(realm, name)})]
        if what < 0.85:
            return [make_event(rng, rng.choice(FREE))]
        return self._other()

    def close(self) -> Iterator[Event]:
        for start, name, owner in reversed(list(self._open)):
            yield self._end(start, name, owner)

    def _start(self, kind: str) -> list[Event]:
        rng = self._rng
        _, _, key, realm = BRACKETS[kind]
        if kind == "SUBAGENT_STARTED":
            name = rng.choice(OWNERS)
            if name in self._subagents:
                return []
            parent = rng.choice([None, *self._subagents])
            self._subagents.append(name)
            self._open.append((kind, name, None))
            return [make_event(rng, kind, subagentRunId=name, parentSubagentRunId=parent)]
        name = rng.choice(NAMES)
        tag = rng.choice((None, None, *OWNERS)) if kind == "STEP_STARTED" else self._tag(realm, name)
        if any(item[:2] == (kind, name) and (kind != "STEP_STARTED" or item[2] == tag) for item in self._open):
            return []
        fixed: Event = {key: name, "subagentRunId": tag}
        if kind == "TOOL_CALL_START":
            fixed["parentMessageId"], tag = self._parent(name, tag)
        if kind != "STEP_STARTED":
            tag = self._owners.setdefault((realm, name), tag)
        self._open.append((kind, name, tag))
        return [make_event(rng, kind, **fixed)]

    def _parent(self, call: str, tag: str | None) -> tuple[str | None, str | None]:
        """A message that the call may be a part of, or none, and whose the call is then."""
        parent = self._rng.choice(NAMES)
        owner = self._owners.get(("message", parent), tag)
        known = self._owners.get(("call", call), owner if tag is None else tag)
        return (parent, known) if owner == known else (None, self._owners.get(("call", call), tag))

    def _end(self, start: str, name: str, owner: str | None) -> Event:
        _, end, key, realm = BRACKETS[start]
        self._open.remove((start, name, owner))
        if start == "SUBAGENT_STARTED":
            return make_event(self._rng, self._rng.choice((end, "SUBAGENT_ERROR")), subagentRunId=name)
        tag = owner if start == "STEP_STARTED" else self._tag(realm, name)
        return make_event(self._rng, end, **{key: name, "subagentRunId": tag})

    def _tag(self, realm: str, name: str) -> str | None:
        """Whoever may speak of it: its owner, or nobody by name."""
        known = self._owners.get((realm, name), self._rng.choice(OWNERS))
        return self._rng.choice((None, known))

    def _other(self) -> list[Event]:
        rng = self._rng
        kind = rng.choice(
            (
                "MESSAGES_SNAPSHOT",
                "ACTIVITY_SNAPSHOT",
                "ACTIVITY_DELTA",
                "TOOL_CALL_RESULT",
                "REASONING_ENCRYPTED_VALUE",
            )
        )
        event = make_event(rng, kind)
        match kind:
            case "MESSAGES_SNAPSHOT":
                for message in event["messages"]:
                    realm = {"activity": "activity", "reasoning": "reasoning"}.get(message["role"], "message")
                    if message["role"] != "oracle":
                        self._owners[realm, message["id"]] = message.get("subagentRunId")
                    for call in message.get("toolCalls", ()):
                        self._owners["call", call["id"]] = message.get("subagentRunId")
            case "TOOL_CALL_RESULT":
                self._owners["message", event["messageId"]] = event.get("subagentRunId")
            case "ACTIVITY_SNAPSHOT":
                if event.get("replace") is not False or ("activity", event["messageId"]) not in self._owners:
                    self._owners["activity", event["messageId"]] = event.get("subagentRunId")
            case "ACTIVITY_DELTA":
                event = make_event(rng, kind, messageId="a", subagentRunId=self._tag("activity", "a"))
            case _:
                event = make_event(rng, kind, subtype="tool-call", entityId="a", subagentRunId=self._tag("call", "a"))
        return [event]
