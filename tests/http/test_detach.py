"""Detach, through real HTTP: who presses it gets a job to follow, and nobody loses a word that the work says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import ToolContext, ToolOutput, tool
from tests.execution import process_tools
from tests.execution.running import quiet
from tests.http.asking import ASYNC, JSON, Gates, Reader, agent_body, ask, error_of, events_of
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving


def note_for(call_id: str) -> str:
    return f"The job moved to the background. Its id is {call_id}. You get a note when it ends."


def rejected(reason: str, error: str) -> dict[str, str]:
    """The body of a 409."""
    return {"status": "rejected", "reason": reason, "error": error}


STORES = pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
OVER = rejected("not_running", "This call is not running any more.")
NOT_NOW = rejected("not_detachable", '"{name}" cannot be moved to the background now.')


def not_now(name: str) -> dict[str, str]:
    return {**NOT_NOW, "error": NOT_NOW["error"].format(name=name)}


@tool(timeout=0)
async def works(ctx: ToolContext, gate: str = "go", fails: bool = False, exits: bool = False) -> Any:
    """Emits rows, waits at a gate, emits more."""

    async def work() -> dict[str, Any]:
        for number in range(3):
            ctx.emit_custom_event("row", {"n": number})
        await ctx.context[gate].wait()
        for number in range(3, 6):
            ctx.emit_custom_event("row", {"n": number})
        if fails:
            raise ValueError("the disk is full")
        if exits:
            raise SystemExit("leaving")
        return {"run": ctx.run_id}

    return await ctx.run_detachable(work())


@tool(timeout=0)
async def stays(ctx: ToolContext) -> str:
    """Has nothing that could go on elsewhere."""
    ctx.emit_custom_event("came", {})
    await ctx.context["stay"].wait()
    return "stayed"


@tool(timeout=0)
def plain(ctx: ToolContext) -> str:
    """Works in a thread."""
    ctx.emit_custom_event("came", {})
    asyncio.run_coroutine_threadsafe(ctx.context["stay"].wait(), ctx.context.loop).result()
    return "stayed"


@tool(timeout=0)
async def asks(ctx: ToolContext) -> Any:
    """Asks in its work."""

    async def work() -> Any:
        given = await ctx.request_input("Go on?", {"type": "string"})
        return {"said": given.payload, "run": ctx.run_id}

    return await ctx.run_detachable(work())


@tool(timeout=0)
async def outer(ctx: ToolContext) -> str:
    """Calls one that could be detached alone."""
    return (await ctx.call_tool("works", {})).text


class Doors(Gates):
    """Gates that threads can wait at, too."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()


async def post(site: Site, path: str, body: Any = None, headers: dict[str, str] = ME, **more: Any) -> httpx.Response:
    return await site.client.post(path, json=body, headers=headers, **more)


async def detach(site: Site, call_id: str = "c", run: str = "r", headers: dict[str, str] = ME) -> str:
    """Presses Detach; the id of the job."""
    answer = await site.client.post(f"/runs/{run}/tool-calls/{call_id}/detach", headers=headers)
    assert answer.status_code == 202, answer.text
    assert set(answer.json()) == {"status", "runId"}
    assert answer.json()["status"] == "accepted"
    return str(answer.json()["runId"])


async def refused(site: Site, call_id: str = "c", run: str = "r") -> Any:
    """The body of a detach that is refused."""
    answer = await site.client.post(f"/runs/{run}/tool-calls/{call_id}/detach", headers=ME)
    assert answer.status_code == 409, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def begun(site: Site, name: str = "works", *, until: str = "row", **body: Any) -> Reader:
    """The stream of a call that is at work."""
    stream = Reader(await site.open(f"/tools/{name}", {"runId": "r", "threadId": "t", "toolCallId": "c", **body}, ME))
    for _ in range(3 if until == "row" else 1):
        await stream.until(until)
    return stream


async def whole(site: Site, run: str, headers: dict[str, str] = ME) -> list[dict[str, Any]]:
    """The events of a run up to its end, as somebody sees them who comes now."""
    return events_of((await site.client.get(f"/runs/{run}/events", headers=headers)).content)


async def record_of(site: Site, run: str, headers: dict[str, str] = ME) -> Any:
    """The record of a run once it is over."""
    answer = await site.client.get(f"/runs/{run}", params={"wait": "20"}, headers=headers)
    assert "endedAt" in answer.json(), answer.text
    return answer.json()


