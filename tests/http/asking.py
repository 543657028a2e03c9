"""What the tests of the HTTP surface ask of a gateway, and the tools that they ask for."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.execution.running import check_order, parse
from tests.http.site import Stream

__all__ = ["ASYNC", "Gates", "JSON", "Reader", "agent_body", "ask", "echo", "error_of", "events_of", "waits"]

JSON = {"accept": "application/json"}
ASYNC = {"prefer": "respond-async"}


class Gates:
    """What the tools of a test wait for, and what they counted. Gates are made when somebody asks for them."""

    def __init__(self) -> None:
        self.executions: Counter[str] = Counter()
        self.trail: list[str] = []
        self.contexts: list[ToolContext] = []
        self._gates: dict[str, asyncio.Event] = {}

    def __getitem__(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())


class Reader:
    """Reads a stream event by event, and keeps what it has read."""

    def __init__(self, stream: Stream) -> None:
        assert stream.status == 200
        self.stream = stream
        self.events: list[dict[str, Any]] = []
        self._read = 0

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of this type or name."""
        while True:
            while self._read == len(self.events):
                found = await self.stream.messages()
                assert found, f"The stream ended without {name}: {[event['type'] for event in self.events]}"
                self.events += [json.loads(item.data) for item in found]
            event = self.events[self._read]
            self._read += 1
            if name in (event["type"], event.get("name")):
                return event

    async def rest(self) -> list[dict[str, Any]]:
        """Every event of the stream, once it has ended."""
        self.events += [event for _, event in await self.stream.rest()]
        return self.events


@tool
async def echo(ctx: ToolContext, text: str = "") -> dict[str, str]:
    """Says what it was told."""
    if ctx.context is not None:
        ctx.context.executions[ctx.run_id] += 1
        ctx.context.contexts.append(ctx)
    return {"text": text}


@tool(timeout=0)
async def waits(ctx: ToolContext, name: str = "go") -> str:
    """Waits at a gate; leaves a trail of when it came and went."""
    gates: Gates = ctx.context
    gates.executions[ctx.run_id or ""] += 1
    gates.trail.append(f"{name} came")
    ctx.emit_custom_event("came", {"name": name})
    await gates[name].wait()
    gates.trail.append(f"{name} went")
    return name


def ask(*calls: tuple[str, str, Any]) -> list[dict[str, Any]]:
    """A conversation whose last message asks for these calls: (id, tool, arguments); a str is sent as it is."""
    asked = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for call_id, name, given in calls
    ]
    return [{"id": "u", "role": "user", "content": "go"}, {"id": "a", "role": "assistant", "toolCalls": asked}]


def agent_body(messages: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A `RunAgentInput` as the official client sends it."""
    return {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "state": {},
        "messages": list(messages),
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **more,
    }


def error_of(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The error of a refusal, which has our form and says its request's id."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    return any_error_of(answer)


def any_error_of(answer: Any) -> dict[str, Any]:
    """The error of a refusal of whatever status and code."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert set(answer.json()) == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"]
    return error


def events_of(content: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream, which is one that the official verifier accepts."""
    return check_order(parse(content))
