"""What the gateway answers over HTTP beside streams, as it is published: contract 3."""

from __future__ import annotations

from typing import Any, Literal

from ag_ui.core import AgentCapabilities, Message, RunAgentInput
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from gateway.wire.schema_custom import CallStatus
from gateway.wire.schema_events import Interrupt, RunOutcome, ToolOutput
from gateway.wire.schema_models import Schema, Time, Wire, accepted, written

__all__ = ["ANSWERS", "answer_definitions"]

RunStatus = Literal["running", "waiting", "stopping", "completed", "cancelled", "interrupted", "failed"]


class ErrorInfo(Wire):
    """What was refused. `code` is for programs, `message` for people; `details` depend on the code."""

    code: str
    message: str
    details: Any = Field(
        None, description="Of `400` and `422`: `[{field, message}]`; of `410`: `{firstEventId, lastEventId, status}`."
    )


class ErrorAnswer(Wire):
    """The body of every refusal."""

    error: ErrorInfo


class ToolCallRecord(Wire):
    """One call of a run."""

    tool_call_id: str
    tool_name: str
    status: Literal["pending", "running", "waiting"] | CallStatus
    started_at: Time | None = Field(None, description="Absent while the call is `pending`.")
    ended_at: Time | None = None
    detached_run_id: str | None = Field(None, description="The run that goes on with it in the background.")


class RunFailure(Wire):
    """What RUN_ERROR said."""

    code: str
    message: str


class RunRecord(Wire):
    """What is known of a run."""

    run_id: str
    thread_id: str
    parent_run_id: str | None = None
    agent: str = Field(description="`tools` for runs of `/tools/{name}`.")
    background: bool | None = Field(None, description="True when a call that was detached goes on in it.")
    status: RunStatus
    reason: str | None = Field(None, description="Why it is being stopped, was stopped, or failed.")
    created_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None
    last_event_id: int = Field(ge=0, description="Id of its last event so far.")
    outcome: RunOutcome | None = None
    error: RunFailure | None = None
    tool_calls: list[ToolCallRecord]


class RunList(Wire):
    """A page of runs, newest first; `next` is the `after` of the following page."""

    items: list[RunRecord]
    next: str | None


class StoppedRuns(Wire):
    """The runs of a thread that are being stopped now."""

    run_ids: list[str]


class InterruptedOutput(Wire):
    """A call that ended with questions, as a JSON answer: `resume` with their answers runs it again."""

    status: Literal["interrupted"]
    interrupts: list[Interrupt] = Field(min_length=1)
    run_id: str
    tool_call_id: str


class Claimed(Wire):
    """A page has a call of one of its tools to itself, for as long as it renews the claim."""

    claim_id: str
    expires_in: float = Field(ge=0, description="Seconds.")


class Detached(Wire):
    """A call has moved to the background."""

    status: Literal["accepted"]
    run_id: str = Field(description="The run that goes on with it.")


class DetachedCall(Wire):
    """One of the calls that moved to the background."""

    tool_call_id: str
    run_id: str = Field(description="The run that goes on with it.")


class DetachedAll(Wire):
    """The calls of a run that have moved to the background."""

    status: Literal["accepted"]
    jobs: list[DetachedCall]


class DetachRejected(Wire):
    """Nothing has moved: `reason` is for programs, `error` for people."""

    status: Literal["rejected"]
    reason: Literal["not_running", "not_detachable"]
    error: str


class ToolAnnotations(Wire):
    """MCP's hints about what a tool does."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolDescriptor(Wire):
    """A tool that this session may call."""

    name: str = Field(pattern="^[A-Za-z0-9_.-]{1,128}$")
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments.")
    output_schema: dict[str, Any] | None = Field(None, description="JSON Schema of `structuredContent`.")
    timeout: float = Field(ge=0, description="Seconds; 0 waits forever.")
    task_support: Literal["forbidden", "optional", "required"]
    annotations: ToolAnnotations


class ToolList(Wire):
    """The catalogue of tools."""

    items: list[ToolDescriptor]


class AgentDescriptor(Wire):
    """An agent that this gateway runs."""

    name: str
    description: str


class AgentList(Wire):
    """The catalogue of agents."""

    items: list[AgentDescriptor]


class ThreadInterrupt(Interrupt):
    """An open question of a thread, and the run that ended with it."""

    run_id: str


class ThreadView(Wire):
    """A conversation as its runs left it."""

    thread_id: str
    messages: list[Message]
    active_runs: list[RunRecord]
    interrupts: list[ThreadInterrupt]


class UIMessage(Wire):
    """A message in TanStack's form."""

    id: str
    role: Literal["user", "assistant", "system"]
    parts: list[UIPart]


class UIPart(Wire):
    """A part of a message: `text`, `tool-call`, `tool-result`, or content of the user."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", frozen=True, strict=True)

    type: str


class ActiveRun(Wire):
    """The run of a thread that is at work."""

    run_id: str


class PendingInterrupts(Wire):
    """The open questions of the run that ended with them; one resume answers all."""

    run_id: str
    pending: list[Interrupt] = Field(min_length=1)


class ThreadState(Wire):
    """A thread as TanStack's client hydrates from it."""

    messages: list[UIMessage]
    active_run: ActiveRun | None
    interrupts: PendingInterrupts | None


class IssuedTicket(Wire):
    """A secret for `?ticket=` that reads one run."""

    ticket: str
    expires_at: Time | None = Field(description="Of a run that is still at work a share ticket has no end yet.")


class Health(Wire):
    """Whether the gateway lives, and takes new runs."""

    status: Literal["ok", "ready", "draining", "store_unavailable"]


ANSWERS: tuple[type[Wire], ...] = (
    AgentList,
    Claimed,
    DetachRejected,
    Detached,
    DetachedAll,
    ErrorAnswer,
    Health,
    InterruptedOutput,
    IssuedTicket,
    RunList,
    RunRecord,
    StoppedRuns,
    ThreadState,
    ThreadView,
    ToolList,
    ToolOutput,
)


def answer_definitions() -> dict[str, Schema]:
    """The definitions of all answers, those of AG-UI's own messages and capabilities as AG-UI accepts them."""
    foreign = accepted([AgentCapabilities, RunAgentInput])
    del foreign["RunAgentInput"]
    return {**written(ANSWERS), **foreign}
