"""What one MCP server has in the catalogue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.execution.registry import Registry
from gateway.execution.tools import Tool
from gateway.upstream.mcp_names import tool_names
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_tool import Definition, MCPTool, Remote

__all__ = ["Catalogue", "OnChange"]

logger = logging.getLogger("gateway")

OnChange = Callable[[list[Tool], list[Tool]], None]


class Catalogue:
    """See the module. `remote` is where its tools are run; `on_change` hears of those that came and those that went."""

    remote: Remote

    def __init__(self, name: str, config: MCPServer, registry: Registry, on_change: OnChange) -> None:
        self._name = name
        self._config = config
        self._registry = registry
        self._on_change = on_change
        self._tools: dict[str, MCPTool] = {}

    async def publish(self, definitions: list[Definition]) -> None:
        """The tools that are there now, in the place of those that were."""
        names = tool_names(self._name, (definition.name for definition in definitions))
        tools: dict[str, MCPTool] = {}
        for definition in definitions:
            name = names[definition.name]
            known = self._tools.get(name)
            if known is None or known.definition != definition:
                known = self._tool(name, definition)
                await asyncio.sleep(0)  # one takes a millisecond
            tools[name] = known
        self._tools = tools
        came, went = self._registry.supply(self._name, tools.values())
        for name in tools:
            if self._registry.get(name) is not tools[name]:
                logger.warning("MCP server %s: another tool is called %s already", self._name, name)
        if came or went:
            self._on_change(came, went)

    def _tool(self, name: str, definition: Definition) -> MCPTool:
        return MCPTool(
            name,
            definition,
            self.remote,
            timeout=self._config.timeout,
            requires=frozenset(self._config.requires),
            needs_approval=self._config.needs_approval,
        )
