"""Tickets: what they open, for whom, how often, and that they never reach a log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gateway.execution.caller import AuthContext
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving

ASYNC = {**ME, "prefer": "respond-async"}


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits until it may go."""
    ctx.emit_custom_event("started", {})
    await ctx.context.wait()
    ctx.emit_custom_event("going", {})
    return "done"


async def start(site: Site, run_id: str = "r1") -> None:
    answer = await site.client.post("/tools/waits", json={"runId": run_id}, headers=ASYNC)
    assert answer.status_code == 202


async def ticket(site: Site, use: str | None = None, run_id: str = "r1") -> str:
    body = {} if use is None else {"use": use}
    answer = await site.client.post(f"/runs/{run_id}/ticket", json=body, headers=ME)
    assert answer.status_code == 201
    token: str = answer.json()["ticket"]
    return token


async def refused(site: Site, path: str, **options: Any) -> bool:
    """Whether it is refused exactly as an unknown run is."""
    unknown = await site.client.get("/runs/no-such-run")
    answer = await site.client.get(path, **options)
    return (answer.status_code, answer.json()) == (404, unknown.json())


async def test_a_follow_ticket_opens_the_stream_to_whoever_holds_it_and_continues_after_an_id_it_was_sent() -> None:
    go = asyncio.Event()
    async with serving(waits, context=go) as site:
        await start(site)
        token = await ticket(site)
        first = await site.open(f"/runs/r1/events?ticket={token}")
        assert (await first.until("started"))["name"] == "started"
        second = await site.open(f"/runs/r1/events?ticket={token}", headers={"last-event-id": "4"})
        await first.until_broken()
        go.set()
        numbers = [number for number, _ in await second.rest()]
        assert numbers == list(range(5, numbers[-1] + 1))


async def test_a_used_follow_ticket_is_refused_without_an_id_and_with_one_it_was_never_sent() -> None:
    go = asyncio.Event()
    async with serving(waits, context=go) as site:
        await start(site)
        token = await ticket(site)
        stream = await site.open(f"/runs/r1/events?ticket={token}")
        await stream.until("started")
        assert await refused(site, f"/runs/r1/events?ticket={token}")
        go.set()
        last = (await stream.rest())[-1][0]
        assert await refused(site, f"/runs/r1/events?ticket={token}")
        over = await site.client.get(f"/runs/r1/events?ticket={token}", headers={"last-event-id": str(last)})
        assert over.status_code == 204


async def test_a_follow_ticket_that_was_not_used_within_a_minute_is_worth_nothing() -> None:
    async with serving(waits, context=asyncio.Event()) as site:
        await start(site)
        token = await ticket(site)
        now = site.engine.tickets._clock()
        site.engine.tickets._clock = lambda: now + 61
        assert await refused(site, f"/runs/r1/events?ticket={token}")


async def test_a_share_ticket_reads_record_and_events_as_often_as_one_likes_and_nothing_else() -> None:
    go = asyncio.Event()
    async with serving(waits, context=go) as site:
        await start(site)
        token = await ticket(site, "share")
        one = await site.open(f"/runs/r1/events?ticket={token}", headers=SOMEBODY_ELSE)
        two = await site.open(f"/runs/r1/events?ticket={token}")
        record = await site.client.get(f"/runs/r1?ticket={token}")
        stop = await site.client.post(f"/runs/r1/stop?ticket={token}", headers=SOMEBODY_ELSE)
        more = await site.client.post(f"/runs/r1/ticket?ticket={token}", headers=SOMEBODY_ELSE)
        go.set()
        assert record.json()["status"] == "running"
        assert (stop.status_code, more.status_code) == (404, 404)
        assert [number for number, _ in await one.rest()] == [number for number, _ in await two.rest()]


async def test_a_follow_ticket_does_not_open_the_record() -> None:
    async with serving(waits, context=asyncio.Event()) as site:
        await start(site)
        assert await refused(site, f"/runs/r1?ticket={await ticket(site)}")


@pytest.mark.parametrize("use", ["follow", "share"])
async def test_a_ticket_of_one_run_does_not_open_another(use: str) -> None:
    async with serving(waits, context=asyncio.Event()) as site:
        await start(site, "r1")
        await start(site, "r2")
        token = await ticket(site, use, "r1")
        assert await refused(site, f"/runs/r2/events?ticket={token}", headers=ME)
        assert await refused(site, "/runs/r1/events?ticket=made-up", headers=ME)


async def test_a_viewer_by_share_ticket_does_not_keep_a_run_that_ends_without_viewers() -> None:
    async with serving(waits, context=asyncio.Event()) as site:
        body = {"runId": "r1", "onDisconnect": "cancel", "disconnectGrace": 0}
        owner = await site.open("/tools/waits", body, {**ME, "accept": "text/event-stream"})
        await owner.until("started")
        shared = await site.open(f"/runs/r1/events?ticket={await ticket(site, 'share')}")
        owner.leave()
        events = [event for _, event in await shared.rest()]
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")


async def test_a_ticket_stands_in_for_credentials_where_an_authenticator_wants_them() -> None:
    async def authenticate(connection: Any) -> AuthContext | None:
        key = connection.headers.get("authorization")
        return AuthContext("ann") if key == "Bearer ann" else None

    go = asyncio.Event()
    ann = {"authorization": "Bearer ann"}
    async with serving(waits, context=go, authenticate=authenticate) as site:
        await site.client.post("/tools/waits", json={"runId": "r1"}, headers={**ann, "prefer": "respond-async"})
        answer = await site.client.post("/runs/r1/ticket", headers=ann)
        stream = await site.open(f"/runs/r1/events?ticket={answer.json()['ticket']}")
        go.set()
        assert (await stream.rest())[-1][1]["type"] == "RUN_FINISHED"
        assert (await site.client.get("/runs?ticket=x")).status_code == 401


async def test_no_ticket_reaches_the_servers_access_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "uvicorn.access")
    # A server of ours switches it off for its process, which may be this one.
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)
    go = asyncio.Event()
    go.set()
    async with serving(waits, context=go) as site:
        await start(site)
        token = await ticket(site, "share")
        stream = await site.open(f"/runs/r1/events?lastEventId=2&ticket={token}")
        assert (await stream.rest())[0][0] == 3
        await site.client.get(f"/runs/r1?ticket={token}-no")
    from_server = [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]
    assert any("/runs/r1/events?lastEventId=2" in line for line in from_server)
    assert not any(token in line for line in from_server)
