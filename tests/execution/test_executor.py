"""What a tool says while it runs: in which order it goes out, from which thread, within which limits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, field_validator

from gateway.errors import PayloadError
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.execution.running import LONG, desk

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT")


def custom(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("name") == name]


async def test_events_of_many_threads_come_whole_and_in_each_threads_order() -> None:
    @tool
    def crowd(ctx: ToolContext) -> None:
        """Emits from five threads at once."""

        def emit(number: int) -> None:
            for index in range(400):
                ctx.emit_custom_event("row", {"thread": number, "index": index}, batch=index % 3 == 0)

        threads = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        emit(4)
        for thread in threads:
            thread.join()

    async with desk() as at:
        _, events = await at.outcome(crowd)
    rows = [event["value"] for event in custom(events, "row")]
    assert len(rows) == 5 * 400
    for number in range(5):
        assert [row["index"] for row in rows if row["thread"] == number] == list(range(400))


async def test_what_was_emitted_is_there_before_the_result_whatever_the_thread() -> None:
    @tool
    def emits(ctx: ToolContext) -> None:
        """Emits, and returns at once."""
        for index in range(50):
            ctx.emit_custom_event("row", {"index": index}, batch=True)
        ctx.report_progress(1, 2)
        ctx.report_progress(2, 2, "done")

    async with desk() as at:
        _, events = await at.outcome(emits)
    names = [event.get("name") for event in events]
    assert names.count("row") == 50
    assert custom(events, "tool.progress")[-1]["value"] == {
        "toolCallId": "call-1",
        "toolName": "emits",
        "progress": 2,
        "total": 2,
        "message": "done",
        "percent": 100,
    }
    assert names.index("tool.result") > max(
        index for index, name in enumerate(names) if name in ("row", "tool.progress")
    )


@pytest.mark.parametrize("batch", [False, True])
async def test_an_event_arrives_although_the_tool_says_nothing_more(batch: bool) -> None:
    @tool
    async def says_one_word(ctx: ToolContext) -> None:
        """Emits once, and waits."""
        ctx.emit_custom_event("word", {}, batch=batch)
        await ctx.context.go.wait()

    @tool
    def says_one_word_in_a_thread(ctx: ToolContext) -> None:
        """Emits once, and waits."""
        ctx.emit_custom_event("word", {}, batch=batch)
        ctx.context.thread_go.wait()

    for item in (says_one_word, says_one_word_in_a_thread):
        async with desk() as at:
            run = await at.start(item)
            await at.saw(run, "word")
            at.stage.open()
            await at.finish(run)


async def test_batched_events_of_racing_threads_all_arrive_while_the_tool_waits() -> None:
    """The timer of a batch must not depend on a count that threads race for."""

    @tool(timeout=0)
    def races(ctx: ToolContext) -> None:
        """Emits in batches from threads, in rounds, and waits after each until all of it has arrived."""
        for number in range(20):
            threads = [
                threading.Thread(target=ctx.emit_custom_event, args=("row", {"round": number}), kwargs={"batch": True})
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ctx.context.notes[number].wait(LONG)

    async with desk() as at:
        at.stage.notes = [threading.Event() for _ in range(20)]
        run = await at.start(races)
        seen: list[int] = []
        async with asyncio.timeout(LONG):
            follower = at.store.follow(run.key, 0)
            async for data in follower:
                seen += [number for number in range(20) for _ in range(data.count(b'"round":%d,' % number))]
                if seen and seen.count(seen[-1]) == 8:
                    at.stage.notes[seen[-1]].set()
        await at.finish(run)
    assert sorted(seen) == sorted(number for number in range(20) for _ in range(8))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_after_flush_everything_is_in_the_store(kind: str) -> None:
    seen: list[int] = []

    def last(ctx: ToolContext) -> int:
        run: Any = ctx._call.run
        return int(run.writer._feed.log.last)

    @tool(name="flushes")
    async def flushes_async(ctx: ToolContext) -> None:
        """Emits and flushes."""
        for number in range(5):
            ctx.emit_custom_event("row", {}, batch=True)
            await ctx.flush()
            seen.append(last(ctx) - number)

    @tool(name="flushes")
    def flushes_plain(ctx: ToolContext) -> None:
        """Emits and flushes."""
        for number in range(5):
            ctx.emit_custom_event("row", {}, batch=True)
            ctx.flush()  # blocks in a thread
            seen.append(last(ctx) - number)

    async with desk() as at:
        await at.outcome(flushes_async if kind == "async" else flushes_plain)
    assert seen == [5] * 5  # RUN_STARTED, three of the call, and the event


async def test_progress_is_conflated_and_the_last_report_is_sent_while_the_tool_goes_on() -> None:
    @tool
    async def counts(ctx: ToolContext) -> None:
        """Reports a lot, then waits."""
        for number in range(1, 1_001):
            ctx.report_progress(number, 1_000, str(number))
        await ctx.context.go.wait()

    async with desk() as at:
        run = await at.start(counts)
        seen = 0
        async with asyncio.timeout(LONG):
            async for data in at.store.follow(run.key, 0):
                seen += data.count(b'"message":"1000"')
                if seen:
                    break
        at.stage.open()
        _, events = await at.finish(run)
    reports = [event["value"]["progress"] for event in custom(events, "tool.progress")]
    assert reports[0] == 1
    assert reports[-1] == 1_000
    assert reports == sorted(set(reports))
    assert len(reports) < 200


@dataclass
class Point:
    x: int


class Model(BaseModel):
    x: int


async def test_an_event_takes_a_mapping_a_dataclass_or_a_model_and_owns_its_call_id() -> None:
    @tool
    async def emits(ctx: ToolContext) -> None:
        """Emits every kind of value."""
        mutable = {"x": 1, "toolCallId": "forged"}
        ctx.emit_custom_event("point", mutable)
        mutable["x"] = 2
        ctx.emit_custom_event("point", Point(1))
        ctx.emit_custom_event("point", Model(x=1))
        ctx.emit_custom_event("nothing", {})

    async with desk() as at:
        _, events = await at.outcome(emits)
    assert [event["value"] for event in custom(events, "point")] == [{"x": 1, "toolCallId": "call-1"}] * 3
    assert custom(events, "nothing")[0]["value"] == {"toolCallId": "call-1"}
    assert all(event["metadata"] == {"toolName": "emits"} for event in custom(events, "point"))


BAD_EMITS: dict[str, tuple[Any, Any, type[Exception]]] = {
    "an empty name": ("", {}, ValueError),
    "a name that is none": (7, {}, TypeError),
    "a name of ours": ("tool.result", {}, ValueError),
    "another name of ours": ("run.stopping", {}, ValueError),
    "a list": ("rows", [1], TypeError),
    "a text": ("rows", "x", TypeError),
    "nothing": ("rows", None, TypeError),
}


@pytest.mark.parametrize("what", BAD_EMITS)
async def test_a_bad_emit_is_an_error_where_it_is_made_and_nothing_goes_out(what: str) -> None:
    name, value, error = BAD_EMITS[what]

    @tool
    async def emits(ctx: ToolContext) -> str:
        """Tries."""
        for _ in range(2):
            with pytest.raises(error):
                ctx.emit_custom_event(name, value)
        return "refused"

    async with desk() as at:
        _, events = await at.outcome(emits)
    assert events[-2]["content"] == "refused"
    assert [event.get("name") for event in events[4:-2]] == ["tool.result"]


@pytest.mark.parametrize("value", ["1", True, None, b"1", object()])
async def test_progress_that_is_no_number_is_an_error_where_it_is_made(value: Any) -> None:
    @tool
    async def reports(ctx: ToolContext) -> str:
        """Tries."""
        with pytest.raises(TypeError):
            ctx.report_progress(value)
        with pytest.raises(TypeError):
            ctx.report_progress(1, 2, b"x")  # type: ignore[arg-type]
        return "refused"

    async with desk() as at:
        _, events = await at.outcome(reports)
    assert events[-2]["content"] == "refused"
    assert not custom(events, "tool.progress")


async def test_a_value_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    @tool
    async def emits(ctx: ToolContext) -> None:
        """Emits at the edge."""
        room = 500 - len('{"x":""}')
        ctx.emit_custom_event("edge", {"x": "x" * room})
        ctx.emit_custom_event("edge", {"x": "x" * (room + 1)})

    async with desk(max_event_bytes=500) as at:
        _, events = await at.outcome(emits)
        assert at.supervisor.counts["payload_replaced.too_large"] == 1
    first, second = (event["value"] for event in custom(events, "edge"))
    assert len(first["x"]) == 492
    assert second == {"$too_large": 501, "toolCallId": "call-1"}


async def test_what_json_cannot_hold_is_replaced_counted_and_named_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(name="emits_nan_for_the_log")
    async def emits(ctx: ToolContext) -> dict[str, float]:
        """Emits NaN."""
        for _ in range(3):
            ctx.emit_custom_event("row", {"cells": [float("nan")]})
        return {"mean": float("inf")}

    async with desk() as at:
        _, events = await at.outcome(emits)
        assert at.supervisor.counts["payload_replaced.nan"] == 4
    assert [event["value"]["cells"] for event in custom(events, "row")] == [[None]] * 3
    assert custom(events, "tool.result")[0]["value"]["structuredContent"] == {"mean": None}
    assert caplog.text.count("$.cells[0]") == 1


async def test_strict_payloads_raise_where_the_emit_is_made() -> None:
    @tool
    async def emits(ctx: ToolContext) -> str:
        """Tries."""
        with pytest.raises(PayloadError, match=r"\$\.x"):
            ctx.emit_custom_event("row", {"x": float("nan")})
        return "refused"

    async with desk(strict_payloads=True) as at:
        _, events = await at.outcome(emits)
    assert not custom(events, "row")
    assert events[-2]["content"] == "refused"


async def test_context_variables_of_the_caller_are_visible_in_every_body() -> None:
    @tool
    async def in_a_task() -> str:
        """Tells the tenant."""
        return TENANT.get("nobody")

    @tool
    def in_a_thread() -> str:
        """Tells the tenant."""
        return TENANT.get("nobody")

    async with desk() as at:
        token = TENANT.set("ada")
        try:
            outcomes = [await at.outcome(item) for item in (in_a_task, in_a_thread)]
        finally:
            TENANT.reset(token)
    assert [events[-2]["content"] for _, events in outcomes] == ["ada", "ada"]


async def test_a_thread_that_outruns_the_loop_loses_nothing() -> None:
    @tool(timeout=0)
    def floods(ctx: ToolContext) -> None:
        """Emits as fast as it can."""
        for number in range(60_000):
            ctx.emit_custom_event("row", {"n": number})

    async with desk() as at:
        run = await at.start(floods)
        async with asyncio.timeout(LONG):
            await run.done.wait()
        data = b"".join([piece async for piece in at.store.follow(run.key, 0)])
    assert data.count(b'"name":"row"') == 60_000
    assert data.count(b"\n\nid: ") == 60_000 + 6


async def test_the_context_of_a_call_says_which_call_it_is() -> None:
    @tool
    async def knows(ctx: ToolContext) -> Any:
        """Tells what it is."""
        return [ctx.tool_name, ctx.tool_call_id, ctx.thread_id, ctx.request_id, ctx.session_id, ctx.parent_run_id]

    async with desk() as at:
        _, events = await at.outcome(knows)
    known = custom(events, "tool.result")[0]["value"]["structuredContent"]["result"]
    assert known == ["knows", "call-1", "thread-1", "request-1", "anon:somebody", None]


async def test_the_text_of_an_exception_is_bounded_as_a_result_is() -> None:
    @tool
    async def verbose() -> None:
        """Raises a novel."""
        raise ValueError("x" * 5_000)

    async with desk(max_result_bytes=1_000) as at:
        _, events = await at.outcome(verbose)
    [result] = custom(events, "tool.result")
    assert result["value"]["error"]["code"] == "too_large"
    assert all(len(str(event)) < 5_000 for event in events)


async def test_a_tool_that_cancels_itself_and_returns_has_cancelled_itself() -> None:
    @tool
    async def confused() -> str:
        """Cancels its own task, and returns before it hears of it."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async with desk() as at:
        _, events = await at.outcome(confused)
    [result] = custom(events, "tool.result")
    assert result["value"]["status"] == "failed"
    assert result["value"]["error"]["message"] == "Error [failed]: The tool cancelled itself."


