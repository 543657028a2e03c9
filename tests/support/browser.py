"""Headless Chromium, driven from Python through playwright-core in Node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.node import INTEROP, node_environment
from tests.support.servers import eventually

__all__ = ["Browser", "Page", "browser", "by_id", "chromium"]

DRIVER = Path(__file__).parents[1] / "browser" / "driver.mjs"
EXIT_SECONDS = 20
WAIT_SECONDS = 20.0


def by_id(test_id: str) -> str:
    """The CSS selector of an element by its `data-testid`."""
    return f'[data-testid="{test_id}"]'


class Page:
    """The page that is open. `what` is a CSS selector, `script` a JavaScript expression."""

    def __init__(self, process: subprocess.Popen[str], profile: str) -> None:
        self._process = process
        self._profile = profile

    def ask(self, command: str, **options: Any) -> Any:
        """One command to the driver; `AssertionError` with Playwright's message when it fails."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"command": command, "profile": self._profile, **options}) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"The browser driver has ended with {self._process.poll()}."
        answer = json.loads(line)
        assert "error" not in answer, f"{command} {options}: {answer['error']}"
        return answer["value"]

    def reload(self) -> None:
        self.ask("reload")

    def click(self, what: str) -> None:
        self.ask("click", what=what)

    def fill(self, what: str, value: str) -> None:
        self.ask("fill", what=what, value=value)

    def text(self, what: str) -> str:
        return cast("str", self.ask("text", what=what))

    def attribute(self, what: str, name: str) -> str | None:
        return cast("str | None", self.ask("attribute", what=what, name=name))

    def visible(self, what: str) -> bool:
        return cast("bool", self.ask("visible", what=what))

    def evaluate(self, script: str) -> Any:
        return self.ask("evaluate", script=script)

    def wait(self, script: str) -> Any:
        """The value of `script` once that is true. Asked from here: the page's own policy forbids `eval` in it."""
        return eventually(lambda: self.evaluate(script), within=WAIT_SECONDS, what=script)

    def cookies(self) -> dict[str, str]:
        return cast("dict[str, str]", self.ask("cookies"))

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, uncaught exceptions and failed requests since the page was opened."""
        return cast("list[str]", self.ask("complaints"))

    def wait_for_status(self, status: str) -> None:
        """Until the run that is shown has this status."""
        self.wait(f"document.querySelector('{by_id('status')}').dataset.status === {json.dumps(status)}")


class Browser:
    """One Chromium."""

    def __init__(self) -> None:
        assert (INTEROP / "node_modules").is_dir(), "The npm packages are not installed: run scripts/install-test."
        self._process = subprocess.Popen(
            ["node", str(DRIVER)], env=node_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def open(self, url: str) -> Page:
        """A page of a new profile; those that were open before are closed."""
        return self._open(url, "first", beside=False)

    def open_beside(self, url: str) -> Page:
        """A page of a second new profile, and so of another session; the first stays open."""
        return self._open(url, "second", beside=True)

    def _open(self, url: str, profile: str, *, beside: bool) -> Page:
        page = Page(self._process, profile)
        page.ask("open", url=url, name=profile, beside=beside)
        return page

    def close_pages(self) -> None:
        Page(self._process, "").ask("shut")

    def close(self) -> None:
        """Closes Chromium and its driver."""
        try:
            self._process.communicate(timeout=EXIT_SECONDS)  # the driver ends with its input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    running = Browser()
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Iterator[Browser]:
    """The one that all tests of this process share; what a module leaves open would ask its server for ever."""
    yield chromium
    chromium.close_pages()
