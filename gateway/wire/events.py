"""The events that the gateway writes, as plain dicts in wire names; `now` is Unix milliseconds.

CUSTOM, the hot path, is also written as bytes (`CustomWriter`). Shapes: contract 4.2 to 4.4, checked in tests against
the models of `ag_ui.core` and the published schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.wire.codec import Change, as_mapping, encode

__all__ = [
    "OWN_PREFIXES",
    "PROTOCOL_VERSION",
    "CustomWriter",
    "arguments_text",
    "custom",
    "run_error",
    "run_finished",
    "run_started",
    "tool_call_args",
    "tool_call_end",
    "tool_call_result",
    "tool_call_start",
]

Event = dict[str, Any]

PROTOCOL_VERSION = "1.0"
OWN_PREFIXES = ("tool.", "tools.", "run.", "gateway.")


def run_started(now: int, thread_id: str, run_id: str, parent_run_id: str | None = None) -> Event:
    event = {
        "type": "RUN_STARTED",
        "timestamp": now,
        "threadId": thread_id,
        "runId": run_id,
        "protocolVersion": PROTOCOL_VERSION,
    }
    if parent_run_id is not None:
        event["parentRunId"] = parent_run_id
    return event


def run_finished(
    now: int, thread_id: str, run_id: str, outcome: Mapping[str, Any], result: object | None = None
) -> Event:
    event: Event = {"type": "RUN_FINISHED", "timestamp": now, "threadId": thread_id, "runId": run_id}
    if result is not None:
        event["result"] = result
    event["outcome"] = outcome
    event["metadata"] = {"tanstack": {"finishReason": "stop"}}
    return event


def run_error(now: int, thread_id: str, run_id: str, code: str, message: str) -> Event:
    return {
        "type": "RUN_ERROR",
        "timestamp": now,
        "message": message,
        "code": code,
        "metadata": {"tanstack": {"runId": run_id, "threadId": thread_id}},
    }


def tool_call_start(now: int, call_id: str, tool_name: str, parent_message_id: str | None = None) -> Event:
    event = {"type": "TOOL_CALL_START", "timestamp": now, "toolCallId": call_id, "toolCallName": tool_name}
    if parent_message_id is not None:
        event["parentMessageId"] = parent_message_id
    return event


def tool_call_args(now: int, call_id: str, delta: str) -> Event:
    return {"type": "TOOL_CALL_ARGS", "timestamp": now, "toolCallId": call_id, "delta": delta}


def tool_call_end(now: int, call_id: str) -> Event:
    return {"type": "TOOL_CALL_END", "timestamp": now, "toolCallId": call_id}


def tool_call_result(now: int, call_id: str, content: str, *, is_error: bool) -> Event:
    event: Event = {
        "type": "TOOL_CALL_RESULT",
        "timestamp": now,
        "messageId": f"{call_id}:result",
        "toolCallId": call_id,
        "content": content,
        "role": "tool",
    }
    if is_error:
        event["metadata"] = {"tanstack": {"state": "output-error"}}
    return event


def custom(now: int, name: str, value: Mapping[str, Any], tool_name: str | None = None) -> Event:
    event: Event = {"type": "CUSTOM", "timestamp": now, "name": name, "value": value}
    if tool_name is not None:
        event["metadata"] = {"toolName": tool_name}
    return event


class CustomWriter:
    """Writes the CUSTOM events of one tool call straight to bytes, with all that does not change kept ready."""

    __slots__ = ("_call_id", "_heads", "_tail")

    def __init__(self, call_id: str, tool_name: str, metadata: Mapping[str, Any] | None = None) -> None:
        self._call_id = encode(call_id)
        self._tail = b'"toolCallId":%b},"metadata":%b}' % (
            self._call_id,
            encode({"toolName": tool_name, **(metadata or {})}),
        )
        self._heads: dict[str, bytes] = {}

    def knows(self, name: str) -> bool:
        """Whether this name was written before, and so was checked before."""
        return name in self._heads

    @staticmethod
    def value(value: object, changes: list[Change]) -> bytes:
        """A tool's value as a JSON object without `toolCallId`; `changes` receives what was replaced.

        A mapping, dataclass or model; anything else raises `TypeError`.
        """
        fields = value if type(value) is dict else as_mapping(value)
        if "toolCallId" in fields:
            fields = {key: item for key, item in fields.items() if key != "toolCallId"}
        return encode(fields, changes)

    def wrap(self, now: int, name: str, value: bytes) -> bytes:
        """One event from a value that `value()` made; `toolCallId` and metadata are added here."""
        head = self._heads.get(name) or self._head(name)
        if value == b"{}":
            return b'{"type":"CUSTOM","timestamp":%d%b%b' % (now, head, self._tail)
        return b'{"type":"CUSTOM","timestamp":%d%b%b,%b' % (now, head, value[1:-1], self._tail)

    def _head(self, name: str) -> bytes:
        if len(self._heads) >= 256:  # names made from data must not grow the cache without bound
            self._heads.clear()
        head = self._heads[name] = b',"name":%b,"value":{' % encode(name)
        return head


def arguments_text(arguments: object) -> str:
    """A call's arguments, as they were parsed from JSON, as the JSON text of TOOL_CALL_ARGS.

    Not the total encoder: the model's own numbers must come back to it digit for digit.
    """
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
