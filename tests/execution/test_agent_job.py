"""A local agent's run: what it yields goes out in order, one terminal event ends it, and Stop reaches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import (
    CustomEvent,
    Interrupt,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
)
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import AbortError, StoreError
from gateway.execution.caller import AuthContext
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from gateway.stores.base import StopRequest
from tests.execution.agents import ADA, AgentContext, ended, names, note, played, shown, start_agent, told
from tests.execution.running import LONG, desk, quiet

Events = AsyncGenerator[Any, None]


@tool(timeout=0)
async def waits(ctx: ToolContext) -> str:
    """Waits for the test."""
    ctx.emit_custom_event("waiting", {})
    await ctx.context.go.wait()
    return "went"


def finished(run_id: str = "x", **more: Any) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id="somewhere", run_id=run_id, **more)


# -- what it yields --


async def test_what_an_agent_yields_goes_out_in_its_order_under_the_ids_of_the_run() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield RunStartedEvent(thread_id="other", run_id="other")
        yield TextMessageStartEvent(message_id="m", role="assistant")
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": f"Hello, {given.messages[-1].content}"}
        yield TextMessageEndEvent(message_id="m")
        yield StateSnapshotEvent(snapshot={"n": 1})
        yield finished()

    async with desk() as at:
        record, events = await played(at, agent, run_id="r")
        assert names(events) == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STATE_SNAPSHOT",
            "RUN_FINISHED",
        ]
        assert events[0]["runId"] == events[-1]["runId"] == "r"
        assert events[0]["threadId"] == events[-1]["threadId"] == "thread-1"
        assert told(events) == {"m": "Hello, go"}
        assert all(isinstance(event["timestamp"], int) for event in events)
        assert record.status == "completed"
        assert record.outcome == events[-1]["outcome"] == {"type": "success"}


async def test_an_agent_that_says_nothing_has_succeeded_and_its_own_times_are_kept() -> None:
    async def silent(given: RunAgentInput, ctx: AgentContext) -> Events:
        if given.state == "never":
            yield {}

    async def timed(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="a", value=None, timestamp=17)

    async with desk() as at:
        record, events = await played(at, silent)
        assert (record.status, names(events)) == ("completed", ["RUN_STARTED", "RUN_FINISHED"])
        _, events = await played(at, timed)
        assert (events[1]["timestamp"], events[1]["value"]) == (17, None)


async def test_what_an_agent_emits_stands_between_what_it_yields() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        ctx.emit_custom_event("one", {"n": 1})
        yield CustomEvent(name="two", value={"n": 2})
        ctx.emit_custom_event("three", {})
        await asyncio.to_thread(ctx.emit_custom_event, "four", {"n": float("nan")})
        yield CustomEvent(name="five", value={"n": 5})

    async with desk() as at:
        _, events = await played(at, agent)
        assert shown(events) == ["one", "two", "three", "four", "five"]
        assert [event["value"] for event in events[1:-1]] == [{"n": 1}, {"n": 2}, {}, {"n": None}, {"n": 5}]
        assert at.supervisor.counts["payload_replaced.nan"] == 1


@pytest.mark.parametrize("name", ["tool.progress", "", "gateway.x"])
async def test_an_agent_emits_under_names_of_its_own_only(name: str) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        with pytest.raises(ValueError, match=r"[Nn]ame"):
            ctx.emit_custom_event(name, {})
        with pytest.raises(TypeError):
            ctx.emit_custom_event("x", 1)
        yield CustomEvent(name="ok", value={})

    async with desk() as at:
        assert shown((await played(at, agent))[1]) == ["ok"]


async def test_a_value_that_is_too_large_is_replaced_and_names_of_requests_to_the_page_are_not_the_agents() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        ctx.emit_custom_event("large", {"text": "x" * 2000})
        yield CustomEvent(name="tool.requested", value={"toolCallId": "c"})
        yield CustomEvent(name="tool.progress", value={"toolCallId": "c", "progress": 1})

    async with desk(max_event_bytes=1000) as at:
        _, events = await played(at, agent)
        assert events[1]["value"] == {"$too_large": 2011}
        assert shown(events) == ["large", "upstream.tool.requested", "tool.progress"]


async def test_chunks_become_whole_messages() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield TextMessageChunkEvent(message_id="m", delta="Hel")
        ctx.emit_custom_event("between", {})
        yield TextMessageChunkEvent(delta="lo")

    async with desk() as at:
        _, events = await played(at, agent)
        assert told(events) == {"m": "Hello"}
        assert shown(events)[-1] == "TEXT_MESSAGE_END"


async def test_an_agent_that_only_yields_lets_others_have_their_turn() -> None:
    turns = 0

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        while not ctx.abort_signal.aborted:
            yield CustomEvent(name="row", value={})

    async with desk() as at:
        run = await start_agent(at, agent)
        await at.saw(run, "row")
        for _ in range(3):
            await asyncio.sleep(0)
            turns += 1
        await at.supervisor.stop(StopRequest(run.key, "user"))
        record, _ = await ended(at, run)
        assert (record.status, turns) == ("cancelled", 3)


# -- how it ends --


async def test_the_end_that_an_agent_yields_is_kept_and_nothing_after_it_counts() -> None:
    trail: list[str] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            yield finished(
                result={"answer": 42},
                outcome=RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=["c"]),
                usage=[TokenUsage(input_tokens=3)],
                metadata={"model": "m"},
            )
            trail.append("went on")
        finally:
            trail.append("closed")

    async with desk() as at:
        record, events = await played(at, agent)
        assert trail == ["closed"]
        assert events[-1]["outcome"] == record.outcome == {"type": "success", "pendingToolCallIds": ["c"]}
        assert (events[-1]["result"], record.result) == ({"answer": 42}, b'{"answer":42}')
        assert events[-1]["usage"] == [{"inputTokens": 3}]
        assert events[-1]["metadata"] == {"model": "m", "tanstack": {"finishReason": "stop"}}


async def test_an_error_that_an_agent_yields_ends_its_run_with_its_code() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield TextMessageStartEvent(message_id="m")
        yield RunErrorEvent(message="The model is overloaded.", code="overloaded")

    async def without_code(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield RunErrorEvent(message="No.")

    async with desk() as at:
        record, events = await played(at, agent)
        assert record.status == "failed"
        assert record.error == {"code": "overloaded", "message": "The model is overloaded."}
        assert names(events)[1:] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_ERROR"]
        record, _ = await played(at, without_code)
        assert record.error == {"code": "agent_failed", "message": "No."}


class Mute(Exception):
    """Does not even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def raising(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("the model is gone"), "the model is gone"),
        (KeyError("x"), "'x'"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "The agent cancelled itself."),
        (BaseExceptionGroup("several", [ValueError("a")]), "several"),
        (Mute(), "Mute"),
        (AbortError("tool"), "The call was aborted: tool."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_an_agent_raises_fails_its_run_and_nothing_else(error: BaseException, message: str) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield TextMessageStartEvent(message_id="m")
        await raising(error)

    async with desk() as at:
        record, events = await played(at, agent)
        assert record.error == {"code": "agent_failed", "message": message}
        assert events[-1]["code"] == "agent_failed"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (17, "An agent yields events, not int."),
        (None, "An agent yields events, not NoneType."),
        ({}, "None is not a type of AG-UI events."),
        ({"type": "THINKING_START"}, "'THINKING_START' is not a type of AG-UI events."),
        ({"type": "CUSTOM", "name": "x"}, "CUSTOM: value: Field required"),
        ({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "x", "value": 1}]}, "STATE_DELTA: delta.0"),
        (TextMessageContentEvent(message_id="m", delta="x"), "TEXT_MESSAGE_CONTENT of 'm', which is not open"),
        (TextMessageChunkEvent(delta="x"), "TEXT_MESSAGE_CHUNK without messageId"),
        (CustomEvent(name="x", value="y" * 9_000_000), "CUSTOM of 9000"),
        (finished(outcome={"type": "cancelled"}), "The agent cancelled itself."),
        (
            finished(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}] * 2}),
            "RUN_FINISHED: two interrupts have one id.",
        ),
        (
            finished(outcome={"type": "interrupt", "interrupts": [{"id": "", "reason": "r"}]}),
            "RUN_FINISHED: the id of an interrupt has 1 to 200 characters.",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
async def test_what_no_client_would_take_ends_the_run_and_says_why(item: Any, message: str) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="before", value={})
        yield item
        yield CustomEvent(name="after", value={})

    async with desk() as at:
        record, events = await played(at, agent)
        assert shown(events) == ["before"]
        assert record.error is not None
        assert record.error["code"] == "agent_failed"
        assert record.error["message"].startswith(message)


