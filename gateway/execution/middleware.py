"""The onion around every call: guards, interceptors and filters are one thing, functions of the next one.

A middleware may refuse (`AccessDenied`), change the call, provide capabilities, replace the output, or catch what
another one raised. It runs on the loop, for tools of every kind. Source: contract 2.3.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.execution.outcomes import ToolOutput

if TYPE_CHECKING:
    from gateway.execution.context import ToolContext

__all__ = ["CallNext", "Inside", "Middleware", "ToolCall", "checked_timeout", "onion"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call to make: the tool's name and its input, an object (anything else counts as `{}`)."""

    name: str
    input: Any = field(default_factory=dict)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The input, if it is an object."""
        return self.input if isinstance(self.input, Mapping) else {}


def checked_timeout(timeout: object) -> float | None:
    """Seconds, 0 for ever, None for the tool's own; `ValueError` for what is no such number."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout < math.inf:
        raise ValueError(f"timeout must be 0 (waits forever) or more seconds, not {timeout!r}.")
    return timeout


CallNext = Callable[[ToolCall], Awaitable[ToolOutput]]
Middleware = Callable[["ToolContext", ToolCall, CallNext], Awaitable[Any]]


def onion(
    middleware: Sequence[Middleware], ctx: ToolContext, innermost: CallNext, convert: Callable[[Any], ToolOutput]
) -> CallNext:
    """The call through all middleware, the first one outermost; `convert` makes outputs of what they return."""
    inner = innermost
    for layer in reversed(middleware):
        inner = _layer(layer, ctx, inner, convert)
    return inner


def _layer(layer: Middleware, ctx: ToolContext, inner: CallNext, convert: Callable[[Any], ToolOutput]) -> CallNext:
    came: list[ToolOutput] = []

    async def call_next(given: ToolCall) -> ToolOutput:
        came.append(await inner(given))
        return came[-1]

    async def call(given: ToolCall) -> ToolOutput:
        result = await layer(ctx, given, call_next)
        # What came from further in has been looked at there.
        return result if any(result is output for output in came) else convert(result)

    return call


class Inside:
    """What goes on at the centre of the onion of one call."""

    __slots__ = ("_idle", "active", "called", "last", "left")

    def __init__(self) -> None:
        #: The calls of the tool that have not come back.
        self.active = 0
        #: Whether there was any.
        self.called = False
        #: What the tool answered last.
        self.last: ToolOutput | None = None
        #: Whether a middleware gave up a call of the tool, or has left one behind.
        self.left = False
        self._idle: asyncio.Future[None] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one call of the tool."""
        self.active += 1
        self.called = True
        try:
            yield
        except asyncio.CancelledError:
            self.left = True
            raise
        finally:
            self.active -= 1
            if not self.active and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def idle(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Done when no call of the tool is active any more."""
        self._idle = loop.create_future()
        if not self.active:
            self._idle.set_result(None)
        return self._idle
