"""The person of a test: answers what a tool asks, by the test's own function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gateway.execution.asking import InputResponse
from gateway.run.questions import APPROVAL_KEY, Answer, Question
from gateway.wire.json_schema import misfits

__all__ = ["Answers", "answered"]

Answers = Callable[[Mapping[str, Any]], object]


def answered(question: Question, answers: Answers | None, run_id: str | None = None) -> Question:
    """The question with the answer of the test; an approval is given when the test says nothing about it.

    `RuntimeError` when a tool asks and the test has no `answer`; `ValueError` when its answer breaks the schema.
    """
    if answers is None:
        if question.key != APPROVAL_KEY:
            raise RuntimeError(f"The tool asks {question.message!r}: give run_tool an `answer`.")
        return replace(question, answer=Answer("resolved", {"approved": True}, run_id))
    said = answers(
        {
            "key": question.key,
            "message": question.message,
            "reason": question.reason,
            "schema": question.response_schema,
            "arguments": dict(question.arguments),
        }
    )
    given = said if isinstance(said, InputResponse) else InputResponse("resolved", said)
    if given.resolved and (found := misfits(question.response_schema, given.payload)):
        raise ValueError(f"The answer to {question.message!r} does not fit: {found}")
    return replace(question, answer=Answer(given.status, given.payload, run_id))
