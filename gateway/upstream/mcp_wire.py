"""What goes between the library and an MCP server, seen on its way.

The library says which question came, not in which call, and takes a list of tools as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, Self

from mcp import types

__all__ = ["Ear", "overheard"]


class Ear(Protocol):
    """Hears one connection."""

    def sent(self, message: types.JSONRPCMessage) -> None: ...

    def heard(self, message: types.JSONRPCMessage) -> None:
        """May change it. Raises `EOFError` when nothing more of this server shall be heard."""

    def ended(self) -> None:
        """The server has closed the connection. The library tells only those who wait for an answer."""


@asynccontextmanager
async def overheard(transport: AbstractAsyncContextManager[Any], ear: Ear) -> AsyncIterator[Any]:
    """This transport, with an ear at it."""
    async with transport as (received, sent):
        yield Received(received, ear), Sent(sent, ear)


class Stream:
    """A stream of the library's, in another."""

    def __init__(self, stream: Any, ear: Ear) -> None:
        self._stream = stream
        self._ear = ear

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        left: bool | None = await self._stream.__aexit__(*error)
        return left

    async def aclose(self) -> None:
        await self._stream.aclose()


class Sent(Stream):
    """What is said to the server."""

    async def send(self, item: Any) -> None:
        self._ear.sent(item.message)  # before it is: its answer must not be quicker
        await self._stream.send(item)


class Received(Stream):
    """What the server says; an `Exception` is a line that could not be read."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return self._noted(await self._stream.__anext__())
        except (StopAsyncIteration, EOFError):
            self._ear.ended()
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        return self._noted(await self._stream.receive())

    def _noted(self, item: Any) -> Any:
        if not isinstance(item, Exception):
            self._ear.heard(item.message)
        return item

    @property
    def last_context(self) -> Any:
        """That of the last message; the library looks for it."""
        return getattr(self._stream, "last_context", None)
