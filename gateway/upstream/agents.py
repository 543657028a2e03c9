"""The agents of a gateway by name: functions in this process, and agents behind a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.execution.agents import TOOLS_AGENT, AgentFunction, LocalAgent
from gateway.execution.names import TOOL_NAME
from gateway.upstream.remote import RemoteAgent

__all__ = ["Agent", "AgentLike", "Agents"]

Agent = LocalAgent | RemoteAgent
AgentLike = AgentFunction | RemoteAgent | str


class Agents:
    """See the module. Raises `TypeError` for what is no agent, `ValueError` for a name or URL that cannot be one."""

    def __init__(self, agents: Mapping[str, AgentLike] | None = None) -> None:
        if not isinstance(agents, Mapping | None):
            raise TypeError(f'agents is a mapping, {{"name": agent}}, not {type(agents).__name__}.')
        self._agents = {_checked(name): _made(name, agent) for name, agent in (agents or {}).items()}

    def get(self, name: str) -> Agent | None:
        """The agent of this name."""
        return self._agents.get(name)

    def all(self) -> Mapping[str, Agent]:
        """The agents by name, in the order in which they were given."""
        return self._agents

    @property
    def remote(self) -> bool:
        """Whether one of them is on another server."""
        return any(isinstance(agent, RemoteAgent) for agent in self._agents.values())

    def add(self, name: str, agent: AgentLike) -> None:
        """One more; `ValueError` when the name is taken."""
        if _checked(name) in self._agents:
            raise ValueError(f"There are two agents named {name!r}.")
        self._agents[name] = _made(name, agent)


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name of an agent is a str, not {type(name).__name__}.")
    if name == TOOLS_AGENT:
        raise ValueError(f"The agent {TOOLS_AGENT!r} is built in: give yours another name.")
    if not TOOL_NAME.fullmatch(name) or name in (".", ".."):  # which clients take out of a path
        raise ValueError(f"The name of an agent has 1 to 128 of A-Z a-z 0-9 _ . -, not {name!r}.")
    return name


def _made(name: str, agent: Any) -> Agent:
    if isinstance(agent, str):
        return RemoteAgent(agent)
    if isinstance(agent, RemoteAgent):
        return agent
    if LocalAgent.is_one(agent):
        return LocalAgent(name, agent)
    raise TypeError(
        f"Agent {name!r} must be a URL, a RemoteAgent, or an async generator function,"
        f" `async def agent(input, ctx)` with `yield`, not {agent!r}."
    )
