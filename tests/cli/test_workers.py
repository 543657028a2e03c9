"""Several processes on one socket: restarted when they die, ended together, and gone when their parent is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.servers import eventually

LONG = 60  # seconds; reached only by a test that fails
HERE = Path(__file__).parent
PARENT = """
import socket, sys
from gateway.cli.workers import Workers
listener = socket.create_server(("127.0.0.1", 0))
Workers({count}, listener, [sys.executable, {program!r}, {what!r}, {log!r}]).run()
"""

Started = list[tuple[int, int, bool]]


def started(log: Path) -> Started:
    """The workers so far: pid, port, whether it announces."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    fields = [line.split() for line in lines]
    return [(int(pid), int(port), announces == "True") for pid, port, announces in fields]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def parent(log: Path) -> Iterator[subprocess.Popen[str]]:
    code = PARENT.format(count=3, program=str(HERE / "worker_program.py"), what="live", log=str(log))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_every_worker_has_the_same_socket_and_one_of_them_announces_it(
    parent: subprocess.Popen[str], log: Path
) -> None:
    eventually(lambda: len(started(log)) == 3, within=LONG)
    assert len({port for _, port, _ in started(log)}) == 1
    assert sorted(announces for _, _, announces in started(log)) == [False, False, True]


def test_a_worker_that_dies_is_replaced(parent: subprocess.Popen[str], log: Path) -> None:
    eventually(lambda: len(started(log)) == 3, within=LONG)
    (victim, port, _) = started(log)[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(started(log)) == 4, within=LONG)
    assert started(log)[3][1] == port
    assert not started(log)[3][2], "it was announced before"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_worker_and_then_the_parent(
    parent: subprocess.Popen[str], log: Path, number: signal.Signals
) -> None:
    eventually(lambda: len(started(log)) == 3, within=LONG)
    parent.send_signal(number)
    assert parent.wait(timeout=LONG) == 0
    assert not [pid for pid, _, _ in started(log) if psutil.pid_exists(pid)]


def test_workers_end_when_their_parent_is_killed(parent: subprocess.Popen[str], log: Path) -> None:
    eventually(lambda: len(started(log)) == 3, within=LONG)
    parent.kill()
    eventually(lambda: not [pid for pid, _, _ in started(log) if psutil.pid_exists(pid)], within=LONG)


def test_workers_that_never_live_end_the_server_with_a_reason(log: Path) -> None:
    code = PARENT.format(count=2, program=str(HERE / "worker_program.py"), what="die", log=str(log))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 1
    assert "The workers end before they serve (exit code 7)." in done.stderr


def test_the_socket_is_given_on_to_workers_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not listener.get_inheritable()
