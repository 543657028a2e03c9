"""The values of the gateway's own CUSTOM events, as they are published: contract 4.4.

The code that writes them builds dicts, for it is hot; tests hold both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from gateway.wire.schema_models import Time, Wire

__all__ = ["CUSTOM_VALUES", "CallError", "CallStatus", "ContentBlock"]

CallStatus = Literal["completed", "failed", "cancelled", "timeout", "interrupted", "unavailable", "unknown", "detached"]
StopReason = Literal["user", "timeout", "disconnect", "run_timeout", "shutdown", "superseded", "store", "tool"]

Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=0)]


class OfCall(Wire):
    """What every event about one call says first."""

    tool_call_id: str
    tool_name: str


class ToolProgress(OfCall):
    """How far a tool is; at most one in 50 ms a call, the last one always."""

    progress: float = Field(description="In the tool's own unit; never lower than before.")
    total: float | None = Field(None, description="What `progress` will be at the end.")
    message: str | None = None
    percent: Percent | None = Field(None, description="There when `total` is known and positive.")


class ToolOutputValue(OfCall):
    """What a generator yielded."""

    output: dict[str, Any] = Field(description='A `y` that is no mapping is `{"value": y}`.')


class ToolWaiting(OfCall):
    """The call waits for a person; its clock has stopped for good."""

    message: str | None = None
    interrupt_id: str | None = Field(None, description="What an answer must name; absent: nothing to answer here.")
    response_schema: dict[str, Any] | None = Field(None, description="JSON Schema of the answer's `payload`.")
    since: Time


class ToolResumed(OfCall):
    """The call waits no more: the person has answered, or there is nothing to wait for."""

    waited_ms: Count
    interrupt_id: str | None = Field(None, description="The question that is over; absent for other waits.")


class ToolRequested(OfCall):
    """A tool of the page that a page should run now."""

    input: dict[str, Any]


class ToolDetached(OfCall):
    """The call moved to the background."""

    run_id: str = Field(description="The background run to follow.")


class ContentBlock(Wire):
    """A content block of MCP: `text`, `image`, `audio`, `resource`, `resource_link`, or one of a later version."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", frozen=True, strict=True)

    type: str
    text: str | None = Field(None, description="Of a `text` block.")


class CallError(Wire):
    """Why a call failed. Codes are open: `failed`, `invalid_arguments`, `denied`, `timeout`, or a tool's own."""

    code: str
    message: str
    retryable: bool


class ToolResult(OfCall):
    """How a call ended, as data; TOOL_CALL_RESULT, right after it, has the text that the model reads."""

    status: CallStatus
    content: list[ContentBlock]
    is_error: bool
    structured_content: dict[str, Any] | None = None
    error: CallError | None = None
    duration_ms: Count
    still_running: bool | None = Field(None, description="True when the tool's code could not be ended.")


class ToolsChanged(Wire):
    """The session sees other tools now."""

    added: list[str]
    removed: list[str]
    visible: list[str]


class RunStopping(Wire):
    """The run is being stopped; its terminal event follows within `stop_grace`."""

    reason: StopReason
    message: str | None = None


class GatewayNotice(Wire):
    """Something about the stream itself; at most one a code and run."""

    level: Literal["info", "warning", "error"]
    code: str = Field(description="Open: `log_trimmed`, …")
    message: str


CUSTOM_VALUES: Mapping[str, type[Wire]] = MappingProxyType(
    {
        "gateway.notice": GatewayNotice,
        "run.stopping": RunStopping,
        "tool.detached": ToolDetached,
        "tool.output": ToolOutputValue,
        "tool.progress": ToolProgress,
        "tool.requested": ToolRequested,
        "tool.result": ToolResult,
        "tool.resumed": ToolResumed,
        "tool.waiting": ToolWaiting,
        "tools.changed": ToolsChanged,
    }
)
"""The model of the value of each of the gateway's own CUSTOM events, by name."""
