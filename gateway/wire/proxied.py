"""Events of an agent behind HTTP, as the official client takes them: read, checked, mended where it would refuse them.

`read` makes an object of a payload, `check` an event that is right of the object. What they had to mend they append to
`repairs`; where they append nothing, the payload's own bytes are right. Unknown fields and types pass, as the
protocol has it. Source: contract 6, reference/agui-protocol.md 1.2 and 2.5.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from gateway.wire.normalise import normalise
from gateway.wire.proxied_parts import CONTENT, MESSAGES, PATCH, RUN_OUTCOME, SUBAGENT_OUTCOME, USAGE
from gateway.wire.shapes import (
    ANY,
    BOOL,
    ID,
    JSON_TEXT,
    OBJECT,
    SOME,
    STAMP,
    TEXT,
    Field,
    Repairs,
    Shape,
    one_of,
)

__all__ = ["check", "read"]

Event = dict[str, Any]

# With these a page would go and do what only the gateway may ask for (contract 6).
OURS = frozenset({"tool.requested", "tool.waiting"})


def read(payload: bytes, repairs: Repairs) -> Event | None:
    """The payload as an object with a type; None for what is none."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        event = _lenient(payload, repairs)
    if type(event) is dict and type(kind := event.get("type")) is str and kind:
        return event
    return None


def check(event: Event, repairs: Repairs) -> Event | None:
    """The event, or a copy that is right; None when a field that it needs is missing for good."""
    shape = SHAPES.get(event["type"])
    return event if shape is None else shape.fit(event, repairs)


def _lenient(payload: bytes, repairs: Repairs) -> Any:
    """What is nearly JSON: NaN, lone surrogates, control characters, bytes that are not UTF-8."""
    try:
        found = json.loads(payload.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    repairs.append("json")
    return normalise(found)[0]


def _custom_name(name: str, repairs: Repairs) -> str:
    if name not in OURS:
        return name
    repairs.append("renamed")
    return f"upstream.{name}"


def _result_id(event: Event) -> str:
    return f"{event['toolCallId']}:result"


COMMON = {"type": TEXT, "timestamp": STAMP, "rawEvent": SOME, "metadata": OBJECT}
OWNED = {**COMMON, "subagentRunId": TEXT}
MESSAGE = {**OWNED, "messageId": ID}
CALL = {**OWNED, "toolCallId": ID}
SUBAGENT = {**COMMON, "subagentRunId": ID}
ROLE = TEXT._replace(look=one_of("developer", "system", "assistant", "user"))
OLD_NAMES = {"toolName": "toolCallName"}

SHAPES: dict[str, Shape] = {
    "RUN_STARTED": Shape(**COMMON),
    "RUN_FINISHED": Shape(**COMMON, result=SOME, outcome=RUN_OUTCOME, usage=USAGE),
    "RUN_ERROR": Shape(**COMMON, message=ID._replace(fill=lambda _: "The agent failed."), code=TEXT, usage=USAGE),
    "STEP_STARTED": Shape(**OWNED, stepName=ID),
    "STEP_FINISHED": Shape(**OWNED, stepName=ID),
    "TEXT_MESSAGE_START": Shape(**MESSAGE, role=ROLE, name=TEXT),
    "TEXT_MESSAGE_CONTENT": Shape(**MESSAGE, delta=ID),
    "TEXT_MESSAGE_END": Shape(**MESSAGE),
    "TEXT_MESSAGE_CHUNK": Shape(**OWNED, messageId=TEXT, role=ROLE, delta=TEXT, name=TEXT),
    "TOOL_CALL_START": Shape(OLD_NAMES, **CALL, toolCallName=ID, parentMessageId=TEXT),
    "TOOL_CALL_ARGS": Shape(**CALL, delta=JSON_TEXT),
    "TOOL_CALL_END": Shape(**CALL),
    "TOOL_CALL_CHUNK": Shape(
        OLD_NAMES,
        **OWNED,
        toolCallId=TEXT,
        toolCallName=TEXT,
        parentMessageId=TEXT,
        delta=JSON_TEXT._replace(needed=False),
    ),
    "TOOL_CALL_RESULT": Shape(
        **CALL, messageId=ID._replace(fill=_result_id), content=CONTENT, role=TEXT._replace(look=one_of("tool"))
    ),
    "STATE_SNAPSHOT": Shape(**OWNED, snapshot=ANY._replace(needed=True)),
    "STATE_DELTA": Shape(**OWNED, delta=PATCH),
    "MESSAGES_SNAPSHOT": Shape(**COMMON, messages=MESSAGES),
    "ACTIVITY_SNAPSHOT": Shape(**MESSAGE, activityType=ID, content=OBJECT._replace(needed=True), replace=BOOL),
    "ACTIVITY_DELTA": Shape(**MESSAGE, activityType=ID, patch=PATCH),
    "RAW": Shape(**OWNED, event=ANY._replace(needed=True), source=TEXT),
    "CUSTOM": Shape(
        **OWNED,
        name=ID._replace(look=_custom_name),
        value=ANY._replace(needed=True, fill=lambda _: None),
    ),
    "REASONING_START": Shape(**MESSAGE),
    "REASONING_END": Shape(**MESSAGE),
    "REASONING_MESSAGE_START": Shape(
        **MESSAGE, role=Field(frozenset({str}), needed=True, look=one_of("reasoning"), fill=lambda _: "reasoning")
    ),
    "REASONING_MESSAGE_CONTENT": Shape(**MESSAGE, delta=ID),
    "REASONING_MESSAGE_END": Shape(**MESSAGE),
    "REASONING_MESSAGE_CHUNK": Shape(**OWNED, messageId=TEXT, delta=TEXT),
    "REASONING_ENCRYPTED_VALUE": Shape(
        **OWNED, subtype=ID._replace(look=one_of("tool-call", "message")), entityId=ID, encryptedValue=ID
    ),
    "SUBAGENT_STARTED": Shape(
        **SUBAGENT,
        name=ID._replace(fill=lambda event: event["subagentRunId"]),
        description=TEXT,
        parentSubagentRunId=TEXT,
        parentToolCallId=TEXT,
        parentMessageId=TEXT,
    ),
    "SUBAGENT_FINISHED": Shape(**SUBAGENT, result=SOME, outcome=SUBAGENT_OUTCOME),
    "SUBAGENT_ERROR": Shape(**SUBAGENT, message=ID._replace(fill=lambda _: "The subagent failed."), code=TEXT),
}