async def test_an_event_that_was_spoilt_after_it_was_made_is_refused() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        event = TextMessageStartEvent(message_id="m")
        event.message_id = None  # type: ignore[assignment]
        yield event

    async with desk() as at:
        record, _ = await played(at, agent)
        assert record.error is not None
        assert record.error["message"].startswith("TEXT_MESSAGE_START: messageId")


async def test_what_json_cannot_hold_is_replaced_or_refused_as_the_operator_says() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="x", value={"n": float("inf"), "o": object()})

    async with desk() as at:
        _, events = await played(at, agent)
        assert events[1]["value"] == {"n": None, "o": {"$unserializable": "object"}}
    async with desk(strict_payloads=True) as at:
        record, _ = await played(at, agent)
        assert record.error is not None
        assert "$.value.n" in record.error["message"]


async def test_the_first_failure_counts_and_what_happens_while_an_agent_is_closed_does_not() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            yield 17
        finally:
            raise RuntimeError("while it was closed")

    async def stubborn(given: RunAgentInput, ctx: AgentContext) -> Events:
        while True:
            try:
                yield finished(result=1)
            finally:
                yield CustomEvent(name="never", value={})

    async with desk() as at:
        record, _ = await played(at, agent)
        assert record.error is not None
        assert record.error["message"] == "An agent yields events, not int."
        record, events = await played(at, stubborn)
        assert (record.status, record.result, shown(events)) == ("completed", b"1", [])


