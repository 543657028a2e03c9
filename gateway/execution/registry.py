"""The tools of a gateway by name, and the one rule for whether a tool is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.execution.tools import Tool, tool

__all__ = ["Registry"]


class Registry:
    """Tools by name. A tool that is not available is absent everywhere: not listed, not callable (contract 2.3)."""

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
        """The tool, if it is there."""
        found = self._tools.get(name)
        return found if found is not None and found.available else None

    def visible(self) -> list[Tool]:
        """The tools that are there, in the order they were added."""
        return [item for item in self._tools.values() if item.available]
