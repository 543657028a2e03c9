"""The tools of the interop tests, one for each way to end and each kind of tool.

A tool with a `gate` (the path of a FIFO) emits `test.started` and then goes on only when `open_gate` was called: what
came through before that came through while the tool was running.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from gateway import Gateway, ToolContext, tool

STEPS = 5


@tool
def open_gate(path: str) -> str:
    """Lets the tool that waits at this FIFO go on; blocks until there is one."""
    Path(path).write_text("go", "utf-8")
    return "open"


@tool
async def import_steps(ctx: ToolContext, gate: str) -> dict[str, int]:
    """An async tool with progress, which completes."""
    ctx.emit_custom_event("test.started", {})
    await asyncio.to_thread(Path(gate).read_text, "utf-8")
    for done in range(1, STEPS + 1):
        ctx.emit_custom_event("test.step", {"step": done})
        ctx.report_progress(done, STEPS, f"step {done}")
    return {"imported": STEPS}


@tool
async def fail(ctx: ToolContext, gate: str) -> None:
    """Raises."""
    ctx.emit_custom_event("test.started", {})
    await asyncio.to_thread(Path(gate).read_text, "utf-8")
    raise ValueError("the disk is full")


@tool
async def wait_forever(ctx: ToolContext) -> None:
    """Ends by Stop or by its time limit only."""
    ctx.emit_custom_event("test.started", {})
    ctx.report_progress(1, 2, "half way")
    await asyncio.Event().wait()


@tool
async def invalid_payloads(ctx: ToolContext, gate: str) -> dict[str, Any]:
    """Emits, reports and returns what JSON, or JavaScript, cannot hold."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    ctx.emit_custom_event("test.started", {"nan": math.nan, "infinity": [math.inf, -math.inf]})
    await asyncio.to_thread(Path(gate).read_text, "utf-8")
    ctx.emit_custom_event("test.integers", {"safe": 2**53 - 1, "big": 2**53, "huge": -(10**40)})
    ctx.emit_custom_event("test.surrogate", {"text": "a\ud800b", "\udfff": 1, "separators": "\u2028\u2029\x85\r\n"})
    ctx.emit_custom_event("test.cycle", {"cycle": cycle, "object": object()})
    ctx.emit_custom_event("test.keys", {"keys": {None: 1, True: 2, 3: 4}})
    ctx.report_progress(math.nan, math.inf, "lone \udc80")
    return {"nan": math.nan, "big": 2**64, "text": "\ud83d", "cycle": cycle}


@tool(isolation="process")
def in_process(ctx: ToolContext, gate: str) -> dict[str, int]:
    """A plain function in a process of its own."""
    ctx.emit_custom_event("test.started", {})
    Path(gate).read_text("utf-8")
    for done in range(1, STEPS + 1):
        ctx.emit_custom_event("test.step", {"step": done})
        ctx.report_progress(done, STEPS)
    return {"counted": STEPS}


@tool
def generate(ctx: ToolContext, gate: str) -> Iterator[Any]:
    """A generator, in a thread; what it yields goes out as `tool.output`."""
    ctx.emit_custom_event("test.started", {})
    Path(gate).read_text("utf-8")
    yield {"part": 1}
    yield 2
    yield {"part": 3}


@tool
async def generate_async(ctx: ToolContext, gate: str) -> AsyncIterator[Any]:
    """An async generator."""
    ctx.emit_custom_event("test.started", {})
    await asyncio.to_thread(Path(gate).read_text, "utf-8")
    for part in range(1, 4):
        yield {"part": part}


@tool
async def burst(ctx: ToolContext, count: int) -> int:
    """Emits `count` events at once."""
    for step in range(1, count + 1):
        ctx.emit_custom_event("test.step", {"step": step})
    return count


@tool
async def book(ctx: ToolContext, place: str) -> dict[str, Any]:
    """Asks twice before it books."""
    days = ctx.interrupt("How many days?", {"type": "integer", "minimum": 1}, key="days")
    if not days.resolved:
        return {"booked": False}
    sure = ctx.interrupt(f"{days.payload} days in {place}?", {"type": "boolean"}, key="sure")
    ctx.emit_custom_event("test.booked", {"place": place})
    return {"booked": sure.payload, "days": days.payload, "place": place}


@tool(needs_approval=True)
async def delete(ctx: ToolContext, path: str) -> str:
    """Somebody has to say yes."""
    ctx.emit_custom_event("test.deleted", {"path": path})
    return f"deleted {path}"


gateway = Gateway(
    tools=[
        open_gate, import_steps, fail, wait_forever, invalid_payloads, in_process, generate, generate_async, burst,
        book, delete,
    ],
)  # fmt: skip
