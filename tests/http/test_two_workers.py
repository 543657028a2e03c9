"""Two gateways on one store: whatever one of them runs, the other one serves, stops, answers and moves (contract 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway import ToolContext, tool
from gateway.run.records import RunKey
from tests.execution.running import quiet
from tests.http.asking import ASYNC, Gates, Reader, agent_body, ask, events_of, waits
from tests.http.site import LONG, ME, SOMEBODY_ELSE, Site, serving, tasks
from tests.support.redis import new_prefix, shared_redis


@tool(timeout=0)
async def asks(ctx: ToolContext) -> Any:
    """Asks the person."""
    return (await ctx.request_input("Which?", {"type": "integer"})).payload


@tool
async def asks_later(ctx: ToolContext) -> Any:
    """Ends its run with its question."""
    return ctx.interrupt("Which?", {"type": "integer"}).payload


@tool(timeout=0)
async def counts(ctx: ToolContext, to: int = 1_000, pause: float = 0) -> int:
    """Counts, and can move to the background."""

    async def work() -> int:
        for number in range(to):
            ctx.emit_custom_event("counted", {"number": number})
            await asyncio.sleep(pause)
            if number == to // 2:
                await ctx.context["half"].wait()
        return to

    result = await ctx.run_detachable(work())
    return result if isinstance(result, int) else -1


@tool
async def open_till(ctx: ToolContext) -> None:
    """Shows a hidden tool."""
    await ctx.enable_tools(["hidden"])


@tool(visibility="hidden")
async def hidden() -> str:
    """There once it is enabled."""
    return "here"


@tool(timeout=0)
async def nests(ctx: ToolContext) -> list[str]:
    """Calls another tool twice, one after the other."""
    return [(await ctx.call_tool("waits", {"name": name})).status for name in ("one", "two")]


class Pair(NamedTuple):
    """`one` runs, `other` is asked."""

    one: Site
    other: Site
    gates: Gates


@pytest.fixture(params=["sqlite", "redis"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    options: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/runs.db"}
    if request.param == "redis":
        options = {"store": shared_redis().url, "redis_prefix": new_prefix()}
    gates, tools = Gates(), (waits, nests, asks, asks_later, counts, open_till, hidden)
    options |= {"context": gates, "beside_others": True}
    before = tasks()
    async with serving(*tools, **options) as one, serving(*tools, **options) as other:
        yield Pair(one, other, gates)
    me = asyncio.current_task()  # another one than that of the set-up
    await quiet(lambda: tasks() - {me} <= before)


async def start(site: Site, name: str, run_id: str = "r", **body: Any) -> None:
    asked = {"runId": run_id, "threadId": "t", "toolCallId": "c", **body}
    answer = await site.client.post(f"/tools/{name}", json=asked, headers={**ME, **ASYNC})
    assert answer.status_code == 202, answer.text


async def follow(site: Site, run_id: str = "r", headers: dict[str, str] = ME) -> Reader:
    return Reader(await site.open(f"/runs/{run_id}/events", headers=headers))


async def test_the_other_worker_shows_record_list_events_and_thread_as_they_come(pair: Pair) -> None:
    await start(pair.one, "waits")
    reader = await follow(pair.other)
    await reader.until("came")
    record = (await pair.other.client.get("/runs/r", headers=ME)).json()
    assert (record["status"], record["toolCalls"][0]["status"]) == ("running", "running")
    listed = (await pair.other.client.get("/runs?threadId=t&status=running", headers=ME)).json()["items"]
    assert [run["runId"] for run in listed] == ["r"]
    pair.gates["go"].set()
    events = await reader.rest()
    mine = events_of((await pair.one.client.get("/runs/r/events", headers=ME)).content)
    assert events == mine
    assert events[-1]["type"] == "RUN_FINISHED"
    thread = (await pair.other.client.get("/threads/t", headers=ME)).json()
    assert [message["role"] for message in thread["messages"]] == ["assistant", "tool"]
    assert (await pair.other.client.get("/runs/r", headers=SOMEBODY_ELSE)).status_code == 404


async def test_a_viewer_that_hops_between_the_workers_sees_every_event_once(pair: Pair) -> None:
    pair.gates["half"].set()
    await start(pair.one, "counts", arguments={"to": 300, "pause": 0.003})
    numbers: list[int] = []
    for turn in range(1_000):
        site = pair.other if turn % 2 else pair.one
        last = numbers[-1] if numbers else 0
        stream = await site.open("/runs/r/events", headers={**ME, "last-event-id": str(last)})
        if stream.status == 204:
            break
        numbers += [int(message.id or 0) for message in await stream.messages()]
        stream.leave()
    record = (await pair.one.client.get("/runs/r", headers=ME)).json()
    assert record["status"] == "completed"
    assert numbers == list(range(1, record["lastEventId"] + 1))


async def test_stop_of_a_run_and_of_a_call_works_from_the_other_worker(pair: Pair) -> None:
    body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})), runId="a")
    reader = Reader(await pair.one.open("/agents/tools", body, ME))
    await reader.until("came")
    await reader.until("came")
    stopped = await pair.other.client.post("/runs/a/tool-calls/c1/stop", headers=ME)
    assert stopped.status_code == 202
    assert (await reader.until("tool.result"))["value"]["status"] == "cancelled"
    assert (await pair.other.client.post("/runs/a/stop", headers=ME)).status_code == 202
    events = await reader.rest()
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert (await pair.other.client.post("/runs/a/stop", headers=ME)).status_code == 200


async def test_stop_of_a_call_inside_a_call_works_from_both_workers(pair: Pair) -> None:
    await start(pair.one, "nests")
    reader = await follow(pair.other)
    await reader.until("came")
    assert (await pair.other.client.post("/runs/r/tool-calls/c/1/stop", headers=ME)).status_code == 202
    assert (await reader.until("tool.result"))["value"]["toolCallId"] == "c/1"
    await reader.until("came")
    for call_id, status in (("c/1", 200), ("c/9", 200), ("other/1", 404), ("c%2F2", 202)):
        assert (await pair.one.client.post(f"/runs/r/tool-calls/{call_id}/stop", headers=ME)).status_code == status
    results = [event["value"] for event in await reader.rest() if event.get("name") == "tool.result"]
    (result,) = [result for result in results if result["toolCallId"] == "c"]
    assert result["structuredContent"] == {"result": ["cancelled", "cancelled"]}


async def test_stop_of_a_thread_reaches_the_runs_of_both_workers(pair: Pair) -> None:
    await start(pair.one, "waits", "r1")
    await start(pair.other, "waits", "r2")
    stopped = await pair.other.client.post("/threads/t/stop", headers=ME)
    assert sorted(stopped.json()["runIds"]) == ["r1", "r2"]
    for run_id in ("r1", "r2"):
        record = (await pair.one.client.get(f"/runs/{run_id}?wait=20", headers=ME)).json()
        assert record["status"] == "cancelled"


async def test_a_question_is_answered_at_the_other_worker(pair: Pair) -> None:
    await start(pair.one, "asks")
    asked = (await (await follow(pair.other)).until("tool.waiting"))["value"]
    answer = {"interruptId": asked["interruptId"], "status": "resolved", "payload": 7}
    refused = await pair.other.client.post("/runs/r/input", json={**answer, "payload": "x"}, headers=ME)
    assert refused.status_code == 422
    codes = await asyncio.gather(
        *(site.client.post("/runs/r/input", json=answer, headers=ME) for site in (pair.one, pair.other) for _ in "ab")
    )
    assert sorted(code.status_code for code in codes) == [202, 409, 409, 409]
    record = (await pair.other.client.get("/runs/r?wait=20", headers=ME)).json()
    assert record["status"] == "completed"
    assert (await pair.other.client.post("/runs/r/input", json=answer, headers=ME)).status_code == 409


async def test_an_interrupted_run_is_resumed_at_the_other_worker_and_by_one_only(pair: Pair) -> None:
    await start(pair.one, "asks_later")
    record = (await pair.other.client.get("/runs/r?wait=20", headers=ME)).json()
    (asked,) = record["outcome"]["interrupts"]
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": 7}

    async def resume(number: int) -> int:
        site = pair.other if number % 2 else pair.one
        body = {"runId": f"again-{number}", "resume": [entry]}
        return (await site.client.post("/tools/asks_later", json=body, headers={**ME, **ASYNC})).status_code

    assert sorted(await asyncio.gather(*map(resume, range(6)))) == [202, *[409] * 5]
    runs = (await pair.one.client.get("/runs?threadId=t&limit=50", headers=ME)).json()["items"]
    assert len(runs) == 2


async def test_a_call_moves_to_the_background_from_the_other_worker(pair: Pair) -> None:
    await start(pair.one, "waits", "busy")
    await (await follow(pair.other, "busy")).until("came")
    refused = await pair.other.client.post("/runs/busy/tool-calls/c/detach", headers=ME)
    assert (refused.status_code, refused.json()["reason"]) == (409, "not_detachable")
    pair.gates["go"].set()
    await start(pair.one, "counts", arguments={"to": 40})
    await (await follow(pair.other)).until("counted")
    moved = await pair.other.client.post("/runs/r/tool-calls/c/detach", headers=ME)
    assert moved.status_code == 202, moved.text
    job = moved.json()["runId"]
    record = (await pair.other.client.get("/runs/r?wait=20", headers=ME)).json()
    assert record["status"] == "completed", record
    assert record["toolCalls"][0]["detachedRunId"] == job, record
    pair.gates["half"].set()
    done = (await pair.other.client.get(f"/runs/{job}?wait=20", headers=ME)).json()
    assert (done["status"], done["parentRunId"]) == ("completed", "r")
    logs = [events_of((await pair.other.client.get(f"/runs/{run}/events", headers=ME)).content) for run in ("r", job)]
    numbers = [e["value"]["number"] for log in logs for e in log if e.get("name") == "counted"]
    assert numbers == list(range(40))
    late = await pair.other.client.post("/runs/r/tool-calls/c/detach", headers=ME)
    assert (late.status_code, late.json()["reason"]) == (409, "not_running")
    notes = (await pair.other.client.get("/threads/t", headers=ME)).json()["messages"]
    assert [m["content"] for m in notes if m["id"] == "c:note"] == ['Background job c ended.\n{"result":40}']


async def test_the_same_request_at_both_workers_is_one_run(pair: Pair) -> None:
    body = {"runId": "same", "threadId": "t", "toolCallId": "c"}
    readers = [
        Reader(await site.open("/tools/waits", body, ME)) for site in (pair.one, pair.other, pair.one, pair.other)
    ]
    pair.gates["go"].set()
    logs = await asyncio.gather(*(reader.rest() for reader in readers))
    assert all(log == logs[0] for log in logs)
    assert pair.gates.executions["same"] == 1
    other = await pair.other.client.post("/tools/waits", json={**body, "timeout": 5}, headers=ME)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "run_conflict")


async def test_viewers_at_the_other_worker_count_and_the_last_that_leaves_ends_the_run(pair: Pair) -> None:
    body = {"runId": "r", "threadId": "t", "toolCallId": "c", "onDisconnect": "cancel", "disconnectGrace": 0.3}
    here = Reader(await pair.one.open("/tools/waits", body, ME))
    there = await follow(pair.other)
    await there.until("came")
    asked = {**ME, "accept": "application/json"}  # it waits for the one answer, and counts as well
    waiting = asyncio.create_task(pair.other.client.post("/tools/waits", json=body, headers=asked))
    key = RunKey("anon:" + ME["x-session-id"], "r")
    guests, live = pair.other.engine.supervisor._guests.of(key), pair.one.engine.supervisor.live(key)
    assert live is not None
    await quiet(lambda: guests._count == 2 and live.presence._elsewhere)
    for leaves in (here.stream.leave, there.stream.leave):
        leaves()
        await asyncio.sleep(0.6)  # twice the grace
        assert (await pair.other.client.get("/runs/r", headers=ME)).json()["status"] == "running"
    waiting.cancel()
    record = (await pair.one.client.get("/runs/r?wait=20", headers=ME)).json()
    assert (record["status"], record["reason"]) == ("failed", "disconnect")


async def test_a_run_that_only_the_other_worker_watches_ends_when_nobody_does(pair: Pair) -> None:
    await start(pair.one, "waits", onDisconnect="cancel", disconnectGrace=0)
    there = await follow(pair.other)
    await there.until("came")
    there.stream.leave()
    record = (await pair.one.client.get("/runs/r?wait=20", headers=ME)).json()
    assert (record["status"], record["reason"]) == ("failed", "disconnect")


async def test_tickets_and_the_visibility_of_tools_hold_at_both_workers(pair: Pair) -> None:
    await start(pair.one, "waits")
    ticket = (await pair.one.client.post("/runs/r/ticket", json={"use": "share"}, headers=ME)).json()["ticket"]
    reader = Reader(await pair.other.open(f"/runs/r/events?ticket={ticket}"))
    await reader.until("came")
    pair.gates["go"].set()
    assert (await reader.rest())[-1]["type"] == "RUN_FINISHED"
    assert (await pair.other.client.post("/tools/hidden", headers=ME)).status_code == 404
    await start(pair.one, "open_till", "till")
    await pair.one.client.get("/runs/till?wait=20", headers=ME)
    shown = (await pair.other.client.get("/tools", headers=ME)).json()["items"]
    assert "hidden" in [item["name"] for item in shown]
    assert (await pair.other.client.post("/tools/hidden", headers=ME)).status_code == 200


async def test_a_worker_that_drains_sends_its_viewers_to_the_other_one(pair: Pair) -> None:
    await start(pair.other, "waits")
    leaving = await follow(pair.one)
    await leaving.until("came")
    await start(pair.one, "waits", "mine")
    draining = asyncio.create_task(pair.one.gateway.drain())
    async with asyncio.timeout(LONG):
        await leaving.stream.until_broken()
    refused = await pair.one.client.post("/tools/waits", json={"runId": "late"}, headers=ME)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    await draining
    pair.gates["go"].set()
    record = (await pair.other.client.get("/runs/mine?wait=20", headers=ME)).json()
    assert (record["status"], record["error"]["code"]) == ("failed", "interrupted")
    assert (await pair.other.client.get("/runs/r?wait=20", headers=ME)).json()["status"] == "completed"
