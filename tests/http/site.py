"""A gateway behind a real uvicorn on a real socket, and a client that sees bytes, not responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn
import uvicorn.server

from gateway import Gateway
from gateway.http.engine import Engine
from gateway.wire.json_schema import warm_up
from gateway.wire.sse import Decoder, Message
from tests.execution.running import quiet

__all__ = ["LONG", "ME", "SOMEBODY_ELSE", "Site", "Stream", "serving", "tasks"]

LONG = 20  # seconds; reached only by a test that fails
ME = {"x-session-id": "session-of-mine-0001"}
SOMEBODY_ELSE = {"x-session-id": "session-of-others-02"}


async def _soon(delay: float) -> None:
    await asyncio.sleep(delay / 20)


# uvicorn looks ten times a second whether it is to end and whether its connections have: a thousand ends wait long.
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**{**vars(asyncio), "sleep": _soon})


class AnnouncingServer(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@dataclass
class Stream:
    """One HTTP answer on a connection of its own, read piece by piece."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: Mapping[str, str]
    decoder: Decoder = field(default_factory=Decoder)
    raw: bytearray = field(default_factory=bytearray)
    ended: bool = False

    async def chunk(self) -> bytes:
        """The next chunk of the body; empty at its regular end. A broken connection is an error."""
        async with asyncio.timeout(LONG):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = (await self.reader.readexactly(size + 2))[:-2]
        self.raw += data
        self.ended = size == 0
        return data

    async def messages(self) -> list[Message]:
        """The messages of the next chunk that has any; none at the end."""
        while data := await self.chunk():
            if found := self.decoder.feed(data):
                return found
        return []

    async def rest(self) -> list[tuple[int, dict[str, Any]]]:
        """Every message up to the regular end, with its number."""
        found = []
        while messages := await self.messages():
            found += [(int(item.id or 0), json.loads(item.data)) for item in messages]
        return found

    async def until(self, name: str) -> dict[str, Any]:
        """Reads until an event of this type or name has come."""
        while messages := await self.messages():
            for item in messages:
                event: dict[str, Any] = json.loads(item.data)
                if name in (event["type"], event.get("name")):
                    return event
        raise AssertionError(f"The stream ended without {name}")

    async def until_broken(self) -> bytes:
        """Everything that still comes, up to the break of a connection that must not end regularly."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.chunk():
                pass
            raise AssertionError("The stream ended as if it were complete.")
        return bytes(self.raw)

    def leave(self) -> None:
        """Goes without a word."""
        self.writer.transport.abort()


@dataclass
class Site:
    """A served gateway. `client` does whole requests, `open` streams."""

    gateway: Gateway
    server: AnnouncingServer
    port: int
    client: httpx.AsyncClient
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def engine(self) -> Engine:
        engine = self.gateway._engine
        assert engine is not None
        return engine

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        self.writers.add(writer)
        return reader, writer

    def leave(self) -> None:
        """Every connection that `connect` and `open` made goes, if it is still there."""
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def open(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Stream:
        """GET, or POST when there is a body; returns when the head of the answer is there."""
        reader, writer = await self.connect(**options)
        writer.write(request(path, body, headers or {}))
        async with asyncio.timeout(LONG):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return Stream(reader, writer, int(head[0].split()[1]), fields)

    async def quiet(self, before: set[asyncio.Task[Any]]) -> None:
        """Returns when the server has no connection left, and the loop no task that was not there `before`."""
        await quiet(lambda: not self.server.server_state.connections and tasks() <= before)


def tasks() -> set[asyncio.Task[Any]]:
    """All tasks but sse-starlette's own, of which a loop has one for good."""
    return {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") != "_shutdown_watcher"}


def request(path: str, body: Any, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "host: localhost"]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def serving(
    *tools: Any,
    agents: Any = None,
    context: Any = None,
    authenticate: Any = None,
    beside_others: bool = False,
    **options: Any,
) -> AsyncIterator[Site]:
    """A gateway with these tools behind a real server; afterwards no task, connection or viewer of it is left.

    `beside_others`: the tasks of other gateways on this loop come and go, so they are not looked at.
    """
    await asyncio.to_thread(warm_up)  # a first question, right after the start, would meet the gateway's own
    options = {"stop_grace": 0.3, "drain_timeout": 0, **options}
    gateway = Gateway(tools, agents=agents, context=context, authenticate=authenticate, **options)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listener.getsockname()[1]
    server = AnnouncingServer(uvicorn.Config(gateway, log_config=None, lifespan="on"))
    before = tasks()
    running = asyncio.create_task(server.serve([listener]), name="server")
    async with asyncio.timeout(LONG):
        await server.up.wait()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=LONG) as client:
            site = Site(gateway, server, port, client)
            try:
                yield site
            finally:
                engine = site.engine
                site.leave()
    finally:
        server.should_exit = True
        async with asyncio.timeout(LONG):
            await running
        listener.close()
    assert not len(engine.viewers)
    assert not engine.supervisor.active
    if not beside_others:
        await quiet(lambda: tasks() <= before)
