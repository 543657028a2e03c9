"""Runs the commands of a page as a reader would: in one folder, in one shell, servers in another terminal."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.node import node_environment
from tests.support.servers import eventually

__all__ = ["BACKEND_PORT", "SECONDS", "Background", "Shell", "free_port"]

ADDRESS = "http://127.0.0.1:8000"  # as the pages have it
BACKEND_PORT = "9000"  # of a server of the reader's
SECONDS = 30.0
_URL = re.compile(r"(http://[\w.]+:[1-9]\d*)")


def environment(**more: str) -> dict[str, str]:
    """This process's own, with the virtual environment active and servers on a free port."""
    own = {name: value for name, value in node_environment().items() if not name.startswith("AGUI_GATEWAY_")}
    commands = str(Path(sys.executable).parent)
    return {
        **own,
        "PATH": f"{commands}{os.pathsep}{own['PATH']}",
        "AGUI_GATEWAY_PORT": "0",
        "UVICORN_PORT": "0",
        "NO_PROXY": "127.0.0.1",
        **more,
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Background:
    """A command that goes on: a server, or `curl` on a stream. `output` is what it has written so far."""

    def __init__(self, command: str, folder: Path, env: Mapping[str, str]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=self._file,
            start_new_session=True,
        )
        self.command = command

    @property
    def output(self) -> str:
        return os.pread(self._file.fileno(), 10_000_000, 0).decode()

    def wait_for(self, pattern: str | re.Pattern[str]) -> str:
        """The first group of the first match; `AssertionError` when it does not come."""

        def look() -> re.Match[str] | None:
            over = self._process.poll() is not None
            found = re.search(pattern, self.output)
            assert found or not over, f"{self.command} has ended:\n{self.output}"
            return found

        found = eventually(look, within=SECONDS, what=f"{pattern} in the output of {self.command}")
        assert found is not None
        return found[1]

    def url(self) -> str:
        """Where it says that it serves."""
        return self.wait_for(_URL)

    def wait(self) -> int:
        """The exit code, once it has ended by itself."""
        return self._process.wait(SECONDS)

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._file.close()


class Shell:
    """A folder with files, and what was exported; `url` stands where the pages have port 8000."""

    def __init__(self, folder: Path, files: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.url = ADDRESS
        # What stands for an id or a port on a page, and what it is here.
        self.values = {"RUN_ID": "run-1", BACKEND_PORT: str(free_port())}
        self._env = environment()
        for name, text in (files or {}).items():
            (folder / name).write_text(text.replace(BACKEND_PORT, self.values[BACKEND_PORT]), "utf-8")

    def export(self, command: str) -> None:
        """An `export` line: its value holds for all later commands."""
        script = f'{command}\nprintf %s "${{{command.removeprefix("export ").partition("=")[0]}}}"'
        value = self._run(script)
        self._env[command.removeprefix("export ").partition("=")[0]] = value

    def run(self, command: str) -> str:
        """What a command of a page prints; it must succeed."""
        return self._run(self._placed(command))

    @contextmanager
    def background(self, command: str, folder: Path | None = None) -> Iterator[Background]:
        """A command that goes on until the end of the block."""
        running = Background(self._placed(command), folder or self.folder, self._environment())
        try:
            yield running
        finally:
            running.close()

    @contextmanager
    def serving(self, command: str, folder: Path | None = None) -> Iterator[Background]:
        """A server; `url` is where it is."""
        with self.background(command, folder) as server:
            self.url = server.url()
            yield server

    def _environment(self) -> dict[str, str]:
        return {**self._env, "AGUI_GATEWAY_URL": self.url}

    def _placed(self, command: str) -> str:
        for name, value in self.values.items():
            command = command.replace(name, value)
        return command.replace(ADDRESS, self.url).replace("--port 8000", "--port 0")

    def _run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout
