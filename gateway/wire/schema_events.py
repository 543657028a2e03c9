"""The events that the gateway itself writes, as they are published: contract 4.2 to 4.4.

Narrower than AG-UI's own models, of which each is a special case; what a proxied agent sends may be any AG-UI event.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model
from pydantic.alias_generators import to_camel

from gateway.wire.events import OWN_PREFIXES, PROTOCOL_VERSION
from gateway.wire.schema_custom import CUSTOM_VALUES, CallStatus, ContentBlock
from gateway.wire.schema_models import Milliseconds, Schema, Time, Wire, written

__all__ = [
    "CUSTOM_EVENTS",
    "EVENTS",
    "Interrupt",
    "RunOutcome",
    "ToolOutput",
    "event_definitions",
    "read_event",
]


class Event(Wire):
    """What all events have."""

    type: str
    timestamp: Milliseconds


class ToolOutput(Wire):
    """What a call ended in: an MCP result and a `status`."""

    content: list[ContentBlock]
    is_error: bool
    structured_content: dict[str, Any] | None = None
    status: CallStatus


class Interrupt(Wire):
    """A question that ended a run and that a resume answers: AG-UI's own shape."""

    id: str
    reason: str
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: Time | None = None
    metadata: dict[str, Any] | None = None


class SuccessOutcome(Wire):
    """The run came to its own end, whatever its calls ended in."""

    type: Literal["success"]
    pending_tool_call_ids: list[str] | None = Field(
        None, description="Calls of the client's own tools: the client runs them and starts the next run."
    )


class CancelledOutcome(Wire):
    """The person pressed Stop."""

    type: Literal["cancelled"]


class InterruptOutcome(Wire):
    """The run ended with questions; a run that answers them goes on."""

    type: Literal["interrupt"]
    interrupts: list[Interrupt] = Field(min_length=1)


RunOutcome = Annotated[SuccessOutcome | CancelledOutcome | InterruptOutcome, Field(discriminator="type")]


class FinishReason(Wire):
    """What TanStack's client reads."""

    finish_reason: Literal["stop"]


class FinishedMetadata(Wire):
    """Of RUN_FINISHED."""

    tanstack: FinishReason


class RunIds(Wire):
    """What TanStack's client reads."""

    run_id: str
    thread_id: str


class ErrorMetadata(Wire):
    """Of RUN_ERROR."""

    tanstack: RunIds


class OutputState(Wire):
    """What TanStack's client reads."""

    state: Literal["output-error"]


class ResultMetadata(Wire):
    """Of the result of a call that failed."""

    tanstack: OutputState


class ToolMetadata(Wire):
    """Which tool an event is about, and the call that its call was made by."""

    tool_name: str | None = None
    parent_tool_call_id: str | None = None


class RunStarted(Event):
    """The first event of every run."""

    type: Literal["RUN_STARTED"]
    thread_id: str
    run_id: str
    protocol_version: Literal["1.0"]
    parent_run_id: str | None = None


class RunFinished(Event):
    """The last event of a run that did not fail."""

    type: Literal["RUN_FINISHED"]
    thread_id: str
    run_id: str
    result: ToolOutput | None = Field(None, description="Of a run of `/tools/{name}`: what its call ended in.")
    outcome: RunOutcome
    metadata: FinishedMetadata


class RunError(Event):
    """The last event of a run that failed."""

    type: Literal["RUN_ERROR"]
    message: str
    code: str = Field(
        description="`interrupted`, `run_timeout`, `store_unavailable`, `internal`, `upstream_…`, or a later one."
    )
    metadata: ErrorMetadata


class ToolCallStart(Event):
    """A call begins."""

    type: Literal["TOOL_CALL_START"]
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | None = Field(None, description="The message that the client holds the call in.")


class ToolCallArgs(Event):
    """The call's arguments, as JSON text; absent when the client holds them."""

    type: Literal["TOOL_CALL_ARGS"]
    tool_call_id: str
    delta: str


class ToolCallEnd(Event):
    """The arguments are complete; the tool runs from here on."""

    type: Literal["TOOL_CALL_END"]
    tool_call_id: str


