"""What is known of a run and of its calls: frozen values that stores keep and HTTP shows.

A record changes at transitions only, never per event; `last_event_id` is filled in by the store that holds the log.
Times are Unix seconds here and ISO 8601 UTC on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from gateway.run.order import Open

__all__ = ["CallRecord", "RunKey", "RunRecord", "iso"]


class RunKey(NamedTuple):
    """Names a run in a store: run ids are the client's and unique per owner (`None`: nobody's, a capability)."""

    owner: str | None
    run_id: str

    @property
    def label(self) -> str:
        """For logs. The id of a run that is nobody's is a capability, so only its digest is written down."""
        if self.owner is not None:
            return self.run_id
        return f"~{sha256(self.run_id.encode()).hexdigest()[:12]}"


def iso(seconds: float) -> str:
    """Unix seconds as ISO 8601 UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call; `status` is `pending`, `running`, `waiting` or one of the outcomes of contract 5.1. A call that
    has ended its run with an AG-UI interrupt is `interrupted` too; the run's `outcome` has its question.

    `open` says that its TOOL_CALL_START is in the log and its TOOL_CALL_RESULT is not: what a survivor must close.
    """

    call_id: str
    tool_name: str
    status: str = "pending"
    started_at: float | None = None
    ended_at: float | None = None
    open: bool = False
    detached_run_id: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "toolCallId": self.call_id,
            "toolName": self.tool_name,
            "status": self.status,
        }
        if self.started_at is not None:
            wire["startedAt"] = iso(self.started_at)
        if self.ended_at is not None:
            wire["endedAt"] = iso(self.ended_at)
        if self.detached_run_id is not None:
            wire["detachedRunId"] = self.detached_run_id
        return wire


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. `status` is a state of `run.state`; `result` is the JSON of a `/tools` run's output, `messages`
    that of the history which an agent's request brought. `background`: a call that was detached goes on in it.
    `opened`: what its stream has open, as whoever takes it over must close it. `ends_unwatched`: it is to end when its
    last viewer has left."""

    key: RunKey
    thread_id: str
    agent: str
    created_at: float
    parent_run_id: str | None = None
    status: str = "running"
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    last_event_id: int = 0
    outcome: Mapping[str, Any] | None = None
    error: Mapping[str, str] | None = None
    calls: tuple[CallRecord, ...] = ()
    result: bytes | None = None
    messages: bytes | None = None
    stop_requested: str | None = None
    background: bool = False
    opened: tuple[Open, ...] = ()
    ends_unwatched: bool = False

    @property
    def over(self) -> bool:
        return self.ended_at is not None

    def with_call(self, call: CallRecord) -> RunRecord:
        """The record with this call added, or put in the place of the one with its id."""
        ids = [known.call_id for known in self.calls]
        if call.call_id not in ids:
            return replace(self, calls=(*self.calls, call))
        index = ids.index(call.call_id)
        return replace(self, calls=(*self.calls[:index], call, *self.calls[index + 1 :]))

    def stopped(self) -> RunRecord:
        """The record of an interrupted run after its Stop: what it has asked will not be answered."""
        asked = {asked.get("toolCallId") for asked in (self.outcome or {}).get("interrupts", ())}
        calls = tuple(replace(call, status="cancelled") if call.call_id in asked else call for call in self.calls)
        return replace(self, status="cancelled", outcome={"type": "cancelled"}, reason="user", calls=calls)

    def call(self, call_id: str) -> CallRecord | None:
        return next((call for call in self.calls if call.call_id == call_id), None)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"runId": self.key.run_id, "threadId": self.thread_id, "agent": self.agent}
        if self.parent_run_id is not None:
            wire["parentRunId"] = self.parent_run_id
        if self.background:
            wire["background"] = True
        wire["status"] = self.status
        if self.reason is not None:
            wire["reason"] = self.reason
        wire["createdAt"] = iso(self.created_at)
        for name, value in (("startedAt", self.started_at), ("endedAt", self.ended_at)):
            if value is not None:
                wire[name] = iso(value)
        wire["lastEventId"] = self.last_event_id
        if self.outcome is not None:
            wire["outcome"] = self.outcome
        if self.error is not None:
            wire["error"] = self.error
        wire["toolCalls"] = [call.to_wire() for call in self.calls]
        return wire
