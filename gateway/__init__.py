"""The AG-UI gateway: runs tools, streams what they emit to browsers, and makes Stop reach them."""

from gateway.errors import (
    AbortError,
    AccessDenied,
    Backpressure,
    CapabilityError,
    NotAvailable,
    PayloadError,
    ToolError,
)
from gateway.execution.context import AuthContext, ToolContext
from gateway.execution.outcomes import CANCELLED, NAVIGATED, TOOL_TIMEOUT, ToolOutput, is_cancelled, recode
from gateway.execution.signals import AbortSignal
from gateway.execution.tools import Tool, tool
from gateway.http.app import Gateway
from gateway.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "AbortError",
    "AbortSignal",
    "AccessDenied",
    "AuthContext",
    "Backpressure",
    "CANCELLED",
    "CapabilityError",
    "Gateway",
    "NAVIGATED",
    "NotAvailable",
    "PayloadError",
    "Settings",
    "TOOL_TIMEOUT",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "is_cancelled",
    "recode",
    "tool",
]
