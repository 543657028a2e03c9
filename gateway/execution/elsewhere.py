"""Moving a call to the background that another worker runs (contract 7: any worker serves everything).

The worker of the call keeps an open question of the kind `detach` while the call can move; the wish is its answer, and
brings the id of the run that the call is to go on in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from time import time
from typing import Any, Protocol

from gateway.errors import StoreError
from gateway.execution.background import Detached, Rejected, new_job_id
from gateway.execution.call import Call
from gateway.execution.question_desk import QuestionDesk
from gateway.run.questions import Answer, Question
from gateway.run.records import RunKey
from gateway.stores.base import Lease, Store

__all__ = ["Offering", "detach_elsewhere"]

logger = logging.getLogger("gateway")

WISH_SECONDS = 5.0  # that the other worker has
LOOK_SECONDS = 0.02


class Spawn(Protocol):
    """Starts a task that somebody owns."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


Move = Callable[[Call, str], Awaitable[object]]


class Offering:
    """Lets other workers know which calls can move. `move` moves one, to a run of this id."""

    def __init__(self, desk: QuestionDesk, spawn: Spawn, move: Move) -> None:
        self._desk = desk
        self._spawn = spawn
        self._move = move

    def offer(self, call: Call) -> None:
        """The call can move; once is enough. Where nobody shares the store nobody has to be told."""
        if not self._desk.store.shared or call.run.lease is None or call.unoffer is not None:
            return
        question = Question(f"detach_{secrets.token_urlsafe(18)}", call.call_id, call.tool_name, time(), kind="detach")
        call.unoffer = partial(self._desk.close, call.run.key, question.interrupt_id)
        self._spawn(self._ask(call, call.run.lease, question), name=f"offer {question.interrupt_id}")

    async def _ask(self, call: Call, lease: Lease, question: Question) -> None:
        try:
            await self._desk.ask(lease, question, partial(self._wished, call))
        except StoreError as error:  # then it moves from here only, if it is still here
            logger.warning("Call %s of run %s is not offered to others: %s", call.call_id, lease.key.label, error)

    def _wished(self, call: Call, question: Question) -> None:
        if question.answer is not None and call.unoffer is not None:
            self._spawn(self._answer(call, str(question.answer.payload)), name=f"detach {call.call_id}")

    async def _answer(self, call: Call, run_id: str) -> None:
        await self._move(call, run_id)


async def detach_elsewhere(store: Store, key: RunKey, call_id: str) -> Detached | Rejected:
    """Asks the worker of the run to move a call, and waits for what comes of it."""
    asked = [question for question in await store.questions(key) if question.kind == "detach"]
    offered = next((question for question in asked if question.call_id == call_id and question.open), None)
    if not await _is_running(store, key, call_id):
        return Rejected("not_running", "This call is not running any more.")
    run_id = new_job_id()
    wish = None if offered is None else (offered, replace(offered, answer=Answer("resolved", run_id)))
    if wish is None or not await store.replace_questions(key, [wish]):
        return Rejected("not_detachable", "This call cannot be moved to the background now.")
    try:
        async with asyncio.timeout(WISH_SECONDS):
            while await store.get(RunKey(key.owner, run_id)) is None:
                if not await _is_running(store, key, call_id):
                    break
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return Rejected("not_detachable", "The worker of this call does not answer.")
    if await store.get(RunKey(key.owner, run_id)) is None:
        return Rejected("not_running", "This call is not running any more.")
    return Detached(call_id, run_id)


async def _is_running(store: Store, key: RunKey, call_id: str) -> bool:
    record = await store.get(key)
    call = None if record is None else record.call(call_id)
    return record is not None and not record.over and call is not None and call.ended_at is None
