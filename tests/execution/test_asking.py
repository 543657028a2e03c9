"""Waiting for the person inside an open run: whose clocks stand still, and how every wait ends. Time is virtual."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import AbortError, StoreError
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import tool
from gateway.run.questions import Answer, Question
from gateway.wire.sse import Decoder
from tests.execution.running import LONG, Desk, desk, quiet
from tests.execution.virtual import VirtualLoop

Events = list[dict[str, Any]]


def in_virtual_time(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test on a loop on which nothing waits for real."""

    @functools.wraps(scenario)
    def run(**arguments: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(scenario(**arguments))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def told(at: Desk, run: LiveRun) -> AsyncGenerator[dict[str, Any], None]:
    """The values of `tool.waiting`, as they come."""
    decoder = Decoder()
    async with asyncio.timeout(LONG):
        async for data in at.store.follow(run.key, 0):
            for message in decoder.feed(data):
                event = json.loads(message.data)
                if event.get("name") == "tool.waiting":
                    yield event["value"]


async def questions(at: Desk, run: LiveRun, many: int = 1) -> list[Question]:
    """The open questions of a run, once so many are told."""
    seen: set[str | None] = set()
    async with contextlib.aclosing(told(at, run)) as values:
        async for value in values:
            seen.add(value.get("interruptId"))
            found = [q for q in await at.store.questions(run.key) if q.open and q.interrupt_id in seen]
            if len(found) == many:
                return found
    raise AssertionError(f"The run ended without {many} open questions")


async def say(at: Desk, run: LiveRun, question: Question, payload: Any = None) -> None:
    """Answers a question, which is still as it was."""
    assert await at.store.replace_questions(
        run.key, [(question, replace(question, answer=Answer("resolved", payload)))]
    )


def results(events: Events) -> dict[str, dict[str, Any]]:
    return {e["value"]["toolCallId"]: e["value"] for e in events if e.get("name") == "tool.result"}


def names(events: Events, call_id: str = "call-1") -> list[str]:
    """The names of the CUSTOM events of a call."""
    return [e["name"] for e in events if e["type"] == "CUSTOM" and e["value"].get("toolCallId") == call_id]


def nobody_listens(at: Desk) -> bool:
    """Whether nothing is kept of questions that are over."""
    return not at.supervisor.questions._listeners


@tool
async def asks(ctx: ToolContext, before: float = 0, after: float = 0) -> str:
    """Works, asks, works."""
    await asyncio.sleep(before)
    given = await ctx.request_input("Go on?")
    await asyncio.sleep(after)
    return f"{given.payload}"


@tool
async def waits_for_user(ctx: ToolContext, before: float = 0, after: float = 0) -> str:
    """Works, waits until the test opens the door, works."""
    await asyncio.sleep(before)
    async with ctx.waiting_for_user("Look at your phone."):
        await ctx.context.go.wait()
    await asyncio.sleep(after)
    return "None"


@tool(timeout=0)
async def sleeps(ctx: ToolContext, seconds: float = 5) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "slept"


@tool(timeout=0)
async def calls_several(ctx: ToolContext, calls: list[tuple[str, dict[str, Any], float | None]]) -> list[Any]:
    """Calls others side by side; says what they ended in, and when."""

    async def call(name: str, arguments: dict[str, Any], limit: float | None) -> Any:
        output = await ctx.call_tool(name, arguments, limit)
        return [output.status, now()]

    return await asyncio.gather(*itertools.starmap(call, calls))


# -- the clock of a call --


@pytest.mark.parametrize("kind", [asks, waits_for_user], ids=["request_input", "waiting_for_user"])
@in_virtual_time
async def test_the_clock_of_a_call_stops_for_good_once_it_waits(kind: Any) -> None:
    async with desk() as at:
        run = await at.start(kind, arguments={"before": 0.5, "after": 5}, timeout=1)
        await at.saw(run, "tool.waiting")
        await asyncio.sleep(5)
        at.stage.go.set()
        if kind is asks:
            await say(at, run, (await questions(at, run))[0])
        _, events = await at.finish(run)
        assert now() == pytest.approx(10.5)
    assert results(events)["call-1"]["status"] == "completed"


@in_virtual_time
async def test_it_stands_still_by_call_and_not_by_tool() -> None:
    @tool
    async def asks_if_first(ctx: ToolContext) -> None:
        """Asks, if it is the first call; works for long in any case."""
        if ctx.tool_call_id == "call-1":
            await ctx.request_input("Go on?")
        await asyncio.sleep(5)

    async with desk() as at:
        run = await at.start(asks_if_first, asks_if_first, timeout=1)
        await say(at, run, (await questions(at, run))[0])
        _, events = await at.finish(run)
    assert {call: value["status"] for call, value in results(events).items()} == {
        "call-1": "completed",
        "call-2": "timeout",
    }


@in_virtual_time
async def test_a_wait_that_comes_too_late_saves_no_call() -> None:
    async with desk() as at:
        run = await at.start(asks, arguments={"before": 2}, timeout=1)
        _, events = await at.finish(run)
        assert now() == pytest.approx(1)
        assert await at.store.questions(run.key) == []
    assert results(events)["call-1"]["status"] == "timeout"


@in_virtual_time
async def test_the_clocks_of_all_calls_around_a_nested_one_stop_and_those_beside_it_go_on() -> None:
    inner = [["asks", {"after": 5}, 1], ["sleeps", {}, 1], ["sleeps", {}, 20]]
    arguments = {"calls": [["calls_several", {"calls": inner}, 1], ["sleeps", {}, 1]]}
    async with desk() as at:
        run = await at.start(
            tool(timeout=1)(calls_several.func), arguments=arguments, others=[calls_several, asks, sleeps]
        )
        await asyncio.sleep(7)
        assert not run.machine.over
        await say(at, run, (await questions(at, run))[0])
        _, events = await at.finish(run)
        assert now() == pytest.approx(12)
    found = results(events)
    assert {call: value["status"] for call, value in found.items()} == {
        "call-1": "completed",
        "call-1/1": "completed",
        "call-1/2": "timeout",
        "call-1/1/1": "completed",
        "call-1/1/2": "timeout",
        "call-1/1/3": "completed",
    }


# -- the clock of the run --


@in_virtual_time
async def test_the_time_limit_of_a_run_does_not_count_while_a_call_waits_and_counts_before_and_after() -> None:
    for after, ending in ((4, "completed"), (8, "failed")):
        async with desk(run_timeout=10) as at:
            began = now()
            run = await at.start(asks, arguments={"before": 4, "after": after}, timeout=0)
            await at.saw(run, "tool.waiting")
            await asyncio.sleep(15)
            await say(at, run, (await questions(at, run))[0])
            record, events = await at.finish(run)
            assert now() - began == pytest.approx(19 + min(after, 6))
        assert record.status == ending
        assert results(events)["call-1"]["status"] == ("completed" if ending == "completed" else "interrupted")


@in_virtual_time
async def test_it_stands_still_until_the_last_of_several_waits_is_over() -> None:
    async with desk(run_timeout=3) as at:
        run = await at.start(asks, asks, sleeps, arguments={}, timeout=0)
        first, second = await questions(at, run, 2)
        await asyncio.sleep(4)
        await say(at, run, first)
        await asyncio.sleep(4)
        assert not run.machine.over
        await say(at, run, second)
        record, _ = await at.finish(run)
    assert record.status == "completed"


@in_virtual_time
async def test_a_wait_that_its_call_has_left_behind_does_not_hold_the_time_of_the_run() -> None:
    behind: list[asyncio.Task[Any]] = []

    @tool
    async def leaves_it(ctx: ToolContext) -> None:
        """Asks, waits, and is gone."""

        async def wait() -> None:
            async with ctx.waiting_for_user():
                await ctx.context.go.wait()

        behind.append(asyncio.create_task(wait()))
        behind.append(asyncio.create_task(ctx.request_input("Who cares?")))
        await asyncio.sleep(1)

    async with desk(run_timeout=3) as at:
        run = await at.start(leaves_it, sleeps, arguments={}, timeout=0)
        record, events = await at.finish(run)
        assert now() == pytest.approx(4), "one second of them did not count"
        assert (record.status, record.reason) == ("failed", "run_timeout")
        assert names(events) == [*["tool.waiting"] * 2, *["tool.resumed"] * 2, "tool.result"]
        with pytest.raises(AbortError):
            await behind[1]
        assert nobody_listens(at)
        at.stage.go.set()
        await behind[0]


@in_virtual_time
async def test_a_run_says_that_it_waits_exactly_while_a_call_does() -> None:
    seen: list[tuple[str, list[str]]] = []

    async with desk() as at:
        run = await at.start(asks, waits_for_user, sleeps, arguments={}, timeout=0)

        async def look() -> None:
            record = await at.store.get(run.key)
            assert record is not None
            seen.append((record.status, [call.status for call in record.calls]))

        await questions(at, run)
        await quiet(lambda: len([call for call in run.calls.values() if call.waits]) == 2)
        await look()
        await say(at, run, (await questions(at, run))[0])
        await at.ended(run, "call-1")
        await look()
        at.stage.go.set()
        await at.ended(run, "call-2")
        await look()
        await at.finish(run)
        await look()
    assert seen == [
        ("waiting", ["waiting", "waiting", "running"]),
        ("waiting", ["completed", "waiting", "running"]),
        ("running", ["completed", "completed", "running"]),
        ("completed", ["completed", "completed", "completed"]),
    ]


# -- how a wait ends --


@in_virtual_time
async def test_a_tool_that_will_not_wait_any_longer_closes_its_question_and_its_clock_stays_still() -> None:
    @tool
    async def is_impatient(ctx: ToolContext) -> str:
        """Waits for two seconds, then works on."""
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ctx.request_input("Quick!"), 2)
        await asyncio.sleep(5)
        return "without you"

    async with desk() as at:
        run = await at.start(is_impatient, timeout=1)
        await at.saw(run, "tool.resumed")
        await quiet(lambda: nobody_listens(at))
        (question,) = await at.store.questions(run.key)
        await quiet(lambda: at.store._questions[run.key][question.interrupt_id].closed)
        _, events = await at.finish(run)
    assert results(events)["call-1"]["status"] == "completed"


