"""Tools that the demo does not have: each is for one thing that a page must show, or let a person do."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, Field

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


class Guest(BaseModel):
    name: Annotated[str, Field(pattern="^[A-Z]", description="As it is in the passport.")]
    nights: Annotated[int, Field(ge=1)] = 2


@tool
async def ask_guest(ctx: ToolContext) -> dict[str, Any]:
    """Asks for a name, which the page does not check as the schema says."""
    answer = await ctx.request_input("Who is coming?", Guest)
    return {"status": answer.status, "payload": answer.payload}


@tool
async def ask_twice(ctx: ToolContext) -> list[Any]:
    """Asks two things at once, without a schema and with one that is no object."""
    answers = await asyncio.gather(
        ctx.request_input("Any wish?"), ctx.request_input("How many?", {"type": "integer", "maximum": 9})
    )
    return [answer.payload for answer in answers]


@tool(needs_approval=True)
async def delete_files(path: Annotated[str, Field(max_length=20)], keep: list[str] | None = None) -> dict[str, Any]:
    """Says what it would delete."""
    return {"path": path, "keep": keep}


@tool
async def book_trip(ctx: ToolContext, city: str = "Rome") -> dict[str, Any]:
    """Ends its run twice with a question."""
    hotel = ctx.interrupt(f"Which hotel in {city}?", {"enum": ["Grand", "Plaza"]}, key="hotel")
    if hotel.status == "cancelled":
        return {"booked": None}
    pays = ctx.interrupt("Who pays?", {"type": "object", "properties": {"payer": {"type": "string"}}}, key="pay")
    return {"city": city, "hotel": hotel.payload, "payer": (pays.payload or {}).get("payer")}


@tool(timeout=0)
async def long_report(ctx: ToolContext, pages: int = 50) -> str:
    """Writes a page each 100 ms; may be moved to the background."""

    async def write() -> str:
        for page in range(1, pages + 1):
            await asyncio.sleep(0.1)
            ctx.report_progress(page, pages, f"page {page}")
        return f"{pages} pages"

    return await ctx.run_detachable(write())


@tool(timeout=0)
async def stays(ctx: ToolContext) -> None:
    """Cannot be moved to the background."""
    await ctx.abort_signal.wait()


gateway = Gateway(
    tools=[pack, show_markup, ask_guest, ask_twice, delete_files, book_trip, long_report, stays], max_threads=4
)
