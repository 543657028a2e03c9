"""The thread that keeps a worker's leases alive."""

from __future__ import annotations

import asyncio
import threading

from gateway.errors import StoreError
from gateway.execution.heartbeat import Heartbeat

LONG = 20  # seconds; reached only by a test that fails


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_it_renews_from_a_thread_also_while_the_loop_is_blocked() -> None:
    renewed = threading.Semaphore(0)
    heartbeat = Heartbeat(renewed.release, 0.001, 60)
    heartbeat.start()
    assert renewed.acquire(timeout=LONG)  # this blocks the loop
    assert renewed.acquire(timeout=LONG)
    await heartbeat.stop()
    assert not any(thread.name == "agui-heartbeat" for thread in threading.enumerate())


async def test_a_loop_that_does_not_turn_for_long_is_given_up_and_taken_back_when_it_does() -> None:
    clock, renewals = Clock(), list[float]()
    heartbeat = Heartbeat(lambda: renewals.append(clock.now), 3_600, 60, clock=clock)
    heartbeat.start()
    clock.now += 60
    heartbeat.beat()
    clock.now += 1
    heartbeat.beat()
    assert renewals == [1060.0]
    heartbeat._tick()
    heartbeat.beat()
    assert renewals == [1060.0, 1061.0]
    await heartbeat.stop()


async def test_after_a_gap_it_is_not_steady_until_the_others_had_the_time_to_renew() -> None:
    clock, failing = Clock(), False

    def renew() -> None:
        if failing:
            raise StoreError("gone")

    heartbeat = Heartbeat(renew, 5, 60, clock=clock)

    def seen_after(seconds: float) -> tuple[bool, bool]:
        clock.now += seconds
        before = heartbeat.steady
        heartbeat._seen = clock.now
        heartbeat.beat()
        return before, heartbeat.steady

    heartbeat.start()
    assert not heartbeat.steady
    assert seen_after(5) == (True, True)
    assert seen_after(7) == (True, True)
    assert seen_after(9) == (False, False)  # it, or the store, stood still
    assert seen_after(4) == (False, False)
    assert seen_after(1) == (True, True)
    failing = True
    assert seen_after(5) == (True, False)
    failing = False
    assert seen_after(0.5) == (False, False)
    assert seen_after(5) == (True, True)
    await heartbeat.stop()


async def test_a_store_that_fails_is_asked_again() -> None:
    answers = iter([StoreError("gone"), StoreError("gone"), None])

    def renew() -> None:
        if (error := next(answers)) is not None:
            raise error

    heartbeat = Heartbeat(renew, 3_600, 60)
    heartbeat.start()
    for _ in range(3):
        heartbeat.beat()
    assert next(answers, "none left") == "none left"
    await asyncio.wait_for(heartbeat.stop(), LONG)
