"""What the tests with real clients serve as local agents: scripts instead of models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ag_ui.core import (
    CustomEvent,
    Interrupt,
    ReasoningMessageChunkEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    TextMessageStartEvent,
    ToolMessage,
)

from gateway import Gateway, ToolContext, tool

Events = AsyncGenerator[Any, None]


@tool(needs_approval=True)
async def delete(path: str) -> str:
    """Somebody has to say yes."""
    return f"deleted {path}"


@tool
async def count(ctx: ToolContext, to: int) -> int:
    """Counts."""
    for number in range(1, to + 1):
        ctx.emit_custom_event("test.counted", {"number": number})
    return to


@tool(timeout=0)
async def job(ctx: ToolContext) -> str:
    """Can move to the background; ends when it has."""

    async def work() -> str:
        ctx.emit_custom_event("test.working", {})
        while ctx.detach is not None:  # noqa: ASYNC110 - no event tells of the move
            await asyncio.sleep(0.01)
        return "42"

    return await ctx.run_detachable(work())


async def everything(given: RunAgentInput, ctx: Any) -> Events:
    """All that an agent may say, with its own and the gateway's events in between."""
    yield StateSnapshotEvent(snapshot={"step": 0})
    yield ReasoningMessageChunkEvent(message_id=f"thought of {ctx.run_id}", delta="Hm.")
    yield TextMessageChunkEvent(message_id=f"first of {ctx.run_id}", delta="Let me ")
    ctx.emit_custom_event("test.between", {})
    yield StateDeltaEvent(delta=[{"op": "replace", "path": "/step", "value": 1}])
    yield TextMessageChunkEvent(delta="count.")
    output = await ctx.call_tool("count", {"to": 2})
    yield TextMessageStartEvent(message_id=f"second of {ctx.run_id}", role="assistant")
    yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"second of {ctx.run_id}", "delta": output.text}
    yield {"type": "STEP_STARTED", "stepName": "left open"}
    yield SubagentStartedEvent(subagent_run_id="helper", name="helper")
    yield TextMessageChunkEvent(message_id=f"helper of {ctx.run_id}", delta="Me too.", subagent_run_id="helper")


async def careful(given: RunAgentInput, ctx: Any) -> Events:
    """Asks the person itself, then by a tool."""
    if not given.resume and not any(isinstance(message, ToolMessage) for message in given.messages):
        interrupts = [Interrupt(id="which", reason="choice", message="Which one?", response_schema={"type": "string"})]
        outcome = RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
        yield RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome)
    for entry in given.resume or ():
        await ctx.call_tool("delete", {"path": entry.payload}, "c1")
    yield TextMessageChunkEvent(message_id=f"of {ctx.run_id}", delta=str(given.messages[-1].content))


async def fails(given: RunAgentInput, ctx: Any) -> Events:
    """Leaves a message open, and raises."""
    yield TextMessageStartEvent(message_id="m", role="assistant")
    yield CustomEvent(name="test.before", value={})
    raise RuntimeError("The model is gone.")


gateway = Gateway(tools=[delete, count, job], agents={"everything": everything, "careful": careful, "fails": fails})
