"""Several worker processes on one socket: started, watched, restarted when they die, drained together.

Every worker is this same command line once more, with the listening socket inherited. A worker sees by a pipe that this
process has died, however that happened, and drains then.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, MutableMapping
from types import FrameType

import click

__all__ = ["Workers", "inherited_listener", "is_worker", "say_ready"]

logger = logging.getLogger("gateway")

# The fds of the socket, of the pipe whose end is the end of the parent, and of the one that says "ready".
LISTENER = "_AGUI_GATEWAY_LISTENER"
ANNOUNCES = "_AGUI_GATEWAY_ANNOUNCES"
RESTART_SECONDS = 0.5
MAX_STILLBORN = 5  # in a row; then they will never live

_ready: list[int] = []


def is_worker() -> bool:
    """Whether this process is one of several."""
    return LISTENER in os.environ


def inherited_listener(environment: MutableMapping[str, str] = os.environ) -> tuple[socket.socket, bool]:
    """The socket of a worker, and whether it announces where the server is. Drains this process when its parent dies.

    Tools start processes too: they inherit neither.
    """
    listener, pipe, ready = map(int, environment.pop(LISTENER).split(","))
    for fd in (listener, pipe, ready):
        os.set_inheritable(fd, False)
    _ready.append(ready)
    threading.Thread(target=_drain_without_parent, args=(pipe,), name="agui-parent", daemon=True).start()
    return socket.socket(fileno=listener), environment.pop(ANNOUNCES, "") == "1"


def say_ready() -> None:
    """This worker serves now; nothing for a process that is none."""
    while _ready:
        fd = _ready.pop()
        os.write(fd, b".")
        os.close(fd)


def _drain_without_parent(pipe: int) -> None:
    os.read(pipe, 1)  # nobody writes: it returns at the end of the other side
    os.kill(os.getpid(), signal.SIGTERM)


class Workers:
    """`count` processes that run `command` on `listener`."""

    def __init__(self, count: int, listener: socket.socket, command: list[str] | None = None) -> None:
        self._count = count
        self._listener = listener
        self._command = command or [sys.executable, "-m", "gateway", *sys.argv[1:]]
        self._alive, self._end = os.pipe()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ready: dict[int, int] = {}
        self._stillborn = 0
        self._signals = 0
        self._announced = False

    def run(self) -> None:
        """Serves until a signal; returns when all workers have ended. `ClickException` when they cannot live."""
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for index in range(self._count):
                self._start(index)
            while self._processes:
                self._reap()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._each(lambda process: process.kill())
            os.close(self._end)

    def _start(self, index: int) -> None:
        fd = self._listener.fileno()
        self._ready[index], ready = os.pipe()
        environment = {**os.environ, LISTENER: f"{fd},{self._alive},{ready}"}
        if not self._announced:
            environment[ANNOUNCES] = "1"
            self._announced = True
        # A process group of its own: Ctrl-C is for this process, which passes it on once.
        self._processes[index] = subprocess.Popen(  # noqa: S603 - this very command line
            self._command, env=environment, pass_fds=(fd, self._alive, ready), process_group=0
        )
        os.close(ready)

    def _reap(self) -> None:
        """Waits for a worker that ends, and starts another in its place unless the server ends."""
        for index, process in list(self._processes.items()):
            try:
                code = process.wait(timeout=RESTART_SECONDS / self._count)
            except subprocess.TimeoutExpired:
                continue
            del self._processes[index]
            served = os.read(self._ready[index], 1)
            os.close(self._ready.pop(index))
            if not self._signals:
                self._died(index, code, served=bool(served))

    def _died(self, index: int, code: int, *, served: bool) -> None:
        self._stillborn = 0 if served else self._stillborn + 1
        if self._stillborn >= MAX_STILLBORN:
            self._each(lambda process: process.terminate())
            raise click.ClickException(f"The workers end before they serve (exit code {code}).")
        logger.warning("Worker %d ended with code %d; starting another", index, code)
        self._start(index)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._each(lambda process: process.send_signal(signal.SIGTERM if self._signals == 1 else number))

    def _each(self, do: Callable[[subprocess.Popen[bytes]], None]) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                do(process)
