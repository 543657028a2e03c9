"""`Gateway`: the ASGI application."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from gateway.errors import Forbidden
from gateway.execution.registry import Registry
from gateway.execution.tools import Tool
from gateway.http.engine import Engine
from gateway.http.page import page_routes
from gateway.http.responses import REQUEST_ID, error_response
from gateway.http.routes import Routes
from gateway.http.stream import RAW_SEND
from gateway.settings import Settings

__all__ = ["Gateway"]

logger = logging.getLogger("gateway")


class Gateway:
    """Runs tools for browsers: an ASGI application to serve or to mount, no lifespan needed.

    `Gateway(tools=[import_rows], stop_grace=2)`. `tools` are functions or what `@tool` made of them; `context` is what
    tools see as `ctx.context`: a value, a callable of the starting connection, or an async context manager that is
    entered for the run's life. Every other keyword is a field of `Settings`, read at start-up: it beats the environment
    and is beaten by the command line. Raises `TypeError` for an unknown keyword, `ValueError` for two tools of one name.
    Source: contract 1 and 2.
    """

    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]] = (), *, context: Any = None, **options: Any
    ) -> None:
        unknown = sorted(set(options) - set(Settings.model_fields))
        if unknown:
            raise TypeError(f"Gateway has no setting {', '.join(unknown)}.")
        self.tools = Registry(tools)
        self._context = context
        self._options = options
        self._engine: Engine | None = None
        self._router: Router | None = None
        self._starting = asyncio.Lock()

    def configure(self, **options: Any) -> None:
        """Settings that beat the constructor's: what the command line says. Before start-up only."""
        if self._engine is not None:
            raise RuntimeError("The gateway runs already.")
        self._options = {**self._options, **options}

    def tool(self, function: Callable[..., Any]) -> Tool:
        """`@gateway.tool`: adds a function as a tool."""
        return self.tools.add(function)

    @property
    def settings(self) -> Settings:
        """The settings in force; before start-up: those that a start now would take."""
        return self._engine.settings if self._engine is not None else Settings(**self._options)

    async def startup(self) -> Engine:
        """Opens store and supervisor; a lifespan or the first request does it, and once is enough."""
        async with self._starting:
            if self._engine is None:
                engine = Engine(Settings(**self._options), self.tools, self._context)
                await engine.open()
                routes: list[Route | Mount] = list(Routes(engine).table())
                if engine.settings.page:
                    routes += page_routes()
                self._router = Router(routes, redirect_slashes=False)
                self._engine = engine
            return self._engine

    async def shutdown(self) -> None:
        """Ends every run `interrupted` and every stream; the gateway can be started again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def drain(self) -> None:
        """Refuses new runs and gives those at work `drain_timeout` seconds."""
        if self._engine is not None:
            await self._engine.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REQUEST_ID] = uuid.uuid4().hex
        scope[RAW_SEND] = send
        try:
            engine = self._engine or await self.startup()
            _admit(HTTPConnection(scope), engine.settings)
            assert self._router is not None  # noqa: S101 - set together with the engine
            scope["app"] = self  # tells the router to raise its 404 and 405, for they have our error body
            await self._router(scope, receive, send)
        except (HTTPException, Forbidden) as error:
            response = error_response(error)
            response.headers["x-request-id"] = scope[REQUEST_ID]
            await response(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.startup()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.shutdown()
        await send({"type": "lifespan.shutdown.complete"})


def _admit(connection: HTTPConnection, settings: Settings) -> None:
    """Without an authenticator only this machine is served, unless the operator said otherwise (contract 8)."""
    if not settings.allow_anonymous and not is_loopback(connection.client.host if connection.client else None):
        message = "This gateway serves callers without credentials on this machine only."
        raise Forbidden(message, code="anonymous_not_allowed")


def is_loopback(host: str | None) -> bool:
    """Whether an address is this machine's own; `None` is a Unix socket, `testclient` Starlette's test client."""
    if host in (None, "localhost", "testclient"):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False
