"""The calls of one turn of a remote agent: which of them the gateway makes, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gateway.execution import outcomes
from gateway.execution.agent_calls import ShownCall
from gateway.execution.agent_job import Played
from gateway.execution.call import Call, now_ms
from gateway.execution.caller import Caller
from gateway.execution.coming_to import model_arguments
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.page_tools import PageTool
from gateway.run.records import CallRecord
from gateway.upstream.relay import Relay, Streamed
from gateway.wire.events import tool_call_result

__all__ = ["TurnCalls", "wants_made"]

# How TanStack AI asks a client to make a call: it wants this answered beside the result among the messages.
MAKE_CALL = "tanstack:client_tool_execution"


def wants_made(interrupt: Mapping[str, Any]) -> str | None:
    """The call that an interrupt wants its client to make; None for one that asks the person."""
    return interrupt.get("toolCallId") if interrupt["reason"] == MAKE_CALL else None


class TurnCalls:
    """See the module. `all` are those that get a result here; `ids` are theirs.

    A call that the agent asks the person about waits for its answer. When the run is stopped or the agent has failed,
    every call that has no result gets one, whoever would have made it: a history with open calls is of no use to a
    model. A call that is told twice in one answer is made once, and both get its result.
    """

    def __init__(
        self, run: LiveRun, relay: Relay, ended: Played, mine: Collection[str], on_page: Collection[str]
    ) -> None:
        self._run = run
        self._failed = ended.ending.failure is not None
        self._made: list[Call] = []
        self._twins: list[tuple[Call, Call]] = []
        over = self._failed or run.signal.aborted
        asked = {each.get("toolCallId") for _, each in ended.ending.asked if wants_made(each) is None}
        firsts: dict[tuple[str, str, str], Call] = {}
        for streamed in relay.calls.values():
            if not over and streamed.tool_name not in mine:
                continue
            if not over and streamed.call_id in asked:
                run.save_call(CallRecord(streamed.call_id, streamed.tool_name, "interrupted"))
                continue
            call = self._call(streamed, on_page)
            said = relay.names.agents(call.call_id), call.tool_name, "".join(streamed.arguments)
            if said in firsts:
                self._twins.append((call, firsts[said]))
            else:
                firsts[said] = call
                self._made.append(call)

    @property
    def all(self) -> list[Call]:
        return [*self._made, *(twin for twin, _ in self._twins)]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(call.call_id for call in self.all)

    async def make(self, executor: Executor, caller: Caller, context: Any) -> None:
        """Makes them; those that are not made any more are answered."""
        await self._execute(self._made, executor, caller, context)
        for twin, first in self._twins:
            twin.refused = first.output or outcomes.interrupted(twin.tool_name, "its other half", retryable=False)
        await self._execute([twin for twin, _ in self._twins], executor, caller, context)

    async def _execute(self, calls: Iterable[Call], executor: Executor, caller: Caller, context: Any) -> None:
        if self._run.settings.parallel_tool_calls:
            await asyncio.gather(*(executor.execute(call, caller, context) for call in calls))
            return
        for call in calls:
            await executor.execute(call, caller, context)

    def results(self) -> list[dict[str, Any]]:
        """Their results as events; only when all of them have one."""
        return [
            tool_call_result(now_ms(), call.call_id, call.output.text, is_error=call.output.is_error)
            for call in self.all
            if call.output is not None
        ]

    def answers(self, ended: Played) -> list[dict[str, Any]]:
        """The entries of `resume` for the interrupts that wanted these calls made."""
        outputs = {call.call_id: call.output for call in self.all}
        answers = []
        for _, interrupt in ended.ending.asked:
            if (output := outputs.get(wants_made(interrupt) or "")) is not None:
                payload = output.text if output.structured_content is None else output.structured_content
                answers.append({"interruptId": interrupt["id"], "status": "resolved", "payload": payload})
        return answers

    def _call(self, streamed: Streamed, on_page: Collection[str]) -> Call:
        """A call that the agent has made: it is in the stream, or at least in the messages, already."""
        run, name = self._run, streamed.tool_name
        arguments, refused = model_arguments(name, "".join(streamed.arguments))
        if self._failed:
            tool = run.tools.get(name)
            retryable = tool is not None and tool.retryable
            refused = outcomes.interrupted(name, "the failure of its agent", retryable=retryable)
        kind = ShownCall if streamed.shown else Call
        call = kind(
            run,
            streamed.call_id,
            name,
            PageTool(name) if name in on_page else None,
            arguments,
            refused=refused,
            parent_message_id=streamed.parent_message_id,
            held=not streamed.shown,
        )
        if (reason := run.early_stops.get(call.call_id)) is not None:
            call.signal.abort(reason)
        return call
