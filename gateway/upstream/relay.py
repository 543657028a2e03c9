"""Takes what a remote agent sends into its gateway run, over all the turns in which the agent is called.

What needs no repair passes as the bytes that came. Source: contract 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.errors import UpstreamError
from gateway.execution.agent_ends import added_of, asked_of
from gateway.execution.agent_job import Played
from gateway.execution.agent_stream import AGENT_FAILED
from gateway.execution.call import now_ms
from gateway.execution.ending import Ending
from gateway.execution.live import LiveRun
from gateway.run.call_names import CallNames
from gateway.run.records import CallRecord
from gateway.run.repair import Repair
from gateway.wire.frames import Frames
from gateway.wire.sse import MessageTooLarge

__all__ = ["Relay", "Streamed"]

logger = logging.getLogger("gateway")

# How long an end that the agent has sent may still be followed by something: some send one before their last results.
HOLD_SECONDS = 0.25
# TanStack AI says so when it runs the calls of this answer itself, and goes on with their results.
GOES_ON = "tool_calls"
STOPPED_ELSEWHERE = ("interrupted", "The agent's run was stopped on its own server.")

Event = Mapping[str, Any]


@dataclass(slots=True)
class Streamed:
    """A call that the agent has made in this turn and not answered itself.

    `shown`: its START, ARGS and END are in the stream; else it came in a snapshot of the messages.
    """

    call_id: str
    tool_name: str
    parent_message_id: str | None = None
    arguments: list[str] = field(default_factory=list)
    shown: bool = True


class Relay:
    """See the module. `mine` are the names of the tools whose calls the gateway makes; where there are any, `events` is
    what the next request must hold of this turn."""

    def __init__(self, agent: str, run: LiveRun, names: CallNames) -> None:
        self._agent = agent
        self._run = run
        self.names = names
        self._repair = Repair(names)
        self._failure: UpstreamError | None = None
        self._used: list[Any] = []  # tokens, by earlier turns
        self._held: Collection[str] = ()
        self.mine: Collection[str] = ()
        self.calls: dict[str, Streamed] = {}
        self.events = Gathered()

    def begin(self, held: Collection[str]) -> None:
        """A new turn: of what the last one ended in, only what it has used counts.

        `held` are the calls of the messages that the agent is sent.
        """
        self._held = held
        self._used += (self._repair.finished or {}).get("usage") or []
        self._repair.begin()
        self._failure = None
        self.calls.clear()
        self.events = Gathered()

    async def play(self, response: httpx.Response) -> None:
        """Relays an answer to its end. `UpstreamError` when it breaks off, or is none."""
        frames = Frames()
        try:
            async with aclosing(self._chunks(response.aiter_bytes())) as chunks:
                async for chunk in chunks:
                    self._take(frames.feed(chunk))
                    await self._room()
            self._take(frames.close())
        except MessageTooLarge as error:
            raise UpstreamError("upstream_invalid", str(error)) from error
        if not self._ended:
            code = "upstream_disconnected" if self._repair.seen else "upstream_invalid"
            raise UpstreamError(code, f"{self._repair.seen} events and no end")

    def broke_off(self, error: UpstreamError) -> None:
        """The answer did not come to its end; an end that was sent before counts, unless the answer is nonsense."""
        if self._ended and error.code == "upstream_disconnected":
            return
        logger.warning("Agent %s of run %s: %s (%s)", self._agent, self._run.key.label, error.code, error.reason)
        self._failure = error

    def close(self) -> None:
        """The agent says no more in this turn: what it has left open is closed."""
        for event, payload in self._repair.close(now_ms()):
            self._write(event, payload)
        if self._repair.counts:
            self._run.counts.add("upstream_repairs", self._repair.counts.total())
            logger.info("Agent %s of run %s: repaired %s", self._agent, self._run.key.label, dict(self._repair.counts))
            self._repair.counts.clear()

    def unanswered(self, names: Collection[str]) -> list[str]:
        """The calls of tools of these names that have no result."""
        return [call.call_id for call in self.calls.values() if call.tool_name in names]

    def played(self) -> Played:
        """What the turn has come to."""
        if self._failure is not None:
            return Played(Ending(failure=(self._failure.code, self._failure.message)), [])
        if (failed := self._repair.failed) is not None:
            failure = (failed.get("code") or AGENT_FAILED, failed["message"])
            return Played(Ending(failure=failure, more=self._added(failed)), [])
        finished = self._repair.finished or {}
        outcome = finished.get("outcome") or {"type": "success"}
        if outcome["type"] == "cancelled":  # only the person's Stop is that, and it would have come from here
            return Played(Ending(failure=STOPPED_ELSEWHERE), [])
        asked = {interrupt["id"]: interrupt for interrupt in outcome.get("interrupts") or ()}
        try:
            questions = tuple(asked_of(interrupt, self._run) for interrupt in asked.values())
        except ValueError as error:
            self.broke_off(UpstreamError("upstream_invalid", str(error)))
            return self.played()
        pending = outcome.get("pendingToolCallIds") or []
        return Played(Ending(asked=questions, more=self._added(finished)), pending, finished.get("result"))

    def _added(self, event: Event) -> dict[str, Any]:
        used = [*self._used, *(event.get("usage") or ())]
        return {**added_of(event), "usage": used} if used else added_of(event)

    @property
    def _ended(self) -> bool:
        return self._repair.finished is not None or self._repair.failed is not None

    @property
    def _goes_on(self) -> bool:
        said = ((self._repair.finished or {}).get("metadata") or {}).get("tanstack")
        return isinstance(said, dict) and said.get("finishReason") == GOES_ON

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """What comes, until the end, or until nothing has followed a terminal event for a while."""
        loop = asyncio.get_running_loop()
        release: float | None = None
        try:
            while True:
                async with asyncio.timeout_at(release):
                    chunk = await anext(chunks)
                before = self._repair.seen
                yield chunk
                if not self._ended or self._goes_on:
                    release = None
                elif release is None or self._repair.seen != before:
                    release = loop.time() + HOLD_SECONDS
        except (StopAsyncIteration, TimeoutError):
            return

    def _take(self, payloads: Iterable[bytes]) -> None:
        now = now_ms()
        for payload in payloads:
            for event, own in self._repair.feed(payload, now):
                self._write(event, own)
        self._run.pressure.look()

    def _write(self, event: dict[str, Any], payload: bytes | None) -> None:
        self._run.write(event, payload)
        if event["type"] in _OF_CALLS:
            self._of_call(event)
        if self.mine:
            self.events.add(event)

    def _of_call(self, event: Event) -> None:
        """Keeps what is known of the calls."""
        if (kind := event["type"]) == "MESSAGES_SNAPSHOT":
            self._told(event["messages"])
            return
        call_id = event["toolCallId"]
        if kind == "TOOL_CALL_START":
            if call_id in self.calls:  # it goes on, by a chunk
                return
            self.calls[call_id] = Streamed(call_id, event["toolCallName"], event.get("parentMessageId"))
            self._known(self.calls[call_id], CallRecord(call_id, event["toolCallName"], open=True))
        elif kind == "TOOL_CALL_ARGS" and call_id in self.calls:
            self.calls[call_id].arguments.append(event["delta"])
        elif kind == "TOOL_CALL_RESULT" and call_id in self.calls:
            self._answered(call_id)

    def _told(self, messages: Sequence[Event]) -> None:
        """Some agents tell of a call, of its arguments or of its result only in a snapshot of the messages."""
        for message in messages:
            for told in message.get("toolCalls") or ():
                if (call := self.calls.get(told["id"])) is not None and not any(call.arguments):
                    call.arguments = [told["function"]["arguments"]]
        last = next((message for message in reversed(messages) if message["role"] == "assistant"), {})
        for told in last.get("toolCalls") or ():
            call_id, name = told["id"], told["function"]["name"]
            if call_id not in self._held and call_id not in self.calls and call_id not in self._run.calls:
                call = Streamed(call_id, name, last["id"], [told["function"]["arguments"]], shown=False)
                self.calls[call_id] = call
                self._known(call, CallRecord(call_id, name))
        answered = {message.get("toolCallId") for message in messages}
        for call_id in [call_id for call_id in self.calls if call_id in answered]:
            self._answered(call_id)

    def _answered(self, call_id: str) -> None:
        call = self.calls.pop(call_id)
        self._known(call, CallRecord(call_id, call.tool_name, "completed"))

    def _known(self, call: Streamed, record: CallRecord) -> None:
        """Puts a call that the gateway is to make into the run's record: if this worker dies, it is answered."""
        if call.tool_name in self.mine:
            self._run.save_call(record)

    async def _room(self) -> None:
        """Waits while the store is behind: then the agent is not read from."""
        if self._run.pressure.full:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._run.pressure.when_free(lambda: None if free.done() else free.set_result(None))
            await free


