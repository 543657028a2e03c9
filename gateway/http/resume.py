"""Answers that resume an interrupted run: whose they are, whether they fit, and the calls that are made again.

Refusals come before anything has started, and change nothing. Contract 4.2 (interrupts), 5.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import time
from typing import Any

from gateway.errors import Conflict, InterruptExpired, InvalidArguments, NotFound, RequestError
from gateway.execution import outcomes
from gateway.execution.agents import TOOLS_AGENT
from gateway.execution.approvals import edited_by
from gateway.execution.call import Call
from gateway.execution.outcomes import ToolOutput
from gateway.execution.resuming import resume_call
from gateway.execution.session_tools import SessionTools
from gateway.execution.spec import Resumption
from gateway.http.engine import Engine
from gateway.run.questions import AGENT_KEY, APPROVAL_KEY, Answer, Question
from gateway.run.records import RunKey, RunRecord
from gateway.wire.agent_input import PendingCall
from gateway.wire.inputs import ResumeEntry
from gateway.wire.json_schema import misfits

__all__ = ["Resumed", "checked_payload", "resumed"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume comes to: the run it goes on from, its questions by call, and the change in the store.

    `own` are the questions that its agent has asked by itself, `kept` answers to such ones that it has not heard yet.
    """

    record: RunRecord
    answered: Mapping[str, Question]
    answers: Resumption
    refused: Mapping[str, ToolOutput]
    own: frozenset[str] = frozenset()
    kept: tuple[Question, ...] = ()

    def as_asked(self, call: PendingCall) -> PendingCall:
        """The call of a request; one that has asked is of the tool that did."""
        question = self.answered.get(call.call_id)
        return call if question is None else call._replace(tool_name=question.tool_name)

    def apply(self, call: Call) -> None:
        """Gives a call that is made again its answers, and the arguments it had or was approved with."""
        call.refused = self.refused.get(call.call_id)
        resume_call(call, self.answered[call.call_id])


async def resumed(
    engine: Engine,
    owner: str | None,
    run_id: str,
    thread_id: str | None,
    entries: Sequence[ResumeEntry],
    tools: SessionTools,
    *,
    agent: str = TOOLS_AGENT,
) -> Resumed:
    """Checks a `resume` of the run of `agent` that is to be `run_id`.

    `NotFound` for a question that is not the caller's, `RequestError` when an open one is not named, `Conflict`,
    `InterruptExpired` and `InvalidArguments` for an answer that comes too late or does not fit.
    """
    key, record = await _interrupted_run(engine, owner, thread_id, entries)
    if record.agent != agent:
        raise _unknown(0)
    questions = await engine.store.questions(key)
    asked = {q.interrupt_id: q for q in questions if q.kind == "interrupt"}
    named = {entry.interrupt_id for entry in entries}
    _check_complete([q for q in asked.values() if q.open and q.interrupt_id not in named])
    answered: dict[str, Question] = {}
    refused: dict[str, ToolOutput] = {}
    changes: list[tuple[Question, Question]] = []
    for index, entry in enumerate(entries):
        question = asked[entry.interrupt_id]
        mine = question.answer is not None and question.answer.run_id == run_id
        # The same request, sent again: after a crash, before its run was there, or in the very moment in which it came.
        if mine and (not question.closed or await engine.store.get(RunKey(key.owner, run_id)) is not None):
            answered[question.call_id] = question
        elif not question.open or record.status != "interrupted":
            answered[question.call_id] = question
            refused[question.call_id] = _too_late(entry, question, record)
        else:
            new = replace(question, answer=Answer(entry.status, entry.payload, run_id))
            with _named(index):
                await _check_answer(entry, question, tools)
            changes.append((question, new))
            answered[question.call_id] = new
    of_calls = {call_id: question for call_id, question in answered.items() if question.key != AGENT_KEY}
    own = frozenset(question.interrupt_id for question in answered.values() if question.key == AGENT_KEY)
    kept = tuple(question for question in questions if question.kind == "kept")
    return Resumed(record, of_calls, Resumption(key, tuple(changes)), refused, own, kept)


