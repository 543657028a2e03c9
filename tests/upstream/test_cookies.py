"""Cookies of MCP servers: what one sets for the call of one person goes with nobody's."""

from __future__ import annotations

import asyncio

from tests.execution.running import quiet
from tests.http.site import serving
from tests.upstream.backend import LONG, Answer, Asked, answering


async def test_a_cookie_that_an_mcp_server_sets_does_not_come_back() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.head(400, "application/json", "set-cookie: sid=of-the-first; Path=/")

    async with answering(script) as backend, serving(mcp_servers={"files": backend.url}):
        async with asyncio.timeout(LONG):
            await quiet(lambda: len(backend.asked) >= 2)
    assert all("cookie" not in asked.headers for asked in backend.asked)
