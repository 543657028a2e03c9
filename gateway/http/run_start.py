"""What every route that starts a run has in common: its key, its job, its answer as a stream."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import Conflict, CursorExpired, RequestError
from gateway.execution.supervisor import RunSpec
from gateway.http.engine import Engine
from gateway.http.requests import cursor_of, expired_details, unknown
from gateway.http.sessions import Identity
from gateway.http.stream import HEADERS
from gateway.run.records import RunKey, RunRecord
from gateway.stores.base import Bounds

__all__ = ["checked_cursor", "rejoin", "run_key", "started", "stream_run"]

# `write_behind`: what a viewer has seen at another worker is stored within this, or lost.
BEHIND_SECONDS = 1.0
LOOK_SECONDS = 0.02


def run_key(request: Request, identity: Identity, run_id: str) -> RunKey:
    """The key of the run a body asks for; `X-Run-Id`, when sent, must say the same."""
    header = request.headers.get("x-run-id")
    if header is not None and header != run_id:
        raise RequestError(
            "X-Run-Id differs from the body's runId.", details=[{"field": "X-Run-Id", "message": "differs from runId"}]
        )
    return RunKey(identity.owner, run_id)


async def stream_run(engine: Engine, request: Request, spec: RunSpec) -> Response:
    """Starts the run, or joins the equal one that is there, and follows it from the start.

    A POST with `Last-Event-ID` comes from a client that lost its connection: it only reads.
    """
    if only_reads(request):
        return await rejoin(engine, request, await engine.find(request, spec.key.run_id), spec.agent)
    engine.viewers.admit(spec.key)
    record, created = await engine.supervisor.start(spec)
    if not created:
        await _check(engine, record, 0)
    return engine.stream(record, 0)


async def started(engine: Engine, request: Request, spec: RunSpec) -> RunRecord:
    """The same for an answer that is no stream: the record of the run."""
    if not only_reads(request):
        record, _ = await engine.supervisor.start(spec)
        return record
    record = await engine.find(request, spec.key.run_id)
    if record.agent != spec.agent:
        raise unknown("run")
    return record


def only_reads(request: Request) -> bool:
    """Whether a POST may start nothing: it carries `Last-Event-ID`."""
    return bool(request.headers.get("last-event-id"))


async def rejoin(engine: Engine, request: Request, record: RunRecord, agent: str) -> Response:
    """Follows a run of `agent` after the request's cursor; over and read: an empty stream."""
    if record.agent != agent:
        raise unknown("run")
    cursor, bounds = await checked_cursor(engine, request, record)
    if bounds.over and cursor == bounds.last:
        return Response(headers=HEADERS)
    engine.viewers.admit(record.key)
    return engine.stream(record, cursor)


async def checked_cursor(engine: Engine, request: Request, record: RunRecord) -> tuple[int, Bounds]:
    """The cursor of a request, checked against what the store still has of the run."""
    return await _check(engine, record, cursor_of(request))


async def _check(engine: Engine, record: RunRecord, cursor: int) -> tuple[int, Bounds]:
    bounds = await _bounds(engine, record.key, cursor)
    if bounds is None:
        raise unknown("run")
    if cursor > bounds.last:
        if not bounds.over:
            raise Conflict(f"The run has no event {cursor} yet.", code="cursor_ahead")
        return bounds.last - 1, bounds
    if cursor < bounds.first - 1:
        details = expired_details(bounds.first, bounds.last, record)
        raise CursorExpired("The events after this cursor are gone.", details=details)
    return cursor, bounds


async def _bounds(engine: Engine, key: RunKey, cursor: int) -> Bounds | None:
    """What the store has; with `write_behind` a viewer that hops may be a moment ahead of it."""
    bounds = await engine.store.bounds(key)
    end = asyncio.get_running_loop().time() + (BEHIND_SECONDS if engine.settings.write_behind else 0)
    while bounds is not None and cursor > bounds.last and not bounds.over:
        if asyncio.get_running_loop().time() >= end:
            break
        await asyncio.sleep(LOOK_SECONDS)
        bounds = await engine.store.bounds(key)
    return bounds
