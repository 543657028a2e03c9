"""MCP servers for tests: started, killed, started again at the same address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.http.site import LONG, Site

__all__ = ["Program", "command", "is_alive", "listed", "until"]

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


def command(era: str, *arguments: str) -> list[str]:
    """What starts one."""
    return [sys.executable, "-m", "tests.upstream.mcp_program", era, *arguments]


class Program:
    """One behind a URL."""

    def __init__(self, era: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port: int = probe.getsockname()[1]
        self._command = command(era, "http", str(self._port))
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL)

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + LONG
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return
            assert self._process.poll() is None, "It has ended."
            assert time.monotonic() < deadline, "It does not listen."
            time.sleep(0.02)

    def start_again(self) -> None:
        """Once it has ended."""
        self._process.wait(LONG)
        self.start()
        self.wait_until_up()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """What `look` returns, once that is true."""
    async with asyncio.timeout(LONG):
        while True:
            if seen := await look():
                return seen
            await asyncio.sleep(0.02)


async def listed(site: Site, name: str, *, gone: bool = False) -> dict[str, dict[str, Any]]:
    """The catalogue, once this tool is in it, or is not any more."""

    async def look() -> dict[str, dict[str, Any]]:
        items = (await site.client.get("/tools")).json()["items"]
        found = {item["name"]: item for item in items}
        return found if (name in found) != gone else {}

    return await until(look)
