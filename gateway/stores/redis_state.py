"""The small things that belong to runs and sessions, in Redis: questions, notes, visibility, tickets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from gateway.errors import Fenced, StoreError
from gateway.run.questions import Note, Question
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Lease, QuestionChanged, Ticket, Visibility
from gateway.stores.redis_keys import Keys, raw
from gateway.stores.redis_line import Line
from gateway.stores.redis_scripts import ASK, CLOSE_NOTES, NOTES, SWAP, SWAP_TICKET, Argument
from gateway.stores.redis_writer import record_bytes
from gateway.stores.values import dump, load

__all__ = ["RedisState", "nonce"]

VALUE = 8 + 32  # where a question begins in its value, see `redis_scripts.ASK`
NONCE = 32
# What nothing takes away together with its run is forgotten when it was not used for so long; no run lives longer.
LONG = 90 * 24 * 3600


def nonce() -> str:
    """Tells a request from all others, so that it counts once however often it is sent."""
    return uuid4().hex


class RedisState(ABC):
    """The part of `RedisStore` that has no log."""

    _settings: Settings
    _keys: Keys
    _line: Line

    @abstractmethod
    def _now(self) -> str:
        """The time for a script; empty: the server's."""

    @abstractmethod
    def _notify(self, worker: str, message: QuestionChanged) -> None:
        """Tells a worker."""

    @abstractmethod
    async def _there(self, key: RunKey) -> bool:
        """Whether the run's time is not over although Redis has not removed it yet, as only in a test."""

    @abstractmethod
    async def get(self, key: RunKey) -> RunRecord | None: ...

    # -- questions --

    async def ask(self, lease: Lease, question: Question) -> None:
        keys = self._keys.run(lease.key)
        # The index first: one that leads to nothing is as good as none, and a question that nobody finds is not.
        index = self._keys.question(question.interrupt_id)
        arguments = (self._now(), lease.epoch, raw(question.interrupt_id), dump(question))
        _, answer = await self._line.submit(
            ("SET", index, dump(lease.key), "EX", LONG), ASK([keys.run, keys.questions], *arguments)
        )
        if answer == -1:
            raise StoreError("Redis does not have this run any more.")
        if answer == -2:
            raise Fenced("Another worker has taken this run over.")

    async def questions(self, key: RunKey) -> list[Question]:
        if not await self._there(key):
            return []
        return [question for _, question in await self._asked(key)]

    async def find_question(self, interrupt_id: str) -> tuple[RunKey, Question] | None:
        text = await self._line.ask(("GETEX", self._keys.question(interrupt_id), "EX", LONG))
        if text is None:
            return None
        key = load(RunKey, text.decode())
        value = await self._line.ask(("HGET", self._keys.run(key).questions, raw(interrupt_id)))
        if value is None or not await self._there(key):
            return None
        return key, load(Question, value[VALUE:].decode())

    async def replace_questions(self, key: RunKey, changes: Sequence[tuple[Question, Question]]) -> bool:
        worker = await self._swap(key, [(old.interrupt_id, dump(old), new) for old, new in changes])
        if worker is None:
            return False
        for _, new in changes:
            self._notify(worker, QuestionChanged(key, new.interrupt_id))
        return True

    async def cancel_interrupted(self, key: RunKey) -> RunRecord | None:
        while True:
            record = await self.get(key)
            if record is None or record.status != "interrupted":
                return record
            opened = [(text, question) for text, question in await self._asked(key) if question.open]
            if not opened:
                return record
            changes = [(question.interrupt_id, text, replace(question, closed=True)) for text, question in opened]
            cancelled = record.stopped()
            if await self._swap(key, changes, cancelled):
                return cancelled

    async def _asked(self, key: RunKey) -> list[tuple[str, Question]]:
        """Each question as text and as what it is, in the order in which they were asked."""
        values = await self._line.ask(("HVALS", self._keys.run(key).questions))
        texts = [value[VALUE:].decode() for value in sorted(values)]
        return [(text, load(Question, text)) for text in texts]

    async def _swap(
        self, key: RunKey, changes: Sequence[tuple[str, str, Question]], cancelled: RunRecord | None = None
    ) -> str | None:
        """The worker of the run; None when something was not as it was."""
        keys = self._keys.run(key)
        parts: list[Argument] = []
        for interrupt_id, old, new in changes:
            parts += [raw(interrupt_id), old, dump(new)]
        records: tuple[Argument, Argument] = ("", "")
        if cancelled is not None:
            stored = await self._line.ask(("HGET", keys.run, "record"))
            records = (stored or b"-", record_bytes(cancelled))
        worker = await self._line.ask(SWAP([keys.run, keys.questions], self._now(), nonce(), *records, *parts))
        return None if worker is None else cast("bytes", worker).decode("utf-8", "surrogatepass")

    # -- notes --

    async def add_note(self, owner: str, thread_id: str, note: Note) -> None:
        await self._notes(owner, thread_id, "", raw(note.run_id), repr(float(note.ended_at)), dump(note))

    async def notes(self, owner: str, thread_id: str) -> list[Note]:
        return await self._notes(owner, thread_id, "")

    async def take_notes(self, owner: str, thread_id: str, run_id: str) -> list[Note]:
        notes = await self._notes(owner, thread_id, run_id)
        return [note for note in notes if note.delivered_to == run_id]

    async def close_notes(self, key: RunKey, thread_id: str) -> list[Note]:
        owner, run_id = key
        if owner is None:
            return []
        kept = str(self._settings.interrupt_ttl)
        await self._line.ask(CLOSE_NOTES([self._keys.notes(owner, thread_id)], self._now(), kept, raw(run_id)))
        return [note for note in await self._notes(owner, thread_id, "") if note.delivered_to == run_id]

    async def _notes(self, owner: str, thread_id: str, taker: str, *added: Argument) -> list[Note]:
        kept = str(self._settings.interrupt_ttl)
        script = NOTES([self._keys.notes(owner, thread_id)], self._now(), kept, raw(taker), *added)
        found: list[bytes] = await self._line.ask(script)
        pairs = zip(found[::2], found[1::2], strict=True)
        notes = [replace(load(Note, text.decode()), delivered_to=_text(taken) or None) for text, taken in pairs]
        return sorted(notes, key=lambda note: note.ended_at)

    # -- visibility --

    async def visibility(self, session: str) -> Visibility:
        """The session's rules; asking keeps them alive for another `session_ttl`."""
        text = await self._line.ask(("GETEX", self._keys.visibility(session), "PX", self._session_ms))
        return Visibility() if text is None else load(Visibility, text.decode())

    async def set_visibility(self, session: str, visibility: Visibility) -> None:
        await self._line.ask(("SET", self._keys.visibility(session), dump(visibility), "PX", self._session_ms))

    @property
    def _session_ms(self) -> int:
        return max(int(self._settings.session_ttl * 1000), 1)

    # -- tickets: good for the run they were made for, and not for a later one of its name --

    async def put_ticket(self, ticket: Ticket) -> None:
        value = ("0" * NONCE).encode() + await self._born(ticket.key) + dump(ticket).encode()
        await self._line.ask(("SET", self._keys.ticket(ticket.digest), value, "EX", LONG))

    async def ticket(self, digest: str) -> Ticket | None:
        value: Any = await self._line.ask(("GETEX", self._keys.ticket(digest), "EX", LONG))
        if value is None:
            return None
        ticket = load(Ticket, value[2 * NONCE :].decode())
        return ticket if await self._born(ticket.key) == value[NONCE : 2 * NONCE] else None

    async def _born(self, key: RunKey) -> bytes:
        """What the run has in common with no other."""
        born: bytes | None = await self._line.ask(("HGET", self._keys.run(key).run, "born"))
        return born or b"-" * NONCE

    async def replace_ticket(self, old: Ticket, new: Ticket) -> bool:
        """Compare and swap: false when somebody else used the ticket in between."""
        arguments = (self._now(), nonce(), dump(old), dump(new), LONG)
        return bool(await self._line.ask(SWAP_TICKET([self._keys.ticket(old.digest)], *arguments)))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
