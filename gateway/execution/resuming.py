"""Making a call again with the person's answer: what it gets of the question with which it ended its run."""

from __future__ import annotations

from gateway.execution.approvals import edited_by
from gateway.execution.call import Call
from gateway.run.questions import APPROVAL_KEY, Question

__all__ = ["resume_call"]


def resume_call(call: Call, question: Question) -> None:
    """Gives a call its answers so far, and the arguments it had or was approved with: what was asked about is run."""
    given = {key: answer for key, answer in question.earlier.items() if key != APPROVAL_KEY}
    call.approval = question.earlier.get(APPROVAL_KEY)
    call.arguments = question.arguments
    if question.answer is not None and question.key == APPROVAL_KEY:
        call.approval = question.answer
        edited = edited_by(question.answer)
        call.arguments = question.arguments if edited is None else edited
    elif question.answer is not None:
        given[question.key] = call.newest = question.answer
    call.answers = given
