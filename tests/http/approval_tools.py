"""A tool that needs an approval and runs in a process of its own, where it must be importable."""

from __future__ import annotations

import os
from typing import Any

from gateway.execution.context import ToolContext
from gateway.execution.tools import tool

__all__ = ["deletes_in_a_process"]


@tool(name="deletes", needs_approval=True, isolation="process")
def deletes_in_a_process(ctx: ToolContext, rows: list[str], force: bool = False) -> dict[str, Any]:
    """Deletes rows, in a process."""
    ctx.emit_custom_event("deleting", {"pid": os.getpid()})
    return {"deleted": rows, "force": force}
