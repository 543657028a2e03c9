"""From events back to messages: what a client would hold after reading a run. Pure.

The rules are the official client's (`apply/default.ts` of @ag-ui/client 1.0, reference/agui-protocol.md 2.7): to apply
a start twice changes nothing, results become tool messages behind their calls. Other than there, an id is one message's
alone, and a result that is an error says so. Source: contract 3, `GET /threads/{threadId}`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gateway.wire.json_patch import patched

__all__ = ["MessageFold"]

Message = dict[str, Any]
Event = Mapping[str, Any]

# Where a snapshot of the messages may say which activities it has all of: in its metadata, by their types.
DECLARATION = ("@ag-ui/client", "authoritativeActivityTypes")
UNSAID: Any = object()


class MessageFold:
    """Collects messages: those a request brought, and those that its events make."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._by_id: dict[str, Message] = {}
        self._calls: dict[str, Message] = {}
        self._answers: dict[str, Message] = {}
        self._growing: dict[int, tuple[Message, str, list[str]]] = {}

    @property
    def messages(self) -> list[Message]:
        """In the order in which they came, results behind their calls."""
        for holder, key, pieces in self._growing.values():
            holder[key] = "".join(pieces)
        self._growing.clear()
        return self._messages

    def add(self, messages: Iterable[Event]) -> None:
        """Messages of a request; one whose id is known already is the client's newer copy.

        So is the answer to a call that has one: not every client keeps the id that the result came with.
        """
        for message in messages:
            known = self._by_id.get(message["id"]) or self._answers.get(message.get("toolCallId", ""))
            made = dict(message)
            made["toolCalls"] = [dict(call, function=dict(call["function"])) for call in made.get("toolCalls") or ()]
            if not made["toolCalls"]:
                del made["toolCalls"]
            self._put(made, known)

    def feed(self, events: Iterable[Event]) -> None:
        """Events of a run, in their order."""
        for event in events:
            if handler := _HANDLERS.get(event["type"]):
                made = handler(self, event)
                if made is not None and (metadata := event.get("metadata")) is not None:
                    made["metadata"] = {**(made.get("metadata") or {}), **metadata}

    def _put(self, message: Message, known: Message | None = None, place: int | None = None) -> Message:
        """In the place of the one that is known; a new one at the end, or before the one of this place."""
        if known is not None:
            self._forget(known)
            known.clear()
            known.update(message)
            message = known
        else:
            self._messages.insert(len(self._messages) if place is None else place, message)
        self._by_id[message["id"]] = message
        if message["role"] == "tool":
            self._answers[message["toolCallId"]] = message
        for call in message.get("toolCalls", ()):
            self._calls.setdefault(call["id"], call)
        return message

    def _forget(self, message: Message) -> None:
        self._growing.pop(id(message), None)
        self._by_id.pop(message["id"], None)
        if self._answers.get(message.get("toolCallId", "")) is message:
            del self._answers[message["toolCallId"]]
        for call in message.get("toolCalls", ()):
            self._growing.pop(id(call["function"]), None)
            if self._calls.get(call_id := call["id"]) is call:
                del self._calls[call_id]

    def _grow(self, holder: Message, key: str, delta: str) -> None:
        """A text becomes longer; they are joined when they are read, to join them piecewise is quadratic."""
        if id(holder) not in self._growing:
            before = holder.get(key)
            self._growing[id(holder)] = holder, key, [before if isinstance(before, str) else ""]
        self._growing[id(holder)][2].append(delta)

    def _spoken(self, event: Event) -> Message | None:
        """The message of an event of text or of reasoning; an activity is none."""
        message = self._by_id.get(event["messageId"])
        return None if message is None or message["role"] == "activity" else message

    def _text_start(self, event: Event) -> Message | None:
        named = {} if event.get("name") is None else {"name": event["name"]}
        return self._start(event, {"role": event.get("role") or "assistant", "content": "", **named})

    def _reasoning_start(self, event: Event) -> Message | None:
        return self._start(event, {"role": "reasoning", "content": ""})

    def _start(self, event: Event, message: Message) -> Message | None:
        if event["messageId"] in self._by_id:
            return self._spoken(event)
        return self._put({"id": event["messageId"], **message, **_owner(event)})

    def _content(self, event: Event) -> Message | None:
        if (message := self._spoken(event)) is not None:
            self._grow(message, "content", event["delta"])
        return message

    def _call(self, event: Event) -> Message | None:
        return self._calls.get(event["toolCallId"])

    def _call_start(self, event: Event) -> Message:
        call_id, name = event["toolCallId"], event["toolCallName"]
        if (known := self._calls.get(call_id)) is not None:
            known["function"]["name"] = name
            return known
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        self._parent(event).setdefault("toolCalls", []).append(call)
        self._calls[call_id] = call
        return call

    def _parent(self, event: Event) -> Message:
        """The assistant message that a call belongs to: the one it names, or one of its own."""
        name = event.get("parentMessageId") or event["toolCallId"]
        known = self._by_id.get(name)
        if known is not None and known["role"] != "assistant":
            name = event["toolCallId"]
            known = self._by_id.get(name)
        if known is not None and known["role"] == "assistant":
            return known
        return self._put({"id": self._free(name), "role": "assistant", **_owner(event)})

    def _free(self, name: str) -> str:
        """The id, or where a message has it already, another one."""
        free, number = name, 1
        while free in self._by_id:
            number += 1
            free = f"{name}~{number}"
        return free

    def _call_args(self, event: Event) -> Message | None:
        if (call := self._call(event)) is not None:
            self._grow(call["function"], "arguments", event["delta"])
        return call

    def _result(self, event: Event) -> Message:
        call_id, content = event["toolCallId"], event["content"]
        message = {"id": event["messageId"], "role": "tool", "toolCallId": call_id, "content": content, **_owner(event)}
        marks = (event.get("metadata") or {}).get("tanstack")
        if isinstance(marks, dict) and marks.get("state") == "output-error":  # others may put anything there
            message["error"] = content
        known = self._by_id.get(message["id"])
        if known is not None and known.get("toolCallId") == call_id:
            return self._put(message, known)
        message["id"] = self._free(message["id"])
        return self._put(message, place=self._place_of_result(call_id))

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

    def _encrypted(self, event: Event) -> None:
        of_calls = event["subtype"] == "tool-call"
        known = (self._calls if of_calls else self._by_id).get(event["entityId"])
        if known is not None and known.get("role") != "activity":
            known["encryptedValue"] = event["encryptedValue"]

    def _activity(self, event: Event) -> Message | None:
        """A snapshot of one activity: all of it but its metadata, which go on."""
        known = self._by_id.get(event["messageId"])
        before = known if known is not None and known["role"] == "activity" else None
        if known is not None and event.get("replace") is False:
            return before
        made = {"id": event["messageId"], "role": "activity", "activityType": event["activityType"]}
        kept = {} if before is None or "metadata" not in before else {"metadata": before["metadata"]}
        return self._put({**made, "content": event["content"], **_owner(event), **kept}, known)

    def _activity_delta(self, event: Event) -> Message | None:
        known = self._by_id.get(event["messageId"])
        if known is None or known["role"] != "activity":
            return None
        before = known["content"]
        try:
            known["content"] = patched({} if before is None else before, event["patch"])
        except ValueError:
            return known
        known["activityType"] = event["activityType"]
        return known

    def _snapshot(self, event: Event) -> None:
        new = {message["id"]: message for message in event["messages"]}
        roles = {message["role"] for message in event["messages"]}
        declared = _declared(event)
        kept = [item for item in self.messages if item["id"] in new or _stays(item, roles, declared)]
        self._messages, self._by_id, self._calls, self._answers = [], {}, {}, {}
        self.add(new.get(message["id"], message) for message in kept)
        self.add(new.values())


