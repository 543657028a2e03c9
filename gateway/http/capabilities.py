"""What the gateway says of itself: AG-UI `AgentCapabilities` and the catalogue of agents."""

from __future__ import annotations

from typing import Any

from gateway.execution.session_tools import SessionTools
from gateway.settings import Settings

__all__ = ["agent_item", "capabilities"]


def agent_item(name: str) -> dict[str, Any]:
    """One entry of `GET /agents`."""
    return {"name": name, "description": "Runs the tool calls that the last assistant message left unanswered."}


def capabilities(settings: Settings, tools: SessionTools) -> dict[str, Any]:
    """`AgentCapabilities` of the official protocol, for the built-in agent and for the gateway as a whole."""
    execution: dict[str, Any] = {"codeExecution": False}
    if settings.run_timeout:
        execution["maxExecutionTime"] = round(settings.run_timeout * 1000)
    return {
        "identity": {"name": "tools", "type": "agui-gateway", "provider": "agui-gateway"},
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
    }
