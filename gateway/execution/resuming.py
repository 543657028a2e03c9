"""Making a call again with the person's answer: what it gets of the question with which it ended its run."""

from __future__ import annotations

from gateway.execution.approvals import edited_by
from gateway.execution.call import Call
from gateway.run.interrupts import shown_arguments
from gateway.run.questions import APPROVAL_KEY, Question

__all__ = ["resume_call"]


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
