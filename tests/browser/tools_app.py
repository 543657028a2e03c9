"""Tools that the demo does not have: one whose schema says more than the page checks, one that emits markup."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway import Gateway, ToolContext, tool

MARKUP = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'</script>"


@tool
def pack(amount: Annotated[int, Field(multiple_of=12)], label: str = "") -> int:
    """Takes whole dozens only."""
    return amount // 12


@tool
def show_markup(ctx: ToolContext) -> str:
    """Emits, reports and returns HTML."""
    ctx.emit_custom_event("test.markup", {"html": MARKUP})
    ctx.report_progress(1, 2, MARKUP)
    return MARKUP


gateway = Gateway(tools=[pack, show_markup])
