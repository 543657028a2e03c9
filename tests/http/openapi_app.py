"""The gateway that schemathesis asks: quick tools of every kind and ending, so that each of its streams ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from pydantic import Field

from gateway import Gateway, Tool, ToolContext, ToolError, tool

__all__ = ["TOOLS", "gateway"]


@tool(events={"test.step": dict[str, int]}, annotations={"idempotent": True})
async def steps(ctx: ToolContext, count: Annotated[int, Field(ge=0, le=5)] = 2) -> dict[str, int]:
    """Emits and reports."""
    for step in range(1, count + 1):
        ctx.emit_custom_event("test.step", {"step": step})
        ctx.report_progress(step, count, f"step {step}")
    return {"steps": count}


@tool
def parts() -> Iterator[Any]:
    """A generator in a thread."""
    yield 1
    yield {"part": 2}


@tool
async def parts_async() -> AsyncIterator[str]:
    """An async generator."""
    yield "one"


@tool
async def fails() -> None:
    """Fails with a code of its own."""
    raise ToolError("rate_limited", "Try again in a minute.", retryable=True, data={"limit": 1})


@tool(timeout=0.01)
async def too_slow(ctx: ToolContext) -> None:
    """Runs into its time limit."""
    await ctx.abort_signal.wait()


@tool(task_support="required")
async def background_only() -> str:
    """Runs in the background only."""
    return "done"


@tool(task_support="forbidden")
async def foreground_only() -> int:
    """Never runs in the background."""
    return 1


@tool
async def large(ctx: ToolContext) -> str:
    """Emits and returns more than it may."""
    ctx.emit_custom_event("test.large", {"text": "x" * 2_000})
    return "x" * 20_000


TOOLS: list[Tool] = [steps, parts, parts_async, fails, too_slow, background_only, foreground_only, large]
gateway = Gateway(
    tools=TOOLS, max_event_bytes=1_000, max_result_bytes=10_000, max_body_bytes=50_000, stop_grace=0.2, run_timeout=10
)
