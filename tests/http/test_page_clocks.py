"""The clocks of a page tool, in virtual time: that of the claim, and that of the call."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import Conflict
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import CANCELLED
from gateway.execution.page_tools import PageTool
from gateway.execution.question_desk import QuestionDesk
from gateway.http.answers import answer_call, claim_call, pause_call
from gateway.http.engine import Engine
from gateway.wire.inputs import ClaimInput, ResultInput, WaitingInput
from tests.execution.detached import in_virtual_time, names_of, result_of, text_of
from tests.execution.running import Desk, desk

GONE = "Error [interrupted]: The page cancelled this call before it finished. Check the page before retrying."
LATE = 'Error [timeout]: "cart.add" didn\'t answer within {} s, so it was stopped. '
LATE += "It may have done its work: check before retrying."
NOT_HERE = 'Error [unavailable]: Tool "cart.add" is not on this page right now. Use another tool or try again later.'
CLAIM = 4  # seconds


class Page:
    """A page that runs the one call of a run, by the functions behind the routes."""

    def __init__(self, at: Desk, run: LiveRun) -> None:
        self._engine = cast(
            "Engine", SimpleNamespace(store=at.store, supervisor=at.supervisor, settings=at.supervisor.settings)
        )
        self._run = run
        self.claim_id = ""

    async def claim(self) -> None:
        """Takes the call, or renews its claim."""
        given = ClaimInput(claimId=self.claim_id or None)
        answer = await claim_call(self._engine, self._run.record, "call-1", given)
        assert answer["expiresIn"] == CLAIM
        assert self.claim_id in ("", answer["claimId"])
        self.claim_id = str(answer["claimId"])

    async def wait(self) -> None:
        """Shows the person something."""
        await pause_call(self._engine, self._run.record, "call-1", WaitingInput(claimId=self.claim_id, message="Look"))

    async def answer(self, text: str) -> None:
        output = {"content": [{"type": "text", "text": text}]}
        await answer_call(self._engine, self._run.record, "call-1", ResultInput(claimId=self.claim_id, output=output))

    async def is_refused(self) -> None:
        """Whatever it does now comes too late."""
        self.claim_id = self.claim_id or "none"
        for act in (self.claim, self.wait, lambda: self.answer("too late")):
            with pytest.raises(Conflict) as refused:
                await act()
            assert refused.value.code in ("not_waiting", "claim_lost")


async def asked(at: Desk, timeout: float = 0) -> tuple[LiveRun, Page]:
    """A run whose call waits for a page."""
    run = await at.start(cast("Any", PageTool("cart.add")), timeout=timeout)
    await at.saw(run, "tool.requested")
    return run, Page(at, run)


def seconds() -> float:
    return asyncio.get_running_loop().time()


def test_a_claim_lapses_when_nothing_is_heard_for_its_time_and_not_before() -> None:
    async def life() -> None:
        async with desk(page_claim=CLAIM) as at:
            run, page = await asked(at)
            await asyncio.sleep(100)  # nobody has to claim it
            await page.claim()
            claimed = seconds()
            await run.done.wait()
            assert CLAIM <= seconds() - claimed < CLAIM + 0.1
            await page.is_refused()
            _, events = await at.finish(run)
            result = result_of(events)
            assert (result["status"], text_of(result)) == ("interrupted", GONE)
            assert result["error"] == {"code": "interrupted", "message": GONE, "retryable": False}

    in_virtual_time(life)


@pytest.mark.parametrize("how", ["claim", "wait"])
def test_a_claim_that_is_renewed_in_time_never_lapses(how: str) -> None:
    async def life() -> None:
        async with desk(page_claim=CLAIM) as at:
            run, page = await asked(at)
            await page.claim()
            for _ in range(50):
                await asyncio.sleep(CLAIM - 0.5)
                await getattr(page, how)()
            await asyncio.sleep(CLAIM - 0.5)
            await page.answer("still here")
            _, events = await at.finish(run)
            assert text_of(result_of(events)) == "still here"
            assert names_of(events).count("tool.waiting") == (how == "wait")

    in_virtual_time(life)


def test_a_page_that_waits_for_the_person_still_has_to_renew_its_claim() -> None:
    async def life() -> None:
        async with desk(page_claim=CLAIM) as at:
            run, page = await asked(at)
            await page.claim()
            await asyncio.sleep(1)
            await page.wait()
            paused = seconds()
            assert run.record.status == "waiting"
            await run.done.wait()
            assert CLAIM <= seconds() - paused < CLAIM + 0.1
            _, events = await at.finish(run)
            assert text_of(result_of(events)) == GONE
            assert names_of(events)[5:8] == ["tool.waiting", "tool.resumed", "tool.result"]

    in_virtual_time(life)


@pytest.mark.parametrize("claimed", [False, True], ids=["unclaimed", "claimed"])
def test_the_clock_of_the_call_runs_whether_it_is_claimed_or_not(claimed: bool) -> None:
    async def life() -> None:
        async with desk(page_claim=CLAIM) as at:
            began = seconds()
            run, page = await asked(at, timeout=10)
            while claimed and seconds() - began < 9:
                await page.claim()
                await asyncio.sleep(1)
            await run.done.wait()
            assert 10 <= seconds() - began < 10.1
            await page.is_refused()
            _, events = await at.finish(run)
            result = result_of(events)
            found = ("timeout", LATE.format(10)) if claimed else ("unavailable", NOT_HERE)
            assert (result["status"], text_of(result)) == found

    in_virtual_time(life)


def test_waiting_for_the_person_stops_the_clock_of_the_call_for_good() -> None:
    async def life() -> None:
        async with desk(page_claim=CLAIM, run_timeout=60) as at:
            run, page = await asked(at, timeout=10)
            await page.claim()
            await page.wait()
            for _ in range(100):
                await asyncio.sleep(CLAIM - 1)
                await page.claim()
            assert (run.record.status, run.record.calls[0].status) == ("waiting", "waiting")
            await page.answer("large")
            record, events = await at.finish(run)
            assert (record.status, text_of(result_of(events))) == ("completed", "large")
            (resumed,) = [event["value"] for event in events if event.get("name") == "tool.resumed"]
            assert set(resumed) == {"toolCallId", "toolName", "waitedMs"}

    in_virtual_time(life)


@pytest.mark.parametrize("end", ["answer", "Stop"])
async def test_nothing_is_taken_from_a_page_while_the_question_of_a_call_that_is_over_is_still_being_closed(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store elsewhere that takes a while: here it never comes to it."""
    monkeypatch.setattr(QuestionDesk, "close", lambda *_: None)
    async with desk(page_claim=CLAIM) as at:
        run, page = await asked(at)
        await page.claim()
        if end == "Stop":
            await at.stop(run)
        else:
            await page.answer("in time")
        _, events = await at.finish(run)
        assert text_of(result_of(events)) == ("in time" if end == "answer" else CANCELLED)
        await page.is_refused()


def test_news_of_a_claim_that_come_after_the_answer_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store is elsewhere, news may overtake each other, and be lost."""

    async def life() -> None:
        async with desk(page_claim=CLAIM) as at:
            run, page = await asked(at)
            await page.claim()
            (question,) = await at.store.questions(run.key)
            await asyncio.sleep(1)  # the news of the claim have come
            answered = seconds()
            monkeypatch.setattr(at.store, "changed", lambda *_: None)
            await page.answer("the answer")
            at.supervisor.questions.changed(question)
            _, events = await at.finish(run)
            assert text_of(result_of(events)) == "the answer"
            assert seconds() == answered

    in_virtual_time(life)
