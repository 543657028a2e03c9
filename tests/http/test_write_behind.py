"""`write_behind` over HTTP: what a viewer gets that has seen more than the store has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway import ToolContext, tool
from tests.http.asking import ASYNC, Gates, Reader, error_of, events_of
from tests.http.site import LONG, ME, Site, serving
from tests.stores.sqlite_stores import locked


@tool(timeout=0)
async def steps(ctx: ToolContext) -> str:
    """Emits a step at each gate."""
    gates: Gates = ctx.context
    for number in (1, 2):
        await gates[f"step {number}"].wait()
        ctx.emit_custom_event("step", {"number": number})
    await gates["end"].wait()
    return "done"


async def started(site: Site) -> Reader:
    body = {"runId": "r", "threadId": "t", "toolCallId": "c"}
    assert (await site.client.post("/tools/steps", json=body, headers={**ME, **ASYNC})).status_code == 202
    return Reader(await site.open("/runs/r/events", headers=ME))


async def stored(site: Site) -> int:
    """The number of the last event that the store has."""
    return int((await site.client.get("/runs/r", headers=ME)).json()["lastEventId"])


async def seen_and_stored(site: Site, reader: Reader, gates: Gates) -> None:
    """A viewer has seen the first step, and so has the store."""
    gates["step 1"].set()
    await reader.until("step")
    async with asyncio.timeout(LONG):
        while await stored(site) < len(reader.events):  # noqa: ASYNC110 - the store is asked
            await asyncio.sleep(0.01)


async def only_seen(site: Site, reader: Reader, gates: Gates) -> int:
    """*While nothing is stored.* The number of an event that a viewer sees."""
    gates["step 2"].set()
    await reader.until("step")
    last = len(reader.events)
    assert await stored(site) == last - 1
    return last


async def test_a_viewer_that_is_ahead_of_the_store_hops_once_it_is_there(tmp_path: Path) -> None:
    gates, path = Gates(), tmp_path / "runs.db"
    shared: dict[str, Any] = {"store": f"sqlite:///{path}", "write_behind": True}
    options = {**shared, "context": gates, "beside_others": True}
    async with serving(steps, **options) as one, serving(steps, **options) as other:
        reader = await started(one)
        await seen_and_stored(one, reader, gates)
        with locked(path):
            last = await only_seen(one, reader, gates)
            headers = {**ME, "last-event-id": str(last)}
            error_of(await other.client.get("/runs/r/events", headers=headers), 409, "cursor_ahead")
            hopping = asyncio.create_task(other.open("/runs/r/events", headers=headers))
        hopped = Reader(await hopping)
        gates["end"].set()
        rest = await hopped.rest()
        whole = events_of((await other.client.get("/runs/r/events", headers=ME)).content)
        assert whole[last:] == rest
        assert await reader.rest() == whole


async def test_a_viewer_that_has_seen_what_was_lost_gets_the_end_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gates, path = Gates(), tmp_path / "runs.db"
    times: dict[str, Any] = {"store_timeout": 0.5, "lease_seconds": 1}
    options = {"store": f"sqlite:///{path}", "write_behind": True, **times}
    async with serving(steps, context=gates, **options) as site:
        reader = await started(site)
        await seen_and_stored(site, reader, gates)
        with locked(path):
            last = await only_seen(site, reader, gates)
            async with asyncio.timeout(LONG):
                last_words = await reader.stream.until_broken()
            assert b"store_unavailable" in last_words
            assert b"id:" not in last_words[last_words.rindex(b"\n\n", 0, -2) :]
        record = (await site.client.get("/runs/r?wait=20", headers=ME)).json()
        assert record["error"]["code"] == "store_unavailable"
        headers = {**ME, "last-event-id": str(last + 100)}
        answer = await site.client.get("/runs/r/events", headers=headers)
        (data,) = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        assert json.loads(data.removeprefix("data: "))["type"] == "RUN_ERROR"
        whole = events_of((await site.client.get("/runs/r/events", headers=ME)).content)
        assert [event["value"]["number"] for event in whole if event.get("name") == "step"] == [1]
    assert any("write_behind" in said.message for said in caplog.records)
