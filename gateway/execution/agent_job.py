"""The job of an agent's run: notes first, then the calls that are made again, then the agent (contract 5.4 and 6)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ag_ui.core import AssistantMessage, Message, RunAgentInput, ToolMessage

from gateway.execution.agent_calls import AgentCalls
from gateway.execution.agent_context import AgentContext
from gateway.execution.agent_stream import AgentStream
from gateway.execution.agents import LocalAgent
from gateway.execution.bodies import TaskBody
from gateway.execution.call import Call, now_ms
from gateway.execution.caller import Caller
from gateway.execution.coming_to import aborted_output
from gateway.execution.executor import SHUTDOWN_GRACE, Executor
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.settle import Raised
from gateway.run.notes import tool_call, with_notes, with_result
from gateway.run.questions import Note
from gateway.stores.base import Store
from gateway.wire.events import arguments_text, text_message

__all__ = ["AgentJob"]

logger = logging.getLogger("gateway")


class AgentJob:
    """Runs a local agent. `agent_input` is what it is sent, but for what is added to the messages here.

    The calls that the run has at its start are those of the run that it resumes: they are made again.
    """

    def __init__(self, agent: LocalAgent, agent_input: RunAgentInput, caller: Caller, store: Store) -> None:
        self._agent = agent
        self._input = agent_input
        self._caller = caller
        self._store = store

    async def __call__(self, run: LiveRun, executor: Executor, context: Any) -> Any:
        try:
            notes = await self._tell(run)
            messages = await self._made_again(run, executor, context)
            if run.parked or run.signal.aborted:
                return None
            return await self._play(run, executor, context, with_notes(messages, notes))
        finally:
            run.streaming = bool(run.ending.asked)

    async def _tell(self, run: LiveRun) -> list[Note]:
        """The notes that no other run tells; on the stream but for those that the client has already."""
        owner = run.key.owner
        if owner is None or run.signal.aborted:
            return []
        held = {message.id for message in self._input.messages}
        notes = await self._store.take_notes(owner, run.record.thread_id, run.key.run_id)
        for note in notes:
            if note.message_id not in held:
                for event in text_message(now_ms(), note.message_id, note.text):
                    run.write(event)
        return notes

    async def _made_again(self, run: LiveRun, executor: Executor, context: Any) -> list[Message]:
        """The messages with the results of the calls that have waited for an answer."""
        messages = list(self._input.messages)
        calls = list(run.calls.values())
        await CallsJob(self._caller, parallel=run.settings.parallel_tool_calls)(run, executor, context)
        for call in calls:
            if call.output is not None:
                known = tool_call(call.call_id, call.tool_name, arguments_text(call.arguments))
                messages = with_result(messages, known, _tool_message(call))
        return messages

    async def _play(self, run: LiveRun, executor: Executor, context: Any, messages: list[Message]) -> Any:
        calls = AgentCalls(run, executor, self._caller, context, _held(self._input.messages))
        ctx = AgentContext(self._agent.name, run, self._caller, calls, context)
        stream = AgentStream(self._agent.name, run, calls)
        given = self._input.model_copy(update={"messages": messages})
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
        return _conclude(run, stream)


def _conclude(run: LiveRun, stream: AgentStream) -> Any:
    """What the run ends in, unless it was stopped; returns its result."""
    if stream.ending.failure is not None:
        for call in run.parked:  # nobody resumes a run that has failed
            call.finish(aborted_output(call, run.signal.reason or "tool"))
    run.ending = stream.ending
    run.pending_call_ids = stream.pending
    return None if run.signal.aborted or run.parked or run.ending.asked else stream.result


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


def _tool_message(call: Call) -> ToolMessage:
    output = call.output
    if output is None:
        raise RuntimeError("A call without an output has no message.")
    error = output.text if output.is_error else None
    return ToolMessage(
        id=f"{call.call_id}:result", role="tool", content=output.text, tool_call_id=call.call_id, error=error
    )