async def notes_of(site: Site, thread: str = "t") -> list[dict[str, Any]]:
    """The notes that a thread shows."""
    messages = (await site.client.get(f"/threads/{thread}", headers=ME)).json()["messages"]
    return [message for message in messages if message["id"].endswith(":note")]


def rows(events: list[dict[str, Any]]) -> list[int]:
    return [event["value"]["n"] for event in events if event.get("name") == "row"]


def result_of(events: list[dict[str, Any]], call_id: str = "c") -> dict[str, Any]:
    (found,) = [
        event["value"]
        for event in events
        if event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id
    ]
    return dict(found)


def text_of(value: dict[str, Any]) -> str:
    return str(value["content"][0]["text"])


# -- the routes --


@pytest.mark.parametrize("body", [None, {}], ids=["no body", "an empty one"])
@pytest.mark.parametrize("which", ["call", "run"])
async def test_a_call_is_moved_to_the_background_and_its_job_can_be_followed(which: str, body: Any) -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        stream = await begun(site)
        path = "/runs/r/detach" if which == "run" else "/runs/r/tool-calls/c/detach"
        answer = await site.client.post(path, headers=ME, **({} if body is None else {"json": body}))
        assert answer.status_code == 202
        if which == "run":
            (moved,) = answer.json()["jobs"]
            assert answer.json() == {"status": "accepted", "jobs": [{"toolCallId": "c", "runId": moved["runId"]}]}
            job = moved["runId"]
        else:
            job = answer.json()["runId"]
            assert answer.json() == {"status": "accepted", "runId": job}
        before = await stream.rest()
        assert before[-1]["outcome"] == {"type": "success"}
        assert before[-1]["result"] == {
            "content": [{"type": "text", "text": note_for("c")}],
            "isError": False,
            "status": "detached",
        }
        assert [event["value"] for event in before if event.get("name") == "tool.detached"] == [
            {"toolCallId": "c", "toolName": "works", "runId": job}
        ]
        record = (await site.client.get("/runs/r", headers=ME)).json()
        assert (record["status"], record["toolCalls"][0]["status"]) == ("completed", "detached")
        assert record["toolCalls"][0]["detachedRunId"] == job

        following = Reader(await site.open(f"/runs/{job}/events", None, ME))
        started = await following.until("RUN_STARTED")
        assert (started["threadId"], started["runId"], started["parentRunId"]) == ("t", job, "r")
        record = (await site.client.get(f"/runs/{job}", headers=ME)).json()
        assert (record["status"], record["parentRunId"], record["threadId"]) == ("running", "r", "t")
        gates["go"].set()
        after = await following.rest()
        assert rows(before) + rows(after) == list(range(6))
        assert [event["type"] for event in after if event["type"].startswith("TOOL_CALL")] == []
        assert result_of(after)["structuredContent"] == after[-1]["result"]["structuredContent"] == {"run": job}
        assert after == await whole(site, job)
        record = await record_of(site, job)
        assert (record["status"], record["outcome"]) == ("completed", {"type": "success"})
        assert [(call["toolCallId"], call["status"]) for call in record["toolCalls"]] == [("c", "completed")]


async def test_detach_of_a_run_moves_what_can_move_and_names_it() -> None:
    gates = Doors()
    async with serving(works, stays, context=gates) as site:
        calls = ask(("c1", "works", {"gate": "one"}), ("c2", "stays", {}), ("c3", "works", {"gate": "three"}))
        stream = Reader(await site.open("/agents/tools", agent_body(calls), ME))
        for _ in range(6):
            await stream.until("row")
        answer = await post(site, "/runs/r/detach")
        assert answer.status_code == 202
        jobs = {job["toolCallId"]: job["runId"] for job in answer.json()["jobs"]}
        assert list(jobs) == ["c1", "c3"]
        again = await post(site, "/runs/r/detach")
        assert (again.status_code, again.json()) == (409, not_now("stays")), "the run is at work, on what cannot move"
        gates["stay"].set()
        events = await stream.rest()
        assert {call_id: result_of(events, call_id)["status"] for call_id in ("c1", "c2", "c3")} == {
            "c1": "detached",
            "c2": "completed",
            "c3": "detached",
        }
        for call_id, name in (("c3", "three"), ("c1", "one")):
            assert text_of(result_of(events, call_id)) == note_for(call_id)
            gates[name].set()
            assert result_of(await whole(site, jobs[call_id]), call_id)["structuredContent"] == {"run": jobs[call_id]}
        over = await post(site, "/runs/r/detach")
        gone = rejected("not_running", "No call of this run is running any more.")
        assert (over.status_code, over.json()) == (409, gone)


