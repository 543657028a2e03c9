"""Plays an agent that is on another server: calls it, runs the gateway's tools that it calls, calls it again.

To the browser it is one run. Source: contract 6.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from ag_ui.core import RunAgentInput

from gateway.errors import UpstreamError
from gateway.execution.agent_job import Played
from gateway.execution.caller import Caller
from gateway.execution.ending import Ending
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.tools import Tool
from gateway.upstream.connections import Connections
from gateway.upstream.relay import Relay
from gateway.upstream.remote import RemoteAgent
from gateway.upstream.requests import Conversation
from gateway.upstream.turn_calls import TurnCalls, wants_made

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
        conversation = Conversation(given)
        relay = Relay(self._name, run, conversation.names)
        on_page = conversation.frontend_tools if self._on_page else frozenset()
        for _ in range(run.settings.max_agent_turns):
            offered = await self._offered(run, conversation.frontend_tools)
            relay.mine = mine = on_page.union(tool.name for tool in offered)
            relay.begin(conversation.held)
            await self._turn(run, relay, conversation.request(offered))
            ended = relay.played()
            calls = TurnCalls(run, relay, ended, mine, on_page)
            await calls.make(executor, self._caller, context)
            left = relay.unanswered(conversation.frontend_tools - mine)
            played = _without(ended, calls.ids, left)
            if not calls.all or left or run.signal.aborted or run.parked or _is_over(played):
                return played
            await conversation.go_on([*relay.events.close(), *calls.results()], calls.answers(ended))
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


def _without(played: Played, made: frozenset[str], left: list[str]) -> Played:
    """What the agent leaves to the frontend and to the person, without what the gateway has done."""
    asked = tuple(each for each in played.ending.asked if wants_made(each[1]) not in made)
    pending = [call_id for call_id in played.pending if call_id not in made]
    return played._replace(ending=replace(played.ending, asked=asked), pending=pending or (left if made else []))


def _is_over(played: Played) -> bool:
    """Whether the agent is not called again now: it has failed, or asks the person."""
    return played.ending.failure is not None or bool(played.ending.asked)
