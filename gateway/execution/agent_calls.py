"""The tools that an agent calls: listed calls of its run, under the run's signal, through the one executor."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, cast

from gateway.errors import NotAvailable
from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import ToolOutput
from gateway.run.records import CallRecord
from gateway.wire.codec import decode, encode
from gateway.wire.inputs import MAX_ID, valid_id

__all__ = ["AgentCalls", "ShownCall"]

logger = logging.getLogger("gateway")


class ShownCall(Call):
    """A call that its agent has written into the stream itself: only its result goes out."""

    __slots__ = ()

    def announce(self, ms: int) -> None:
        """It is there already."""


class AgentCalls:
    """Calls of one agent's run. `held` are those of the request's history: call id → message id.

    Once a call has ended the run with a question (`asked` is set when no other call is at work), the run has nothing to
    wait for: what is called later is never made, and none of these comes back.
    """

    def __init__(self, run: LiveRun, executor: Executor, caller: Caller, context: Any, held: Mapping[str, str]) -> None:
        self.asked = asyncio.Event()
        self._run = run
        self._executor = executor
        self._caller = caller
        self._context = context
        self._held = held
        self._closed = False
        self._streamed: dict[str, bool] = {}  # calls that the agent has written itself: whether they are complete
        self._tasks: set[asyncio.Task[ToolOutput | None]] = set()
        self._parked: set[asyncio.Future[ToolOutput]] = set()
        self._one_by_one = None if run.settings.parallel_tool_calls else asyncio.Lock()

    def streamed(self, event: Mapping[str, Any]) -> None:
        """The agent has written an event."""
        if event["type"] in ("TOOL_CALL_START", "TOOL_CALL_END"):
            self._streamed[event["toolCallId"]] = event["type"] == "TOOL_CALL_END"

    async def make(
        self, name: str, arguments: Mapping[str, Any], call_id: str | None, timeout: float | None
    ) -> ToolOutput:
        """Makes a call and waits for its outcome; whoever gives up waiting ends it."""
        if self._closed:
            raise NotAvailable("ctx.call_tool is not available any more: the agent has ended.")
        if self._run.parked:
            return await self._never()
        call = self._new(name, _plain(ToolCall(name, arguments).arguments), call_id, timeout)
        task = asyncio.create_task(self._execute(call), name=f"call {call.call_id}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not task.done() and not self._run.signal.aborted:  # a Stop it hears of by itself, and unwinds
                call.signal.abort("tool")
            raise
        output = task.result()
        return await self._never() if output is None else output

    async def end(self) -> None:
        """Ends the calls that the agent has left behind; returns when all of them have their results."""
        self._closed = True
        for call in list(self._run.calls.values()):
            if not call.closed:
                call.signal.abort("tool")
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._let_go()

    def abandon(self) -> None:
        """Nobody waits for any of them."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._let_go()

    async def _never(self) -> ToolOutput:
        """Comes back no more: whoever waits is cancelled, with the agent or, in a task of its own, at the end of it."""
        parked: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self._parked.add(parked)
        if self._closed:
            parked.cancel()
        return await parked

    def _let_go(self) -> None:
        for parked in self._parked:
            parked.cancel()

    def _new(self, name: str, arguments: Mapping[str, Any], wanted: str | None, timeout: float | None) -> Call:
        call_id = self._id(wanted)
        if self._streamed.get(call_id) is False:
            raise ValueError(f"The TOOL_CALL_END of {call_id!r} must come before the call is made.")
        kind = ShownCall if call_id in self._streamed else Call
        parent = self._held.get(call_id)
        call = kind(
            self._run, call_id, name, None, arguments, timeout, parent_message_id=parent, held=parent is not None
        )
        self._run.save_call(CallRecord(call_id, name))
        return call

    def _id(self, wanted: str | None) -> str:
        """A fresh id, or the one that is wanted; where that is taken `<id>~2`, `<id>~3` …"""
        if wanted is None:
            return f"call_{secrets.token_urlsafe(9)}"
        call_id, number = valid_id(wanted), 1
        while call_id in self._run.calls:
            number += 1
            suffix = f"~{number}"
            call_id = wanted[: MAX_ID - len(suffix)] + suffix
        return call_id

    async def _execute(self, call: Call) -> ToolOutput | None:
        if self._one_by_one is None:
            return await self._executor.execute(call, self._caller, self._context)
        async with self._one_by_one:
            return await self._executor.execute(call, self._caller, self._context)

    def _done(self, task: asyncio.Task[ToolOutput | None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A call of run %s failed inside the gateway", self._run.key.label, exc_info=error)
        if not self._tasks and self._run.parked:
            self.asked.set()


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a model would have sent them: JSON, which no later change of the agent's reaches."""
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(arguments, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return cast("dict[str, Any]", decode(encode(arguments)))
