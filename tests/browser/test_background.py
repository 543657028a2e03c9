"""A call that the person moves to the background, and the tray of such jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.pages import choose, noted_by_the_browser, open_tab, record_of, start
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server

DETACH = by_id("call-detach")
JOB = by_id("job")
JOBS = f"[...document.querySelectorAll('{JOB}')]"
STATUSES = f"{JOBS}.map((row) => row.dataset.status)"


@pytest.fixture(scope="module")
def other(serve: Serve) -> Server:
    return serve("serve", "tests.browser.tools_app:gateway")


def detach(page: Page) -> str:
    """Moves the only call of the run that is shown to the background; returns the id of the job."""
    page.click(DETACH)
    page.wait_for_status("completed")
    page.wait(f"{JOBS}.length")
    job: str = page.evaluate(f"{JOBS}[0].dataset.job")
    return job


def wait_for_jobs(page: Page, *statuses: str) -> None:
    page.wait(f"JSON.stringify({STATUSES}) === '{json.dumps(statuses, separators=(',', ':'))}'")


def progress_of(page: Page) -> Any:
    return page.evaluate(f"document.querySelector('{by_id('job-progress')}').value")


def test_a_job_in_the_background_is_in_the_tray_after_a_reload_until_it_ends(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    assert not page.visible(by_id("jobs"))
    run_id = start(page, "long_report", pages="100")
    job = detach(page)

    assert page.text(by_id("call-status")) == "In the background"
    assert "moved to the background" in page.text(by_id("result"))
    page.reload()
    wait_for_jobs(page, "running")
    page.wait(f"document.querySelector('{by_id('job-progress')}').value > 0")
    first = progress_of(page)
    page.wait(f"document.querySelector('{by_id('job-progress')}').value > {first}")
    wait_for_jobs(page, "completed")
    assert record_of(other, page, job)["parentRunId"] == run_id
    assert page.text(by_id("jobs-news")) == "long_report in the background: Completed"
    assert not page.visible(by_id("job-stop"))

    page.click(by_id("job-open"))
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent === '{job}'")
    page.wait_for_status("completed")
    assert page.text(by_id("call-status")) == "Completed"
    assert "100 pages" in page.text(by_id("result"))
    page.click(by_id("run-before"))
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent === '{run_id}'")
    page.click(by_id("call-job"))
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent === '{job}'")
    assert page.complaints() == []


def test_a_job_is_in_the_tray_of_another_tab_and_can_be_stopped_there(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    start(page, "long_report", pages="10000")
    job = detach(page)
    tab = open_tab(page, other.url)

    wait_for_jobs(tab, "running")
    assert tab.evaluate("sessionStorage.getItem('agui-gateway.runs')") is None
    tab.click(by_id("job-stop"))
    for each in (tab, page):
        wait_for_jobs(each, "cancelled")
    assert record_of(other, page, job)["status"] == "cancelled"
    assert page.complaints() == tab.complaints() == []


def test_a_job_that_is_opened_goes_on_live_and_is_stopped_like_any_run(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    start(page, "long_report", pages="10000")
    detach(page)
    page.click(by_id("call-job"))
    page.wait_for_status("running")

    value = f"document.querySelector('{by_id('progress')}').value"
    first = page.wait(value)
    page.wait(f"{value} > {first}")
    assert not page.visible(DETACH), "it is there already"
    page.click(by_id("stop-button"))
    page.wait_for_status("cancelled")
    wait_for_jobs(page, "cancelled")
    assert page.complaints() == []


def test_a_job_that_many_newer_runs_hide_is_still_in_the_tray(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    start(page, "long_report", pages="10000")
    job = detach(page)
    with other.client(cookies=page.cookies(), headers={"accept": "application/json"}) as client:
        for _ in range(25):
            assert client.post("/tools/pack", json={"arguments": {"amount": 12}}).status_code == 200

    tab = open_tab(page, other.url)
    wait_for_jobs(tab, "running")
    assert tab.evaluate(f"{JOBS}[0].dataset.job") == job
    tab.click(by_id("job-stop"))
    page.wait(f"{STATUSES}[0] !== 'running'")
    assert tab.complaints() == []


def test_a_call_that_cannot_move_says_so_and_stays(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    start(page, "stays")
    page.click(DETACH)

    page.wait(f"document.querySelector('{by_id('run-problem')}').textContent")
    assert page.text(by_id("run-problem")) == 'This call stays here: "stays" cannot be moved to the background now.'
    assert page.attribute(by_id("status"), "data-status") == "running"
    page.click(by_id("stop-button"))
    page.wait_for_status("cancelled")
    assert not page.visible(by_id("jobs"))
    assert noted_by_the_browser(page) == ["409"]


def test_one_of_several_calls_moves_and_the_others_go_on(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    choose(page, "long_report")
    page.fill("#fields [name=pages]", "10000")
    choose(page, "stays")
    page.click(by_id("several"))
    page.click(by_id("several-long_report"))
    page.click(by_id("run-several"))
    page.wait_for_status("running")

    page.click(f"article:has([aria-label='Stop long_report']) {DETACH}")
    wait_for_jobs(page, "running")
    assert page.attribute(by_id("status"), "data-status") == "running"
    page.click(by_id("stop-button"))
    page.wait_for_status("cancelled")
    assert page.evaluate(STATUSES) == ["running"], "Stop of a run never touches its background jobs"
    page.click(by_id("job-stop"))
    wait_for_jobs(page, "cancelled")
    assert page.complaints() == []
