"""The workers: each an `agui-gateway serve` of its own on a port of its own, killed, started again and paused.

What was done to whom and when is written down: it says which runs may have ended before their time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.app import LEDGER
from tests.soak.client import Away, ask

__all__ = ["Fleet", "Life", "Worker"]

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


@dataclass
class Life:
    """One process: when it was killed or told to end, and from when to when it stood still (Unix seconds)."""

    pid: int
    killed_at: float | None = None
    #: One that was told to end goes on for a while, and calls move to the background meanwhile.
    gone_at: float = float("inf")
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def silent_between(self, start: float, end: float, lease: float) -> bool:
        """Whether in this time it was killed, or stood still about as long as its lease lasts."""
        if self.killed_at is not None and self.killed_at <= end and start <= self.gone_at:
            return True
        return any(until >= start and since <= end and until - since > lease / 2 for since, until in self.pauses)


class Worker:
    """A port, and the process that listens there now, if any."""

    def __init__(self, name: str, command: list[str], log: Path, ledger: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.name = name
        self.lives: list[Life] = []
        self.up = False
        self.paused = False
        self.log = log
        self._command = [*command, "--port", str(self.port)]
        self._environment = {**os.environ, LEDGER: str(ledger)}
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Returns when it serves."""
        process = self._spawn()
        self.lives.append(Life(process.pid))
        deadline = time.monotonic() + START_SECONDS
        while not await self._ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Worker {self.name} does not serve: see {self.log}")
            await asyncio.sleep(0.1)
        self.up = True

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self._process

    async def _ready(self) -> bool:
        try:
            return (await ask(self.port, "GET", "/readyz", seconds=5)).status == 200
        except Away:
            return False

    def kill(self) -> None:
        """At once, as the machine would."""
        if self._process is not None and self._process.poll() is None:
            self.up = False
            self.lives[-1].killed_at = self.lives[-1].gone_at = time.time()
            self._process.kill()
            self._process.wait()

    async def drain(self) -> float:
        """SIGTERM; returns the seconds until it has ended."""
        assert self._process is not None
        self.up = False
        self.lives[-1].killed_at = since = time.time()
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, START_SECONDS)
        self.lives[-1].gone_at = time.time()
        return self.lives[-1].gone_at - since

    async def pause(self, seconds: float) -> None:
        """It stands still, with its connections open, and goes on as if nothing had been."""
        assert self._process is not None
        since = time.time()
        self.lives[-1].pauses.append((since, since + seconds))
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)
        self.paused = False
        self.lives[-1].pauses[-1] = (since, time.time())

    def at_work(self) -> set[str]:
        """The runs that this process has started and not ended, by its log."""
        text = self.log.read_text("utf-8", "replace")
        lines = text[text.rfind("Serving ") :].splitlines()
        said = [line.split(" gateway.runs: run ")[1].split(" ") for line in lines if " gateway.runs: run " in line]
        runs: set[str] = set()
        for run_id, what, *_ in said:
            if what == "started:":
                runs.add(run_id)
            elif what == "ended:":
                runs.discard(run_id)
        return runs

    def died_by_itself(self) -> bool:
        return self.up and self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()


class Fleet:
    """All workers, on one store."""

    def __init__(self, count: int, flags: list[str], folder: Path) -> None:
        command = [sys.executable, "-m", "gateway", "serve", "tests.soak.app:gateway", *flags]
        self.folder = folder
        self.ledger = folder / "executions"
        self.workers = [
            Worker(f"w{index}", command, folder / f"w{index}.log", self.ledger) for index in range(1, count + 1)
        ]

    async def start(self) -> None:
        # One after the other: the first one makes the store.
        for worker in self.workers:
            await worker.start()

    def life(self, pid: int) -> Life | None:
        return next((life for worker in self.workers for life in worker.lives if life.pid == pid), None)

    def worker_of(self, pid: int | None) -> Worker | None:
        return next((worker for worker in self.workers for life in worker.lives if life.pid == pid), None)

    @property
    def well(self) -> list[Worker]:
        """Those that answer, as far as it is up to us."""
        return [worker for worker in self.workers if worker.up and not worker.paused]

    def executions(self) -> list[tuple[str, str, int]]:
        """What was executed: run, call, process."""
        if not self.ledger.exists():
            return []
        lines = (line.split(" ") for line in self.ledger.read_text().splitlines())
        return [(run_id, call_id, int(pid)) for run_id, call_id, pid in lines]

    def log_lines(self, words: str) -> list[str]:
        """Lines of the workers' logs that have these words in them."""
        return [
            f"{worker.name}: {line}"
            for worker in self.workers
            for line in worker.log.read_text("utf-8", "replace").splitlines()
            if words in line
        ]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
