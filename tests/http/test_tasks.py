"""Tools as tasks: in the background by `Prefer: respond-async`, watched or waited for, and refused by name."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from gateway import ToolContext, tool
from tests.http.asking import ASYNC, JSON, error_of, events_of
from tests.http.site import ME, serving


@tool(timeout=0)
async def works(ctx: ToolContext) -> str:
    """Says how far it is, and waits in between."""
    assert ctx.task is not None
    await ctx.task.update_progress("begun", 10)
    await ctx.context.wait()
    await ctx.task.update_progress("done", 100)
    return ctx.task.task_id


async def test_a_background_run_is_watched_live_and_waited_for() -> None:
    go = asyncio.Event()
    async with serving(works, context=go) as site:
        started = await site.client.post("/tools/works", json={}, headers=ME | ASYNC)
        assert started.status_code == 202
        record, location = started.json(), started.headers["location"]
        assert (record["status"], location) == ("running", f"/runs/{record['runId']}")
        stream = await site.open(f"{location}/events", headers=ME)
        first = await stream.until("tool.progress")
        assert (first["value"]["message"], first["value"]["percent"]) == ("begun", 10)
        still = await site.client.get(location, params={"wait": "0.05"}, headers=ME)
        assert still.json()["status"] == "running"
        waiting = asyncio.create_task(site.client.get(location, params={"wait": "20"}, headers=ME))
        go.set()
        over = (await waiting).json()
        events = [event for _, event in await stream.rest()]
    assert over["status"] == "completed"
    assert events[-1]["result"]["content"][0]["text"] == record["runId"], "a task is found under its run's id"
    assert [event["value"]["message"] for event in events if event.get("name") == "tool.progress"] == ["done"]


async def test_a_background_run_is_stopped_like_every_other() -> None:
    async with serving(works, context=asyncio.Event()) as site:
        location = (await site.client.post("/tools/works", json={}, headers=ME | ASYNC)).headers["location"]
        assert (await site.client.post(f"{location}/stop", headers=ME)).status_code == 202
        over = (await site.client.get(location, params={"wait": "20"}, headers=ME)).json()
    assert (over["status"], over["toolCalls"][0]["status"]) == ("cancelled", "cancelled")


async def answers() -> str:
    """Answers."""
    return "done"


@pytest.mark.parametrize("accept", [{}, JSON], ids=["stream", "json"])
async def test_a_tool_that_requires_a_task_refuses_to_be_waited_for(accept: dict[str, str]) -> None:
    made = tool(task_support="required")(answers)
    async with serving(made) as site:
        refused = await site.client.post("/tools/answers", json={"runId": "r"}, headers=ME | accept)
        error_of(refused, 400, "task_required")
        assert (await site.client.get("/runs/r", headers=ME)).status_code == 404, "nothing was started"
        assert (await site.client.post("/tools/answers", json={"runId": "r"}, headers=ME | ASYNC)).status_code == 202
        over = await site.client.get("/runs/r", params={"wait": "20"}, headers=ME)
        assert over.json()["status"] == "completed"


async def test_a_tool_that_forbids_tasks_refuses_the_background() -> None:
    made = tool(task_support="forbidden")(answers)
    async with serving(made) as site:
        refused = await site.client.post("/tools/answers", json={"runId": "r"}, headers=ME | ASYNC)
        error_of(refused, 400, "task_forbidden")
        assert (await site.client.get("/runs/r", headers=ME)).status_code == 404
        answer = await site.client.post("/tools/answers", json={"runId": "r"}, headers=ME | JSON)
        assert answer.json()["status"] == "completed"


async def test_the_list_says_what_a_tool_supports() -> None:
    kinds: tuple[Literal["forbidden", "optional", "required"], ...] = ("forbidden", "optional", "required")
    made: list[Any] = [tool(name=kind, task_support=kind)(answers) for kind in kinds]
    async with serving(*made) as site:
        items = (await site.client.get("/tools")).json()["items"]
    assert {item["name"]: item["taskSupport"] for item in items} == {kind: kind for kind in kinds}


async def test_a_task_that_ends_itself_is_interrupted_for_its_reason() -> None:
    @tool(timeout=0)
    async def gives_up(ctx: ToolContext) -> str:
        """Ends itself; what it returns then is dropped."""
        assert ctx.task is not None
        await ctx.task.cancel()
        return "never seen"

    async with serving(gives_up) as site:
        answer = await site.client.post("/tools/gives_up", json={}, headers=ME)
        events = events_of(answer.content)
    assert "never seen" not in answer.text
    assert events[-1]["outcome"] == {"type": "success"}
    value = next(event["value"] for event in events if event.get("name") == "tool.result")
    assert (value["status"], value["error"]["code"]) == ("interrupted", "interrupted")