@pytest.mark.parametrize("reason", ["user", "shutdown", "disconnect"])
@in_virtual_time
async def test_whatever_aborts_the_run_ends_every_wait_of_it_at_once(reason: str) -> None:
    seen: list[str] = []

    @tool(timeout=0)
    async def asks_twice(ctx: ToolContext) -> None:
        """Asks two things at once, in tasks of its own."""

        async def ask(what: str) -> None:
            try:
                await ctx.request_input(what)
            except AbortError as error:
                seen.append(f"{what} {error.reason}")
                raise

        await asyncio.gather(*(asyncio.shield(asyncio.ensure_future(ask(what))) for what in ("a", "b")))

    async with desk() as at:
        run = await at.start(asks_twice)
        asked = await questions(at, run, 2)
        if reason == "user":
            await at.stop(run)
        elif reason == "shutdown":
            await at.supervisor.drain(0)
        else:
            run.stop("disconnect")
        _, events = await at.finish(run)
        await quiet(lambda: nobody_listens(at))
        known = at.store._questions[run.key]
        await quiet(lambda: not any(known[question.interrupt_id].open for question in asked))
    assert seen == [f"a {reason}", f"b {reason}"]
    value = results(events)["call-1"]
    assert value["status"] == ("cancelled" if reason == "user" else "interrupted")
    assert "stillRunning" not in value


