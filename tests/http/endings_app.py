"""A gateway whose tools do not end when they should, for tests of how its process ends."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from gateway import Gateway, ToolContext, tool


@tool(timeout=0.05)
def never_comes_back() -> None:
    """Blocks its thread for ever."""
    threading.Event().wait()


@tool(timeout=0.05)
async def never_gives_up() -> None:
    """Swallows every cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits for ever, and ends when it is told to."""
    ctx.emit_custom_event("started", {})
    await asyncio.Event().wait()


@tool(timeout=0)
async def holds_the_loop(ctx: ToolContext) -> None:
    """Computes on the loop."""
    ctx.emit_custom_event("started", {})
    await ctx.flush()
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 - it holds the loop on purpose


@tool
async def exits() -> None:
    """Ends the program, it thinks: here, and in a task of its own."""
    task = asyncio.create_task(_exit())
    await asyncio.wait({task})
    sys.exit(3)


async def _exit() -> None:
    sys.exit(3)


gateway = Gateway([never_comes_back, never_gives_up, waits, holds_the_loop, exits], stop_grace=0.1)
