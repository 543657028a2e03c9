"""The list of a server's tools, as it says it and as the catalogue has it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from mcp import ClientSession, types
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_tool import Definition

__all__ = ["Lists", "all_tools", "definitions"]

logger = logging.getLogger("gateway")

MAX_PAGES = 200  # a list without an end must not keep anybody waiting
MAX_NAMED = 128  # characters of what a tool calls itself, in the log
_ONE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}  # what a list has beside its tools

_HINTS = {
    "read_only_hint": "read_only",
    "destructive_hint": "destructive",
    "idempotent_hint": "idempotent",
    "open_world_hint": "open_world",
}
_VALUES = ("array", "boolean", "integer", "null", "number", "string")


async def all_tools(session: ClientSession) -> list[types.Tool]:
    """Page by page."""
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        found += page.tools
        if (cursor := page.next_cursor) is None:
            return found
    raise ValueError(f"The list of tools has more than {MAX_PAGES} pages.")


class Lists:
    """Leaves out of the lists of one connection what is no tool: the library would take none of them.

    An `Ear`. `named` are those that the log has named already.
    """

    def __init__(self, server: str, named: set[str]) -> None:
        self._server = server
        self._named = named
        self._version = MODERN_PROTOCOL_VERSIONS[-1]  # unless there is a handshake

    def sent(self, message: types.JSONRPCMessage) -> None: ...

    def ended(self) -> None: ...

    def heard(self, message: types.JSONRPCMessage) -> None:
        if not isinstance(message, types.JSONRPCResponse):
            return
        if isinstance(version := message.result.get("protocolVersion"), str):
            self._version = version
        if isinstance(tools := message.result.get("tools"), list):
            message.result["tools"] = [tool for tool in tools if self._is_one(tool)]

    def _is_one(self, tool: Any) -> bool:
        try:
            validate_server_result("tools/list", self._version, _ONE | {"tools": [tool]})
            types.Tool.model_validate(tool, by_name=False)
        except (KeyError, ValueError) as error:
            name = repr(tool.get("name") if isinstance(tool, dict) else tool)[:MAX_NAMED]
            if name not in self._named:
                self._named.add(name)
                logger.warning("MCP server %s: its tool %s is left out: %s", self._server, name, _flaw(error))
            return False
        return True


def _flaw(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("tools", 0))
    return f"{place}: {first['msg']}" if place else first["msg"]


def definitions(config: MCPServer, tools: Iterable[types.Tool]) -> list[Definition]:
    """Those that join. Tools that only run as tasks of the server's cannot be called from here."""
    return [
        _definition(tool)
        for tool in tools
        if config.offers(tool.name) and (tool.execution is None or tool.execution.task_support != "required")
    ]


def _definition(tool: types.Tool) -> Definition:
    given: Any = tool.annotations
    annotations = {ours: hint for theirs, ours in _HINTS.items() if (hint := getattr(given, theirs, None)) is not None}
    title = tool.title or getattr(given, "title", None)
    output = None if tool.output_schema is None else _output(tool.output_schema)
    return Definition(tool.name, tool.description or title or "", tool.input_schema, output, annotations)


def _output(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Of the structured content as it is here: an object, or another value as its `result`."""
    if schema.get("type") == "object":
        return schema
    if schema.get("type") not in _VALUES:
        return None  # it could be either
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped
