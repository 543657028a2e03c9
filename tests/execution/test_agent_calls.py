"""The tools that an agent calls: calls of its run like any other, also where they ask the person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from ag_ui.core import (
    CustomEvent,
    Interrupt,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    TextMessageStartEvent,
)

from gateway.errors import NotAvailable
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import CANCELLED, ToolOutput
from gateway.execution.tools import tool
from gateway.run.questions import Answer
from tests.execution.agents import AgentContext, ended, played, shown, start_agent
from tests.execution.running import LONG, Desk, desk, quiet

Events = AsyncGenerator[Any, None]


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits for the test."""
    ctx.emit_custom_event("waiting", {})
    await ctx.context.go.wait()
    return "went"


@tool(needs_approval=True)
async def risky() -> str:
    """Wants a yes."""
    return "done"


def finished(run_id: str = "x", **more: Any) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id="somewhere", run_id=run_id, **more)


async def test_a_tool_that_an_agent_calls_is_a_call_of_its_run() -> None:
    outputs: list[ToolOutput] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        outputs.append(await ctx.call_tool("add", {"a": 1, "b": 2}, "c1"))
        outputs.append(await ctx.call_tool("add", {"a": "x"}))
        outputs.append(await ctx.call_tool("nothing", {}, timeout=1))
        yield CustomEvent(name="after", value={"sum": outputs[0].structured_content})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[add])
        record, events = await at.finish(run)
        assert [output.status for output in outputs] == ["completed", "failed", "unavailable"]
        assert record.calls[0].call_id == "c1"
        assert [call.status for call in record.calls] == [output.status for output in outputs]
        assert events[-2]["value"] == {"sum": {"result": 3}}
        assert record.outcome == {"type": "success"}


async def test_calls_side_by_side_work_side_by_side_unless_the_operator_says_otherwise() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        first = asyncio.create_task(ctx.call_tool("waits", {}, "one"))
        second = asyncio.create_task(ctx.call_tool("add", {"a": 1, "b": 2}, "two"))
        await asyncio.gather(first, second)
        yield CustomEvent(name="x", value={})

    for parallel in (True, False):
        async with desk(parallel_tool_calls=parallel) as at:
            run = await start_agent(at, agent, tools=[add, waits])
            await at.saw(run, "waiting")
            if parallel:
                await at.ended(run, "two")
            else:
                record = await at.store.get(run.key)
                assert record is not None
                assert [(call.call_id, call.status) for call in record.calls] == [
                    ("one", "running"),
                    ("two", "pending"),
                ]
            at.stage.open()
            _, events = await at.finish(run)
            order = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
            assert order == (["two", "one"] if parallel else ["one", "two"])


async def test_an_id_used_twice_gets_a_suffix_and_what_is_none_is_refused() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        for _ in range(3):
            await ctx.call_tool("add", {"a": 1, "b": 2}, "c" * 200)
        for wrong, error in (("a/b", ValueError), ("", ValueError), (7, TypeError)):
            with pytest.raises(error):
                await ctx.call_tool("add", {}, wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout"):
            await ctx.call_tool("add", {}, timeout=-1)
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        record, _ = await at.finish(await start_agent(at, agent, tools=[add]))
        assert [call.call_id for call in record.calls] == ["c" * 200, "c" * 198 + "~2", "c" * 198 + "~3"]


async def test_arguments_are_taken_as_a_model_would_have_sent_them() -> None:
    taken: list[Any] = []

    @tool
    async def keeps(value: Any) -> None:
        """Keeps."""
        taken.append(value)

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        mine = {"value": {"list": [1]}}
        await ctx.call_tool("keeps", mine)
        mine["value"]["list"].append(2)
        await ctx.call_tool("keeps", {"value": float("nan")})
        await ctx.call_tool("keeps", {"value": object()})
        await ctx.call_tool("keeps", {"value": 2**70})
        await ctx.call_tool("keeps", "nothing")  # type: ignore[arg-type]
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        record, _ = await at.finish(await start_agent(at, agent, tools=[keeps]))
        assert taken == [{"list": [1]}, None, {"$unserializable": "object"}, 2**70]
        assert record.calls[-1].status == "failed"


async def test_a_call_that_the_agent_has_streamed_is_not_announced_again() -> None:
    problems: list[str] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "add", "parentMessageId": "m"}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"a":1,"b":2}'}
        try:
            await ctx.call_tool("add", {"a": 1, "b": 2}, "c1")
        except ValueError as error:
            problems.append(str(error))
        yield {"type": "TOOL_CALL_END", "toolCallId": "c1"}
        await ctx.call_tool("add", {"a": 1, "b": 2}, "c1")

    async with desk() as at:
        record, events = await at.finish(await start_agent(at, agent, tools=[add]))
        assert problems == ["The TOOL_CALL_END of 'c1' must come before the call is made."]
        assert shown(events) == [
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "tool.result",
            "TOOL_CALL_RESULT",
        ]
        assert record.calls[0].status == "completed"


async def test_a_call_of_the_history_is_named_again_without_its_arguments() -> None:
    function = {"name": "add", "arguments": '{"a":1,"b":2}'}
    asked = {"id": "a", "role": "assistant", "toolCalls": [{"id": "c1", "type": "function", "function": function}]}

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        await ctx.call_tool("add", {"a": 1, "b": 2}, "c1")
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        _, events = await played(at, agent, tools=[add], messages=[{"id": "u", "role": "user", "content": "?"}, asked])
        assert shown(events)[:2] == ["TOOL_CALL_START", "TOOL_CALL_END"]
        assert events[1]["parentMessageId"] == "a"


async def test_stop_of_a_run_stops_its_tool_too_and_the_call_has_its_result() -> None:
    trail: list[str] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            await ctx.call_tool("waits", {}, "c1")
        except asyncio.CancelledError:
            trail.append("cancelled")
            raise
        yield CustomEvent(name="never", value={})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[waits])
        await at.saw(run, "waiting")
        await at.stop(run)
        record, events = await at.finish(run)
        assert trail == ["cancelled"]
        assert record.status == "cancelled"
        assert [call.status for call in record.calls] == ["cancelled"]
        assert events[-2]["content"] == CANCELLED


async def test_stop_of_a_call_is_an_outcome_and_the_agent_goes_on() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        output = await ctx.call_tool("waits", {}, "c1")
        yield CustomEvent(name="heard", value={"status": output.status})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[waits])
        await at.saw(run, "waiting")
        await at.stop(run, "c1")
        record, events = await at.finish(run)
        assert (record.status, events[-2]["value"]) == ("completed", {"status": "cancelled"})


async def test_who_gives_up_waiting_for_a_tool_ends_it() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.call_tool("waits", {}, "c1")
        yield CustomEvent(name="given up", value={})

    async with desk() as at:
        record, _ = await at.finish(await start_agent(at, agent, tools=[waits]))
        assert (record.status, record.calls[0].status) == ("completed", "interrupted")


@pytest.mark.parametrize("how", ["returns", "fails", "finishes"])
async def test_a_call_that_an_agent_leaves_behind_ends_with_it(how: str) -> None:
    kept: list[Any] = []
    seen = asyncio.Event()

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        kept.extend([ctx, asyncio.create_task(ctx.call_tool("waits", {}, "c1"))])
        await seen.wait()
        if how == "fails":
            raise RuntimeError("no")
        yield finished() if how == "finishes" else CustomEvent(name="x", value={})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[waits])
        await at.saw(run, "waiting")
        seen.set()
        record, _ = await at.finish(run)
        assert record.status == ("failed" if how == "fails" else "completed")
        assert record.calls[0].status == "interrupted"
        ctx, task = kept
        assert (await task).status == "interrupted"
        with pytest.raises(NotAvailable):
            await ctx.call_tool("add", {})


# -- questions of its tools --


async def test_an_approval_ends_the_run_and_the_agent_is_closed_where_it_waits() -> None:
    trail: list[str] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield TextMessageStartEvent(message_id="m")
        try:
            await ctx.call_tool("risky", {}, "c1")
            trail.append("never")
        finally:
            trail.append(f"closed, aborted: {ctx.abort_signal.aborted}")

    async with desk() as at:
        record, events = await played(at, agent, tools=[risky])
        assert trail == ["closed, aborted: False"]
        assert record.status == "interrupted"
        assert [call.status for call in record.calls] == ["interrupted"]
        (asked,) = events[-1]["outcome"]["interrupts"]
        assert (asked["toolCallId"], asked["reason"]) == ("c1", "tool_call")
        assert shown(events)[-1] == "TEXT_MESSAGE_END"


async def test_the_others_finish_first_and_what_is_called_later_is_never_made() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        async def two() -> None:
            await ctx.call_tool("waits", {}, "two")
            await ctx.call_tool("add", {"a": 1, "b": 2}, "three")

        await asyncio.gather(ctx.call_tool("risky", {}, "one"), two())
        yield CustomEvent(name="never", value={})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[risky, waits, add])
        await at.saw(run, "waiting")
        await quiet(lambda: bool(run.parked))
        at.stage.open()
        record, events = await ended(at, run)
        assert record.status == "interrupted"
        assert {call.call_id: call.status for call in record.calls} == {"one": "interrupted", "two": "completed"}
        assert [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["two"]


async def test_an_end_that_an_agent_says_while_it_is_closed_for_a_question_does_not_count() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            await ctx.call_tool("risky", {})
        except asyncio.CancelledError:
            yield RunErrorEvent(message="cancelled")

    async with desk() as at:
        record, _ = await played(at, agent, tools=[risky])
        assert record.status == "interrupted"


async def test_a_run_that_fails_while_a_call_waits_for_an_answer_answers_the_call() -> None:
    asked = asyncio.Event()

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="x", value={})
        waiting = asyncio.create_task(ctx.call_tool("waits", {}, "c0"))
        asking = asyncio.create_task(ctx.call_tool("risky", {}, "c1"))
        await asked.wait()
        assert not asking.done()
        waiting.cancel()
        raise RuntimeError("no")

    async with desk() as at:
        run = await start_agent(at, agent, tools=[risky, waits])
        await at.saw(run, "waiting")
        await quiet(lambda: bool(run.parked))
        asked.set()
        record, _ = await at.finish(run)
        assert record.status == "failed"
        assert [call.status for call in record.calls] == ["interrupted", "interrupted"]
        assert await at.store.questions(run.key) == []


async def test_both_sides_may_ask_at_once() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        asking = asyncio.create_task(ctx.call_tool("risky", {}, "c1"))
        await asyncio.sleep(0)
        asked = RunFinishedInterruptOutcome(type="interrupt", interrupts=[Interrupt(id="mine", reason="choice")])
        yield finished(outcome=asked)
        await asking

    async with desk() as at:
        record, events = await played(at, agent, tools=[risky])
        reasons = [asked["reason"] for asked in events[-1]["outcome"]["interrupts"]]
        assert (record.status, reasons) == ("interrupted", ["tool_call", "choice"])


async def test_in_an_open_run_the_question_is_asked_while_it_goes_on() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        output = await ctx.call_tool("risky", {}, "c1")
        yield CustomEvent(name="heard", value={"text": output.text})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[risky], channel="open")
        asked = await at.saw(run, "tool.waiting")
        await answer(at, run, asked["value"]["interruptId"], {"approved": True})
        record, events = await at.finish(run)
        assert (record.status, events[-2]["value"]) == ("completed", {"text": "done"})


async def answer(at: Desk, run: Any, interrupt_id: str, payload: Any) -> None:
    question = await at.supervisor.questions.find(run.key, interrupt_id)
    assert question is not None
    answered = replace(question, answer=Answer("resolved", payload))
    assert await at.store.replace_questions(run.key, [(question, answered)])


async def test_a_call_that_fails_inside_the_gateway_is_logged_and_the_agent_hears_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        await ctx.call_tool("add", {"a": 1, "b": 2}, "c1")
        yield CustomEvent(name="never", value={})

    async def breaks(*_: Any) -> None:
        raise RuntimeError("a fault")

    async with desk() as at:
        monkeypatch.setattr(at.supervisor.executor, "execute", breaks)
        run = await start_agent(at, agent, tools=[add])
        async with asyncio.timeout(LONG):
            await run.done.wait()
        assert run.record.error == {"code": "agent_failed", "message": "a fault"}
        assert "failed inside the gateway" in caplog.text


async def test_a_run_that_is_cut_short_lets_go_of_its_calls() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        await asyncio.gather(ctx.call_tool("waits", {}, "c1"), ctx.call_tool("risky", {}, "c2"))
        yield CustomEvent(name="never", value={})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[waits, risky])
        await at.saw(run, "waiting")
        for task in list(at.supervisor._tasks):
            if task.get_name().startswith("run "):
                task.cancel()
        async with asyncio.timeout(LONG):
            await run.done.wait()
        assert run.record.error is not None
        assert run.record.error["code"] == "interrupted"
