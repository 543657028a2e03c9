"""The tools of a gateway in front of another one."""

from __future__ import annotations

from gateway import ToolContext, tool


@tool
async def measure(ctx: ToolContext, what: str) -> str:
    """Measures."""
    ctx.emit_custom_event("test.measured", {"what": what})
    return f"{what}: 3 m"
