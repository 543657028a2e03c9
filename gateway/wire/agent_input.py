"""`RunAgentInput` as the gateway takes it: the official model, our ids, and the options under `forwardedProps.gateway`.

Pure. Source: contract 3 (agent `tools`), 4.2, 5.3, 5.5, 5.6.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ag_ui.core import AssistantMessage, RunAgentInput, ToolCall, ToolMessage
from pydantic import Field, ValidationError

from gateway.errors import RequestError
from gateway.wire.codec import decode
from gateway.wire.inputs import MAX_ID, Input, ResumeEntry, ResumeInput, Seconds, fingerprint, refuse, valid_id

__all__ = ["AgentInput", "GatewayProps", "PendingCall", "parse_agent_input"]

# A sign that names may be Python's: `tool_calls`. To write a large history anew takes as long as to check it.
_PYTHON_NAME = re.compile(rb'"[a-z]+(?:_[a-z]+)+"\s*:')


class GatewayProps(Input):
    """What a client may ask of the gateway itself, under `forwardedProps.gateway`."""

    on_disconnect: Literal["continue", "cancel"] | None = None
    disconnect_grace: Seconds | None = None
    input: Literal["interrupt", "open"] | None = Field(
        None, description="Whether a question ends the run, to be resumed, or is asked while it goes on."
    )
    page_tools: bool = Field(
        False, description="Whether the client's own tools run inside the run, by a page that claims them."
    )


class PendingCall(NamedTuple):
    """A call that the last assistant message made and nobody has answered. `held`: the client knows this id."""

    call_id: str
    tool_name: str
    arguments: str
    message_id: str
    held: bool


class AgentInput(NamedTuple):
    """A validated request, what was parsed from it, and its options.

    `wire` is the request under its wire names, whichever of the two spellings of the official models it came in.
    `resume` are the answers that the run goes on with, none twice.
    """

    input: RunAgentInput
    parsed: dict[str, Any]
    wire: dict[str, Any]
    props: GatewayProps
    resume: list[ResumeEntry]

    @property
    def forwarded_props(self) -> dict[str, Any]:
        """`forwardedProps` as the client sent it, an object or nothing."""
        props = self.wire.get("forwardedProps")
        return props if isinstance(props, dict) else {}

    @property
    def client_tools(self) -> dict[str, dict[str, Any]]:
        """The tools that the client brings, as it sent them, by name; of several of one name the first."""
        found: dict[str, dict[str, Any]] = {}
        for tool in self.wire.get("tools") or ():
            found.setdefault(tool["name"], tool)
        return found

    def pending_calls(self) -> Iterator[PendingCall]:
        """The unanswered calls of the last assistant message; an id used twice becomes `<id>~2`.

        Raises `RequestError` for a call whose id cannot be one here: nobody could stop it.
        """
        messages = self.input.messages
        index = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)
        if index is None:
            return
        message = messages[index]
        answered = {later.tool_call_id for later in messages[index + 1 :] if isinstance(later, ToolMessage)}
        calls = (message.tool_calls if isinstance(message, AssistantMessage) else None) or ()
        for place, (call, name) in enumerate(named(calls)):
            if name is not None and name not in answered:
                check_id(f"messages.{index}.toolCalls.{place}.id", call.id)
                yield PendingCall(name, call.function.name, call.function.arguments, message.id, name == call.id)


def named(calls: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, str | None]]:
    """Each call and its name: its id the first time, then `<id>~2`, `<id>~3` …, as far as no other call has it.

    A client keeps a renamed call under both names. The next time both come, and the second of the two equal ids
    gets no name here (None), for the call that it stands for is there under its own.
    """
    own: dict[str, ToolCall] = {}
    for call in calls:
        own.setdefault(call.id, call)
    numbers: Counter[str] = Counter()
    renamed: set[str] = set()
    for call in calls:
        numbers[call.id] += 1
        name: str | None = call.id
        while numbers[call.id] > 1:
            suffix = f"~{numbers[call.id]}"
            name = call.id[: MAX_ID - len(suffix)] + suffix
            twin = own.get(name)
            if twin is not None and is_same(twin, call):
                name = None
                break
            if twin is None and name not in renamed:
                renamed.add(name)
                break
            numbers[call.id] += 1
        yield call, name


def is_same(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls ask for the same, however their arguments are spaced."""
    return fingerprint(one.function.name, effective(one)) == fingerprint(other.function.name, effective(other))


def effective(call: ToolCall) -> object:
    """What the arguments of a call come to; what is no object counts as `{}`, also what is no JSON."""
    try:
        parsed = decode(call.function.arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


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
        if value is not None:
            check_id(field, value)
    wire = agent_input.model_dump(by_alias=True) if _PYTHON_NAME.search(body) else parsed
    forwarded = wire.get("forwardedProps")
    options = forwarded.get("gateway") if isinstance(forwarded, dict) else None
    try:
        props = GatewayProps.model_validate({} if options is None else options)
    except ValidationError as error:
        raise refuse(error, "forwardedProps.gateway.") from None
    return AgentInput(agent_input, parsed, wire, props, resume_of(agent_input))


def resume_of(agent_input: RunAgentInput) -> list[ResumeEntry]:
    """The answers of the official model under our rules; `RequestError` names the entry that breaks one."""
    fields = {"interrupt_id", "status", "payload", "metadata"}  # AG-UI lets others pass
    entries = [entry.model_dump(by_alias=True, include=fields) for entry in agent_input.resume or ()]
    try:
        return ResumeInput.model_validate({"resume": entries}).resume or []
    except ValidationError as error:
        raise refuse(error) from None


def check_id(field: str, value: str) -> None:
    """`RequestError` that names the field when its value cannot be an id."""
    try:
        valid_id(value)
    except ValueError as error:
        message = f"{field}: {error}"
        raise RequestError(message, details=[{"field": field, "message": str(error)}]) from None
