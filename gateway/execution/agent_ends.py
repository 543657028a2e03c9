"""What an agent says in its terminal event, as the gateway keeps it: its own interrupts, and what it adds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, cast

from gateway.execution.live import LiveRun
from gateway.run.interrupts import bound
from gateway.run.questions import AGENT_KEY, Question
from gateway.run.records import iso
from gateway.wire.inputs import MAX_ID

__all__ = ["added_of", "asked_of"]

ADDED = ("usage", "metadata")


def added_of(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ADDED if name in event}


def asked_of(interrupt: Mapping[str, Any], run: LiveRun) -> tuple[Question, Mapping[str, Any]]:
    """An agent's own interrupt, and the question as which it is kept until the run is resumed.

    The answer is the agent's to look at; that it comes once, and in time, is the gateway's part.
    """
    interrupt_id = interrupt["id"]
    if not 1 <= len(interrupt_id) <= MAX_ID:
        raise ValueError(f"RUN_FINISHED: the id of an interrupt has 1 to {MAX_ID} characters.")
    now = time()
    last = now + run.settings.interrupt_ttl
    given = _seconds(interrupt.get("expiresAt"))
    expires_at = last if given is None else min(given, last)
    question = Question(
        interrupt_id,
        f"/{interrupt_id}",  # of no call: no id of one has a slash
        "",
        now,
        kind="interrupt",
        key=AGENT_KEY,
        reason=interrupt["reason"],
        message=interrupt.get("message"),
        expires_at=expires_at,
    )
    wire = {**interrupt, "expiresAt": interrupt["expiresAt"] if given == expires_at else iso(expires_at)}
    return question, bound(wire, run.key.run_id)


def _seconds(text: str | None) -> float | None:
    """A time as agents write it, in Unix seconds; None for none, and for what is not one."""
    try:
        at = datetime.fromisoformat(cast("str", text))
    except (TypeError, ValueError):
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
