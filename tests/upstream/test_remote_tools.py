"""The gateway's tools, given to agents behind URLs: run in the gateway, streamed, told to the agent in a new run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway import RemoteAgent, ToolContext, tool
from tests.http.asking import Gates, Reader, agent_body, echo, waits
from tests.http.site import ME, serving
from tests.upstream.backend import LONG, Answer, Asked, answering, call_events, finished, started, text
from tests.upstream.test_relay import USER, play

ECHO = json.dumps({"text": "hi"})


def results(asked: Asked) -> dict[str, str]:
    """The tool messages of a request by call."""
    return {message["toolCallId"]: message["content"] for message in asked.messages if message["role"] == "tool"}


async def calls_echo(asked: Asked, answer: Answer) -> None:
    """Calls a tool, then says what it got."""
    if not results(asked):
        await answer.events(
            started(asked), *text("m1", "Let me ", "see."), *call_events("c1", "echo", ECHO, "m1"), finished(asked)
        )
        return
    await answer.events(started(asked), *text("m2", results(asked)["c1"]), finished(asked, result=7))


def shown(events: list[dict[str, Any]]) -> list[str]:
    return [event.get("name", event["type"]) for event in events]


async def test_a_tool_of_the_gateway_runs_within_the_run_and_its_result_goes_to_the_agent() -> None:
    async with answering(calls_echo) as backend, serving(echo, agents={"support": backend.url}) as site:
        events = await play(site, state={"n": 1})
    assert shown(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "tool.result",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert events[-1]["result"] == 7
    first, second = backend.asked
    assert first.tools == second.tools == ["echo"]
    assert first.body["tools"][0]["parameters"]["properties"]["text"]["type"] == "string"
    assert first.body["runId"] == "r"
    assert second.body["runId"] not in ("r", "")
    assert (second.body["parentRunId"], second.body["threadId"]) == ("r", "t")
    call = {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": ECHO}}
    assert second.messages == [
        *USER,
        {"id": "m1", "role": "assistant", "content": "Let me see.", "toolCalls": [call]},
        {"id": "c1:result", "role": "tool", "toolCallId": "c1", "content": '{"text":"hi"}'},
    ]
    assert second.body["state"] == {"n": 1}


async def test_the_next_request_has_the_state_that_the_agent_has_made() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), finished(asked))
            return
        await answer.events(
            started(asked),
            {"type": "STATE_SNAPSHOT", "snapshot": {"list": []}},
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/list/-", "value": "a/b"}]},
            {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/not/there"}]},
            *call_events("c1", "echo", ECHO),
            finished(asked),
        )

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        await play(site)
    assert backend.asked[1].body["state"] == {"list": ["a/b"]}


async def test_the_next_request_and_the_thread_have_what_the_agent_has_encrypted() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), finished(asked))
            return
        encrypted = {"type": "REASONING_ENCRYPTED_VALUE", "encryptedValue": "secret"}
        await answer.events(
            started(asked),
            {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
            {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "Hm."},
            {"type": "REASONING_MESSAGE_END", "messageId": "r"},
            {**encrypted, "subtype": "message", "entityId": "r"},
            *call_events("c1", "echo", ECHO),
            {**encrypted, "subtype": "tool-call", "entityId": "c1"},
            finished(asked),
        )

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        await play(site)
        thread = (await site.client.get("/threads/t", headers=ME)).json()
    for messages in (backend.asked[1].messages, thread["messages"]):
        thought = next(message for message in messages if message["role"] == "reasoning")
        assert (thought["content"], thought["encryptedValue"]) == ("Hm.", "secret")
        [call] = next(message["toolCalls"] for message in messages if "toolCalls" in message)
        assert (call["id"], call["encryptedValue"]) == ("c1", "secret")


async def test_a_frontends_tool_of_the_same_name_wins_and_is_left_to_it() -> None:
    theirs = {"name": "echo", "description": "The page's.", "parameters": {"type": "object"}}
    async with answering(calls_echo) as backend, serving(echo, agents={"support": backend.url}) as site:
        events = await play(site, tools=[theirs])
    (asked,) = backend.asked
    assert asked.body["tools"] == [theirs]
    assert "TOOL_CALL_RESULT" not in shown(events)


async def test_calls_of_both_kinds_in_one_turn_leave_the_frontends_ones_pending() -> None:
    theirs = {"name": "pick", "description": "The page's.", "parameters": {"type": "object"}}

    async def script(asked: Asked, answer: Answer) -> None:
        calls = [*call_events("c1", "echo", ECHO), *call_events("c2", "pick")]
        await answer.events(started(asked), *calls, finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        events = await play(site, tools=[theirs])
        assert len(backend.asked) == 1
    assert [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["c1"]
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c2"]}


async def test_an_agent_is_offered_the_tools_that_it_may_have() -> None:
    async with answering(calls_echo) as backend:
        agents = {
            "none": RemoteAgent(backend.url, tools=False),
            "one": RemoteAgent(backend.url, tools=["waits", "gone"]),
        }
        async with serving(echo, waits, agents=agents) as site:
            events = await play(site, "none")
            await play(site, "one", runId="r2")
    assert [asked.tools for asked in backend.asked] == [[], ["waits"]]
    assert "TOOL_CALL_RESULT" not in shown(events)


async def test_stop_reaches_a_tool_that_an_agent_has_called_and_the_agent_is_not_called_again() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        calls = [*call_events("c1", "waits"), *call_events("c2", "echo", ECHO)]
        await answer.events(started(asked), *calls, finished(asked))

    gates = Gates()
    async with (
        answering(script) as backend,
        serving(waits, echo, agents={"support": backend.url}, context=gates) as site,
    ):
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        await stream.until("came")
        await site.client.post("/runs/r/stop", headers=ME)
        events = await stream.rest()
        assert len(backend.asked) == 1
    ended = {e["value"]["toolCallId"]: e["value"]["status"] for e in events if e.get("name") == "tool.result"}
    assert ended == {"c1": "cancelled", "c2": "completed"}
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_stop_while_the_agent_still_speaks_answers_the_calls_that_it_has_made() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), *call_events("c1", "echo", ECHO), *text("m", "and")[:2])
        await answer.left()

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=Gates()) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        await stream.until("TEXT_MESSAGE_CONTENT")
        await site.client.post("/runs/r/stop", headers=ME)
        events = await stream.rest()
    assert shown(events)[-4:] == ["TEXT_MESSAGE_END", "tool.result", "TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert events[-2]["content"].startswith("Error [cancelled]")


async def test_an_agent_that_breaks_off_gets_no_call_made_but_each_is_answered() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), *call_events("c1", "echo", ECHO))
        answer.reset()
        raise ConnectionResetError

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        events = await play(site)
    assert not gates.executions
    assert events[-2]["content"].startswith("Error [interrupted]")
    assert events[-1]["code"] == "upstream_disconnected"


async def test_an_agent_that_never_has_enough_is_stopped_at_the_limit() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), *call_events(f"c{len(results(asked))}", "echo", ECHO), finished(asked))

    agents = {}
    async with answering(script) as backend:
        agents["support"] = backend.url
        async with serving(echo, agents=agents, max_agent_turns=3) as site:
            events = await play(site)
        assert len(backend.asked) == 3
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "too_many_turns")


def tool_messages(asked: Asked) -> list[dict[str, Any]]:
    return [message for message in asked.messages if message["role"] == "tool"]


async def test_an_id_that_an_agent_uses_again_is_another_call_and_the_agents_own_again_for_the_agent() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        number = len(tool_messages(asked))
        calls = call_events("c1", "echo", json.dumps({"text": str(number)})) if number < 2 else []
        await answer.events(started(asked), *calls, finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        events = await play(site)
        assert len(backend.asked) == 3
    assert [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == ["c1", "c1~2"]
    told = [(message["toolCallId"], message["content"]) for message in tool_messages(backend.asked[2])]
    assert told == [("c1", '{"text":"0"}'), ("c1", '{"text":"1"}')]


async def test_calls_of_one_id_in_one_answer_are_made_each_and_one_that_is_told_twice_once() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if tool_messages(asked):
            await answer.events(started(asked), finished(asked))
            return
        texts = ("a", "b", "a")
        calls = [event for each in texts for event in call_events("c1", "echo", json.dumps({"text": each}))]
        await answer.events(started(asked), *calls, finished(asked))

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        events = await play(site)
    got = {e["toolCallId"]: e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"}
    assert got == {"c1": '{"text":"a"}', "c1~2": '{"text":"b"}', "c1~3": '{"text":"a"}'}
    assert gates.executions["r"] == 2


async def test_a_call_whose_id_no_path_can_hold_is_made_once_though_a_snapshot_names_it_again() -> None:
    odd = "call/with slash"

    async def script(asked: Asked, answer: Answer) -> None:
        if tool_messages(asked):
            await answer.events(started(asked), finished(asked))
            return
        call = {"id": odd, "type": "function", "function": {"name": "echo", "arguments": ECHO}}
        snapshot = [*USER, {"id": "a", "role": "assistant", "toolCalls": [call]}]
        calls = call_events(odd, "echo", ECHO, "a")
        told = {"type": "MESSAGES_SNAPSHOT", "messages": snapshot}
        await answer.events(started(asked), *calls, told, finished(asked))

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        events = await play(site)
    assert gates.executions["r"] == 1
    (name,) = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert "/" not in name
    (snapshot,) = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    assert snapshot["messages"][-1]["toolCalls"][0]["id"] == name
    (message,) = tool_messages(backend.asked[1])
    assert message["toolCallId"] == odd


async def test_a_call_that_is_stopped_while_its_agent_still_speaks_is_never_made() -> None:
    go = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if tool_messages(asked):
            await answer.events(started(asked), finished(asked))
            return
        await answer.events(
            started(asked), *call_events("c1", "echo", ECHO), *call_events("c2", "echo", ECHO[:-1] + " }")
        )
        await go.wait()
        await answer.events(finished(asked))

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        for _ in range(2):
            await stream.until("TOOL_CALL_END")
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 202
        go.set()
        await stream.rest()
        record = (await site.client.get("/runs/r", headers=ME)).json()
    assert [call["status"] for call in record["toolCalls"]] == ["cancelled", "completed"]
    assert gates.executions["r"] == 1
    assert results(backend.asked[1])["c1"].startswith("Error [cancelled]")


async def test_a_call_that_the_agent_asks_the_person_about_is_not_made_before_the_answer() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if "resume" in asked.body:
            await answer.events(started(asked), *text("m", "Good"), finished(asked))
            return
        interrupt = {"id": "i", "reason": "tool_call", "toolCallId": "c1"}
        outcome = {"type": "interrupt", "interrupts": [interrupt]}
        await answer.events(started(asked), *call_events("c1", "echo", ECHO), finished(asked, outcome=outcome))

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        events = await play(site)
        record = (await site.client.get("/runs/r", headers=ME)).json()
    assert not gates.executions
    assert [each["toolCallId"] for each in events[-1]["outcome"]["interrupts"]] == ["c1"]
    assert [call["status"] for call in record["toolCalls"]] == ["interrupted"]


@pytest.mark.parametrize("ends", ["by a Stop", "by its agent's failure"])
async def test_every_call_of_an_agent_has_a_result_when_its_run_ends_before_its_time(ends: str) -> None:
    theirs = {"name": "pick", "description": "The page's.", "parameters": {"type": "object"}}

    async def script(asked: Asked, answer: Answer) -> None:
        calls = [event for name in ("pick", "echo", "own") for event in call_events(name, name)]
        await answer.events(started(asked), *calls, *text("m", "and")[:2])
        if ends == "by a Stop":
            await answer.left()
        answer.reset()
        raise ConnectionResetError

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER, tools=[theirs]), ME))
        await stream.until("TEXT_MESSAGE_CONTENT")
        if ends == "by a Stop":
            await site.client.post("/runs/r/stop", headers=ME)
        events = await stream.rest()
    got = {e["toolCallId"]: e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"}
    assert set(got) == {"pick", "echo", "own"}
    code = "cancelled" if ends == "by a Stop" else "interrupted"
    assert all(content.startswith(f"Error [{code}]") for content in got.values())


async def test_arguments_that_are_no_json_fail_the_call_and_the_agent_hears_of_it() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), finished(asked))
        else:
            await answer.events(started(asked), *call_events("c1", "echo", '{"text": '), finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        await play(site)
    assert results(backend.asked[1])["c1"].startswith("Error [invalid_arguments]")


@tool(timeout=0)
async def asks(ctx: ToolContext) -> Any:
    """Asks for a name."""
    answer = ctx.interrupt("Which name?", key="name")
    return {"name": answer.payload}


async def test_a_tool_that_asks_ends_the_run_and_is_made_again_with_its_answer() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), *text("m", results(asked)["c1"]), finished(asked))
        else:
            await answer.events(started(asked), *call_events("c1", "asks", "{}", "a"), finished(asked))

    async with answering(script) as backend, serving(asks, agents={"support": backend.url}) as site:
        events = await play(site)
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert interrupt["toolCallId"] == "c1"
        call = {"id": "c1", "type": "function", "function": {"name": "asks", "arguments": "{}"}}
        history: list[dict[str, Any]] = [*USER, {"id": "a", "role": "assistant", "toolCalls": [call]}]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "Ada"}]
        body = agent_body(history, runId="r2", resume=resume)
        done = await site.client.post("/agents/support", json=body, headers=ME)
        assert b"Ada" in done.content
    assert "resume" not in backend.asked[1].body
    assert results(backend.asked[1]) == {"c1": '{"name":"Ada"}'}


async def test_questions_of_the_agent_and_of_a_tool_end_the_run_together() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), *text("m", "Good"), finished(asked))
            return
        outcome = {"type": "interrupt", "interrupts": [{"id": "own", "reason": "confirmation"}]}
        await answer.events(started(asked), *call_events("c1", "asks", "{}", "a"), finished(asked, outcome=outcome))

    async with answering(script) as backend, serving(asks, agents={"support": backend.url}) as site:
        events = await play(site)
        interrupts = {item["reason"]: item["id"] for item in events[-1]["outcome"]["interrupts"]}
        assert len(interrupts) == 2
        call = {"id": "c1", "type": "function", "function": {"name": "asks", "arguments": "{}"}}
        history: list[dict[str, Any]] = [*USER, {"id": "a", "role": "assistant", "toolCalls": [call]}]
        resume = [{"interruptId": each, "status": "resolved", "payload": "Ada"} for each in interrupts.values()]
        body = agent_body(history, runId="r2", resume=resume)
        done = await site.client.post("/agents/support", json=body, headers=ME)
        assert done.status_code == 200
    assert [entry["interruptId"] for entry in backend.asked[1].body["resume"]] == ["own"]
    assert list(results(backend.asked[1])) == ["c1"]


async def test_a_page_runs_the_frontends_tools_within_the_run_when_it_says_so() -> None:
    theirs = {"name": "pick", "description": "The page's.", "parameters": {"type": "object"}}

    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), *text("m", results(asked)["c1"]), finished(asked))
        else:
            await answer.events(started(asked), *call_events("c1", "pick"), finished(asked))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        body = agent_body(USER, tools=[theirs], forwardedProps={"gateway": {"pageTools": True}})
        stream = Reader(await site.open("/agents/support", body, ME))
        await stream.until("tool.requested")
        claimed = await site.client.post("/runs/r/tool-calls/c1/claim", json={}, headers=ME)
        output = {"content": [{"type": "text", "text": "picked"}]}
        answer = {"claimId": claimed.json()["claimId"], "output": output}
        assert (await site.client.post("/runs/r/tool-calls/c1/result", json=answer, headers=ME)).status_code < 300
        await stream.rest()
    assert results(backend.asked[1]) == {"c1": "picked"}


async def test_a_hundred_runs_of_a_remote_agent_at_once_stay_apart() -> None:
    async with answering(calls_echo) as backend, serving(echo, agents={"support": backend.url}) as site:

        async def one(number: int) -> str:
            events = await play(site, runId=f"r{number}", threadId=f"t{number}")
            return str(events[-1]["runId"])

        ended = await asyncio.gather(*map(one, range(100)))
        assert sorted(ended) == sorted(f"r{number}" for number in range(100))
        assert len(backend.asked) == 200


async def test_a_call_is_in_the_runs_record_while_the_agent_still_speaks() -> None:
    go = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if results(asked):
            await answer.events(started(asked), finished(asked))
            return
        await answer.events(started(asked), *call_events("c1", "echo", ECHO), *call_events("c2", "theirs"))
        await go.wait()
        await answer.events(finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        for _ in range(2):
            await stream.until("TOOL_CALL_END")
        record = (await site.client.get("/runs/r", headers=ME)).json()
        go.set()
        await stream.rest()
        over = (await site.client.get("/runs/r", headers=ME)).json()
    assert record["toolCalls"] == [{"toolCallId": "c1", "toolName": "echo", "status": "pending"}]
    assert [call["status"] for call in over["toolCalls"]] == ["completed"]


async def test_a_call_that_the_agent_answers_itself_is_not_made() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        result = {"type": "TOOL_CALL_RESULT", "messageId": "x", "toolCallId": "c1", "content": "mine"}
        await answer.events(started(asked), *call_events("c1", "echo", ECHO), result, finished(asked))

    gates = Gates()
    async with answering(script) as backend, serving(echo, agents={"support": backend.url}, context=gates) as site:
        events = await play(site)
        record = (await site.client.get("/runs/r", headers=ME)).json()
    assert not gates.executions
    assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["mine"]
    assert record["toolCalls"][0]["status"] == "completed"


@tool(timeout=0)
async def long_job(ctx: ToolContext) -> str:
    """Goes on in the background when it is asked to."""
    ctx.emit_custom_event("job.began", {})
    return str(await ctx.run_detachable(ctx.context["job"].wait()))


async def test_a_tool_that_moves_to_the_background_is_told_of_in_the_agents_next_run() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.messages[-1]["role"] == "user" and len(asked.messages) == 1:
            await answer.events(started(asked), *call_events("c1", "long_job", "{}", "a"), finished(asked))
        else:
            await answer.events(started(asked), *text(f"m{len(backend.asked)}", "Fine"), finished(asked))

    gates = Gates()
    async with answering(script) as backend, serving(long_job, agents={"support": backend.url}, context=gates) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        await stream.until("job.began")
        moved = await site.client.post("/runs/r/tool-calls/c1/detach", headers=ME)
        assert moved.status_code == 202, moved.text
        await stream.rest()
        assert results(backend.asked[1])["c1"].startswith("The job moved to the background.")
        gates["job"].set()
        background = moved.json()["runId"]
        await (await site.open(f"/runs/{background}/events", None, ME)).rest()
        events = await play(site, runId="r2")
    note = "Background job c1 ended."
    assert any(event.get("delta", "").startswith(note) for event in events)
    assert next(m["content"] for m in backend.asked[2].messages if m["id"] == "c1:note").startswith(note)


async def test_the_agent_is_left_when_its_last_viewer_goes_and_the_run_is_to_end_then() -> None:
    left = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), *text("m", "half")[:2])
        await answer.left()
        left.set()

    async with answering(script) as backend, serving(agents={"support": backend.url}, disconnect_grace=0) as site:
        body = agent_body(USER, forwardedProps={"gateway": {"onDisconnect": "cancel"}})
        stream = await site.open("/agents/support", body, ME)
        await Reader(stream).until("TEXT_MESSAGE_CONTENT")
        stream.leave()
        async with asyncio.timeout(LONG):
            await left.wait()


async def test_a_run_tells_the_tokens_of_all_the_turns_of_its_agent() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        usage = [{"model": "m", "inputTokens": 10 + len(backend.asked)}]
        calls = [] if results(asked) else call_events("c1", "echo", ECHO)
        await answer.events(started(asked), *calls, finished(asked, usage=usage))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        events = await play(site)
    assert events[-1]["usage"] == [{"model": "m", "inputTokens": 11}, {"model": "m", "inputTokens": 12}]


async def test_a_state_that_would_grow_without_end_holds_nobody_up() -> None:
    doubling = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(40)]
    rows = [{"id": number, "text": "x" * 20} for number in range(2000)]
    changes = [
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": f"/rows/{number}/text", "value": "y"}]}
        for number in range(2000)
    ]

    async def script(asked: Asked, answer: Answer) -> None:
        if tool_messages(asked):
            await answer.events(started(asked), finished(asked))
            return
        snapshot = {"type": "STATE_SNAPSHOT", "snapshot": {"rows": rows}}
        too_much = {"type": "STATE_DELTA", "delta": doubling}
        await answer.events(started(asked), snapshot, *changes, too_much, *call_events("c1", "echo", ECHO))
        await answer.events(finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        await play(site)
    state = backend.asked[1].body["state"]
    assert {row["text"] for row in state["rows"]} == {"y"}
    assert set(state) == {"rows"}
