"""The AG-UI gateway: runs tools, streams what they emit to browsers, and makes Stop reach them."""

import typing

from gateway.errors import (
    AbortError,
    AccessDenied,
    Backpressure,
    CapabilityError,
    Interrupt,
    NotAvailable,
    PayloadError,
    ToolError,
)
from gateway.execution.asking import InputResponse
from gateway.execution.caller import AuthContext, TraceContext
from gateway.execution.capabilities import Capability
from gateway.execution.context import ToolContext
from gateway.execution.direct import call_tool
from gateway.execution.emitter import EventEmitter, emit_event, on_event
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import CANCELLED, NAVIGATED, TOOL_TIMEOUT, ToolOutput, is_cancelled, recode
from gateway.execution.signals import AbortSignal
from gateway.execution.task_context import TaskContext
from gateway.execution.tools import Tool, tool
from gateway.settings import Settings
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.remote import RemoteAgent

if typing.TYPE_CHECKING:
    from gateway.http.app import Gateway

__version__ = "0.1.0"

__all__ = [
    "AbortError",
    "AbortSignal",
    "AccessDenied",
    "AuthContext",
    "Backpressure",
    "CANCELLED",
    "Capability",
    "CapabilityError",
    "EventEmitter",
    "Gateway",
    "InputResponse",
    "Interrupt",
    "MCPServer",
    "NAVIGATED",
    "NotAvailable",
    "PayloadError",
    "RemoteAgent",
    "Settings",
    "TOOL_TIMEOUT",
    "TaskContext",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "TraceContext",
    "call_tool",
    "emit_event",
    "is_cancelled",
    "on_event",
    "recode",
    "tool",
]


def __getattr__(name: str) -> typing.Any:
    # Only where it is asked for: a tool in a process of its own serves nothing, and would wait for the import.
    if name == "Gateway":
        from gateway.http.app import Gateway

        return Gateway
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