async def test_the_call_behind_a_detached_one_begins() -> None:
    gates = Doors()
    async with serving(works, stays, context=gates, parallel_tool_calls=False) as site:
        stream = Reader(await site.open("/agents/tools", agent_body(ask(("c1", "works", {}), ("c2", "stays", {}))), ME))
        await stream.until("row")
        assert await refused(site, "c2") == not_now("stays"), "it waits its turn"
        job = await detach(site, "c1")
        await stream.until("came")
        gates["stay"].set()
        events = await stream.rest()
        assert result_of(events, "c2")["status"] == "completed"
        gates["go"].set()
        assert result_of(await whole(site, job), "c1")["status"] == "completed"


async def test_a_task_of_respond_async_can_be_detached_too() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        await post(site, "/tools/works", {"runId": "r", "toolCallId": "c"}, ME | ASYNC)
        watching = Reader(await site.open("/runs/r/events", None, ME))
        await watching.until("row")
        job = await detach(site)
        assert (await record_of(site, "r"))["toolCalls"][0]["detachedRunId"] == job
        gates["go"].set()
        assert rows(await whole(site, "r")) + rows(await whole(site, job)) == list(range(6))


# -- refusals --


async def test_what_cannot_be_detached_is_refused_with_its_reason() -> None:
    gates = Doors()
    async with serving(works, stays, plain, outer, context=gates) as site:
        stream = await begun(site, "stays", until="came")
        assert await refused(site) == not_now("stays")
        gates["stay"].set()
        await stream.rest()
        assert await refused(site) == OVER

        gates["stay"].clear()
        stream = await begun(site, "plain", until="came", runId="r2")
        assert await refused(site, run="r2") == not_now("plain")
        gates["stay"].set()
        assert result_of(await stream.rest())["status"] == "completed"

        stream = await begun(site, "outer", runId="r3")
        assert await refused(site, run="r3") == not_now("outer"), "its work is a nested call's, which has none to offer"
        error_of(await post(site, "/runs/r3/tool-calls/c%2F1/detach"), 404, "call_not_found")
        gates["go"].set()
        assert result_of(await stream.rest())["status"] == "completed"


@pytest.mark.allow_blocking
async def test_a_process_tool_cannot_be_detached() -> None:
    async with serving(process_tools.spin_until_aborted) as site:
        stream = await begun(site, "spin_until_aborted", until="spinning")
        assert await refused(site) == not_now("spin_until_aborted")
        await post(site, "/runs/r/stop")
        await stream.rest()


async def test_a_call_that_is_answered_with_json_cannot_be_detached() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        body = {"runId": "r", "toolCallId": "c"}
        waiting = asyncio.create_task(post(site, "/tools/works", body, ME | JSON))
        watching: Reader | None = None
        await quiet(lambda: site.engine.supervisor.active == 1)
        watching = Reader(await site.open("/runs/r/events", None, ME))
        await watching.until("row")
        assert await refused(site) == not_now("works")
        gates["go"].set()
        assert (await waiting).json()["structuredContent"] == {"run": "r"}


@STORES
async def test_a_call_is_detached_once_however_often_somebody_presses(store: str, tmp_path: Path) -> None:
    gates = Doors()
    async with serving(works, stays, context=gates, store=store.format(tmp_path)) as site:
        calls = ask(("c1", "works", {}), ("c2", "stays", {}))
        stream = Reader(await site.open("/agents/tools", agent_body(calls), ME))
        await stream.until("came")
        path = "/runs/r/tool-calls/c1/detach"
        answers = await asyncio.gather(*(post(site, path if n % 3 else "/runs/r/detach") for n in range(30)))
        accepted = [answer for answer in answers if answer.status_code == 202]
        assert len(accepted) == 1
        assert {answer.status_code for answer in answers} == {202, 409}
        assert await refused(site, "c1") == rejected("not_running", '"works" is not running any more.')
        assert len((await site.client.get("/runs", headers=ME)).json()["items"]) == 2
        gates["stay"].set()
        gates["go"].set()
        events = await stream.rest()
        assert [event["name"] for event in events if event.get("name") == "tool.detached"] == ["tool.detached"]


