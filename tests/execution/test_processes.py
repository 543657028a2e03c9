"""Tools in processes of their own: real processes, both loops, every way to end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal as signals
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from gateway.execution import pipes, processes
from gateway.execution.outcomes import ToolOutput
from gateway.execution.processes import ProcessDied, ProcessJob
from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.signals import AbortSignal

HERE = Path(__file__).parent
# `subprocess.Popen` waits on the loop until the new program runs, as asyncio's own subprocesses do.
pytestmark = pytest.mark.allow_blocking

LONG = 60  # seconds; reached only by a test that fails

Main = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

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


@pytest.fixture(autouse=True)
def tools_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Main:
    """Runs a test's coroutine on a loop of each kind, within a time."""

    def runner(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def timed() -> None:
            async with asyncio.timeout(LONG):
                await main()

        with asyncio.Runner(loop_factory=request.param) as loop:
            loop.run(timed())

    return runner


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
        target=name if ":" in name else f"process_tools:{name}",
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


# -- answers --


def test_a_tool_answers_and_its_process_is_gone(run: Main) -> None:
    async def main() -> None:
        async with started("add", {"a": 1, "b": 2}) as (job, _):
            pid = job.pid
            answer = await job.future
            await job.wait_gone()
        assert structured(answer) == {"result": 3}
        assert answer.aborted_first is False
        assert pid is not None
        assert not psutil.pid_exists(pid)

    run(main)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("plain_add", {"a": 1}, {"result": 3}),
        ("_renamed", {"word": "yes"}, {"word": "yes", "call": "call-1"}),
        ("add", {"a": 2**70, "b": 1}, {"result": str(2**70 + 1)}),
    ],
    ids=["a bare function", "a tool under another name", "an integer beyond JSON's"],
)
def test_the_function_is_found_and_bound_as_in_the_gateway(
    name: str, arguments: dict[str, Any], expected: Any, run: Main
) -> None:
    async def main() -> None:
        answer, _ = await called(name, arguments)
        assert structured(answer) == expected

    run(main)


@pytest.mark.parametrize("target", ["no_such_module:tool", "process_tools:no_such_tool"])
def test_a_function_that_is_not_found_fails_the_call(target: str, run: Main) -> None:
    async def main() -> None:
        answer, sink = await called(target)
        assert text(answer).startswith("Error [failed]: ")
        assert "no_such" in text(answer)
        assert len(sink.tracebacks) == 1

    run(main)


def test_text_beyond_ascii_goes_both_ways(run: Main) -> None:
    value = "Grüße \N{SNOWMAN} \N{PILE OF POO} \u2028 \x00 \n end"

    async def main() -> None:
        answer, _ = await called("echo", {"value": value})
        assert text(answer) == value

    run(main)


@pytest.mark.parametrize("size", [0, 1024 * 1024, 20_000_000])
def test_a_result_may_be_large(size: int, run: Main) -> None:
    async def main() -> None:
        answer, _ = await called("big", {"size": size})
        assert text(answer) == "x" * size

    run(main)


def test_arguments_may_be_large(run: Main) -> None:
    async def main() -> None:
        answer, _ = await called("echo", {"value": "a" * 5_000_000})
        assert len(text(answer)) == 5_000_000

    run(main)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("system_exit", "Error [failed]: no more"),
        ("keyboard_interrupt", "Error [failed]: KeyboardInterrupt"),
        ("group", "Error [failed]: two things"),
        ("tool_error", "Error [busy]: Try later."),
        ("value_error", "Error [failed]: schlecht: \N{SNOWMAN}"),
    ],
)
def test_whatever_a_tool_raises_is_the_answer_and_its_traceback_goes_to_the_log(
    kind: str, expected: str, run: Main
) -> None:
    async def main() -> None:
        answer, sink = await called("raise_it", {"kind": kind})
        assert text(answer) == expected
        assert answer.value.status == "failed"
        assert "in raise_it" in sink.tracebacks[0]

    run(main)


