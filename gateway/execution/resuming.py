"""Going on with the person's answers: what a call that is made again gets, and what an agent has not heard yet."""

from __future__ import annotations

from time import time

from ag_ui.core import ResumeEntry

from gateway.execution.approvals import edited_by
from gateway.execution.call import Call
from gateway.run.interrupts import shown_arguments
from gateway.run.questions import AGENT_KEY, APPROVAL_KEY, Answer, Question

__all__ = ["answer_kept", "kept_answer", "resume_call"]

KEPT = "kept/"


def resume_call(call: Call, question: Question) -> None:
    """Gives a call its answers so far, and the arguments it had or was approved with: what was asked about is run."""
    given = {key: answer for key, answer in question.earlier.items() if key != APPROVAL_KEY}
    call.arguments = question.arguments
    if (approval := question.earlier.get(APPROVAL_KEY)) is not None:
        call.approval, call.approved_for = approval, edited_by(approval)
    if question.answer is not None and question.key == APPROVAL_KEY:
        shown, edited = shown_arguments(question), edited_by(question.answer)
        call.approval, call.approved_for = question.answer, shown
        if edited is not None and edited != shown:
            call.arguments, call.approved_for = edited, None
    elif question.answer is not None:
        given[question.key] = call.newest = question.answer
    call.answers = given


def kept_answer(entry: ResumeEntry) -> Question:
    """The answer to an agent's own question, for the next run: this one ends before the agent is called."""
    answer = Answer(entry.status, entry.payload)
    return Question(KEPT + entry.interrupt_id, "", "", time(), kind="kept", key=AGENT_KEY, answer=answer)


def answer_kept(question: Question) -> ResumeEntry:
    """What `kept_answer` has kept."""
    if question.answer is None:
        raise RuntimeError("An answer that is kept is there.")
    said = question.answer
    return ResumeEntry(interrupt_id=question.interrupt_id.removeprefix(KEPT), status=said.status, payload=said.payload)