async def test_a_call_or_run_that_nobody_knows_is_a_404_and_so_is_somebody_elses() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        stream = await begun(site)
        error_of(await post(site, "/runs/r/tool-calls/other/detach"), 404, "call_not_found")
        for path in ("/runs/other/detach", "/runs/other/tool-calls/c/detach"):
            error_of(await post(site, path), 404, "run_not_found")
        for headers in (SOMEBODY_ELSE, {}):
            for path in ("/runs/r/detach", "/runs/r/tool-calls/c/detach", "/runs/r/tool-calls/other/detach"):
                # Before any check of the body.
                error_of(await post(site, path, {"odd": 1}, headers), 404, "run_not_found")
        job = await detach(site)
        await stream.rest()
        for headers in (SOMEBODY_ELSE, {}):
            error_of(await site.client.get(f"/runs/{job}", headers=headers), 404, "run_not_found")
            error_of(await post(site, f"/runs/{job}/stop", None, headers), 404, "run_not_found")
        gates["go"].set()
        await record_of(site, job)


async def test_a_body_that_is_none_is_refused_and_nothing_has_happened() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        stream = await begun(site)
        for path in ("/runs/r/detach", "/runs/r/tool-calls/c/detach"):
            error_of(await post(site, path, {"odd": 1}), 400, "invalid_request")
            error_of(await post(site, path, [1]), 400, "invalid_request")
            text = {**ME, "content-type": "text/plain"}
            error_of(await site.client.post(path, content=b"{}", headers=text), 415, "unsupported_media_type")
            assert (await site.client.get(path, headers=ME)).status_code == 405
        gates["go"].set()
        assert result_of(await stream.rest())["status"] == "completed"


# -- what becomes of it --


ENDINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "success": ({}, "completed", '{"run":"JOB"}'),
    "failure": ({"fails": True}, "failed", "Error [failed]: the disk is full"),
    "exit": ({"exits": True}, "failed", "Error [failed]: leaving"),
    "Stop": ({}, "cancelled", "Error [cancelled]: Cancelled by the user."),
    "Stop of its call": ({}, "cancelled", "Error [cancelled]: Cancelled by the user."),
}


@STORES
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_thread_shows_the_note_exactly_once_when_the_job_has_ended(
    ending: str, store: str, tmp_path: Path
) -> None:
    arguments, status, text = ENDINGS[ending]
    gates = Doors()
    async with serving(works, context=gates, store=store.format(tmp_path)) as site:
        stream = await begun(site, arguments=arguments)
        job = await detach(site)
        await stream.rest()
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert [run["runId"] for run in thread["activeRuns"]] == [job]
        assert await notes_of(site) == []
        if ending == "Stop":
            answer = await post(site, f"/runs/{job}/stop")
            assert (answer.status_code, answer.json()["runId"]) == (202, job)
        elif ending == "Stop of its call":
            assert (await post(site, f"/runs/{job}/tool-calls/c/stop")).status_code == 202
        else:
            gates["go"].set()
        record = await record_of(site, job)
        assert record["status"] == ("cancelled" if ending == "Stop" else "completed")
        assert record["toolCalls"][0]["status"] == status
        note = f"Background job c ended.\n{text.replace('JOB', job)}"
        for _ in range(2):
            assert await notes_of(site) == [{"id": "c:note", "role": "assistant", "content": note}]
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["activeRuns"] == []
        # In the store it belongs to the owner and the thread.
        owner = f"anon:{ME['x-session-id']}"
        assert [kept.text for kept in await site.engine.store.notes(owner, "t")] == [note]
        assert await site.engine.store.notes(owner, "other") == []


async def test_agent_tools_neither_shows_nor_takes_a_note() -> None:
    gates = Doors()
    gates["go"].set()
    async with serving(works, stays, context=gates) as site:
        gates["go"].clear()
        stream = await begun(site)
        job = await detach(site)
        await stream.rest()
        gates["go"].set()
        await record_of(site, job)
        gates["stay"].set()
        answer = await post(site, "/agents/tools", agent_body(ask(("c2", "stays", {})), runId="next"))
        assert not [event for event in events_of(answer.content) if event["type"].startswith("TEXT_MESSAGE")]
        owner = f"anon:{ME['x-session-id']}"
        assert [note.delivered_to for note in await site.engine.store.notes(owner, "t")] == [None]
        assert len(await notes_of(site)) == 1