async def test_a_blocked_thread_is_let_go_by_stop_and_serves_the_next_call() -> None:
    @tool(timeout=0)
    def asks_in_a_thread(ctx: ToolContext) -> str:
        """Asks, and tells which thread it is."""
        given = ctx.request_input_sync("Go on?")
        return f"{given.payload} {threading.current_thread().name}"

    async with desk(max_threads=1) as at:
        run = await at.start(asks_in_a_thread)
        await at.saw(run, "tool.waiting")
        await at.stop(run)
        _, events = await at.finish(run)
        assert results(events)["call-1"]["content"][0]["text"] == CANCELLED
        assert at.supervisor.threads.abandoned == 0
        run = await at.start(asks_in_a_thread)
        await at.saw(run, "tool.waiting")
        await say(at, run, (await questions(at, run))[0], "yes")
        _, events = await at.finish(run)
        assert results(events)["call-1"]["content"][0]["text"] == "yes agui-tool-1"
        assert nobody_listens(at)


async def test_a_plain_function_asks_several_things_at_once_from_threads_of_its_own() -> None:
    @tool(timeout=0)
    def asks_side_by_side(ctx: ToolContext) -> dict[str, Any]:
        """Asks in three threads."""
        told: dict[str, Any] = {}

        def ask(what: str) -> None:
            told[what] = ctx.request_input_sync(what).payload

        threads = [threading.Thread(target=ask, args=(what,), daemon=True) for what in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told

    async with desk() as at:
        run = await at.start(asks_side_by_side)
        for question in await questions(at, run, 3):
            await say(at, run, question, f"{question.message}!")
        _, events = await at.finish(run)
    assert results(events)["call-1"]["structuredContent"] == {"a": "a!", "b": "b!", "c": "c!"}


@in_virtual_time
async def test_an_answer_is_taken_once_however_often_it_is_told() -> None:
    async with desk() as at:
        run = await at.start(asks, timeout=0)
        (question,) = await questions(at, run)
        answered = replace(question, answer=Answer("resolved", "first"))
        await say(at, run, question, "first")
        for told in (answered, replace(question, answer=Answer("resolved", "second")), answered):
            at.supervisor.questions.changed(told)
        await at.supervisor.questions.heard(run.key, question.interrupt_id)
        _, events = await at.finish(run)
        assert nobody_listens(at)
    assert results(events)["call-1"]["content"][0]["text"] == "first"
    assert names(events).count("tool.resumed") == 1


@in_virtual_time
async def test_a_change_that_is_no_answer_wakes_nobody() -> None:
    async with desk() as at:
        run = await at.start(asks, timeout=0)
        (question,) = await questions(at, run)
        at.supervisor.questions.changed(question)
        await at.supervisor.questions.heard(run.key, "another one")
        await at.supervisor.questions.heard(run.key, question.interrupt_id)
        await asyncio.sleep(5)
        assert not run.machine.over
        await say(at, run, question, "now")
        _, events = await at.finish(run)
    assert results(events)["call-1"]["content"][0]["text"] == "now"


@in_virtual_time
async def test_a_question_that_the_store_does_not_take_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(*_: Any) -> None:
        raise StoreError("no room")

    async with desk() as at:
        monkeypatch.setattr(at.store, "ask", refuses)
        run = await at.start(asks, timeout=0)
        record, events = await at.finish(run)
        assert nobody_listens(at)
    assert results(events)["call-1"]["error"]["message"] == "Error [failed]: no room"
    assert names(events) == ["tool.result"], "nobody has seen a question"
    assert record.status == "completed"


@in_virtual_time
async def test_a_run_whose_question_is_on_its_way_into_the_store_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = asyncio.Event()

    async def is_slow(*_: Any) -> None:
        hangs.set()
        await asyncio.sleep(1_000)

    async with desk() as at:
        monkeypatch.setattr(at.store, "ask", is_slow)
        run = await at.start(asks, timeout=0)
        await hangs.wait()
        await at.stop(run)
        _, events = await at.finish(run)
        assert now() < 1
        assert nobody_listens(at)
    assert results(events)["call-1"]["content"][0]["text"] == CANCELLED


# -- around a tool --


@in_virtual_time
async def test_a_middleware_may_ask_before_and_after_and_the_clock_of_the_call_stops() -> None:
    async def asks_around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        before = (await ctx.request_input("Before?")).payload
        output = await call_next(call)
        after = (await ctx.request_input("After?")).payload
        return f"{before} {output.text} {after}"

    async with desk([asks_around]) as at:
        run = await at.start(sleeps, timeout=1)
        for said in ("a", "b"):
            (question,) = await questions(at, run)
            await asyncio.sleep(5)
            await say(at, run, question, said)
        _, events = await at.finish(run)
    assert results(events)["call-1"]["content"][0]["text"] == "a slept b"


@in_virtual_time
async def test_a_middleware_that_will_not_wait_longer_ends_the_wait_of_what_is_inside() -> None:
    async def limits(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        try:
            return await asyncio.wait_for(call_next(call), 2)
        except TimeoutError:
            return "too late"

    async with desk([limits]) as at:
        run = await at.start(asks, timeout=0)
        _, events = await at.finish(run)
        assert now() == pytest.approx(2)
        await quiet(lambda: nobody_listens(at))
    assert results(events)["call-1"]["content"][0]["text"] == "too late"


@in_virtual_time
async def test_stop_of_a_parent_ends_what_its_nested_calls_wait_for() -> None:
    calls: list[Any] = [["asks", {}, None], ["waits_for_user", {}, None]]
    async with desk() as at:
        run = await at.start(calls_several, arguments={"calls": calls}, others=[asks, waits_for_user], timeout=0)
        await questions(at, run)
        await at.stop(run, "call-1")
        record, events = await at.finish(run)
        await quiet(lambda: nobody_listens(at))
    found = results(events)
    assert {call: value["status"] for call, value in found.items()}["call-1"] == "cancelled"
    assert {value["status"] for value in found.values()} == {"cancelled"}
    assert record.status == "completed"


@in_virtual_time
async def test_a_tool_that_swallows_the_end_of_its_wait_is_given_up_like_any_other() -> None:
    @tool(timeout=0)
    async def asks_for_ever(ctx: ToolContext) -> None:
        """Asks again and again."""
        while True:
            with contextlib.suppress(AbortError, asyncio.CancelledError):
                await ctx.request_input("And now?")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)
            if ctx.context.go.is_set():
                return

    async with desk() as at:
        run = await at.start(asks_for_ever)
        await questions(at, run)
        await at.stop(run)
        record, events = await at.finish(run)
        at.stage.go.set()
    assert results(events)["call-1"]["stillRunning"] is True
    assert names(events).count("tool.waiting") == 1
    assert record.status == "cancelled"
