"""Agents of the gateway's own process over HTTP: listed, run, joined, stopped and resumed like the built-in one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import AgentCapabilities, CustomEvent, RunAgentInput, TextMessageChunkEvent

from gateway import Gateway
from gateway.execution.agent_context import AgentContext
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import tool
from tests.execution.running import parse
from tests.http.asking import Gates, Reader, agent_body, error_of, events_of, waits
from tests.http.site import LONG, ME, SOMEBODY_ELSE, Site, serving

Events = AsyncGenerator[Any, None]
GO = [{"id": "u", "role": "user", "content": "go"}]


async def speaks(given: RunAgentInput, ctx: AgentContext) -> Events:
    """Says how many messages
    it was sent.

    Nothing else.
    """
    if ctx.context is not None:
        ctx.context.executions[ctx.run_id] += 1
    yield TextMessageChunkEvent(message_id=f"of {ctx.run_id}", delta=f"{len(given.messages)} messages")


async def waiting(given: RunAgentInput, ctx: AgentContext) -> Events:
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m"}
    try:
        await ctx.context["agent"].wait()
    finally:
        ctx.context.trail.append(f"ended: {ctx.abort_signal.reason}")


class Counting:
    """An agent that is an object."""

    async def __call__(self, given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="counted", value={})


@tool(timeout=0)
async def long(ctx: ToolContext) -> str:
    """Can move to the background."""

    async def work() -> str:
        ctx.emit_custom_event("working", {})
        await ctx.context["job"].wait()
        return "42"

    return await ctx.run_detachable(work())


async def run(site: Site, agent: str, run_id: str = "r", messages: Any = GO, **more: Any) -> list[dict[str, Any]]:
    """Runs an agent to its end."""
    answer = await site.client.post(f"/agents/{agent}", json=agent_body(messages, runId=run_id, **more), headers=ME)
    assert answer.status_code == 200, answer.text
    return events_of(answer.content)


def said(events: list[dict[str, Any]]) -> dict[str, str]:
    """Text messages by id."""
    found: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
    return found


# -- what may be an agent --


def plain(given: RunAgentInput, ctx: AgentContext) -> None:
    """Yields nothing."""


async def coroutine(given: RunAgentInput, ctx: AgentContext) -> None:
    """Yields nothing either."""


@pytest.mark.parametrize("agent", [plain, coroutine, Counting, None, 7], ids=lambda agent: str(agent)[:20])
def test_what_is_neither_an_async_generator_nor_a_url_is_no_agent(agent: Any) -> None:
    with pytest.raises(TypeError, match="Agent 'support' must be a URL, a RemoteAgent, or an async generator function"):
        Gateway(agents={"support": agent})


@pytest.mark.parametrize("name", ["tools", "", ".", "..", "a/b", "a b", "é", "x" * 129])
def test_an_agent_is_named_like_a_tool_and_not_like_the_built_in_one(name: str) -> None:
    with pytest.raises(ValueError, match="agent"):
        Gateway(agents={name: speaks})


def test_agents_come_by_name() -> None:
    with pytest.raises(TypeError, match="mapping"):
        Gateway(agents=[speaks])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str"):
        Gateway(agents={7: speaks})  # type: ignore[dict-item]
    Gateway(agents={"a.b_c-D9": speaks, "object": Counting(), "partial": functools.partial(speaks)})
    Gateway(agents={})


# -- the catalogue --


async def test_agents_are_listed_behind_the_built_in_one_and_say_what_they_can_do() -> None:
    async with serving(agents={"speaks": speaks, "counting": Counting()}) as site:
        items = (await site.client.get("/agents")).json()["items"]
        assert [item["name"] for item in items] == ["tools", "speaks", "counting"]
        assert [item["description"] for item in items[1:]] == [
            "Says how many messages it was sent.",
            "An agent that is an object.",
        ]
        able = (await site.client.get("/agents/speaks/capabilities")).json()
        AgentCapabilities.model_validate(able)
        assert able["identity"]["name"] == "speaks"
        assert able["transport"]["resumable"] is True
        error_of(await site.client.get("/agents/nobody/capabilities"), 404, "agent_not_found")
        error_of(await site.client.post("/agents/nobody", json={}), 404, "agent_not_found")
        error_of(await site.client.get("/agents/nobody?runId=r"), 404, "agent_not_found")


# -- runs --


async def test_an_agent_runs_as_its_own_and_is_in_the_record_and_in_the_thread() -> None:
    async with serving(agents={"speaks": speaks}) as site:
        events = await run(site, "speaks")
        assert said(events) == {"of r": "1 messages"}
        record = (await site.client.get("/runs/r", headers=ME)).json()
        assert (record["agent"], record["status"], record["toolCalls"]) == ("speaks", "completed", [])
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["messages"] == [*GO, {"id": "of r", "role": "assistant", "content": "1 messages"}]


async def test_what_is_for_the_gateway_does_not_reach_the_agent() -> None:
    sent: list[RunAgentInput] = []

    async def keeps(given: RunAgentInput, ctx: AgentContext) -> Events:
        sent.append(given)
        yield CustomEvent(name="x", value={"said": ctx.metadata["forwarded_props"]["mine"]})

    async with serving(agents={"keeps": keeps}) as site:
        props = {"gateway": {"input": "open"}, "mine": 1}
        more: dict[str, Any] = {"forwardedProps": props, "state": {"n": 1}, "context": [], "tools": []}
        await run(site, "keeps", **more)
        assert (sent[0].forwarded_props, sent[0].state, sent[0].resume) == ({"mine": 1}, {"n": 1}, None)
        assert (sent[0].thread_id, sent[0].run_id, sent[0].messages[0].id) == ("t", "r", "u")
        await run(site, "keeps", "r2", forwardedProps={"mine": 2})
        assert sent[1].forwarded_props == {"mine": 2}


async def test_the_same_request_attaches_and_another_one_is_a_conflict() -> None:
    gates = Gates()
    async with serving(agents={"speaks": speaks, "other": speaks}, context=gates) as site:
        first = await run(site, "speaks")
        assert await run(site, "speaks") == first
        assert gates.executions == {"r": 1}
        for path, body in (("speaks", agent_body(GO, state=1)), ("other", agent_body(GO)), ("tools", agent_body(GO))):
            answer = await site.client.post(f"/agents/{path}", json=body, headers=ME)
            error_of(answer, 400 if path == "tools" else 409, "invalid_request" if path == "tools" else "run_conflict")


async def test_a_run_is_joined_by_its_agent_only_and_hydrated_by_its_thread() -> None:
    gates = Gates()
    async with serving(agents={"waiting": waiting, "speaks": speaks}, context=gates) as site:
        first = Reader(await site.open("/agents/waiting", agent_body(GO), ME))
        await first.until("TEXT_MESSAGE_START")
        for agent in ("speaks", "tools"):
            error_of(await site.client.get(f"/agents/{agent}?runId=r", headers=ME), 404, "run_not_found")
            state = (await site.client.get(f"/agents/{agent}?threadId=t", headers=ME)).json()
            assert state["activeRun"] is None
        state = (await site.client.get("/agents/waiting?threadId=t", headers=ME)).json()
        assert (state["activeRun"], state["interrupts"]) == ({"runId": "r"}, None)
        joined = Reader(await site.open("/agents/waiting?runId=r&offset=1", headers=ME))
        gates["agent"].set()
        assert (await first.rest())[1:] == await joined.rest()
        read = await site.client.get("/agents/waiting?runId=r&offset=4", headers=ME)
        assert (read.status_code, read.content) == (200, b"")
        again = await site.client.post("/agents/waiting", json=agent_body(GO), headers={**ME, "last-event-id": "2"})
        assert [event["type"] for _, event in parse(again.content)] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


async def test_a_run_is_its_owners_alone() -> None:
    gates = Gates()
    async with serving(agents={"waiting": waiting}, context=gates) as site:
        stream = Reader(await site.open("/agents/waiting", agent_body(GO), ME))
        await stream.until("TEXT_MESSAGE_START")
        for path in ("/agents/waiting?runId=r", "/runs/r", "/runs/r/events"):
            error_of(await site.client.get(path, headers=SOMEBODY_ELSE), 404, "run_not_found")
        error_of(await site.client.post("/runs/r/stop", headers=SOMEBODY_ELSE), 404, "run_not_found")
        gates["agent"].set()
        await stream.rest()


async def test_stop_reaches_the_agent_over_http() -> None:
    gates = Gates()
    async with serving(agents={"waiting": waiting}, context=gates) as site:
        stream = Reader(await site.open("/agents/waiting", agent_body(GO), ME))
        await stream.until("TEXT_MESSAGE_START")
        answer = await site.client.post("/runs/r/stop", json={"reason": "enough"}, headers=ME)
        assert (answer.status_code, answer.json()["status"]) == (202, "stopping")
        events = await stream.rest()
        assert [event.get("name", event["type"]) for event in events[2:]] == [
            "run.stopping",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert gates.trail == ["ended: user"]
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 200


async def test_a_viewer_that_leaves_ends_the_run_where_the_request_says_so() -> None:
    gates = Gates()
    async with serving(agents={"waiting": waiting}, context=gates) as site:
        props = {"gateway": {"onDisconnect": "cancel", "disconnectGrace": 0}}
        stream = await site.open("/agents/waiting", agent_body(GO, forwardedProps=props), ME)
        await Reader(stream).until("TEXT_MESSAGE_START")
        stream.leave()
        record = (await site.client.get("/runs/r?wait=20", headers=ME)).json()
        assert (record["status"], record["error"]["code"]) == ("failed", "interrupted")
        assert gates.trail == ["ended: disconnect"]


async def test_a_drain_ends_agents_and_refuses_new_runs() -> None:
    gates = Gates()
    async with serving(agents={"waiting": waiting}, context=gates) as site:
        stream = Reader(await site.open("/agents/waiting", agent_body(GO), ME))
        await stream.until("TEXT_MESSAGE_START")
        await site.engine.supervisor.drain(0)
        assert (await stream.rest())[-1]["code"] == "interrupted"
        answer = await site.client.post("/agents/waiting", json=agent_body(GO, runId="r2"), headers=ME)
        error_of(answer, 503, "draining")
        assert gates.trail == ["ended: shutdown"]


async def test_an_agent_that_fails_says_so_on_the_stream() -> None:
    async def fails(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="x", value={})
        raise RuntimeError("The model is gone.")

    async with serving(agents={"fails": fails}) as site:
        events = await run(site, "fails")
        assert (events[-1]["code"], events[-1]["message"]) == ("agent_failed", "The model is gone.")
        assert (await site.client.get("/runs/r", headers=ME)).json()["error"]["code"] == "agent_failed"


# -- its tools --


async def test_a_call_of_an_agent_is_watched_stopped_and_detached_like_any_other() -> None:
    gates = Gates()

    async def caller(given: RunAgentInput, ctx: AgentContext) -> Events:
        first = await ctx.call_tool("waits", {"name": "never"}, "c1")
        second = await ctx.call_tool("long", {}, "c2")
        yield TextMessageChunkEvent(message_id="m", delta=f"{first.text} / {second.status}")

    async with serving(waits, long, agents={"caller": caller}, context=gates) as site:
        stream = Reader(await site.open("/agents/caller", agent_body(GO), ME))
        await stream.until("came")
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 202
        await stream.until("working")
        moved = (await site.client.post("/runs/r/tool-calls/c2/detach", headers=ME)).json()
        events = await stream.rest()
        assert said(events) == {"m": f"{CANCELLED} / detached"}
        job = (await site.client.get(f"/runs/{moved['runId']}", headers=ME)).json()
        assert (job["agent"], job["parentRunId"], job["status"]) == ("caller", "r", "running")
        gates["job"].set()
        await site.client.get(f"/runs/{moved['runId']}?wait=20", headers=ME)


# -- notes --


async def job(site: Site, gates: Gates, call_id: str = "c1") -> None:
    """A job that was moved to the background, and has ended."""
    body = {"threadId": "t", "runId": f"of {call_id}", "toolCallId": call_id}
    stream = Reader(await site.open("/tools/long", body, ME))
    await stream.until("working")
    moved = (await site.client.post(f"/runs/of {call_id}/detach", headers=ME)).json()
    await stream.rest()
    gates["job"].set()
    ended = await site.client.get(f"/runs/{moved['jobs'][0]['runId']}?wait=20", headers=ME)
    assert ended.json()["status"] == "completed"


async def messages_of(site: Site) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
    return messages


NOTE = "Background job c1 ended.\n42"


async def test_the_note_of_a_job_is_told_by_the_next_run_of_an_agent_and_by_no_other() -> None:
    gates = Gates()
    async with serving(long, agents={"speaks": speaks}, context=gates) as site:
        await job(site, gates)
        assert [item["id"] for item in await messages_of(site)][-1] == "c1:note"
        events = await run(site, "speaks")
        assert said(events) == {"c1:note": NOTE, "of r": "2 messages"}
        assert await run(site, "speaks") == events  # a replay says what was said
        assert said(await run(site, "speaks", "r2")) == {"of r2": "1 messages"}


async def test_a_thread_shows_each_note_once_whoever_has_had_it() -> None:
    gates = Gates()
    async with serving(long, agents={"speaks": speaks}, context=gates) as site:
        await job(site, gates)
        # A page that has read the thread has the note, and sends it with a run that tells none.
        held = [*(await messages_of(site))[-1:], *GO]
        call = {"id": "c9", "type": "function", "function": {"name": "nothing", "arguments": "{}"}}
        asked = [*held, {"id": "a", "role": "assistant", "toolCalls": [call]}]
        await run(site, "tools", "r1", asked)
        assert said(await run(site, "speaks", "r2")) == {"c1:note": NOTE, "of r2": "2 messages"}
        notes = [item for item in await messages_of(site) if item["id"] == "c1:note"]
        assert [item["content"] for item in notes] == [NOTE]
        # The history comes back with the note, as every client sends it.
        await run(site, "speaks", "r3", await messages_of(site))
        notes = [item for item in await messages_of(site) if item["id"] == "c1:note"]
        assert [item["content"] for item in notes] == [NOTE]


async def test_a_client_that_brings_the_note_gets_no_second_one() -> None:
    gates = Gates()
    async with serving(long, agents={"speaks": speaks}, context=gates) as site:
        await job(site, gates)
        held = await messages_of(site)
        assert said(await run(site, "speaks", "r1", [*held, *GO])) == {"of r1": f"{len(held) + 1} messages"}
        assert said(await run(site, "speaks", "r2")) == {"of r2": "1 messages"}


async def test_notes_are_told_to_their_owner_in_their_thread() -> None:
    gates = Gates()
    async with serving(long, agents={"speaks": speaks}, context=gates) as site:
        await job(site, gates)
        assert "c1:note" not in said(await run(site, "speaks", "r1", threadId="other"))
        answer = await site.client.post("/agents/speaks", json=agent_body(GO), headers=SOMEBODY_ELSE)
        assert "c1:note" not in said(events_of(answer.content))
        answer = await site.client.post("/agents/speaks", json=agent_body(GO))
        assert "c1:note" not in said(events_of(answer.content))
        assert "c1:note" in said(await run(site, "speaks", "r2"))


async def test_of_many_runs_that_start_at_once_one_tells_the_note() -> None:
    gates = Gates()
    async with serving(long, agents={"speaks": speaks}, context=gates) as site:
        await job(site, gates)
        async with asyncio.timeout(LONG):
            streams = await asyncio.gather(*(run(site, "speaks", f"r{number}") for number in range(8)))
        assert sum("c1:note" in said(events) for events in streams) == 1
