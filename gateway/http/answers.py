"""Answers to what is asked inside an open run, by a person or, for its own tools, by a page (contract 3, 5.5, 5.6)."""

from __future__ import annotations

import secrets
from dataclasses import replace

from gateway.errors import Conflict, NotFound
from gateway.execution.session_tools import SessionTools
from gateway.http.engine import Engine
from gateway.http.requests import unknown
from gateway.http.resume import checked_payload
from gateway.run.questions import Answer, Claim, Question
from gateway.run.records import RunKey, RunRecord
from gateway.wire.inputs import AnswerInput, ClaimInput, ResultInput, WaitingInput

__all__ = ["answer_call", "answer_question", "claim_call", "pause_call"]


async def answer_question(engine: Engine, record: RunRecord, given: AnswerInput, tools: SessionTools) -> None:
    """Answers an open question; of two answers the first counts.

    `NotFound` (`interrupt_not_found`), `Conflict` (`interrupt_answered`, `interrupt_closed`), `InvalidArguments`.
    """
    key = record.key
    while True:
        question = await _open_question(engine, key, given.interrupt_id)
        if given.status == "resolved":
            await checked_payload(question, given.payload, tools)
            question = await _open_question(engine, key, given.interrupt_id)  # that took a while
        new = replace(question, answer=Answer(given.status, given.payload))
        if await _replaced(engine, key, question, new):
            return


async def _open_question(engine: Engine, key: RunKey, interrupt_id: str) -> Question:
    """The question, as long as somebody waits for its answer."""
    record = await engine.store.get(key)  # before the question, whose answer may be what has ended the run
    question = await engine.supervisor.questions.find(key, interrupt_id)
    if question is None or question.kind not in ("open", "interrupt"):
        raise NotFound("This run has no question with such an id.", code="interrupt_not_found")
    if question.answer is not None:
        raise Conflict("This question was answered already.", code="interrupt_answered")
    if record is None:
        raise unknown("run")
    if record.over and question.kind == "interrupt" and record.status == "interrupted":
        raise Conflict("This run has ended with its question: start a run with `resume`.", code="interrupt_closed")
    ending = record.status == "stopping" or record.stop_requested or _is_ending(engine, record, question.call_id)
    if question.closed or record.over or ending:
        raise Conflict("Nobody waits for this answer any more.", code="interrupt_closed")
    return question


async def _replaced(engine: Engine, key: RunKey, old: Question, new: Question) -> bool:
    """Changes the question in the store; its run, if it is here, hears of it at once."""
    done = await engine.store.replace_questions(key, [(old, new)])
    if done:
        engine.supervisor.questions.changed(new)
    return done


# -- page tools --


async def claim_call(engine: Engine, record: RunRecord, call_id: str, given: ClaimInput) -> dict[str, object]:
    """Takes a call for a page, or renews the claim it has; `Conflict` for everybody else."""
    while True:
        question = await _page_question(engine, record, call_id)
        claim = question.claim
        if claim is None and given.claim_id is None:
            new = Claim(secrets.token_urlsafe(18))
        elif claim is not None and claim.claim_id == given.claim_id:
            new = replace(claim, renewals=claim.renewals + 1)
        else:
            raise Conflict("Another page has claimed this call.", code="claim_lost")
        if await _replaced(engine, record.key, question, replace(question, claim=new)):
            return {"claimId": new.claim_id, "expiresIn": engine.settings.page_claim}


async def pause_call(engine: Engine, record: RunRecord, call_id: str, given: WaitingInput) -> None:
    """The page shows the person something and waits: the clock of the call stops for good."""
    while True:
        question = await _page_question(engine, record, call_id)
        claim = _claim_of(question, given.claim_id)
        new = replace(claim, renewals=claim.renewals + 1, waiting=claim.waiting + 1, message=given.message)
        if await _replaced(engine, record.key, question, replace(question, claim=new)):
            return


async def answer_call(engine: Engine, record: RunRecord, call_id: str, given: ResultInput) -> None:
    """What the page's tool came to."""
    while True:
        question = await _page_question(engine, record, call_id)
        _claim_of(question, given.claim_id)
        new = replace(question, answer=Answer("resolved", given.output))
        if await _replaced(engine, record.key, question, new):
            return


async def _page_question(engine: Engine, record: RunRecord, call_id: str) -> Question:
    asked = [q for q in await engine.store.questions(record.key) if q.kind == "page" and q.call_id == call_id]
    # The record is older than the body. When a call is over, its question is closed a moment later.
    now = await engine.store.get(record.key)
    call = None if now is None else now.call(call_id)
    if now is None or call is None:
        raise unknown("call")
    over = now.over or call.ended_at is not None or _is_ending(engine, record, call_id)
    if not asked or not asked[-1].open or over:
        raise Conflict("This call does not wait for a page.", code="not_waiting")
    return asked[-1]


def _claim_of(question: Question, claim_id: str) -> Claim:
    if question.claim is None or question.claim.claim_id != claim_id:
        raise Conflict("This call is claimed by another page, or by none.", code="claim_lost")
    return question.claim


def _is_ending(engine: Engine, record: RunRecord, call_id: str) -> bool:
    """Whether the call is being stopped here: then what a page has done comes too late."""
    run = engine.supervisor.live(record.key)
    call = None if run is None else run.calls.get(call_id)
    return call is not None and call.signal.aborted