class Gathered:
    """Events that a next request needs, deltas that follow each other as one: to join them piecewise is quadratic."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._last: Event | None = None
        self._deltas: list[str] = []

    def add(self, event: Event) -> None:
        kind = event["type"]
        if kind not in _KEPT:
            return
        if (key := _KEPT[kind]) is None:
            self.close()
            self._events.append(event)
        elif self._goes_on(event, key):
            self._deltas.append(event["delta"])
        else:
            self.close()
            self._last, self._deltas = event, [event["delta"]]

    def _goes_on(self, event: Event, key: str) -> bool:
        last = self._last
        same = last is not None and last["type"] == event["type"] and last[key] == event[key]
        return same and "metadata" not in event

    def close(self) -> list[Event]:
        """All of them so far."""
        if self._last is not None:
            self._events.append({**self._last, "delta": "".join(self._deltas)})
            self._last = None
        return self._events


_OF_CALLS = frozenset({"MESSAGES_SNAPSHOT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"})
# The events that change messages or state; for those that bring a piece of text: what names the text.
_KEPT: Mapping[str, str | None] = {
    "MESSAGES_SNAPSHOT": None,
    "REASONING_ENCRYPTED_VALUE": None,
    "REASONING_MESSAGE_CONTENT": "messageId",
    "REASONING_MESSAGE_END": None,
    "REASONING_MESSAGE_START": None,
    "STATE_DELTA": None,
    "STATE_SNAPSHOT": None,
    "TEXT_MESSAGE_CONTENT": "messageId",
    "TEXT_MESSAGE_END": None,
    "TEXT_MESSAGE_START": None,
    "TOOL_CALL_ARGS": "toolCallId",
    "TOOL_CALL_END": None,
    "TOOL_CALL_RESULT": None,
    "TOOL_CALL_START": None,
}
