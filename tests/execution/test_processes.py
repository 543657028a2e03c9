"""Tools in processes of their own, on both loops: what they answer, and what they say on the way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psutil
import pytest

from tests.execution.process_calls import (
    Main,
    Sink,
    called,
    on_each_loop,
    started,
    structured,
    text,
)

# `subprocess.Popen` waits on the loop until the new program runs, as asyncio's own subprocesses do.
pytestmark = [pytest.mark.allow_blocking, on_each_loop]


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


@pytest.mark.parametrize("target", ["no_such_module:tool", "tests.execution.process_tools:no_such_tool"])
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
    """Nothing tells that a process has been blocked by a full pipe, so it is looked at twice."""
    await asyncio.sleep(0.05)
    return process.cpu_times()