async def test_without_an_owner_the_job_is_a_capability_and_there_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Doors()
    noted: list[Any] = []
    async with serving(works, context=gates) as site:
        monkeypatch.setattr(site.engine.store, "add_note", lambda *note: noted.append(note))
        stream = Reader(await site.open("/tools/works", {"runId": "r", "threadId": "t", "toolCallId": "c"}))
        await stream.until("row")
        job = await detach(site, headers={})
        await stream.rest()
        gates["go"].set()
        assert result_of(await whole(site, job, SOMEBODY_ELSE))["structuredContent"] == {"run": job}
        assert (await record_of(site, job, {}))["parentRunId"] == "r"
        assert noted == []
        error_of(await site.client.get("/threads/t"), 404, "thread_not_found")


async def test_who_hydrates_a_chat_joins_the_conversation_and_not_a_job_beside_it() -> None:
    gates = Doors()
    async with serving(works, stays, context=gates) as site:
        calls = ask(("c1", "works", {}), ("c2", "stays", {}))
        stream = Reader(await site.open("/agents/tools", agent_body(calls), ME))
        await stream.until("came")
        job = await detach(site, "c1")
        path = "/agents/tools?threadId=t"
        assert (await site.client.get(path, headers=ME)).json()["activeRun"] == {"runId": "r"}
        gates["stay"].set()
        await stream.rest()
        assert (await site.client.get(path, headers=ME)).json()["activeRun"] is None
        gates["go"].set()
        await record_of(site, job)
        found = (await site.client.get(path, headers=ME)).json()
        assert found["messages"][-1]["id"] == "c1:note"


async def test_jobs_are_in_the_list_of_runs_and_a_threads_stop_ends_them() -> None:
    gates = Doors()
    async with serving(works, stays, context=gates) as site:
        jobs = []
        for number in range(2):
            stream = await begun(site, runId=f"r{number}")
            jobs.append(await detach(site, run=f"r{number}"))
            await stream.rest()
        stream = await begun(site, "stays", until="came", runId="at work")
        elsewhere = await begun(site, runId="elsewhere", threadId="other")
        other = await detach(site, run="elsewhere")
        await elsewhere.rest()
        listed = (await site.client.get("/runs", params={"status": "running", "threadId": "t"}, headers=ME)).json()
        assert [run["runId"] for run in listed["items"]] == ["at work", jobs[1], jobs[0]]
        stopped = await post(site, "/threads/t/stop")
        assert (stopped.status_code, sorted(stopped.json()["runIds"])) == (202, sorted([*jobs, "at work"]))
        for run in (*jobs, "at work"):
            assert (await record_of(site, run))["status"] == "cancelled"
        assert (await post(site, "/threads/t/stop")).status_code == 200
        gates["go"].set()
        assert (await record_of(site, other))["status"] == "completed"


async def test_the_stop_of_the_run_and_the_leaving_of_its_viewers_do_not_touch_the_job() -> None:
    gates = Doors()
    async with serving(works, stays, context=gates) as site:
        jobs = []
        for run in ("stopped", "left"):
            calls = ask(("c1", "works", {}), ("c2", "stays", {}))
            props = {"gateway": {"onDisconnect": "cancel", "disconnectGrace": 0}}
            stream = Reader(await site.open("/agents/tools", agent_body(calls, runId=run, forwardedProps=props), ME))
            await stream.until("came")
            jobs.append(await detach(site, "c1", run))
            if run == "stopped":
                await post(site, f"/runs/{run}/stop")
                await stream.rest()
            else:
                stream.stream.leave()
            record = await record_of(site, run)
            assert record["status"] == ("cancelled" if run == "stopped" else "failed")
            assert [call["status"] for call in record["toolCalls"]] == [
                "detached",
                "cancelled" if run == "stopped" else "interrupted",
            ]
        follower = Reader(await site.open(f"/runs/{jobs[0]}/events", None, ME))
        await follower.until("RUN_STARTED")
        follower.stream.leave()
        await quiet(lambda: not len(site.engine.viewers))
        gates["go"].set()
        for job in jobs:
            assert (await record_of(site, job))["status"] == "completed"


