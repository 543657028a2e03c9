"""Plays an agent that is on another server: calls it, runs the gateway's tools that it calls, calls it again.

To the browser it is one run. Source: contract 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ag_ui.core import RunAgentInput

from gateway.errors import UpstreamError
from gateway.execution import outcomes
from gateway.execution.agent_calls import ShownCall
from gateway.execution.agent_job import Played
from gateway.execution.call import Call, now_ms
from gateway.execution.caller import Caller
from gateway.execution.coming_to import model_arguments
from gateway.execution.ending import Ending
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.page_tools import PageTool
from gateway.execution.tools import Tool
from gateway.upstream.connections import Connections
from gateway.upstream.relay import Relay, Streamed
from gateway.upstream.remote import RemoteAgent
from gateway.upstream.requests import Conversation
from gateway.wire.events import tool_call_result

__all__ = ["RemotePlayer"]

logger = logging.getLogger("gateway")

# How TanStack AI asks a client to make a call: it wants this answered beside the result among the messages.
MAKE_CALL = "tanstack:client_tool_execution"
CLOSING_SECONDS = 1.0  # that a connection may take to close


class RemotePlayer:
    """See the module. `on_page`: the frontend's tools are run by a page, inside the run."""

    def __init__(
        self,
        name: str,
        agent: RemoteAgent,
        caller: Caller,
        connections: Connections,
        *,
        headers: list[tuple[bytes, bytes]],
        on_page: bool,
    ) -> None:
        self._name = name
        self._agent = agent
        self._caller = caller
        self._connections = connections
        self._headers = headers
        self._on_page = on_page

    async def __call__(self, run: LiveRun, executor: Executor, context: Any, given: RunAgentInput) -> Played:
        relay, conversation = Relay(self._name, run), Conversation(given)
        on_page = conversation.frontend_tools if self._on_page else frozenset()
        for _ in range(run.settings.max_agent_turns):
            offered = await self._offered(run, conversation.frontend_tools)
            relay.mine = mine = on_page.union(tool.name for tool in offered)
            relay.begin(conversation.held)
            await self._turn(run, relay, conversation.request(offered))
            calls = [_call(run, each, on_page) for each in relay.calls.values() if each.tool_name in mine]
            ended = relay.played()
            played = _without(ended, calls)
            if played.ending.failure is not None:
                _refuse(run, calls)
            await self._make(executor, calls, context)
            theirs = conversation.frontend_tools - mine
            left = [each.call_id for each in relay.calls.values() if each.tool_name in theirs]
            if not calls or left or run.signal.aborted or run.parked or _is_over(played):
                return played if played.pending or not calls else played._replace(pending=left)
            conversation.go_on([*relay.events.close(), *map(_result, calls)], _answers(ended, calls))
        message = f"The agent was called {run.settings.max_agent_turns} times, and still wanted more."
        return Played(Ending(failure=("too_many_turns", message)), [])

    async def _offered(self, run: LiveRun, theirs: frozenset[str]) -> list[Tool]:
        """The gateway's tools for the agent; the frontend's of the same name win."""
        if not self._agent.tools:
            return []
        await run.tools.refresh()  # a tool may have switched some on or off
        return [tool for tool in run.tools.all() if self._agent.offers(tool.name) and tool.name not in theirs]

    async def _turn(self, run: LiveRun, relay: Relay, body: bytes) -> None:
        """One run of the agent, to its end or a Stop, which closes the connection at once."""
        reading = asyncio.create_task(self._read(relay, body), name=f"agent {self._name} {run.key.label}")
        aborted = asyncio.create_task(run.signal.wait())
        try:
            await asyncio.wait({reading, aborted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            aborted.cancel()
            reading.cancel()
            await asyncio.wait({reading}, timeout=CLOSING_SECONDS)
        if not reading.done():
            logger.warning("The connection to agent %s of run %s does not close", self._name, run.key.label)
        elif not reading.cancelled():
            reading.result()
        relay.close()

    async def _read(self, relay: Relay, body: bytes) -> None:
        try:
            async with self._connections.stream(self._agent, body, self._headers) as response:
                await relay.play(response)
        except UpstreamError as error:
            relay.broke_off(error)

    async def _make(self, executor: Executor, calls: Sequence[Call], context: Any) -> None:
        if not calls:
            return
        if calls[0].run.settings.parallel_tool_calls:
            await asyncio.gather(*(executor.execute(call, self._caller, context) for call in calls))
            return
        for call in calls:
            await executor.execute(call, self._caller, context)


def _call(run: LiveRun, streamed: Streamed, on_page: Iterable[str]) -> Call:
    """A call that the agent has made: it is in the stream, or at least in the messages, already."""
    name = streamed.tool_name
    arguments, refused = model_arguments(name, "".join(streamed.arguments))
    kind = ShownCall if streamed.shown else Call
    return kind(
        run,
        streamed.call_id,
        name,
        PageTool(name) if name in on_page else None,
        arguments,
        refused=refused,
        parent_message_id=streamed.parent_message_id,
        held=not streamed.shown,
    )


def _refuse(run: LiveRun, calls: Iterable[Call]) -> None:
    """Calls that are not made any more are answered: a history with open calls is of no use to a model."""
    for call in calls:
        tool = run.tools.get(call.tool_name)
        retryable = tool is not None and tool.retryable
        call.refused = outcomes.interrupted(call.tool_name, "the failure of its agent", retryable=retryable)


def _without(played: Played, calls: Sequence[Call]) -> Played:
    """What the agent leaves to the frontend, without what is not the frontend's."""
    mine = {call.call_id for call in calls}
    asked = tuple(each for each in played.ending.asked if _wants_made(each[1]) not in mine)
    pending = [call_id for call_id in played.pending if call_id not in mine]
    return played._replace(ending=replace(played.ending, asked=asked), pending=pending)


def _answers(played: Played, calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The entries of `resume` for the interrupts that wanted these calls made."""
    outputs = {call.call_id: call.output for call in calls}
    answers = []
    for _, interrupt in played.ending.asked:
        if (output := outputs.get(_wants_made(interrupt) or "")) is not None:
            payload = output.text if output.structured_content is None else output.structured_content
            answers.append({"interruptId": interrupt["id"], "status": "resolved", "payload": payload})
    return answers


def _wants_made(interrupt: Mapping[str, Any]) -> str | None:
    """The call that an interrupt wants its client to make; None for one that asks the person."""
    return interrupt.get("toolCallId") if interrupt["reason"] == MAKE_CALL else None


def _is_over(played: Played) -> bool:
    """Whether the agent is not called again now: it has failed, or asks the person."""
    return played.ending.failure is not None or bool(played.ending.asked)


def _result(call: Call) -> dict[str, Any]:
    if call.output is None:
        raise RuntimeError("A call without an output has no result.")
    return tool_call_result(now_ms(), call.call_id, call.output.text, is_error=call.output.is_error)
