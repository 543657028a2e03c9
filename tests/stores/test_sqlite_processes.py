"""Several processes on one file, some of them killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.stores.sqlite_thread import LONG_TRY
from tests.conformance.stores import LONG, frame, frames, new_run, record, rest
from tests.stores.sqlite_stores import KEY, locked, opened, rows

ROOT = Path(__file__).parents[2]


class Child:
    """See `sqlite_child`."""

    def __init__(self, path: Path, *command: str, **settings: float) -> None:
        variables = {f"AGUI_GATEWAY_{name.upper()}": f"{value:g}" for name, value in settings.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.sqlite_child", str(path), *command],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    async def hears(self) -> str:
        return await asyncio.to_thread(self.hear)

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.wait(LONG)

    def rest(self) -> list[str]:
        """Everything else that it has said."""
        assert self._process.stdout is not None
        return self._process.stdout.read().split()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as children:
        yield children


def test_of_many_processes_that_create_a_run_exactly_one_gets_it(path: Path, stack: ExitStack) -> None:
    children = [stack.enter_context(Child(path, f"worker-{n}", "race", "40")) for n in range(3)]
    assert [child.hear() for child in children] == ["ready"] * 3
    for child in children:
        child.tell()
    got = [run for child in children for run in child.hear().split()]
    assert sorted(got) == sorted(f"run-{n}" for n in range(40))
    assert rows(path, "SELECT count(*) FROM runs") == [(40,)]


@pytest.mark.parametrize("said", [1, 5, 40])
def test_a_process_that_is_killed_loses_only_what_nobody_has_seen(path: Path, stack: ExitStack, said: int) -> None:
    child = stack.enter_context(Child(path, "worker-1", "write"))
    for _ in range(said):
        child.hear()
    child.kill()
    last = int((child.rest() or ["0"])[-1])
    asyncio.run(check_and_go_on(path, last))


async def check_and_go_on(path: Path, last: int) -> None:
    """All that was said to be stored is there, whole, with a record of its batch; and the run can be closed."""
    async with opened(path) as store:
        bounds, found = await store.bounds(KEY), await store.get(KEY)
        assert bounds is not None
        assert found is not None
        assert bounds.last >= last
        assert found.reason == str(bounds.last)  # together with what was written before it
        lease = await store.take_over(KEY, "worker-2")
        assert lease is not None
        over = record(status="failed", ended_at=1_700_000_000_000.0)
        await store.append(lease, bounds.last + 1, [frame(bounds.last + 1)], over)
        expected = b"".join(frame(n, n % 2_000) for n in range(1, bounds.last + 1)) + frame(bounds.last + 1)
        assert await rest(store.follow(KEY, 0)) == expected


async def test_a_run_is_followed_from_another_process(path: Path, stack: ExitStack) -> None:
    async with opened(path) as store:
        writer = store.writer(await new_run(store))
        writer.write(frame(1))
        await writer.flush()
        child = stack.enter_context(Child(path, "worker-2", "follow"))
        assert await child.hears() == "1"
        writer.write(frame(2))  # it waits for it
        assert await child.hears() == "2"
        for item in frames(3, 2_000, 300):
            writer.write(item)
        writer.save(record(status="completed", ended_at=1_700_000_000_000.0))
        async with asyncio.timeout(LONG):
            while (heard := await child.hears()).isdigit() and len(heard) < 10:
                pass
        assert bytes.fromhex(heard) == b"".join([*frames(1, 2), *frames(3, 2_000, 300)])


async def test_a_process_whose_run_was_taken_over_can_append_no_more(path: Path, stack: ExitStack) -> None:
    child = stack.enter_context(Child(path, "worker-1", "hold"))
    assert await child.hears() == "holds"
    async with opened(path) as store:
        child.tell()
        assert await child.hears() == "stored"
        lease = await store.take_over(KEY, "worker-2")
        assert lease is not None
        child.tell()
        assert sorted([await child.hears(), await child.hears()]) == ["Fenced", "superseded"]
        await store.append(lease, 5, [frame(5)], record(status="failed", ended_at=1_700_000_000_000.0))
        assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 5))


async def test_the_runs_of_a_killed_process_are_orphans_after_its_lease(path: Path, stack: ExitStack) -> None:
    child = stack.enter_context(Child(path, "worker-1", "hold"))
    assert await child.hears() == "holds"
    await asyncio.to_thread(child.kill)
    async with opened(path, lease_seconds=LONG) as store:
        assert await store.orphans() == []
    async with opened(path, lease_seconds=0) as store:
        assert await store.orphans() == [KEY]
        assert await store.take_over(KEY, "worker-2", orphaned=True) is not None


def test_a_process_that_stood_still_tries_again_before_it_gives_up(path: Path, stack: ExitStack) -> None:
    child = stack.enter_context(Child(path, "worker-1", "hold", store_timeout=1))
    assert child.hear() == "holds"
    with locked(path):
        child.tell()
        time.sleep(0.2)  # it tries in vain
        child.signal(signal.SIGSTOP)
        time.sleep(LONG_TRY + 1.5)  # longer than it may try
        child.signal(signal.SIGCONT)
        time.sleep(0.4)  # and again
    assert child.hear() == "stored"