@STORES
async def test_a_question_is_answered_where_the_call_is_now(store: str, tmp_path: Path) -> None:
    async with serving(asks, store=store.format(tmp_path)) as site:
        stream = await begun(site, "asks", until="tool.waiting")
        asked = stream.events[-1]["value"]
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "waiting"
        job = await detach(site)
        await stream.rest()
        record = (await site.client.get(f"/runs/{job}", headers=ME)).json()
        assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
        following = Reader(await site.open(f"/runs/{job}/events", None, ME))
        assert (await following.until("tool.waiting"))["value"] == asked
        given = {"interruptId": asked["interruptId"], "status": "resolved", "payload": "yes"}
        error_of(await post(site, "/runs/r/input", given), 409, "interrupt_closed")
        error_of(await post(site, f"/runs/{job}/input", {**given, "payload": 1}), 422, "invalid_payload")
        error_of(await post(site, f"/runs/{job}/input", {**given, "interruptId": "x"}), 404, "interrupt_not_found")
        answer = await post(site, f"/runs/{job}/input", given)
        assert (answer.status_code, answer.json()["runId"]) == (202, job)
        error_of(await post(site, f"/runs/{job}/input", given), 409, "interrupt_answered")
        events = await following.rest()
        assert result_of(events)["structuredContent"] == {"said": "yes", "run": job}


# -- many --


async def test_two_hundred_jobs_are_followed_to_their_end_and_each_event_is_seen_exactly_once() -> None:
    count, each = 200, 20
    gates = Doors()

    @tool(timeout=0)
    async def counts(ctx: ToolContext) -> Any:
        """Counts, and comes to a gate halfway."""

        async def work() -> str:
            for number in range(each):
                if number == each // 2:
                    ctx.context.executions[ctx.tool_call_id] += 1
                    await ctx.context["go"].wait()
                ctx.emit_custom_event("row", {"n": number})
                if number % 3 == 0:
                    await asyncio.sleep(0)
            return ctx.tool_call_id

        return await ctx.run_detachable(work())

    async with serving(counts, context=gates, max_runs=2, max_runs_per_session=1) as site:
        calls = ask(*((f"c{number}", "counts", {}) for number in range(count)))
        stream = await site.open("/agents/tools", agent_body(calls), ME)
        reading = asyncio.create_task(stream.rest())
        await quiet(lambda: len(gates.executions) == count)
        answer = await post(site, "/runs/r/detach")
        jobs = {job["toolCallId"]: job["runId"] for job in answer.json()["jobs"]}
        assert list(jobs) == [f"c{number}" for number in range(count)]
        before = [event for _, event in await reading]
        assert before[-1]["outcome"] == {"type": "success"}
        assert site.engine.supervisor.active == count
        refused = await post(site, "/tools/counts", {"runId": "one more"})
        error_of(refused, 429, "too_many_runs")

        # Half of them live, half of them afterwards.
        live = [await site.open(f"/runs/{jobs[call_id]}/events", None, ME) for call_id in list(jobs)[::2]]
        following = [asyncio.create_task(stream.rest()) for stream in live]
        gates["go"].set()
        seen = {call_id: await task for call_id, task in zip(list(jobs)[::2], following, strict=True)}
        for call_id in list(jobs)[1::2]:
            stream = await site.open(f"/runs/{jobs[call_id]}/events", None, ME)
            seen[call_id] = await stream.rest()
        for call_id, numbered in seen.items():
            assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
            events = [event for _, event in numbered]
            here = [event for event in before if event.get("value", {}).get("toolCallId") == call_id]
            assert rows(here) + rows(events) == list(range(each))
            assert {event["value"]["toolCallId"] for event in events if event["type"] == "CUSTOM"} == {call_id}
            assert [event["type"] for event in events if event["type"].startswith("RUN_")] == [
                "RUN_STARTED",
                "RUN_FINISHED",
            ]
            assert text_of(result_of(events, call_id)) == call_id
        shown = await notes_of(site)
        assert len(shown) == count
        assert {note["content"] for note in shown} == {
            f"Background job {call_id} ended.\n{call_id}" for call_id in jobs
        }


