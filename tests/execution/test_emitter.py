"""Application events: who hears of them, in which order, and that no handler ever harms the one who emits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.execution.context import ToolContext
from gateway.execution.emitter import EventEmitter, default_emitter, emit_event, on_event
from gateway.execution.tools import tool
from tests.execution.running import LONG, desk, quiet


@pytest.fixture
def clean() -> Iterator[None]:
    """The emitter of the process, as it was."""
    yield
    default_emitter.remove_all_listeners()


@given(st.lists(st.integers(0, 5), max_size=20))
def test_handlers_hear_every_event_in_the_order_in_which_they_came(payloads: list[int]) -> None:
    emitter = EventEmitter()
    heard: list[Any] = []

    def said_by(name: str) -> Callable[[Any], None]:
        return lambda payload: heard.append((name, payload))

    for name in "abc":
        emitter.on("paid", said_by(name))
    emitter.on("other", heard.append)
    for payload in payloads:
        emitter.emit("paid", payload)
    assert heard == [(name, payload) for payload in payloads for name in "abc"]


async def test_async_handlers_are_done_when_the_emit_is_awaited() -> None:
    emitter, go = EventEmitter(), asyncio.Event()
    heard: list[Any] = []

    async def handler(payload: str) -> None:
        await go.wait()
        heard.append(payload)

    emitter.on("paid", handler)
    waiting = emitter.emit("paid", "one")
    await asyncio.sleep(0)
    assert heard == []
    go.set()
    await waiting
    assert heard == ["one"]
    await emitter.emit("nobody listens")


FAILURES: dict[str, BaseException] = {
    "an exception": ValueError("oh"),
    "its own cancellation": asyncio.CancelledError(),
    "an exit": SystemExit(3),
}


@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("kind", ["plain", "async", "async later"])
async def test_a_handler_that_fails_is_logged_and_reaches_nobody(
    what: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    emitter = EventEmitter()
    heard: list[Any] = []

    def plain(payload: Any) -> None:
        raise FAILURES[what]

    async def coroutine(payload: Any) -> None:
        if kind == "async later":
            await asyncio.sleep(0)
        raise FAILURES[what]

    emitter.on("paid", plain if kind == "plain" else coroutine)
    emitter.on("paid", heard.append)
    await emitter.emit("paid", 1)
    assert heard == [1]
    (record,) = [record for record in caplog.records if record.name == "gateway.events"]
    assert record.getMessage() == "A handler of the event 'paid' failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is FAILURES[what]


async def test_a_failure_that_nobody_awaits_is_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    emitter, task = EventEmitter(), asyncio.current_task()

    async def fails(payload: Any) -> None:
        raise asyncio.CancelledError

    emitter.on("paid", fails)
    emitter.emit("paid")
    async with asyncio.timeout(LONG):
        await quiet(lambda: asyncio.all_tasks() == {task})
    assert [record.name for record in caplog.records] == ["gateway.events"]


async def test_who_stops_to_wait_does_not_end_the_handlers() -> None:
    emitter, go, heard = EventEmitter(), asyncio.Event(), asyncio.Event()

    async def handler(payload: Any) -> None:
        await go.wait()
        heard.set()

    emitter.on("paid", handler)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await emitter.emit("paid")
    go.set()
    async with asyncio.timeout(LONG):
        await heard.wait()


def test_once_hears_one_event_and_off_takes_back_what_on_and_once_added() -> None:
    emitter = EventEmitter()
    heard: list[Any] = []
    emitter.once("paid", heard.append)
    emitter.emit("paid", 1)
    emitter.emit("paid", 2)
    assert heard == [1]
    emitter.once("paid", heard.append)
    emitter.on("paid", heard.append)
    assert emitter.listener_count("paid") == 2
    emitter.off("paid", heard.append)
    emitter.off("paid", heard.append)
    emitter.off("paid", heard.append)
    emitter.emit("paid", 3)
    assert heard == [1]
    assert emitter.event_names() == []


def test_what_on_returned_removes_its_own_registration_and_no_other() -> None:
    emitter = EventEmitter()
    heard: list[Any] = []
    remove = emitter.on("paid", heard.append)
    emitter.on("paid", heard.append)
    remove()
    remove()
    emitter.emit("paid", 1)
    assert heard == [1]


def test_a_handler_may_change_the_handlers_while_it_is_called() -> None:
    emitter = EventEmitter()
    heard: list[Any] = []

    def first(payload: int) -> None:
        emitter.off("paid", second)
        emitter.on("paid", heard.append)

    def second(payload: int) -> None:
        heard.append(-payload)

    emitter.on("paid", first)
    emitter.on("paid", second)
    emitter.emit("paid", 1)
    assert heard == [-1], "an event reaches those who were there when it was emitted"
    emitter.emit("paid", 2)
    assert heard == [-1, 2]


def test_of_many_threads_once_hears_exactly_one_event() -> None:
    emitter, counts = EventEmitter(), Counter[str]()
    barrier = threading.Barrier(8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def emit() -> None:
        for _ in range(200):
            barrier.wait()
            emitter.emit("paid")
            barrier.wait()

    def register() -> None:
        for _ in range(200):
            emitter.once("paid", lambda _: counts.update(["heard"]))
            barrier.wait()
            barrier.wait()

    try:
        threads = [threading.Thread(target=emit) for _ in range(7)]
        for thread in threads:
            thread.start()
        register()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counts["heard"] == 200


async def test_an_async_handler_of_an_event_from_a_thread_runs_on_the_attached_loop() -> None:
    emitter, heard = EventEmitter(), asyncio.Event()
    ran_on: list[asyncio.AbstractEventLoop] = []

    async def handler(payload: Any) -> None:
        ran_on.append(asyncio.get_running_loop())
        heard.set()

    emitter.attach(asyncio.get_running_loop())
    emitter.on("paid", handler)
    await asyncio.to_thread(emitter.emit, "paid")
    async with asyncio.timeout(LONG):
        await heard.wait()
    assert ran_on == [asyncio.get_running_loop()]


def test_an_async_handler_without_any_loop_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    emitter = EventEmitter()

    async def handler(payload: Any) -> None:
        raise AssertionError("It has nowhere to run.")

    emitter.on("paid", handler)
    emitter.emit("paid")
    assert "has no loop" in caplog.text


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_tool_emits_to_the_application_and_the_stream_hears_nothing(kind: str) -> None:
    heard: list[Any] = []

    @on_event("order.paid")
    async def later(payload: Any) -> None:
        heard.append(payload)

    @on_event("order.paid")
    def fails(payload: Any) -> None:
        raise SystemExit(1)

    @tool(name="pays")
    async def on_the_loop(ctx: ToolContext) -> str:
        """Pays, and waits for who wants to know."""
        await emit_event("order.paid", {"order": 7})
        return "paid"

    @tool(name="pays")
    def in_a_thread(ctx: ToolContext) -> str:
        """The same, where nothing can be awaited."""
        emit_event("order.paid", {"order": 7})
        return "paid"

    default_emitter.attach(asyncio.get_running_loop())
    async with desk() as at:
        _, events = await at.outcome(on_the_loop if kind == "async" else in_a_thread)
        await quiet(lambda: bool(heard))
    assert heard == [{"order": 7}]
    assert "order" not in str(events)
    assert next(event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT") == "paid"
