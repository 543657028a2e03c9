"""A command at a terminal: a pseudo-terminal that it owns, so that Ctrl-C typed there is the signal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

__all__ = ["Terminal"]

SECONDS = 20.0
ROWS, COLUMNS = 40, 120

# The leader of a new session gets the first terminal that it opens as its own.
OWN_TERMINAL = "import os, sys; os.close(os.open(os.ttyname(1), os.O_RDWR)); os.execv(sys.executable, sys.argv[1:])"
# What moves the cursor, colours or erases.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs `python -m gateway …`. `raw` is all that came so far, `text` the same without control sequences."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, sys.executable, "-m", "gateway", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
        )
        os.close(slave)
        self.raw = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        return CONTROL.sub("", self.raw)

    def type(self, keys: str) -> None:
        """As if somebody typed it."""
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Until this is on the terminal."""
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert self._read(deadline), f"The command has ended without {text!r}:\n{self.text}"

    def finish(self) -> int:
        """Reads to the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(SECONDS)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"Nothing more came within {SECONDS:g} s:\n{self.text}"
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other end is closed
            data = b""
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
