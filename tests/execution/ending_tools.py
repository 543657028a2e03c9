"""Tools that end in every way there is: in a coroutine, a thread, a process, and in generators of both kinds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from gateway.errors import AccessDenied, PayloadError, ToolError
from gateway.execution.context import ToolContext
from gateway.execution.tools import Tool, tool

__all__ = [
    "BODIES",
    "RAISES",
    "RAISES_IN_A_PROCESS",
    "polls",
    "process_dies",
    "process_exits_at_sigterm",
    "process_ignores",
    "process_sends_nan",
    "process_waits",
    "raise_as",
]


class Unsayable(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Alien(BaseException):
    """Derived from nothing that anybody catches by accident."""


def _group() -> BaseException:
    return BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("one of them")])


# What is raised, and how the result reads: code, message, retryable.
RAISES: dict[str, tuple[Callable[[], BaseException], str, str, bool]] = {
    "an exception": (lambda: ValueError("no such row"), "failed", "no such row", False),
    "an exception without a message": (lambda: KeyError(), "failed", "KeyError", False),
    "an exception that cannot be printed": (lambda: Unsayable(), "failed", "Unsayable", False),
    "a tool error": (lambda: ToolError("rate_limited", "Later.", retryable=True), "rate_limited", "Later.", True),
    "a refusal": (lambda: AccessDenied("Not you."), "denied", "Not you.", False),
    "a group": (lambda: ExceptionGroup("several", [ValueError("one")]), "failed", "several", False),
    "a group with an interrupt": (_group, "failed", "several", False),
    "SystemExit": (lambda: SystemExit(3), "failed", "3", False),
    "KeyboardInterrupt": (lambda: KeyboardInterrupt(), "failed", "KeyboardInterrupt", False),
    "GeneratorExit": (lambda: GeneratorExit(), "failed", "GeneratorExit", False),
    "CancelledError": (lambda: asyncio.CancelledError(), "failed", "The tool cancelled itself.", False),
    "MemoryError": (lambda: MemoryError("out of it"), "failed", "out of it", False),
    "a base exception of its own": (lambda: Alien("from far"), "failed", "from far", False),
}

# Each of these costs the start of an interpreter: one of every kind that takes its own way out of one.
RAISES_IN_A_PROCESS = (
    "an exception that cannot be printed",
    "a tool error",
    "a group with an interrupt",
    "SystemExit",
    "CancelledError",
)


def raise_as(what: str) -> None:
    raise RAISES[what][0]()


@tool
async def raises_async(what: str) -> None:
    """Raises."""
    await asyncio.sleep(0)
    raise_as(what)


@tool
def raises_in_thread(what: str) -> None:
    """Raises."""
    raise_as(what)


@tool
def raises_in_generator(what: str) -> Iterator[int]:
    """Yields, then raises."""
    yield 1
    raise_as(what)


@tool
async def raises_in_async_generator(what: str) -> AsyncIterator[int]:
    """Yields, then raises."""
    yield 1
    raise_as(what)


@tool(isolation="process")
def raises_in_process(what: str) -> None:
    """Raises."""
    raise_as(what)


BODIES: dict[str, Tool] = {
    "async": raises_async,
    "thread": raises_in_thread,
    "generator": raises_in_generator,
    "async generator": raises_in_async_generator,
    "process": raises_in_process,
}


@tool(isolation="process")
def process_dies(how: str, ctx: ToolContext) -> None:
    """Ends its own process."""
    ctx.emit_custom_event("dying", {"how": how})
    ctx.flush()  # blocks in a process
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


@tool(isolation="process")
def process_waits(ctx: ToolContext) -> dict[str, Any]:
    """Watches the signal."""
    ctx.emit_custom_event("started", {})
    while not ctx.abort_signal.aborted:
        time.sleep(0.005)
    ctx.emit_custom_event("unwinding", {"reason": ctx.abort_signal.reason})
    return {"too": "late"}


@tool(isolation="process")
def process_ignores(ctx: ToolContext, *, deaf: bool = False) -> None:
    """Computes, and looks at nothing; deaf to SIGTERM too, if asked."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.emit_custom_event("started", {"pid": os.getpid()})
    number = 0
    while True:
        number += 1


@tool(isolation="process")
def process_exits_at_sigterm(ctx: ToolContext) -> None:
    """Leaves by `sys.exit()` when it gets SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ctx.emit_custom_event("started", {})
    while True:
        time.sleep(60)


@tool
def polls(ctx: ToolContext) -> None:
    """A thread that looks at the signal."""
    ctx.emit_custom_event("started", {})
    while True:
        ctx.abort_signal.throw_if_aborted()
        time.sleep(0.005)


@tool(isolation="process")
def process_sends_nan(ctx: ToolContext, where: str) -> Any:
    """Sends what JSON cannot hold; says so when the emit is refused where it happens."""
    if where == "event":
        try:
            ctx.emit_custom_event("row", {"cells": [1, float("nan")]})
        except PayloadError as error:
            return {"refused": str(error)}
        return {"refused": None}
    return {"cells": [1, float("nan")]}
