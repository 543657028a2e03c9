"""Takes what an agent yields into its run, event by event, until it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from time import monotonic
from typing import Any, cast

from gateway.errors import StoreError
from gateway.execution import payloads
from gateway.execution.agent_calls import AgentCalls
from gateway.execution.agent_ends import added_of, asked_of
from gateway.execution.agent_events import event_of
from gateway.execution.call import now_ms
from gateway.execution.ending import Ending
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import message_of
from gateway.execution.settle import Raised, Returned, Settled
from gateway.run.chunks import Chunks
from gateway.run.order import TERMINALS
from gateway.wire.codec import Change

__all__ = ["AGENT_FAILED", "AgentStream"]

logger = logging.getLogger("gateway")

AGENT_FAILED = "agent_failed"
GIVE_WAY = 0.01  # seconds

Begin = Callable[[], AsyncIterator[Any]]


class AgentStream:
    """What an agent's run has come to so far: `ending`, its `result`, and the `pending` calls that it leaves open.

    `close` when nothing of it counts any more; `closing` when the event it may still yield is its last one, and no end.
    """

    def __init__(self, agent: str, run: LiveRun, calls: AgentCalls) -> None:
        self.ending = Ending()
        self.result: Any = None
        self.pending: list[str] = []
        self.closing = False
        self._closed = False
        self._ended = False
        self._agent = agent
        self._run = run
        self._calls = calls
        self._chunks = Chunks()

    async def play(self, begin: Begin) -> Settled[None]:
        """Plays the agent to its end, whatever it raises; what that makes of the run is `ending`."""
        try:
            generator = cast("AsyncGenerator[Any, None]", begin())  # as `agents` has made sure
            try:
                await self._take_all(generator)
            except BaseException as error:  # noqa: BLE001 - the boundary to the agent's code
                self._failed(error)
            finally:
                await generator.aclose()
        except StoreError as error:  # not the agent's
            return Raised(error)
        except BaseException as error:  # noqa: BLE001 - the same: what it does when it is closed
            self._failed(error)
        self._run.streaming = bool(self.ending.asked)  # an end that can still be stopped
        return Returned(None)

    def close(self) -> None:
        """Whatever it still yields is dropped."""
        self._closed = True

    async def _take_all(self, generator: AsyncGenerator[Any, None]) -> None:
        turn = monotonic()
        async for item in generator:
            if self._closed:
                self._run.counts.add("late_emits")
                return
            if self._take(item) or self.closing or self._run.signal.aborted:
                return
            if monotonic() - turn > GIVE_WAY:
                # One that only yields would never give way, not even to Stop.
                await asyncio.sleep(0)
                turn = monotonic()

    def _take(self, item: object) -> bool:
        """Writes one event; true when it was the last one."""
        changes: list[Change] = []
        event = event_of(item, now_ms(), changes)
        if changes:
            payloads.replaced(self._run, self._agent, changes)
        kind = event["type"]
        if self.closing and kind in TERMINALS:
            return True
        if kind == "RUN_ERROR":
            failure = (event.get("code") or AGENT_FAILED, event["message"])
            self.ending = Ending(failure=failure, more=added_of(event))
        elif kind == "RUN_FINISHED":
            self._finished(event)
        elif kind != "RUN_STARTED":  # the run has its own
            for part in self._chunks.feed(event):
                self._run.write(part)
                self._calls.streamed(part)
        self._ended = kind in TERMINALS
        return self._ended

    def _finished(self, event: Mapping[str, Any]) -> None:
        outcome = event.get("outcome") or {"type": "success"}
        if outcome["type"] == "cancelled":  # only the person's Stop is that (contract 3)
            raise ValueError("The agent cancelled itself.")
        asked = tuple(asked_of(interrupt, self._run) for interrupt in outcome.get("interrupts") or ())
        if len({question.interrupt_id for question, _ in asked}) != len(asked):
            raise ValueError("RUN_FINISHED: two interrupts have one id.")
        self.ending = Ending(asked=asked, more=added_of(event))
        self.pending = outcome.get("pendingToolCallIds") or []
        self.result = event.get("result")

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            raise error
        label = self._run.key.label
        if self._ended or self._closed or self.closing or self._run.signal.aborted:
            if not isinstance(error, asyncio.CancelledError):
                logger.info("Agent %s of run %s raised while it was closed", self._agent, label, exc_info=error)
            return
        logger.warning("Agent %s of run %s failed", self._agent, label, exc_info=error)
        self._ended = True
        message = "The agent cancelled itself." if isinstance(error, asyncio.CancelledError) else message_of(error)
        self.ending = Ending(failure=(AGENT_FAILED, message))
