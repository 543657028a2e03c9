"""Watches one MCP server: connects in the background, lists its tools, hears of changes, connects again.

Whatever the server does, nobody but this task waits for it. What it has listed stays until it lists something else.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from mcp import Client, MCPError, types
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, Subscription

from gateway.execution.context import ToolContext
from gateway.execution.outcomes import ToolOutput
from gateway.execution.servers import ServerDown, ServerLost
from gateway.upstream.mcp_call import RemoteCall
from gateway.upstream.mcp_faults import reason_of
from gateway.upstream.mcp_link import HttpLink, Link
from gateway.upstream.mcp_list import all_tools, definitions
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_stdio import StdioLink
from gateway.upstream.mcp_tool import Definition

__all__ = ["Watch"]

logger = logging.getLogger("gateway")

FIRST_PAUSE = 0.25  # seconds before a lost server is tried again, doubled up to
LONGEST_PAUSE = 30.0
POLL = 30.0  # seconds between looks at the list of a server that says nothing
SETTLE = 0.05  # seconds: changes that come together are one
GOODBYE = 1.0  # seconds that a server gets at a shutdown; it goes on ending by itself

Publish = Callable[[list[Definition]], Awaitable[None]]

# A loop has only weak references to its tasks.
_leaving: set[asyncio.Task[None]] = set()


class Watch:
    """See the module. `publish` takes each list of tools. Also where they are run (`Remote`)."""

    def __init__(self, name: str, config: MCPServer, publish: Publish) -> None:
        self._name = name
        self._config = config
        self._publish = publish
        self._up = self._trying = False
        self._told = False  # of the present outage
        self._pause = FIRST_PAUSE
        self._wake = asyncio.Event()
        self._link: Link
        if config.url is None:
            self._link = StdioLink(name, config, self)
        else:
            self._link = HttpLink(name, config)
        self._attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection: asyncio.Task[None] | None = None
        self._listed: list[Definition] | None = None

    async def known(self) -> None:
        """Returns when the server is connected, or the next attempt to reach it has failed; it begins at once."""
        if not self._up:
            self._wake.set()
            await asyncio.wait({self._attempt})

    def ended(self) -> None:
        """A command has: whoever calls it now waits until it runs again."""
        self._up = False
        self._wake.set()

    def restart(self) -> None:
        """A command shall: it is no outage."""
        self.ended()
        self._told = True
        if self._connection is not None:
            self._connection.cancel()

    async def call(self, name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutput | str:
        """A tool of this server; or the note, when a person moves the call to the background."""
        return await ctx.run_detachable(self._call(name, arguments, ctx))

    async def _call(self, name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutput:
        try:
            output = await RemoteCall(self._link, name, arguments, ctx).make()
        except (ServerDown, ServerLost):
            self._look(when_up=True)
            raise
        self._look(when_up=False)
        return output

    def _look(self, *, when_up: bool) -> None:
        """A call knows better whether the server is there: so look at once."""
        if self._up == when_up:
            self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self._wake.clear()
                self._trying = True
                self._down(await self._connect())
                # Not all at once after a restart of the server.
                await self._woken(self._pause * random.uniform(0.5, 1))  # noqa: S311 - nobody has to guess it
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
        finally:
            await self._leave()
            await self._link.close()

    async def _connect(self) -> BaseException | None:
        """One connection from its beginning to its end, in a task of its own, which takes the library's errors."""
        self._connection = asyncio.create_task(self._stay_connected(), name=f"connection to {self._name}")
        await asyncio.wait({self._connection})
        return None if self._connection.cancelled() else self._connection.exception()

    async def _leave(self) -> None:
        """A command gets its end of input, and a moment; what does not end goes on being ended."""
        if self._connection is None or self._connection.done():
            return
        _leaving.add(self._connection)
        self._connection.add_done_callback(_left)
        self._connection.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({self._connection}, timeout=GOODBYE)

    async def _stay_connected(self) -> None:
        async with asyncio.timeout(self._config.connect_timeout) as limit:
            await self._link.open()
            async with self._link.client(self._on_message) as client, AsyncExitStack() as stack:
                changes = await _subscription(client, stack)  # first, so that no change is missed
                await self._list(client)
                limit.reschedule(None)
                self._is_up(client)
                async with asyncio.TaskGroup() as group:
                    if changes is not None:
                        group.create_task(self._hear(changes))
                    await self._poll(client)

    async def _hear(self, changes: Subscription) -> None:
        async for _ in changes:
            self._wake.set()
        raise ConnectionError("it has closed the connection")

    async def _poll(self, client: Client) -> None:
        """Looks when there is a reason, and now and then: a broken network says nothing."""
        while True:
            await self._woken(POLL)
            await asyncio.sleep(SETTLE)
            self._wake.clear()
            async with asyncio.timeout(self._config.connect_timeout):
                await self._list(client)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._wake.set()

    async def _woken(self, within: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._wake.wait()

    async def _list(self, client: Client) -> None:
        listed = definitions(self._config, await all_tools(client.session))
        if listed != self._listed:
            await self._publish(listed)
            self._listed = listed

    def _is_up(self, client: Client) -> None:
        self._link.connected(client)
        self._up, self._told, self._pause = True, False, FIRST_PAUSE
        logger.info("MCP server %s: %d tools", self._name, len(self._listed or ()))
        self._attempted()

    def _down(self, error: BaseException | None) -> None:
        self._link.connected(None)
        self._up = False
        if not self._told:
            logger.warning("MCP server %s is not there, it is tried again: %s", self._name, reason_of(error))
            self._told = True
        self._attempted()

    def _attempted(self) -> None:
        if not self._trying:
            return
        self._trying = False
        ended, self._attempt = self._attempt, asyncio.get_running_loop().create_future()
        ended.set_result(None)


async def _subscription(client: Client, stack: AsyncExitStack) -> Subscription | None:
    """The changes of its list, if the server can tell them on a stream of their own."""
    try:
        changes = await stack.enter_async_context(client.listen(tools_list_changed=True))
    except (ListenNotSupportedError, MCPError):
        return None
    return changes if changes.honored.tools_list_changed else None


def _left(connection: asyncio.Task[None]) -> None:
    _leaving.discard(connection)
    if not connection.cancelled():
        connection.exception()  # seen: it was told to go