@pytest.mark.parametrize("progress", [2**80, -(2**80), 10**400])
async def test_progress_beyond_what_javascript_holds_is_still_a_number(progress: int) -> None:
    @tool
    async def far(ctx: ToolContext) -> None:
        """Is very far."""
        ctx.report_progress(progress, 2**90)

    async with desk() as at:
        _, events = await at.outcome(far)
    [report] = custom(events, "tool.progress")
    assert isinstance(report["value"]["progress"], int | float)
    assert isinstance(report["value"]["total"], int | float)


class Strange(BaseModel):
    """A model whose validator raises what no validator should."""

    n: int

    @field_validator("n")
    @classmethod
    def _no(cls, value: int) -> int:
        raise RuntimeError("not today")


async def test_a_result_that_cannot_even_be_validated_fails_its_call() -> None:
    @tool(output_model=Strange)
    async def strange() -> dict[str, int]:
        """Returns what its model cannot stand."""
        return {"n": 1}

    async with desk() as at:
        record, events = await at.outcome(strange)
    [result] = custom(events, "tool.result")
    assert record.status == "completed"
    assert result["value"]["status"] == "failed"
    assert "not today" in result["value"]["error"]["message"]


def leave(value: int) -> int:
    raise SystemExit(value)


async def test_arguments_whose_validator_exits_are_invalid_arguments() -> None:
    @tool
    async def picky(n: Annotated[int, AfterValidator(leave)]) -> int:
        """Cannot be called."""
        return n

    async with desk() as at:
        _, events = await at.outcome(picky, arguments={"n": 1})
    [result] = custom(events, "tool.result")
    assert result["value"]["error"]["code"] == "invalid_arguments"


async def test_an_async_generator_that_only_yields_can_be_stopped() -> None:
    @tool
    async def endless() -> AsyncIterator[int]:
        """Yields for ever, and awaits nothing."""
        while True:
            yield 1

    async with desk() as at:
        run = await at.start(endless)
        await at.saw(run, "tool.output")
        run.stop("user")
        await run.done.wait()
        assert run.record.status == "cancelled"
