"""Thousands of random lives of runs and of the people around them: questions, answers, Stop, detach, resume, pages.

Each schedule is made from its own number: runs of a few calls whose tools work, emit, ask, wait, interrupt, call each
other and leave work to the background, and people who do whatever people do, at random moments of a virtual clock, on
the real supervisor, executor and store. What must hold whatever happens is in `person_checks`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from gateway.execution.supervisor import Supervisor
from gateway.settings import Settings
from gateway.stores.memory import MemoryStore
from gateway.wire.json_schema import warm_up
from tests.execution.person_acts import Person, WayGivingStore, World
from tests.execution.person_checks import check
from tests.execution.person_tools import Schedule, around, schedule_of
from tests.execution.virtual import VirtualLoop
from tests.support.effort import Schedules

SCHEDULES = Schedules(800, parts=2)
LONG = 100.0  # virtual seconds that nothing may take once everybody has gone
EPOCH = 1_700_000_000.0


@cache
def settings_of(run_timeout: float) -> Settings:
    return Settings(stop_grace=2.5, run_timeout=run_timeout, page_claim=3, interrupt_ttl=8)


class Clock:
    """The gateway's clocks show the loop's time, and its threads work in turns of the loop.

    So a schedule is the same each time, however fast the machine is.
    """

    loop: VirtualLoop
    luck: random.Random

    def wall(self) -> float:
        return EPOCH + self.loop.now

    def loop_of_its_own(self) -> VirtualLoop:
        self.loop = VirtualLoop()
        return self.loop

    async def to_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        for _ in range(self.luck.choice([1, 2, 3, 6])):
            await asyncio.sleep(0)
        return work(*args)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        clocks: dict[object, Callable[[], float]] = {
            time.time: self.wall,
            time.monotonic: lambda: self.loop.now,
            time.time_ns: lambda: int(self.wall() * 1e9),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "to_thread", self.to_thread)
            for name, module in list(sys.modules.items()):
                if name.startswith("gateway."):
                    for attribute in ("time", "monotonic", "time_ns"):
                        if (virtual := clocks.get(vars(module).get(attribute))) is not None:
                            patch.setattr(module, attribute, virtual)
            yield


async def live(schedule: Schedule, clock: Clock, happened: Counter[str]) -> None:
    """Runs a schedule and checks everything that must hold."""
    before = asyncio.all_tasks()
    settings = settings_of(schedule.run_timeout)
    luck = clock.luck = random.Random(f"{schedule.number}/store")
    if schedule.gives_way:
        store: MemoryStore = WayGivingStore(settings, clock.wall, luck)
    else:
        store = MemoryStore(settings, clock=clock.wall)
    async with store:
        supervisor = Supervisor(settings, store, [] if schedule.around is None else [around])
        await supervisor.open()
        listening = asyncio.all_tasks() - before
        world = World(schedule, settings, store, supervisor)
        asyncio.get_running_loop().set_exception_handler(lambda _, context: world.fault(str(context)))
        async with asyncio.timeout(schedule.horizon + LONG), asyncio.TaskGroup() as everybody:
            for plan in schedule.runs:
                everybody.create_task(world.begin(plan))
            for number in range(schedule.people):
                everybody.create_task(Person(world, number).live())
        await all_over(world)
        # Whatever would not stop has a minute to obey; then nothing is left.
        await asyncio.sleep(60)
        world.compare()
        assert not world.faults, "\n".join(world.faults)
        left = asyncio.all_tasks() - before - listening
        assert not left, left
        assert not supervisor.questions._listeners
        assert not supervisor.active
        assert not supervisor._per_session
        for key, run in world.lives_of.items():
            assert not run.signal._callbacks, (key, run.signal._callbacks, run.record)
        await check(world)
        if schedule.drain is None:
            await supervisor.close()
        happened.update(world.happened)
    assert asyncio.all_tasks() == before


async def all_over(world: World) -> None:
    """Everybody has gone. Stop is pressed on what is left, or the gateway drains and ends; then all runs are over."""
    supervisor, drain = world.supervisor, world.schedule.drain
    await asyncio.sleep(max(world.schedule.horizon - world.now(), 0))
    async with asyncio.timeout(LONG):
        if drain is not None:
            late = world.now() + drain + 2
            await supervisor.drain(drain)
            # What was stopped before keeps the grace of that Stop, but not beyond the end of its worker.
            assert all(run.signal.aborted for run in supervisor._runs.values())
            await supervisor.close()
            assert not supervisor.active
            assert world.now() < late
        else:
            for run in list(supervisor._runs.values()):
                await world.stop(run.key)
        while runs := list(supervisor._runs.values()):
            await asyncio.gather(*(run.done.wait() for run in runs))
            await asyncio.sleep(0)


# What has to happen a few times in some hundred schedules, or they are not worth much.
WANTED = {
    "answer",
    "answer refused: interrupt_answered",
    "answer refused: interrupt_closed",
    "answer refused: interrupt_not_found",
    "claim",
    "claim refused: claim_lost",
    "detach",
    "detach refused: not_detachable",
    "detach refused: not_running",
    "misfit",
    "page result",
    "resume",
    "resume refused: interrupt_answered",
    "stop",
    "stop of a call",
    "stop of an interrupted run",
}


def lives(numbers: range, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Runs schedules; what happened in them."""
    happened: Counter[str] = Counter()
    clock = Clock()
    warm_up()
    with clock.everywhere():
        for number in numbers:
            schedule = schedule_of(number)
            try:
                with asyncio.Runner(loop_factory=clock.loop_of_its_own) as runner:
                    runner.run(live(schedule, clock, happened))
                assert not caplog.records, caplog.text
            except BaseException as error:
                raise AssertionError(f"AGUI_SCHEDULE={number}: {error!r}\n{schedule.outline()}") from error
    return happened


@pytest.mark.parametrize("part", range(SCHEDULES.parts))
def test_whatever_people_do_to_runs_and_runs_to_people_the_rules_hold(
    part: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "gateway")  # tools fail as planned, and the gateway never
    numbers = SCHEDULES.part(part)
    happened = lives(numbers, caplog)
    assert len(numbers) < 300 or happened.keys() >= WANTED, WANTED - happened.keys()
