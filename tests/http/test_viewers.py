"""Viewers come, go and come back as they like: the run goes on, and nobody misses or doubles an event."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from gateway.errors import StoreError
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from gateway.wire.sse import KEEP_ALIVE, Decoder
from tests.execution.running import check_stream, quiet
from tests.http.site import LONG, ME, Site, request, serving, tasks

RECONNECTS = 1_000
VIEWERS = 1_000


class Stage:
    """What the tools of a test wait for."""

    def __init__(self) -> None:
        self.tick = asyncio.Event()
        self.go = asyncio.Event()


@tool(timeout=0)
async def works(ctx: ToolContext) -> None:
    """Emits some events at every tick, of very different sizes, and ends when it may go."""
    number = 0
    while not ctx.context.go.is_set():
        for _ in range(20):
            number += 1
            ctx.emit_custom_event("row", {"n": number, "x": "x" * (number * 37 % 1_500)}, batch=number % 5 == 0)
            if number % 7 == 0:
                await ctx.flush()
        ctx.context.tick.clear()
        await ctx.context.tick.wait()


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits until it may go."""
    ctx.emit_custom_event("started", {})
    await ctx.context.go.wait()
    return "done"


async def start(site: Site, name: str, **body: Any) -> str:
    """Starts a run in the background; returns its id."""
    answer = await site.client.post(f"/tools/{name}", json=body, headers={"prefer": "respond-async"})
    assert answer.status_code == 202
    run_id: str = answer.json()["runId"]
    return run_id


def cursor_of(cursor: int, dice: random.Random) -> tuple[str, dict[str, str]]:
    """The three ways to say where one is: query and headers."""
    match dice.randrange(3):
        case 0:
            return "", {"last-event-id": str(cursor)}
        case 1:
            return f"?lastEventId={cursor}", {}
        case _:
            return f"?offset={cursor or -1}", {}


async def test_a_thousand_reconnects_at_random_points_of_a_busy_run_see_every_event_once_in_order() -> None:
    stage, dice = Stage(), random.Random(1)

    async def view(site: Site, run_id: str, reconnects: int) -> list[tuple[int, dict[str, Any]]]:
        seen: list[tuple[int, dict[str, Any]]] = []
        for turn in range(reconnects + 1):
            query, headers = cursor_of(seen[-1][0] if seen else 0, dice)
            stage.tick.set()
            stream = await site.open(f"/runs/{run_id}/events{query}", headers=headers)
            assert stream.status == 200
            if turn == reconnects:
                stage.go.set()
                stage.tick.set()
                return seen + await stream.rest()
            enough = dice.randrange(1, 30_000)
            while len(stream.raw) < enough and not stream.ended:
                # Never waits in vain: every event that is there comes, and the tool is asked for more.
                stage.tick.set()
                for message in stream.decoder.feed(await stream.chunk()):
                    seen.append((int(message.id or 0), json.loads(message.data)))  # noqa: PERF401
            stream.leave()
        return seen

    async with serving(works, context=stage) as site:
        run_id = await start(site, "works")
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            viewers = [group.create_task(view(site, run_id, RECONNECTS // 10)) for _ in range(10)]
        for viewer in viewers:
            check_stream(viewer.result())
        rows = [event["value"]["n"] for _, event in viewers[0].result() if event.get("name") == "row"]
        assert rows == list(range(1, len(rows) + 1))
        assert len(rows) > RECONNECTS
        assert all(viewer.result() == viewers[0].result() for viewer in viewers)


def open_sockets() -> int:
    return len(psutil.Process().net_connections("inet"))


async def _leave_somewhere(site: Site, run_id: str, dice: random.Random) -> None:
    """Comes, and goes at some moment: before asking, while asking, after the head, mid-frame, half-closed."""
    moment = dice.randrange(6)
    body = {"runId": "shared"} if dice.random() < 0.2 else None
    path = "/tools/waits" if body else f"/runs/{run_id}/events"
    reader, writer = await site.connect()
    ask = request(path, body, {})
    if moment == 0:
        ask = b""
    elif moment == 1:
        ask = ask[: dice.randrange(1, len(ask))]
    writer.write(ask)
    if moment >= 2:
        await reader.readuntil(b"\r\n\r\n")
    if moment >= 3:
        await reader.readexactly(dice.randrange(1, 150))
    if moment == 4 and writer.can_write_eof():
        writer.write_eof()
    if dice.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()


@pytest.mark.parametrize("busy", [False, True], ids=["of a quiet run", "of a busy run"])
async def test_a_thousand_viewers_that_leave_leave_nothing_behind(busy: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage, dice = Stage(), random.Random(3)
    async with serving(works, waits, context=stage) as site:
        run_id = await start(site, "works" if busy else "waits")
        first = await site.open(f"/runs/{run_id}/events")
        await first.until("row" if busy else "started")
        first.leave()
        shared = await site.open("/tools/waits", {"runId": "shared"})
        await shared.until("started")
        shared.leave()
        await site.client.aclose()
        site.leave()
        await quiet(lambda: not site.server.server_state.connections)
        before, sockets = tasks(), open_sockets()
        async with asyncio.timeout(60):
            for _ in range(VIEWERS // 50):
                stage.tick.set()
                await asyncio.gather(*(_leave_somewhere(site, run_id, dice) for _ in range(50)))
        site.writers.clear()  # each has left in its own way
        await site.quiet(before)
        assert open_sockets() == sockets
        assert not len(site.engine.viewers)
        assert not site.engine.viewers.dropped
        stage.go.set()
        stage.tick.set()
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING], caplog.text
    assert "Traceback" not in caplog.text


# Enough that no socket buffer of this machine takes it.
FLOOD_EVENTS, FLOOD_BYTES = 600, 60_000


@tool(timeout=0)
async def floods(ctx: ToolContext) -> str:
    """Emits more than any socket takes."""
    for number in range(FLOOD_EVENTS):
        ctx.emit_custom_event("row", {"n": number, "x": "x" * FLOOD_BYTES})
        await ctx.flush()
    await ctx.context.go.wait()
    return "done"


async def test_a_viewer_that_does_not_read_is_cut_without_an_end_and_may_resume(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    async with serving(floods, context=stage, send_timeout=0.3) as site:
        run_id = await start(site, "floods")
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", site.port))
        _, writer = await asyncio.open_connection(sock=sock, limit=4_096)
        writer.write(request(f"/runs/{run_id}/events", None, {}))
        async with asyncio.timeout(LONG):
            # A second viewer is not slowed by the first.
            other = await site.open(f"/runs/{run_id}/events")
            last = b'"n":%d,' % (FLOOD_EVENTS - 1)
            while not any(last in message.data for message in await other.messages()):
                pass
            other.leave()
            await quiet(lambda: site.engine.viewers.dropped["slow"] > 0)
            await quiet(lambda: not len(site.engine.viewers))
        writer.transport.abort()
        stage.go.set()
        resumed = await site.open(f"/runs/{run_id}/events", headers={"last-event-id": "300"})
        numbers = [number for number, _ in await resumed.rest()]
        assert numbers == list(range(301, numbers[-1] + 1))
        resumed.leave()
    assert "Traceback" not in caplog.text


async def test_a_cut_stream_is_broken_and_not_ended() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        run_id = await start(site, "waits")
        stream = await site.open(f"/runs/{run_id}/events")
        await stream.until("started")
        site.engine.viewers.cut_all("slow")
        data = await stream.until_broken()
        assert b"RUN_FINISHED" not in data
        stage.go.set()
        last = Decoder().feed(data)[-1].id or ""
        resumed = await site.open(f"/runs/{run_id}/events", headers={"last-event-id": last})
        assert (await resumed.rest())[-1][1]["type"] == "RUN_FINISHED"
        stream.leave()
        resumed.leave()


async def test_a_viewer_that_comes_at_the_very_end_is_sent_away_and_not_waited_for(tmp_path: Path) -> None:
    stage = Stage()
    options: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/runs.db", "beside_others": True}
    async with serving(waits, context=stage, **options) as one, serving(waits, context=stage, **options) as other:
        run_id = await start(other, "waits")
        await one.gateway.drain()
        late = await one.open(f"/runs/{run_id}/events")
        async with asyncio.timeout(LONG):
            await late.until_broken()
        stage.go.set()
        elsewhere = await other.open(f"/runs/{run_id}/events")
        assert (await elsewhere.rest())[-1][1]["type"] == "RUN_FINISHED"


class Failing:
    """A follower whose store does not answer."""

    cursor = 0
    sink = None

    def __aiter__(self) -> Failing:
        return self

    async def __anext__(self) -> bytes:
        raise StoreError("The store is away.")

    def close(self) -> None:
        pass


async def test_a_viewer_whose_store_fails_is_cut_and_may_resume(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        run_id = await start(site, "waits")
        with monkeypatch.context() as broken:
            broken.setattr(site.engine.store, "follow", lambda key, cursor: Failing())
            stream = await site.open(f"/runs/{run_id}/events")
            await stream.until_broken()
        assert site.engine.viewers.dropped["store"] == 1
        stage.go.set()
        resumed = await site.open(f"/runs/{run_id}/events")
        assert (await resumed.rest())[-1][1]["type"] == "RUN_FINISHED"
    assert [record.levelname for record in caplog.records if "was cut" in record.message] == ["WARNING"]
    assert "Exception in ASGI application" not in caplog.text


async def test_a_viewer_overtaken_by_the_limit_of_the_log_is_cut_and_then_told_that_its_cursor_expired() -> None:
    stage = Stage()
    async with serving(floods, context=stage, send_timeout=0, max_run_bytes=5_000_000) as site:
        run_id = await start(site, "floods")
        slow = await site.open(f"/runs/{run_id}/events", limit=1_000)
        other = await site.open(f"/runs/{run_id}/events")
        while (await other.until("row"))["value"]["n"] < FLOOD_EVENTS - 1:
            pass
        data = await slow.until_broken()
        assert site.engine.viewers.dropped["lagged"] == 1
        last = Decoder().feed(data)[-1].id or ""
        refused = await site.client.get(f"/runs/{run_id}/events", headers={"last-event-id": last})
        assert refused.status_code == 410
        error = refused.json()["error"]
        assert error["code"] == "cursor_expired"
        assert error["details"]["firstEventId"] > int(last)
        assert error["details"]["status"] == "running"
        stage.go.set()
        other.leave()
        slow.leave()


async def test_a_silent_stream_is_kept_alive_and_says_nothing_after_its_end() -> None:
    stage = Stage()
    async with serving(waits, context=stage, keep_alive=0.05) as site:
        run_id = await start(site, "waits")
        stream = await site.open(f"/runs/{run_id}/events")
        while stream.raw.count(KEEP_ALIVE) < 2:
            await stream.chunk()
        stage.go.set()
        await stream.rest()
        assert stream.raw.endswith(b'"finishReason":"stop"}}}\n\n')
        assert stream.raw.startswith(b"retry: ")
        assert stream.raw.count(b"retry: ") == 1
        stream.leave()


# -- a viewer that leaves is not Stop, unless one asked for that --


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("wish", ["continue", "cancel"])
async def test_a_caller_that_leaves_ends_the_run_only_if_it_was_asked_to(accept: str, wish: str) -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        body = {"runId": "r", "onDisconnect": wish, "disconnectGrace": 0}
        _, writer = await site.connect()
        writer.write(request("/tools/waits", body, {"accept": accept, **ME}))
        await quiet(lambda: any(run.presence.here for run in site.engine.supervisor._runs.values()))
        [run] = site.engine.supervisor._runs.values()
        writer.transport.abort()
        await quiet(lambda: not run.presence.here)
        if wish == "continue":
            assert not run.signal.aborted
            stage.go.set()
        async with asyncio.timeout(LONG):
            await run.done.wait()
        record = (await site.client.get("/runs/r", headers=ME)).json()
        assert record["status"] == ("completed" if wish == "continue" else "failed")
        assert record["toolCalls"][0]["status"] == ("completed" if wish == "continue" else "interrupted")


async def test_one_viewer_too_many_is_told_to_wait() -> None:
    stage = Stage()
    async with serving(waits, context=stage, max_viewers_per_run=1) as site:
        run_id = await start(site, "waits")
        stream = await site.open(f"/runs/{run_id}/events")
        refused = await site.client.get(f"/runs/{run_id}/events")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_viewers"
        assert int(refused.headers["retry-after"]) >= 1
        stream.leave()
        await quiet(lambda: not len(site.engine.viewers))
        again = await site.open(f"/runs/{run_id}/events")
        assert again.status == 200
        again.leave()
        stage.go.set()
