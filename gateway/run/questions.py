"""What runs ask of people, and what people answered: frozen values that stores keep.

Pure. A question belongs to one call of one run. It is open until somebody answers it or nobody waits for it any more.
Contract 2.2, 4.2, 5.5 and 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["AGENT_KEY", "APPROVAL_KEY", "Answer", "Claim", "Kind", "Note", "Question"]

# `open`: asked in a run that goes on. `interrupt`: its run has ended with it and is resumed with the answer.
# `page`: a page is asked to run a tool. `detach`: the call can move to the background, if somebody wants that.
# `kept`: an agent's own question with its answer, with which the agent has not been called yet.
Kind = Literal["open", "interrupt", "page", "detach", "kept"]

# No tool can use them as keys of its own: those are asked for by `ctx.interrupt`, which checks. The second one is that
# of what an agent itself has asked, by no call.
APPROVAL_KEY = "gateway.approval"
AGENT_KEY = "gateway.agent"

NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answered: `resolved` with a payload, or `cancelled`; `run_id` is the run that resumed with it."""

    status: str
    payload: Any = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A page has taken a page tool's call; the worker of the run lets it lapse when it is not renewed in time."""

    claim_id: str
    renewals: int = 0
    #: The page shows something to the person and waits: `waiting` counts how often it said so.
    waiting: int = 0
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a call asks a person, or a page; `answer` is set once, by whoever answers first.

    `reason` is AG-UI's. `key` is the tool's own name for it, `arguments` are those of the call, with which it is run
    again, and `earlier` its answers so far. `closed` says that nobody waits for an answer any more.
    Times are Unix seconds.
    """

    interrupt_id: str
    call_id: str
    tool_name: str
    asked_at: float
    kind: Kind = "open"
    key: str = "input"
    reason: str = "input_required"
    message: str | None = None
    response_schema: Mapping[str, Any] | None = None
    expires_at: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=lambda: NONE)
    earlier: Mapping[str, Answer] = field(default_factory=lambda: NONE)
    answer: Answer | None = None
    closed: bool = False
    claim: Claim | None = None

    @property
    def open(self) -> bool:
        return self.answer is None and not self.closed


@dataclass(frozen=True, slots=True)
class Note:
    """What became of a background job, for the conversation it came from; `run_id` is the job's.

    `delivered_to` is the one run that told it, once there is one.
    """

    run_id: str
    call_id: str
    text: str
    ended_at: float
    delivered_to: str | None = None

    @property
    def message_id(self) -> str:
        return f"{self.call_id}:note"
