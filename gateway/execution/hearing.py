"""What a worker hears of its runs: by messages, which may be lost, and by the state that they announce (contract 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from gateway.errors import StoreError
from gateway.execution.live import LiveRun
from gateway.execution.question_desk import QuestionDesk
from gateway.run.records import RunKey
from gateway.stores.base import Message, QuestionChanged, StopRequest, Store

__all__ = ["Hearing"]

logger = logging.getLogger("gateway")

LISTEN_AGAIN = 1.0
# Seconds that a shutdown gives the store to tell of a Stop that has not come through.
LAST_LOOK = 0.25
LAST_ASK = 0.5


class Hearing:
    """`live` knows the worker's runs, `stop` carries a request out."""

    def __init__(
        self,
        store: Store,
        worker: str,
        questions: QuestionDesk,
        live: Callable[[RunKey], LiveRun | None],
        stop: Callable[[LiveRun, StopRequest], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._questions = questions
        self._live = live
        self._stop = stop

    async def listen(self) -> None:
        while True:
            try:
                async for message in self._store.messages(self._worker):
                    await self._heard(message)
            except StoreError as error:  # what it did not say is state, and found there
                logger.warning("Messages of the store were lost: %s", error)
            await asyncio.sleep(LISTEN_AGAIN)

    async def _heard(self, message: Message) -> None:
        if isinstance(message, QuestionChanged):
            await self._questions.heard(message.key, message.interrupt_id)
        elif (run := self._live(message.key)) is None:
            return
        elif isinstance(message, StopRequest):
            self._stop(run, message)
        else:
            run.presence.told(await self._store.watched(message.key))

    async def look_at(self, key: RunKey) -> None:
        """What messages should have said: whether this run was asked to stop, its question answered, who watches it."""
        requests = await self._store.stop_requests(key)
        run = self._live(key)
        if run is None:
            return
        for request in requests:
            self._stop(run, request)
        if run.record.status == "waiting" or any(call.waits for call in run.calls.values()):
            for question in await self._store.questions(key):
                self._questions.changed(question)
        if run.presence.cancels:
            run.presence.told(await self._store.watched(key))

    async def catch_up(self, keys: Iterable[RunKey]) -> None:
        """Before a shutdown stops them: what these runs should have heard by now."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_LOOK):
                await asyncio.gather(*map(self.look_at, keys))

    async def last_stop(self, run: LiveRun) -> None:
        """Before the end of a run that a shutdown has stopped: a Stop that was accepted meanwhile counts."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_ASK):
                record = await self._store.get(run.key)
                if record is not None and record.stop_requested is not None:
                    run.stopped_after_all(record.stop_requested)
