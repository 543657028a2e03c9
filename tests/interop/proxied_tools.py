"""The gateway's tools for the agents of test_backends.py."""

from __future__ import annotations

from gateway import ToolContext, tool


@tool
async def count(ctx: ToolContext, to: int) -> str:
    """Counts."""
    for number in range(1, to + 1):
        ctx.emit_custom_event("test.counted", {"number": number})
    return f"{to} in all"


@tool(needs_approval=True)
async def remove(path: str) -> str:
    """Somebody has to say yes."""
    return f"removed {path}"
