"""Client commands for tests: in this process, and in one of their own that can be interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from gateway.cli.main import main

__all__ = ["SESSION", "Command", "events_of", "run_command"]

SESSION = "test-session-0123456789"
EXIT_SECONDS = 20.0


def run_command(*arguments: str, stdin: bytes | None = None) -> Result:
    """What a command printed and its exit code; stdout is no terminal."""
    result = CliRunner().invoke(main, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def events_of(result: Result) -> list[dict[str, Any]]:
    """The JSON lines on stdout; anything else there fails."""
    return [json.loads(line) for line in result.stdout.splitlines()]


class Command:
    """A client command in a process of its own; lines of its stdout are read one by one."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def event(self) -> dict[str, Any]:
        """The next event; waits for it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"The command has ended: {self.process.communicate()[1]}"
        event: dict[str, Any] = json.loads(line)
        return event

    def wait_for(self, name: str) -> None:
        """Until this custom event has come."""
        while self.event().get("name") != name:
            pass

    def finish(self) -> tuple[int, list[dict[str, Any]], str]:
        """The exit code, the events that were left, and stderr."""
        stdout, stderr = self.process.communicate(timeout=EXIT_SECONDS)
        return self.process.returncode, [json.loads(line) for line in stdout.splitlines()], stderr
