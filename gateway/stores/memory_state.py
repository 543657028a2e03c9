"""The small things that belong to runs and sessions, kept in dictionaries: questions, notes, visibility, tickets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.run.questions import Note, Question
from gateway.run.records import RunKey
from gateway.stores.base import Lease, Ticket, Visibility

__all__ = ["MemoryState"]

NO_RULE = Visibility()


class MemoryState:
    """The part of `MemoryStore` that has no log."""

    def __init__(self, session_ttl: float, note_ttl: float, clock: Callable[[], float]) -> None:
        self._session_ttl = session_ttl
        self._note_ttl = note_ttl
        self._clock = clock
        self._questions: dict[RunKey, dict[str, Question]] = {}
        self._asked_by: dict[str, RunKey] = {}
        self._notes: dict[tuple[str, str], dict[str, Note]] = {}
        self._takes_no_notes: set[RunKey] = set()
        self._visibility: OrderedDict[str, tuple[Visibility, float]] = OrderedDict()
        self._tickets: dict[str, Ticket] = {}
        self._run_tickets: dict[RunKey, list[str]] = {}

    async def ask(self, lease: Lease, question: Question) -> None:
        self._questions.setdefault(lease.key, {}).setdefault(question.interrupt_id, question)
        self._asked_by[question.interrupt_id] = lease.key

    async def questions(self, key: RunKey) -> list[Question]:
        return list(self._questions.get(key, {}).values())

    async def find_question(self, interrupt_id: str) -> tuple[RunKey, Question] | None:
        key = self._asked_by.get(interrupt_id)
        return None if key is None else (key, self._questions[key][interrupt_id])

    async def replace_questions(self, key: RunKey, changes: Sequence[tuple[Question, Question]]) -> bool:
        asked = self._questions.get(key, {})
        if any(asked.get(old.interrupt_id) != old for old, _ in changes):
            return False
        for _, new in changes:
            asked[new.interrupt_id] = new
            self.changed(key, new.interrupt_id)
        return True

    def changed(self, key: RunKey, interrupt_id: str) -> None:
        """Hook: tells the worker that runs it."""

    def close_questions(self, key: RunKey) -> bool:
        """Closes what is still open; false when nothing was."""
        asked = self._questions.get(key, {})
        found = [question for question in asked.values() if question.open]
        for question in found:
            asked[question.interrupt_id] = replace(question, closed=True)
        return bool(found)

    def forget(self, key: RunKey) -> None:
        """Drops what belongs to a run that is no more."""
        for interrupt_id in self._questions.pop(key, ()):
            if self._asked_by.get(interrupt_id) == key:  # it may have moved on, with a call, to another run
                del self._asked_by[interrupt_id]
        for digest in self._run_tickets.pop(key, ()):
            del self._tickets[digest]
        self._takes_no_notes.discard(key)

    async def add_note(self, owner: str, thread_id: str, note: Note) -> None:
        self._forget_notes()
        self._notes.setdefault((owner, thread_id), {}).setdefault(note.run_id, note)

    async def notes(self, owner: str, thread_id: str) -> list[Note]:
        self._forget_notes()
        return sorted(self._notes.get((owner, thread_id), {}).values(), key=lambda note: note.ended_at)

    async def close_notes(self, key: RunKey, thread_id: str) -> list[Note]:
        self._takes_no_notes.add(key)
        owner, run_id = key
        return [] if owner is None else [n for n in await self.notes(owner, thread_id) if n.delivered_to == run_id]

    async def take_notes(self, owner: str, thread_id: str, run_id: str) -> list[Note]:
        if RunKey(owner, run_id) in self._takes_no_notes:
            return []
        mine = [note for note in await self.notes(owner, thread_id) if note.delivered_to in (None, run_id)]
        kept = self._notes.get((owner, thread_id), {})
        for note in mine:
            kept[note.run_id] = replace(note, delivered_to=run_id)
        return [kept[note.run_id] for note in mine]

    def _forget_notes(self) -> None:
        horizon = self._clock() - self._note_ttl
        for place, notes in list(self._notes.items()):
            for run_id in [run_id for run_id, note in notes.items() if note.ended_at < horizon]:
                del notes[run_id]
            if not notes:
                del self._notes[place]

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