async def test_an_agent_of_the_wrong_shape_fails_when_it_runs() -> None:
    async def agent(given: RunAgentInput) -> Events:
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        record, _ = await played(at, agent)
        assert record.error is not None
        assert "takes 1 positional argument" in record.error["message"]


# -- its interrupts --


async def test_an_agent_may_end_its_run_with_questions_of_its_own() -> None:
    asked = Interrupt(id="which", reason="choice", message="Which one?", response_schema={"type": "string"})

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield finished(outcome=RunFinishedInterruptOutcome(type="interrupt", interrupts=[asked]), result={"n": 1})

    async with desk() as at:
        record, events = await played(at, agent)
        assert record.status == "interrupted"
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert {key: interrupt[key] for key in ("id", "reason", "message", "responseSchema")} == {
            "id": "which",
            "reason": "choice",
            "message": "Which one?",
            "responseSchema": {"type": "string"},
        }
        assert interrupt["expiresAt"].endswith("Z")
        assert interrupt["metadata"]["tanstack:interruptBinding"]["interruptedRunId"] == record.key.run_id
        assert [question.interrupt_id for question in await at.store.questions(record.key)] == ["which"]
        stopped = await at.supervisor.stop(StopRequest(record.key, "user"))
        assert stopped is not None
        assert stopped.status == "cancelled"
        assert not any(question.open for question in await at.store.questions(record.key))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00", "2020-01-01T00:00:00"),
        ("9999-01-01T00:00:00Z", None),
        ("soon", None),
    ],
)
async def test_a_question_expires_when_the_agent_says_and_at_the_latest_when_its_run_is_forgotten(
    given: str, kept: str | None
) -> None:
    async def agent(_: RunAgentInput, ctx: AgentContext) -> Events:
        interrupts = [Interrupt(id="i", reason="r", expires_at=given)]
        yield finished(outcome=RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts))

    async with desk(interrupt_ttl=60) as at:
        record, events = await played(at, agent)
        shown_at = events[-1]["outcome"]["interrupts"][0]["expiresAt"]
        (question,) = await at.store.questions(record.key)
        assert question.expires_at is not None
        assert record.ended_at is not None
        if kept is None:
            assert 0 <= record.ended_at + 60 - question.expires_at < LONG
            assert shown_at[:4] not in (given[:4], "soon")
        else:
            assert (shown_at, question.expires_at) == (kept, 1_577_836_800)


# -- Stop --


async def test_stop_reaches_the_agent_at_its_await_and_closes_what_it_has_open() -> None:
    trail: list[str] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield TextMessageStartEvent(message_id="m")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            trail.append(f"cancelled: {ctx.abort_signal.reason}")
            raise
        finally:
            trail.append("closed")

    async with desk() as at:
        run = await start_agent(at, agent)
        await at.saw(run, "TEXT_MESSAGE_START")
        stopping = await at.stop(run)
        assert stopping is not None
        assert stopping.status == "stopping"
        record, events = await ended(at, run)
        assert trail == ["cancelled: user", "closed"]
        assert record.status == "cancelled"
        assert names(events)[1:] == ["TEXT_MESSAGE_START", "run.stopping", "TEXT_MESSAGE_END", "RUN_FINISHED"]


async def test_one_event_that_an_agent_says_on_its_way_out_is_sent() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            yield CustomEvent(name="begun", value={})
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ctx.emit_custom_event("farewell", {})
            yield CustomEvent(name="last", value={})
            yield CustomEvent(name="more", value={})

    async def ends(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            yield CustomEvent(name="begun", value={})
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield finished(result={"too": "late"})

    async with desk() as at:
        for made, said in ((agent, ["begun", "run.stopping", "farewell", "last"]), (ends, ["begun", "run.stopping"])):
            run = await start_agent(at, made)
            await at.saw(run, "begun")
            await at.stop(run)
            record, events = await ended(at, run)
            assert (record.status, record.result, shown(events)) == ("cancelled", None, said)


async def test_an_agent_that_swallows_its_cancellation_is_left_behind_after_the_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    over = asyncio.Event()

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="begun", value={})
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                ctx.logger.info("no")
        yield CustomEvent(name="late", value={})

    async with desk(stop_grace=0.05) as at:
        run = await start_agent(at, agent)
        await at.saw(run, "begun")
        await at.stop(run)
        record, events = await ended(at, run)
        assert (record.status, shown(events)) == ("cancelled", ["begun", "run.stopping"])
        assert "goes on after its end" in caplog.text
        before = at.supervisor.counts["late_emits"]
        over.set()
        await quiet(lambda: at.supervisor.counts["late_emits"] > before)


async def test_stop_before_the_agent_has_begun_leaves_it_alone() -> None:
    began: list[int] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        began.append(1)
        yield CustomEvent(name="begun", value={})

    async with desk() as at:
        run = await start_agent(at, agent)
        await at.stop(run)
        record, _ = await ended(at, run)
        assert (record.status, began) == ("cancelled", [])


async def test_stop_after_the_end_of_the_agent_changes_nothing() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        run = await start_agent(at, agent)
        record, _ = await ended(at, run)
        stopped = await at.stop(run)
        assert stopped is not None
        assert (stopped.status, record.status) == ("completed", "completed")


@pytest.mark.parametrize(("reason", "code"), [("disconnect", "interrupted"), ("run_timeout", "run_timeout")])
async def test_what_ends_a_run_in_the_place_of_the_person_ends_its_agent_too(reason: str, code: str) -> None:
    reasons: list[str | None] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="begun", value={})
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.abort_signal.reason)

    async with desk(run_timeout=0.05 if reason == "run_timeout" else 60) as at:
        run = await start_agent(at, agent)
        await at.saw(run, "begun")
        if reason == "disconnect":
            run.stop(reason)
        record, _ = await ended(at, run)
        assert record.error is not None
        assert (record.status, record.error["code"], reasons) == ("failed", code, [reason])


async def test_a_shutdown_ends_agents_interrupted_and_leaves_nothing_of_them() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        yield CustomEvent(name="begun", value={})
        await ctx.call_tool("waits", {})

    async with desk() as at:
        run = await start_agent(at, agent, tools=[waits])
        await at.saw(run, "waiting")
        await at.supervisor.drain(0)
        record, events = await ended(at, run)
        assert record.error is not None
        assert record.error["code"] == "interrupted"
        assert names(events)[-3:] == ["tool.result", "TOOL_CALL_RESULT", "RUN_ERROR"]


# -- its context --


async def test_the_context_says_whose_run_it_is() -> None:
    seen: dict[str, Any] = {}

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        for name in ("run_id", "thread_id", "parent_run_id", "request_id", "session_id", "verified_subject"):
            seen[name] = getattr(ctx, name)
        seen["auth"], seen["metadata"], seen["context"] = ctx.auth, ctx.metadata, ctx.context
        ctx.logger.warning("here")
        assert ctx.logger is ctx.logger
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        auth = AuthContext("ada")
        await played(at, agent, run_id="r", owner="user:ada", auth=auth)
        assert seen == {
            "run_id": "r",
            "thread_id": "thread-1",
            "parent_run_id": None,
            "request_id": "request-1",
            "session_id": "user:ada",
            "verified_subject": "ada",
            "auth": auth,
            "metadata": {"client_tools": []},
            "context": at.stage,
        }
        await played(at, agent, owner=None)
        assert seen["verified_subject"] is None


