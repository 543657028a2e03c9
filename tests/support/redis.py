"""A real Redis for tests, in a process and a folder of its own, on a free port of loopback; it can be troubled."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

__all__ = ["LossyRedis", "RedisServer", "lossy", "new_prefix", "redis_server", "shared_redis"]

SECONDS = 20.0


class RedisServer:
    """A running Redis; `url` stays the same over restarts."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        assert program is not None, "Redis is not installed: run scripts/install-test."
        # "always": with "everysec", and a disk that is busy, it answers before it has written, and a kill loses that.
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.port = _free_port()
        self._command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no",
            "--logfile", str(self._folder / "log"), *options,
        ]  # fmt: skip
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def client(self) -> Redis:
        """A plain client, for looking and meddling."""
        return Redis.from_url(self.url)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with suppress(RedisError), self.client() as client:
                if client.ping():
                    return
            assert self._process.poll() is None, f"Redis did not start:\n{self.log}"
            time.sleep(0.02)
        raise AssertionError(f"Redis did not start:\n{self.log}")

    @property
    def log(self) -> str:
        path = self._folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def stop(self) -> None:
        """Ends it in good order: what it has is in its file."""
        self.resume()
        self._process.terminate()
        self._process.wait(SECONDS)

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait(SECONDS)

    def forget(self) -> None:
        """*While it does not run.* The next start finds nothing."""
        for path in self._folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def pause(self) -> None:
        """It answers nothing until `resume`, and its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def drop_connections(self) -> None:
        with suppress(RedisConnectionError), self.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def close(self) -> None:
        """Ends it for good."""
        if self._process.poll() is None:
            self.resume()
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class LossyRedis:
    """Stands before a Redis and loses the answers that a test wants lost: what was asked has been done all the same."""

    def __init__(self, server: RedisServer) -> None:
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._server = server
        self._marks: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: The requests whose answers were lost.
        self.lost: list[bytes] = []

    def lose(self, mark: str) -> None:
        """The answer to the next request that has this in it is lost, and so is its connection."""
        self._marks.append(mark.encode())

    async def repeat(self, request: bytes) -> None:
        """Sends a request once more, as a copy that was held up somewhere."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        writer.write(request)
        await reader.read(1)
        writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        answers = asyncio.create_task(_pass_on(from_server, writer))
        try:
            while request := await reader.read(1 << 20):
                mark = next((mark for mark in self._marks if mark in request), None)
                if mark is None:
                    to_server.write(request)
                    continue
                self._marks.remove(mark)
                self.lost.append(request)
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                to_server.write(request)
                await from_server.read(1)
                return
        finally:
            answers.cancel()
            to_server.close()
            writer.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 20):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def lossy(server: RedisServer) -> AsyncIterator[LossyRedis]:
    proxy = LossyRedis(server)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", proxy.port)
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def shared_redis() -> RedisServer:
    """The one that all tests of this process share which leave it alone; each has a prefix of its own."""
    server = RedisServer("--appendonly", "no")
    atexit.register(server.close)
    return server


def new_prefix() -> str:
    return f"test-{uuid4().hex[:12]}:"


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """One of the test's own."""
    server = RedisServer()
    yield server
    server.close()
