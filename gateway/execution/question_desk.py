"""The questions of this worker's runs: kept in the store, so that any worker takes the answer, and waited for here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from gateway.errors import Conflict, StoreError
from gateway.run.questions import Question
from gateway.run.records import RunKey
from gateway.stores.base import Lease, Store

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.spec import Resumption

__all__ = ["Listener", "QuestionDesk"]

logger = logging.getLogger("gateway")

Listener = Callable[[Question], None]


class Spawn(Protocol):
    """Starts a task that somebody owns."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


class QuestionDesk:
    """See the module. A question has at most one listener, who hears of every change of it, on the loop."""

    def __init__(self, store: Store, spawn: Spawn) -> None:
        self.store = store
        self._spawn = spawn
        self._listeners: dict[str, Listener] = {}
        #: What is being written of questions that are over.
        self.writing: set[asyncio.Task[Any]] = set()
        #: Told of a call that can move to the background.
        self.on_offer: Callable[[Call], None] = lambda call: None

    async def ask(self, lease: Lease, question: Question, listener: Listener) -> None:
        """Keeps the question and listens from the start: somebody may answer before this returns."""
        self._listeners[question.interrupt_id] = listener
        await self.store.ask(lease, question)

    def close(self, key: RunKey, interrupt_id: str) -> None:
        """Nobody waits any more: later answers are refused. `key` is where the question is now."""
        if self._listeners.pop(interrupt_id, None) is not None:
            self._write(self.withdraw(key, interrupt_id), f"close {interrupt_id}")

    def _write(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._spawn(work, name=name)
        self.writing.add(task)
        task.add_done_callback(self.writing.discard)

    async def leave(self, lease: Lease, wanted: Callable[[], Sequence[Question]]) -> None:
        """Keeps the questions that a run ends with; what is not wanted any more by then, after a Stop, is closed."""
        asked = list(wanted())
        for question in asked:
            await self.store.ask(lease, question)
        while stopped := [question for question in asked if question not in wanted()]:
            asked = [question for question in asked if question not in stopped]
            for question in stopped:
                await self.withdraw(lease.key, question.interrupt_id)

    async def give(self, answers: Resumption) -> None:
        """Answers all questions of an interrupted run, or none: of two that resume it, one comes too late.

        Raises `Conflict` (`interrupt_closed`, `interrupt_answered`).
        """
        if not answers.changes or await self.store.replace_questions(answers.key, answers.changes):
            return
        now = await self.store.questions(answers.key)
        # By the same request, sent twice at once: then its run is there, or will be in a moment.
        if not all(new in now or replace(new, closed=True) in now for _, new in answers.changes):
            # Answers that have started a run are closed, too.
            code = "interrupt_answered" if any(question.answer for question in now) else "interrupt_closed"
            raise Conflict("Somebody was faster.", code=code)

    async def take_back(self, key: RunKey, answers: Resumption) -> None:
        """The run that they were for could not be started: they can be given again."""
        if await self.store.get(key) is None:  # the same request, sent twice, may have started it
            await self.store.replace_questions(answers.key, [(new, old) for old, new in answers.changes])

    def used(self, key: RunKey, run_id: str) -> None:
        """The run that was resumed with these answers is there: they start no other one, also not once it is gone."""
        self._write(self._used(key, run_id), f"answers of {key.label}")

    async def _used(self, key: RunKey, run_id: str) -> None:
        asked = await self.store.questions(key)
        mine = [question for question in asked if question.answer is not None and question.answer.run_id == run_id]
        if mine:
            await self.store.replace_questions(key, [(question, replace(question, closed=True)) for question in mine])

    async def withdraw(self, key: RunKey, interrupt_id: str) -> None:
        """Closes a question, unless it has its answer."""
        try:
            while (question := await self.find(key, interrupt_id)) is not None and question.open:
                if await self.store.replace_questions(key, [(question, replace(question, closed=True))]):
                    return
        except StoreError as error:  # whoever answers finds the run over instead
            logger.warning("A question of run %s could not be closed: %s", key.label, error)

    async def find(self, key: RunKey, interrupt_id: str) -> Question | None:
        """A question of the run."""
        asked = await self.store.questions(key)
        return next((question for question in asked if question.interrupt_id == interrupt_id), None)

    async def heard(self, key: RunKey, interrupt_id: str) -> None:
        """A message said that the question has changed."""
        if interrupt_id in self._listeners and (question := await self.find(key, interrupt_id)) is not None:
            self.changed(question)

    def changed(self, question: Question) -> None:
        """The question is like this now."""
        if (listener := self._listeners.get(question.interrupt_id)) is not None:
            listener(question)

    async def move(self, lease: Lease, old: RunKey, question: Question) -> None:
        """The call has moved to another run: there it can be answered from now on, and not where it was.

        Never in both places at once, so of two answers one counts; one that came before the move does.
        """
        interrupt_id = question.interrupt_id
        while (known := await self.find(old, interrupt_id)) is not None and not known.closed:
            if await self.store.replace_questions(old, [(known, replace(known, closed=True))]):
                break
        if known is None or interrupt_id not in self._listeners:
            return
        # It may also have been closed with all that its old run had asked.
        moved = replace(known, closed=False)
        await self.store.ask(lease, moved)
        if interrupt_id in self._listeners:
            self.changed(moved)
        else:  # in the meantime nobody waits any more
            await self.withdraw(lease.key, interrupt_id)
