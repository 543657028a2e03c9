"""The end of a child process: noticed on the loop, without a thread, and the end of its whole group too.

Not asyncio's child watchers: on Python 3.11 the default one starts a thread a process, and all of them reap
before they tell, when the number may already be somebody else's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

# Where the system has no pidfd (macOS, Linux before 5.3): how often to look whether the process is gone.
POLL_SECONDS = 0.02


def watch(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call `ended()` on the loop once the process is gone, what is left of its group killed, and it reaped.

    The process must lead its group (`start_new_session=True`). To be called on the loop.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            pidfd = os.pidfd_open(process.pid)
            loop.add_reader(pidfd, _readable, pidfd, process, loop, ended)
            return
    loop.call_later(POLL_SECONDS, _poll, process, loop, ended)


def signal_group(group: int, number: int) -> None:
    """Send a signal to every process of a group; nothing happens when there is none."""
    # macOS says "not permitted" for a group in which only the dead are left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _readable(
    pidfd: int,
    process: subprocess.Popen[bytes],
    loop: asyncio.AbstractEventLoop,
    ended: Callable[[], None],
) -> None:
    loop.remove_reader(pidfd)
    os.close(pidfd)
    _bury(process, ended)


def _poll(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    if _has_exited(process):
        _bury(process, ended)
    else:
        loop.call_later(POLL_SECONDS, _poll, process, loop, ended)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping, where the system can."""
    if sys.platform == "darwin":
        return process.poll() is not None
    with suppress(ChildProcessError):  # raised where the application lets the system reap its children
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def _bury(process: subprocess.Popen[bytes], ended: Callable[[], None]) -> None:
    # Before it is reaped, nobody else can have its number, nor its group's.
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
    ended()
