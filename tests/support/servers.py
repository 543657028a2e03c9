"""Real servers for tests: `python -m gateway …` in a process of its own, on a free port of loopback.

A pytest plugin, loaded by tests/conftest.py. `serve` starts a server and ends it when the module that asked is done.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import pytest

__all__ = ["Serve", "Server", "eventually", "serve"]

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
EXIT_SECONDS = 10.0
POLL_SECONDS = 0.02

_URL = re.compile(r" at (http://\S+?)/ ")

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """What `look` returns, once that is true; asks again until `within` seconds are over, then `AssertionError`."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or look}; the last look gave {seen!r}")
        time.sleep(POLL_SECONDS)


class Server:
    """A running gateway. `url` has no slash at its end, `log` is what it has written to stderr so far."""

    def __init__(self, *arguments: str) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway", *arguments, "--port", "0"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="server log", daemon=True)
        self._reader.start()
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self.stop()
            raise

    @property
    def log(self) -> str:
        with self._changed:
            return "".join(self._lines)

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, **options: Any) -> httpx.Client:
        """A client for this server; no proxy of the environment comes between."""
        return httpx.Client(base_url=self.url, trust_env=False, timeout=START_SECONDS, **options)

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within: float = EXIT_SECONDS) -> int:
        """The exit code; `subprocess.TimeoutExpired` when the server does not end by itself."""
        code = self._process.wait(within)
        self._reader.join(EXIT_SECONDS)
        return code

    def stop(self) -> None:
        """Ends the server at once: two signals say that nobody waits for a drain."""
        if self._process.poll() is None:
            self.send_signal(signal.SIGTERM)
            self.send_signal(signal.SIGINT)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.wait()

    def _wait_for_url(self) -> str:
        with self._changed:
            self._changed.wait_for(lambda: self._announced() or not self._reader.is_alive(), START_SECONDS)
            url = self._announced()
        if url is None:
            raise AssertionError(f"The server did not start:\n{self.log}")
        return url

    def _announced(self) -> str | None:
        found = _URL.search("".join(self._lines))
        return found and found.group(1)

    def _read(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        with stderr:
            for line in stderr:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class Serve(Protocol):
    """Starts a server by its command line: `serve("demo")`, `serve("serve", "tests.interop.app:gateway")`."""

    def __call__(self, *arguments: str) -> Server: ...


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        started.append(Server(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()
