"""Tools for the command line's tests, one for each way to end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
from starlette.requests import HTTPConnection

from gateway import AuthContext, Gateway, ToolContext, tool

STEPS = 4


@tool(timeout=None)
async def echo(ctx: ToolContext, value: Any = None) -> dict[str, Any]:
    """Answers what it was given, with progress."""
    for step in range(1, STEPS + 1):
        ctx.emit_custom_event("test.step", {"step": step, "text": "\x1b[31m[bold]"})
        ctx.report_progress(step, STEPS, f"step {step}")
    return {"value": value}


@tool
def fail() -> None:
    """Raises."""
    raise ValueError("the disk is full")


@tool
async def forever(ctx: ToolContext) -> None:
    """Ends by Stop or by its time limit only."""
    ctx.report_progress(1, 2, "waiting")
    ctx.emit_custom_event("test.started", {})
    await asyncio.Event().wait()


@tool
def stubborn(ctx: ToolContext) -> None:
    """Does not look at its signal."""
    ctx.emit_custom_event("test.started", {})
    threading.Event().wait()


@tool
async def litter(ctx: ToolContext) -> None:
    """Leaves a thread behind, not one of ours, that never ends."""
    ctx.emit_custom_event("test.started", {})
    await asyncio.to_thread(threading.Event().wait)


@tool
async def show_secrets(ctx: ToolContext, url: str) -> str:
    """Fails inside of the tool, and reaches out with a secret in a query string, as careless tools do."""
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(f"{url}/healthz?ticket=query-secret-of-the-tool")
    raise ValueError("a tool failed")


async def by_token(connection: HTTPConnection) -> AuthContext | None:
    """Knows one caller."""
    known = connection.headers.get("authorization") == "Bearer token-of-ada"
    return AuthContext(subject="ada") if known else None


gateway = Gateway(tools=[echo, fail, forever, stubborn, litter, show_secrets])
guarded = Gateway(tools=[echo], authenticate=by_token)
