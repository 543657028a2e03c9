"""The small things that belong to runs and sessions, in the file: questions, notes, visibility, tickets.

Everything here is called inside a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence
from dataclasses import replace

from gateway.errors import Fenced, StoreError
from gateway.run.questions import Note, Question
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores import sqlite_log as log
from gateway.stores.base import Lease, QuestionChanged, Ticket, Visibility
from gateway.stores.sqlite_runs import RunTable
from gateway.stores.values import dump, load

__all__ = ["StateTables"]

TOUCHES = 256  # a session's last use is as exact as this part of its time, so that not every request writes


class StateTables:
    """See the module; times are those of the runs' table."""

    def __init__(self, runs: RunTable, settings: Settings) -> None:
        self._runs = runs
        self._session_ttl = settings.session_ttl
        self._note_ttl = settings.interrupt_ttl

    # -- questions --

    def ask(self, db: sqlite3.Connection, lease: Lease, question: Question) -> None:
        found = log.find_lease(db, lease.key)
        if found is None:
            raise StoreError("The store has lost this run.")
        if found[1] != lease.epoch:
            raise Fenced("Another worker has taken this run over.")
        query = "INSERT OR IGNORE INTO questions (run, interrupt_id, body) VALUES (?, ?, ?)"
        db.execute(query, (found[0], question.interrupt_id, dump(question)))
        db.execute("INSERT OR REPLACE INTO asked VALUES (?, ?)", (question.interrupt_id, found[0]))

    def questions(self, db: sqlite3.Connection, key: RunKey) -> list[Question]:
        query = """
            SELECT questions.body FROM questions JOIN runs ON runs.run = questions.run
            WHERE run_id = ? AND owner IS ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY question"""
        return [load(Question, body) for (body,) in db.execute(query, (key.run_id, key.owner, self._runs.now()))]

    def find_question(self, db: sqlite3.Connection, interrupt_id: str) -> tuple[RunKey, Question] | None:
        query = """
            SELECT owner, run_id, questions.body FROM asked JOIN runs ON runs.run = asked.run
            JOIN questions ON questions.run = asked.run AND questions.interrupt_id = asked.interrupt_id
            WHERE asked.interrupt_id = ? AND (expires_at IS NULL OR expires_at > ?)"""
        found = db.execute(query, (interrupt_id, self._runs.now())).fetchone()
        return None if found is None else (RunKey(*found[:2]), load(Question, found[2]))

    def replace_questions(
        self,
        db: sqlite3.Connection,
        key: RunKey,
        changes: Sequence[tuple[Question, Question]],
        here: Container[str],
    ) -> tuple[bool, str | None]:
        """Whether they were changed, and the worker to be told; one that is `here` is told without the file."""
        found = self._runs.find(db, key)
        asked = {question.interrupt_id: question for question in self.questions(db, key)}
        if found is None or any(asked.get(old.interrupt_id) != old for old, _ in changes):
            return not changes, None
        for _, new in changes:
            self._put(db, found.run, new)
            if found.worker not in here and not found.over:
                self._runs.tell(db, found.worker, "question", dump(QuestionChanged(key, new.interrupt_id)))
        return True, found.worker

    def cancel_interrupted(self, db: sqlite3.Connection, key: RunKey) -> RunRecord | None:
        found = self._runs.find(db, key)
        if found is None:
            return None
        record = self._runs.record(db, found.run)
        waiting = [question for question in self.questions(db, key) if question.open]
        if record.status != "interrupted" or not waiting:
            return record
        for question in waiting:
            self._put(db, found.run, replace(question, closed=True))
        record = record.stopped()
        # It stays for as long as it would have: only what it says of itself is another.
        bare = replace(record, messages=None, result=None)
        query = "UPDATE runs SET status = ?, record = ? WHERE run = ?"
        db.execute(query, (record.status, dump(bare), found.run))
        return record

    def _put(self, db: sqlite3.Connection, run: int, question: Question) -> None:
        query = "UPDATE questions SET body = ? WHERE run = ? AND interrupt_id = ?"
        db.execute(query, (dump(question), run, question.interrupt_id))

    # -- notes --

    def add_note(self, db: sqlite3.Connection, owner: str, thread_id: str, note: Note) -> None:
        horizon = self._runs.now() - self._note_ttl
        query = "DELETE FROM notes WHERE owner = ? AND thread_id = ? AND ended_at < ?"
        db.execute(query, (owner, thread_id, horizon))
        query = "INSERT OR IGNORE INTO notes VALUES (?, ?, ?, ?, ?)"
        db.execute(query, (owner, thread_id, note.run_id, note.ended_at, dump(note)))

    def notes(self, db: sqlite3.Connection, owner: str, thread_id: str) -> list[Note]:
        query = "SELECT body FROM notes WHERE owner = ? AND thread_id = ? AND ended_at >= ? ORDER BY ended_at, rowid"
        rows = db.execute(query, (owner, thread_id, self._runs.now() - self._note_ttl))
        return [load(Note, body) for (body,) in rows]

    def close_notes(self, db: sqlite3.Connection, key: RunKey, thread_id: str) -> list[Note]:
        owner, run_id = key
        if owner is None:
            return []
        db.execute("UPDATE runs SET takes_notes = 0 WHERE owner = ? AND run_id = ?", (owner, run_id))
        return [note for note in self.notes(db, owner, thread_id) if note.delivered_to == run_id]

    def take_notes(self, db: sqlite3.Connection, owner: str, thread_id: str, run_id: str) -> list[Note]:
        query = "SELECT 1 FROM runs WHERE owner = ? AND run_id = ? AND NOT takes_notes"
        if db.execute(query, (owner, run_id)).fetchone() is not None:
            return []
        mine = [note for note in self.notes(db, owner, thread_id) if note.delivered_to in (None, run_id)]
        taken = [replace(note, delivered_to=run_id) for note in mine]
        query = "UPDATE notes SET body = ? WHERE owner = ? AND thread_id = ? AND run_id = ?"
        db.executemany(query, [(dump(note), owner, thread_id, note.run_id) for note in taken])
        return taken

    # -- visibility --

    def visibility(self, db: sqlite3.Connection, session: str) -> tuple[Visibility, bool]:
        """The session's rules, and whether its use is to be written down."""
        now = self._runs.now()
        query = "SELECT body, used_at FROM visibility WHERE session = ? AND used_at >= ?"
        found = db.execute(query, (session, now - self._session_ttl)).fetchone()
        if found is None:
            return Visibility(), False
        return load(Visibility, found[0]), found[1] < now - self._session_ttl / TOUCHES

    def touch(self, db: sqlite3.Connection, session: str) -> None:
        db.execute("UPDATE visibility SET used_at = ? WHERE session = ?", (self._runs.now(), session))

    def set_visibility(self, db: sqlite3.Connection, session: str, visibility: Visibility) -> None:
        db.execute("INSERT OR REPLACE INTO visibility VALUES (?, ?, ?)", (session, self._runs.now(), dump(visibility)))

    # -- tickets --

    def put_ticket(self, db: sqlite3.Connection, ticket: Ticket) -> None:
        query = "INSERT OR REPLACE INTO tickets VALUES (?, ?, ?, ?)"
        db.execute(query, (ticket.digest, ticket.key.owner, ticket.key.run_id, dump(ticket)))

    def ticket(self, db: sqlite3.Connection, digest: str) -> Ticket | None:
        found = db.execute("SELECT body FROM tickets WHERE digest = ?", (digest,)).fetchone()
        return None if found is None else load(Ticket, found[0])

    def replace_ticket(self, db: sqlite3.Connection, old: Ticket, new: Ticket) -> bool:
        if self.ticket(db, old.digest) != old:
            return False
        db.execute("UPDATE tickets SET body = ? WHERE digest = ?", (dump(new), new.digest))
        return True
