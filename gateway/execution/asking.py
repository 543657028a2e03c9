"""Asking the person from inside a tool: what `ctx.request_input`, `ctx.waiting_for_user` and `ctx.interrupt` do.

Contract 2.2 and 5.6.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from gateway.errors import AbortError, Interrupt, NotAvailable
from gateway.execution.waiting import begin_wait, end_wait, tell_wait
from gateway.run.questions import AGENT_KEY, APPROVAL_KEY, Answer, Question
from gateway.wire.json_schema import check_schema

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.question_desk import QuestionDesk

__all__ = [
    "InputResponse",
    "ask_open",
    "asks_by_interrupt",
    "can_ask",
    "check_interrupt",
    "check_interruptible",
    "check_open",
    "check_schema",
    "checked_message",
    "interrupt",
    "new_question",
    "response_of",
    "waiting",
]


@dataclass(frozen=True, slots=True)
class InputResponse:
    """What the person answered: `status` is `resolved`, with the `payload` that the schema asked for, or `cancelled`.

    Source: contract 2.2.
    """

    status: str
    payload: Any = None

    @property
    def resolved(self) -> bool:
        """Whether there is an answer; False when the person would not give one."""
        return self.status == "resolved"


def response_of(answer: Answer) -> InputResponse:
    """As the tool sees it; nobody has checked what may have come with a `cancelled`."""
    return InputResponse(answer.status, answer.payload if answer.status == "resolved" else None)


def checked_message(message: object) -> str:
    if not isinstance(message, str):
        raise TypeError(f"The message to the person is a str, not {type(message).__name__}.")
    return message


def check_open(call: Call, member: str) -> None:
    """Raises `NotAvailable` where nobody could answer inside the run."""
    if call.run.channel in ("json", "none"):
        where = "a call without a run" if call.run.channel == "none" else "a call that is answered with JSON"
        raise NotAvailable(f"ctx.{member} is not available in {where}.")
    if call.closed:
        raise NotAvailable(f"ctx.{member} is not available any more: the call is over.")


@asynccontextmanager
async def waiting(call: Call, message: str | None) -> AsyncIterator[None]:
    """Around a time in which the call waits for the person in its own way."""
    check_open(call, "waiting_for_user")
    message = None if message is None else checked_message(message)
    wait = begin_wait(call, message)
    tell_wait(call, wait)
    try:
        yield
    finally:
        end_wait(call, wait)


def new_question(
    call: Call, message: str | None, schema: Mapping[str, Any] | None, *, reason: str = "input_required", **more: Any
) -> Question:
    """A question of the call, not asked yet."""
    return Question(
        f"int_{secrets.token_urlsafe(18)}",
        call.call_id,
        call.tool_name,
        time(),
        reason=reason,
        message=message,
        response_schema=schema,
        arguments=call.arguments,
        **more,
    )


async def ask_open(call: Call, desk: QuestionDesk, question: Question) -> Answer:
    """Asks inside the open run and waits for the answer; raises `AbortError` when the call is aborted before it."""
    if call.signal.aborted:
        raise AbortError(call.signal.reason or "tool")
    if call.run.lease is None or call.closed:
        raise NotAvailable("Nobody can answer: the call has its result already.")
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    run, signal = call.run, call.signal
    remove = signal.on_abort(lambda reason: run.soon(partial(_give_up, answered, reason)))
    wait = begin_wait(call, question.message, question)
    wait.give_up = partial(_give_up, answered, "tool")
    try:
        await desk.ask(call.run.lease, question, partial(_take, answered))
        if (lease := call.current.run.lease) is not None and lease.key != run.key:
            await desk.move(lease, run.key, question)
        tell_wait(call.current, wait)  # not before the store has it: somebody will answer at once
        answer = await answered
        if question.key != APPROVAL_KEY:
            call.current.newest = answer
        return answer
    finally:
        remove()
        _forget(answered)
        desk.close(call.current.run.key, question.interrupt_id)
        end_wait(call, wait)


def _take(answered: asyncio.Future[Answer], question: Question) -> None:
    if question.answer is not None and not answered.done():
        answered.set_result(question.answer)


def _give_up(answered: asyncio.Future[Answer], reason: str) -> None:
    if not answered.done():
        answered.set_exception(AbortError(reason))


def _forget(answered: asyncio.Future[Answer]) -> None:
    """Nobody waits for it any more, whatever it has come to, or would."""
    if not answered.cancel() and not answered.cancelled():
        answered.exception()


def interrupt(call: Call, message: str, schema: object, reason: str, key: str) -> InputResponse:
    """The earlier answer for `key`, or `Interrupt`."""
    given: Any = schema
    asked = Interrupt(message, given, reason, key)
    check_interrupt(asked)
    if (answer := call.answers.get(key)) is not None:
        return response_of(answer)
    check_interruptible(call)
    raise asked


def check_interrupt(asked: Interrupt) -> None:
    """Raises `TypeError` or `ValueError` for what nobody can be asked; a tool may have made it by hand."""
    given: tuple[tuple[str, object], ...] = (("message", asked.message), ("reason", asked.reason), ("key", asked.key))
    for name, value in given:
        if not isinstance(value, str) or not value:
            raise TypeError(f"{name} of an interrupt must be a str that is not empty, not {value!r}.")
    if asked.key in (APPROVAL_KEY, AGENT_KEY):
        raise ValueError(f"The key {asked.key!r} is the gateway's own.")
    asked.schema = check_schema(asked.schema)


def asks_by_interrupt(call: Call) -> bool:
    """Whether its questions end its run, by the switch of contract 5.6; else they are asked inside it."""
    return call.run.channel in ("interrupt", "json") and call.parent is None and call.listed


def can_ask(call: Call) -> bool:
    """Whether there is anybody whom it could ask, in the one way or the other."""
    return call.run.channel in ("open", "interrupt") or asks_by_interrupt(call)


def check_interruptible(call: Call) -> None:
    """Raises `NotAvailable` for a call whose run cannot be ended and begun again: nested, background, without a run."""
    if call.run.channel == "none":
        raise NotAvailable("ctx.interrupt is not available in a call without a run.")
    if call.parent is not None:
        raise NotAvailable("ctx.interrupt is not available in a nested call: use ctx.request_input.")
    if not call.listed:
        raise NotAvailable("ctx.interrupt is not available in the background: use ctx.request_input.")
