"""From events back to messages: what a client would hold after reading a run. Pure.

The rules are the official client's (reference/agui-protocol.md 2.7): applying a start twice changes nothing, results
become tool messages. Source: contract 3, `GET /threads/{threadId}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["MessageFold"]

Message = dict[str, Any]

# What a snapshot that has none of them leaves alone: the agent does not hold them, only its clients do.
CLIENT_ROLES = ("activity", "reasoning")


class MessageFold:
    """Collects messages: those a request brought, and those that its events make."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._by_id: dict[str, Message] = {}
        self._calls: dict[str, Message] = {}
        self._answers: dict[str, Message] = {}

    @property
    def messages(self) -> list[Message]:
        """In the order in which they came, results behind their calls."""
        return self._messages

    def add(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Messages of a request; one whose id is known already is the client's newer copy.

        So is the answer to a call that has one: not every client keeps the id that the result came with.
        """
        for message in messages:
            known = self._by_id.get(message["id"]) or self._answers.get(message.get("toolCallId", ""))
            if known is None:
                known = {}
                self._messages.append(known)
            else:
                self._by_id.pop(known["id"], None)
                known.clear()
            known.update(message)
            known["toolCalls"] = [dict(call, function=dict(call["function"])) for call in known.get("toolCalls") or ()]
            if not known["toolCalls"]:
                del known["toolCalls"]
            self._register(known)

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Events of a run, in their order."""
        for event in events:
            if handler := _HANDLERS.get(event["type"]):
                made = handler(self, event)
                if made is not None and (metadata := event.get("metadata")):
                    made["metadata"] = {**(made.get("metadata") or {}), **metadata}

    def _register(self, message: Message) -> None:
        self._by_id[message["id"]] = message
        if message["role"] == "tool":
            self._answers[message["toolCallId"]] = message
        for call in message.get("toolCalls", ()):
            self._calls[call["id"]] = call

    def _open(self, message: Message) -> Message:
        """The message of this id, a new one at the end when there is none."""
        if (known := self._by_id.get(message["id"])) is not None:
            return known
        self._messages.append(message)
        self._register(message)
        return message

    def _text_start(self, event: Mapping[str, Any]) -> Message:
        message = {"id": event["messageId"], "role": event.get("role") or "assistant", "content": ""}
        if event.get("name") is not None:
            message["name"] = event["name"]
        return self._open(message)

    def _reasoning_start(self, event: Mapping[str, Any]) -> Message:
        return self._open({"id": event["messageId"], "role": "reasoning", "content": ""})

    def _content(self, event: Mapping[str, Any]) -> Message | None:
        if (message := self._by_id.get(event["messageId"])) is not None:
            before = message.get("content")
            message["content"] = (before if isinstance(before, str) else "") + event["delta"]
        return message

    def _call_start(self, event: Mapping[str, Any]) -> Message:
        call_id, name = event["toolCallId"], event["toolCallName"]
        if (known := self._calls.get(call_id)) is not None:
            known["function"]["name"] = name
            return known
        parent = event.get("parentMessageId") or call_id
        message = self._open({"id": parent, "role": "assistant"})
        if message["role"] != "assistant":
            message = self._open({"id": call_id, "role": "assistant"})
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        message.setdefault("toolCalls", []).append(call)
        self._calls[call_id] = call
        return call

    def _call_args(self, event: Mapping[str, Any]) -> Message | None:
        if (call := self._calls.get(event["toolCallId"])) is not None:
            call["function"]["arguments"] += event["delta"]
        return call

    def _result(self, event: Mapping[str, Any]) -> Message:
        call_id = event["toolCallId"]
        message = {"id": event["messageId"], "role": "tool", "toolCallId": call_id, "content": event["content"]}
        marks = (event.get("metadata") or {}).get("tanstack")
        if isinstance(marks, dict) and marks.get("state") == "output-error":  # others may put anything there
            message["error"] = event["content"]
        if (known := self._by_id.get(message["id"])) is not None:
            known.clear()
            known.update(message)
            message = known
        else:
            self._messages.insert(self._place_of_result(call_id), message)
        self._register(message)
        return message

    def _place_of_result(self, call_id: str) -> int:
        """Behind the message with the call and the results that are there: models accept no other order."""
        place = len(self._messages)
        call = self._calls.get(call_id)
        for index in range(len(self._messages) - 1, -1, -1):
            if any(item is call for item in self._messages[index].get("toolCalls", ())):
                place = index + 1
                break
        while place < len(self._messages) and self._messages[place]["role"] == "tool":
            place += 1
        return place

    def _snapshot(self, event: Mapping[str, Any]) -> None:
        new = {message["id"]: message for message in event["messages"]}
        roles = {message["role"] for message in event["messages"]}
        kept = [
            message
            for message in self._messages
            if message["id"] in new or (message["role"] in CLIENT_ROLES and message["role"] not in roles)
        ]
        self._messages, self._by_id, self._calls, self._answers = [], {}, {}, {}
        self.add(new.get(message["id"], message) for message in kept)
        self.add(new.values())


_HANDLERS: Mapping[str, Callable[[MessageFold, Mapping[str, Any]], Message | None]] = {
    "TEXT_MESSAGE_START": MessageFold._text_start,
    "TEXT_MESSAGE_CONTENT": MessageFold._content,
    "REASONING_MESSAGE_START": MessageFold._reasoning_start,
    "REASONING_MESSAGE_CONTENT": MessageFold._content,
    "TOOL_CALL_START": MessageFold._call_start,
    "TOOL_CALL_ARGS": MessageFold._call_args,
    "TOOL_CALL_RESULT": MessageFold._result,
    "MESSAGES_SNAPSHOT": MessageFold._snapshot,
}
