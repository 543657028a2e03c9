"""The way to an MCP server: over HTTP a client of the library's for each call.

There a refused or broken request takes the whole client with it, and every call that shares it; so none does. What they
share are the connections, and what the server has said of itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx2
from anyio import BrokenResourceError, ClosedResourceError
from mcp import Client, ClientSession, types
from mcp.client.session import ClientRequestContext, LoggingFnT, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client

from gateway.errors import ToolError
from gateway.execution.servers import ServerDown
from gateway.upstream.connections import no_cookies
from gateway.upstream.mcp_faults import NO_PROTOCOL, Refused, too_large
from gateway.upstream.mcp_list import Lists
from gateway.upstream.mcp_questions import Answer, Questions
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_wire import overheard
from gateway.wire.sse import MAX_MESSAGE_BYTES

__all__ = ["HttpLink", "Link", "log_of"]

logger = logging.getLogger("gateway")

KEEP_SECONDS = 2.0  # less than servers keep a connection: one that is just closing would lose a call
# Statuses that say nothing about the call itself.
REFUSALS = frozenset({401, 403, 407, 429, 502, 503, 504})
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}


def _is_news(record: logging.LogRecord) -> bool:
    """The library takes it for an error that a client which has gone gets an answer: after a Stop, say."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (BrokenResourceError, ClosedResourceError))


logging.getLogger("mcp.client.streamable_http").addFilter(_is_news)


class Link(Protocol):
    """A way to one server."""

    async def open(self) -> None:
        """Before each connection."""

    async def close(self) -> None: ...

    def client(self, on_message: MessageHandlerFnT) -> Client:
        """A client that finds out what the server speaks, to list its tools and to hear of changes."""

    def connected(self, client: Client | None) -> None:
        """This one has found it out; None: the connection is lost."""

    def session(self, questions: Questions) -> AbstractAsyncContextManager[ClientSession]:
        """For one call. Raises `ServerDown`, or whatever the library does."""


class HttpLink:
    """Streamable HTTP."""

    def __init__(self, name: str, config: MCPServer) -> None:
        self._config = config
        self._http: httpx2.AsyncClient | None = None
        self._mode = "auto"
        self._said: types.DiscoverResult | None = None
        self._name = name
        self._named: set[str] = set()
        self._log = log_of(name)

    async def open(self) -> None:
        if self._http is None:
            self._http = await asyncio.to_thread(_http_client, self._config)  # it reads certificates

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def client(self, on_message: MessageHandlerFnT) -> Client:
        # Some servers list the tools that ask only to those who say that they can be asked.
        return self._client("auto", None, message_handler=on_message, elicitation_callback=_nobody)

    def connected(self, client: Client | None) -> None:
        if client is not None:
            self._said = client.session.discover_result
            self._mode = "legacy" if self._said is None else client.protocol_version

    @asynccontextmanager
    async def session(self, questions: Questions) -> AsyncIterator[ClientSession]:
        async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> Answer:
            return await questions.elicit(params)

        callback = elicit if questions.can_ask else None
        async with self._client(self._mode, self._said, elicitation_callback=callback) as client:
            yield client.session

    def _client(self, mode: str, said: types.DiscoverResult | None, **callbacks: Any) -> Client:
        if self._http is None:
            raise ServerDown("This link is closed.")
        transport = streamable_http_client(
            str(self._config.url), http_client=self._http, max_sse_event_size=MAX_MESSAGE_BYTES
        )
        heard = overheard(transport, Lists(self._name, self._named))
        return Client(heard, mode=mode, prior_discover=said, cache=None, logging_callback=self._log, **callbacks)


async def _nobody(context: ClientRequestContext, params: types.ElicitRequestParams) -> Answer:
    return types.ErrorData(code=types.INVALID_REQUEST, message="There is no call, so there is nobody to ask.")


def _http_client(config: MCPServer) -> httpx2.AsyncClient:
    """Only what is configured is asked: no proxy of the environment, no credential of a file."""
    seconds = config.connect_timeout
    return httpx2.AsyncClient(
        # A packed answer could be a thousand times as large as what is counted.
        headers={**config.headers, "accept-encoding": "identity"},
        # A tool may be silent for as long as it likes: the call has a clock of its own.
        timeout=httpx2.Timeout(connect=seconds, read=None, write=None, pool=None),
        limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEP_SECONDS),
        event_hooks={"response": [_check]},
        trust_env=False,
        cookies=no_cookies(),
    )


async def _check(response: httpx2.Response) -> None:
    if response.status_code in REFUSALS:
        raise Refused(f"it answers {response.status_code} {response.reason_phrase}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ToolError("failed", NO_PROTOCOL)
    # Of a stream each event is bounded.
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body that is read so far and no farther; the library reads any."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise too_large()
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def log_of(name: str) -> LoggingFnT:
    """What the server says in its log goes to ours."""

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logger.log(LEVELS.get(params.level, logging.ERROR), "MCP server %s: %r", name, params.data)

    return log
