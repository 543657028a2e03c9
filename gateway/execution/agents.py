"""Agents that run in this process."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from ag_ui.core import RunAgentInput

__all__ = ["TOOLS_AGENT", "AgentFunction", "LocalAgent"]

#: The built-in agent; no other one has its name.
TOOLS_AGENT = "tools"

AgentFunction = Callable[[RunAgentInput, Any], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent that runs in this process: `async def agent(input, ctx)`, a generator of AG-UI events."""

    name: str
    function: AgentFunction

    @staticmethod
    def is_one(function: object) -> bool:
        """Whether it is an async generator function. An object counts by what its class does with a call."""
        return any(map(inspect.isasyncgenfunction, (function, getattr(type(function), "__call__", None))))  # noqa: B004

    @property
    def description(self) -> str:
        """The first paragraph of its docstring."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())