async def _interrupted_run(
    engine: Engine, owner: str | None, thread_id: str | None, entries: Sequence[ResumeEntry]
) -> tuple[RunKey, RunRecord]:
    keys = set()
    for index, entry in enumerate(entries):
        found = await _place_of(engine, owner, thread_id, entry.interrupt_id)
        if found is None:
            raise _unknown(index)
        keys.add(found)
    if len(keys) != 1:
        message = "resume: these questions belong to different runs; resume one at a time."
        raise RequestError(message, details=[{"field": "resume", "message": "questions of different runs"}])
    key = keys.pop()
    record = await engine.store.get(key)
    if record is None or thread_id not in (None, record.thread_id):
        raise _unknown(0)
    return key, record


async def _place_of(engine: Engine, owner: str | None, thread_id: str | None, interrupt_id: str) -> RunKey | None:
    """The run that has asked this of the caller, in this conversation if there is one."""
    found = await engine.store.find_question(interrupt_id)
    known = found[0] if found is not None and found[0].owner == owner and found[1].kind == "interrupt" else None
    record = None if known is None else await engine.store.get(known)
    if owner is None or thread_id is None or (record is not None and record.thread_id == thread_id):
        return known
    # An agent's own ids may be there in several conversations; in one of them the newest counts.
    runs = await engine.store.list_runs(owner, thread_id=thread_id, status="interrupted")
    for run in runs.items:
        if run.outcome is not None and interrupt_id in [asked["id"] for asked in run.outcome["interrupts"]]:
            return run.key
    return known


def _unknown(index: int) -> NotFound:
    message = "There is no question with such an id in this conversation."
    details = [{"field": f"resume.{index}.interruptId", "message": "unknown"}]
    return NotFound(message, code="interrupt_not_found", details=details)


def _check_complete(missing: Sequence[Question]) -> None:
    if missing:
        ids = ", ".join(question.interrupt_id for question in missing)
        details = [{"field": "resume", "message": f"does not name {question.interrupt_id}"} for question in missing]
        raise RequestError(f"resume must answer every open question of the run, also {ids}.", details=details)


def _too_late(entry: ResumeEntry, question: Question, record: RunRecord) -> ToolOutput:
    """What a call comes to whose question is over: it is not made again. Only `cancelled` may say so late."""
    if entry.status == "resolved":
        if question.answer is not None:
            raise Conflict("This question was answered already.", code="interrupt_answered")
        raise Conflict("This question is closed: its run was stopped.", code="interrupt_closed")
    if record.status == "cancelled":
        return outcomes.cancelled()
    return outcomes.interrupted(question.tool_name, "an earlier answer to its question", retryable=False)


@contextmanager
def _named(index: int) -> Iterator[None]:
    """Says which of several answers does not fit."""
    try:
        yield
    except InvalidArguments as error:
        details = error.details if isinstance(error.details, list) else []
        error.details = [{**item, "field": f"resume.{index}.{item['field']}"} for item in details]
        raise


async def _check_answer(entry: ResumeEntry, question: Question, tools: SessionTools) -> None:
    if entry.status == "cancelled":
        return
    if question.expires_at is not None and question.expires_at < time():
        raise InterruptExpired("This question has expired; it can only be cancelled.")
    await checked_payload(question, entry.payload, tools)


async def checked_payload(question: Question, payload: Any, tools: SessionTools) -> None:
    """`InvalidArguments` when an answer breaks its question's schema, or edited arguments do not fit the tool."""
    # In a thread: what a schema costs is its author's choice, and a payload may be large.
    details = await asyncio.to_thread(misfits, question.response_schema, payload)
    if details:
        named = "; ".join(f"{item['field']}: {item['message']}" for item in details)
        raise InvalidArguments(f"The answer does not fit: {named}", code="invalid_payload", details=details)
    if question.key == APPROVAL_KEY and (edited := edited_by(Answer("resolved", payload))) is not None:
        tool = tools.get(question.tool_name)
        if tool is not None:
            tool.validate(edited)
