"""A server that answers with bytes, and breaks connections where the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.wire.sse import frame

__all__ = ["END", "answering", "event", "refusal", "stream"]

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def event(seq: int, kind: str = "CUSTOM", **fields: Any) -> bytes:
    return frame(seq, json.dumps({"type": kind, "seq": seq, **fields}).encode())


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def refusal(status: int, code: str, details: object = None) -> bytes:
    body = json.dumps({"error": {"code": code, "message": "No.", "details": details}}).encode()
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def stream(*events: bytes, end: bytes = b"") -> bytes:
    """An answer with these events, which breaks off unless `end` is given."""
    return STREAM + b"".join(chunk(data) for data in events) + end


class Heads(list[str]):
    """The heads of the requests that came; `arrived` is set by the first."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[str, Heads]]:
    """A server that gives one answer a connection, then closes it; its URL, and the heads of what it was asked."""
    heads = Heads()
    remaining = iter(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        heads.arrived.set()
        writer.write(next(remaining, b""))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", heads
