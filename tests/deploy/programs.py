"""Real gateways, nginx and viewers for the recipes of deploy/."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.docs.shells import Background, environment
from tests.support.servers import eventually

__all__ = ["DEPLOY", "KEY", "Program", "Viewer", "free_ports", "gateway_environment", "headers", "is_up"]

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "tools.example.com"
KEY = "a-key-that-only-this-test-knows"
SECONDS = 30.0


def free_ports(count: int) -> list[int]:
    """All at once, so that they differ."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def headers(**more: str) -> dict[str, str]:
    return {"host": NAME, "authorization": f"Bearer {KEY}", **more}


def gateway_environment(**more: str) -> dict[str, str]:
    """The machine's own, without a port, with the keys."""
    plain = {name: value for name, value in environment().items() if name != "AGUI_GATEWAY_PORT"}
    return {**plain, "API_KEYS": f"alice:{KEY}", **more}


class Program(Background):
    """One process, started by a command line."""

    def __init__(self, command: str, folder: Path, env: Mapping[str, str]) -> None:
        super().__init__(f"exec {command}", folder, env)
        self.pid = self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def exit_code(self, within: float) -> int:
        return self._process.wait(within)


def is_up(url: str, context: ssl.SSLContext | bool = True) -> bool:
    try:
        return httpx.get(f"{url}/readyz", headers=headers(), trust_env=False, timeout=5, verify=context).is_success
    except httpx.TransportError:
        return False


class Viewer(threading.Thread):
    """Follows a run and comes back with its cursor whenever it is cut, as every client should."""

    def __init__(self, url: str, run_id: str, context: ssl.SSLContext | bool = True) -> None:
        super().__init__(daemon=True)
        self.ids: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.cuts = 0
        self.refusals: list[int] = []
        self._run_id = run_id
        self._client = httpx.Client(base_url=url, headers=headers(), verify=context, trust_env=False, timeout=SECONDS)
        self.start()

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1] if self.events else {}

    @property
    def is_over(self) -> bool:
        return self.last.get("type") in ("RUN_FINISHED", "RUN_ERROR")

    def run(self) -> None:
        deadline = time.monotonic() + SECONDS
        with self._client:
            while not self.is_over and time.monotonic() < deadline:
                try:
                    for number, event in self._follow():
                        self.ids.append(number)
                        self.events.append(event)
                except httpx.TransportError:
                    pass
                if not self.is_over:
                    self.cuts += 1
                    time.sleep(0.05)

    def _follow(self) -> Iterator[tuple[int, dict[str, Any]]]:
        cursor = {"last-event-id": str(self.ids[-1])} if self.ids else {}
        with self._client.stream("GET", f"/runs/{self._run_id}/events", headers=cursor) as answer:
            if answer.status_code != 200:
                self.refusals.append(answer.status_code)
                return
            number = 0
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = int(line.removeprefix("id: "))
                elif line.startswith("data: "):
                    yield number, json.loads(line.removeprefix("data: "))

    def wait(self, within: float = SECONDS) -> None:
        eventually(lambda: self.is_over, within=within, what=f"the end of {self._run_id}; last: {self.last}")
        self.join(within)

    def saw_every_event_once(self) -> None:
        assert self.ids == list(range(1, len(self.ids) + 1))
        assert self.refusals == []
