"""What is emitted and not stored yet is bounded, in tools of every kind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import Backpressure
from gateway.execution.context import ToolContext
from gateway.execution.pressure import Pressure
from gateway.execution.tools import tool
from tests.execution.running import LONG, Desk, desk

LIMIT = 1_000


class SlowWriter:
    """A writer whose store takes nothing until it is told to."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.pending_bytes = 0

    def write(self, data: bytes, count: int = 1) -> None:
        self.pending_bytes += len(data)
        self._inner.write(data, count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def slow(site: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SlowWriter]:
    """Every run of the store from now on has such a writer; returns the last one."""
    made: list[SlowWriter] = []
    real = site.store.writer

    def writer(lease: Any) -> Any:
        made.append(SlowWriter(real(lease)))
        return made[-1]

    monkeypatch.setattr(site.store, "writer", writer)
    return lambda: made[-1]


async def test_an_emit_on_the_loop_fails_beyond_the_bound_and_goes_on_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = asyncio.Event()

    @tool
    async def floods(ctx: ToolContext) -> int:
        sent = 0
        while True:
            try:
                ctx.emit_custom_event("data", {"n": sent, "text": "x" * 100})
            except Backpressure:
                break
            sent += 1
            await ctx.flush()
        full.set()
        while ctx._pressure.full:  # noqa: ASYNC110 - it looks by a timer
            await asyncio.sleep(0)
        ctx.emit_custom_event("data", {"n": sent, "text": "the end"})
        return sent + 1

    async with desk(max_pending_bytes=LIMIT) as site:
        writer = slow(site, monkeypatch)
        run = await site.start(floods)
        async with asyncio.timeout(LONG):
            await full.wait()
        assert LIMIT < writer().pending_bytes < 3 * LIMIT
        writer().pending_bytes = 0
        _, events = await site.finish(run)
        numbers = [event["value"]["n"] for event in events if event.get("name") == "data"]
        assert numbers == list(range(len(numbers)))
        assert [e["value"]["structuredContent"] for e in events if e.get("name") == "tool.result"] == [
            {"result": len(numbers)}
        ]


async def test_an_emit_in_a_thread_waits_until_there_is_room_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []

    @tool(timeout=0)
    def floods(ctx: ToolContext) -> int:
        for number in range(60):
            ctx.emit_custom_event("data", {"n": number, "text": "x" * 100})
            ctx.flush()
            sent.append(number)
        return len(sent)

    async with desk(max_pending_bytes=LIMIT) as site:
        writer = slow(site, monkeypatch)
        run = await site.start(floods)
        filled = 0
        async with asyncio.timeout(LONG):
            while not run.done.is_set():
                # It may be full again before anybody has seen that it was not.
                if run.pressure.full:
                    assert writer().pending_bytes < 3 * LIMIT
                    writer().pending_bytes = 0
                    filled += 1
                await asyncio.sleep(0.001)
        assert filled
        _, events = await site.finish(run)
        assert [event["value"]["n"] for event in events if event.get("name") == "data"] == list(range(60))


async def test_stop_ends_a_thread_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool(timeout=0)
    def floods(ctx: ToolContext) -> None:
        while not ctx.abort_signal.aborted:
            ctx.emit_custom_event("data", {"text": "x" * 100})
            ctx.flush()

    async with desk(max_pending_bytes=LIMIT) as site:
        slow(site, monkeypatch)
        run = await site.start(floods)
        async with asyncio.timeout(LONG):
            while not run.pressure.full:  # noqa: ASYNC110 - a thread fills it
                await asyncio.sleep(0.001)
        await site.stop(run)
        record, _ = await site.finish(run)
        assert record.status == "cancelled"


async def test_who_waits_for_room_is_called_once_there_is_some() -> None:
    class Writer:
        pending_bytes = 0

    writer, called = Writer(), asyncio.Event()
    pressure = Pressure(writer, LIMIT, lambda: False)  # type: ignore[arg-type]  # all that it looks at
    pressure.when_free(called.set)
    assert called.is_set()
    called.clear()
    writer.pending_bytes = LIMIT + 1
    pressure.look()
    pressure.when_free(called.set)
    assert not called.is_set()
    with pytest.raises(Backpressure):
        pressure.hold()
    holding = threading.Thread(target=pressure.hold)
    holding.start()
    writer.pending_bytes = 0
    async with asyncio.timeout(LONG):
        await called.wait()
    await asyncio.to_thread(holding.join, LONG)
    assert not holding.is_alive()
