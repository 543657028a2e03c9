"""`POST /tools/{name}` and what it leaves: three kinds of answer, refusals that name the field, cursors, ownership."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway import Gateway
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.execution.running import check_stream, parse, quiet
from tests.http.asking import any_error_of
from tests.http.site import LONG, ME, SOMEBODY_ELSE, Site, serving

SSE = {"accept": "text/event-stream"}
JSON = {"accept": "application/json"}
ASYNC = {"prefer": "respond-async"}


class Stage:
    """What the tools of a test wait for."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ran = 0


@tool
async def add(a: int, b: int, ctx: ToolContext) -> dict[str, int]:
    """Adds."""
    if ctx.context is not None:
        ctx.context.ran += 1
    ctx.emit_custom_event("adding", {"a": a, "b": b})
    return {"sum": a + b}


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits until it may go."""
    ctx.emit_custom_event("started", {})
    await ctx.context.go.wait()
    return "done"


@tool(task_support="forbidden")
async def quick() -> str:
    """Never in the background."""
    return "quick"


@tool(task_support="required")
async def slow() -> str:
    """Only in the background."""
    return "slow"


@tool(visibility="hidden")
async def hidden() -> str:
    """Absent until it is enabled."""
    return "boo"


ADD = {"arguments": {"a": 1, "b": 2}}
SUM = {
    "content": [{"type": "text", "text": '{"sum":3}'}],
    "isError": False,
    "structuredContent": {"sum": 3},
    "status": "completed",
}


# -- three kinds of answer --


async def test_a_call_streams_its_events_and_ends_with_them() -> None:
    async with serving(add) as site:
        body = {**ADD, "runId": "run-1", "threadId": "thread-1", "toolCallId": "call-1", "parentRunId": "run-0"}
        answer = await site.client.post("/tools/add", json=body)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["x-request-id"]
        numbered = parse(answer.content)
        check_stream(numbered)
        events = [event for _, event in numbered]
        assert {key: events[0][key] for key in ("runId", "threadId", "parentRunId")} == {
            "runId": "run-1",
            "threadId": "thread-1",
            "parentRunId": "run-0",
        }
        assert json.loads(events[2]["delta"]) == ADD["arguments"]
        assert events[4]["value"] == {"a": 1, "b": 2, "toolCallId": "call-1"}
        assert events[-1]["result"] == SUM
        record = (await site.client.get("/runs/run-1")).json()
        assert record["agent"] == "tools"
        assert record["lastEventId"] == len(numbered)
        assert [call["toolCallId"] for call in record["toolCalls"]] == ["call-1"]


async def test_the_first_event_is_there_while_the_tool_still_runs() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        stream = await site.open("/tools/waits", {})
        assert (await stream.until("started"))["value"]["toolCallId"]
        stage.go.set()
        assert (await stream.rest())[-1][1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    "accept", ["application/json", "application/json;q=0.9, text/html", "text/html, Application/JSON"]
)
async def test_json_is_answered_when_it_is_asked_for_and_the_stream_is_not(accept: str) -> None:
    async with serving(add) as site:
        answer = await site.client.post("/tools/add", json=ADD, headers={"accept": accept})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == SUM


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream, application/json", "text/html", "application/*"])
async def test_everything_else_is_answered_by_the_stream_and_nothing_by_406(accept: str) -> None:
    async with serving(add) as site:
        answer = await site.client.post("/tools/add", json=ADD, headers={"accept": accept})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("prefer", ["respond-async", "wait=5, respond-async", "Respond-Async; x=1"])
async def test_a_background_call_answers_its_record_and_where_it_is(prefer: str) -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        answer = await site.client.post("/tools/waits", json={}, headers={"prefer": prefer, **JSON})
        assert answer.status_code == 202
        record = answer.json()
        assert record["status"] == "running"
        assert answer.headers["location"] == f"/runs/{record['runId']}"
        stage.go.set()
        over = (await site.client.get(answer.headers["location"] + "?wait=20")).json()
        assert over["status"] == "completed"
        assert over["startedAt"] <= over["endedAt"]


@pytest.mark.parametrize("run_id", ["läuft ✓", "a b?c#d%25", "\N{GRINNING FACE}" * 200, "x" * 200])
async def test_any_id_that_the_contract_allows_works_everywhere(run_id: str) -> None:
    async with serving(add) as site:
        body = {**ADD, "runId": run_id, "threadId": run_id, "toolCallId": run_id}
        answer = await site.client.post("/tools/add", json=body, headers=ASYNC)
        assert answer.status_code == 202
        assert answer.json()["runId"] == run_id
        location = answer.headers["location"]
        assert (await site.client.get(location + "?wait=20")).json()["runId"] == run_id
        stream = await site.client.get(location + "/events")
        check_stream(parse(stream.content))
        assert (await site.client.post(f"{location}/tool-calls/{location[6:]}/stop")).status_code == 200


async def test_the_location_knows_where_the_gateway_is_mounted() -> None:
    gateway = Gateway([add], drain_timeout=0)
    mounted = httpx.ASGITransport(Starlette(routes=[Mount("/ai", gateway)]))
    async with httpx.AsyncClient(transport=mounted, base_url="http://localhost") as client:
        answer = await client.post("/ai/tools/add", json=ADD, headers=ASYNC)
        assert answer.headers["location"] == f"/ai/runs/{answer.json()['runId']}"
        assert (await client.get(answer.headers["location"] + "?wait=20")).json()["status"] == "completed"
        assert (await client.get("/ai/nothing")).json()["error"]["code"] == "not_found"
    await gateway.shutdown()


async def test_the_caller_may_set_the_time_limit_within_the_cap() -> None:
    stage = Stage()
    async with serving(waits, context=stage, max_tool_timeout=0.05) as site:
        answer = await site.client.post("/tools/waits", json={"timeout": 1_000}, headers=JSON)
        assert answer.json()["status"] == "timeout"
        assert "0.05 s" in answer.json()["content"][0]["text"]
        answer = await site.client.post("/tools/waits", json={"timeout": 0}, headers=JSON)
        assert "0.05 s" in answer.json()["content"][0]["text"]
    async with serving(waits, context=stage) as site:
        answer = await site.client.post("/tools/waits", json={"timeout": 0.01}, headers=JSON)
        assert "0.01 s" in answer.json()["content"][0]["text"]


# -- refusals, before anything starts --

DEEP = b'{"arguments":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
REFUSALS: dict[str, tuple[str, Any, dict[str, str], int, str, str | None]] = {
    "no such tool": ("nothing", ADD, {}, 404, "tool_not_found", None),
    "a hidden tool": ("hidden", {}, {}, 404, "tool_not_found", None),
    "arguments that do not fit": ("add", {"arguments": {"a": "x", "c": 1}}, {}, 422, "invalid_arguments", "a"),
    "a missing argument": ("add", {"arguments": {"a": 1}}, {}, 422, "invalid_arguments", "b"),
    "an unknown argument": ("add", {"arguments": {"a": 1, "b": 2, "c": 3}}, {}, 422, "invalid_arguments", "c"),
    "arguments that are no object": ("add", {"arguments": [1]}, {}, 422, "invalid_arguments", "arguments"),
    "arguments that are null": ("add", {"arguments": None}, {}, 422, "invalid_arguments", "arguments"),
    "an unknown field": ("add", {**ADD, "run_id": "x"}, {}, 400, "invalid_request", "run_id"),
    "an id with a slash": ("add", {**ADD, "runId": "a/b"}, {}, 400, "invalid_request", "runId"),
    "an id with a line end": ("add", {**ADD, "threadId": "a\nb"}, {}, 400, "invalid_request", "threadId"),
    "an empty id": ("add", {**ADD, "toolCallId": ""}, {}, 400, "invalid_request", "toolCallId"),
    "a long id": ("add", {**ADD, "runId": "x" * 201}, {}, 400, "invalid_request", "runId"),
    "an id that is a number": ("add", {**ADD, "runId": 7}, {}, 400, "invalid_request", "runId"),
    "an id that is no text": (
        "add",
        b'{"arguments":{"a":1,"b":2},"runId":"\\ud800"}',
        {},
        400,
        "invalid_request",
        None,
    ),
    "a negative timeout": ("add", {**ADD, "timeout": -1}, {}, 400, "invalid_request", "timeout"),
    "a timeout in words": ("add", {**ADD, "timeout": "1"}, {}, 400, "invalid_request", "timeout"),
    "a wish it does not know": ("add", {**ADD, "onDisconnect": "stop"}, {}, 400, "invalid_request", "onDisconnect"),
    "another id in X-Run-Id": ("add", {**ADD, "runId": "a"}, {"x-run-id": "b"}, 400, "invalid_request", "X-Run-Id"),
    "a malformed session": ("add", ADD, {"x-session-id": "short"}, 400, "invalid_request", "X-Session-Id"),
    "no JSON": ("add", b"{", {}, 400, "invalid_request", None),
    "no UTF-8": ("add", b'{"arguments":{"a":1,"b":"\xff"}}', {}, 400, "invalid_request", None),
    "NaN": ("add", b'{"arguments":{"a":NaN,"b":1}}', {}, 400, "invalid_request", None),
    "a list": ("add", [], {}, 400, "invalid_request", None),
    "JSON nested beyond sense": ("add", DEEP, {}, 400, "invalid_request", None),
    "an integer beyond sense": ("add", b'{"timeout":1' + b"0" * 10_000 + b"}", {}, 400, "invalid_request", None),
    "not JSON by its type": ("add", ADD, {"content-type": "text/plain"}, 415, "unsupported_media_type", None),
    "no type at all": ("add", ADD, {"content-type": ""}, 415, "unsupported_media_type", None),
    "a body too large": ("add", b" " * 2_000_000, {}, 413, "body_too_large", None),
    "only in the foreground": ("quick", {}, ASYNC, 400, "task_forbidden", None),
    "only in the background": ("slow", {}, {}, 400, "task_required", None),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_bad_request_is_refused_by_name_before_anything_starts(what: str) -> None:
    name, body, headers, status, code, named = REFUSALS[what]
    stage = Stage()
    async with serving(add, quick, slow, hidden, context=stage) as site:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **ME, **headers}
        answer = await site.client.post(f"/tools/{name}", content=content, headers=sent)
        assert answer.status_code == status
        error = any_error_of(answer)
        assert error["code"] == code
        if named is not None:
            assert named in [item["field"] for item in error["details"]]
        assert not stage.ran
        assert (await site.client.get("/runs", headers=ME)).json()["items"] == []


async def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    async def endless() -> Any:
        for _ in range(3_000):
            yield b" " * 1_000

    async with serving(add) as site:
        sent = {"content-type": "application/json"}
        answer = await site.client.post("/tools/add", content=endless(), headers=sent)
        assert answer.status_code == 413
        assert any_error_of(answer)["code"] == "body_too_large"


async def test_an_empty_body_is_an_empty_object() -> None:
    async with serving(quick) as site:
        answer = await site.client.post("/tools/quick", headers=JSON)
        assert answer.json()["status"] == "completed"


async def test_numbers_reach_the_tool_digit_for_digit() -> None:
    async with serving(add) as site:
        body = '{"arguments":{"a":12345678901234567890123,"b":0},"toolCallId":"c"}'
        answer = await site.client.post("/tools/add", content=body, headers={"content-type": "application/json"})
        events = [event for _, event in parse(answer.content)]
        assert events[2]["delta"] == '{"a":12345678901234567890123,"b":0}'
        assert events[-1]["result"]["structuredContent"] == {"sum": "12345678901234567890123"}


async def test_too_many_runs_are_refused_and_may_come_again() -> None:
    stage = Stage()
    async with serving(waits, add, context=stage, max_runs_per_session=2, max_runs=3) as site:
        for number in range(2):
            assert (
                await site.client.post("/tools/waits", json={"runId": f"r{number}"}, headers={**ME, **ASYNC})
            ).status_code == 202
        refused = await site.client.post("/tools/add", json=ADD, headers=ME)
        assert refused.status_code == 429
        assert any_error_of(refused)["code"] == "too_many_runs"
        assert int(refused.headers["retry-after"]) >= 1
        attached = await site.client.post("/tools/waits", json={"runId": "r0"}, headers={**ME, **ASYNC})
        assert attached.status_code == 202
        assert (await site.client.post("/tools/waits", json={}, headers={**SOMEBODY_ELSE, **ASYNC})).status_code == 202
        assert (await site.client.post("/tools/add", json=ADD)).status_code == 429
        stage.go.set()
        await site.client.get("/runs/r0?wait=20", headers=ME)
        await quiet(lambda: not site.engine.supervisor.active)
        assert (await site.client.post("/tools/add", json=ADD, headers=ME)).status_code == 200


async def test_a_draining_gateway_takes_no_new_run_and_still_answers_for_the_others() -> None:
    stage = Stage()
    async with serving(waits, add, context=stage, drain_timeout=LONG) as site:
        run_id = (await site.client.post("/tools/waits", json={}, headers=ASYNC)).json()["runId"]
        draining = asyncio.create_task(site.gateway.drain())
        await asyncio.sleep(0)
        refused = await site.client.post("/tools/add", json=ADD)
        assert refused.status_code == 503
        assert any_error_of(refused)["code"] == "draining"
        assert int(refused.headers["retry-after"]) >= 1
        assert (await site.client.get("/readyz")).status_code == 503
        assert (await site.client.get("/healthz")).status_code == 200
        assert (await site.client.get(f"/runs/{run_id}")).json()["status"] == "running"
        assert (await site.client.post(f"/runs/{run_id}/stop")).status_code == 202
        await draining
        assert (await site.client.get(f"/runs/{run_id}")).json()["status"] == "cancelled"


# -- one run, many requests --


async def test_equal_requests_share_one_run_and_execute_once() -> None:
    stage = Stage()
    async with serving(add, context=stage) as site:
        first = {**ADD, "runId": "r", "threadId": "t", "toolCallId": "c"}
        again = dict(reversed(first.items()))
        answers = await asyncio.gather(
            *(site.client.post("/tools/add", json=body, headers={**ME, **SSE}) for body in [first, again] * 10)
        )
        assert {answer.status_code for answer in answers} == {200}
        assert len({tuple(map(str, parse(answer.content))) for answer in answers}) == 1
        late = await site.client.post("/tools/add", json=first, headers={**ME, **JSON})
        assert late.json() == SUM
        assert stage.ran == 1


@pytest.mark.parametrize(
    "other",
    [{"arguments": {"a": 1, "b": 3}}, {"threadId": "u"}, {"timeout": 5}],
    ids=["arguments", "thread", "timeout"],
)
async def test_a_different_request_for_a_known_run_is_a_conflict(other: dict[str, Any]) -> None:
    async with serving(add, quick) as site:
        body = {**ADD, "runId": "r", "threadId": "t"}
        assert (await site.client.post("/tools/add", json=body, headers=ME)).status_code == 200
        refused = await site.client.post("/tools/add", json={**body, **other}, headers=ME)
        assert refused.status_code == 409
        assert any_error_of(refused)["code"] == "run_conflict"
        refused = await site.client.post("/tools/quick", json={"runId": "r", "threadId": "t"}, headers=ME)
        assert refused.status_code == 409
        assert (await site.client.post("/tools/add", json={**body, **other}, headers=SOMEBODY_ELSE)).status_code == 200


async def test_a_post_with_a_cursor_only_reads() -> None:
    stage = Stage()
    async with serving(add, context=stage) as site:
        body = {**ADD, "runId": "r"}
        unknown = await site.client.post("/tools/add", json=body, headers={"last-event-id": "0", **ME})
        assert unknown.status_code == 404
        assert any_error_of(unknown)["code"] == "run_not_found"
        ran_before = stage.ran
        numbered = parse((await site.client.post("/tools/add", json=body, headers=ME)).content)
        last = len(numbered)
        rest = await site.client.post("/tools/add", json=body, headers={"last-event-id": "3", **ME})
        assert parse(rest.content) == numbered[3:]
        read = await site.client.post("/tools/add", json=body, headers={"last-event-id": str(last), **ME})
        assert (read.status_code, read.content) == (200, b"")
        assert (ran_before, stage.ran) == (0, 1)


# -- cursors --


async def finished(site: Site) -> int:
    """A run `r` of mine that is over; returns the number of its last event."""
    await site.client.post("/tools/add", json={**ADD, "runId": "r"}, headers=ME)
    last: int = (await site.client.get("/runs/r", headers=ME)).json()["lastEventId"]
    return last


@pytest.mark.parametrize("where", ["header", "lastEventId", "offset"])
async def test_a_cursor_starts_the_stream_behind_it(where: str) -> None:
    async with serving(add) as site:
        last = await finished(site)
        whole = parse((await site.client.get("/runs/r/events", headers=ME)).content)
        check_stream(whole)
        for cursor in range(-1, last + 3):
            url, headers = "/runs/r/events", dict(ME)
            if where == "header":
                headers["last-event-id"] = str(cursor)
            else:
                url += f"?{where}={cursor}"
            answer = await site.client.get(url, headers=headers)
            assert answer.headers["x-request-id"]
            if cursor == last:
                assert answer.status_code == 204
                assert not answer.content
            else:
                expected = whole[max(cursor, 0) :] if cursor < last else whole[-1:]
                assert parse(answer.content) == expected


@pytest.mark.parametrize("junk", ["x", "1.0", "-2", "+1", "1e3", " 1", "٣", "0x1", "9" * 30, "1,2"])
async def test_a_cursor_that_is_none_is_refused(junk: str) -> None:
    async with serving(add) as site:
        await finished(site)
        answer = await site.client.get("/runs/r/events", params={"lastEventId": junk}, headers=ME)
        assert answer.status_code == 400
        assert any_error_of(answer)["code"] == "invalid_cursor"


async def test_the_header_beats_the_query_and_an_empty_one_counts_for_nothing() -> None:
    async with serving(add) as site:
        last = await finished(site)
        answer = await site.client.get(
            "/runs/r/events?lastEventId=1&offset=2", headers={"last-event-id": str(last - 1), **ME}
        )
        assert [number for number, _ in parse(answer.content)] == [last]
        answer = await site.client.get(
            f"/runs/r/events?lastEventId={last - 1}&offset=1", headers={"last-event-id": "", **ME}
        )
        assert [number for number, _ in parse(answer.content)] == [last]


async def test_a_cursor_beyond_a_living_run_is_ahead() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        stream = await site.open("/tools/waits", {"runId": "r"}, ME)
        await stream.until("started")
        last = (await site.client.get("/runs/r", headers=ME)).json()["lastEventId"]
        refused = await site.client.get("/runs/r/events", headers={"last-event-id": str(last + 1), **ME})
        assert refused.status_code == 409
        assert any_error_of(refused)["code"] == "cursor_ahead"
        stage.go.set()
        await stream.rest()


async def test_a_run_that_lost_its_oldest_events_says_so_however_it_is_asked_for() -> None:
    @tool
    async def floods(ctx: ToolContext) -> str:
        """Emits a lot."""
        for number in range(300):
            ctx.emit_custom_event("row", {"n": number, "x": "x" * 1_000})
        return "done"

    async with serving(floods, max_run_bytes=100_000) as site:
        body = {"runId": "r"}
        first = await site.client.post("/tools/floods", json=body, headers={**ME, **JSON})
        assert first.json()["content"][0]["text"] == "done"
        for answer in (
            await site.client.get("/runs/r/events", headers=ME),
            await site.client.post("/tools/floods", json=body, headers=ME),
            await site.client.post("/tools/floods", json=body, headers={"last-event-id": "1", **ME}),
        ):
            assert answer.status_code == 410
            details = any_error_of(answer)["details"]
            assert details["status"] == "completed"
        rest = await site.client.get(f"/runs/r/events?offset={details['firstEventId'] - 1}", headers=ME)
        numbers = [number for number, _ in parse(rest.content)]
        assert numbers == list(range(details["firstEventId"], details["lastEventId"] + 1))
        names = [event.get("name") for _, event in parse(rest.content)]
        assert "gateway.notice" in names
        again = await site.client.post("/tools/floods", json=body, headers={**ME, **JSON})
        assert again.json() == first.json()


async def test_head_asks_for_the_headers_of_a_stream_only() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        await site.client.post("/tools/waits", json={"runId": "r"}, headers={**ME, **ASYNC})
        answer = await site.client.head("/runs/r/events", headers=ME)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"]
        stage.go.set()


# -- whose run it is --

PATHS = [
    ("GET", "/runs/r"),
    ("GET", "/runs/r?wait=1"),
    ("GET", "/runs/r/events"),
    ("GET", "/runs/r/events?lastEventId=junk"),
    ("POST", "/runs/r/stop"),
    ("POST", "/runs/r/tool-calls/c/stop"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("who", [SOMEBODY_ELSE, {}], ids=["another session", "no session"])
async def test_a_run_of_mine_is_unknown_to_everybody_else(method: str, path: str, who: dict[str, str]) -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        await site.client.post("/tools/waits", json={"runId": "r", "toolCallId": "c"}, headers={**ME, **ASYNC})
        foreign = await site.client.request(method, path, headers=who, content=b"junk" if method == "POST" else None)
        unknown = await site.client.request(method, path.replace("/runs/r", "/runs/unknown"), headers=who)
        assert foreign.status_code == unknown.status_code == 404
        assert any_error_of(foreign) == any_error_of(unknown)
        assert any_error_of(foreign)["code"] == "run_not_found"
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        assert [item["runId"] for item in (await site.client.get("/runs", headers=ME)).json()["items"]] == ["r"]
        assert (await site.client.get("/runs", headers=who)).json() == {"items": [], "next": None}
        stage.go.set()


async def test_a_run_without_an_owner_is_for_whoever_knows_its_id() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        await site.client.post("/tools/waits", json={"runId": "r"}, headers=ASYNC)
        for who in (ME, SOMEBODY_ELSE, {}):
            assert (await site.client.get("/runs/r", headers=who)).status_code == 200
        stopped = await site.client.post("/runs/r/stop", headers=SOMEBODY_ELSE)
        assert stopped.status_code == 202


# -- Stop over HTTP --


async def test_stop_answers_while_the_run_ends_and_again_when_it_is_over() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        stream = await site.open("/tools/waits", {"runId": "r"}, ME)
        await stream.until("started")
        stopped = await site.client.post("/runs/r/stop", json={"reason": "enough"}, headers=ME)
        assert stopped.status_code == 202
        assert stopped.json()["status"] == "stopping"
        numbered = await stream.rest()
        stopping = next(event for _, event in numbered if event.get("name") == "run.stopping")
        assert stopping["value"] == {"reason": "user", "message": "enough"}
        assert numbered[-1][1]["outcome"] == {"type": "cancelled"}
        again = await site.client.post("/runs/r/stop", headers=ME)
        assert again.status_code == 200
        assert again.json()["status"] == "cancelled"
        assert again.json() == (await site.client.get("/runs/r", headers=ME)).json()


async def test_stop_of_a_call_ends_the_call_and_the_run_completes() -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        stream = await site.open("/tools/waits", {"runId": "r", "toolCallId": "c"}, ME)
        await stream.until("started")
        unknown = await site.client.post("/runs/r/tool-calls/d/stop", headers=ME)
        assert unknown.status_code == 404
        stopped = await site.client.post("/runs/r/tool-calls/c/stop", headers=ME)
        assert stopped.status_code == 202
        await stream.rest()
        record = (await site.client.get("/runs/r", headers=ME)).json()
        assert record["status"] == "completed"
        assert record["toolCalls"][0]["status"] == "cancelled"
        again = await site.client.post("/runs/r/tool-calls/c/stop", headers=ME)
        assert again.status_code == 200


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"reason": 1}', 400, "invalid_request"),
        (b'{"why": "x"}', 400, "invalid_request"),
        (b"[]", 400, "invalid_request"),
        (b"x" * 100_000, 413, "body_too_large"),
    ],
    ids=["a number", "an unknown field", "a list", "too much"],
)
async def test_a_stop_with_a_bad_body_stops_nothing(content: bytes, status: int, code: str) -> None:
    stage = Stage()
    async with serving(waits, context=stage) as site:
        await site.client.post("/tools/waits", json={"runId": "r"}, headers={**ME, **ASYNC})
        sent = {"content-type": "application/json", **ME}
        answer = await site.client.post("/runs/r/stop", content=content, headers=sent)
        assert answer.status_code == status
        assert any_error_of(answer)["code"] == code
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        stage.go.set()


# -- every answer --


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/tools/add", 405, "method_not_allowed"),
        ("DELETE", "/runs/r", 405, "method_not_allowed"),
        ("POST", "/tools/add/", 404, "not_found"),
    ],
)
async def test_a_path_or_method_that_is_none_has_our_error_and_a_request_id(
    method: str, path: str, status: int, code: str
) -> None:
    async with serving(add) as site:
        answer = await site.client.request(method, path, headers={"x-request-id": "of-the-caller"})
        assert answer.status_code == status
        assert any_error_of(answer)["code"] == code
        assert answer.headers["x-request-id"] != "of-the-caller"


async def test_a_call_knows_its_request() -> None:
    @tool
    async def knows(ctx: ToolContext) -> Any:
        """Tells what it knows."""
        return {
            "request": ctx.request_id,
            "client": ctx.client_request_id,
            "session": ctx.session_id,
            "headers": dict(ctx.metadata["headers"]),
        }

    async with serving(knows) as site:
        sent = {**ME, **JSON, "x-request-id": "mine", "authorization": "Bearer secret", "cookie": "a=secret"}
        answer = await site.client.post("/tools/knows", json={}, headers=sent)
        known = answer.json()["structuredContent"]
        assert known["request"] == answer.headers["x-request-id"]
        assert known["client"] == "mine"
        assert known["session"] == f"anon:{ME['x-session-id']}"
        assert "secret" not in str(known)


async def test_the_context_of_a_run_is_made_from_the_request_that_starts_it() -> None:
    async def context(connection: Any) -> str:
        return f"made for {connection.headers['x-tenant']}"

    @tool
    async def knows(ctx: ToolContext) -> Any:
        """Tells its context."""
        return ctx.context

    async with serving(knows, context=context) as site:
        answer = await site.client.post("/tools/knows", json={}, headers={**JSON, "x-tenant": "ada"})
        assert answer.json()["content"][0]["text"] == "made for ada"
        # Without the header it fails: the run ends, the gateway lives.
        answer = await site.client.post("/tools/knows", json={"runId": "r"}, headers=ME)
        assert parse(answer.content)[-1][1]["code"] == "internal"
        assert (await site.client.get("/runs/r", headers=ME)).json()["error"]["code"] == "internal"
