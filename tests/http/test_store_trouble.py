"""While the store does not answer, every request that needs it is told so, and afterwards all is as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.http.asking import ASYNC, JSON, Gates, agent_body, ask, echo, error_of, waits
from tests.http.site import ME, Site, serving
from tests.stores.sqlite_stores import locked
from tests.stores.test_write_behind import paused
from tests.support.redis import RedisServer

BODY = {"runId": "new", "threadId": "t"}
READS = ["/runs/r", "/runs?threadId=t", "/threads/t", "/agents/tools?threadId=t", "/runs/r/events"]
WRITES = [
    ("/tools/echo", BODY, {}),
    ("/tools/echo", BODY, JSON),
    ("/tools/echo", BODY, ASYNC),
    ("/agents/tools", agent_body(ask(("c", "echo", {})), runId="new"), {}),
    ("/runs/r/stop", {}, {}),
    ("/runs/r/ticket", {}, {}),
    ("/threads/t/stop", {}, {}),
]


class Place(NamedTuple):
    """`away`: nothing is written meanwhile, and read only if `readable`."""

    site: Site
    away: Callable[[], AbstractContextManager[None]]
    readable: bool


@pytest.fixture(params=["sqlite", "redis"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    path = tmp_path / "runs.db"
    server = RedisServer() if request.param == "redis" else None
    url = f"sqlite:///{path}" if server is None else server.url
    options: dict[str, Any] = {"store": url, "store_timeout": 0.4, "lease_seconds": 60}
    try:
        async with serving(echo, waits, context=Gates(), beside_others=True, **options) as site:
            if server is None:
                yield Place(site, lambda: locked(path), readable=True)
            else:
                yield Place(site, lambda: paused(server), readable=False)
    finally:
        if server is not None:
            server.close()


async def test_who_asks_for_what_the_store_does_not_do_gets_503(place: Place) -> None:
    client = place.site.client
    await client.post("/tools/echo", json={"runId": "r", "threadId": "t"}, headers=ME)
    with place.away():
        answers = await asyncio.gather(
            *(client.post(path, json=body, headers={**ME, **more}) for path, body, more in WRITES)
        )
        for (path, _, _), answer in zip(WRITES, answers, strict=True):
            if place.readable and path.endswith("/stop"):  # of what is over: nothing is to be written
                assert answer.status_code == 200
            else:
                error_of(answer, 503, "store_unavailable")
        reads = await asyncio.gather(*(client.get(path, headers=ME) for path in READS))
        assert {answer.status_code for answer in reads} == ({200} if place.readable else {503})
        assert (await client.get("/readyz")).status_code == (200 if place.readable else 503)
    assert (await client.post("/tools/echo", json=BODY, headers={**ME, **JSON})).json()["status"] == "completed"