def _owner(event: Event) -> dict[str, Any]:
    """Whose message an event makes, if it is a subagent's."""
    owner = event.get("subagentRunId")
    return {} if owner is None else {"subagentRunId": owner}


def _declared(event: Event) -> Collection[str] | None:
    """The types of which a snapshot has all activities; None for all types, `UNSAID` where it says nothing of them."""
    package, name = DECLARATION
    metadata = event.get("metadata") or {}
    if package not in metadata:
        return UNSAID  # type: ignore[no-any-return]  # a mark
    said = metadata[package]
    if not isinstance(said, dict):
        return ()
    types: Any = said.get(name, UNSAID)
    if isinstance(types, list):
        return types if all(isinstance(item, str) for item in types) else ()
    return types if types in (None, UNSAID) else ()


def _stays(message: Message, roles: Collection[str], declared: Collection[str] | None) -> bool:
    """Whether a snapshot without this message leaves it: what only clients hold, unless the agent holds such, too."""
    role = message["role"]
    if role == "activity" and declared is not UNSAID:
        return declared is not None and message["activityType"] not in declared
    return role in ("activity", "reasoning") and role not in roles


_HANDLERS: Mapping[str, Callable[[MessageFold, Event], Message | None]] = {
    "TEXT_MESSAGE_START": MessageFold._text_start,
    "TEXT_MESSAGE_CONTENT": MessageFold._content,
    "TEXT_MESSAGE_END": MessageFold._spoken,
    "REASONING_MESSAGE_START": MessageFold._reasoning_start,
    "REASONING_MESSAGE_CONTENT": MessageFold._content,
    "REASONING_MESSAGE_END": MessageFold._spoken,
    "REASONING_ENCRYPTED_VALUE": MessageFold._encrypted,
    "TOOL_CALL_START": MessageFold._call_start,
    "TOOL_CALL_ARGS": MessageFold._call_args,
    "TOOL_CALL_END": MessageFold._call,
    "TOOL_CALL_RESULT": MessageFold._result,
    "MESSAGES_SNAPSHOT": MessageFold._snapshot,
    "ACTIVITY_SNAPSHOT": MessageFold._activity,
    "ACTIVITY_DELTA": MessageFold._activity_delta,
}
