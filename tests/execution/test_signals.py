"""The abort signal, seen from callbacks, coroutines and threads."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import AbortError
from gateway.execution.signals import REASONS, AbortSignal

reasons = st.sampled_from(REASONS)


def _note(called: list[tuple[int, str]], number: int, reason: str) -> None:
    called.append((number, reason))


@given(reasons, reasons)
def test_the_first_reason_stays(first: str, second: str) -> None:
    signal = AbortSignal()
    assert (signal.aborted, signal.reason) == (False, None)
    assert signal.abort(first) is True
    assert signal.abort(second) is False
    assert (signal.aborted, signal.reason) == (True, first)


def test_throw_if_aborted_raises_the_reason_and_only_then() -> None:
    signal = AbortSignal()
    signal.throw_if_aborted()
    signal.abort("timeout")
    with pytest.raises(AbortError) as raised:
        signal.throw_if_aborted()
    assert raised.value.reason == "timeout"


def test_a_signal_can_be_made_aborted() -> None:
    signal = AbortSignal("user")
    assert signal.aborted
    assert not signal.abort("shutdown")
    assert repr(signal) == "<AbortSignal user>"
    assert repr(AbortSignal()) == "<AbortSignal open>"


@given(st.lists(st.sampled_from(["add", "remove", "fail"]), max_size=20), reasons)
def test_the_callbacks_that_were_not_removed_are_called_once_in_order(steps: list[str], reason: str) -> None:
    signal = AbortSignal()
    called: list[tuple[int, str]] = []
    expected: list[int] = []
    removers: list[Callable[[], None]] = []
    for number, step in enumerate(steps):
        if step == "remove" and removers:
            removers[-1]()
            removers[-1]()
            if expected:
                expected.pop()
            removers.pop()
        elif step == "add":
            removers.append(signal.on_abort(partial(_note, called, number)))
            expected.append(number)
    signal.abort(reason)
    signal.abort(reason)
    assert called == [(number, reason) for number in expected]


def test_a_callback_after_the_abort_is_called_at_once() -> None:
    called: list[str] = []
    remove = AbortSignal("store").on_abort(called.append)
    assert called == ["store"]
    remove()


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_a_failing_callback_is_logged_and_stops_nobody(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    signal = AbortSignal()
    called: list[str] = []

    def fail(reason: str) -> None:
        raise error

    signal.on_abort(fail)
    signal.on_abort(called.append)
    with caplog.at_level(logging.ERROR, "gateway"):
        assert signal.abort("user")
    assert called == ["user"]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


def test_a_callback_may_use_the_signal_it_is_called_by() -> None:
    signal = AbortSignal()
    seen: list[object] = []

    def nested(reason: str) -> None:
        seen.append((signal.aborted, signal.abort("tool")))
        signal.on_abort(seen.append)

    signal.on_abort(nested)
    signal.abort("user")
    assert seen == [(True, False), "user"]


def test_callbacks_run_in_the_aborting_thread() -> None:
    signal = AbortSignal()
    names: list[str] = []
    signal.on_abort(lambda _: names.append(threading.current_thread().name))
    aborting = threading.Thread(target=signal.abort, args=("user",), name="the-aborting-one")
    aborting.start()
    aborting.join()
    assert names == ["the-aborting-one"]


# -- children --


@given(reasons)
def test_a_child_follows_its_parent(reason: str) -> None:
    parent = AbortSignal()
    grandchild = parent.child().child()
    parent.abort(reason)
    assert grandchild.reason == reason
    assert parent.child().reason == reason


def test_a_parent_does_not_follow_its_child() -> None:
    parent = AbortSignal()
    one, other = parent.child(), parent.child()
    one.abort("timeout")
    assert not parent.aborted
    assert not other.aborted
    parent.abort("user")
    assert (one.reason, other.reason) == ("timeout", "user")


def test_a_detached_child_is_on_its_own() -> None:
    parent = AbortSignal()
    child = parent.child()
    child.detach()
    child.detach()
    parent.abort("user")
    assert not child.aborted
    AbortSignal().detach()


def test_nothing_keeps_a_detached_child_or_its_parent_alive() -> None:
    gc.collect()
    gc.disable()  # by reference counts alone: there must be no cycle
    try:
        parent = AbortSignal()
        child = parent.child()
        kept, detached = weakref.ref(child), weakref.ref(parent.child())
        del child
        assert kept() is not None, "its parent may still have to abort it"
        for signal in (kept(), detached()):
            assert signal is not None
            signal.detach()
        del signal
        assert (kept(), detached()) == (None, None)

        orphan, gone = parent.child(), weakref.ref(parent)
        del parent
        assert gone() is None
        orphan.detach()
        assert not orphan.aborted
    finally:
        gc.enable()


# -- waiting --


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_every_waiter_on_any_loop_gets_the_reason_from_any_thread(runner: Callable[..., object]) -> None:
    signal = AbortSignal()

    async def main() -> None:
        async with asyncio.timeout(30):
            waiters = [asyncio.create_task(signal.wait()) for _ in range(3)]
            await asyncio.sleep(0)
            threading.Thread(target=signal.abort, args=("disconnect",)).start()
            assert await asyncio.gather(*waiters) == ["disconnect"] * 3
            assert await signal.wait() == "disconnect"

    runner(main())


async def test_a_cancelled_waiter_leaves_nothing_behind_and_the_others_wait_on() -> None:
    signal = AbortSignal()
    leaving, staying = asyncio.create_task(signal.wait()), asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert leaving.cancelled()
    assert len(signal._callbacks) == 1
    signal.abort("user")
    async with asyncio.timeout(30):
        assert await staying == "user"


async def test_an_abort_and_a_cancellation_in_the_same_turn_do_not_collide() -> None:
    signal = AbortSignal()
    waiter = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.abort("user")
    waiter.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait({waiter})
    await asyncio.sleep(0)
    assert waiter.cancelled()


def test_an_abort_after_the_loop_has_closed_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    signal = AbortSignal()
    loop = asyncio.new_event_loop()
    waiting = signal.wait()
    with caplog.at_level(logging.DEBUG):
        task = loop.create_task(waiting)
        loop.run_until_complete(asyncio.sleep(0))
        remaining = dict(signal._callbacks)
        task.cancel()
        loop.run_until_complete(asyncio.wait({task}))
        loop.close()
        for callback in remaining.values():
            assert not isinstance(callback, AbortSignal)
            callback("shutdown")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_exactly_one_of_many_aborting_threads_is_the_first_and_no_callback_is_lost_or_doubled() -> None:
    for _ in range(50):
        signal = AbortSignal()
        together = threading.Barrier(8)
        firsts: list[bool] = []
        called: list[int] = []

        def abort() -> None:
            together.wait(30)  # noqa: B023 - joined before the next round
            firsts.append(signal.abort("user"))  # noqa: B023

        def listen(number: int) -> None:
            together.wait(30)  # noqa: B023
            signal.on_abort(lambda _: called.append(number))  # noqa: B023

        threads = [threading.Thread(target=abort) for _ in range(4)]
        threads += [threading.Thread(target=listen, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(firsts) == [False, False, False, True]
        assert sorted(called) == [0, 1, 2, 3]
