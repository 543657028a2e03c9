"""The answers of the detach routes (contract 3 and 5.4)."""

from __future__ import annotations

from starlette.responses import Response

from gateway.execution.background import Detached, Rejected
from gateway.http.engine import Engine
from gateway.http.responses import JSON
from gateway.run.records import RunRecord

__all__ = ["detach_all", "detach_one"]


async def detach_one(engine: Engine, record: RunRecord, call_id: str) -> Response:
    """Moves one call of the run to the background."""
    moved = await engine.supervisor.detach(record.key, call_id)
    if isinstance(moved, Rejected):
        return _rejected(moved)
    return JSON({"status": "accepted", "runId": moved.run_id}, status_code=202)


async def detach_all(engine: Engine, record: RunRecord) -> Response:
    """Moves every call of the run that can move; refused when that is none."""
    jobs: list[Detached] = []
    refusal = Rejected("not_running", "No call of this run is running any more.")
    for call in record.calls:
        moved = await engine.supervisor.detach(record.key, call.call_id)
        if isinstance(moved, Detached):
            jobs.append(moved)
        elif moved.reason == "not_detachable":
            refusal = moved
    if not jobs:
        return _rejected(refusal)
    shown = [{"toolCallId": job.call_id, "runId": job.run_id} for job in jobs]
    return JSON({"status": "accepted", "jobs": shown}, status_code=202)


def _rejected(refusal: Rejected) -> Response:
    return JSON({"status": "rejected", "reason": refusal.reason, "error": refusal.error}, status_code=409)
