"""What calls come to, apart from how they are run: aborted, wanted otherwise, converted, too large."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.errors import Interrupt
from gateway.execution import outcomes
from gateway.execution.approvals import Edited
from gateway.execution.call import Call
from gateway.execution.detaching import detached_note
from gateway.execution.outcomes import WHAT_ENDED, ToolOutput
from gateway.execution.page_tools import PageTool
from gateway.execution.settle import Raised, Settled
from gateway.wire.codec import Change, decode, encode

__all__ = ["aborted_output", "converted", "fitting", "is_cancellation", "model_arguments", "wanted_in"]


def aborted_output(call: Call, reason: str | None = None) -> ToolOutput:
    """What a call ends in whose signal was aborted; for this reason, if that is another one than the signal's.

    One that has moved is not ended by that: it is what is around it that was.
    """
    if call.moved is not None:
        return outcomes.detached(detached_note(call.call_id))
    reason = reason or call.signal.reason or "tool"
    retryable = call.tool is not None and call.tool.retryable
    if reason == "user":
        return outcomes.cancelled()
    if reason == "timeout" and call.expired and isinstance(call.tool, PageTool) and not call.taken:
        return outcomes.unavailable(call.tool_name, on_page=True)  # no page has it, so it never ran
    if reason == "timeout" and call.expired:
        return outcomes.timed_out(call.tool_name, call.limit, retryable=retryable)
    # A signal that an adapter brings may have reasons of its own.
    return outcomes.interrupted(call.tool_name, WHAT_ENDED.get(reason, "its caller"), retryable=retryable)


def model_arguments(tool_name: str, text: str) -> tuple[dict[str, Any], ToolOutput | None]:
    """A model's arguments: what is no object counts as `{}`, what is no JSON fails the call (contract 5.1)."""
    if not text.strip():
        return {}, None
    try:
        parsed = decode(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        message = f'Arguments of "{tool_name}" are not JSON: {error}'
        return {}, outcomes.invalid_arguments(message, [{"field": "arguments", "message": "not JSON"}])
    return (parsed if isinstance(parsed, dict) else {}), None


def wanted_in(error: BaseException) -> Interrupt | Edited | None:
    """What asks for another end of the call than a result, also when a task group has wrapped it."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := wanted_in(inner)) is not None), None)
    return error if isinstance(error, (Interrupt, Edited)) else None


def is_cancellation(answer: Settled[Any]) -> bool:
    return isinstance(answer, Raised) and isinstance(answer.error, asyncio.CancelledError)


def converted(call: Call, value: Any) -> ToolOutput:
    """What a middleware returned, as an output of plain JSON; raises `PayloadError` under `strict_payloads`."""
    changes: list[Change] = []
    output = outcomes.passed_on(value, changes) if isinstance(value, ToolOutput) else outcomes.output_of(value, changes)
    if changes:
        call.replaced(changes)
    return output


def fitting(call: Call, output: ToolOutput) -> ToolOutput:
    limit = call.run.settings.max_result_bytes
    return outcomes.too_large(limit) if len(encode(output.to_wire())) > limit else output
