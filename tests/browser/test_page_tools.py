"""Tools that the page itself runs: its own, and those it gave to the browser."""

from __future__ import annotations

import json

import pytest

from tests.browser.pages import RUN_BUTTON, STOP_BUTTON, choose, noted_by_the_browser, open_tab, record_of, run
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server

TOOL = "page.theme"
ASK, ALLOW, REFUSE = by_id("page-ask"), by_id("page-ask-yes"), by_id("page-ask-no")
ASKS = f"document.querySelector('{ASK}').open"
THEME = "document.documentElement.dataset.theme ?? null"
RESULT = by_id("result")


@pytest.fixture(scope="module")
def other(serve: Serve) -> Server:
    return serve("serve", "tests.browser.tools_app:gateway")


def run_theme(page: Page) -> str:
    """Runs the tool of the page; returns the id of its run once the page asks."""
    run_id = run(page, TOOL, "waiting")
    page.wait(ASKS)
    return run_id


def result_of(page: Page) -> str:
    page.wait(f"!document.querySelector('{RESULT}').hidden")
    return page.text(RESULT)


def test_a_tool_of_the_page_asks_the_person_and_changes_the_page(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    run_id = run_theme(page)
    assert page.text(by_id("page-ask-text")) == "May a tool change the colours of this page to dark?"
    assert page.evaluate("document.activeElement.dataset.testid") == "page-ask-yes"
    assert page.evaluate(THEME) is None
    assert record_of(other, page, run_id)["status"] == "waiting"

    page.click(ALLOW)
    page.wait_for_status("completed")
    assert page.evaluate(THEME) == "dark"
    assert page.evaluate(colour) != before
    assert '"theme": "dark"' in result_of(page)
    assert record_of(other, page, run_id)["toolCalls"][0]["status"] == "completed"
    assert page.complaints() == []


def test_a_refusal_of_the_person_is_what_the_agent_reads(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run_theme(page)
    page.ask("press", key="Escape")

    page.wait_for_status("completed")
    assert "Error [denied]" in result_of(page)
    assert page.evaluate(THEME) is None
    assert page.complaints() == []


def test_stop_aborts_a_tool_of_the_page(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run_theme(page)
    page.click(STOP_BUTTON)

    page.wait_for_status("cancelled")
    page.wait(f"!{ASKS}")
    assert "Error [cancelled]: Cancelled by the user." in result_of(page)
    assert page.evaluate(THEME) is None
    assert page.complaints() == []


def test_stop_reaches_a_tool_of_the_page_whose_run_is_shown_no_more(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    run_id = run_theme(page)
    choose(page, "pack")
    page.fill("#fields [name=amount]", "24")
    page.click(RUN_BUTTON)
    page.wait_for_status("completed")
    assert page.evaluate(ASKS) is True
    with other.client(cookies=page.cookies()) as client:
        assert client.post(f"/runs/{run_id}/stop").status_code == 202

    page.wait(f"!{ASKS}")
    assert page.complaints() == []


def test_a_tool_of_the_page_runs_in_exactly_one_of_two_tabs(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    tab = open_tab(page, other.url)
    run_id = page.evaluate("crypto.randomUUID()")
    for each in (page, tab):
        each.wait("document.querySelector('#tool-name').textContent")
    # Both follow a run that neither has started.
    with other.client(cookies=page.cookies()) as client:
        wait = {"name": "stays", "description": "", "parameters": {}}
        call = {"id": "call-1", "type": "function", "function": {"name": TOOL, "arguments": '{"theme": "light"}'}}
        started = {
            "threadId": "t",
            "runId": run_id,
            "messages": [{"id": "m", "role": "assistant", "toolCalls": [call]}],
            "tools": [{**wait, "name": TOOL}],
            "context": [],
            "state": {},
            "forwardedProps": {"gateway": {"pageTools": True}},
        }
        with client.stream("POST", "/agents/tools", json=started) as response:
            assert response.status_code == 200
    for each in (page, tab):
        each.evaluate(f"location.hash = 'run={run_id}'")
    for each in (page, tab):
        each.wait_for_status("waiting")
    asking = [each for each in (page, tab) if each.evaluate(ASKS)]
    assert len(asking) == 1

    asking[0].click(ALLOW)
    for each in (page, tab):
        each.wait_for_status("completed")
    assert [each.evaluate(THEME) for each in (page, tab) if each is not asking[0]] == [None]
    assert asking[0].evaluate(THEME) == "light"
    assert sorted(noted_by_the_browser(page) + noted_by_the_browser(tab)) in ([], ["409"])


def test_a_page_that_is_left_while_its_tool_runs_leaves_an_unknown_result_and_runs_nothing_again(
    browser: Browser, other: Server
) -> None:
    page = browser.open(other.url)
    run_id = run_theme(page)
    page.reload()

    page.wait_for_status("completed")
    assert "The page navigated away while this tool ran" in result_of(page)
    assert record_of(other, page, run_id)["toolCalls"][0]["status"] == "unknown"
    assert page.evaluate(ASKS) is False
    assert noted_by_the_browser(page) in ([], ["409"])


def test_tools_of_the_page_and_of_the_gateway_run_side_by_side(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    choose(page, "pack")
    page.fill("#fields [name=amount]", "24")
    choose(page, TOOL)
    page.click(by_id("several"))
    page.click(by_id("several-pack"))
    page.click(by_id("run-several"))
    page.wait(ASKS)
    page.click(ALLOW)

    page.wait_for_status("completed")
    shown = "[...document.querySelectorAll('.call')].map((call) => call.querySelector('.badge').textContent)"
    assert page.evaluate(shown) == ["Completed", "Completed"]
    assert page.complaints() == []


WEB_TOOL = """
document.modelContext.registerTool({
  name: "web.add",
  description: "Adds two numbers.",
  inputSchema: {type: "object", properties: {a: {type: "integer"}, b: {type: "integer"}}},
  execute: ({a, b}) => {
    if (a < 0) throw new Error("negative");
    return b === undefined ? new Promise(() => {}) : {sum: a + b};
  },
})
"""


def test_tools_that_the_page_gave_to_the_browser_run_too(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    if not page.evaluate("'modelContext' in document"):
        pytest.skip("this browser has no document.modelContext")
    page.evaluate(f"{WEB_TOOL}.then(() => true)")
    page.wait(f"document.querySelector('{by_id('tool-web.add')}') !== null")

    run(page, "web.add", "completed", a="2", b="3")
    assert json.loads(page.text(f"{RESULT} pre:last-child")) == {"sum": 5}
    run(page, "web.add", "completed", a="-1", b="3")
    assert "Error [failed]: " in result_of(page)
    run(page, "web.add", "running", a="1", b="")
    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    assert "Error [cancelled]" in result_of(page)
    complaints = [text for text in page.complaints() if "WebMCP tool execution failed" not in text]
    assert complaints == []
