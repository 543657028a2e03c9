"""What each command of the page about MCP servers must do."""

from __future__ import annotations

import re
from typing import Any

from tests.docs.checks import Check, backend_is_up, events_in, get, shown
from tests.docs.pages import page
from tests.docs.shells import Shell
from tests.support.servers import eventually

__all__ = ["MCP", "MCP_CHECKS"]

MCP = "docs/how-to/mcp.md"


def lists(*names: str) -> Check:
    """The gateway has these tools, after a while."""

    def listed(shell: Shell, _: str) -> None:
        def look() -> list[Any]:
            items: list[Any] = get(shell, "/tools").json()["items"]
            return items if [item["name"] for item in items] == list(names) else []

        eventually(look, within=30, what=f"the tools {names}")

    return listed


def shows_its_progress(_: Shell, output: str) -> None:
    assert re.search(shown(page(MCP).block("", "tool.progress").text), output)
    events = events_in(output)
    assert events[-1]["result"]["structuredContent"] == {"indexed": 3}


MCP_CHECKS: dict[tuple[str, str], Check] = {
    (MCP, "uvicorn notes:app"): backend_is_up,
    (MCP, "agui-gateway serve --mcp"): lists("notes__index"),
    (MCP, "curl -N http://127.0.0.1:8000/tools/notes__index"): shows_its_progress,
    (MCP, "agui-gateway serve gateway.toml"): lists("notes__index", "local__index"),
    (MCP, "agui-gateway serve app:gateway"): lists("notes__index", "local__index"),
}
