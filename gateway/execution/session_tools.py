"""The tools of one session: which are there for it, and the switching of them.

One rule for catalogue, agents and calls: a tool is there iff it is visible for the session and its `requires` are held;
otherwise it is absent and `unavailable`. Source: contract 2.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from gateway.execution.registry import Registry
from gateway.execution.signals import AbortSignal
from gateway.execution.tools import Tool
from gateway.stores.base import Store, Visibility

__all__ = ["SessionTools"]


class SessionTools:
    """`refresh` first: the session's rules are in the store. Without `session` they are this object's alone."""

    def __init__(
        self, registry: Registry, scopes: Collection[str] = (), store: Store | None = None, session: str = ""
    ) -> None:
        self._registry = registry
        self._scopes = frozenset(scopes)
        self._store = store
        self._session = session
        self._rules = Visibility()

    async def refresh(self) -> None:
        """Reads the rules that runs of this session have set."""
        if self._store is not None and self._session:
            self._rules = await self._store.visibility(self._session)

    async def arrival(self, name: str, signal: AbortSignal) -> None:
        """Returns once it is known whether there is a tool of this name, or the signal is aborted.

        Only of a server that has not said yet what it has is that not known at once.
        """
        if (known := self._registry.expected(name)) is None:
            return
        either: list[asyncio.Future[Any]] = [asyncio.ensure_future(known()), asyncio.ensure_future(signal.wait())]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in either:
                future.cancel()

    def get(self, name: str) -> Tool | None:
        """The tool, if it is there."""
        found = self._registry.get(name)
        return found if found is not None and self._is_there(found) else None

    def all(self) -> list[Tool]:
        """The tools that are there, in the order they were added."""
        return [tool for tool in self._registry.all() if self._is_there(tool)]

    def names(self) -> frozenset[str] | None:
        """The names of the tools that are there; None when the session has no rule of its own."""
        if self._rules == Visibility():
            return None
        return frozenset(tool.name for tool in self.all())

    async def switch(self, names: Iterable[str], *, on: bool) -> dict[str, Any]:
        """Switches tools on or off for the session; returns the value of `tools.changed`.

        `ValueError` names tools that do not exist. A scope is never granted by it.
        """
        wanted = frozenset([names] if isinstance(names, str) else names)
        unknown = sorted(name for name in wanted if self._registry.get(name) is None)
        if unknown:
            raise ValueError(f"There is no tool named {', '.join(unknown)}.")
        await self.refresh()
        before = {tool.name for tool in self.all()}
        rules = self._rules
        self._rules = Visibility(
            enabled=rules.enabled | wanted if on else rules.enabled - wanted,
            disabled=rules.disabled - wanted if on else rules.disabled | wanted,
        )
        if self._store is not None and self._session:
            await self._store.set_visibility(self._session, self._rules)
        after = {tool.name for tool in self.all()}
        return {"added": sorted(after - before), "removed": sorted(before - after), "visible": sorted(after)}

    def changed(self, came: Iterable[Tool], went: Iterable[Tool]) -> dict[str, Any] | None:
        """The value of `tools.changed` after these came to the catalogue and left it; None if it is none of theirs."""
        added = sorted(tool.name for tool in came if self._is_there(tool))
        removed = sorted(tool.name for tool in went if self._is_there(tool))
        if not added and not removed:
            return None
        return {"added": added, "removed": removed, "visible": sorted(tool.name for tool in self.all())}

    def _is_there(self, tool: Tool) -> bool:
        if tool.name in self._rules.disabled or not tool.requires <= self._scopes:
            return False
        return tool.visibility == "visible" or tool.name in self._rules.enabled
