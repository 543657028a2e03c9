"""The supervisor: it creates runs once, bounds them, carries Stops to them, and forgets them when they are over."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from gateway.errors import Conflict, TooMany
from gateway.execution.caller import Caller
from gateway.execution.context import ToolContext
from gateway.execution.supervisor import RunSpec, no_context
from gateway.execution.tools import tool
from gateway.run.records import RunKey
from gateway.stores.base import StopRequest
from tests.execution.running import LONG, Desk, desk, quiet


@tool
async def waits(ctx: ToolContext) -> str:
    """Waits for the test."""
    ctx.emit_custom_event("started", {})
    await ctx.context.go.wait()
    return "done"


def spec_of(at: Desk, run_id: str, fingerprint: bytes = b"", owner: str | None = "anon:ada") -> RunSpec:
    """A run without calls that ends when the stage opens."""

    async def job(*_: Any) -> None:
        await at.stage.go.wait()

    return RunSpec(
        key=RunKey(owner, run_id),
        thread_id="thread-1",
        agent="tools",
        fingerprint=fingerprint,
        caller=Caller("request-1", "anon:ada", owner=owner, address="127.0.0.1"),
        prepare=lambda run: None,
        job=job,
        context=no_context,
    )


async def test_an_equal_request_attaches_and_a_different_one_is_a_conflict() -> None:
    async with desk() as at:
        first, created = await at.supervisor.start(spec_of(at, "r"))
        again, created_again = await at.supervisor.start(spec_of(at, "r"))
        assert (created, created_again) == (True, False)
        assert again.key == first.key
        with pytest.raises(Conflict):
            await at.supervisor.start(spec_of(at, "r", b"other"))
        assert at.supervisor.active == 1
        at.stage.open()
        run = at.supervisor.live(first.key)
        assert run is not None
        await at.finish(run)
        over, created = await at.supervisor.start(spec_of(at, "r"))
        assert (over.status, created) == ("completed", False)


async def test_of_many_equal_requests_at_once_one_starts_the_run() -> None:
    async with desk() as at:
        started = await asyncio.gather(*(at.supervisor.start(spec_of(at, "r")) for _ in range(50)))
        assert [created for _, created in started].count(True) == 1
        assert at.supervisor.active == 1


async def test_a_session_and_the_worker_are_bounded_and_a_run_that_ended_makes_room() -> None:
    async with desk(max_runs=3, max_runs_per_session=2) as at:
        for number in range(2):
            await at.supervisor.start(spec_of(at, f"r{number}"))
        with pytest.raises(TooMany) as refused:
            await at.supervisor.start(spec_of(at, "r2"))
        assert refused.value.code == "too_many_runs"
        await at.supervisor.start(spec_of(at, "r0"))  # an attach is no new run
        await at.supervisor.start(spec_of(at, "r2", owner="anon:bob"))
        with pytest.raises(TooMany):
            await at.supervisor.start(spec_of(at, "r3", owner="anon:eve"))
        assert await at.store.get(RunKey("anon:eve", "r3")) is None
        at.stage.open()
        await quiet(lambda: at.supervisor.active == 0)
        await at.supervisor.start(spec_of(at, "r3", owner="anon:eve"))


async def test_without_a_session_the_address_is_what_counts() -> None:
    async with desk(max_runs_per_session=1) as at:
        await at.supervisor.start(spec_of(at, "r1", owner=None))
        with pytest.raises(TooMany):
            await at.supervisor.start(spec_of(at, "r2", owner=None))
        await at.supervisor.start(spec_of(at, "r1"))


async def test_a_stop_that_only_the_store_heard_of_is_carried_out() -> None:
    async with desk() as at:
        run = await at.start(waits, owner="anon:ada")
        await at.saw(run, "started")
        await at.store.request_stop(StopRequest(run.key, "user", "from another worker"))
        record, events = await at.finish(run)
    assert record.status == "cancelled"
    stopping = next(event for event in events if event.get("name") == "run.stopping")
    assert stopping["value"] == {"reason": "user", "message": "from another worker"}


async def test_a_stop_of_an_unknown_run_is_no_run() -> None:
    async with desk() as at:
        assert await at.supervisor.stop(StopRequest(RunKey(None, "nobody"), "user")) is None


async def test_a_stop_of_an_unknown_call_changes_nothing() -> None:
    async with desk() as at:
        run = await at.start(waits)
        await at.saw(run, "started")
        await at.stop(run, "call-99")
        assert not run.signal.aborted
        at.stage.open()
        record, _ = await at.finish(run)
    assert record.status == "completed"


async def test_stop_of_one_run_never_touches_another() -> None:
    async with desk() as at:
        runs = [await at.start(waits, owner="anon:ada") for _ in range(3)]
        for run in runs:
            await at.saw(run, "started")
        await at.stop(runs[1])
        stopped, _ = await at.finish(runs[1])
        at.stage.open()
        others = [(await at.finish(run))[0].status for run in (runs[0], runs[2])]
    assert stopped.status == "cancelled"
    assert others == ["completed", "completed"]


async def test_a_fault_of_our_own_ends_the_run_internal_and_hides_its_words(caplog: pytest.LogCaptureFixture) -> None:
    async with desk() as at:

        async def fails(*_: Any) -> None:
            raise RuntimeError("secret")

        spec = spec_of(at, "r")
        object.__setattr__(spec, "job", fails)
        await at.supervisor.start(spec)
        run = at.supervisor.live(spec.key)
        assert run is not None
        record, events = await at.finish(run)
    assert record.error is not None
    assert record.error["code"] == "internal"
    assert "secret" not in str(events)
    assert "secret" in caplog.text


async def test_threads_stay_bounded_however_many_tools_never_come_back() -> None:
    go, begun = threading.Event(), 0

    @tool
    def stuck() -> None:
        """Never looks at anything."""
        nonlocal begun
        begun += 1
        go.wait()

    async with desk(max_threads=2, stop_grace=0.01) as at:
        while begun < 10:  # on a busy machine its time may be over before it has begun
            _, events = await at.outcome(stuck, timeout=0.02)
            assert events[-3]["value"]["status"] == "timeout"
        # Those that were given up are no longer the pool's, and each was replaced.
        await quiet(lambda: at.supervisor.threads.abandoned == 10)
        assert at.supervisor.threads.threads <= 2
        go.set()
        _, events = await at.outcome(stuck, timeout=LONG)
        assert events[-3]["value"]["status"] == "completed"
        await quiet(lambda: at.supervisor.threads.abandoned == 0)


async def test_one_line_says_how_each_run_started_and_ended_and_none_says_its_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "gateway.runs"):
        async with desk() as at:
            run = await at.start(waits, owner="anon:ada-secret", run_id="run-7")
            await at.saw(run, "started")
            await at.stop(run)
            await at.finish(run)
    lines = [entry.getMessage() for entry in caplog.records if entry.name == "gateway.runs"]
    assert [line.split(":")[0].split(" after")[0] for line in lines] == [
        "run run-7 started",
        "run run-7 stopped",
        "run run-7 ended",
    ]
    assert "secret" not in str(lines)
