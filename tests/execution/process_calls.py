"""What the tests of process tools share: a sink that keeps everything, started jobs, what settled how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
import uvloop

from gateway.execution.outcomes import ToolOutput
from gateway.execution.processes import ProcessDied, ProcessJob
from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.signals import AbortSignal

LONG = 60  # seconds; reached only by a test that fails

Main = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def _runner(factory: Callable[[], asyncio.AbstractEventLoop]) -> Main:
    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def timed() -> None:
            async with asyncio.timeout(LONG):
                await main()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(timed())

    return run


# Every test gets `run`, which runs its coroutine on a loop of each kind, within a time.
on_each_loop = pytest.mark.parametrize(
    "run", [_runner(asyncio.new_event_loop), _runner(uvloop.new_event_loop)], ids=["asyncio", "uvloop"]
)

CONTEXT: dict[str, Any] = {
    "run_id": "run-1",
    "thread_id": "thread-1",
    "tool_call_id": "call-1",
    "tool_name": "the_tool",
    "request_id": "request-1",
    "session_id": "anon:s",
    "metadata": {"headers": {"accept-language": "de"}},
    "auth": {
        "subject": "ada", "scopes": ["read", "write"], "client_id": None, "issuer": None,
        "audience": ["us"], "expires_at": None, "claims": {},
    },
}  # fmt: skip


class Sink:
    """Keeps everything; `stored` decides whether flushes are acknowledged."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.changes: list[tuple[str, str]] = []
        self.reports: list[tuple[float, float | None, str | None]] = []
        self.records: list[tuple[int, str]] = []
        self.tracebacks: list[str] = []
        self.flushes: list[Callable[[], None]] = []
        self.stored = True
        self._waiting: list[tuple[list[Any], int, asyncio.Future[None]]] = []

    def emit(self, name: str, value: bytes, changes: Sequence[tuple[str, str]]) -> None:
        self.events.append((name, json.loads(value)))
        self.changes.extend(changes)
        self._wake()

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.reports.append((progress, total, message))

    def log(self, level: int, message: str) -> None:
        self.records.append((level, message))

    def flushed(self, done: Callable[[], None]) -> None:
        self.flushes.append(done)
        self._wake()
        if self.stored:
            done()

    def traceback(self, text: str) -> None:
        self.tracebacks.append(text)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    async def wait_for(self, count: int) -> None:
        await self._wait(self.events, count)

    async def wait_for_flush(self, count: int) -> None:
        await self._wait(self.flushes, count)

    async def _wait(self, things: list[Any], count: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((things, count, future))
        self._wake()
        await future

    def _wake(self) -> None:
        for things, count, future in self._waiting:
            if len(things) >= count and not future.done():
                future.set_result(None)


@asynccontextmanager
async def started(
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    sink: Any = None,
    signal: AbortSignal | None = None,
    **context: Any,
) -> AsyncIterator[tuple[ProcessJob, Any]]:
    """A running process tool; whatever happens, it is gone afterwards."""
    sink = sink or Sink()
    job = ProcessJob(
        target=name if ":" in name else f"tests.execution.process_tools:{name}",
        arguments=arguments or {},
        context={**CONTEXT, **context},
        sink=sink,
        signal=signal or AbortSignal(),
    )
    await job.start()
    try:
        yield job, sink
    finally:
        job.close()
        await job.wait_gone()
        assert job.future.done()


async def called(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    async with started(name, arguments, **options) as (job, sink):
        return await job.future, sink


def text(settled: Settled[ToolOutput]) -> str:
    assert isinstance(settled, Returned), settled
    return settled.value.text


def structured(settled: Settled[ToolOutput]) -> Any:
    assert isinstance(settled, Returned), settled
    return settled.value.structured_content


def died(settled: Settled[ToolOutput]) -> ProcessDied:
    assert isinstance(settled, Raised), settled
    assert isinstance(settled.error, ProcessDied)
    return settled.error


def is_running(pid: int | None) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def dies(pid: int) -> None:
    """Nobody tells a test of a process that is not its own child, so it looks, within its timeout."""
    while is_running(pid):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.005)
