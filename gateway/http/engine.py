"""What a gateway needs at run time: settings, store, supervisor, viewers. Made at start-up, on the loop that serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from typing import Any

from starlette.requests import HTTPConnection, Request

from gateway.errors import NotFound, StoreError
from gateway.execution import outcomes
from gateway.execution.call import now_ms
from gateway.execution.caller import AuthContext
from gateway.execution.direct import direct_caller, run_unheard
from gateway.execution.emitter import default_emitter
from gateway.execution.ending import ENDINGS
from gateway.execution.middleware import Middleware, ToolCall, checked_timeout
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.signals import AbortSignal
from gateway.execution.supervisor import LEAVE_SECONDS, Supervisor
from gateway.execution.tools import Tool
from gateway.http.sessions import Identity, identify
from gateway.http.stream import ViewerResponse, Viewers
from gateway.http.tickets import Tickets
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Store
from gateway.stores.urls import open_store
from gateway.upstream.agents import Agents
from gateway.upstream.connections import Connections
from gateway.upstream.mcp_servers import MCPServers
from gateway.wire.codec import encode
from gateway.wire.events import custom, run_error
from gateway.wire.json_schema import warm_up

__all__ = ["Engine"]

logger = logging.getLogger("gateway")

LAST_READS = 0.25  # seconds
UP_SECONDS = 2.0  # that the store may take to show that it is there
LAST_LOOKS = 5


class Engine:
    """See the module. `context` is what `Gateway(context=...)` was given."""

    def __init__(
        self,
        settings: Settings,
        tools: Registry,
        context: Any = None,
        middleware: Sequence[Middleware] = (),
        agents: Agents | None = None,
        servers: MCPServers | None = None,
    ) -> None:
        self.settings = settings
        self.tools = tools
        self.servers = MCPServers() if servers is None else servers
        self.agents = Agents() if agents is None else agents
        self.connections = Connections()
        self.store: Store = open_store(settings)
        self.supervisor = Supervisor(settings, self.store, middleware)
        self.viewers = Viewers(settings.keep_alive, settings.send_timeout, settings.max_viewers_per_run)
        self.tickets = Tickets(self.store, settings.run_ttl)
        self.supervisor.on_lost = self._lost
        self._context = context
        self._resources = AsyncExitStack()
        self._exit_watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        default_emitter.attach(asyncio.get_running_loop())
        await self._resources.enter_async_context(self.store)
        await self._resources.enter_async_context(self.connections)
        await self.supervisor.open()
        await self._resources.enter_async_context(self.servers.watch(self.tools, self._tools_changed))
        # Its library takes a moment to load, and the first question would hold everybody up for that long.
        self.supervisor.spawn(asyncio.to_thread(warm_up), name="schemas")

    async def close(self) -> None:
        """Ends runs, then streams, then the store."""
        if self._exit_watch is not None:
            self._exit_watch.cancel()
        await self.supervisor.close()
        self.viewers.cut_all("shutdown", for_good=True)
        await self._resources.aclose()

    def _lost(self, record: RunRecord, reason: str) -> None:
        """Nothing more of a run is stored: who watches it here is told so, and may resume where it goes on."""
        last = b""
        if reason != "superseded":
            code, message = ENDINGS[reason]
            event = run_error(now_ms(), record.thread_id, record.key.run_id, code, message)
            last = b"data: " + encode(event) + b"\n\n"
        self.viewers.cut_run(record.key, reason, last)

    def _tools_changed(self, came: Iterable[Tool], went: Iterable[Tool]) -> None:
        """A server has other tools now: runs at work say so to their viewers."""
        for run in self.supervisor.runs:
            if (changed := run.tools.changed(came, went)) is not None and not run.machine.over:
                run.write(custom(now_ms(), "tools.changed", changed))

    async def drain(self) -> None:
        """New runs are refused, those at work get `drain_timeout`; reads, Stop and input go on.

        Where another worker can serve them, the viewers are sent there at once; one that comes back is served.
        """
        logger.info("draining: %d runs at work", self.supervisor.active)
        self.supervisor.draining = True
        if await self._others_live():
            self.viewers.cut_all("drain")
        await self.supervisor.drain(self.settings.drain_timeout)
        # Their runs are over; who is still reading gets a moment, and who does not read is cut.
        for _ in range(LAST_LOOKS):
            if not len(self.viewers):
                break
            await asyncio.sleep(LAST_READS / LAST_LOOKS)
        self.viewers.cut_all("shutdown", for_good=True)

    async def _others_live(self) -> bool:
        try:
            async with asyncio.timeout(LAST_READS):
                return await self.supervisor.duties.others()
        except (StoreError, TimeoutError):
            return False

    async def is_up(self) -> bool:
        """Whether the store answers."""
        try:
            async with asyncio.timeout(UP_SECONDS):
                await self.store.workers()
        except (StoreError, TimeoutError):
            return False
        return True

    async def session_tools(self, identity: Identity) -> SessionTools:
        """The tools that are there for a caller; without owner their rules hold for one run only."""
        scopes = () if identity.auth is None else identity.auth.scopes
        session = "" if identity.owner is None else identity.session_id
        tools = SessionTools(self.tools, scopes, self.store, session)
        await tools.refresh()
        return tools

    async def call_tool(
        self,
        call: ToolCall,
        *,
        signal: AbortSignal | None,
        timeout: float | None,
        auth: AuthContext | None,
        session: str | None,
    ) -> ToolOutput:
        """See `Gateway.call_tool`."""
        caller = direct_caller(auth, session)
        scopes = () if auth is None else auth.scopes
        known = caller.session_id if auth is not None or session is not None else ""
        tools = SessionTools(self.tools, scopes, self.store, known)
        limit = checked_timeout(timeout) or self.settings.tool_timeout or None
        stack = AsyncExitStack()
        try:
            async with asyncio.timeout(limit):
                context = await stack.enter_async_context(self.context_for(None))
            output = await run_unheard(
                self.supervisor.executor,
                tools,
                self.settings,
                caller,
                call,
                context=context,
                signal=signal,
                timeout=timeout,
            )
        except asyncio.CancelledError as error:
            await _leave(stack, call)
            output = _context_failed(call, error)
        except BaseException as error:  # noqa: BLE001 - the context is foreign code
            output = _context_failed(call, error)
        return await _leave(stack, call) or output

    async def find(self, connection: HTTPConnection, run_id: str) -> RunRecord:
        """A run that this caller may see: its own, or one that belongs to nobody. `NotFound` otherwise."""
        owner = identify(connection).owner
        for key in dict.fromkeys((RunKey(owner, run_id), RunKey(None, run_id))):
            record = await self.store.get(key)
            if record is not None:
                return record
        raise NotFound("No such run.", code="run_not_found")

    def stream(self, record: RunRecord, cursor: int, *, counts: bool = True) -> ViewerResponse:
        """A response that follows the run from `cursor`; `counts`: as a viewer whose leaving may end the run."""
        self._watch_for_exit()
        watchers = self.supervisor.watchers(record) if counts else None
        return ViewerResponse(self.store.follow(record.key, cursor), record.key, self.viewers, watchers)

    @asynccontextmanager
    async def context_for(self, request: Request | None) -> AsyncIterator[Any]:
        """What tools of a run see as `ctx.context`: a value, what a callable makes of the connection, or entered."""
        value = self._context
        if callable(value) and not hasattr(value, "__aenter__"):
            value = value(request)
            if isawaitable(value):
                value = await value
        if hasattr(value, "__aenter__"):
            async with value as entered:
                yield entered
        else:
            yield value

    def _watch_for_exit(self) -> None:
        """Under another server only sse-starlette's hook tells of an exit in time: before the responses must end."""
        if self._exit_watch is None:
            self._exit_watch = asyncio.create_task(self._drain_at_exit(), name="exit watch")

    async def _drain_at_exit(self) -> None:
        await ViewerResponse.wait_for_exit()
        await self.drain()


def _context_failed(call: ToolCall, error: BaseException) -> ToolOutput:
    """The outcome when `context` raises, whatever that is; a cancellation of the caller goes through."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    logger.error("The context of a call of %r failed", call.name, exc_info=error)
    return outcomes.coded("internal", "The gateway failed; its log says why.")


async def _leave(stack: AsyncExitStack, call: ToolCall) -> ToolOutput | None:
    """Leaves the context, which may fail, or hang for a moment; what that makes of the call, if anything."""
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await stack.aclose()
    except BaseException as error:  # noqa: BLE001 - the context is foreign code
        return _context_failed(call, error)
    return None
