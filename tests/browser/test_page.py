"""The page in a real browser, with the demo's own tools on a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.browser.tools_app import MARKUP
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server, eventually

QUIET_SECONDS = 1.5  # write_log writes ten lines a second
REFUSED = "error: Failed to load resource: the server responded with a status of 422"

PROGRESS = f"document.querySelector('{by_id('progress')}')?.value"
LOG_ROWS = f"{by_id('event-log')} li"
RUN_BUTTON, STOP_BUTTON = by_id("run-button"), by_id("stop-button")


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


def choose(page: Page, tool: str) -> None:
    page.click(by_id(f"tool-{tool}"))
    page.wait(f"document.querySelector('#tool-name').textContent === {json.dumps(tool)}")


def start(page: Page, tool: str, **fields: str) -> str:
    """Fills the form of a tool, presses Run, and returns the id of the run that the page then shows as running."""
    choose(page, tool)
    for name, value in fields.items():
        page.fill(f"[name={name}]", value)
    page.click(RUN_BUTTON)
    page.wait_for_status("running")
    return page.text(by_id("run-id"))


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


def events_of(server: Server, page: Page, run_id: str) -> list[tuple[int, dict[str, Any]]]:
    """The events of the page's run with their ids, as the gateway has them."""
    with server.client(cookies=page.cookies()) as client:
        response = client.get(f"/runs/{run_id}/events")
    assert response.status_code == 200
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("id: ")]
    split = [frame.removeprefix("id: ").split("\ndata: ", 1) for frame in frames]
    return [(int(seq), json.loads(data)) for seq, data in split]


def record_of(server: Server, page: Page, run_id: str) -> dict[str, Any]:
    with server.client(cookies=page.cookies()) as client:
        record: dict[str, Any] = client.get(f"/runs/{run_id}").json()
    return record


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
    run_id = start(page, "import_csv", csv="name,age\nAda,36\nAlan,41\nnobody,old\nGrace,85\n", delay_ms="100")
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
