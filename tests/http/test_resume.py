"""What a resume is refused for, that a refusal consumes nothing, and that nothing runs twice whoever sends it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time
from typing import Any

import httpx
import pytest

from gateway import ToolContext, tool
from gateway.errors import Unavailable
from tests.execution.running import quiet
from tests.http.asking import JSON, Gates, Reader, agent_body, ask, echo, error_of, events_of, waits
from tests.http.people import (
    NAME,
    answer,
    answered,
    asked,
    asks,
    gave,
    interrupts_of,
    post,
    record_of,
    resolve,
)
from tests.http.site import LONG, ME, SOMEBODY_ELSE, Site, serving

ADA = {"name": "Ada"}
PATHS = pytest.mark.parametrize("path", ["/tools/signs", "/agents/tools"])
QUESTION = "Whose name?"


@tool
async def signs(ctx: ToolContext, text: str = "a letter") -> dict[str, Any]:
    """Asks for a name, and counts how often it has got one."""
    given = ctx.interrupt(QUESTION, NAME)
    ctx.context.executions["signs"] += 1
    return {"status": given.status, "name": (given.payload or {}).get("name"), "text": text}


def body_of(path: str, run: str, *entries: Any, thread: str = "t", call: str = "c", **more: Any) -> dict[str, Any]:
    """A request to resume; without entries the one that starts."""
    resume = {"resume": list(entries)} if entries else {}
    if path == "/agents/tools":
        return agent_body(ask((call, "signs", {})), runId=run, threadId=thread, **resume, **more)
    own = {} if entries else {"toolCallId": call}
    return {"runId": run, "threadId": thread, **own, **resume, **more}


@asynccontextmanager
async def interrupted(path: str, *tools: Any, **options: Any) -> AsyncIterator[tuple[Site, Gates, dict[str, Any]]]:
    """A served gateway, and the interrupt with which run `r` of thread `t` has ended."""
    gates = Gates()
    async with serving(signs, *tools, context=gates, **options) as site:
        (interrupt,) = interrupts_of(await post(site, path, body_of(path, "r")))
        yield site, gates, interrupt


async def send(site: Site, path: str, body: Any, headers: dict[str, str] = ME) -> httpx.Response:
    return await site.client.post(path, json=body, headers=headers)


async def still_open(site: Site, path: str, gates: Gates, interrupt: Any, *, run: str = "later") -> None:
    """The question was not answered: nothing has run, it is shown as open, and it can be answered now."""
    assert gates.executions["signs"] == 0
    thread = (await site.client.get("/threads/t", headers=ME)).json()
    assert [item["id"] for item in thread["interrupts"]] == [interrupt["id"]]
    events = await post(site, path, body_of(path, run, resolve(interrupt, ADA)))
    assert gave(events)["name"] == "Ada"
    assert gates.executions["signs"] == 1


# -- whose it is --


@PATHS
@pytest.mark.parametrize("headers", [SOMEBODY_ELSE, {}], ids=["another session", "none"])
@pytest.mark.parametrize("status", ["resolved", "cancelled"])
async def test_a_question_of_somebody_else_is_unknown(path: str, headers: dict[str, str], status: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        foreign = body_of(path, "r2", resolve(interrupt, ADA, status))
        unknown = body_of(path, "r2", resolve("int_nothing", ADA, status))
        refused = error_of(await send(site, path, foreign, headers), 404, "interrupt_not_found")
        assert refused == error_of(await send(site, path, unknown, headers), 404, "interrupt_not_found")
        assert refused["details"] == [{"field": "resume.0.interruptId", "message": "unknown"}]
        assert (await site.client.get("/runs/r2", headers=headers)).status_code == 404
        await still_open(site, path, gates, interrupt)


async def test_a_question_of_a_run_without_an_owner_is_not_for_those_who_have_a_session() -> None:
    async with serving(signs, context=Gates()) as site:
        (interrupt,) = interrupts_of(await post(site, "/tools/signs", {"toolCallId": "c"}, {}))
        refused = await send(site, "/tools/signs", {"resume": [resolve(interrupt, ADA)]})
        error_of(refused, 404, "interrupt_not_found")
        assert gave(await post(site, "/tools/signs", {"resume": [resolve(interrupt, ADA)]}, {}))["name"] == "Ada"


@PATHS
async def test_a_question_of_another_thread_is_unknown_in_this_one(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        for status in ("resolved", "cancelled"):
            body = body_of(path, "r2", resolve(interrupt, ADA, status), thread="other")
            error_of(await send(site, path, body), 404, "interrupt_not_found")
        await still_open(site, path, gates, interrupt)


async def test_a_tool_run_that_resumes_needs_no_thread_and_goes_on_in_its_own() -> None:
    async with interrupted("/tools/signs") as (site, _, interrupt):
        await post(site, "/tools/signs", {"runId": "r2", "resume": [resolve(interrupt, ADA)]})
        assert (await record_of(site, "r2"))["threadId"] == "t"


@PATHS
async def test_a_question_inside_an_open_run_is_no_interrupt(path: str) -> None:
    async with interrupted(path, asks) as (site, gates, interrupt):
        stream = Reader(await site.open("/tools/asks", {"runId": "open", "threadId": "t"}, ME))
        waiting = await asked(stream)
        refused = await send(site, path, body_of(path, "r2", resolve(waiting["interruptId"], ADA)))
        error_of(refused, 404, "interrupt_not_found")
        closed = await answer(site, interrupt["id"], ADA)
        error_of(closed, 409, "interrupt_closed")
        await answered(site, waiting, ADA, run="open")
        await stream.rest()
        await still_open(site, path, gates, interrupt)


# -- what it must say --


@tool
async def signs_too(ctx: ToolContext) -> Any:
    """Asks as well."""
    return ctx.interrupt("And you?").payload


async def test_a_resume_names_every_open_question_of_its_run() -> None:
    async with serving(signs, signs_too, context=Gates()) as site:
        messages = ask(("c1", "signs", {}), ("c2", "signs_too", {}))
        first, second = interrupts_of(await post(site, "/agents/tools", agent_body(messages, runId="r")))
        for one, other in ((resolve(first, ADA), second), (resolve(second), first)):
            for entry in (one, {**one, "status": "cancelled"}):
                body = agent_body(messages, runId="r2", resume=[entry])
                error = error_of(await send(site, "/agents/tools", body), 400, "invalid_request")
                assert other["id"] in error["message"]
                assert error["details"] == [{"field": "resume", "message": f"does not name {other['id']}"}]
        body = agent_body(messages, runId="r2", resume=[resolve(second, 5), resolve(first, ADA)])
        events = await post(site, "/agents/tools", body)
    assert (gave(events, "c1")["name"], gave(events, "c2")) == ("Ada", {"result": 5})


@PATHS
async def test_a_resume_is_of_one_run_and_names_nothing_twice(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        await site.client.post("/runs/r/stop", headers=SOMEBODY_ELSE)
        (other,) = interrupts_of(await post(site, path, body_of(path, "other", thread="u", call="d")))
        twice = [resolve(interrupt, ADA), resolve(interrupt, ADA)]
        for entries in (twice, [twice[0], resolve(other, ADA)], [resolve(interrupt), resolve(interrupt["id"])]):
            refused = await send(site, path, body_of(path, "r2", *entries))
            error = error_of(refused, 400, "invalid_request")
            assert error["details"][0]["field"] == "resume"
        unknown = body_of(path, "r2", resolve(interrupt, ADA), resolve("int_nothing", ADA))
        error = error_of(await send(site, path, unknown), 404, "interrupt_not_found")
        assert error["details"][0]["field"] == "resume.1.interruptId"
        await still_open(site, path, gates, interrupt)


NO_RESUME: dict[str, Any] = {
    "an object": {},
    "a text": "ID",
    "a list of texts": ["ID"],
    "no id": [{"status": "resolved"}],
    "no status": [{"interruptId": "ID"}],
    "an unknown status": [{"interruptId": "ID", "status": "approved"}],
    "an id that is a number": [{"interruptId": 5, "status": "resolved"}],
    "an empty id": [{"interruptId": "", "status": "resolved"}],
}


@PATHS
@pytest.mark.parametrize("kind", NO_RESUME)
async def test_what_is_no_resume_is_a_bad_request(path: str, kind: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        body = body_of(path, "r2", "placeholder")
        body["resume"] = NO_RESUME[kind]
        error = error_of(await send(site, path, body), 400, "invalid_request")
        assert error["details"][0]["field"].startswith("resume")
        await still_open(site, path, gates, interrupt)


async def test_an_empty_resume_answers_nothing() -> None:
    async with interrupted("/tools/signs") as (site, gates, interrupt):
        events = await post(site, "/tools/signs", {"runId": "new", "threadId": "u", "resume": []})
        assert interrupts_of(events)[0]["id"] != interrupt["id"]
        nothing = agent_body([], runId="r2", resume=[])
        error_of(await send(site, "/agents/tools", nothing), 400, "invalid_request")
        await still_open(site, "/tools/signs", gates, interrupt)


MISFITS = [None, "Ada", {"name": 5}, {"name": ""}, {}, {"name": "Ada", "more": 1}]


@PATHS
@pytest.mark.parametrize("payload", MISFITS)
async def test_an_answer_that_breaks_the_schema_is_refused_and_the_question_stays_open(path: str, payload: Any) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        refused = await send(site, path, body_of(path, "r2", resolve(interrupt, payload)))
        error = error_of(refused, 422, "invalid_payload")
        assert error["details"][0]["field"].startswith("resume.0.payload")
        assert (await site.client.get("/runs/r2", headers=ME)).status_code == 404
        await still_open(site, path, gates, interrupt, run="r2")


# -- once, and in time --


@PATHS
async def test_a_question_is_resolved_once_and_cancelled_is_still_taken_but_runs_nothing(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        await post(site, path, body_of(path, "r2", resolve(interrupt, ADA)))
        for payload in (ADA, {"name": "Eve"}):
            refused = await send(site, path, body_of(path, "r3", resolve(interrupt, payload)))
            error_of(refused, 409, "interrupt_answered")
        events = await post(site, path, body_of(path, "r3", resolve(interrupt, status="cancelled")))
        result = next(event["value"] for event in events if event.get("name") == "tool.result")
        assert result["status"] == "interrupted"
        assert gates.executions["signs"] == 1


@PATHS
async def test_an_expired_question_can_only_be_cancelled(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with interrupted(path, interrupt_ttl=100) as (site, gates, interrupt):
        monkeypatch.setattr("gateway.http.resume.time", lambda: time() + 101)
        refused = await send(site, path, body_of(path, "r2", resolve(interrupt, ADA)))
        error_of(refused, 410, "interrupt_expired")
        assert gates.executions["signs"] == 0
        events = await post(site, path, body_of(path, "r2", resolve(interrupt, status="cancelled")))
        assert gave(events)["status"] == "cancelled"


@PATHS
async def test_a_question_that_will_expire_soon_can_still_be_answered(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with interrupted(path, interrupt_ttl=100) as (site, gates, interrupt):
        monkeypatch.setattr("gateway.http.resume.time", lambda: time() + 90)
        await still_open(site, path, gates, interrupt)


# -- sent again --


@PATHS
async def test_the_same_post_attaches_while_it_runs_and_afterwards_and_runs_nothing_twice(path: str) -> None:
    gates = Gates()

    @tool(name="signs")
    async def signs_slowly(ctx: ToolContext) -> str:
        """Asks, then waits."""
        ctx.interrupt(QUESTION, NAME)
        gates.executions["signs"] += 1
        ctx.emit_custom_event("again", {})
        await gates["end"].wait()
        return "signed"

    async with serving(signs_slowly) as site:
        (interrupt,) = interrupts_of(await post(site, path, body_of(path, "r")))
        body = body_of(path, "r2", resolve(interrupt, ADA))
        streams = [Reader(await site.open(path, body, ME)) for _ in range(3)]
        for stream in streams:
            await stream.until("again")
        gates["end"].set()
        whole = [await stream.rest() for stream in streams]
        assert whole[0] == whole[1] == whole[2]
        assert events_of((await send(site, path, body)).content) == whole[0]
    assert gates.executions["signs"] == 1


@PATHS
@pytest.mark.parametrize("headers", [{}, JSON], ids=["stream", "json"])
async def test_the_same_post_at_once_is_one_run(path: str, headers: dict[str, str]) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        body = body_of(path, "r2", resolve(interrupt, {"name": "x" * 50_000}))
        given = await asyncio.gather(*(send(site, path, body, ME | headers) for _ in range(20)))
        assert [one.status_code for one in given] == [200] * 20
        assert gates.executions["signs"] == 1
        assert len({one.content.partition(b"\n\n")[2] for one in given}) == 1


@PATHS
async def test_the_same_post_runs_nothing_again_when_its_run_is_no_longer_kept(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with interrupted(path, run_ttl=100, interrupt_ttl=1_000) as (site, gates, interrupt):
        body = body_of(path, "r2", resolve(interrupt, ADA))
        await post(site, path, body)
        monkeypatch.setattr(site.engine.store, "_clock", lambda: time() + 200)
        assert (await site.client.get("/runs/r2", headers=ME)).status_code == 404
        error_of(await send(site, path, body), 409, "interrupt_answered")
        assert gates.executions["signs"] == 1


@PATHS
async def test_the_same_run_with_another_answer_is_a_conflict(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        await post(site, path, body_of(path, "r2", resolve(interrupt, ADA)))
        other = body_of(path, "r2", resolve(interrupt, {"name": "Eve"}))
        error_of(await send(site, path, other), 409, "run_conflict")
        error_of(await send(site, path, body_of(path, "r", resolve(interrupt, ADA))), 409, "run_conflict")
        assert gates.executions["signs"] == 1


@PATHS
@pytest.mark.parametrize("headers", [{}, JSON], ids=["stream", "json"])
async def test_of_many_runs_that_resume_one_question_at_once_exactly_one_runs_the_tool(
    path: str, headers: dict[str, str]
) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        bodies = [body_of(path, f"r{number}", resolve(interrupt, {"name": f"n{number}"})) for number in range(20)]
        given = await asyncio.gather(*(send(site, path, body, ME | headers) for body in bodies))
        accepted = [number for number, one in enumerate(given) if one.status_code == 200]
        assert len(accepted) == 1
        for number, one in enumerate(given):
            if number not in accepted:
                error_of(one, 409, "interrupt_answered")
                assert (await site.client.get(f"/runs/r{number}", headers=ME)).status_code == 404
        assert gates.executions["signs"] == 1
        assert f"n{accepted[0]}" in given[accepted[0]].text


@PATHS
async def test_resume_and_stop_at_once_come_to_one_end_or_the_other(path: str) -> None:
    for number in range(10):
        async with interrupted(path) as (site, gates, interrupt):
            body = body_of(path, "r2", resolve(interrupt, ADA))
            resuming_, stopping = send(site, path, body), site.client.post("/runs/r/stop", headers=ME)
            both = (resuming_, stopping) if number % 2 else (stopping, resuming_)
            given = await asyncio.gather(*both)
            resumed, stopped = given if number % 2 else given[::-1]
            assert stopped.status_code == 200
            record = await record_of(site)
            if resumed.status_code == 200:
                assert (record["status"], gates.executions["signs"]) == ("interrupted", 1)
            else:
                assert resumed.json()["error"]["code"] in ("interrupt_closed", "interrupt_answered")
                assert (record["status"], gates.executions["signs"]) == ("cancelled", 0)


# -- refused for other reasons --


async def refused_then(
    site: Site, path: str, gates: Gates, interrupt: Any, status: int, code: str, clear: Callable[[], Any]
) -> None:
    """A resume is refused so, and taken once what it was refused for is over."""
    error_of(await send(site, path, body_of(path, "later", resolve(interrupt, ADA))), status, code)
    await clear()
    await still_open(site, path, gates, interrupt)


@PATHS
@pytest.mark.parametrize("limit", ["max_runs", "max_runs_per_session"])
async def test_a_resume_that_is_one_run_too_many_consumes_nothing(path: str, limit: str) -> None:
    async with interrupted(path, waits, **{limit: 1}) as (site, gates, interrupt):
        stream = Reader(await site.open("/tools/waits", {"runId": "busy", "arguments": {"name": "go"}}, ME))
        await stream.until("came")

        async def clear() -> None:
            gates["go"].set()
            await stream.rest()
            await quiet(lambda: not site.engine.supervisor.active)

        await refused_then(site, path, gates, interrupt, 429, "too_many_runs", clear)


@PATHS
async def test_a_resume_while_draining_consumes_nothing(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        site.engine.supervisor.draining = True

        async def clear() -> None:
            site.engine.supervisor.draining = False

        await refused_then(site, path, gates, interrupt, 503, "draining", clear)


@PATHS
async def test_a_resume_for_which_the_store_has_no_room_consumes_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> Any:
        raise Unavailable("The store is full.", code="store_full")

    async with interrupted(path) as (site, gates, interrupt):
        with monkeypatch.context() as patch:
            patch.setattr(site.engine.store, "create", full)
            error_of(await send(site, path, body_of(path, "r2", resolve(interrupt, ADA))), 503, "store_full")
        await still_open(site, path, gates, interrupt)


@PATHS
async def test_a_post_that_only_reads_resumes_nothing(path: str) -> None:
    async with interrupted(path) as (site, gates, interrupt):
        reading = ME | {"last-event-id": "1"}
        body = body_of(path, "r2", resolve(interrupt, ADA))
        error_of(await send(site, path, body, reading), 404, "run_not_found")
        await still_open(site, path, gates, interrupt)
        body = body_of(path, "later", resolve(interrupt, ADA))
        assert (await send(site, path, body, reading)).status_code == 200


# -- what is resumed is what was asked about --


async def test_a_tool_run_may_repeat_its_call_and_not_change_it() -> None:
    async with interrupted("/tools/signs", echo) as (site, gates, interrupt):
        entry = resolve(interrupt, ADA)
        changed: dict[str, Any] = {
            "arguments": {"text": "another letter"},
            "toolCallId": "d",
        }
        for field, value in changed.items():
            body = {"runId": "r2", "resume": [entry], field: value}
            error = error_of(await send(site, "/tools/signs", body), 400, "invalid_request")
            assert [item["field"] for item in error["details"]] == [field]
        other = await send(site, "/tools/echo", {"runId": "r2", "resume": [entry]})
        assert error_of(other, 400, "invalid_request")["details"][0]["field"] == "resume"
        assert gates.executions["signs"] == 0
        same = {"runId": "r2", "resume": [entry], "arguments": {}, "toolCallId": "c"}
        assert gave(await post(site, "/tools/signs", same))["text"] == "a letter"


async def test_a_run_of_several_calls_is_not_resumed_as_one_of_a_tool() -> None:
    async with serving(signs, context=Gates()) as site:
        messages = ask(("c1", "signs", {}), ("c2", "signs", {}))
        both = interrupts_of(await post(site, "/agents/tools", agent_body(messages, runId="r")))
        entries = [resolve(one, ADA) for one in both]
        refused = await send(site, "/tools/signs", {"runId": "r2", "resume": entries})
        error_of(refused, 400, "invalid_request")
        events = await post(site, "/agents/tools", agent_body(messages, runId="r2", resume=entries))
    assert [gave(events, call)["name"] for call in ("c1", "c2")] == ["Ada", "Ada"]


async def test_a_tool_that_has_gone_since_is_not_found_or_unavailable_and_can_be_stopped() -> None:
    @tool
    async def hides(ctx: ToolContext) -> None:
        """Takes the other one away."""
        await ctx.disable_tools(["signs"])

    async with interrupted("/tools/signs", hides) as (site, gates, interrupt):
        await post(site, "/tools/hides", {})
        entry = resolve(interrupt, ADA)
        error_of(await send(site, "/tools/signs", {"runId": "r2", "resume": [entry]}), 404, "tool_not_found")
        body = agent_body([], runId="r2", resume=[entry])
        events = await post(site, "/agents/tools", body)
        result = next(event["value"] for event in events if event.get("name") == "tool.result")
        assert (result["status"], gates.executions["signs"]) == ("unavailable", 0)


async def test_who_waits_for_a_json_answer_of_a_resume_has_it_when_the_tool_has_it() -> None:
    async with interrupted("/tools/signs") as (site, _, interrupt):
        async with asyncio.timeout(LONG):
            body = {"runId": "r2", "resume": [resolve(interrupt, ADA)]}
            said = (await send(site, "/tools/signs", body, ME | JSON)).json()
    assert said["structuredContent"]["name"] == "Ada"