def test_what_a_tool_prints_disturbs_nothing_and_its_stdin_is_empty(
    run: Main, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        answer, _ = await called("print_a_lot", {"text": '{"abort":"user"}\n'})
        assert text(answer) == "done"

    run(main)
    out, err = capfd.readouterr()
    assert out.count('{"abort":"user"}') == 1000
    assert "straight to the descriptor" in out
    assert "and to stderr" in err


# -- what it says on the way --


@pytest.mark.parametrize("flush_every", [0, 5_000])
def test_fifty_thousand_emits_arrive_in_order(run: Main, flush_every: int) -> None:
    async def main() -> None:
        _, sink = await called("emit_many", {"count": 50_000, "flush_every": flush_every})
        assert [value["n"] for _, value in sink.events] == list(range(50_000))
        assert set(sink.names) == {"number"}
        assert len(sink.flushes) == (10 if flush_every else 0)

    run(main)


def test_emits_of_several_threads_keep_each_threads_order(run: Main) -> None:
    async def main() -> None:
        _, sink = await called("emit_from_threads", {"threads": 4, "count": 2_000})
        for thread in range(4):
            numbers = [value["n"] for _, value in sink.events if value["thread"] == thread]
            assert numbers == list(range(2_000))

    run(main)


def test_what_json_cannot_hold_is_told_with_its_event_or_result(run: Main) -> None:
    async def main() -> None:
        async with started("odd_values") as (job, sink):
            answer = await job.future
        assert sink.events == [("odd", {"rate": None}), ("fine", {"rate": 1.5})]
        assert sink.changes == [("nan", "$.rate")]
        assert structured(answer) == {"count": str(2**60)}
        assert job.changes == (("int", "$.count"),)

    run(main)


def test_strict_payloads_raise_where_they_are_emitted(run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("strictly", strict_payloads=True)
        assert text(answer).startswith("PayloadError: The value at $.rate")
        assert sink.events == []
        answer, _ = await called("odd_values", strict_payloads=True)
        assert text(answer).startswith("Error [failed]: The value at $.rate")

    run(main)


def test_wrong_names_and_values_are_refused_at_the_call(run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("wrong_emits")
        assert structured(answer) == {"result": ["ValueError", "ValueError", "TypeError", "TypeError"]}
        assert sink.events == []

    run(main)


def test_progress_and_log_records_arrive_as_they_were(run: Main) -> None:
    async def main() -> None:
        answer, sink = await called("report", log_level=logging.INFO)
        assert sink.reports[0] == (1, 4, "a quarter")
        assert sink.reports[1][0] != sink.reports[1][0]  # NaN
        assert sink.reports[1][1:] == (None, None)
        assert sink.records == [(logging.WARNING, "watch out"), (logging.INFO, "not through the context")]
        assert text(answer) == "The progress of a progress report is a number, not str."

    run(main)


def test_flush_blocks_until_everything_is_stored(run: Main) -> None:
    async def main() -> None:
        sink = Sink()
        sink.stored = False
        async with started("emit_many", {"count": 3, "flush_every": 1}, sink=sink) as (job, _):
            for stored in range(1, 4):
                await sink.wait_for(stored)
                await sink.wait_for_flush(stored)
                assert len(sink.events) == stored
                assert not job.future.done()
                await asyncio.to_thread(sink.flushes[-1])
            assert structured(await job.future) == {"result": 3}

    run(main)


def test_the_context_has_what_a_process_can_have_and_names_the_rest(run: Main) -> None:
    async def main() -> None:
        answer, _ = await called("look_around", parent_run_id="run-0")
        seen = structured(answer)
        assert seen["ids"] == ["run-1", "thread-1", "call-1", "the_tool", "request-1", "anon:s"]
        assert seen["optional"] == ["run-0", None, None, None]
        assert seen["auth"] == ["ada", ["read", "write"]]
        assert seen["metadata"] == {"headers": {"accept-language": "de"}}
        assert seen["missing"] == [
            f"NotAvailable: ctx.{name} is not available in a process tool."
            for name in ("call_tool", "request_input", "interrupt", "trace", "verified_subject", "get")
        ]
        assert seen["unknown"] is False
        answer, _ = await called("look_around", auth=None)
        assert structured(answer)["auth"] is None

    run(main)


def test_a_gateway_that_does_not_read_holds_the_tool_back_and_loses_nothing(run: Main) -> None:
    async def main() -> None:
        async with started("emit_many", {"count": 100_000}) as (job, sink):
            await sink.wait_for(1)
            job.pause_reading()
            job.pause_reading()
            process = psutil.Process(job.pid)
            while process.status() != psutil.STATUS_SLEEPING or process.cpu_times() != (await _a_moment_later(process)):
                pass
            seen = len(sink.events)
            assert seen < 100_000
            assert not job.future.done()
            job.resume_reading()
            job.resume_reading()
            await job.future
            assert len(sink.events) == 100_000

    run(main)


async def _a_moment_later(process: psutil.Process) -> Any:
    await asyncio.sleep(0.05)
    return process.cpu_times()


# -- Stop --


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
                target="process_tools:never_exit",
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
        before = psutil.Process().num_fds()
        answers = await asyncio.gather(*(called("add", {"a": n, "b": n}) for n in range(6)))
        assert [structured(answer) for answer, _ in answers] == [{"result": 2 * n} for n in range(6)]
        assert psutil.Process().num_fds() == before
        assert psutil.Process().children() == []

    run(main)


# -- its parent --


@pytest.fixture
def parent() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the small gateway of `process_parent` as a program of its own."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "process_parent.py"), *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(LONG)
        assert process.stdout is not None
        process.stdout.close()


def test_a_tool_whose_gateway_was_killed_hears_it_and_dies(
    parent: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = parent("process_tools:wait_for_the_end")
    assert process.stdout is not None
    pid = int(process.stdout.readline().removeprefix(b"pid "))
    assert is_running(pid)
    process.kill()
    assert process.stdout.readline() == b"heard shutdown\n"
    assert process.stdout.read() == b"", "the pipe ends with the last process that holds it"
    assert not is_running(pid)


def test_a_tool_of_the_main_program_is_found(parent: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = parent("__main__:in_main", "word=hello")
    assert process.stdout is not None
    assert process.stdout.read() == b"hello from main"


def test_a_tool_of_a_main_program_run_as_a_module_is_found() -> None:
    command = [sys.executable, "-m", "process_parent", "__main__:in_main", "word=hello"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, timeout=LONG, check=True)
    assert done.stdout == b"hello from main"
