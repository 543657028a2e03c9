"""From events back to messages: what a client would hold after reading a run. Pure.

The rules are the official client's (reference/agui-protocol.md 2.7): applying a start twice changes nothing, results
become tool messages. Source: contract 3, `GET /threads/{threadId}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MessageFold"]

Message = dict[str, Any]


class MessageFold:
    """Collects messages: those a request brought, and those that its events make."""

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}
        self._calls: dict[str, Message] = {}

    @property
    def messages(self) -> list[Message]:
        """In the order in which they came."""
        return list(self._messages.values())

    def add(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Messages of a request; one whose id is known already is the client's newer copy."""
        for message in messages:
            copy = dict(message)
            self._messages[copy["id"]] = copy
            copy["toolCalls"] = [dict(call, function=dict(call["function"])) for call in copy.get("toolCalls") or ()]
            if not copy["toolCalls"]:
                del copy["toolCalls"]
            for call in copy.get("toolCalls", ()):
                self._calls[call["id"]] = call

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            if handler := _HANDLERS.get(event["type"]):
                handler(self, event)

    def _text_start(self, event: Mapping[str, Any]) -> None:
        role = event.get("role", "assistant")
        self._messages.setdefault(event["messageId"], {"id": event["messageId"], "role": role, "content": ""})

    def _reasoning_start(self, event: Mapping[str, Any]) -> None:
        self._text_start({**event, "role": "reasoning"})

    def _content(self, event: Mapping[str, Any]) -> None:
        if message := self._messages.get(event["messageId"]):
            message["content"] = message.get("content", "") + event["delta"]

    def _call_start(self, event: Mapping[str, Any]) -> None:
        if event["toolCallId"] in self._calls:
            return
        parent = event.get("parentMessageId", event["toolCallId"])
        message = self._messages.setdefault(parent, {"id": parent, "role": "assistant"})
        call = {
            "id": event["toolCallId"],
            "type": "function",
            "function": {"name": event["toolCallName"], "arguments": ""},
        }
        message.setdefault("toolCalls", []).append(call)
        self._calls[call["id"]] = call

    def _call_args(self, event: Mapping[str, Any]) -> None:
        if call := self._calls.get(event["toolCallId"]):
            call["function"]["arguments"] += event["delta"]

    def _result(self, event: Mapping[str, Any]) -> None:
        message = {
            "id": event["messageId"],
            "role": "tool",
            "toolCallId": event["toolCallId"],
            "content": event["content"],
        }
        if event.get("metadata", {}).get("tanstack", {}).get("state") == "output-error":
            message["error"] = event["content"]
        self._messages[event["messageId"]] = message

    def _snapshot(self, event: Mapping[str, Any]) -> None:
        self._messages.clear()
        self._calls.clear()
        self.add(event["messages"])


_HANDLERS = {
    "TEXT_MESSAGE_START": MessageFold._text_start,
    "TEXT_MESSAGE_CONTENT": MessageFold._content,
    "REASONING_MESSAGE_START": MessageFold._reasoning_start,
    "REASONING_MESSAGE_CONTENT": MessageFold._content,
    "TOOL_CALL_START": MessageFold._call_start,
    "TOOL_CALL_ARGS": MessageFold._call_args,
    "TOOL_CALL_RESULT": MessageFold._result,
    "MESSAGES_SNAPSHOT": MessageFold._snapshot,
}
