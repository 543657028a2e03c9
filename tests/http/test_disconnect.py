"""Who leaves does not stop a run, unless somebody asked for that; and no run is longer than it may be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.execution.running import quiet
from tests.http.asking import ASYNC, JSON, Gates, Reader, agent_body, ask, error_of, events_of, waits
from tests.http.site import ME, Site, serving

HOUR = 3_600


async def over(site: Site, run_id: str = "r") -> dict[str, Any]:
    """The record of a run once it is over."""
    record: dict[str, Any] = (await site.client.get(f"/runs/{run_id}?wait=20", headers=ME)).json()
    assert "endedAt" in record
    return record


async def viewers_gone(site: Site) -> None:
    await quiet(lambda: not len(site.engine.viewers))


def body_of(path: str, **props: Any) -> dict[str, Any]:
    """A request for a waiting tool with these options, where this path takes them."""
    if path == "/agents/tools":
        return agent_body(ask(("c", "waits", {})), forwardedProps={"gateway": props, "theirs": 1})
    return {"runId": "r", "threadId": "t", **props}


PATHS = pytest.mark.parametrize("path", ["/agents/tools", "/tools/waits"])

CANCEL_AT_ONCE = {"onDisconnect": "cancel", "disconnectGrace": 0}
# settings of the gateway, options of the request
CANCELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the request": ({}, CANCEL_AT_ONCE),
    "the gateway": ({"on_disconnect": "cancel", "disconnect_grace": 0}, {}),
    "the gateway, and the request says how soon": (
        {"on_disconnect": "cancel", "disconnect_grace": HOUR},
        {"disconnectGrace": 0},
    ),
    "the request, against the gateway": ({"on_disconnect": "continue", "disconnect_grace": HOUR}, CANCEL_AT_ONCE),
}


@PATHS
@pytest.mark.parametrize("who", CANCELS)
async def test_a_run_is_interrupted_when_its_last_viewer_leaves_if_it_was_asked_for_by(who: str, path: str) -> None:
    options, props = CANCELS[who]
    async with serving(waits, context=Gates(), **options) as site:
        first = Reader(await site.open(path, body_of(path, **props), ME))
        await first.until("came")
        second = Reader(await site.open("/runs/r/events", None, ME))
        await second.until("came")
        first.stream.leave()
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        second.stream.leave()
        record = await over(site)
        assert record["status"] == "failed"
        assert record["reason"] == "disconnect"
        assert record["error"]["code"] == "interrupted"
        events = events_of((await site.client.get("/runs/r/events", headers=ME)).content)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")
        result = next(event["value"] for event in events if event.get("name") == "tool.result")
        assert result["status"] == "interrupted"


CONTINUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "by default": ({}, {}),
    "as the gateway says, though it has no patience": ({"disconnect_grace": 0}, {}),
    "as the request says, against the gateway": (
        {"on_disconnect": "cancel", "disconnect_grace": 0},
        {"onDisconnect": "continue"},
    ),
    "within the grace": ({"on_disconnect": "cancel", "disconnect_grace": HOUR}, {}),
    "within the grace of the request": ({}, {"onDisconnect": "cancel", "disconnectGrace": HOUR}),
}


@PATHS
@pytest.mark.parametrize("why", CONTINUES)
async def test_a_run_goes_on_without_viewers(why: str, path: str) -> None:
    options, props = CONTINUES[why]
    gates = Gates()
    async with serving(waits, context=gates, **options) as site:
        stream = Reader(await site.open(path, body_of(path, **props), ME))
        await stream.until("came")
        stream.stream.leave()
        await viewers_gone(site)
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        gates["go"].set()
        assert (await over(site))["status"] == "completed"


async def test_a_viewer_that_comes_back_within_the_grace_saves_the_run() -> None:
    gates = Gates()
    async with serving(waits, context=gates, on_disconnect="cancel", disconnect_grace=0.2) as site:
        stream = Reader(await site.open("/tools/waits", {"runId": "r"}, ME))
        await stream.until("came")
        stream.stream.leave()
        await viewers_gone(site)
        back = Reader(await site.open("/runs/r/events", None, ME))
        await back.until("came")
        # The grace of the one that left is over when a timer that starts now and is longer has ended.
        await timer(0.3)
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        gates["go"].set()
        assert (await back.rest())[-1]["outcome"] == {"type": "success"}


async def timer(seconds: float) -> None:
    """Ends with a timer that was set after all others."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, done.set)
    await done.wait()


async def test_a_waiting_json_caller_is_a_viewer_and_one_that_only_asks_for_the_record_is_not() -> None:
    gates = Gates()
    async with serving(waits, context=gates, on_disconnect="cancel", disconnect_grace=0) as site:
        background = {"runId": "r", "threadId": "t"}
        await site.client.post("/tools/waits", json=background, headers={**ME, **ASYNC})
        await site.client.get("/runs/r?wait=0.01", headers=ME)
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running", "nobody has left it yet"
        caller = asyncio.create_task(site.client.post("/tools/waits", json=background, headers={**ME, **JSON}))
        live = site.engine.supervisor.live(next(iter(site.engine.supervisor._runs)))
        assert live is not None
        await quiet(lambda: live.presence.here > 0)
        stream = Reader(await site.open("/runs/r/events", None, ME))
        await stream.until("came")
        stream.stream.leave()
        await viewers_gone(site)
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running", "the caller waits"
        caller.cancel()
        assert (await over(site))["error"]["code"] == "interrupted"


async def test_a_caller_that_waits_to_the_end_ends_nothing() -> None:
    gates = Gates()
    gates["go"].set()
    async with serving(waits, context=gates, on_disconnect="cancel", disconnect_grace=0) as site:
        answer = await site.client.post("/tools/waits", json={"runId": "r"}, headers={**ME, **JSON})
        assert answer.json()["status"] == "completed"
        assert (await over(site))["status"] == "completed"


# -- no run is longer than it may be --


async def test_a_run_ends_at_its_time_limit_with_every_call_answered() -> None:
    async with serving(waits, context=Gates(), run_timeout=0.1) as site:
        body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})))
        events = events_of((await site.client.post("/agents/tools", json=body, headers=ME)).content)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "run_timeout")
        results = [event["value"]["status"] for event in events if event.get("name") == "tool.result"]
        assert results == ["interrupted"] * 2
        record = await over(site)
        assert (record["status"], record["error"]["code"]) == ("failed", "run_timeout")


async def test_a_json_caller_of_a_run_that_took_too_long_gets_its_output() -> None:
    async with serving(waits, context=Gates(), run_timeout=0.1) as site:
        answer = await site.client.post("/tools/waits", json={"runId": "r"}, headers=JSON)
        assert (answer.status_code, answer.json()["status"]) == (200, "interrupted")
        assert "the run's time limit" in answer.json()["content"][0]["text"]


async def test_a_run_that_is_gone_is_not_found_by_whoever_comes_back() -> None:
    gates = Gates()
    gates["go"].set()
    async with serving(waits, context=gates, run_ttl=0) as site:
        body = agent_body(ask(("c", "waits", {})))
        events = events_of((await site.client.post("/agents/tools", json=body, headers=ME)).content)
        again = await site.client.post("/agents/tools", json=body, headers={**ME, "last-event-id": str(len(events))})
        error_of(again, 404, "run_not_found")
        error_of(await site.client.get("/agents/tools?runId=r&offset=-1", headers=ME), 404, "run_not_found")
        assert (await site.client.get("/runs", headers=ME)).json()["items"] == []
