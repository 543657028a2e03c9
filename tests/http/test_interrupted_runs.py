"""Runs that have ended with a question: several calls of them, Stop, their conversation, JSON, and how long."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import RunAgentInput, TextMessageChunkEvent

from gateway import CANCELLED, ToolContext, tool
from gateway.execution.agent_context import AgentContext
from tests.http.asking import ASYNC, JSON, Gates, Reader, agent_body, ask, echo, events_of, waits
from tests.http.people import (
    END,
    HELD,
    body_of,
    books,
    check_published,
    decides,
    gave,
    interrupts_of,
    names_of,
    post,
    record_of,
    resolve,
    result_of,
    results_of,
    text_of,
)
from tests.http.site import ME, Site, serving

PATHS = pytest.mark.parametrize("path", ["/tools/books", "/agents/tools"])


async def open_in_thread(site: Site, thread: str = "t", headers: dict[str, str] = ME) -> list[tuple[str, str]]:
    """The (run, message) of the open interrupts of a thread; both views of it agree."""
    view = (await site.client.get(f"/threads/{thread}", headers=headers)).json()["interrupts"]
    hydrated = await site.client.get("/agents/tools", params={"threadId": thread}, headers=headers)
    shown = hydrated.json()["interrupts"]
    if shown is None:
        assert view == []
    else:
        of_run = [item for item in view if item["runId"] == shown["runId"]]
        assert [{**item, "runId": shown["runId"]} for item in shown["pending"]] == of_run
        assert of_run
    return [(item["runId"], item["message"]) for item in view]


# -- several calls --


@pytest.mark.parametrize("parallel", [True, False])
async def test_the_others_finish_first_and_then_one_end_has_all_interrupts(parallel: bool) -> None:
    gates = Gates()
    messages = ask(
        ("c1", "decides", {"question": "One?"}),
        ("c2", "waits", {"name": "go"}),
        ("c3", "decides", {"question": "Three?"}),
        ("c4", "echo", {"text": "four"}),
    )
    async with serving(decides, waits, echo, context=gates, parallel_tool_calls=parallel) as site:
        stream = Reader(await site.open("/agents/tools", agent_body(messages, runId="r1"), ME))
        await stream.until("came")
        record = await record_of(site, "r1")
        assert record["status"] == "running"
        assert record["toolCalls"][0]["status"] == "interrupted"
        gates["go"].set()
        first = await stream.rest()
        interrupts = interrupts_of(first)
        assert [(item["toolCallId"], item["message"]) for item in interrupts] == [("c1", "One?"), ("c3", "Three?")]
        assert set(results_of(first)) == {"c2", "c4"}
        record = await record_of(site, "r1")
        assert [call["status"] for call in record["toolCalls"]] == [
            "interrupted",
            "completed",
            "interrupted",
            "completed",
        ]
        history = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        entries = [resolve(interrupts[1], 3), resolve(interrupts[0], status="cancelled")]
        second = await post(site, "/agents/tools", agent_body(history, runId="r2", resume=entries))
    assert gave(second, "c1") == {"status": "cancelled", "payload": None}
    assert gave(second, "c3") == {"status": "resolved", "payload": 3}
    assert set(results_of(second)) == {"c1", "c3"}
    assert gates.trail == ["go came", "go went"]


async def test_what_has_finished_is_not_run_again_even_if_its_result_was_lost_on_the_way() -> None:
    gates = Gates()
    messages = ask(("c1", "echo", {"text": "once"}), ("c2", "books", {}))
    async with serving(echo, books, context=gates) as site:
        first = await post(site, "/agents/tools", agent_body(messages, runId="r1"))
        entry = resolve(interrupts_of(first)[0], "Monday")
        second = await post(site, "/agents/tools", agent_body(messages, runId="r2", resume=[entry]))
        assert interrupts_of(second)[0]["message"] == "How many?"
    assert names_of(second, "c1") == []
    assert gates.executions == {"r1": 1}


@pytest.mark.parametrize("messages", [[], [{"id": "u", "role": "user", "content": "hello"}]], ids=["empty", "other"])
async def test_a_call_that_the_history_has_lost_is_made_again_all_the_same(messages: list[Any]) -> None:
    async with serving(decides, context=Gates()) as site:
        first = await post(site, "/agents/tools", agent_body(ask(("c", "decides", {"question": "Lost?"})), runId="r1"))
        entry = resolve(interrupts_of(first)[0], "found")
        second = await post(site, "/agents/tools", agent_body(messages, runId="r2", resume=[entry]))
    assert gave(second) == {"status": "resolved", "payload": "found"}
    assert names_of(second, "c") == [*HELD, *END]


async def test_what_the_history_says_of_an_interrupted_call_does_not_count() -> None:
    gates = Gates()

    @tool
    async def deletes(ctx: ToolContext, place: str = "nowhere") -> dict[str, Any]:
        """Does what nobody asked about."""
        gates.executions["deletes"] += 1
        return {"deleted": place}

    async with serving(books, deletes, context=gates) as site:
        first = await post(site, "/agents/tools", body_of("/agents/tools", "r1", arguments={"place": "Rome"}))
        entry = resolve(interrupts_of(first)[0], "Monday")
        other = ask(("c", "deletes", {"place": "everything"}))
        second = await post(site, "/agents/tools", agent_body(other, runId="r2", resume=[entry]))
        entry = resolve(interrupts_of(second)[0], 2)
        third = await post(site, "/agents/tools", agent_body(ask(("c", "books", "{")), runId="r3", resume=[entry]))
    assert next(event for event in second if event["type"] == "TOOL_CALL_START")["toolCallName"] == "books"
    assert gave(third)["place"] == "Rome"
    assert not gates.executions["deletes"]


async def test_calls_that_came_after_the_interrupt_are_run_beside_it() -> None:
    async with serving(decides, echo, context=Gates()) as site:
        first = await post(site, "/agents/tools", agent_body(ask(("c", "decides", {})), runId="r1"))
        entry = resolve(interrupts_of(first)[0], 1)
        body = agent_body(ask(("c", "decides", {}), ("new", "echo", {"text": "x"})), runId="r2", resume=[entry])
        second = await post(site, "/agents/tools", body)
    assert (gave(second)["payload"], gave(second, "new")) == (1, {"text": "x"})


# -- Stop --


async def test_stop_of_an_interrupted_run_closes_its_questions_without_an_event() -> None:
    async with serving(decides, context=Gates()) as site:
        await post(site, "/tools/decides", {"runId": "r", "threadId": "t", "toolCallId": "c"})
        before = events_of((await site.client.get("/runs/r/events", headers=ME)).content)
        assert await open_in_thread(site) == [("r", "Yes?")]
        for _ in range(2):
            stopped = await site.client.post("/runs/r/stop", headers=ME)
            assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
            assert stopped.json()["outcome"] == {"type": "cancelled"}
        assert await open_in_thread(site) == []
        assert events_of((await site.client.get("/runs/r/events", headers=ME)).content) == before
        listed = await site.client.get("/runs", params={"status": "interrupted"}, headers=ME)
        assert listed.json()["items"] == []


@pytest.mark.parametrize("path", ["/tools/decides", "/agents/tools"])
async def test_after_stop_a_question_can_only_be_cancelled_and_the_tool_does_not_run(path: str) -> None:
    gates = Gates()
    async with serving(decides, context=gates) as site:
        first = await post(site, "/tools/decides", {"runId": "r", "threadId": "t", "toolCallId": "c"})
        (interrupt,) = interrupts_of(first)
        await site.client.post("/runs/r/stop", headers=ME)

        def body(run: str, entry: Any) -> dict[str, Any]:
            made = agent_body(ask(("c", "decides", {})), runId=run, resume=[entry])
            return made if path == "/agents/tools" else {"runId": run, "resume": [entry]}

        refused = await site.client.post(path, json=body("r2", resolve(interrupt, "yes")), headers=ME)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "interrupt_closed")
        events = await post(site, path, body("r2", resolve(interrupt, status="cancelled")))
    assert text_of(result_of(events)) == CANCELLED
    assert result_of(events)["status"] == "cancelled"
    assert names_of(events, "c") == [*HELD, *END]
    assert events[-1]["outcome"] == {"type": "success"}
    assert gates.executions["decides"] == 1


async def test_stop_while_one_call_is_parked_and_another_runs_cancels_both() -> None:
    gates = Gates()
    messages = ask(("c1", "decides", {}), ("c2", "waits", {"name": "go"}))
    async with serving(decides, waits, context=gates) as site:
        stream = Reader(await site.open("/agents/tools", agent_body(messages), ME))
        await stream.until("came")
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = await stream.rest()
        record = await record_of(site)
        assert await open_in_thread(site) == []
    results = results_of(events)
    assert {call_id: text_of(value) for call_id, value in results.items()} == {"c1": CANCELLED, "c2": CANCELLED}
    for value in results.values():
        check_published("tool.result", value)
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert [call["status"] for call in record["toolCalls"]] == ["cancelled", "cancelled"]
    assert [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_RESULT"].count("c1") == 1


async def test_stop_of_a_parked_call_alone_cancels_it_and_the_run_goes_on_without_its_question() -> None:
    gates = Gates()
    messages = ask(("c1", "decides", {}), ("c2", "waits", {"name": "go"}))
    async with serving(decides, waits, context=gates) as site:
        stream = Reader(await site.open("/agents/tools", agent_body(messages), ME))
        await stream.until("came")
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 202
        assert text_of((await stream.until("tool.result"))["value"]) == CANCELLED
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 200
        gates["go"].set()
        events = await stream.rest()
        record = await record_of(site)
    assert text_of(result_of(events, "c1")) == CANCELLED
    assert events[-1]["outcome"] == {"type": "success"}
    assert [call["status"] for call in record["toolCalls"]] == ["cancelled", "completed"]


async def test_a_call_that_an_agent_waits_for_is_not_stopped_alone_once_it_has_asked() -> None:
    gates = Gates()

    async def agent(given: RunAgentInput, ctx: AgentContext) -> AsyncGenerator[Any, None]:
        both = (ctx.call_tool("decides", {}, "c1"), ctx.call_tool("waits", {"name": "go"}, "c2"))
        await asyncio.gather(*both)
        yield TextMessageChunkEvent(message_id="m", delta="never")

    async with serving(decides, waits, agents={"agent": agent}, context=gates) as site:
        messages = [{"id": "u", "role": "user", "content": "go"}]
        stream = Reader(await site.open("/agents/agent", agent_body(messages), ME))
        await stream.until("came")
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 200
        gates["go"].set()
        events = await stream.rest()
    assert [item["toolCallId"] for item in interrupts_of(events)] == ["c1"]
    assert set(results_of(events)) == {"c2"}


async def test_what_a_stopped_call_has_asked_need_not_be_answered_by_a_resume() -> None:
    gates = Gates()
    messages = ask(("c1", "decides", {}), ("c2", "waits", {"name": "go"}), ("c3", "decides", {"question": "Three?"}))
    async with serving(decides, waits, context=gates) as site:
        stream = Reader(await site.open("/agents/tools", agent_body(messages, runId="r1"), ME))
        await stream.until("came")
        assert (await site.client.post("/runs/r1/tool-calls/c1/stop", headers=ME)).status_code == 202
        gates["go"].set()
        first = await stream.rest()
        assert [item["message"] for item in interrupts_of(first)] == ["Three?"]
        assert await open_in_thread(site) == [("r1", "Three?")]
        body = agent_body(messages, runId="r2", resume=[resolve(interrupts_of(first)[0], 3)])
        second = await post(site, "/agents/tools", body)
    assert set(results_of(second)) == {"c3"}
    assert gave(second, "c3")["payload"] == 3


async def test_a_parked_call_is_interrupted_when_the_time_of_its_run_is_up() -> None:
    messages = ask(("c1", "decides", {}), ("c2", "waits", {}))
    async with serving(decides, waits, context=Gates(), run_timeout=0.2) as site:
        events = await post(site, "/agents/tools", agent_body(messages))
        assert await open_in_thread(site) == []
    assert {value["status"] for value in results_of(events).values()} == {"interrupted"}
    assert set(results_of(events)) == {"c1", "c2"}
    assert events[-1]["code"] == "run_timeout"


async def test_a_parked_call_is_interrupted_when_the_last_viewer_leaves_if_it_was_asked_for() -> None:
    props = {"gateway": {"onDisconnect": "cancel", "disconnectGrace": 0}}
    body = agent_body(ask(("c1", "decides", {}), ("c2", "waits", {})), forwardedProps=props)
    async with serving(decides, waits, context=Gates()) as site:
        stream = Reader(await site.open("/agents/tools", body, ME))
        await stream.until("came")
        stream.stream.leave()
        record = await record_of(site, over=True)
        assert record["error"]["code"] == "interrupted"
        assert [call["status"] for call in record["toolCalls"]] == ["interrupted", "interrupted"]
        assert await open_in_thread(site) == []


async def test_stop_of_a_run_that_was_resumed_changes_nothing_any_more() -> None:
    gates = Gates()

    @tool
    async def goes_on(ctx: ToolContext) -> str:
        """Asks, then waits."""
        ctx.interrupt("Go on?")
        ctx.emit_custom_event("again", {})
        await gates["end"].wait()
        return "done"

    async with serving(goes_on) as site:
        first = await post(site, "/tools/goes_on", {"runId": "r1", "toolCallId": "c"})
        body = {"runId": "r2", "resume": [resolve(interrupts_of(first)[0])]}
        stream = Reader(await site.open("/tools/goes_on", body, ME))
        await stream.until("again")
        stopped = await site.client.post("/runs/r1/stop", headers=ME)
        assert (stopped.status_code, stopped.json()["status"]) == (200, "interrupted")
        gates["end"].set()
        assert text_of(result_of(await stream.rest())) == "done"


# -- the conversation --


@PATHS
async def test_the_thread_shows_what_is_asked_and_its_messages_once(path: str) -> None:
    async with serving(books, context=Gates()) as site:
        first = await post(site, path, body_of(path, "r1", arguments={"place": "Rome"}))
        assert await open_in_thread(site) == [("r1", "Which day?")]
        second = await post(site, path, body_of(path, "r2", [resolve(interrupts_of(first)[0], "Monday")]))
        assert await open_in_thread(site) == [("r2", "How many?")]
        await post(site, path, body_of(path, "r3", [resolve(interrupts_of(second)[0], 2)]))
        assert await open_in_thread(site) == []
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        hydrated = (await site.client.get("/agents/tools", params={"threadId": "t"}, headers=ME)).json()
    made = [call for message in messages for call in message.get("toolCalls", ())]
    assert [(call["id"], call["function"]["name"]) for call in made] == [("c", "books")]
    assert [message["role"] for message in messages if message["role"] != "user"] == ["assistant", "tool"]
    arguments = made[0]["function"]["arguments"]
    assert arguments == "{}" if path == "/agents/tools" else arguments.replace(" ", "") == '{"place":"Rome"}'
    parts = [part for message in hydrated["messages"] for part in message["parts"]]
    assert [part["type"] for part in parts if part["type"] != "text"] == ["tool-call", "tool-result"]
    assert hydrated["activeRun"] is None


async def test_nobody_else_sees_what_is_asked() -> None:
    async with serving(decides, context=Gates()) as site:
        await post(site, "/tools/decides", {"runId": "r", "threadId": "t", "toolCallId": "c"})
        for headers in ({}, {"x-session-id": "session-of-others-02"}):
            assert (await site.client.get("/threads/t", headers=headers)).status_code == 404
            shown = (await site.client.get("/agents/tools", params={"threadId": "t"}, headers=headers)).json()
            assert shown == {"messages": [], "activeRun": None, "interrupts": None}


async def test_two_runs_of_one_thread_wait_side_by_side_and_each_is_resumed_alone() -> None:
    async with serving(decides, context=Gates()) as site:
        asked_: dict[str, Any] = {}
        for run in ("r1", "r2"):
            body = {"runId": run, "threadId": "t", "toolCallId": run, "arguments": {"question": f"{run}?"}}
            asked_[run] = interrupts_of(await post(site, "/tools/decides", body))[0]
        assert await open_in_thread(site) == [("r1", "r1?"), ("r2", "r2?")]
        second = await post(site, "/tools/decides", {"runId": "r3", "resume": [resolve(asked_["r1"], 1)]})
        assert gave(second, "r1")["payload"] == 1
        assert await open_in_thread(site) == [("r2", "r2?")]


# -- JSON --


async def test_in_a_json_answer_an_interrupt_takes_the_interrupted_form_and_is_resumed_by_json() -> None:
    async with serving(books, context=Gates()) as site:

        async def call(**body: Any) -> Any:
            answer_ = await site.client.post("/tools/books", json=body, headers=ME | JSON)
            assert answer_.status_code == 200, answer_.text
            return answer_.json()

        first = await call(runId="r1", toolCallId="c", arguments={"place": "Rome"})
        assert set(first) == {"status", "interrupts", "runId", "toolCallId"}
        assert (first["status"], first["runId"], first["toolCallId"]) == ("interrupted", "r1", "c")
        assert first["interrupts"] == (await record_of(site, "r1"))["outcome"]["interrupts"]
        assert await call(runId="r1", toolCallId="c", arguments={"place": "Rome"}) == first, "it attaches"
        second = await call(runId="r2", resume=[resolve(first["interrupts"][0], "Monday")])
        assert second["interrupts"][0]["message"] == "How many?"
        third = await call(runId="r3", resume=[resolve(second["interrupts"][0], 2)])
    assert third["status"] == "completed"
    assert third["structuredContent"]["all"] == {"day": "Monday", "many": 2}
    assert third["structuredContent"]["place"] == "Rome"


async def test_a_json_caller_who_comes_back_after_stop_is_told_that_the_call_was_cancelled() -> None:
    async with serving(decides, context=Gates()) as site:
        body = {"runId": "r", "toolCallId": "c"}
        first = await site.client.post("/tools/decides", json=body, headers=ME | JSON)
        assert first.json()["status"] == "interrupted"
        await site.client.post("/runs/r/stop", headers=ME)
        again = await site.client.post("/tools/decides", json=body, headers=ME | JSON)
    assert again.status_code == 200, again.text
    assert (again.json()["status"], text_of(again.json())) == ("cancelled", CANCELLED)


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(["stream", "json", "background"], 2)))
async def test_every_kind_of_answer_resumes_every_other(before: str, after: str) -> None:
    headers: dict[str, dict[str, str]] = {"stream": {}, "json": JSON, "background": ASYNC}
    async with serving(decides, context=Gates()) as site:
        body = {"runId": "r1", "toolCallId": "c"}
        assert (await site.client.post("/tools/decides", json=body, headers=ME | headers[before])).is_success
        record = await record_of(site, "r1", over=True)
        assert record["status"] == "interrupted"
        resumed = {"runId": "r2", "resume": [resolve(record["outcome"]["interrupts"][0], "yes")]}
        assert (await site.client.post("/tools/decides", json=resumed, headers=ME | headers[after])).is_success
        assert (await record_of(site, "r2", over=True))["status"] == "completed"
        events = events_of((await site.client.get("/runs/r2/events", headers=ME)).content)
    assert gave(events)["payload"] == "yes"


# -- how long --


async def test_an_interrupted_run_is_kept_until_its_question_expires_and_a_finished_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(decides, echo, context=Gates(), run_ttl=100, interrupt_ttl=1_000) as site:
        first = await post(site, "/tools/decides", {"runId": "asks", "threadId": "t", "toolCallId": "c"})
        await post(site, "/tools/echo", {"runId": "over", "threadId": "t"})
        store: Any = site.engine.store
        clock = store._clock
        monkeypatch.setattr(store, "_clock", lambda: clock() + 500)
        assert (await site.client.get("/runs/over", headers=ME)).status_code == 404
        assert (await record_of(site, "asks"))["status"] == "interrupted"
        assert await open_in_thread(site) == [("asks", "Yes?")]
        monkeypatch.setattr(store, "_clock", lambda: clock() + 1_200)
        assert (await site.client.get("/runs/asks", headers=ME)).status_code == 404
        late = await site.client.post("/tools/decides", json={"resume": [resolve(interrupts_of(first)[0])]}, headers=ME)
        assert (late.status_code, late.json()["error"]["code"]) == (404, "interrupt_not_found")


async def test_ids_of_questions_cannot_be_guessed() -> None:
    async with serving(decides, context=Gates()) as site:
        found = [interrupts_of(await post(site, "/tools/decides", {"toolCallId": "c"}))[0]["id"] for _ in range(5)]
    assert len(set(found)) == 5
    assert all(re.fullmatch(r"int_[A-Za-z0-9_-]{24,}", item) for item in found)
