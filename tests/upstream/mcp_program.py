"""An MCP server in a process of its own: `python -m tests.upstream.mcp_program 2026 http 8123`.

Arguments: the era of the protocol, `2026` (2026-07-28) or `2025` (2025-11-25, with its handshake and sessions); then
`http` with a port, `stdio`, or `stubborn`, which is stdio and does not end with its input, nor by SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from mcp import MCPError, types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from pydantic import BaseModel

__all__ = ["PIXEL"]

# A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="

server = MCPServer("program")
log: list[str] = []
listeners: list[Any] = []
gate = asyncio.Event()


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False))
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(structured_output=False)
def picture() -> list[types.ContentBlock]:
    return [
        types.TextContent(type="text", text="A pixel."),
        types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
    ]


@server.tool(name="count up/to")
async def count_up_to(number: int, ctx: Context) -> str:
    """Counts."""
    for reached in range(1, number + 1):
        await ctx.report_progress(reached, number, f"at {reached}")
        await asyncio.sleep(0.06)
    return f"{number} reached"


@server.tool()
async def wait(ctx: Context) -> str:
    """Waits to be released."""
    log.append("waits")
    await ctx.report_progress(1, 2, "waiting")
    try:
        await gate.wait()
    except asyncio.CancelledError:
        log.append("is cancelled")
        raise
    return "released"


@server.tool()
async def release() -> str:
    """Releases those that wait."""
    gate.set()
    gate.clear()
    return "released"


@server.tool()
def seen() -> list[str]:
    """What has happened here."""
    return log


@server.tool()
def greet(name: Annotated[Name, Resolve(ask_name)], times: int = 1) -> str:
    """Asks the person."""
    log.append(f"greets {name.name}")
    return f"Hello {name.name}!" * times


@server.tool()
def fail() -> str:
    raise ToolError("There is no paper.")


@server.tool()
async def die(ctx: Context) -> str:
    """Is killed in the middle."""
    await ctx.report_progress(1, 2, "dying")
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


async def tell(ctx: Context) -> None:
    await ctx.notify_tools_changed()
    for session in listeners:
        with contextlib.suppress(Exception):  # it has gone
            await session.send_tool_list_changed()


@server.tool()
async def grow(ctx: Context) -> str:
    """Has one more tool from now on."""
    server.add_tool(seen, name="grown")
    await tell(ctx)
    return "grown"


@server.tool()
async def shrink(ctx: Context) -> str:
    """Has it no more."""
    server.remove_tool("grown")
    await tell(ctx)
    return "shrunk"


@server.tool()
def environment() -> dict[str, str]:
    """What it knows from outside."""
    return {**os.environ, "its pid": str(os.getpid())}


@server.tool()
def request(ctx: Context) -> dict[str, Any]:
    """What came with the request."""
    return {"headers": dict(ctx.headers or {}), "meta": dict(ctx.request_context.meta or {})}


async def only_2025(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """A server that has never heard of the later protocol."""
    if ctx.method == "server/discover":
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    if ctx.method == "tools/list" and ctx.session not in listeners:
        listeners.append(ctx.session)
    return await call_next(ctx)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await serve_loop(server._lowlevel_server, read, write, lifespan_state={})


def main(era: str, transport: str, port: str = "0") -> None:
    logging.getLogger("mcp").setLevel(logging.ERROR)
    if era == "2025":
        server.middleware.append(only_2025)
    if transport == "http":
        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", timeout_graceful_shutdown=1)
    elif era == "2025":
        asyncio.run(serve_stdio())
    else:
        server.run("stdio")
    if transport == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
