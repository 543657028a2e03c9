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
    "text_message",
    "tool_call_args",
    "tool_call_end",
    "tool_call_result",
    "tool_call_start",
]

Event = dict[str, Any]

PROTOCOL_VERSION = "1.0"
MAX_NAMES = 256
# Names that no tool may use: they are the gateway's own (contract 4.3).
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


def text_message(now: int, message_id: str, text: str) -> list[Event]:
    """A whole message of the assistant."""
    return [
        {"type": "TEXT_MESSAGE_START", "timestamp": now, "messageId": message_id, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "timestamp": now, "messageId": message_id, "delta": text},
        {"type": "TEXT_MESSAGE_END", "timestamp": now, "messageId": message_id},
    ]


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


def custom(now: int, name: str, value: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> Event:
    event: Event = {"type": "CUSTOM", "timestamp": now, "name": name, "value": value}
    if metadata:
        event["metadata"] = metadata
    return event


class CustomWriter:
    """The parts of a tool call's CUSTOM frames that stay the same, kept as bytes.

    A frame is its number, `head(now, name)`, the fields of its value, and `tail` (`bare_tail` where there are no
    fields), which adds `toolCallId` and the metadata. `own_head` and `own_tail` do the same for the gateway's own
    events about the call. `end` ends a frame.
    """

    __slots__ = ("_names", "bare_tail", "own_tail", "stamped", "tail")

    def __init__(self, call_id: str, tool_name: str, end: bytes = b"\n\n", parent_call_id: str | None = None) -> None:
        call, tool = encode(call_id), encode(tool_name)
        nested = {} if parent_call_id is None else {"parentToolCallId": parent_call_id}
        shown = encode({"toolName": tool_name, **nested})
        self.bare_tail = b'"toolCallId":%b},"metadata":%b}%b' % (call, shown, end)
        self.tail = b"," + self.bare_tail
        metadata = b',"metadata":' + encode(nested) if nested else b""
        self.own_tail = b',"toolCallId":%b,"toolName":%b}%b}%b' % (call, tool, metadata, end)
        #: Heads of this very millisecond by name; whoever sees another one clears it.
        self.stamped: dict[str, bytes] = {}
        self._names: dict[str, bytes] = {}

    @property
    def tails(self) -> tuple[bytes, bytes, bytes]:
        """All the tails of this call, by which its frames are known."""
        return self.tail, self.bare_tail, self.own_tail

    def knows(self, name: str) -> bool:
        """Whether this name was written before, and so was checked before."""
        return name in self._names

    def head(self, now: int, name: str) -> bytes:
        """The head of an event, `now` in milliseconds; kept in `stamped`."""
        encoded = self._names.get(name)
        if encoded is None:
            if len(self._names) >= MAX_NAMES:  # names made from data must not grow the cache without bound
                self._names.clear()
                self.stamped.clear()
            encoded = self._names[name] = encode(name)
        head = self.stamped[name] = b'\ndata: {"type":"CUSTOM","timestamp":%d,"name":%b,"value":{' % (now, encoded)
        return head

    @staticmethod
    def own_head(now: int, name: str) -> bytes:
        """The head of one of the gateway's own events."""
        return b'\ndata: {"type":"CUSTOM","timestamp":%d,"name":%b,"value":{' % (now, encode(name))

    @staticmethod
    def value(value: object, changes: list[Change]) -> bytes:
        """A tool's value as a JSON object without `toolCallId`; `changes` receives what was replaced.

        A mapping, dataclass or model; anything else raises `TypeError`.
        """
        fields = value if type(value) is dict else as_mapping(value)
        if "toolCallId" in fields:
            fields = {key: item for key, item in fields.items() if key != "toolCallId"}
        return encode(fields, changes)


def arguments_text(arguments: object) -> str:
    """A call's arguments, as they were parsed from JSON, as the JSON text of TOOL_CALL_ARGS.

    Not the total encoder: the model's own numbers must come back to it digit for digit.
    """
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
