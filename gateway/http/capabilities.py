"""What the gateway says of itself: AG-UI `AgentCapabilities` and the catalogue of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.execution.agents import TOOLS_AGENT
from gateway.execution.session_tools import SessionTools
from gateway.settings import Settings
from gateway.upstream.agents import Agent

__all__ = ["agent_items", "capabilities"]

TOOLS_DESCRIPTION = "Runs the tool calls that the last assistant message left unanswered."


def agent_items(agents: Mapping[str, Agent]) -> list[dict[str, Any]]:
    """The items of `GET /agents`; the built-in agent first."""
    built_in = {"name": TOOLS_AGENT, "description": TOOLS_DESCRIPTION}
    return [built_in, *({"name": name, "description": agent.description} for name, agent in agents.items())]


def capabilities(settings: Settings, tools: SessionTools, agent: str = TOOLS_AGENT) -> dict[str, Any]:
    """`AgentCapabilities` of the official protocol, for an agent, and for the gateway as a whole."""
    execution: dict[str, Any] = {"codeExecution": False}
    if settings.run_timeout:
        execution["maxExecutionTime"] = round(settings.run_timeout * 1000)
    return {
        "identity": {"name": agent, "type": "agui-gateway", "provider": "agui-gateway"},
        "transport": {"streaming": True, "resumable": True, "websocket": False, "httpBinary": False},
        "tools": {
            "supported": True,
            "items": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in tools.all()
            ],
            "parallelCalls": settings.parallel_tool_calls,
            "clientProvided": False,
        },
        "execution": execution,
        "humanInTheLoop": {
            "supported": True,
            "approvals": True,
            "interrupts": True,
            "approveWithEdits": True,
            "feedback": False,
        },
    }
