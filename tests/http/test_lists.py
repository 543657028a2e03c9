"""Lists and records: what a session's runs are, and waiting for the end of one."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from tests.execution.running import quiet
from tests.http.asking import ASYNC, Gates, agent_body, ask, echo, error_of, waits
from tests.http.site import LONG, ME, SOMEBODY_ELSE, Site, serving


async def run(site: Site, run_id: str, tool: str = "echo", headers: dict[str, str] = ME, **body: Any) -> None:
    answer = await site.client.post(f"/tools/{tool}", json={"runId": run_id, **body}, headers={**headers, **ASYNC})
    assert answer.status_code == 202
    if tool == "echo":
        assert (await site.client.get(f"/runs/{run_id}?wait=20", headers=headers)).json()["endedAt"]


async def listed(site: Site, query: str = "", headers: dict[str, str] = ME) -> tuple[list[str], str | None]:
    answer = await site.client.get(f"/runs{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"items", "next"}
    return [item["runId"] for item in answer.json()["items"]], answer.json()["next"]


async def test_runs_are_listed_newest_first_and_only_those_of_the_session() -> None:
    async with serving(echo) as site:
        for number in range(5):
            await run(site, f"r{number}")
            await run(site, f"other{number}", headers=SOMEBODY_ELSE)
            await run(site, f"nobody{number}", headers={})
        assert await listed(site) == (["r4", "r3", "r2", "r1", "r0"], None)
        assert await listed(site, headers={}) == ([], None)


async def test_pages_follow_each_other_without_gap_or_double_also_while_runs_are_added() -> None:
    async with serving(echo) as site:
        for number in range(7):
            await run(site, f"r{number}")
        seen, query = [], "?limit=3"
        while True:
            items, after = await listed(site, query)
            assert len(items) <= 3
            seen += items
            if after is None:
                break
            await run(site, f"new{after}")  # at the front, where no later page looks
            query = f"?limit=3&after={after}"
        assert seen == [f"r{number}" for number in reversed(range(7))]


async def test_a_full_last_page_has_no_next_one() -> None:
    async with serving(echo) as site:
        for number in range(4):
            await run(site, f"r{number}")
        assert await listed(site, "?limit=4") == (["r3", "r2", "r1", "r0"], None)
        assert await listed(site, "?limit=2&after=r2") == (["r1", "r0"], None)
        assert await listed(site, "?after=r0") == ([], None)
        assert await listed(site, "?after=") == (["r3", "r2", "r1", "r0"], None)
        assert await listed(site, "?after=no-such-run") == ([], None)


async def test_runs_are_filtered_by_thread_and_by_status() -> None:
    gates = Gates()
    async with serving(echo, waits, context=gates) as site:
        for number in range(4):
            await run(site, f"done{number}", threadId=f"t{number % 2}")
            await run(site, f"busy{number}", "waits", threadId=f"t{number % 2}")
        assert (await listed(site, "?threadId=t0"))[0] == ["busy2", "done2", "busy0", "done0"]
        assert (await listed(site, "?status=running"))[0] == ["busy3", "busy2", "busy1", "busy0"]
        assert (await listed(site, "?status=running&threadId=t1"))[0] == ["busy3", "busy1"]
        assert await listed(site, "?status=completed&threadId=t1&limit=1") == (["done3"], "done3")
        assert await listed(site, "?status=completed&threadId=t1&limit=1&after=done3") == (["done1"], None)
        assert (await listed(site, "?threadId=no-such-thread"))[0] == []
        assert (await site.client.post("/runs/busy1/stop", headers=ME)).status_code == 202
        await site.client.get("/runs/busy1?wait=20", headers=ME)
        assert (await listed(site, "?status=cancelled"))[0] == ["busy1"]
        for status in ("waiting", "stopping", "interrupted", "failed"):
            assert (await listed(site, f"?status={status}"))[0] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1.5", "limit"),
        ("limit=1e2", "limit"),
        ("limit=nan", "limit"),
        ("limit=٣", "limit"),
        ("status=done", "status"),
        ("status=", "status"),
        ("status=new", "status"),
        ("status=RUNNING", "status"),
    ],
)
async def test_a_list_that_nobody_can_give_is_refused_by_name(query: str, field: str) -> None:
    async with serving(echo) as site:
        for headers in (ME, {}):
            error = error_of(await site.client.get(f"/runs?{query}", headers=headers), 400, "invalid_request")
            assert error["details"][0]["field"] == field


async def test_the_largest_list_is_two_hundred_long() -> None:
    async with serving(echo) as site:
        for start in range(0, 204, 51):
            await asyncio.gather(*(run(site, f"r{number}") for number in range(start, start + 51)))
        items, after = await listed(site, "?limit=200")
        assert len(items) == 200
        assert after == items[-1]
        assert len((await listed(site))[0]) == 50


async def test_a_record_says_what_the_contract_says() -> None:
    async with serving(echo) as site:
        body = agent_body(ask(("c1", "echo", {}), ("c2", "nothing", {})), parentRunId="p")
        await site.client.post("/agents/tools", json=body, headers=ME)
        record = (await site.client.get("/runs/r", headers=ME)).json()
        times = [record.pop(name) for name in ("createdAt", "startedAt", "endedAt")]
        calls = record.pop("toolCalls")
        assert record == {
            "runId": "r",
            "threadId": "t",
            "parentRunId": "p",
            "agent": "tools",
            "status": "completed",
            "outcome": {"type": "success"},
            "lastEventId": 10,
        }
        for call in calls:
            times += [call.pop("startedAt"), call.pop("endedAt")]
        assert calls == [
            {"toolCallId": "c1", "toolName": "echo", "status": "completed"},
            {"toolCallId": "c2", "toolName": "nothing", "status": "unavailable"},
        ]
        assert all(time.endswith("Z") and datetime.fromisoformat(time).utcoffset() is not None for time in times)
        assert times[:3] == sorted(times[:3])
        assert (await site.client.get("/runs", headers=ME)).json()["items"] == [
            (await site.client.get("/runs/r", headers=ME)).json()
        ]


# -- ?wait --


async def test_a_wait_is_over_as_soon_as_the_run_is() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        await run(site, "r", "waits")
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            waiting = [group.create_task(site.client.get("/runs/r?wait=25", headers=ME)) for _ in range(5)]
            await quiet(lambda: len(site.server.server_state.tasks) == 5)  # they have come in and are not answered
            assert not any(task.done() for task in waiting)
            gates["go"].set()
        assert {task.result().json()["status"] for task in waiting} == {"completed"}
        assert (await site.client.get("/runs/r?wait=25", headers=ME)).json()["status"] == "completed"


async def test_a_wait_that_is_over_before_the_run_answers_what_is() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        await run(site, "r", "waits")
        for wait in ("0", "0.05", "0.0", "5e-2"):
            assert (await site.client.get(f"/runs/r?wait={wait}", headers=ME)).json()["status"] == "running"


@pytest.mark.parametrize("wait", ["25.1", "-1", "x", "", "nan", "inf", "3e1", "+1"])
async def test_a_wait_is_a_number_of_seconds_up_to_twenty_five(wait: str) -> None:
    async with serving(echo) as site:
        await run(site, "r")
        error = error_of(await site.client.get("/runs/r", params={"wait": wait}, headers=ME), 400, "invalid_request")
        assert error["details"][0]["field"] == "wait"
        error_of(await site.client.get("/runs/none", params={"wait": wait}, headers=ME), 404, "run_not_found")


# -- too many, too late --


async def test_a_run_that_is_one_too_many_is_told_when_to_come_again() -> None:
    gates = Gates()
    async with serving(waits, context=gates, max_runs_per_session=1, max_runs=2) as site:
        body = agent_body(ask(("c", "waits", {})))
        first = await site.open("/agents/tools", body, ME)
        assert first.status == 200
        for path, other in (("/agents/tools", {**body, "runId": "r2"}), ("/tools/waits", {})):
            refused = await site.client.post(path, json=other, headers=ME)
            error_of(refused, 429, "too_many_runs")
            assert int(refused.headers["retry-after"]) >= 1
        again = await site.open("/agents/tools", body, ME)
        assert again.status == 200, "joining is not another run"
        gates["go"].set()


async def test_a_viewer_that_is_one_too_many_is_told_when_to_come_again() -> None:
    gates = Gates()
    async with serving(waits, context=gates, max_viewers_per_run=1) as site:
        body = agent_body(ask(("c", "waits", {})))
        first = await site.open("/agents/tools", body, ME)
        assert first.status == 200
        for refused in (
            await site.client.post("/agents/tools", json=body, headers=ME),
            await site.client.post("/agents/tools", json=body, headers={**ME, "last-event-id": "1"}),
            await site.client.get("/agents/tools?runId=r&offset=-1", headers=ME),
            await site.client.get("/runs/r/events", headers=ME),
        ):
            error_of(refused, 429, "too_many_viewers")
            assert int(refused.headers["retry-after"]) >= 1
        gates["go"].set()


async def test_a_draining_gateway_refuses_runs_of_agents_and_still_shows_and_stops_the_others() -> None:
    gates = Gates()
    async with serving(waits, context=gates, drain_timeout=LONG) as site:
        body = agent_body(ask(("c", "waits", {})))
        stream = await site.open("/agents/tools", body, ME)
        draining = asyncio.create_task(site.gateway.drain())
        await quiet(lambda: site.engine.supervisor.draining)
        assert (await site.client.get("/readyz")).status_code == 503
        refused = await site.client.post("/agents/tools", json={**body, "runId": "r2"}, headers=ME)
        error_of(refused, 503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await site.client.get("/runs", headers=ME)).json()["items"][0]["status"] == "running"
        assert (await site.client.get("/threads/t", headers=ME)).status_code == 200
        assert (await site.client.post("/threads/t/stop", headers=ME)).json() == {"runIds": ["r"]}
        assert (await stream.rest())[-1][1]["outcome"] == {"type": "cancelled"}
        await draining
