"""What a tool asks, answered on the page: inside the open run, as an approval, and after its run has ended with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.pages import STOP_BUTTON, choose, noted_by_the_browser, open_tab, record_of, run
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server

QUESTION = by_id("question")
YES, NO = f"{QUESTION} {by_id('question-yes')}", f"{QUESTION} {by_id('question-no')}"
QUESTIONS = f"document.querySelectorAll('{QUESTION}').length"
RESULT = by_id("result")
BEFORE, AFTER = by_id("run-before"), by_id("run-after")


@pytest.fixture(scope="module")
def other(serve: Serve) -> Server:
    return serve("serve", "tests.browser.tools_app:gateway")


def structured(page: Page) -> Any:
    """The structured content of the only call's result."""
    page.wait(f"!document.querySelector('{RESULT}').hidden")
    return json.loads(page.text(f"{RESULT} pre:last-child"))


def answer(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        page.fill(f"{QUESTION} [name={name}]", value)
    page.click(YES)


def wait_for_run_after(page: Page, run_id: str, status: str) -> str:
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent !== {json.dumps(run_id)}")
    page.wait_for_status(status)
    return page.text(by_id("run-id"))


def run_several(page: Page, *tools: str) -> None:
    """Starts one run with a call of each tool; the first one is shown already."""
    page.click(by_id("several"))
    for tool in tools[1:]:
        page.click(by_id(f"several-{tool}"))
    page.click(by_id("run-several"))


def test_a_question_is_answered_where_it_is_asked(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "ask_guest", "waiting")

    page.wait(QUESTIONS)
    assert page.text(by_id("question-text")) == "Who is coming?"
    answer(page, name="Ada")
    page.wait_for_status("completed")
    assert structured(page) == {"status": "resolved", "payload": {"name": "Ada", "nights": 2}}
    assert page.evaluate(QUESTIONS) == 0
    assert page.complaints() == []


def test_an_answer_that_breaks_the_schema_is_said_at_its_field_and_the_question_stays(
    browser: Browser, other: Server
) -> None:
    page = browser.open(other.url)
    run(page, "ask_guest", "waiting")

    answer(page, name="Ada", nights="0")
    error = f"{QUESTION} {by_id('error-nights')}"
    page.wait(f"document.querySelector('{error}').textContent")
    assert page.text(error) == "This must be at least 1.", "the page finds it by itself"
    answer(page, name="ada", nights="3")
    error = f"{QUESTION} {by_id('error-name')}"
    page.wait(f"document.querySelector('{error}').textContent")
    assert "pattern" in page.text(error)
    assert page.evaluate("document.activeElement.name") == "name"
    assert not page.visible(f"{QUESTION} {by_id('error-nights')}")
    assert page.attribute(by_id("status"), "data-status") == "waiting"
    answer(page, name="Ada")
    page.wait_for_status("completed")
    assert structured(page)["payload"] == {"name": "Ada", "nights": 3}
    assert noted_by_the_browser(page) == ["422"]


def test_a_dismissed_question_is_cancelled(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "ask_guest", "waiting")

    page.click(NO)
    page.wait_for_status("completed")
    assert structured(page) == {"status": "cancelled", "payload": None}
    assert page.complaints() == []


def test_a_question_is_answered_from_another_tab_of_the_session_and_disappears_here(
    browser: Browser, other: Server
) -> None:
    page = browser.open(other.url)
    run_id = run(page, "ask_guest", "waiting")
    page.wait(QUESTIONS)
    page.click(f"{QUESTION} [name=name]")
    tab = open_tab(page, f"{other.url}/#run={run_id}")
    tab.wait_for_status("waiting")

    tab.wait(QUESTIONS)
    answer(tab, name="Alan")
    for each in (page, tab):
        each.wait_for_status("completed")
        assert structured(each)["payload"]["name"] == "Alan"
        assert each.evaluate(QUESTIONS) == 0
        assert each.complaints() == []
    assert page.evaluate("document.activeElement.dataset.call") is not None, "the focus stays at the call"


def test_two_questions_of_one_call_are_answered_in_any_order_also_without_a_schema(
    browser: Browser, other: Server
) -> None:
    page = browser.open(other.url)
    run(page, "ask_twice", "waiting")
    page.wait(f"{QUESTIONS} === 2")
    texts = f"[...document.querySelectorAll('{QUESTION} {by_id('question-text')}')].map((text) => text.textContent)"
    assert page.evaluate(texts) == ["Any wish?", "How many?"]

    page.fill(f"{QUESTION}:nth-child(2) [name=answer]", "4")
    page.click(f"{QUESTION}:nth-child(2) {by_id('question-yes')}")
    page.wait(f"{QUESTIONS} === 1")
    assert page.text(f"{QUESTION} label").startswith("Your answer")
    assert page.attribute(by_id("status"), "data-status") == "waiting"
    answer(page, answer="quiet")
    page.wait_for_status("completed")
    assert structured(page) == {"result": ["quiet", 4]}
    assert page.complaints() == []


def test_stop_takes_the_question_away(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "ask_guest", "waiting")
    page.wait(QUESTIONS)

    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    assert page.evaluate(QUESTIONS) == 0
    assert page.complaints() == []


def test_a_viewer_by_a_share_link_sees_that_it_waits_and_cannot_answer(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "ask_guest", "waiting")
    page.click(by_id("share-button"))
    link = page.wait(f"document.querySelector('{by_id('share-link')}').value")

    second = browser.open_beside(link)
    second.wait_for_status("waiting")
    assert second.text(by_id("progress-message")) == "Who is coming?"
    assert second.evaluate(QUESTIONS) == 0
    assert not second.visible(by_id("call-detach"))
    assert page.complaints() == second.complaints() == []


def test_an_approval_runs_the_tool_with_the_arguments_that_the_person_edited(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "delete_files", "waiting", path="old", keep="a")
    page.wait(QUESTIONS)
    field = f"document.querySelector('{QUESTION} [name=path]')"
    assert page.evaluate(f"{field}.value") == "old", "the person sees what would run"

    answer(page, path="a path of more than twenty characters")
    page.wait(f"document.querySelector('{QUESTION} {by_id('error-path')}').textContent")
    answer(page, path="older")
    page.wait_for_status("completed")
    assert structured(page) == {"path": "older", "keep": ["a"]}
    assert page.complaints() == []


def test_an_approval_without_a_change_runs_what_was_asked_for(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "delete_files", "waiting", path="old")
    page.wait(QUESTIONS)

    page.click(YES)
    page.wait_for_status("completed")
    assert structured(page) == {"path": "old", "keep": None}
    assert page.complaints() == []


def test_a_declined_call_does_not_run_and_says_why(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run_id = run(page, "delete_files", "waiting", path="old")
    page.wait(QUESTIONS)

    page.fill(f"{QUESTION} {by_id('question-message')}", "not today")
    page.click(NO)
    page.wait_for_status("completed")
    assert "Error [denied]" in page.text(RESULT)
    assert "not today" in page.text(RESULT)
    assert record_of(other, page, run_id)["toolCalls"][0]["status"] == "failed"
    assert page.complaints() == []


def test_an_interrupt_is_answered_after_a_reload_and_the_page_shows_the_run_that_goes_on(
    browser: Browser, other: Server
) -> None:
    page = browser.open(other.url)
    first = run(page, "book_trip", "interrupted", city="Oslo")
    page.reload()
    page.wait_for_status("interrupted")

    page.wait(QUESTIONS)
    assert page.text(by_id("question-text")) == "Which hotel in Oslo?"
    page.ask("select", what=f"{QUESTION} [name=answer]", value="Plaza")
    page.click(YES)
    second = wait_for_run_after(page, first, "interrupted")
    page.wait(f"document.querySelector('{by_id('question-text')}')?.textContent === 'Who pays?'")
    answer(page, payer="Ada")
    third = wait_for_run_after(page, second, "completed")
    assert structured(page) == {"city": "Oslo", "hotel": "Plaza", "payer": "Ada"}
    assert record_of(other, page, third)["parentRunId"] == second

    page.click(BEFORE)
    wait_for_run_after(page, third, "interrupted")
    page.wait(f"!document.querySelector('{by_id('run-after-line')}').hidden")
    assert page.evaluate(QUESTIONS) == 0, "it has been answered"
    page.reload()
    page.wait_for_status("interrupted")
    page.wait(f"!document.querySelector('{by_id('run-after-line')}').hidden")
    assert page.evaluate(QUESTIONS) == 0
    page.click(AFTER)
    assert wait_for_run_after(page, second, "completed") == third
    assert page.complaints() == []


def test_an_interrupt_that_another_tab_answers_can_be_answered_here_no_more(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run_id = run(page, "book_trip", "interrupted")
    tab = open_tab(page, f"{other.url}/#run={run_id}")
    tab.wait_for_status("interrupted")
    page.wait(QUESTIONS)

    tab.click(NO)
    wait_for_run_after(tab, run_id, "completed")
    assert structured(tab) == {"booked": None}
    page.wait(f"{QUESTIONS} === 0")
    assert page.visible(AFTER)
    assert page.complaints() == tab.complaints() == []


def test_stop_of_an_interrupted_run_closes_its_question_also_after_a_reload(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run(page, "book_trip", "interrupted")
    page.wait(QUESTIONS)

    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    assert page.evaluate(QUESTIONS) == 0
    page.reload()
    page.wait_for_status("cancelled")
    assert page.evaluate(QUESTIONS) == 0
    assert page.complaints() == []


def test_the_questions_of_several_calls_go_on_together_once_all_are_answered(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    choose(page, "pack")
    page.fill("#fields [name=amount]", "24")
    choose(page, "delete_files")
    page.fill("#fields [name=path]", "old")
    run_several(page, "delete_files", "book_trip", "pack")
    page.wait_for_status("interrupted")
    first = page.text(by_id("run-id"))
    page.reload()
    page.wait_for_status("interrupted")
    page.wait(f"{QUESTIONS} === 2")

    trip = f"document.querySelector('{QUESTION} [name=answer]').closest('article').dataset.call"
    trip_call = page.evaluate(trip)
    delete_call = page.evaluate(trip.replace("answer", "path"))
    page.click(f"[data-call='{trip_call}'] {by_id('question-no')}")
    page.wait(f"document.querySelector('{by_id('question-kept')}:not([hidden])')?.textContent.startsWith('Kept')")
    assert page.attribute(by_id("status"), "data-status") == "interrupted", "one answer is missing"
    page.fill(f"[data-call='{delete_call}'] [name=path]", "older")
    page.click(f"[data-call='{delete_call}'] {by_id('question-yes')}")
    wait_for_run_after(page, first, "completed")
    results = f"[...document.querySelectorAll('{RESULT} pre:last-child')].map((text) => JSON.parse(text.textContent))"
    page.wait(f"{results}.length === 2")
    assert page.evaluate(results) == [{"path": "older", "keep": None}, {"booked": None}]
    assert page.complaints() == []