async def test_a_viewer_of_a_job_may_come_back_where_it_was() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        stream = await begun(site)
        job = await detach(site)
        await stream.rest()
        first = await site.open(f"/runs/{job}/events", None, ME)
        await first.until("RUN_STARTED")
        first.leave()
        gates["go"].set()
        await record_of(site, job)
        again = await site.open(f"/runs/{job}/events", None, ME | {"last-event-id": "1"})
        numbered = await again.rest()
        assert rows([event for _, event in numbered]) == [3, 4, 5]
        assert numbered[0][0] == 2
        last = str(numbered[-1][0])
        over = await site.client.get(f"/runs/{job}/events", headers=ME | {"last-event-id": last})
        assert over.status_code == 204


# -- the end of the server --


async def test_a_job_that_a_shutdown_ends_says_so_to_who_follows_it() -> None:
    gates = Doors()
    async with serving(works, context=gates) as site:
        stream = await begun(site)
        job = await detach(site)
        await stream.rest()
        following = Reader(await site.open(f"/runs/{job}/events", None, ME))
        await following.until("RUN_STARTED")
        draining = asyncio.create_task(site.engine.drain())
        events = await following.rest()
        await draining
        ended = '"works" was ended by the gateway\'s shutdown before it finished.'
        ended += " It may have done its work: check before retrying."
        assert text_of(result_of(events)) == f"Error [interrupted]: {ended}"
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")
        assert [note["content"] for note in await notes_of(site)] == [
            f"Background job c ended.\nError [interrupted]: {ended}"
        ]


async def test_while_the_gateway_drains_a_call_can_still_be_detached_and_its_job_gets_its_time() -> None:
    gates = Doors()
    async with serving(works, context=gates, drain_timeout=20) as site:
        stream = await begun(site)
        draining = asyncio.create_task(site.engine.drain())
        await quiet(lambda: site.engine.supervisor.draining)
        error_of(await post(site, "/tools/works", {"runId": "new"}), 503, "draining")
        job = await detach(site)
        await stream.rest()
        assert (await site.client.get(f"/runs/{job}", headers=ME)).json()["status"] == "running"
        gates["go"].set()
        assert (await record_of(site, job))["status"] == "completed"
        await draining


# -- middleware --


async def test_a_filter_sees_what_becomes_of_a_detached_call_and_the_model_reads_only_what_it_lets_pass() -> None:
    seen = []

    async def redact(ctx: ToolContext, call: Any, call_next: Any) -> ToolOutput:
        output: ToolOutput = await call_next(call)
        seen.append((ctx.run_id, output.status))
        return ToolOutput([{"type": "text", "text": "[secret]"}])

    gates = Doors()
    async with serving(works, context=gates, middleware=[redact]) as site:
        stream = await begun(site)
        job = await detach(site)
        value = result_of(await stream.rest())
        assert (value["status"], text_of(value)) == ("detached", note_for("c"))
        assert seen == []
        gates["go"].set()
        assert text_of(result_of(await whole(site, job))) == "[secret]"
        assert seen == [(job, "completed")]
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [m["content"] for m in messages if m["id"] == "c:note"] == ["Background job c ended.\n[secret]"]


async def test_a_middleware_that_answers_on_its_own_ends_the_work_that_it_does_not_wait_for() -> None:
    async def impatient(ctx: ToolContext, call: Any, call_next: Any) -> ToolOutput:
        waiting = asyncio.ensure_future(call_next(call))
        await gates["impatient"].wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        return ToolOutput([{"type": "text", "text": "too slow"}])

    gates = Doors()
    async with serving(works, context=gates, middleware=[impatient]) as site:
        stream = await begun(site)
        job = await detach(site)
        await stream.rest()
        gates["impatient"].set()
        assert text_of(result_of(await whole(site, job))) == "too slow"


async def test_stop_of_the_job_reaches_its_work_through_the_middleware_which_may_still_say_something() -> None:
    async def polite(ctx: ToolContext, call: Any, call_next: Any) -> ToolOutput:
        output: ToolOutput = await call_next(call)
        ctx.emit_custom_event("polite", {"status": output.status})
        return output

    gates = Doors()
    async with serving(works, context=gates, middleware=[polite]) as site:
        stream = await begun(site)
        job = await detach(site)
        await stream.rest()
        await post(site, f"/runs/{job}/stop")
        events = await whole(site, job)
        assert [e["value"]["status"] for e in events if e.get("name") == "polite"] == ["cancelled"]
        assert result_of(events)["status"] == "cancelled"
        assert events[-1]["outcome"] == {"type": "cancelled"}
