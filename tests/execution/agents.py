"""Runs local agents as the gateway does, without HTTP."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from time import time
from typing import Any

from ag_ui.core import Message, RunAgentInput
from pydantic import TypeAdapter

from gateway.execution.agent_context import AgentContext
from gateway.execution.agent_job import AgentJob
from gateway.execution.agents import LocalAgent
from gateway.execution.caller import AuthContext, Caller
from gateway.execution.live import Channel, LiveRun
from gateway.execution.local_player import LocalPlayer
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.spec import RunSpec, no_context
from gateway.execution.tools import Tool
from gateway.run.questions import Note
from gateway.run.records import RunKey, RunRecord
from gateway.wire.codec import encode
from tests.execution.running import LONG, Desk, check_order, events_of

__all__ = ["ADA", "AgentContext", "ended", "names", "note", "played", "shown", "spec_of", "start_agent", "text", "told"]

ADA = "anon:ada"
MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])
USER = ({"id": "u", "role": "user", "content": "go"},)


def spec_of(
    at: Desk,
    agent: Any,
    *,
    messages: Sequence[dict[str, Any]] = USER,
    owner: str | None = ADA,
    run_id: str | None = None,
    thread_id: str = "thread-1",
    tools: Iterable[Tool] = (),
    channel: Channel = "interrupt",
    on_disconnect: str | None = None,
    auth: AuthContext | None = None,
) -> RunSpec:
    """What a request would start."""
    caller = Caller("request-1", owner or "anon:fresh", owner=owner, auth=auth, metadata={"client_tools": []})
    key = RunKey(owner, run_id or uuid.uuid4().hex)
    sent = RunAgentInput(thread_id=thread_id, run_id=key.run_id, messages=MESSAGES.validate_python(list(messages)))

    def prepare(run: LiveRun) -> None:
        run.streaming = True

    return RunSpec(
        key=key,
        thread_id=thread_id,
        agent="agent",
        fingerprint=b"",
        caller=caller,
        prepare=prepare,
        job=AgentJob(LocalPlayer(LocalAgent("agent", agent), caller), sent, caller, at.store),
        context=partial(no_context, at.stage),
        tools=SessionTools(Registry(tools)),
        messages=encode(list(messages)),
        channel=channel,
        on_disconnect=on_disconnect,
    )


async def start_agent(at: Desk, agent: Any, **options: Any) -> LiveRun:
    """Starts a run of an agent; options are those of `spec_of`."""
    spec = spec_of(at, agent, **options)
    await at.supervisor.start(spec)
    run = at.supervisor.live(spec.key)
    assert run is not None
    return run


async def ended(at: Desk, run: LiveRun) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Waits for the end of a run; its events are in an order that the official verifier accepts."""
    async with asyncio.timeout(LONG):
        await run.done.wait()
    record = await at.store.get(run.key)
    assert record is not None
    assert record.over
    assert record.opened == ()
    return record, check_order(await events_of(at.store, run.key))


async def played(at: Desk, agent: Any, **options: Any) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Runs an agent to its end."""
    return await ended(at, await start_agent(at, agent, **options))


def shown(events: Iterable[dict[str, Any]]) -> list[str]:
    """Types of events, and names of custom ones, without the first and the last."""
    return [event.get("name", event["type"]) for event in events][1:-1]


def names(events: Iterable[dict[str, Any]]) -> list[str]:
    """Types of all events, and names of custom ones."""
    return [event.get("name", event["type"]) for event in events]


def text(message_id: str, said: str) -> list[dict[str, Any]]:
    """A message of the agent."""
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": said},
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
    ]


def told(events: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The text messages of a stream by id."""
    said: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_START":
            said.setdefault(event["messageId"], "")
        elif event["type"] == "TEXT_MESSAGE_CONTENT":
            said[event["messageId"]] += event["delta"]
    return said


def note(number: int) -> Note:
    """A note about a background job."""
    return Note(f"job-{number}", f"call-{number}", f"Background job call-{number} ended.\n{number}", time() + number)
