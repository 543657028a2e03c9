"""The page in a real browser, with the demo's own tools on a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.browser.pages import RUN_BUTTON, STOP_BUTTON, choose, record_of, start
from tests.browser.tools_app import MARKUP
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server, eventually

QUIET_SECONDS = 1.5  # write_log writes ten lines a second
REFUSED = "error: Failed to load resource: the server responded with a status of 422"
NOT_FOUND = REFUSED.replace("422", "404")

PROGRESS = f"document.querySelector('{by_id('progress')}')?.value"
LOG_ROWS = f"{by_id('event-log')} li"
LISTED = f"[...document.querySelectorAll('{by_id('runs-list')} {by_id('recent-run')}')]"


@pytest.fixture(scope="module")
def demo(serve: Serve) -> Iterator[Server]:
    server = serve("demo")
    yield server
    # Pages came, left in the middle and stopped things: all of that is normal.
    lines = server.log.splitlines()[1:]
    odd = [line for line in lines if " INFO gateway" not in line]
    assert odd == [], "\n".join(odd)


@pytest.fixture(scope="module")
def other(serve: Serve) -> Server:
    return serve("serve", "tests.browser.tools_app:gateway")


def logged(page: Page, name: str) -> dict[str, Any]:
    """The value of the first row of the event log with this name, once there is one."""
    row = f'{LOG_ROWS}[data-name="{name}"] .event-value'
    value: dict[str, Any] = json.loads(page.wait(f"document.querySelector({json.dumps(row)})?.textContent"))
    return value


def rows(page: Page) -> list[list[Any]]:
    """The id and the name of every row of the event log."""
    script = f"[...document.querySelectorAll('{LOG_ROWS}')].map((row) => [+row.dataset.id, row.dataset.name])"
    found: list[list[Any]] = page.evaluate(script)
    return found


def listed(page: Page) -> list[list[str]]:
    """The tool and the status of every run in the list of the page."""
    script = f"{LISTED}.map((row) => [row.children[0].textContent, row.querySelector('.dot').dataset.status])"
    found: list[list[str]] = page.evaluate(script)
    return found


def events_of(server: Server, page: Page, run_id: str) -> list[tuple[int, dict[str, Any]]]:
    """The events of the page's run with their ids, as the gateway has them."""
    with server.client(cookies=page.cookies()) as client:
        response = client.get(f"/runs/{run_id}/events")
    assert response.status_code == 200
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("id: ")]
    split = [frame.removeprefix("id: ").split("\ndata: ", 1) for frame in frames]
    return [(int(seq), json.loads(data)) for seq, data in split]


def assert_nothing_is_missing(server: Server, page: Page, run_id: str) -> None:
    """The page shows every event of the run: each custom event as a row in its order, the others by their count."""
    events = events_of(server, page, run_id)
    shown = [
        [seq, event["name"]] for seq, event in events if event["type"] == "CUSTOM" and event["name"] != "tool.progress"
    ]
    assert page.text(by_id("run-id")) == run_id
    page.wait(f"document.querySelectorAll('{LOG_ROWS}').length >= {len(shown)}")  # many at once are drawn with a delay
    assert rows(page) == shown
    assert page.text(by_id("event-count")) == str(len(shown))
    assert page.text(by_id("last-id")) == str(len(events))
    assert page.attribute(by_id("run"), "data-gaps") == "0"
    assert page.text(by_id("gaps")) == "0"
    assert page.text(by_id("repeats")) == "0"


