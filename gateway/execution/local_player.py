"""Plays an agent that runs in this process: its code as a task, its calls beside it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ag_ui.core import AssistantMessage, Message, RunAgentInput

from gateway.execution.agent_calls import AgentCalls
from gateway.execution.agent_context import AgentContext
from gateway.execution.agent_job import Played
from gateway.execution.agent_stream import AgentStream
from gateway.execution.agents import LocalAgent
from gateway.execution.bodies import TaskBody
from gateway.execution.caller import Caller
from gateway.execution.executor import SHUTDOWN_GRACE, Executor
from gateway.execution.live import LiveRun
from gateway.execution.settle import Raised

__all__ = ["LocalPlayer"]

logger = logging.getLogger("gateway")


class LocalPlayer:
    """See the module."""

    def __init__(self, agent: LocalAgent, caller: Caller) -> None:
        self._agent = agent
        self._caller = caller

    async def __call__(self, run: LiveRun, executor: Executor, context: Any, given: RunAgentInput) -> Played:
        calls = AgentCalls(run, executor, self._caller, context, _held(given.messages))
        ctx = AgentContext(self._agent.name, run, self._caller, calls, context)
        stream = AgentStream(self._agent.name, run, calls)
        work = stream.play(lambda: self._agent.function(given, ctx))
        body = TaskBody(work, cooperative=False, name=f"agent {self._agent.name} {run.key.label}")
        try:
            await _until_over(body, calls, run)
            stream.closing = True
            if not await body.unwind(_grace_of(run)):
                logger.warning("Agent %s of run %s goes on after its end", self._agent.name, run.key.label)
                body.abandon()
            await calls.end()
        except asyncio.CancelledError:
            calls.abandon()
            body.abandon()
            raise
        finally:
            stream.close()
        if body.future.done() and isinstance(ended := body.future.result(), Raised):
            raise ended.error
        return Played(stream.ending, stream.pending, stream.result)


async def _until_over(body: TaskBody, calls: AgentCalls, run: LiveRun) -> None:
    """Until the agent has ended, or is to be ended: by a Stop, or since the run waits for the person now."""
    loop = asyncio.get_running_loop()
    aborted = loop.create_task(run.signal.wait())
    asked = loop.create_task(calls.asked.wait())
    try:
        await asyncio.wait({body.future, aborted, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        aborted.cancel()
        asked.cancel()


def _grace_of(run: LiveRun) -> float:
    grace = run.settings.stop_grace
    return min(grace, SHUTDOWN_GRACE) if run.signal.reason == "shutdown" else grace


def _held(messages: list[Message]) -> dict[str, str]:
    """The calls that the client has, by id, each with the message that it is in."""
    return {
        call.id: message.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
    }
