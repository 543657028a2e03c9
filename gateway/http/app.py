"""`Gateway`: the ASGI application."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError, Unauthenticated
from gateway.execution.caller import AuthContext
from gateway.execution.middleware import Middleware, ToolCall
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.signals import AbortSignal
from gateway.execution.tools import Tool
from gateway.http.engine import Engine
from gateway.http.guard import check_address, check_host, check_origin, cors_headers, preflight
from gateway.http.page import page_routes
from gateway.http.responses import HEADERS, REQUEST_ID, endpoint_of, error_response
from gateway.http.routes import Routes
from gateway.http.sessions import AUTH, SHOWN_HEADERS
from gateway.http.stream import RAW_SEND
from gateway.http.tickets import opens_with_ticket, take_ticket
from gateway.settings import Settings
from gateway.upstream.agents import AgentLike, Agents
from gateway.upstream.mcp_servers import MCPServerLike, MCPServers

__all__ = ["Gateway"]

M = TypeVar("M", bound=Middleware)
Authenticate = Callable[[HTTPConnection], Awaitable[AuthContext | None]]

# What a load balancer asks, which has no credentials and learns nothing.
OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})

logger = logging.getLogger("gateway")


class Gateway:
    """Runs tools for browsers: an ASGI application to serve or to mount, no lifespan needed.

    `Gateway(tools=[import_rows], stop_grace=2)`. `tools` are functions or what `@tool` made of them; `agents` are
    agents by name: the URL of an AG-UI agent, a `RemoteAgent`, or an async generator, `async def agent(input, ctx)`,
    that gets a `RunAgentInput` and yields AG-UI events (models of `ag_ui.core`, or dicts in wire names), and whose
    `ctx` calls these tools; `mcp_servers` are URLs or `MCPServer`s by name, whose tools join these as `name__tool`
    (extra `[mcp]`); `context` is what tools and agents see as `ctx.context`: a value, a callable of the starting
    connection (None for a call without one), or an async context manager that is entered for the run's life;
    `middleware` is around every call; `authenticate` says who calls, and without it only this machine is served. Every
    other keyword is a field of `Settings`, read at
    start-up: it beats the environment and is beaten by the command line. Raises `TypeError` for an unknown keyword and
    for what is no agent, `ValueError` for two tools of one name, and for an agent with a name like no tool's, or with
    that of the built-in agent, `tools`. Source: contract 1, 2 and 6.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        agents: Mapping[str, AgentLike] | None = None,
        mcp_servers: Mapping[str, MCPServerLike] | None = None,
        context: Any = None,
        middleware: Iterable[Middleware] = (),
        authenticate: Authenticate | None = None,
        **options: Any,
    ) -> None:
        unknown = sorted(set(options) - set(Settings.model_fields))
        if unknown:
            raise TypeError(f"Gateway has no setting {', '.join(unknown)}.")
        self.tools = Registry(tools)
        self.agents = Agents(agents)
        self.mcp_servers = MCPServers(mcp_servers)
        self._context = context
        self._middleware = list(middleware)
        self._authenticate = authenticate
        self._options = options
        self._engine: Engine | None = None
        self._routes: list[Route] = []
        self._starting = asyncio.Lock()

    def configure(self, **options: Any) -> None:
        """Settings that beat the constructor's: what the command line says. Before start-up only."""
        if self._engine is not None:
            raise RuntimeError("The gateway runs already.")
        self._options = {**self._options, **options}

    def middleware(self, function: M) -> M:
        """`@gateway.middleware`: adds `async def m(ctx, call, call_next) -> ToolOutput` around every call, innermost.

        It may raise `AccessDenied`, pass on another `ToolCall`, return another output, provide capabilities.
        """
        self._middleware.append(function)
        return function

    async def call_tool(
        self,
        call: ToolCall,
        *,
        signal: AbortSignal | None = None,
        timeout: float | None = None,
        auth: AuthContext | None = None,
        session: str | None = None,
    ) -> ToolOutput:
        """Calls a tool of this gateway without a run, for adapters; never raises for an outcome.

        `signal` is a Stop of the caller's, `timeout` seconds (0 for ever, None the tool's own), `auth` who calls (for
        `requires`), `session` whose tool visibility holds. What the tool emits is dropped. Source: contract 2.3.
        """
        engine = self._engine or await self.startup()
        return await engine.call_tool(call, signal=signal, timeout=timeout, auth=auth, session=session)

    def tool(self, function: Callable[..., Any]) -> Tool:
        """`@gateway.tool`: adds a function as a tool."""
        return self.tools.add(function)

    @property
    def authenticates(self) -> bool:
        """Whether it finds out who calls; without that it serves this machine only, unless told otherwise."""
        return self._authenticate is not None

    @property
    def settings(self) -> Settings:
        """The settings in force; before start-up: those that a start now would take."""
        return self._engine.settings if self._engine is not None else Settings(**self._options)

    async def startup(self) -> Engine:
        """Opens store and supervisor; a lifespan or the first request does it, and once is enough."""
        async with self._starting:
            if self._engine is None:
                settings = Settings(**self._options)
                engine = Engine(settings, self.tools, self._context, self._middleware, self.agents, self.mcp_servers)
                await engine.open()
                routes = Routes(engine).table()
                if engine.settings.page:
                    routes += await asyncio.to_thread(page_routes)  # it looks for its folder
                self._routes = routes
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
            scope[REQUEST_ID] = uuid.uuid4().hex
            scope[HEADERS] = {"x-request-id": scope[REQUEST_ID]}
            scope[RAW_SEND] = send
            try:
                answer = await self._answer(scope, receive)
            except ClientDisconnect:
                return
            answer.headers.update(scope[HEADERS])
            # Here and not further in: what waits for the end of a stream is held once per viewer.
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        take_ticket(scope)
        try:
            engine = self._engine or await self.startup()
            answer = await self._admit(HTTPConnection(scope), engine.settings)
            if answer is None:
                return await endpoint_of(self._routes, scope).respond(scope, receive)
        except (HTTPException, GatewayError) as error:
            answer = error_response(error)
        return answer

    async def _admit(self, connection: HTTPConnection, settings: Settings) -> Response | None:
        """Raises what refuses a request before any route sees it; answers a CORS preflight."""
        connection.scope[HEADERS].update(cors_headers(connection, settings))  # a page may read why it is refused
        connection.scope[SHOWN_HEADERS] = frozenset(name.lower() for name in settings.shown_headers)
        check_host(connection, settings)
        check_address(connection, settings, authenticates=self.authenticates)
        if (granted := preflight(connection, settings)) is not None:
            return Response(status_code=204, headers=granted)
        check_origin(connection, settings)
        path = connection.scope["path"].removeprefix(connection.scope.get("root_path", ""))
        if self._authenticate is not None and path not in OPEN_TO_ALL and not opens_with_ticket(connection.scope, path):
            auth = await self._caller(self._authenticate(connection))
            if auth is None and not settings.allow_anonymous:
                raise Unauthenticated("This gateway wants to know who calls.")
            connection.scope[AUTH] = auth
        return None

    async def _caller(self, asked: Awaitable[AuthContext | None]) -> AuthContext | None:
        """What the authenticator says; one that fails lets nobody in, and nobody learns why."""
        try:
            return await asked
        except (HTTPException, GatewayError):
            raise
        except Exception as error:  # foreign code: it fails closed
            logger.error("The authenticator failed", exc_info=error)
            raise GatewayError("The gateway failed; its log says why.") from error

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.startup()
        except Exception as error:  # ASGI asks for the message, the log gets the error
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.shutdown()
        await send({"type": "lifespan.shutdown.complete"})
