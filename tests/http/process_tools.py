"""Tools that run in processes of their own, where they must be importable."""

from __future__ import annotations

import os
from typing import Any

from gateway.errors import NotAvailable
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool

__all__ = ["deletes_in_a_process", "lists_what_is_missing"]


@tool(name="deletes", needs_approval=True, isolation="process")
def deletes_in_a_process(ctx: ToolContext, rows: list[str], force: bool = False) -> dict[str, Any]:
    """Deletes rows, in a process."""
    ctx.emit_custom_event("deleting", {"pid": os.getpid()})
    return {"deleted": rows, "force": force}


@tool(isolation="process")
def lists_what_is_missing(ctx: ToolContext, names: list[str]) -> dict[str, str]:
    """Says which of these members are not available, and in which words."""
    missing = {}
    for name in names:
        try:
            getattr(ctx, name)
        except NotAvailable as error:
            missing[name] = str(error)
    return missing
