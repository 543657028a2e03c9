"""`RunAgentInput` as the gateway takes it: the official model, our ids, and the options under `forwardedProps.gateway`.

Pure. Source: contract 3 (agent `tools`), 4.2, 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ag_ui.core import AssistantMessage, RunAgentInput, ToolMessage
from pydantic import ValidationError

from gateway.errors import RequestError
from gateway.wire.codec import decode
from gateway.wire.inputs import Input, Seconds, refuse, valid_id

__all__ = ["AgentInput", "GatewayProps", "PendingCall", "parse_agent_input"]


class GatewayProps(Input):
    """What a client may ask of the gateway itself, under `forwardedProps.gateway`."""

    on_disconnect: Literal["continue", "cancel"] | None = None
    disconnect_grace: Seconds | None = None


class PendingCall(NamedTuple):
    """A call that the last assistant message made and nobody has answered. `held`: the client knows this id."""

    call_id: str
    tool_name: str
    arguments: str
    message_id: str
    held: bool


class AgentInput(NamedTuple):
    """A validated request, what was parsed from it, and its options."""

    input: RunAgentInput
    parsed: dict[str, Any]
    props: GatewayProps

    @property
    def forwarded_props(self) -> dict[str, Any]:
        """`forwardedProps` as the client sent it, an object or nothing."""
        props = self.parsed.get("forwardedProps")
        return props if isinstance(props, dict) else {}

    def pending_calls(self) -> Iterator[PendingCall]:
        """The unanswered calls of the last assistant message; an id used twice becomes `<id>~2`."""
        messages = self.input.messages
        index = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)
        if index is None:
            return
        message = messages[index]
        answered = {later.tool_call_id for later in messages[index + 1 :] if isinstance(later, ToolMessage)}
        used: set[str] = set()
        for call in (message.tool_calls if isinstance(message, AssistantMessage) else None) or ():
            name = unused(call.id, used)
            used.add(name)
            if name not in answered:
                yield PendingCall(name, call.function.name, call.function.arguments, message.id, name == call.id)


def unused(call_id: str, used: set[str]) -> str:
    """`call_id`, or the first of `<id>~2`, `<id>~3` … that is not used."""
    name, number = call_id, 1
    while name in used:
        number += 1
        name = f"{call_id}~{number}"
    return name


def parse_agent_input(body: bytes) -> AgentInput:
    """Raises `RequestError` (`invalid_request`) that names every field that does not fit."""
    try:
        parsed = decode(body)
    except ValueError as error:
        raise RequestError(f"The body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise RequestError("The body must be a RunAgentInput object.")
    try:
        agent_input = RunAgentInput.model_validate(parsed)
    except ValidationError as error:
        raise refuse(error) from None
    for field, value in (
        ("threadId", agent_input.thread_id),
        ("runId", agent_input.run_id),
        ("parentRunId", agent_input.parent_run_id),
    ):
        _check_id(field, value)
    forwarded = parsed.get("forwardedProps")
    options = forwarded.get("gateway") if isinstance(forwarded, dict) else None
    try:
        props = GatewayProps.model_validate({} if options is None else options)
    except ValidationError as error:
        raise refuse(error, "forwardedProps.gateway.") from None
    return AgentInput(agent_input, parsed, props)


def _check_id(field: str, value: str | None) -> None:
    if value is None:
        return
    try:
        valid_id(value)
    except ValueError as error:
        message = f"{field}: {error}"
        raise RequestError(message, details=[{"field": field, "message": str(error)}]) from None
