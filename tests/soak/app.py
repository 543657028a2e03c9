"""What the workers of the soak serve: a tool for each way in which a call lives and ends.

Every execution leaves a line in a ledger that has nothing to do with the store, and says on the stream which process
it runs in; so whoever checks knows what was executed how often, and where.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ag_ui.core import RunAgentInput

from gateway import Gateway, ToolContext, tool

LEDGER = "SOAK_LEDGER"
BURST = 40


def _began(ctx: ToolContext) -> None:
    line = f"{ctx.run_id} {ctx.tool_call_id} {os.getpid()}\n"
    fd = os.open(Path(os.environ[LEDGER]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, line.encode())  # one write: also whole when the process is killed
    finally:
        os.close(fd)
    ctx.emit_custom_event("began", {"pid": os.getpid()})


def _mark(ctx: ToolContext, number: int) -> None:
    ctx.emit_custom_event("mark", {"number": number})


@tool(timeout=0)
async def fast(ctx: ToolContext, count: int = 400) -> int:
    """Emits as fast as the store takes it."""
    _began(ctx)
    for number in range(count):
        _mark(ctx, number)
        if number % BURST == BURST - 1:
            await ctx.flush()
            await asyncio.sleep(0.2)
    return count


@tool(timeout=0)
async def slow(ctx: ToolContext, count: int = 40, pause: float = 0.25) -> int:
    """Emits now and then, and ends by itself."""
    _began(ctx)
    for number in range(count):
        _mark(ctx, number)
        await asyncio.sleep(pause)
    return count


@tool(timeout=0)
async def endless(ctx: ToolContext, pause: float = 0.2) -> int:
    """Ends when it is stopped, and says when it saw that."""
    _began(ctx)
    number = 0
    try:
        while True:
            _mark(ctx, number)
            number += 1
            await asyncio.sleep(pause)
    finally:
        ctx.emit_custom_event("saw_stop", {"at": time.time(), "reason": ctx.abort_signal.reason})


@tool(timeout=0)
async def asks(ctx: ToolContext, count: int = 10) -> dict[str, Any]:
    """Emits, asks a question, and emits what was answered."""
    _began(ctx)
    for number in range(count):
        _mark(ctx, number)
    answer = await ctx.request_input("Which one?", {"type": "integer"})
    ctx.emit_custom_event("answered", {"payload": answer.payload})
    for number in range(count, 2 * count):
        _mark(ctx, number)
        await asyncio.sleep(0.05)
    return {"marks": 2 * count, "payload": answer.payload}


@tool(timeout=0)
async def movable(ctx: ToolContext, count: int = 60, pause: float = 0.1) -> Any:
    """Can go on in the background."""
    _began(ctx)

    async def work() -> int:
        for number in range(count):
            _mark(ctx, number)
            await asyncio.sleep(pause)
        return count

    return await ctx.run_detachable(work())


@tool(timeout=0)
def plain(ctx: ToolContext, count: int = 40, pause: float = 0.15) -> int:
    """A plain function, in a thread."""
    _began(ctx)
    for number in range(count):
        ctx.abort_signal.throw_if_aborted()
        _mark(ctx, number)
        time.sleep(pause)
    return count


async def teller(given: RunAgentInput, ctx: Any) -> AsyncIterator[dict[str, Any]]:
    """Says something, after the notes that were its to tell."""
    yield {"type": "CUSTOM", "name": "began", "value": {"pid": os.getpid()}}
    message = {"messageId": f"{ctx.run_id}:said"}
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
    for number in range(5):
        await asyncio.sleep(0.1)
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": f"{number} ", **message}
    yield {"type": "TEXT_MESSAGE_END", **message}


gateway = Gateway(tools=[fast, slow, endless, asks, movable, plain], agents={"teller": teller})
