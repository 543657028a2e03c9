"""The tools of a gateway by name. Whether a tool is there for somebody is the matter of `session_tools`.

Its own tools are added and stay. What servers supply comes and goes while the gateway runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gateway.execution.tools import Tool, tool

__all__ = ["Registry"]

Known = Callable[[], Awaitable[None]]


class Registry:
    """Tools by name, each name once. On the loop only, once the gateway runs."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._own: dict[str, Tool] = {}
        self._supplied: dict[str, list[Tool]] = {}
        self._there: dict[str, Tool] = {}
        self._expected: dict[str, Known] = {}
        for item in tools:
            self.add(item)

    def add(self, item: Tool | Callable[..., Any]) -> Tool:
        """Adds a tool, or makes one of a function; `ValueError` when the name is taken."""
        made = item if isinstance(item, Tool) else tool(item)
        if made.name in self._own:
            raise ValueError(f'There are two tools named "{made.name}".')
        self._own[made.name] = made
        self._there = self._merged()
        return made

    def supply(self, source: str, tools: Iterable[Tool]) -> tuple[list[Tool], list[Tool]]:
        """What a source has, in the place of what it had; returns the tools that came and those that went.

        A name is that of the gateway's own tool, else of the source that was expected first.
        """
        before = self._there
        self._supplied[source] = list(tools)
        after = self._there = self._merged()
        came = [item for name, item in after.items() if name not in before]
        return came, [item for name, item in before.items() if name not in after]

    def expect(self, source: str, prefix: str, known: Known | None) -> None:
        """Tools of this source begin with `prefix`; `known` waits until it has said which. None: not any more."""
        self._supplied.setdefault(source, [])
        if known is None:
            self._expected.pop(prefix, None)
        else:
            self._expected[prefix] = known

    def expected(self, name: str) -> Known | None:
        """What waits until it is known whether there is a tool of this name; None when it is known now."""
        if not self._expected or name in self._there:
            return None
        return next((known for prefix, known in self._expected.items() if name.startswith(prefix)), None)

    def get(self, name: str) -> Tool | None:
        """The tool of this name."""
        return self._there.get(name)

    def all(self) -> list[Tool]:
        """The gateway's own tools in the order they were added, then those of its servers."""
        return list(self._there.values())

    def _merged(self) -> dict[str, Tool]:
        merged = dict(self._own)
        for tools in self._supplied.values():
            for item in tools:
                merged.setdefault(item.name, item)
        return merged
