"""The list of a server's tools, as it says it and as the catalogue has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp import ClientSession, types

from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_tool import Definition

__all__ = ["all_tools", "definitions"]

MAX_PAGES = 200  # a list without an end must not keep anybody waiting

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
