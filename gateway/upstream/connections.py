"""The connections to remote agents: one request, its answer as it comes, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Self

import certifi
import httpx

from gateway.errors import UpstreamError
from gateway.upstream.remote import RemoteAgent

__all__ = ["Connections", "no_cookies"]

logger = logging.getLogger("gateway")

STREAMS = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl")
SHOWN_BYTES = 2048  # of an answer that is an error, in the log
SHOWN_SECONDS = 2.0


class Connections:
    """Of one gateway. No request follows a redirect, or a proxy of the environment: only what is configured is asked.

    A connection serves one request. An agent works for seconds, so a new one costs little, and one that its server is
    just closing would fail a run that cannot be sent a second time.
    """

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}  # by whether they speak TLS
        self._making = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._clients:
            await self._clients.popitem()[1].aclose()

    async def _client(self, url: str) -> httpx.AsyncClient:
        """Made in a thread: to load the certificates would hold everybody up for a tenth of a second."""
        secure = not url.lower().startswith("http:")
        if secure not in self._clients:
            async with self._making:
                if secure not in self._clients:
                    self._clients[secure] = await asyncio.to_thread(_client, secure=secure)
        return self._clients[secure]

    @asynccontextmanager
    async def stream(
        self, agent: RemoteAgent, body: bytes, headers: list[tuple[bytes, bytes]]
    ) -> AsyncIterator[httpx.Response]:
        """The answer of an agent, which is a stream of events. `UpstreamError` for everything that it may be instead,
        also for what goes wrong while it is read."""
        client = await self._client(agent.url)
        idle = agent.idle_timeout or None
        timeout = httpx.Timeout(connect=agent.connect_timeout, read=idle, write=idle, pool=None)
        sent = [
            (b"accept", b"text/event-stream"),
            (b"accept-encoding", b"identity"),
            (b"content-type", b"application/json"),
            *headers,
        ]
        try:
            async with client.stream("POST", agent.url, content=body, headers=sent, timeout=timeout) as response:
                await _check(response)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UpstreamError("upstream_unavailable", str(error)) from error
        except httpx.TimeoutException as error:
            raise UpstreamError("upstream_timeout", f"nothing for {idle:g} s") from error
        except httpx.DecodingError as error:
            raise UpstreamError("upstream_invalid", str(error)) from error
        except httpx.TransportError as error:
            raise UpstreamError("upstream_disconnected", str(error) or type(error).__name__) from error


def no_cookies() -> CookieJar:
    """A jar that keeps none: what a server sets for the run of one person would go with those of all others."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


def _client(*, secure: bool) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    verify: ssl.SSLContext | bool = False
    if secure:
        verify = ssl.create_default_context()  # this machine's authorities, or those of SSL_CERT_FILE
        verify.load_verify_locations(certifi.where())  # a small image has none
    return httpx.AsyncClient(
        limits=limits, trust_env=False, follow_redirects=False, verify=verify, cookies=no_cookies()
    )


async def _check(response: httpx.Response) -> None:
    """Raises `UpstreamError` unless the answer is a stream of events."""
    status = response.status_code
    if status >= 400:
        raise UpstreamError(f"upstream_http_{status}", f"{status}: {await _beginning(response)}")
    if 300 <= status < 400:
        raise UpstreamError("upstream_invalid", f"a redirect to {response.headers.get('location')!r}: configure that")
    kind = response.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() not in STREAMS:
        raise UpstreamError("upstream_invalid", f"content-type {kind!r}: {await _beginning(response)}")


async def _beginning(response: httpx.Response) -> str:
    """The beginning of an answer, for the log."""
    read = bytearray()
    try:
        async with asyncio.timeout(SHOWN_SECONDS):
            async for chunk in response.aiter_bytes():
                read += chunk
                if len(read) >= SHOWN_BYTES:
                    break
    except (httpx.HTTPError, TimeoutError):
        read += " …".encode()
    return repr(bytes(read[:SHOWN_BYTES]))
