"""Interrupted runs of local agents: what was asked is answered once, its calls are made first, then the agent runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import (
    Interrupt,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    TextMessageChunkEvent,
    ToolMessage,
)

from gateway.execution.agent_context import AgentContext
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.http.asking import Gates, Reader, agent_body, error_of, events_of
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving

Events = AsyncGenerator[Any, None]
GO = [{"id": "u", "role": "user", "content": "go"}]


@tool(needs_approval=True)
async def remove(ctx: ToolContext, path: str) -> str:
    """Removes."""
    ctx.context.trail.append(f"removed {path}")
    return f"removed {path}"


@tool
async def choose(ctx: ToolContext) -> str:
    """Asks twice."""
    first = ctx.interrupt("What?", {"type": "string"}, key="what").payload
    second = ctx.interrupt("Where?", {"type": "string"}, key="where").payload
    return f"{first} in {second}"


async def cleans(given: RunAgentInput, ctx: AgentContext) -> Events:
    """Calls its tools unless they have answered."""
    ctx.context.trail.append(" ".join(message.role for message in given.messages))
    answers = [str(message.content) for message in given.messages if isinstance(message, ToolMessage)]
    if not answers:
        await asyncio.gather(
            ctx.call_tool("remove", {"path": "/a"}, "c1"), ctx.call_tool("remove", {"path": "/b"}, "c2")
        )
    yield TextMessageChunkEvent(message_id=f"of {ctx.run_id}", delta=", ".join(answers))


async def chooses(given: RunAgentInput, ctx: AgentContext) -> Events:
    if not any(isinstance(message, ToolMessage) for message in given.messages):
        await ctx.call_tool("choose", {}, "c1")
    yield TextMessageChunkEvent(message_id=f"of {ctx.run_id}", delta=str(given.messages[-1].content))


async def asks(given: RunAgentInput, ctx: AgentContext) -> Events:
    """Asks the person itself, always under one id."""
    if given.resume is None:
        interrupts = [Interrupt(id="sure", reason="confirmation", message="Sure?")]
        yield RunFinishedEvent(
            thread_id="t", run_id="r", outcome=RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
        )
    for entry in given.resume or ():
        yield TextMessageChunkEvent(
            message_id=entry.interrupt_id, delta=f"{entry.interrupt_id}: {entry.status} {entry.payload}"
        )


async def both(given: RunAgentInput, ctx: AgentContext) -> Events:
    """Asks, and calls a tool that does."""
    if given.resume is None:
        calling = asyncio.create_task(ctx.call_tool("remove", {"path": "/a"}, "c1"))
        await asyncio.sleep(0)
        async for event in asks(given, ctx):
            yield event
        await calling
    yield TextMessageChunkEvent(
        message_id="m", delta=f"{given.messages[-1].content} {[entry.payload for entry in given.resume or ()]}"
    )


async def run(site: Site, agent: str, run_id: str, messages: Any = GO, **more: Any) -> list[dict[str, Any]]:
    """Runs an agent to its end."""
    answer = await site.client.post(f"/agents/{agent}", json=agent_body(messages, runId=run_id, **more), headers=ME)
    assert answer.status_code == 200, answer.text
    return events_of(answer.content)


async def held(site: Site, thread: str = "t") -> Any:
    """The history as a client holds it."""
    return (await site.client.get(f"/threads/{thread}", headers=ME)).json()["messages"]


def asked(events: list[dict[str, Any]]) -> dict[str, str]:
    """The interrupts that a run ended with: by the call, or their own id, of those without one."""
    assert events[-1]["outcome"]["type"] == "interrupt"
    return {item.get("toolCallId", item["id"]): item["id"] for item in events[-1]["outcome"]["interrupts"]}


def answer(interrupt_id: str, payload: Any = None, status: str = "resolved") -> dict[str, Any]:
    return {"interruptId": interrupt_id, "status": status, **({} if payload is None else {"payload": payload})}


def said(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


# -- calls of tools --


async def test_a_resume_makes_the_calls_first_and_the_agent_gets_their_results() -> None:
    gates = Gates()
    async with serving(remove, agents={"cleans": cleans}, context=gates) as site:
        ids = asked(await run(site, "cleans", "r1"))
        assert list(ids) == ["c1", "c2"]
        resume = [
            answer(ids["c1"], {"approved": True, "arguments": {"path": "/c"}}),
            answer(ids["c2"], {"approved": False}),
        ]
        events = await run(site, "cleans", "r2", await held(site), resume=resume)
        assert gates.trail == ["user", "removed /c", "user assistant tool assistant tool"]
        assert said(events) == "removed /c, Error [denied]: The person declined this call."
        types = [event.get("name", event["type"]) for event in events]
        assert types.index("TEXT_MESSAGE_START") > max(i for i, kind in enumerate(types) if kind == "TOOL_CALL_RESULT")
        assert "TOOL_CALL_ARGS" not in types
        assert {event["parentMessageId"] for event in events if event["type"] == "TOOL_CALL_START"} == {"c1", "c2"}
        record = (await site.client.get("/runs/r2", headers=ME)).json()
        assert {call["toolCallId"]: call["status"] for call in record["toolCalls"]} == {
            "c1": "completed",
            "c2": "failed",
        }


async def test_a_client_that_keeps_no_history_resumes_too() -> None:
    gates = Gates()
    async with serving(remove, agents={"cleans": cleans}, context=gates) as site:
        ids = asked(await run(site, "cleans", "r1"))
        resume = [answer(ids[call], {"approved": True}) for call in ids]
        events = await run(site, "cleans", "r2", resume=resume)
        assert gates.trail[1:3] in (["removed /a", "removed /b"], ["removed /b", "removed /a"])
        assert gates.trail[-1] == "user assistant tool assistant tool"
        assert said(events) == "removed /a, removed /b"


async def test_a_call_that_asks_again_ends_the_run_again_and_the_agent_does_not_begin() -> None:
    async with serving(choose, agents={"chooses": chooses}) as site:
        first = asked(await run(site, "chooses", "r1"))
        events = await run(site, "chooses", "r2", await held(site), resume=[answer(first["c1"], "tea")])
        second = asked(events)
        assert said(events) == ""
        events = await run(site, "chooses", "r3", await held(site), resume=[answer(second["c1"], "London")])
        assert said(events) == "tea in London"


async def test_stop_of_a_run_that_makes_calls_again_answers_them_and_leaves_the_agent_alone() -> None:
    gates = Gates()

    @tool
    async def waits_then(ctx: ToolContext) -> str:
        ctx.interrupt("Go on?")
        ctx.emit_custom_event("again", {})
        await ctx.context["never"].wait()
        return "never"

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        ctx.context.executions["agent"] += 1
        await ctx.call_tool("waits_then", {}, "c1")
        yield TextMessageChunkEvent(message_id="m", delta="never")

    async with serving(waits_then, agents={"agent": agent}, context=gates) as site:
        ids = asked(await run(site, "agent", "r1"))
        body = agent_body(GO, runId="r2", resume=[answer(ids["c1"], "yes")])
        stream = Reader(await site.open("/agents/agent", body, ME))
        await stream.until("again")
        await site.client.post("/runs/r2/stop", headers=ME)
        events = await stream.rest()
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert events[-2]["type"] == "TOOL_CALL_RESULT"
        assert gates.executions == {"agent": 1}


async def test_in_an_open_run_nothing_is_interrupted() -> None:
    gates = Gates()
    async with serving(remove, agents={"cleans": cleans}, context=gates) as site:
        body = agent_body(GO, forwardedProps={"gateway": {"input": "open"}})
        stream = Reader(await site.open("/agents/cleans", body, ME))
        for _ in range(2):
            asked_now = await stream.until("tool.waiting")
            given = {"interruptId": asked_now["value"]["interruptId"], "status": "resolved"}
            path = "/runs/r/input"
            await site.client.post(path, json={**given, "payload": {"approved": True}}, headers=ME)
        events = await stream.rest()
        assert events[-1]["outcome"] == {"type": "success"}
        assert sorted(gates.trail[1:]) == ["removed /a", "removed /b"]


# -- questions of the agent itself --


async def test_an_agent_gets_the_answers_to_what_it_has_asked_itself() -> None:
    async with serving(agents={"asks": asks}) as site:
        assert asked(await run(site, "asks", "r1")) == {"sure": "sure"}
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert [(item["id"], item["runId"]) for item in thread["interrupts"]] == [("sure", "r1")]
        state = (await site.client.get("/agents/asks?threadId=t", headers=ME)).json()
        assert (state["interrupts"]["runId"], state["interrupts"]["pending"][0]["id"]) == ("r1", "sure")
        resume = [answer("sure", {"really": 1})]
        events = await run(site, "asks", "r2", resume=resume)
        assert said(events) == "sure: resolved {'really': 1}"
        assert await run(site, "asks", "r2", resume=resume) == events
        assert (await site.client.get("/threads/t", headers=ME)).json()["interrupts"] == []


async def test_an_agent_may_ask_under_one_id_in_every_conversation_and_twice_in_one() -> None:
    async with serving(agents={"asks": asks}) as site:
        for thread in ("one", "two"):
            await run(site, "asks", f"r1 of {thread}", threadId=thread)
        for thread in ("one", "two"):
            events = await run(site, "asks", f"r2 of {thread}", threadId=thread, resume=[answer("sure", thread)])
            assert said(events) == f"sure: resolved {thread}"
        await run(site, "asks", "r3 of one", threadId="one")
        events = await run(site, "asks", "r4 of one", threadId="one", resume=[answer("sure", status="cancelled")])
        assert said(events) == "sure: cancelled None"


async def test_what_both_sides_have_asked_is_answered_together() -> None:
    gates = Gates()
    async with serving(remove, agents={"both": both}, context=gates) as site:
        ids = asked(await run(site, "both", "r1"))
        assert list(ids) == ["c1", "sure"]
        partly = agent_body(GO, runId="r2", resume=[answer("sure", "yes")])
        error_of(await site.client.post("/agents/both", json=partly, headers=ME), 400, "invalid_request")
        resume = [answer(ids["c1"], {"approved": True}), answer("sure", "yes")]
        events = await run(site, "both", "r3", await held(site), resume=resume)
        assert said(events) == "removed /a ['yes']"


@tool(needs_approval=True)
async def ship(ctx: ToolContext) -> str:
    """Asks once it is allowed."""
    return f"to {ctx.interrupt('Where?', {'type': 'string'}).payload}"


async def ships(given: RunAgentInput, ctx: AgentContext) -> Events:
    """Asks, and calls a tool that is to be approved and asks then."""
    if not any(isinstance(message, ToolMessage) for message in given.messages):
        calling = asyncio.create_task(ctx.call_tool("ship", {}, "c1"))
        await asyncio.sleep(0)
        async for event in asks(given, ctx):
            yield event
        await calling
    answers = [(entry.interrupt_id, entry.status, entry.payload) for entry in given.resume or ()]
    yield TextMessageChunkEvent(message_id="m", delta=f"{given.messages[-1].content} {answers}")


@pytest.mark.parametrize("status", ["resolved", "cancelled"])
async def test_an_answer_to_the_agent_is_not_lost_when_its_call_asks_again_first(status: str) -> None:
    async with serving(ship, agents={"ships": ships}) as site:
        ids = asked(await run(site, "ships", "r1"))
        to_agent = answer(ids["sure"], "yes" if status == "resolved" else None, status)
        resume = [answer(ids["c1"], {"approved": True}), to_agent]
        again = asked(await run(site, "ships", "r2", await held(site), resume=resume))
        assert list(again) == ["c1"]
        events = await run(site, "ships", "r3", await held(site), resume=[answer(again["c1"], "London")])
        assert said(events) == f"to London {[('sure', status, to_agent.get('payload'))]}"


@pytest.mark.parametrize(
    ("headers", "agent", "thread", "status", "code"),
    [
        (SOMEBODY_ELSE, "asks", "t", 404, "interrupt_not_found"),
        ({}, "asks", "t", 404, "interrupt_not_found"),
        (ME, "other", "t", 404, "interrupt_not_found"),
        (ME, "tools", "t", 404, "interrupt_not_found"),
        (ME, "asks", "other", 404, "interrupt_not_found"),
    ],
)
async def test_nobody_else_and_no_other_agent_resumes_a_run(
    headers: dict[str, str], agent: str, thread: str, status: int, code: str
) -> None:
    async with serving(agents={"asks": asks, "other": asks}) as site:
        await run(site, "asks", "r1")
        body = agent_body(GO, runId="r2", threadId=thread, resume=[answer("sure", "yes")])
        error_of(await site.client.post(f"/agents/{agent}", json=body, headers=headers), status, code)
        assert said(await run(site, "asks", "r3", resume=[answer("sure", "yes")])) == "sure: resolved yes"


async def test_an_answer_that_comes_twice_or_too_late_is_refused_unless_it_says_cancelled() -> None:
    async with serving(agents={"asks": asks}) as site:
        await run(site, "asks", "r1")
        await run(site, "asks", "r2", resume=[answer("sure", "yes")])
        again = agent_body(GO, runId="r3", resume=[answer("sure", "no")])
        error_of(await site.client.post("/agents/asks", json=again, headers=ME), 409, "interrupt_answered")
        events = await run(site, "asks", "r4", resume=[answer("sure", status="cancelled")])
        assert said(events) == "sure: cancelled None"

        await run(site, "asks", "s1", threadId="s")
        stopped = await site.client.post("/runs/s1/stop", headers=ME)
        assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
        late = agent_body(GO, runId="s2", threadId="s", resume=[answer("sure", "yes")])
        assert (await site.client.post("/agents/asks", json=late, headers=ME)).status_code in (404, 409)


async def test_an_answer_after_the_agents_own_time_is_refused() -> None:
    async def hurried(given: RunAgentInput, ctx: AgentContext) -> Events:
        interrupts = [Interrupt(id="now", reason="r", expires_at="2020-01-01T00:00:00Z")]
        outcome = RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
        yield RunFinishedEvent(thread_id="t", run_id="r", outcome=outcome)

    async with serving(agents={"hurried": hurried}) as site:
        await run(site, "hurried", "r1")
        late = agent_body(GO, runId="r2", resume=[answer("now", "yes")])
        error_of(await site.client.post("/agents/hurried", json=late, headers=ME), 410, "interrupt_expired")
        await run(site, "hurried", "r3", resume=[answer("now", status="cancelled")])
