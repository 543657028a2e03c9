"""The tools of a gateway by name. Whether a tool is there for somebody is the matter of `session_tools`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.execution.tools import Tool, tool

__all__ = ["Registry"]


class Registry:
    """Tools by name, each name once."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self.add(item)

    def add(self, item: Tool | Callable[..., Any]) -> Tool:
        """Adds a tool, or makes one of a function; `ValueError` when the name is taken."""
        made = item if isinstance(item, Tool) else tool(item)
        if made.name in self._tools:
            raise ValueError(f'There are two tools named "{made.name}".')
        self._tools[made.name] = made
        return made

    def get(self, name: str) -> Tool | None:
        """The tool of this name."""
        return self._tools.get(name)

    def all(self) -> list[Tool]:
        """The tools in the order they were added."""
        return list(self._tools.values())
