"""The AG-UI servers of other makers, from tests/interop/backends, each in a process of its own on a free port."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.node import INTEROP, node_environment
from tests.support.servers import EXIT_SECONDS, ROOT, START_SECONDS

__all__ = ["PROGRAMS", "Backend", "running"]

PYTHON = ROOT / ".venv-backends" / "bin" / "python"
FOLDER = INTEROP / "backends"
# Where each takes requests.
PROGRAMS = {
    "agno": ("agno_app.py", "/agui"),
    "langgraph": ("langgraph_app.py", "/agent"),
    "pydantic-ai": ("pydantic_ai_app.py", "/agent"),
    "tanstack": ("tanstack_server.mjs", "/agent"),
}


class Backend:
    """A running server; `url` is that of its agent, once `wait` has returned."""

    url: str

    def __init__(self, name: str) -> None:
        program, self._path = PROGRAMS[name]
        python = program.endswith(".py")
        assert PYTHON.exists() or not python, "The backends are not installed: run scripts/install-test."
        command = [str(PYTHON) if python else "node", str(FOLDER / program)]
        self._process = subprocess.Popen(
            command,
            cwd=INTEROP,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read, name=f"{name} log", daemon=True)
        self._reader.start()

    def wait(self) -> None:
        """Until it listens."""
        assert self._process.stdout is not None
        self._base = self._process.stdout.readline().strip()
        assert self._base, f"The backend did not start:\n{self.log}"
        self.url = self._base + self._path

    @property
    def log(self) -> str:
        return "".join(self._log)

    def seen(self) -> dict[str, Any]:
        """The requests that came to the agent, and its notes."""
        with httpx.Client(trust_env=False, timeout=START_SECONDS) as client:
            seen: dict[str, Any] = client.get(f"{self._base}/seen").json()
        return seen

    def requests(self, thread_id: str) -> list[dict[str, Any]]:
        """Those of this thread."""
        return [request for request in self.seen()["requests"] if request["body"]["threadId"] == thread_id]

    def close(self) -> None:
        self._process.kill()
        self._process.wait(EXIT_SECONDS)
        self._reader.join(EXIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._log.extend(lines)


@contextmanager
def running(names: Iterable[str]) -> Iterator[dict[str, Backend]]:
    """These backends, started side by side."""
    started: dict[str, Backend] = {}
    try:
        for name in names:
            started[name] = Backend(name)
        for backend in started.values():
            backend.wait()
        yield started
    finally:
        for backend in started.values():
            backend.close()
