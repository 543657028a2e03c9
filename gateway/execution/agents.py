"""The agents of a gateway by name."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ag_ui.core import RunAgentInput

from gateway.execution.names import TOOL_NAME

__all__ = ["TOOLS_AGENT", "AgentFunction", "Agents", "LocalAgent"]

#: The built-in agent; no other one has its name.
TOOLS_AGENT = "tools"

AgentFunction = Callable[[RunAgentInput, Any], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent that runs in this process: `async def agent(input, ctx)`, a generator of AG-UI events."""

    name: str
    function: AgentFunction

    @property
    def description(self) -> str:
        """The first paragraph of its docstring."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())


class Agents:
    """See the module. Raises `TypeError` for what is no agent, `ValueError` for a name that none can have."""

    def __init__(self, agents: Mapping[str, Any] | None = None) -> None:
        if not isinstance(agents, Mapping | None):
            raise TypeError(f'agents is a mapping, {{"name": agent}}, not {type(agents).__name__}.')
        self._agents = {name: _checked(name, agent) for name, agent in (agents or {}).items()}

    def get(self, name: str) -> LocalAgent | None:
        """The agent of this name."""
        return self._agents.get(name)

    def all(self) -> list[LocalAgent]:
        """The agents in the order in which they were given."""
        return list(self._agents.values())


def _checked(name: object, agent: Any) -> LocalAgent:
    if not isinstance(name, str):
        raise TypeError(f"The name of an agent is a str, not {type(name).__name__}.")
    if name == TOOLS_AGENT:
        raise ValueError(f"The agent {TOOLS_AGENT!r} is built in: give yours another name.")
    if not TOOL_NAME.fullmatch(name):
        raise ValueError(f"The name of an agent has 1 to 128 of A-Z a-z 0-9 _ . -, not {name!r}.")
    if not _is_async_generator(agent):
        raise TypeError(
            f"Agent {name!r} must be an async generator function, `async def agent(input, ctx)` with `yield`,"
            f" not {agent!r}. Agents behind a URL are not there yet."
        )
    return LocalAgent(name, agent)


def _is_async_generator(agent: Any) -> bool:
    # An object counts by what its class does with a call.
    return any(map(inspect.isasyncgenfunction, (agent, getattr(type(agent), "__call__", None))))  # noqa: B004
