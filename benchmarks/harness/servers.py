"""Servers under test as child processes, with the CPU and memory that they use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "servers"
BIN = Path(sys.executable).parent
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Another checkout to measure instead of the one around this folder; see README.
TREE = os.environ.get("BENCH_TREE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A process that listens on `port`; a context manager that ends it."""

    def __init__(
        self, command: Sequence[str], port: int, env: Mapping[str, str] | None = None, *, workers: bool = False
    ) -> None:
        self.port = port
        self._workers = workers
        self.started = time.monotonic()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the server
        self.process = subprocess.Popen(
            command, cwd=SERVERS, env={**os.environ, **(env or {})}, stdout=self._log, stderr=subprocess.STDOUT
        )
        self._wait()
        #: Seconds from the start of the process to the first connection that it accepts.
        self.ready_after = time.monotonic() - self.started

    def _wait(self) -> None:
        while time.monotonic() - self.started < 20 and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
            except OSError:
                time.sleep(0.005)
            else:
                return
        self.stop()
        raise RuntimeError(f"{self.process.args} does not listen:\n{self.log()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:]

    def pids(self) -> list[int]:
        """The process and its children."""
        found = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
        return found

    def cpu(self) -> float:
        """Seconds on a CPU so far, of every thread, to the nanosecond: /proc/*/task/*/schedstat.

        Of its children only where they are its workers: a tool's process comes and goes.
        """
        total = 0
        for pid in self.pids() if self._workers else [self.process.pid]:
            for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    total += int(stat.read_text().split()[0])
                except OSError:
                    continue
        return total / 1e9

    def rss(self) -> int:
        """Resident bytes."""
        total = 0
        for pid in self.pids():
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            except OSError:
                continue
        return total

    def stop(self) -> None:
        children = self.pids()[1:]
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


def gateway(*flags: str, app: str = "tools:gateway", env: Mapping[str, str] | None = None) -> Server:
    """`agui-gateway serve` as it comes, but for the port and what `flags` say."""
    return command_line("serve", app, *flags, env=env)


def demo() -> Server:
    return command_line("demo")


def command_line(*words: str, env: Mapping[str, str] | None = None) -> Server:
    port = free_port()
    tree = {"PYTHONPATH": TREE} if TREE else {}
    return Server([str(BIN / "agui-gateway"), *words, "--port", str(port)], port, {**tree, **(env or {})})


def peers(env: Mapping[str, str] | None = None) -> Server:
    """The peers under uvicorn with the fastest parts it has."""
    port = free_port()
    parts = ["--loop", "uvloop", "--http", "httptools", "--backlog", "4096"]
    quiet = ["--log-level", "warning", "--no-access-log"]
    return Server([sys.executable, "-m", "uvicorn", "peers:app", "--port", str(port), *parts, *quiet], port, env)


def bare() -> Server:
    port = free_port()
    return Server([sys.executable, "bare.py", str(port)], port)


def agent(n: int, rate: float) -> Server:
    """An AG-UI agent that costs next to nothing."""
    port = free_port()
    return Server([sys.executable, "agent.py", str(port), str(n), str(rate)], port)
