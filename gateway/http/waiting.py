"""Waiting for the end of a run: the JSON answer of a call, and `?wait=`."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.errors import CursorExpired, GatewayError
from gateway.execution import outcomes
from gateway.http.engine import Engine
from gateway.http.responses import JSON
from gateway.run.records import RunKey, RunRecord
from gateway.stores.base import Follower
from gateway.wire.codec import decode

__all__ = ["output_of", "wait_until_over"]


async def output_of(engine: Engine, request: Request, started: RunRecord) -> Response:
    """Waits for the end of a run and answers its `ToolOutput`; the waiting caller counts as a viewer."""
    key, watchers = started.key, engine.supervisor.watchers(started)
    if watchers is not None:
        watchers.joined()
    follower = await _end_of(engine, key)
    watcher = asyncio.create_task(_leave(request, follower), name="json watcher")
    try:
        await _drain(follower)
        if watcher.done():
            raise ClientDisconnect
    finally:
        watcher.cancel()
        if watchers is not None:
            watchers.left()
    record = await engine.store.get(key)
    if record is not None and record.outcome is not None and record.status == "interrupted":
        asked = record.outcome["interrupts"]
        shown = {"runId": key.run_id, "toolCallId": record.calls[0].call_id}
        return JSON({"status": "interrupted", "interrupts": asked, **shown})
    if record is not None and record.result is None and record.status == "cancelled":
        return JSON(outcomes.cancelled().to_wire())  # stopped after it had interrupted
    if record is None or record.result is None:
        raise GatewayError("The run ended without a result; the gateway's log says why.")
    return JSON(decode(record.result))


async def wait_until_over(engine: Engine, key: RunKey, seconds: float) -> None:
    """Returns when the run is over, at the latest after `seconds`."""
    follower = await _end_of(engine, key)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _drain(follower)


async def _end_of(engine: Engine, key: RunKey) -> Follower:
    """A follower of what comes from now on: only its end matters here."""
    bounds = await engine.store.bounds(key)
    return engine.store.follow(key, bounds.last if bounds is not None else 0)


async def _drain(follower: Follower) -> None:
    over = False
    while not over:
        with contextlib.suppress(CursorExpired):  # what a log has dropped is not waited for
            async for _ in follower:
                pass
            over = True


async def _leave(request: Request, follower: Follower) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    follower.close()
