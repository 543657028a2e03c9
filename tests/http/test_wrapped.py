"""Behind somebody else's middleware: a stream that is cut must look cut there, too."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware

from gateway import Gateway, ToolContext, tool
from tests.http.site import AnnouncingServer, Stream, request


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits until it is stopped."""
    ctx.emit_custom_event("started", {})
    await asyncio.Event().wait()


async def passing(request: Any, call_next: Any) -> Any:
    return await call_next(request)


async def test_a_cut_stream_ends_in_half_an_event_where_its_connection_cannot_be_broken() -> None:
    gateway = Gateway([waits], stop_grace=0.1, drain_timeout=0)
    app = Starlette()
    app.add_middleware(BaseHTTPMiddleware, dispatch=passing)
    app.mount("/ai", gateway)
    listener = socket.create_server(("127.0.0.1", 0))
    server = AnnouncingServer(uvicorn.Config(app, log_config=None))
    serving = asyncio.create_task(server.serve([listener]))
    async with asyncio.timeout(20):
        await server.up.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request("/ai/tools/waits", {}, {"accept": "text/event-stream"}))
        head = (await reader.readuntil(b"\r\n\r\n")).split(b" ")
        stream = Stream(reader, writer, int(head[1]), {})
        await stream.until("started")
        engine = await gateway.startup()
        engine.viewers.cut_all("slow")
        while await stream.chunk():
            pass  # this middleware ends the body however its application does
        last = stream.raw.rpartition(b"\n\n")[2]
        with pytest.raises(ValueError, match=r"Expecting"):
            json.loads(last.removeprefix(b"data: "))
        stream.leave()
        await gateway.shutdown()
        server.should_exit = True
        await serving
    listener.close()
