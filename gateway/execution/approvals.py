"""Approvals: a person says yes before a tool runs, perhaps to other arguments (contract 5.6).

On `/tools` the question is asked inside the open run; elsewhere the run ends with an AG-UI interrupt and the call is
made again with the answer. The tool never runs without the one or the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from gateway.errors import AccessDenied, Interrupt, NotAvailable, ToolError
from gateway.execution.asking import ask_open, new_question
from gateway.execution.bodies import TaskBody, settled
from gateway.execution.settle import Returned
from gateway.execution.start import run_async
from gateway.execution.tools import Tool
from gateway.run.interrupts import approval_schema
from gateway.run.questions import APPROVAL_KEY, Answer

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.question_desk import QuestionDesk

__all__ = ["REASON", "ApprovalAsked", "Edited", "approved_arguments", "edited_by"]

REASON = "tool_call"


class Edited(BaseException):
    """The person approved other arguments: the call begins anew with them, so that every guard sees them."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__("The arguments were edited.")
        self.arguments = arguments


class ApprovalAsked(Interrupt):
    """The run ends with the question whether the call may run: the gateway's own interrupt, whatever a tool makes."""


async def approved_arguments(
    tool: Tool, call: Call, desk: QuestionDesk | None, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments to run with. Raises `AccessDenied`, `Edited`, `InvalidArguments`, or `Interrupt` to ask."""
    if tool.needs_approval is False:
        return arguments
    validated = tool.validate(arguments)  # nobody is asked about a call that cannot be made
    if call.approval is not None:
        _refuse_unless_approved(call.approval)
        if call.approved_for is None:
            call.approved_for = dict(arguments)  # what the person's own words came to
        if call.approved_for == arguments:
            return arguments
        call.approval = call.approved_for = None  # this is another call than the one that the person has seen
    if not await _is_needed(tool, call, validated):
        return arguments
    answer = await _ask(tool, call, desk, arguments)
    _refuse_unless_approved(answer)
    call.approval, call.approved_for = answer, dict(arguments)
    if (edited := edited_by(answer)) is not None and edited != arguments:
        call.approved_for = None
        raise Edited(edited)
    return arguments


async def _is_needed(tool: Tool, call: Call, arguments: dict[str, Any]) -> bool:
    """What the tool's own callable says of the arguments that it would run with.

    It is foreign code: it may hang, and the call can be stopped; it may raise anything, and then nothing runs.
    """
    needed = tool.needs_approval
    if not callable(needed):
        return True

    async def ask() -> bool:
        said = needed(arguments)
        return bool(await said if isawaitable(said) else said)

    body = TaskBody(run_async(ask, call), cooperative=False, name=f"approval of {call.call_id}")
    aborted = asyncio.ensure_future(call.signal.wait())
    try:
        await asyncio.wait({body.future, aborted}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        aborted.cancel()
        body.abandon()
    call.signal.throw_if_aborted()
    answer = settled(body.future, aborted=False)
    if isinstance(answer, Returned):
        return bool(answer.value)
    if isinstance(answer.error, Exception):
        raise answer.error
    raise ToolError("failed", f"Whether it needs an approval could not be found out: {type(answer.error).__name__}.")


async def _ask(tool: Tool, call: Call, desk: QuestionDesk | None, arguments: Mapping[str, Any]) -> Answer:
    message = f'May "{tool.name}" run?'
    schema = approval_schema(arguments)
    if call.run.channel == "none" or desk is None:
        raise NotAvailable(f'"{tool.name}" needs an approval, and there is nobody to ask in a call without a run.')
    if call.run.channel == "open" or (call.parent is not None and call.run.channel == "interrupt"):
        return await ask_open(call, desk, new_question(call, message, schema, reason=REASON, key=APPROVAL_KEY))
    if call.parent is not None:
        raise NotAvailable(f'"{tool.name}" needs an approval, and a call that is answered with JSON cannot ask.')
    raise ApprovalAsked(message, schema, REASON, APPROVAL_KEY)


def _refuse_unless_approved(answer: Answer) -> None:
    resolved = answer.status == "resolved" and isinstance(answer.payload, Mapping)
    payload = answer.payload if resolved else {}  # nobody has checked what may have come with a `cancelled`
    if payload.get("approved") is True:
        return
    message = payload.get("message")
    raise AccessDenied(f"The person declined this call: {message}" if message else "The person declined this call.")


def edited_by(answer: Answer) -> Mapping[str, Any] | None:
    """The arguments that an approval puts in the place of the call's own, if it does."""
    payload = answer.payload
    if answer.status != "resolved" or not isinstance(payload, Mapping) or payload.get("approved") is not True:
        return None
    edited = payload.get("arguments")
    return edited if isinstance(edited, Mapping) else None
