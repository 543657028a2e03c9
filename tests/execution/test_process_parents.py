"""Process tools and the program that started them, a real one: its death, its main module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.execution.process_calls import (
    is_running,
)
from tests.support.servers import eventually

HERE = Path(__file__).parent
LONG = 60  # seconds; reached only by a test that fails


@pytest.fixture
def parent() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the small gateway of `process_parent` as a program of its own."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "process_parent.py"), *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(LONG)
        assert process.stdout is not None
        process.stdout.close()


def test_a_tool_whose_gateway_was_killed_hears_it_and_dies(
    parent: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = parent("process_tools:wait_for_the_end")
    assert process.stdout is not None
    pid = int(process.stdout.readline().removeprefix(b"pid "))
    assert is_running(pid)
    process.kill()
    assert process.stdout.readline() == b"heard shutdown\n"
    assert process.stdout.read() == b"", "the pipe ends with the last process that holds it"
    eventually(lambda: not is_running(pid), within=LONG, what="the tool's process is gone")  # it closes, then ends


def test_a_tool_of_the_main_program_is_found(parent: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = parent("__main__:in_main", "word=hello")
    assert process.stdout is not None
    assert process.stdout.read() == b"hello from main"


def test_a_tool_of_a_main_program_run_as_a_module_is_found() -> None:
    command = [sys.executable, "-m", "process_parent", "__main__:in_main", "word=hello"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, timeout=LONG, check=True)
    assert done.stdout == b"hello from main"


def test_a_process_that_only_runs_a_tool_imports_no_server() -> None:
    program = "import sys, gateway.execution.child; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True)
    assert "gateway.execution.child" in done.stdout.split()
    assert not {"starlette", "uvicorn", "httpx", "ag_ui", "gateway.http.app"} & set(done.stdout.split())
