"""The job of an agent's run: notes first, then the calls that are made again, then the agent (contract 5.4 and 6)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ag_ui.core import Message, RunAgentInput, ToolMessage

from gateway.execution.call import Call, now_ms
from gateway.execution.caller import Caller
from gateway.execution.coming_to import aborted_output
from gateway.execution.ending import Ending
from gateway.execution.executor import Executor
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.resuming import kept_answer
from gateway.run.notes import tool_call, with_notes, with_result
from gateway.run.questions import Note
from gateway.stores.base import Store
from gateway.wire.events import arguments_text, text_message

__all__ = ["AgentJob", "Played", "Player"]


class Played(NamedTuple):
    """What an agent has come to: what its run shall end in, the calls that it leaves to the frontend, its result."""

    ending: Ending
    pending: list[str]
    result: Any = None


class Player(Protocol):
    """Plays an agent to its end, or until its run is stopped or waits for the person. Raises `StoreError` only."""

    async def __call__(self, run: LiveRun, executor: Executor, context: Any, given: RunAgentInput) -> Played: ...


class AgentJob:
    """Runs an agent, which `player` plays. `agent_input` is what it is sent, but for the messages that are added here.

    The calls that the run has at its start are those of the run that it resumes: they are made again.
    """

    def __init__(self, player: Player, agent_input: RunAgentInput, caller: Caller, store: Store) -> None:
        self._player = player
        self._input = agent_input
        self._caller = caller
        self._store = store

    async def __call__(self, run: LiveRun, executor: Executor, context: Any) -> Any:
        try:
            notes = await self._tell(run)
            messages = await self._made_again(run, executor, context)
            if run.parked or run.signal.aborted:
                await self._keep_answers(run)
                return None
            given = self._input.model_copy(update={"messages": with_notes(messages, notes)})
            return _conclude(run, await self._player(run, executor, context, given))
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

    async def _keep_answers(self, run: LiveRun) -> None:
        """The agent is not called yet: answers to what it has asked itself stay for the run that calls it."""
        for entry in self._input.resume or ():
            if run.lease is not None and not run.signal.aborted:
                await self._store.ask(run.lease, kept_answer(entry))


def _conclude(run: LiveRun, played: Played) -> Any:
    """What the run ends in, unless it was stopped; returns its result."""
    if played.ending.failure is not None:
        for call in run.parked:  # nobody resumes a run that has failed
            call.finish(aborted_output(call, run.signal.reason or "tool"))
    run.ending = played.ending
    run.pending_call_ids = played.pending
    return None if run.signal.aborted or run.parked or run.ending.asked else played.result


def _tool_message(call: Call) -> ToolMessage:
    output = call.output
    if output is None:
        raise RuntimeError("A call without an output has no message.")
    error = output.text if output.is_error else None
    return ToolMessage(
        id=f"{call.call_id}:result", role="tool", content=output.text, tool_call_id=call.call_id, error=error
    )
