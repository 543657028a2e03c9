"""The onion around every call: guards, interceptors and filters are one thing, functions of the next one.

A middleware may refuse (`AccessDenied`), change the call, provide capabilities, replace the output, or catch what
another one raised. It runs on the loop, for tools of every kind. Source: contract 2.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.execution.outcomes import ToolOutput, output_of

if TYPE_CHECKING:
    from gateway.execution.context import ToolContext

__all__ = ["CallNext", "Middleware", "ToolCall", "onion"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call to make: the tool's name and its input, an object (anything else counts as `{}`)."""

    name: str
    input: Any = field(default_factory=dict)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The input, if it is an object."""
        return self.input if isinstance(self.input, Mapping) else {}


CallNext = Callable[[ToolCall], Awaitable[ToolOutput]]
Middleware = Callable[["ToolContext", ToolCall, CallNext], Awaitable[Any]]


def onion(middleware: Sequence[Middleware], ctx: ToolContext, innermost: CallNext) -> CallNext:
    """The call through all middleware, the first one outermost."""
    inner = innermost
    for layer in reversed(middleware):
        inner = _layer(layer, ctx, inner)
    return inner


def _layer(layer: Middleware, ctx: ToolContext, inner: CallNext) -> CallNext:
    async def call(given: ToolCall) -> ToolOutput:
        result = await layer(ctx, given, inner)
        return result if isinstance(result, ToolOutput) else output_of(result)

    return call
