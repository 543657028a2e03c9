"""Which run a request means: the client names it, and an equal request never executes twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.execution.running import quiet
from tests.http.asking import ASYNC, JSON, Gates, Reader, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import LONG, ME, SOMEBODY_ELSE, serving

CLIENTS = 50
BODY = agent_body(ask(("c", "echo", {"text": "hello"})))
WAITING = agent_body(ask(("c", "waits", {})))
TYPE = {"content-type": "application/json"}


def respelled(body: dict[str, Any]) -> bytes:
    """The same JSON in another order of keys, with other spacing and escapes."""
    return json.dumps(dict(reversed(body.items())), indent=3).replace("hello", "h\\u0065llo").encode()


@pytest.mark.parametrize("path", ["/agents/tools", "/tools/waits"])
async def test_one_run_id_from_fifty_clients_at_once_is_one_execution_that_all_of_them_see(path: str) -> None:
    gates, arrived = Gates(), 0
    async with serving(waits, context=gates) as site:
        body = WAITING if path == "/agents/tools" else {"runId": "r", "threadId": "t"}

        async def client(number: int) -> list[dict[str, Any]]:
            reader = Reader(await site.open(path, body, {"x-run-id": "r", **ME}))
            await reader.until("came")
            nonlocal arrived
            arrived += 1
            if number % 5 == 0:
                reader.stream.leave()
                return []
            return await reader.rest()

        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            tasks = [group.create_task(client(number)) for number in range(CLIENTS)]
            await quiet(lambda: arrived == CLIENTS)
            gates["go"].set()
        assert gates.executions == {"r": 1}
        seen = [events for task in tasks if (events := task.result())]
        assert len(seen) == CLIENTS - CLIENTS // 5
        assert all(events == seen[0] for events in seen)
        assert [run["runId"] for run in (await site.client.get("/runs", headers=ME)).json()["items"]] == ["r"]


async def test_fifty_json_callers_at_once_get_the_one_answer() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        body = {"runId": "r", "threadId": "t", "arguments": {"text": "x"}}
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            calls = [
                group.create_task(site.client.post("/tools/echo", json=body, headers=JSON)) for _ in range(CLIENTS)
            ]
        assert {call.result().text for call in calls} == {calls[0].result().text}
        assert calls[0].result().json()["structuredContent"] == {"text": "x"}
        assert gates.executions == {"r": 1}


async def test_an_equal_request_in_other_words_attaches() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        first = await site.client.post("/agents/tools", json=BODY)
        again = await site.client.post(
            "/agents/tools?unused=1", content=respelled(BODY), headers={**TYPE, "accept-language": "de"}
        )
        assert events_of(again.content) == events_of(first.content)
        assert gates.executions == {"r": 1}


CHANGES: dict[str, dict[str, Any]] = {
    "another thread": {"threadId": "t2"},
    "other messages": {"messages": ask(("c", "echo", {"text": "bye"}))},
    "another order of messages": {"messages": [*BODY["messages"][::-1]]},
    "other state": {"state": {"a": 1}},
    "true for 1": {"state": {"a": True}},
    "one more field": {"extra": None},
    "a parent": {"parentRunId": "p"},
    "other options": {"forwardedProps": {"gateway": {"onDisconnect": "continue"}}},
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_known_run_id_is_a_conflict_with(change: str) -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        await site.client.post("/agents/tools", json={**BODY, "state": {"a": 1} if change == "true for 1" else {}})
        error_of(await site.client.post("/agents/tools", json={**BODY, **CHANGES[change]}), 409, "run_conflict")
        assert gates.executions == {"r": 1}


async def test_a_known_run_id_on_another_path_is_a_conflict() -> None:
    gates = Gates()
    async with serving(echo, waits, context=gates) as site:
        gates["go"].set()
        await site.client.post("/tools/echo", json={"runId": "r"})
        error_of(await site.client.post("/agents/tools", json=BODY), 409, "run_conflict")
        error_of(await site.client.post("/tools/waits", json={"runId": "r"}), 409, "run_conflict")
        error_of(await site.client.post("/tools/waits", json={"runId": "r"}, headers=JSON), 409, "run_conflict")
        error_of(await site.client.post("/tools/waits", json={"runId": "r"}, headers=ASYNC), 409, "run_conflict")
        assert gates.executions == {"r": 1}


async def test_the_same_run_id_in_another_session_is_another_run() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        for who, text in ((ME, "mine"), (SOMEBODY_ELSE, "theirs"), ({}, "anybody's")):
            body = {"runId": "r", "arguments": {"text": text}}
            await site.client.post("/tools/echo", json=body, headers={**who, **JSON})
        for who, text in ((ME, "mine"), (SOMEBODY_ELSE, "theirs"), ({}, "anybody's")):
            events = events_of((await site.client.get("/runs/r/events", headers=who)).content)
            assert events[-1]["result"]["structuredContent"] == {"text": text}
        assert gates.executions == {"r": 3}


@pytest.mark.parametrize("path", ["/agents/tools", "/tools/echo"])
async def test_the_run_id_of_the_header_must_be_that_of_the_body(path: str) -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        body = BODY if path == "/agents/tools" else {"runId": "r"}
        error = error_of(await site.client.post(path, json=body, headers={"x-run-id": "other"}), 400, "invalid_request")
        assert error["details"][0]["field"] == "X-Run-Id"
        assert not gates.executions
        assert (await site.client.post(path, json=body, headers={"x-run-id": "r"})).status_code == 200


async def test_a_run_that_cannot_start_leaves_its_id_free() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        error_of(await site.client.post("/agents/tools", json={**BODY, "messages": []}), 400, "invalid_request")
        error_of(await site.client.get("/runs/r"), 404, "run_not_found")
        assert (await site.client.post("/agents/tools", json=BODY)).status_code == 200


# -- a POST with Last-Event-ID only reads --


@pytest.mark.parametrize("answer", [{}, JSON, ASYNC], ids=["stream", "json", "background"])
async def test_a_post_that_lost_its_connection_starts_nothing(answer: dict[str, str]) -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        for path, body in (("/tools/echo", {"runId": "r"}), ("/tools/echo", {}), ("/agents/tools", BODY)):
            for cursor in ("0", "-1", "7"):
                headers = {**answer, "last-event-id": cursor}
                error_of(await site.client.post(path, json=body, headers=headers), 404, "run_not_found")
        assert not gates.executions


async def test_a_post_with_a_cursor_reads_on_until_the_end_and_then_finds_nothing() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        first = Reader(await site.open("/agents/tools", WAITING, ME))
        await first.until("came")
        first.stream.leave()
        known = len(first.events)
        again = Reader(await site.open("/agents/tools", WAITING, {**ME, "last-event-id": str(known)}))
        gates["go"].set()
        rest = await again.rest()
        whole = events_of((await site.client.get("/runs/r/events", headers=ME)).content)
        assert first.events + rest == whole
        over = await site.client.post("/agents/tools", json=WAITING, headers={**ME, "last-event-id": str(len(whole))})
        assert (over.status_code, over.content) == (200, b"")
        assert over.headers["content-type"].startswith("text/event-stream")
        ahead = await site.client.post("/agents/tools", json=WAITING, headers={**ME, "last-event-id": "999"})
        assert ahead.content.count(b"data: ") == 1
        assert b"RUN_FINISHED" in ahead.content
        assert gates.executions == {"r": 1}


async def test_a_json_caller_that_lost_its_connection_gets_the_answer_of_its_run() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        body = {"runId": "r", "arguments": {"text": "x"}}
        first = await site.client.post("/tools/echo", json=body, headers={**JSON, **ME})
        again = await site.client.post("/tools/echo", json=body, headers={**JSON, **ME, "last-event-id": "2"})
        assert again.json() == first.json()
        record = await site.client.post("/tools/echo", json=body, headers={**ASYNC, **ME, "last-event-id": "2"})
        assert (record.status_code, record.json()["status"]) == (202, "completed")
        error_of(
            await site.client.post("/tools/echo", json=body, headers={**JSON, **SOMEBODY_ELSE, "last-event-id": "2"}),
            404,
            "run_not_found",
        )
        assert gates.executions == {"r": 1}


# -- joining by GET --


async def test_joining_a_run_never_starts_one_and_ends_with_it() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        error_of(await site.client.get("/agents/tools?offset=-1&runId=r", headers=ME), 404, "run_not_found")
        first = Reader(await site.open("/agents/tools", WAITING, ME))
        await first.until("came")
        joined = Reader(await site.open("/agents/tools?offset=-1&runId=r", None, ME))
        await joined.until("came")
        gates["go"].set()
        assert await joined.rest() == await first.rest()
        last = str(len(first.events))
        over = await site.client.get("/agents/tools?offset=-1&runId=r", headers={**ME, "last-event-id": last})
        assert (over.status_code, over.content) == (200, b"")
        assert over.headers["content-type"].startswith("text/event-stream")
        # The same of a plain follower is 204: it has no client that takes this for an error.
        assert (await site.client.get(f"/runs/r/events?offset={last}", headers=ME)).status_code == 204


async def test_joining_needs_a_run_or_a_thread() -> None:
    async with serving(echo) as site:
        for query in ("", "?offset=-1", "?runId=", "?threadId=", "?runId=&threadId="):
            error_of(await site.client.get(f"/agents/tools{query}", headers=ME), 400, "invalid_request")


# (what is sent, how many events come) for a run of seven events that is over
CURSORS: dict[str, tuple[str, dict[str, str], int]] = {
    "nothing": ("", {}, 7),
    "an offset of -1": ("offset=-1", {}, 7),
    "an offset of 0": ("offset=0", {}, 7),
    "an offset": ("offset=3", {}, 4),
    "lastEventId": ("lastEventId=3", {}, 4),
    "lastEventId before offset": ("lastEventId=3&offset=-1", {}, 4),
    "the header": ("", {"last-event-id": "3"}, 4),
    "the header before all": ("lastEventId=1&offset=-1", {"last-event-id": "5"}, 2),
    "an empty header": ("offset=3", {"last-event-id": ""}, 4),
    "leading zeros": ("", {"last-event-id": "003"}, 4),
    "the last but one": ("", {"last-event-id": "6"}, 1),
    "beyond the end": ("", {"last-event-id": "8"}, 1),
    "far beyond the end": ("offset=999999999999999999", {}, 1),
}


@pytest.mark.parametrize("path", ["/runs/r/events?", "/agents/tools?runId=r&"])
async def test_a_cursor_is_understood_in_every_form(path: str) -> None:
    async with serving(echo) as site:
        await site.client.post("/tools/echo", json={"runId": "r"})
        for what, (query, headers, count) in CURSORS.items():
            answer = await site.client.get(path + query, headers=headers)
            assert answer.status_code == 200, what
            events = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
            assert len(events) == count, what
            assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_cursor_that_is_none_is_refused_wherever_it_stands() -> None:
    async with serving(echo) as site:
        await site.client.post("/tools/echo", json={"runId": "r"})
        for junk in ("x", "-2", "1.0", "1e3", "+1", "1 2", "0x1", "1" * 19, "now", "null", "r:1", "١"):
            for path in ("/runs/r/events", "/agents/tools"):
                for name in ("lastEventId", "offset"):
                    answer = await site.client.get(path, params={"runId": "r", name: junk})
                    error_of(answer, 400, "invalid_cursor")
            answer = await site.client.post(
                "/tools/echo", json={"runId": "r"}, headers={b"last-event-id": junk.encode()}
            )
            error_of(answer, 400, "invalid_cursor")
            params, header = {"threadId": "t"}, {b"last-event-id": junk.encode()}
            answer = await site.client.get("/agents/tools", params=params, headers=header)
            error_of(answer, 400, "invalid_cursor")


# -- ids --


@pytest.mark.parametrize(
    "run_id", ["x" * 200, "läuft ✓", "a b?c#d%25&e=f+g", "..", ".", "\N{GRINNING FACE}" * 200, "a\\b"]
)
async def test_a_run_and_thread_of_any_allowed_id_are_reached_on_every_path(run_id: str) -> None:
    async with serving(echo) as site:
        body = agent_body(ask((run_id, "echo", {})), runId=run_id, threadId=run_id)
        events = events_of((await site.client.post("/agents/tools", json=body, headers=ME)).content)
        assert events[0]["runId"] == events[0]["threadId"] == run_id
        joined = await site.client.get("/agents/tools", params={"runId": run_id, "offset": -1}, headers=ME)
        assert events_of(joined.content) == events
        listed = (await site.client.get("/runs", params={"threadId": run_id}, headers=ME)).json()
        assert [run["runId"] for run in listed["items"]] == [run_id]
        hydrated = (await site.client.get("/agents/tools", params={"threadId": run_id}, headers=ME)).json()
        assert len(hydrated["messages"]) == 2


async def test_an_id_that_no_run_can_have_is_as_unknown_as_any_other() -> None:
    async with serving(echo) as site:
        await site.client.post("/tools/echo", json={"runId": "r", "threadId": "t"}, headers=ME)
        for bad in ("%00", "a%0Ab", "x" * 201, "%7F", "%C2%85"):
            for method, path, code in (
                ("GET", f"/runs/{bad}", "run_not_found"),
                ("GET", f"/runs/{bad}/events", "run_not_found"),
                ("POST", f"/runs/{bad}/stop", "run_not_found"),
                ("GET", f"/agents/tools?runId={bad}", "run_not_found"),
                ("GET", f"/threads/{bad}", "thread_not_found"),
                ("POST", f"/threads/{bad}/stop", "thread_not_found"),
                ("POST", f"/runs/r/tool-calls/{bad}/stop", "call_not_found"),
            ):
                error_of(await site.client.request(method, path, headers=ME), 404, code)


@pytest.mark.parametrize("field", ["runId", "threadId", "toolCallId", "parentRunId"])
async def test_an_id_of_a_tool_run_has_its_limits(field: str) -> None:
    async with serving(echo) as site:
        for bad in ("", "/", "a/b", "\0", "a\tb", "\x7f", "\x85", "x" * 201, 1, ["a"]):
            answer = await site.client.post("/tools/echo", json={field: bad})
            error = error_of(answer, 400, "invalid_request")
            assert error["details"][0]["field"] == field
        for good in ("x" * 200, "ü", " ", "\u2028"):
            assert (
                await site.client.post("/tools/echo", json={"runId": f"{field} {good}"[:200], field: good})
            ).status_code == 200
