"""A tool that the browser runs: the gateway asks the pages that watch, one of them claims the call and answers it.

Contract 5.5. The claim, the pause for the person and the answer are state of a question in the store, so that any
worker takes them from the page; only the worker of the run watches the clock of the claim.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import time
from typing import Any

from gateway.errors import NotAvailable
from gateway.execution import outcomes
from gateway.execution.call import Call
from gateway.execution.outcomes import ToolOutput
from gateway.execution.question_desk import QuestionDesk
from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.waiting import Wait, begin_wait, end_wait, tell_wait
from gateway.run.questions import Question

__all__ = ["PageGone", "PageTool", "run_on_page"]


@dataclass(frozen=True, slots=True)
class PageTool:
    """A tool of the frontend's, as its request describes it: the gateway only knows its name."""

    name: str
    timeout: float | None = None
    retryable: bool = False
    task_support: str = "optional"


class PageGone(Exception):
    """The page that had claimed the call was not heard of in time."""


async def run_on_page(
    call: Call, arguments: Mapping[str, Any], desk: QuestionDesk | None, claim_seconds: float
) -> Settled[ToolOutput]:
    """Asks for the call to be run with these arguments, which are those that all that is around it has let pass.

    What a page makes of it, or `PageGone` when its claim lapses. An answer that was taken before a Stop counts.
    """
    if desk is None or call.run.lease is None:
        return Raised(NotAvailable("There is no page in a call without a run."))
    question = Question(
        f"page_{secrets.token_urlsafe(18)}", call.call_id, call.tool_name, time(), kind="page", arguments=arguments
    )
    page = _Page(call, desk, question, claim_seconds)
    try:
        await desk.ask(call.run.lease, question, page.heard)
        call.tell("tool.requested", {"input": dict(arguments)})
        await page.answered()
    except asyncio.CancelledError as error:
        return page.result or Raised(error, call.signal.aborted)
    except Exception as error:  # noqa: BLE001 - as for every tool, what went wrong is what the call comes to
        return Raised(error, call.signal.aborted)
    finally:
        page.leave()
    return page.result or Raised(PageGone(), call.signal.aborted)


class _Page:
    """What is known of the page that runs the call."""

    def __init__(self, call: Call, desk: QuestionDesk, question: Question, claim_seconds: float) -> None:
        self._call = call
        self._desk = desk
        self._question = question
        self._claim_seconds = claim_seconds
        self._changed = asyncio.Event()
        self._wait: Wait | None = None
        self.result: Returned[ToolOutput] | None = None

    def heard(self, question: Question) -> None:
        """The question has changed: somebody claimed it, said that the person is asked, or answered."""
        known, claim = self._question.claim, question.claim
        older = known is not None and claim is not None and claim.renewals < known.renewals
        if older or self._question.answer is not None:
            return  # messages may overtake each other
        self._question = question
        if question.answer is not None:
            self.result = Returned(_output_of(question.answer.payload), self._call.signal.aborted)
        self._call.taken = self._call.taken or claim is not None
        if claim is not None and claim.waiting and self._wait is None and question.open:
            self._wait = begin_wait(self._call, claim.message)
            tell_wait(self._call, self._wait)
        self._changed.set()

    async def answered(self) -> None:
        while self._question.answer is None:
            self._changed.clear()
            limit = None if self._question.claim is None else self._claim_seconds
            try:
                async with asyncio.timeout(limit):
                    await self._changed.wait()
            except TimeoutError:
                if not self._changed.is_set():  # else the page was heard of in the very turn in which time was up
                    await self._lapse()

    async def _lapse(self) -> None:
        """The claim is over, unless the page was faster."""
        question = self._question
        if await self._desk.store.replace_questions(self._call.run.key, [(question, replace(question, closed=True))]):
            raise PageGone
        known = await self._desk.find(self._call.run.key, question.interrupt_id)
        if known is None or known.closed:
            raise PageGone
        self.heard(known)

    def leave(self) -> None:
        if self._wait is not None:
            end_wait(self._call, self._wait)
        self._desk.close(self._call.run.key, self._question.interrupt_id)


def _output_of(payload: Any) -> ToolOutput:
    if not isinstance(payload, Mapping):
        return outcomes.navigated()
    output = outcomes.passed_on(ToolOutput.from_wire(payload))
    # What only the gateway may say: that the page has gone, that the call went on elsewhere.
    return replace(output, status="completed") if output.status in ("detached", "unknown") else output
