"""The application that the recipes run: put your own in its place.

API_KEYS="alice:KEY,bob:KEY" says who may call. There is no default: without its keys it does not start.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Any

from starlette.requests import HTTPConnection

from gateway import AuthContext, Gateway, ToolContext, tool

KEYS = dict(entry.strip().split(":", 1) for entry in os.environ["API_KEYS"].split(","))


async def authenticate(connection: HTTPConnection) -> AuthContext | None:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    # Every key is compared, each in constant time: how long it takes says nothing about them.
    matches = [name for name, key in KEYS.items() if secrets.compare_digest(key.encode(), given.encode())]
    return AuthContext(subject=matches[0]) if matches else None


@tool(timeout=0)
async def count(to: int, ctx: ToolContext, pause: float = 1.0) -> dict[str, Any]:
    """Count, one number every `pause` seconds."""
    for number in range(1, to + 1):
        await asyncio.sleep(pause)
        ctx.emit_custom_event("counted", {"n": number})
        ctx.report_progress(number, to)
    return {"counted": to}


@tool
async def order(item: str, ctx: ToolContext) -> dict[str, Any]:
    """Order something, after asking how many."""
    answer = await ctx.request_input(f"How many of {item}?", {"type": "integer", "minimum": 1})
    return {"item": item, "ordered": answer.payload if answer.resolved else 0}


gateway = Gateway(tools=[count, order], authenticate=authenticate)
