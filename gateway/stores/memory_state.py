"""The small things that belong to runs and sessions, kept in dictionaries: questions, visibility, tickets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from gateway.run.records import RunKey
from gateway.stores.base import Answer, Lease, Question, Ticket, Visibility

__all__ = ["MemoryState"]

NO_RULE = Visibility()


class MemoryState:
    """The part of `MemoryStore` that has no log."""

    def __init__(self, session_ttl: float, clock: Callable[[], float]) -> None:
        self._session_ttl = session_ttl
        self._clock = clock
        self._questions: dict[RunKey, dict[str, Question]] = {}
        self._visibility: OrderedDict[str, tuple[Visibility, float]] = OrderedDict()
        self._tickets: dict[str, Ticket] = {}
        self._run_tickets: dict[RunKey, list[str]] = {}

    async def ask(self, lease: Lease, question: Question) -> None:
        self._questions.setdefault(lease.key, {}).setdefault(question.interrupt_id, question)

    async def questions(self, key: RunKey) -> list[Question]:
        return list(self._questions.get(key, {}).values())

    async def answer(self, key: RunKey, interrupt_id: str, answer: Answer) -> Question | None:
        """Stores the first answer. Returns the question as it is now (another answer: somebody was first)."""
        question = self._questions.get(key, {}).get(interrupt_id)
        if question is not None and question.answer is None:
            question = replace(question, answer=answer)
            self._questions[key][interrupt_id] = question
        return question

    def forget(self, key: RunKey) -> None:
        """Drops what belongs to a run that is no more."""
        self._questions.pop(key, None)
        for digest in self._run_tickets.pop(key, ()):
            del self._tickets[digest]

    async def visibility(self, session: str) -> Visibility:
        """The session's rules; asking keeps them alive for another `session_ttl`."""
        self._forget_sessions()
        if session not in self._visibility:
            return NO_RULE
        rules, _ = self._visibility.pop(session)
        self._visibility[session] = rules, self._clock()
        return rules

    async def set_visibility(self, session: str, visibility: Visibility) -> None:
        self._visibility.pop(session, None)
        self._visibility[session] = visibility, self._clock()

    def _forget_sessions(self) -> None:
        horizon = self._clock() - self._session_ttl
        while self._visibility and next(iter(self._visibility.values()))[1] < horizon:
            self._visibility.popitem(last=False)

    async def put_ticket(self, ticket: Ticket) -> None:
        self._tickets[ticket.digest] = ticket
        self._run_tickets.setdefault(ticket.key, []).append(ticket.digest)

    async def ticket(self, digest: str) -> Ticket | None:
        return self._tickets.get(digest)

    async def replace_ticket(self, old: Ticket, new: Ticket) -> bool:
        """Compare and swap: false when somebody else used the ticket in between."""
        if self._tickets.get(old.digest) != old:
            return False
        self._tickets[new.digest] = new
        return True
