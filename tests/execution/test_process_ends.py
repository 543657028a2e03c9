"""How process tools end, on both loops: by Stop, by force, by themselves, by accident."""

from __future__ import annotations

import asyncio
import os
import signal as signals
import sys
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from gateway.execution import pipes, processes
from gateway.execution.processes import ProcessJob
from gateway.execution.settle import Raised
from gateway.execution.signals import AbortSignal
from tests.execution.process_calls import (
    Main,
    Sink,
    called,
    died,
    dies,
    is_running,
    on_each_loop,
    started,
    structured,
    text,
)

# `subprocess.Popen` waits on the loop until the new program runs, as asyncio's own subprocesses do.
pytestmark = [pytest.mark.allow_blocking, on_each_loop]


def test_a_tool_that_only_computes_sees_the_abort_and_answers(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("spin_until_aborted", signal=signal) as (job, sink):
            await sink.wait_for(1)
            signal.abort("user")
            answer = await job.future
        assert structured(answer) == {"reason": "user"}
        assert answer.aborted_first is True

    run(main)


def test_the_abort_may_come_from_any_thread_or_before_the_start(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("spin_until_aborted", signal=signal) as (job, sink):
            await sink.wait_for(1)
            await asyncio.to_thread(signal.abort, "timeout")
            assert structured(await job.future) == {"reason": "timeout"}
        answer, _ = await called("spin_until_aborted", signal=AbortSignal("shutdown"))
        assert structured(answer) == {"reason": "shutdown"}
        assert answer.aborted_first is True

    run(main)


def test_an_answer_given_before_the_abort_says_so_however_late_it_is_read(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("emit_many", {"count": 1}, signal=signal) as (job, sink):
            job.pause_reading()
            assert job.pid
            await dies(job.pid)  # so it has answered, and nothing of that is read yet
            signal.abort("user")
            assert sink.events == []
            job.resume_reading()
            answer = await job.future
        assert structured(answer) == {"result": 1}
        assert answer.aborted_first is False

    run(main)


def test_a_callback_that_waits_for_the_gateway_still_hears_it(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("flush_in_a_callback", signal=signal) as (job, sink):
            await sink.wait_for(1)
            signal.abort("user")
            assert text(await job.future) == "flushed"
            assert sink.events[1] == ("aborting", {"reason": "user"})

    run(main)


def test_terminate_lets_the_tool_say_its_last_words(run: Main) -> None:
    async def main() -> None:
        async with started("handle_sigterm") as (job, sink):
            await sink.wait_for(1)
            job.terminate()
            assert text(await job.future) == "Error [failed]: stopped by SIGTERM"
            assert ("stopping", {"signal": signals.SIGTERM}) in sink.events

    run(main)


def test_signal_handlers_that_raise_never_tear_a_frame(run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("survive_alarms", {"alarms": 50})
        assert structured(answer) == {"result": 50}
        assert {value["text"] for _, value in sink.events} == {"y" * 5000}

    run(main)


def test_terminate_ends_a_tool_that_does_not_handle_it(run: Main) -> None:
    async def main() -> None:
        async with started("spin_until_aborted") as (job, sink):
            await sink.wait_for(1)
            job.terminate()
            error = died(await job.future)
        assert (error.signal, error.exit_code) == (signals.SIGTERM, None)
        assert str(error) == "The tool's process ended by signal 15 before it answered."

    run(main)


def test_kill_ends_a_tool_that_ignores_everything_and_its_children(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("ignore_everything", signal=signal) as (job, sink):
            await sink.wait_for(1)
            pids = sink.events[0][1]
            assert pids["pid"] == job.pid
            signal.abort("user")
            job.terminate()
            assert is_running(pids["pid"])
            assert is_running(pids["grandchild"])
            job.kill()
            answer = await job.future
            assert died(answer).signal == signals.SIGKILL
            assert answer.aborted_first is True
            await dies(pids["grandchild"])

    run(main)


# -- other ends --


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_leaves_without_an_answer_has_died(code: int, run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("exit_now", {"code": code})
        error = died(answer)
        assert (error.exit_code, error.signal) == (code, None)
        assert sink.events == [("before", {"code": code})]

    run(main)


def test_a_process_killed_from_outside_has_died_and_what_it_flushed_is_there(run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("kill_itself")
        assert died(answer).signal == signals.SIGKILL
        assert sink.names == ["before"]

    run(main)


def test_children_that_a_tool_leaves_behind_die_with_it(run: Main) -> None:
    async def main() -> None:
        answer, _ = await called("leave_a_child_behind")
        await dies(structured(answer)["result"])

    run(main)


def test_a_child_that_escaped_from_the_group_does_not_hold_up_the_end(run: Main) -> None:
    async def main() -> None:
        async with started("leave_an_escaped_child_behind") as (job, _):
            answer = await job.future
            await job.wait_gone()
            pid = structured(answer)["result"]
            assert is_running(pid)
            os.kill(pid, signals.SIGKILL)

    run(main)


def test_a_process_that_answers_but_does_not_exit_is_killed(run: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "EXIT_SECONDS", 0.05)

    async def main() -> None:
        async with started("never_exit") as (job, _):
            assert text(await job.future) == "answered"
            await job.wait_gone()
            assert job._process is not None
            assert job._process.returncode == -signals.SIGKILL

    run(main)


def test_events_after_the_answer_are_dropped_and_counted(run: Main) -> None:
    async def main() -> None:
        async with started("echo", {"value": "answered"}) as (job, sink):
            await job.future
            job._received(pipes.pack(pipes.EMIT, b"{}", b"late") + pipes.pack(pipes.LOG, b'[10, "late"]'))
            assert job.late_emits == 1
        assert (sink.events, sink.records) == ([], [])

    run(main)


@pytest.mark.parametrize("garbage", [pipes.pack(99, b""), pipes.pack(pipes.RESULT, b"{", b"1")])
def test_a_tool_that_writes_nonsense_to_our_socket_ends_its_call(garbage: bytes, run: Main) -> None:
    async def main() -> None:
        async with started("spin_until_aborted") as (job, _):
            job._received(garbage)
            answer = await job.future
            await job.wait_gone()
        assert isinstance(answer, Raised)
        assert isinstance(answer.error, ValueError)

    run(main)


def test_a_fork_of_the_process_cannot_disturb_the_call(run: Main) -> None:
    async def main() -> None:
        async with started("fork_and_emit") as (job, sink):
            answer = await job.future
            assert structured(answer) == {"result": job.pid}
        assert sink.names == ["parent", "both"]

    run(main)


def test_close_kills_and_settles(run: Main) -> None:
    async def main() -> None:
        signal = AbortSignal()
        async with started("spin_until_aborted", signal=signal) as (job, sink):
            await sink.wait_for(1)
            job.close()
            job.close()
            await job.wait_gone()
            died(await job.future)
            signal.abort("user")
            job.kill()
            assert not is_running(job.pid)

    run(main)


def test_a_sink_that_fails_ends_the_call_with_its_error(run: Main) -> None:
    class Failing(Sink):
        def emit(self, name: str, value: bytes, changes: Sequence[tuple[str, str]]) -> None:
            raise LookupError("no such run")

    async def main() -> None:
        answer, _ = await called("emit_many", {"count": 10}, sink=Failing())
        assert isinstance(answer, Raised)
        assert isinstance(answer.error, LookupError)

    run(main)


@pytest.mark.parametrize("problem", ["arguments", "executable"])
def test_a_process_that_cannot_be_started_settles_as_raised(
    problem: str, run: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[Any, Any] = {"a": 1, "b": 2}
    if problem == "executable":
        monkeypatch.setattr(sys, "executable", "/no/such/python")
    else:
        arguments[(1, 2)] = 3

    async def main() -> None:
        before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
        async with started("add", arguments) as (job, _):
            answer = await job.future
            assert isinstance(answer, Raised)
            assert isinstance(answer.error, OSError if problem == "executable" else TypeError)
            assert job.pid is None
            job.terminate()
        if sys.platform == "linux":
            assert len(os.listdir("/proc/self/fd")) == before

    run(main)


def test_a_start_that_is_cancelled_at_any_point_leaves_no_process_behind(run: Main) -> None:
    async def main() -> None:
        ended_early = 0
        for turns in range(8):
            job = ProcessJob(
                target="tests.execution.process_tools:never_exit",
                arguments={},
                context={},
                sink=Sink(),
                signal=AbortSignal(),
            )
            starting = asyncio.ensure_future(job.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
            ended_early += starting.cancelled()
            if job.pid is None:
                continue
            job.close()
            await job.wait_gone()
            died(await job.future)
            assert not psutil.pid_exists(job.pid)
        assert 2 <= ended_early < 8

    run(main)


def test_without_a_pidfd_the_end_is_noticed_too(run: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("no pidfd here")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)

    async def main() -> None:
        assert structured((await called("add", {"a": 1, "b": 2}))[0]) == {"result": 3}
        assert died((await called("exit_now", {"code": 4}))[0]).exit_code == 4

    run(main)


def test_many_calls_run_side_by_side_and_leave_nothing_open(run: Main) -> None:
    async def main() -> None:
        await called("add", {"a": 0, "b": 0})
        before, others = psutil.Process().num_fds(), psutil.Process().children()
        answers = await asyncio.gather(*(called("add", {"a": n, "b": n}) for n in range(6)))
        assert [structured(answer) for answer, _ in answers] == [{"result": 2 * n} for n in range(6)]
        assert psutil.Process().num_fds() == before
        assert psutil.Process().children() == others  # a Redis that other tests share

    run(main)
