"""What a remote agent is sent: the request of its first run and of those that follow, and the headers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ag_ui.core import RunAgentInput

from gateway.execution.tools import Tool
from gateway.run.call_names import CallNames
from gateway.run.fold import MessageFold
from gateway.upstream.remote import RemoteAgent
from gateway.wire.codec import encode
from gateway.wire.json_patch import patched

__all__ = ["Conversation", "forwarded"]

# What only clients hold: an official one does not send it either.
NOT_SENT = "activity"
# An official client always sends these, and backends that were made for protocol 0.x refuse a request without them.
NEEDED: Mapping[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}


def forwarded(agent: RemoteAgent, headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """The headers that an agent gets: its own, and of the request's those that it may have."""
    own = {name.lower(): value for name, value in agent.headers.items()}
    passed: dict[str, str] = {}
    for name, value in headers:
        if (name := name.lower()) in agent.forward_headers and name not in own:
            passed[name] = f"{passed[name]}, {value}" if name in passed else value
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in {**passed, **own}.items()]


class Conversation:
    """The requests of one run: messages and state go on with what the agent and its tools have said so far."""

    def __init__(self, given: RunAgentInput) -> None:
        self._wire: dict[str, Any] = {**NEEDED, **given.model_dump(by_alias=True, mode="json")}
        self._fold: MessageFold | None = None
        #: The ids of the calls, as the agent and as the run have them.
        self.names = CallNames(self._wire["messages"])

    @property
    def frontend_tools(self) -> frozenset[str]:
        """The names of the tools that the client brings: theirs win."""
        return frozenset(tool["name"] for tool in self._wire.get("tools") or ())

    @property
    def held(self) -> frozenset[str]:
        """The ids of the calls in the messages of the next request."""
        messages = self._wire["messages"]
        return frozenset(call["id"] for message in messages for call in message.get("toolCalls") or ())

    def request(self, offered: Sequence[Tool]) -> bytes:
        """The next request, in which the agent is offered these tools beside those of the client."""
        tools = [*(self._wire.get("tools") or ()), *map(_described, offered)]
        return encode({**self._wire, "tools": tools, "messages": self.names.sent(self._wire["messages"])})

    async def go_on(self, events: Iterable[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> None:
        """The next request is that of a new run, after these events of the last one and of its tools.

        It resumes the last one with these answers to what that has asked.
        """
        if self._fold is None:
            self._fold = MessageFold()
            self._fold.add(self._wire["messages"])
        wire = self._wire
        for event in events:
            if event["type"] == "STATE_SNAPSHOT":
                wire["state"] = event["snapshot"]
            elif event["type"] == "STATE_DELTA":
                wire["state"] = _patched(wire.get("state"), event["delta"])
                await asyncio.sleep(0)  # there may be thousands
            else:
                self._fold.feed([event])
            if event["type"] == "TOOL_CALL_RESULT":
                self.names.answer(event["toolCallId"])
        wire["messages"] = [message for message in self._fold.messages if message["role"] != NOT_SENT]
        wire["parentRunId"], wire["runId"] = wire["runId"], str(uuid.uuid4())
        wire.pop("resume", None)  # those answers have been given
        if answers:
            wire["resume"] = list(answers)


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _patched(state: Any, delta: list[Mapping[str, Any]]) -> Any:
    """The state with a patch applied, or as it was when the patch does not fit: so it is in every client."""
    try:
        return patched({} if state is None else state, delta)
    except ValueError:
        return state
