"""What the tests of the page do on it again and again."""

from __future__ import annotations

import json
from typing import Any

from tests.support.browser import Page, by_id
from tests.support.servers import Server

__all__ = ["RUN_BUTTON", "STOP_BUTTON", "choose", "noted_by_the_browser", "open_tab", "record_of", "run", "start"]

RUN_BUTTON, STOP_BUTTON = by_id("run-button"), by_id("stop-button")


def choose(page: Page, tool: str) -> None:
    page.click(by_id(f"tool-{tool}"))
    page.wait(f"document.querySelector('#tool-name').textContent === {json.dumps(tool)}")


def run(page: Page, tool: str, until: str, **fields: str) -> str:
    """Fills the form of a tool, presses Run, and returns the id of the run once that has the status `until`."""
    choose(page, tool)
    for name, value in fields.items():
        page.fill(f"#fields [name={name}]", value)
    before = page.text(by_id("run-id"))
    page.click(RUN_BUTTON)
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent !== {json.dumps(before)}")
    page.wait_for_status(until)
    return page.text(by_id("run-id"))


def start(page: Page, tool: str, **fields: str) -> str:
    """`run`, until the page shows it as running."""
    return run(page, tool, "running", **fields)


def open_tab(page: Page, url: str) -> Page:
    """A second page of the same session as `page`, which is the first one of its browser."""
    tab = Page(page._process, "tab")
    tab.ask("tab", url=url, of="first", name="tab")
    return tab


def record_of(server: Server, page: Page, run_id: str) -> dict[str, Any]:
    with server.client(cookies=page.cookies()) as client:
        record: dict[str, Any] = client.get(f"/runs/{run_id}").json()
    return record


def noted_by_the_browser(page: Page) -> list[str]:
    """The complaints; of refused requests, which the browser itself notes, the status alone."""
    prefix = "error: Failed to load resource: the server responded with a status of "
    return [text.removeprefix(prefix).split(" (")[0] for text in page.complaints()]
