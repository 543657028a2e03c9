"""Waiting for the person: what a call's wait does to its clocks, its run and its stream.

On the loop only. Contract 2.2 (`waiting_for_user`), 4.4 (`tool.waiting`, `tool.resumed`) and 5.2.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from gateway.errors import Interrupt
from gateway.run.questions import APPROVAL_KEY, Question
from gateway.run.records import iso

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.live import LiveRun

__all__ = ["Wait", "begin_wait", "end_wait", "end_waits", "move_wait", "question_of", "retell_wait", "tell_wait"]


class Wait:
    """One thing that a call waits for; `question` when it can be answered, `give_up` tells who waits for that."""

    __slots__ = ("give_up", "message", "question", "since", "started", "told")

    def __init__(self, message: str | None, question: Question | None) -> None:
        self.message = message
        self.question = question
        self.since = time()
        self.started = monotonic()
        self.told = False
        self.give_up: Callable[[], object] | None = None

    def fields(self) -> dict[str, Any]:
        """Of `tool.waiting`."""
        shown: dict[str, Any] = {}
        if self.message is not None:
            shown["message"] = self.message
        if self.question is not None:
            shown["interruptId"] = self.question.interrupt_id
            if self.question.response_schema is not None:
                shown["responseSchema"] = self.question.response_schema
        return {**shown, "since": iso(self.since)}


def begin_wait(call: Call, message: str | None, question: Question | None = None) -> Wait:
    """The clocks of the call and of those around it stop for good; `tell_wait` lets everybody see that it waits."""
    above: Call | None = call
    while above is not None:
        above.stop_clock()
        above = above.parent
    wait = Wait(message, question)
    call.waits.append(wait)
    call.run.wait_began()
    call.show_waiting(waiting=True)
    return wait


def tell_wait(call: Call, wait: Wait) -> None:
    """`tool.waiting`, unless the call is over."""
    if not call.closed and not call.run.machine.over:
        wait.told = True
        call.tell("tool.waiting", wait.fields())


def end_wait(call: Call, wait: Wait) -> None:
    """The wait is over, however it ended. `call` is the one it was begun for, wherever that is by now."""
    call = call.current
    if wait not in call.waits:
        return  # it ended with its call
    call.waits.remove(wait)
    call.run.wait_ended()
    if call.closed or call.run.machine.over:
        return
    if not call.waits:
        call.show_waiting(waiting=False)
    if not wait.told:
        return
    waited: dict[str, Any] = {"waitedMs": round((monotonic() - wait.started) * 1000)}
    if wait.question is not None:
        waited["interruptId"] = wait.question.interrupt_id
    call.tell("tool.resumed", waited)


def end_waits(call: Call) -> None:
    """The call is over: what it still waits for, in code that it has left behind, is waited for no more."""
    for wait in list(call.waits):
        end_wait(call, wait)
        if wait.give_up is not None:
            wait.give_up()


def move_wait(wait: Wait, old: LiveRun, call: Call) -> None:
    """The run of `call` waits from now on, and not the one where it was; it says so, but not before it has the
    question: that is for `retell_wait`."""
    old.wait_ended()
    call.run.wait_began()
    wait.told = wait.told and wait.question is None
    if wait.told:
        tell_wait(call, wait)


def retell_wait(call: Call, wait: Wait) -> None:
    """Tells of a wait of a call that has moved, if it still waits."""
    call = call.current
    if wait in call.waits:
        tell_wait(call, wait)


def question_of(call: Call, asked: Interrupt, now: float) -> Question:
    """The question with which a call ends its run: with all that it takes to make the call again."""
    ttl = call.run.settings.interrupt_ttl
    approval = {}
    if call.approval is not None:
        # With what it was given for: after the resume nothing else may run by it.
        payload = {**call.approval.payload, "arguments": call.approved_for or call.arguments}
        approval = {APPROVAL_KEY: replace(call.approval, payload=payload)}
    return Question(
        f"int_{secrets.token_urlsafe(18)}",
        call.call_id,
        call.tool_name,
        now,
        kind="interrupt",
        key=asked.key,
        reason=asked.reason,
        message=asked.message,
        response_schema=asked.schema,
        expires_at=now + ttl,
        arguments=call.arguments,
        earlier={**call.answers, **approval},
    )
