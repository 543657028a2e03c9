"""An agent on a socket of its own that answers with the very bytes that a test wants, and sees when it is left."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LONG", "Answer", "Asked", "Backend", "Script", "answering", "call_events", "finished", "started", "text"]

LONG = 20  # seconds; reached only by a test that fails

Event = dict[str, Any]


@dataclass
class Asked:
    """A request as it came."""

    headers: dict[str, str]
    body: dict[str, Any]
    path: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.body["tools"]]


@dataclass
class Answer:
    """One answer under way; its body is chunked, so that an end that does not come is seen."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    begun: bool = False

    async def head(self, status: int = 200, content_type: str = "text/event-stream", more: str = "") -> None:
        """`more` is another header, whole."""
        lines = [f"HTTP/1.1 {status} Status", f"content-type: {content_type}", "transfer-encoding: chunked"]
        lines += [more] if more else []
        self.writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode())
        self.begun = True
        await self.writer.drain()

    async def send(self, data: bytes) -> None:
        """One chunk of the body."""
        if not self.begun:
            await self.head()
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def events(self, *events: Event) -> None:
        await self.send(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))

    async def end(self) -> None:
        if not self.begun:
            await self.head()
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def reset(self) -> None:
        self.writer.transport.abort()

    async def left(self) -> None:
        """Until the gateway has closed the connection."""
        async with asyncio.timeout(LONG):
            while await self.reader.read(1024):
                pass


Script = Callable[[Asked, Answer], Awaitable[None]]


@dataclass
class Backend:
    """`asked` are the requests so far."""

    url: str
    asked: list[Asked] = field(default_factory=list)


@asynccontextmanager
async def answering(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Backend]:
    """A backend that answers by `script`, and regularly ends an answer at the end of it."""
    failures: list[BaseException] = []
    open_writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            asked = await _request(reader)
            backend.asked.append(asked)
            answer = Answer(reader, writer)
            await script(asked, answer)
            await answer.end()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has left
        except AssertionError as error:
            failures.append(error)
        finally:
            writer.close()
            open_writers.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    backend = Backend(f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/agent")
    try:
        yield backend
    finally:
        server.close()
        for writer in list(open_writers):
            writer.transport.abort()
        await server.wait_closed()
    if failures:
        raise failures[0]


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    original = dict(line.split(": ", 1) for line in head[1:] if line)
    return Asked({name.lower(): value for name, value in original.items()}, json.loads(body), head[0].split()[1])


# -- what agents say --


def started(asked: Asked) -> Event:
    return {"type": "RUN_STARTED", "threadId": asked.body["threadId"], "runId": asked.body["runId"]}


def finished(asked: Asked, **more: Any) -> Event:
    return {"type": "RUN_FINISHED", "threadId": asked.body["threadId"], "runId": asked.body["runId"], **more}


def text(message_id: str, *deltas: str) -> list[Event]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
    ]


def call_events(call_id: str, name: str, arguments: str = "{}", parent: str | None = None) -> list[Event]:
    start = {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name}
    pieces: Iterable[str] = (arguments[:3], arguments[3:])
    return [
        start if parent is None else {**start, "parentMessageId": parent},
        *({"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": piece} for piece in pieces if piece),
        {"type": "TOOL_CALL_END", "toolCallId": call_id},
    ]