class ToolCallResult(Event):
    """What the model reads of a call's end."""

    type: Literal["TOOL_CALL_RESULT"]
    message_id: str = Field(description="`<toolCallId>:result`.")
    tool_call_id: str
    content: str
    role: Literal["tool"]
    metadata: ResultMetadata | None = Field(None, description="There when the call failed.")


def _tools_own(name: str) -> str:
    if not name or name.startswith(OWN_PREFIXES):
        raise ValueError(f"is one of the gateway's own: {name!r}")
    return name


# As a character class each dot is itself in every dialect of regular expressions.
_PATTERN = f"^(?!{'|'.join(prefix.replace('.', '[.]') for prefix in OWN_PREFIXES)})"
ToolsOwnName = Annotated[
    str, AfterValidator(_tools_own), WithJsonSchema({"type": "string", "minLength": 1, "pattern": _PATTERN})
]


class ToolEventValue(Wire):
    """What a tool emitted, and the call that did. `$too_large` stands for a value beyond `max_event_bytes`."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", frozen=True, strict=True)

    tool_call_id: str
    too_large: int | None = Field(None, alias="$too_large", description="Bytes of the value that is not here.")


class ToolEvent(Event):
    """A custom event of a tool: any name but the gateway's own, any JSON object."""

    type: Literal["CUSTOM"]
    name: ToolsOwnName
    value: ToolEventValue
    metadata: ToolMetadata


def _custom_event(name: str, value: type[Wire]) -> type[Event]:
    """The model of one of the gateway's own CUSTOM events: `ToolProgressEvent` of `tool.progress`."""
    fields: dict[str, Any] = {
        "type": Literal["CUSTOM"],
        "name": Literal[name],
        "value": value,
        "metadata": (ToolMetadata | None, None),
    }
    base = value.__name__.removesuffix("Value")
    return create_model(f"{base}Event", __base__=Event, __doc__=value.__doc__, **fields)


EVENTS: tuple[type[Event], ...] = (
    RunError,
    RunFinished,
    RunStarted,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)
CUSTOM_EVENTS = {name: _custom_event(name, value) for name, value in CUSTOM_VALUES.items()}

assert PROTOCOL_VERSION == "1.0"  # noqa: S101 - a Literal cannot be made of the constant

_ADAPTERS = {model.model_fields["type"].annotation.__args__[0]: TypeAdapter(model) for model in EVENTS}  # type: ignore[union-attr]
_CUSTOM_ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(model) for name, model in CUSTOM_EVENTS.items()}
_TOOL_EVENT: TypeAdapter[ToolEvent] = TypeAdapter(ToolEvent)


def read_event(data: bytes) -> Event:
    """One event of the gateway as its model; `pydantic.ValidationError` for anything that is not published."""
    head = TypeAdapter(dict[str, Any]).validate_json(data)
    kind, name = head.get("type"), head.get("name")
    adapter: TypeAdapter[Any]
    if kind == "CUSTOM":
        adapter = _CUSTOM_ADAPTERS.get(str(name), _TOOL_EVENT)
    else:
        adapter = _ADAPTERS.get(str(kind), _TOOL_EVENT)
    event: Event = adapter.validate_json(data)
    return event


def event_definitions() -> dict[str, Schema]:
    """The definitions of all events; `Event` is any of them, `CustomEvent` any CUSTOM one."""
    custom = sorted([*(model.__name__ for model in CUSTOM_EVENTS.values()), ToolEvent.__name__])
    definitions = written([*EVENTS, *CUSTOM_EVENTS.values(), ToolEvent])
    definitions["CustomEvent"] = {
        "description": "A CUSTOM event: one of the gateway's own, or a tool's.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in custom],
    }
    events = sorted([*(model.__name__ for model in EVENTS), "CustomEvent"])
    definitions["Event"] = {
        "description": "Any event that the gateway itself writes; each is one of AG-UI 1.0, "
        "https://ag-ui.com/spec/1.0/schema.json.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in events],
    }
    return definitions
