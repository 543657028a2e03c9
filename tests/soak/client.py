"""A small HTTP client for one worker at a time: every request has a connection of its own, and a stream is bytes.

What goes wrong on the way is `Away`: the worker is dead, stands still, or has cut the stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

__all__ = ["Answer", "Away", "Stream", "ask", "opened"]

HOST = "127.0.0.1"
ANSWER_SECONDS = 8.0
CLOSE = {"connection": "close"}


class Away(Exception):
    """This worker did not answer, or not to the end; nobody knows what it did."""


class Answer(NamedTuple):
    """A whole answer; `data` is its JSON, None without a body."""

    status: int
    data: Any

    @property
    def code(self) -> str:
        error = self.data.get("error") if isinstance(self.data, dict) else None
        return str(error.get("code")) if isinstance(error, dict) else ""


class Stream:
    """An answer whose body comes in chunks; `status` and `headers` are there at once."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its regular end; `Away` when it breaks off."""
        if self.headers.get("transfer-encoding") != "chunked":
            return b""
        try:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            return (await self._reader.readexactly(size + 2))[:-2]
        except (OSError, EOFError, ValueError) as error:
            raise Away(f"the stream broke off: {error!r}") from None

    async def body(self) -> bytes:
        if (length := self.headers.get("content-length")) is not None:
            try:
                return await self._reader.readexactly(int(length))
            except (OSError, EOFError) as error:
                raise Away(f"the answer broke off: {error!r}") from None
        pieces = []
        while data := await self.chunk():
            pieces.append(data)
        return b"".join(pieces)


@asynccontextmanager
async def opened(
    port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] = CLOSE, limit: int = 1 << 16
) -> AsyncIterator[Stream]:
    """The beginning of an answer; the connection is cut when the block is left."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(HOST, port, limit=limit)
    except (OSError, TimeoutError) as error:
        raise Away(f"no connection: {error!r}") from None
    try:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"host: {HOST}:{port}", f"content-length: {len(data)}"]
        lines += [
            "content-type: application/json",
            *(f"{name}: {value}" for name, value in {**CLOSE, **headers}.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        yield await _begun(reader)
    finally:
        writer.transport.abort()


async def _begun(reader: asyncio.StreamReader) -> Stream:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (OSError, EOFError, TimeoutError) as error:
        raise Away(f"no answer: {error!r}") from None
    fields = (line.partition(":") for line in head[1:] if line)
    return Stream(reader, int(head[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in fields})


async def ask(
    port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] = CLOSE, seconds: float = 30.0
) -> Answer:
    """A request and its whole answer."""
    try:
        async with asyncio.timeout(seconds), opened(port, method, path, body, headers) as stream:
            data = await stream.body()
    except TimeoutError:
        raise Away("no end of the answer") from None
    return Answer(stream.status, json.loads(data) if data else None)
