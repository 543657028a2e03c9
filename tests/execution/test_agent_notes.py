"""Notes of background jobs: told by the thread's next run of an agent, once, to the page and to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import (
    CustomEvent,
    RunAgentInput,
)

from tests.execution.agents import ADA, AgentContext, ended, note, played, start_agent, text, told
from tests.execution.running import desk

Events = AsyncGenerator[Any, None]


async def test_the_next_run_of_the_thread_begins_with_the_notes() -> None:
    sent: list[RunAgentInput] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        sent.append(given)
        for event in text("m", "Good."):
            yield event

    async with desk() as at:
        for number in (1, 2):
            await at.store.add_note(ADA, "thread-1", note(number))
        await at.store.add_note(ADA, "thread-2", note(3))
        await at.store.add_note("anon:bob", "thread-1", note(4))
        _, events = await played(at, agent)
        assert list(told(events)) == ["call-1:note", "call-2:note", "m"]
        assert told(events)["call-1:note"] == "Background job call-1 ended.\n1"
        assert [message.id for message in sent[0].messages] == ["call-1:note", "call-2:note", "u"]
        _, events = await played(at, agent)
        assert list(told(events)) == ["m"]
        assert [message.id for message in sent[1].messages] == ["u"]


async def test_of_two_runs_that_start_at_once_one_tells_a_note() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="x", value={"messages": len(given.messages)})

    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        runs = await asyncio.gather(*(start_agent(at, agent) for _ in range(5)))
        streams = [(await ended(at, run))[1] for run in runs]
        assert sorted(len(told(events)) for events in streams) == [0, 0, 0, 0, 1]
        assert sorted(events[-2]["value"]["messages"] for events in streams) == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("how", ["fails", "is stopped"])
async def test_a_run_that_ends_badly_has_told_its_notes_all_the_same(how: str) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="begun", value={})
        if how == "fails":
            raise RuntimeError("no")
        await asyncio.Event().wait()

    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        run = await start_agent(at, agent)
        if how == "is stopped":
            await at.saw(run, "begun")
            await at.stop(run)
        assert list(told((await ended(at, run))[1])) == ["call-1:note"]
        assert told((await played(at, agent_that_ends))[1]) == {}


async def agent_that_ends(given: RunAgentInput, ctx: AgentContext) -> Events:
    yield CustomEvent(name="x", value={})


async def test_a_run_that_is_stopped_before_it_begins_leaves_the_notes_to_the_next() -> None:
    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        run = await start_agent(at, agent_that_ends)
        await at.stop(run)
        assert told((await ended(at, run))[1]) == {}
        assert list(told((await played(at, agent_that_ends))[1])) == ["call-1:note"]


async def test_a_client_that_has_the_note_already_is_not_told_again() -> None:
    sent: list[RunAgentInput] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        sent.append(given)
        yield CustomEvent(name="x", value={})

    known = {"id": "call-1:note", "role": "assistant", "content": note(1).text}
    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        _, events = await played(at, agent, messages=[known, {"id": "u", "role": "user", "content": "go"}])
        assert told(events) == {}
        assert [message.id for message in sent[0].messages] == ["call-1:note", "u"]
        assert told((await played(at, agent))[1]) == {}


async def test_without_an_owner_there_are_no_notes() -> None:
    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        assert told((await played(at, agent_that_ends, owner=None))[1]) == {}
