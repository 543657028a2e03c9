"""The MCP servers of a gateway by name: their tools join its catalogue while it runs.

The library is an extra, and takes a second to import: in a thread, once the gateway has started.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from gateway.execution.names import TOOL_NAME
from gateway.execution.registry import Registry
from gateway.upstream.mcp_catalogue import Catalogue, OnChange
from gateway.upstream.mcp_names import MAX_SERVER, prefix_of
from gateway.upstream.mcp_server import MCPServer

__all__ = ["MCPServerLike", "MCPServers"]

logger = logging.getLogger("gateway")

MCPServerLike = MCPServer | str


class MCPServers:
    """See the module; `async with` watches them. `on_change` is told of the tools that came and those that went.

    Raises `TypeError` or `ValueError` for what is no server, or a name that none can have, `ImportError` without the
    extra.
    """

    def __init__(self, servers: Mapping[str, MCPServerLike] | None = None) -> None:
        if not isinstance(servers, Mapping | None):
            raise TypeError(f'mcp_servers is a mapping, {{"name": server}}, not {type(servers).__name__}.')
        self._servers: dict[str, MCPServer] = {}
        for name, server in (servers or {}).items():
            self.add(name, server)

    def add(self, name: str, server: MCPServerLike) -> None:
        """One more, before the gateway starts; `ValueError` also when the name is taken."""
        if _checked(name) in self._servers:
            raise ValueError(f"There are two MCP servers named {name!r}.")
        if find_spec("mcp") is None:
            raise ImportError("mcp_servers needs an extra: pip install 'agui-gateway[mcp]'")
        self._servers[name] = _made(server)

    def all(self) -> Mapping[str, MCPServer]:
        """The servers by name, in the order in which they were given."""
        return self._servers

    def watch(self, registry: Registry, on_change: OnChange) -> Watching:
        """Watches them as long as it is entered."""
        return Watching(self._servers, registry, on_change)


class Watching:
    """The time in which a gateway runs: one task a server."""

    def __init__(self, servers: Mapping[str, MCPServer], registry: Registry, on_change: OnChange) -> None:
        self._servers = servers
        self._registry = registry
        self._on_change = on_change
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for name, config in self._servers.items():
            first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._registry.expect(name, prefix_of(name), partial(_known, first))
            task = asyncio.create_task(self._watch(name, config, first), name=f"MCP server {name}")
            task.add_done_callback(_ended)
            self._tasks.append(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for name in self._servers:
            self._registry.expect(name, prefix_of(name), None)
            self._registry.supply(name, ())

    async def _watch(self, name: str, config: MCPServer, first: asyncio.Future[Any]) -> None:
        try:
            library = await asyncio.to_thread(importlib.import_module, "gateway.upstream.mcp_watch")
            catalogue = Catalogue(name, config, self._registry, self._on_change)
            watch = library.Watch(name, config, catalogue.publish)
            catalogue.remote = watch
            first.set_result(watch)
            await watch.run()
        finally:
            first.cancel()


async def _known(first: asyncio.Future[Any]) -> None:
    await asyncio.wait({first})
    if not first.cancelled():
        await first.result().known()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s is not watched any more", task.get_name(), exc_info=error)


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name of an MCP server is a str, not {type(name).__name__}.")
    if not TOOL_NAME.fullmatch(name) or len(name) > MAX_SERVER or "__" in name:
        raise ValueError(f"The name of an MCP server has 1 to {MAX_SERVER} of A-Z a-z 0-9 _ . -, no __, not {name!r}.")
    return name


def _made(server: Any) -> MCPServer:
    return server if isinstance(server, MCPServer) else MCPServer(server)