def test_stop_ends_the_growth_of_the_tools_own_log_file(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    run_id = start(page, "write_log", seconds="600")
    log = Path(logged(page, "demo.log_file")["path"])
    try:
        first = page.wait(PROGRESS)
        page.wait(f"{PROGRESS} > {first}")
        size = log.stat().st_size
        eventually(lambda: log.stat().st_size > size, what="the log file grows while the tool runs")

        page.click(STOP_BUTTON)
        page.wait_for_status("cancelled")
        size = log.stat().st_size
        assert record_of(demo, page, run_id)["status"] == "cancelled"

        sizes = {size}
        deadline = time.monotonic() + QUIET_SECONDS
        with demo.client() as client:
            while time.monotonic() < deadline:
                assert client.get("/healthz").status_code == 200
                sizes.add(log.stat().st_size)
        assert sizes == {size}
    finally:
        log.unlink()

    assert page.text(by_id("call-status")) == "Cancelled"
    assert page.attribute(by_id("result"), "data-status") == "cancelled"
    assert page.evaluate(f"document.querySelector('{STOP_BUTTON}').disabled") is True
    assert_nothing_is_missing(demo, page, run_id)
    assert page.complaints() == []


def test_a_reload_in_the_middle_of_a_run_shows_the_same_run_and_misses_nothing(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    run_id = start(page, "hash_folder", delay_ms="300")  # with all files of the package: far longer than this test
    page.wait(f"document.querySelectorAll('{LOG_ROWS}').length >= 5")
    before = rows(page)

    page.reload()
    page.wait_for_status("running")
    assert record_of(demo, page, run_id)["status"] == "running", "the reload was in the middle of the run"
    page.wait(f"document.querySelectorAll('{LOG_ROWS}').length > {len(before)}")
    assert rows(page)[: len(before)] == before
    assert page.text(by_id("run-id")) == run_id

    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    assert_nothing_is_missing(demo, page, run_id)
    assert page.text(by_id("reconnects")) == "0"
    assert page.complaints() == []


def test_progress_moves_to_its_end_and_the_result_is_shown_also_after_a_reload(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    run_id = start(page, "import_csv", csv="name,age\nAda,36\nAlan,41\nnobody,old\nGrace,85\n", delay_ms="400")
    first = page.wait(f"{PROGRESS} > 0 && {PROGRESS}")
    page.wait(f"{PROGRESS} > {first}")
    page.wait_for_status("completed")

    assert page.evaluate(PROGRESS) == 100
    assert page.text(by_id("call-status")) == "Completed"
    result = page.text(by_id("result"))
    assert '"imported": 3' in result
    assert_nothing_is_missing(demo, page, run_id)

    page.reload()
    page.wait_for_status("completed")
    assert page.text(by_id("result")) == result
    assert_nothing_is_missing(demo, page, run_id)
    assert page.complaints() == []


def test_stop_kills_the_process_of_a_tool_that_computes(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    start(page, "count_words", rounds="1000000")
    first = page.wait(PROGRESS)
    page.wait(f"{PROGRESS} > {first}")
    at_work = psutil.Process(demo.pid).children(recursive=True)
    assert at_work

    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")

    _, alive = psutil.wait_procs(at_work, timeout=10)
    assert alive == []
    assert page.complaints() == []


def test_stop_by_another_client_of_the_session_is_seen_on_the_page(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    run_id = start(page, "download", size_mb="2000", mb_per_s="1")
    page.wait(PROGRESS)
    with demo.client(cookies=page.cookies()) as another:
        assert another.post(f"/runs/{run_id}/stop").status_code == 202

    page.wait_for_status("cancelled")
    assert_nothing_is_missing(demo, page, run_id)
    assert page.complaints() == []


def test_a_value_that_does_not_fit_is_said_at_its_field_and_starts_nothing(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    choose(page, "hash_folder")
    page.fill("[name=delay_ms]", "2001")
    page.fill("[name=max_files]", "")
    page.click(RUN_BUTTON)

    page.wait(f"document.querySelector('{by_id('error-delay_ms')}').textContent")
    assert page.text(by_id("error-delay_ms")) == "This must be at most 2000."
    assert page.visible(by_id("error-delay_ms"))
    assert not page.visible(by_id("error-max_files")), "an empty number is the tool's own default"
    assert page.attribute("[name=delay_ms]", "aria-invalid") == "true"
    assert page.evaluate("document.activeElement.name") == "delay_ms"
    assert not page.visible(by_id("run-id"))
    assert page.complaints() == []


def test_a_refusal_of_the_gateway_is_said_at_its_field(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    choose(page, "pack")
    page.fill("[name=amount]", "13")
    page.click(RUN_BUTTON)

    page.wait(f"document.querySelector('{by_id('error-amount')}').textContent")
    assert page.visible(by_id("error-amount"))
    assert "multiple of 12" in page.text(by_id("error-amount"))
    assert page.attribute("[name=amount]", "aria-invalid") == "true"
    assert [text.split(" (")[0] for text in page.complaints()] == [REFUSED], "the browser itself notes it, no more"

    page.fill("[name=amount]", "24")
    page.click(RUN_BUTTON)
    page.wait_for_status("completed")
    assert not page.visible(by_id("error-amount"))


def test_markup_from_a_tool_is_shown_as_text(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    choose(page, "show_markup")
    page.click(RUN_BUTTON)
    page.wait_for_status("completed")

    assert page.text(by_id("call-status")) == "Completed", page.text(by_id("result"))
    assert logged(page, "test.markup") == {"html": MARKUP}
    assert page.text(by_id("progress-message")) == MARKUP
    assert MARKUP in page.text(by_id("result"))
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert "taken over" not in page.evaluate("document.title")
    assert page.complaints() == []


def test_a_second_browser_follows_by_the_share_link_and_cannot_stop(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    run_id = start(page, "hash_folder", delay_ms="300")  # with all files of the package: far longer than this test
    page.click(by_id("share-button"))
    link = page.wait(f"document.querySelector('{by_id('share-link')}').value")
    ticket = parse_qs(urlsplit(link).fragment)["ticket"][0]

    second = browser.open_beside(link)
    second.wait_for_status("running")
    assert second.text(by_id("run-id")) == run_id
    assert second.visible(by_id("watching-note"))
    assert "You are watching somebody's run" in second.text(by_id("watching-note"))
    assert not page.visible(by_id("watching-note"))
    assert [second.visible(what) for what in (STOP_BUTTON, by_id("share-button"), by_id("call-stop"))] == [False] * 3
    assert second.cookies()["agui_session"] != page.cookies()["agui_session"]
    with demo.client(cookies=second.cookies()) as visitor:
        assert visitor.post(f"/runs/{run_id}/stop", params={"ticket": ticket}).status_code == 404
        assert visitor.get("/runs?limit=20").json()["items"] == []
    assert record_of(demo, page, run_id)["status"] == "running"

    second.reload()
    second.wait_for_status("running")
    page.click(STOP_BUTTON)
    for viewer in (page, second):
        viewer.wait_for_status("cancelled")
    assert_nothing_is_missing(demo, page, run_id)
    shown = rows(page)
    second.wait(f"document.querySelectorAll('{LOG_ROWS}').length >= {len(shown)}")
    assert rows(second) == shown
    for count in ("event-count", "last-id", "gaps", "repeats"):
        assert second.text(by_id(count)) == page.text(by_id(count)), count
    assert listed(second) == []
    assert second.evaluate("sessionStorage.getItem('agui-gateway.runs')") is None
    assert page.complaints() == second.complaints() == []


def test_a_share_link_that_does_not_work_says_so(browser: Browser, other: Server) -> None:
    page = browser.open(f"{other.url}/#run=some-run&ticket=not-a-ticket-of-this-gateway")

    page.wait(f"document.querySelector('{by_id('run-problem')}').textContent")
    assert page.text(by_id("run-problem")).startswith("This link does not work")
    assert not page.visible(by_id("watching-note"))
    assert not page.visible(STOP_BUTTON)
    assert {text.split(" (")[0] for text in page.complaints()} == {NOT_FOUND}, "the browser itself notes it, no more"


def test_stop_of_one_call_lets_the_other_go_on_to_its_end(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    choose(page, "import_csv")
    page.fill("[name=csv]", "n\n" + "1\n" * 14)
    page.fill("[name=delay_ms]", "300")
    choose(page, "download")
    page.fill("[name=size_mb]", "2000")
    page.fill("[name=mb_per_s]", "1")
    page.click(by_id("several"))
    page.wait(f"document.querySelector('{by_id('several-download')}').checked")  # the tool that is shown
    page.click(by_id("several-import_csv"))
    page.click(by_id("run-several"))
    page.wait(f"document.querySelectorAll('{by_id('call-stop')}:not([hidden])').length === 2")
    run_id = page.text(by_id("run-id"))
    calls = {call["toolName"]: call["toolCallId"] for call in record_of(demo, page, run_id)["toolCalls"]}
    cards = {name: by_id(f"call-{call_id}") for name, call_id in calls.items()}
    assert set(cards) == {"import_csv", "download"}

    page.click(f"{cards['download']} {by_id('call-stop')}")
    page.wait_for_status("completed")

    record = record_of(demo, page, run_id)
    ended = {call["toolName"]: (call["status"], call["endedAt"]) for call in record["toolCalls"]}
    assert record["status"] == "completed"
    assert (ended["download"][0], ended["import_csv"][0]) == ("cancelled", "completed")
    assert ended["download"][1] < ended["import_csv"][1]
    assert page.text(f"{cards['download']} {by_id('call-status')}") == "Cancelled"
    assert page.text(f"{cards['import_csv']} {by_id('call-status')}") == "Completed"
    assert '"imported": 14' in page.text(f"{cards['import_csv']} {by_id('result')}")
    assert not page.visible(by_id("call-stop"))
    assert_nothing_is_missing(demo, page, run_id)

    start(page, "hash_folder", delay_ms="300")
    both = [["hash_folder", "running"], ["import_csv + download", "completed"]]
    eventually(lambda: listed(page) == both, what="the list shows both runs")
    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    eventually(lambda: listed(page)[0] == ["hash_folder", "cancelled"], what="the list shows the end of the run")
    page.click(f"[data-run='{run_id}']")
    page.wait_for_status("completed")
    assert_nothing_is_missing(demo, page, run_id)
    assert page.complaints() == []


def test_the_list_shows_older_runs_on_demand(browser: Browser, other: Server) -> None:
    page = browser.open(other.url)
    with other.client(cookies=page.cookies(), headers={"accept": "application/json"}) as client:
        for dozens in range(25):
            assert client.post("/tools/pack", json={"arguments": {"amount": 12 * dozens}}).status_code == 200
        ids = [record["runId"] for record in client.get("/runs?limit=200").json()["items"]]

    page.reload()
    page.wait(f"{LISTED}.length")
    assert page.evaluate(f"{LISTED}.map((row) => row.dataset.run)") == ids[:20]
    page.click(by_id("more-runs"))
    page.wait(f"{LISTED}.length > 20")
    assert page.evaluate(f"{LISTED}.map((row) => row.dataset.run)") == ids
    assert len(ids) == 25
    assert not page.visible(by_id("more-runs"))
    assert page.complaints() == []