async def test_the_log_of_an_agent_says_which_run(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        ctx.logger.warning("here", extra={"step": 1})
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        with caplog.at_level(logging.WARNING):
            await played(at, agent, run_id="r")
        (record,) = (item for item in caplog.records if item.message == "here")
        assert record.name == "gateway.agents.agent"
        assert vars(record).items() >= {"request_id": "request-1", "run_id": "r", "agent": "agent", "step": 1}.items()


async def test_an_agent_cannot_stop_its_run_by_its_signal() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        ctx.abort_signal.abort("user")
        yield CustomEvent(name="x", value={})

    async with desk() as at:
        record, _ = await played(at, agent)
        assert record.status == "completed"


# -- anything at all --

SAYS: list[Any] = [
    *({"type": kind, "messageId": name} for kind in ("TEXT_MESSAGE_START", "TEXT_MESSAGE_END") for name in "mn"),
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "o", "delta": "x"},
    {"type": "TEXT_MESSAGE_CHUNK", "delta": "y"},
    {"type": "STEP_STARTED", "stepName": "s"},
    {"type": "STEP_FINISHED", "stepName": "s"},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "add"},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
    {"type": "SUBAGENT_STARTED", "subagentRunId": "sub", "name": "sub"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "p", "delta": "x", "subagentRunId": "sub"},
    CustomEvent(name="x", value=None),
    RunStartedEvent(thread_id="x", run_id="x"),
    finished(),
    finished(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}]}),
    RunErrorEvent(message="No."),
    17,
]
DOES = ["emit", "give way", "call", "ask", "raise"]


@given(st.lists(st.sampled_from([*SAYS, *SAYS, *DOES]), max_size=15), st.none() | st.integers(0, 12))
async def test_whatever_an_agent_says_and_whenever_it_is_stopped_its_stream_is_one_that_clients_accept(
    script: list[Any], stop_after: int | None
) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        for item in script:
            if item == "emit":
                ctx.emit_custom_event("emitted", {})
            elif item == "give way":
                await asyncio.sleep(0)
            elif item in ("call", "ask"):
                await ctx.call_tool("quick" if item == "call" else "asking", {})
            elif item == "raise":
                raise RuntimeError("no")
            else:
                yield item

    async with desk() as at:
        await at.store.add_note(ADA, "thread-1", note(1))
        run = await start_agent(at, agent, tools=[quick, asking])
        for _ in range(stop_after or 0):
            await asyncio.sleep(0)
        if stop_after is not None:
            await at.stop(run)
        record, events = await ended(at, run)  # which looks at the order
        how = (record.status, events[-1].get("outcome", {}).get("type"))
        # The last one: Stop came when the run had ended with its questions, and closed them.
        assert how in {
            ("completed", "success"),
            ("failed", None),
            ("interrupted", "interrupt"),
            ("cancelled", "cancelled"),
            ("cancelled", "interrupt"),
        }
        assert {call.status for call in record.calls} <= {"completed", "cancelled", "interrupted"}
        assert not any(call.open for call in record.calls)
        notes = await at.store.notes(ADA, "thread-1")
        assert (notes[0].delivered_to == run.key.run_id) is ("call-1:note" in told(events))


@tool
async def quick() -> str:
    """Answers at once."""
    return "done"


@tool(needs_approval=True)
async def asking() -> str:
    """Wants a yes."""
    return "done"


# -- faults that are not the agent's --


async def test_a_store_that_fails_is_not_the_agents_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[bool] = []

    async def agent(given: RunAgentInput, ctx: AgentContext) -> Events:
        try:
            yield CustomEvent(name="begun", value={})
            await ctx.context.go.wait()
            yield CustomEvent(name="last", value={})
        finally:
            closed.append(True)

    async with desk() as at:
        run = await start_agent(at, agent)
        await at.saw(run, "begun")
        with monkeypatch.context() as broken:
            broken.setattr(run, "writer", Failing(run.writer))
            at.stage.open()
            record, events = await ended(at, run)
        assert closed == [True]
        assert record.error is not None
        assert (record.error["code"], shown(events)) == ("store_unavailable", ["begun", "last"])


class Failing:
    """A writer that has taken something, and fails."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def write(self, data: bytes, count: int = 1) -> None:
        self._writer.write(data, count)
        if not self._failed:
            self._failed = True
            raise StoreError("The store is away.")
