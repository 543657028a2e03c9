"""Interrupts: a tool ends its run with a question, and is run again from its start with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from gateway import Interrupt, NotAvailable, ToolCall, ToolContext, tool
from gateway.wire.canonical import sha256_of
from tests.http.asking import JSON, Gates, Reader, agent_body, ask, echo, events_of
from tests.http.people import (
    DAY,
    END,
    HELD,
    START,
    answered,
    asked,
    body_of,
    books,
    calls,
    decides,
    gave,
    interrupts_of,
    names_of,
    post,
    record_of,
    resolve,
    result_of,
    text_of,
)
from tests.http.site import ME, serving

PATHS = pytest.mark.parametrize("path", ["/tools/books", "/agents/tools"])


# -- the end of the run that asks --


@PATHS
async def test_a_tool_that_interrupts_ends_its_run_with_the_question_and_has_no_result(path: str) -> None:
    async with serving(books, context=Gates()) as site:
        events = await post(site, path, body_of(path))
        record = await record_of(site)
    (interrupt,) = interrupts_of(events)
    assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which day?")
    assert (interrupt["toolCallId"], interrupt["responseSchema"]) == ("c", DAY)
    assert names_of(events, "c") == (START if path == "/tools/books" else HELD)
    assert "result" not in events[-1]
    assert events[-1]["metadata"]["tanstack"]["finishReason"] == "stop"
    assert record["status"] == "interrupted"
    assert record["outcome"] == events[-1]["outcome"]
    assert record["toolCalls"][0]["status"] == "interrupted"
    assert record["lastEventId"] == len(events)


async def test_an_interrupt_carries_what_tanstacks_client_needs_to_answer_it() -> None:
    async with serving(books, context=Gates()) as site:
        (interrupt,) = interrupts_of(await post(site, "/tools/books", body_of("/tools/books")))
    metadata = interrupt["metadata"]
    assert (metadata["toolName"], metadata["key"]) == ("books", "day")
    assert metadata["tanstack:interruptBinding"] == {
        "v": 1,
        "kind": "generic",
        "interruptId": interrupt["id"],
        "interruptedRunId": "r",
        "generation": 0,
        "responseSchemaHash": sha256_of(DAY),
    }


async def test_an_interrupt_says_until_when_it_can_be_answered() -> None:
    async with serving(books, context=Gates(), interrupt_ttl=1_000) as site:
        (interrupt,) = interrupts_of(await post(site, "/tools/books", body_of("/tools/books")))
        record = await record_of(site)
    asked_for = datetime.fromisoformat(interrupt["expiresAt"]) - datetime.fromisoformat(record["endedAt"])
    assert abs(asked_for.total_seconds() - 1_000) < 5


async def test_what_was_emitted_and_reported_before_an_interrupt_is_delivered() -> None:
    @tool
    async def reports(ctx: ToolContext) -> None:
        """Reports quickly, emits, interrupts, and emits once more."""
        for number in range(100):
            ctx.report_progress(number, 100)
        ctx.emit_custom_event("before", {}, batch=True)
        try:
            ctx.interrupt("Go on?")
        finally:
            ctx.emit_custom_event("tidied", {})

    async with serving(reports) as site:
        events = await post(site, "/tools/reports", {"runId": "r", "toolCallId": "c"})
    progress = [event["value"]["progress"] for event in events if event.get("name") == "tool.progress"]
    assert progress[-1] == 99
    assert [name for name in names_of(events, "c") if name != "tool.progress"] == [*START, "before", "tidied"]
    assert interrupts_of(events)[0]["message"] == "Go on?"


# -- resuming --


@PATHS
async def test_answers_are_kept_over_three_runs_and_the_tool_starts_anew_in_each(path: str) -> None:
    gates = Gates()
    async with serving(books, context=gates) as site:
        first = await post(site, path, body_of(path, "r1", arguments={"place": "Rome"}))
        assert interrupts_of(first)[0]["metadata"]["key"] == "day"
        second = await post(site, path, body_of(path, "r2", [resolve(interrupts_of(first)[0], "Monday")]))
        (interrupt,) = interrupts_of(second)
        assert (interrupt["message"], interrupt["reason"]) == ("How many?", "people")
        assert interrupt["metadata"]["tanstack:interruptBinding"]["interruptedRunId"] == "r2"
        third = await post(site, path, body_of(path, "r3", [resolve(interrupt, 3)]))
        statuses = [(await record_of(site, run))["status"] for run in ("r1", "r2", "r3")]
    assert gave(third) == {
        "place": "Rome",
        "day": ["resolved", "Monday"],
        "many": ["resolved", 3],
        "newest": 3,
        "all": {"day": "Monday", "many": 3},
    }
    assert gates.trail == ["", "day", "day,many"]
    assert names_of(second, "c") == HELD
    assert names_of(third, "c") == [*HELD, *END]
    assert third[-1]["outcome"] == {"type": "success"}
    assert statuses == ["interrupted", "interrupted", "completed"]


@PATHS
async def test_a_call_that_is_made_again_names_its_message_and_sends_no_arguments(path: str) -> None:
    async with serving(books, context=Gates()) as site:
        first = await post(site, path, body_of(path, "r1"))
        second = await post(site, path, body_of(path, "r2", [resolve(interrupts_of(first)[0], "Monday")]))
    start = next(event for event in second if event["type"] == "TOOL_CALL_START")
    assert start["toolCallId"] == "c"
    assert start["parentMessageId"] == ("a" if path == "/agents/tools" else "c")
    assert "TOOL_CALL_ARGS" not in names_of(second)


async def test_a_person_who_will_not_say_is_an_answer_that_the_tool_gets() -> None:
    async with serving(decides, context=Gates()) as site:
        first = await post(site, "/tools/decides", {"toolCallId": "c"})
        entry = {**resolve(interrupts_of(first)[0], status="cancelled"), "payload": {"admin": True}}
        second = await post(site, "/tools/decides", {"resume": [entry]})
    assert gave(second) == {"status": "cancelled", "payload": None}


@pytest.mark.parametrize("payload", [None, False, 0, "", [], {"a": [None]}, "x" * 100_000])
async def test_without_a_schema_every_payload_reaches_the_tool(payload: Any) -> None:
    async with serving(decides, context=Gates()) as site:
        (interrupt,) = interrupts_of(await post(site, "/tools/decides", {"toolCallId": "c"}))
        assert "responseSchema" not in interrupt
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
        second = await post(site, "/tools/decides", {"resume": [entry]})
    assert gave(second) == {"status": "resolved", "payload": payload}


async def test_the_arguments_are_those_of_the_first_run_whatever_the_tool_did_to_them() -> None:
    @tool
    async def spoils(ctx: ToolContext, rows: list[Any]) -> Any:
        """Changes what it was given, then asks."""
        seen = [dict(row) for row in rows]
        rows[0]["spoilt"] = True
        rows.append({})
        ctx.interrupt("Go on?")
        return seen

    async with serving(spoils) as site:
        for path in ("/tools/spoils", "/agents/tools"):
            given = {"rows": [{"n": 1}]}
            calls_ = agent_body(ask(("c", "spoils", given)), runId=f"1{path[1]}")
            first = await post(site, path, calls_ if path[1] == "a" else {"toolCallId": "c", "arguments": given})
            again = {"resume": [resolve(interrupts_of(first)[0])]}
            more = calls_ | again | {"runId": f"2{path[1]}"} if path[1] == "a" else again
            assert gave(await post(site, path, more)) == {"result": [{"n": 1}]}


async def test_the_clock_of_a_call_begins_anew_when_it_is_made_again() -> None:
    @tool(timeout=0.4)
    async def hurries(ctx: ToolContext) -> None:
        """Asks, then hangs."""
        ctx.interrupt("Go on?")
        await ctx.context["never"].wait()

    async with serving(hurries, context=Gates()) as site:
        first = await post(site, "/tools/hurries", {"toolCallId": "c"})
        second = await post(site, "/tools/hurries", {"resume": [resolve(interrupts_of(first)[0])]})
    assert result_of(second)["status"] == "timeout"


async def test_a_call_may_ask_in_both_ways() -> None:
    @tool
    async def both(ctx: ToolContext) -> dict[str, Any]:
        """Interrupts, then asks inside the open run."""
        before = ctx.input_response
        first = ctx.interrupt("First?", key="first").payload
        second = (await ctx.request_input("Second?")).payload
        newest = ctx.input_response
        assert newest is not None
        return {"before": before and before.payload, "all": [first, second], "newest": newest.payload}

    async with serving(both) as site:
        first = await post(site, "/tools/both", {"toolCallId": "c"})
        body = {"runId": "r", "resume": [resolve(interrupts_of(first)[0], 1)]}
        stream = Reader(await site.open("/tools/both", body, ME))
        await answered(site, await asked(stream), 2)
        assert gave(await stream.rest()) == {"before": 1, "all": [1, 2], "newest": 2}


async def test_who_resumes_may_be_another_client_of_the_session() -> None:
    async with serving(decides, context=Gates()) as site:
        first = await post(site, "/tools/decides", {"toolCallId": "c"})
        cookie = {"cookie": f"agui_session={ME['x-session-id']}"}
        second = await post(site, "/tools/decides", {"resume": [resolve(interrupts_of(first)[0], 1)]}, cookie)
    assert gave(second)["payload"] == 1


async def test_without_a_session_whoever_knows_the_question_resumes_it() -> None:
    async with serving(decides, context=Gates()) as site:
        first = await post(site, "/tools/decides", {"toolCallId": "c"}, {})
        second = await post(site, "/tools/decides", {"resume": [resolve(interrupts_of(first)[0], 1)]}, {})
    assert gave(second)["payload"] == 1


# -- the interrupt on its way out of the tool --


@tool(name="asks_out")
async def catches(ctx: ToolContext) -> Any:
    """Catches every Exception."""
    try:
        return ctx.interrupt("Out?").payload
    except Exception:  # noqa: BLE001 - that is the point
        return "swallowed"


@tool(name="asks_out")
def catches_in_a_thread(ctx: ToolContext) -> Any:
    """Catches every Exception, in a thread."""
    try:
        return ctx.interrupt("Out?").payload
    except Exception:  # noqa: BLE001 - that is the point
        return "swallowed"


@tool(name="asks_out")
async def yields(ctx: ToolContext) -> AsyncIterator[Any]:
    """Yields before and after."""
    yield {"before": True}
    yield {"payload": ctx.interrupt("Out?").payload}


@tool(name="asks_out")
def yields_in_a_thread(ctx: ToolContext) -> Iterator[Any]:
    """Yields before and after, in a thread."""
    yield {"before": True}
    yield {"payload": ctx.interrupt("Out?").payload}


@tool(name="asks_out")
async def in_a_task_group(ctx: ToolContext) -> Any:
    """Asks in a task of a group, next to one that would never end."""
    told: list[Any] = []

    async def asking() -> None:
        told.append(ctx.interrupt("Out?").payload)
        other.cancel()

    async with asyncio.TaskGroup() as group:
        other = group.create_task(asyncio.Event().wait())
        group.create_task(asking())
    return told[0]


@tool(name="asks_out")
async def in_two_task_groups(ctx: ToolContext) -> Any:
    """Asks two groups deep, while another task of the group fails."""

    async def fails() -> None:
        raise ValueError("no luck")

    async def asking() -> Any:
        async with asyncio.TaskGroup() as inner:
            task = inner.create_task(asks_now())
        return task.result()

    async def asks_now() -> Any:
        return ctx.interrupt("Out?").payload

    if ctx.input_response is not None:
        return await asking()
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
        group.create_task(asking())
    return "not seen"


@tool(name="asks_out")
async def under_a_timeout(ctx: ToolContext) -> Any:
    """Asks inside a time limit, gathered."""
    async with asyncio.timeout(20):
        found, _ = await asyncio.gather(self_asking(ctx), asyncio.sleep(0))
    return found


async def self_asking(ctx: ToolContext) -> Any:
    return ctx.interrupt("Out?").payload


@tool(name="asks_out")
async def in_run_detachable(ctx: ToolContext) -> Any:
    """Asks in work that could move to the background."""
    return await ctx.run_detachable(self_asking(ctx))


@tool(name="asks_out")
async def by_hand(ctx: ToolContext) -> Any:
    """Raises it itself."""
    if ctx.input_response is None:
        raise Interrupt("Out?", key="own")
    return ctx.input_responses["own"].payload


WAYS_OUT = [
    catches,
    catches_in_a_thread,
    yields,
    yields_in_a_thread,
    in_a_task_group,
    in_two_task_groups,
    under_a_timeout,
    in_run_detachable,
    by_hand,
]


@pytest.mark.parametrize("made", WAYS_OUT, ids=lambda made: made.func.__name__)
@pytest.mark.parametrize("around", [True, False], ids=["with middleware", "without"])
async def test_an_interrupt_gets_out_of_every_kind_of_tool_and_the_answer_gets_in(made: Any, around: bool) -> None:
    trail: list[str] = []

    async def careful(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        trail.append("before")
        try:
            return await call_next(call)
        except Exception:
            trail.append("caught")
            raise
        finally:
            trail.append("after")

    async with serving(made, middleware=[careful] if around else []) as site:
        first = await post(site, "/tools/asks_out", {"toolCallId": "c"})
        assert interrupts_of(first)[0]["message"] == "Out?"
        second = await post(site, "/tools/asks_out", {"resume": [resolve(interrupts_of(first)[0], "in")]})
    value = result_of(second)
    assert value["status"] == "completed"
    assert "in" in (text_of(value), value.get("structuredContent", {}).get("payload"))
    assert trail == (["before", "after"] * 2 if around else [])


async def test_a_middleware_may_interrupt_too_and_the_tool_is_not_reached() -> None:
    gates = Gates()

    async def asks_first(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        given = ctx.interrupt("Which text?", {"type": "string"}, key="text")
        return await call_next(ToolCall(call.name, {"text": given.payload}))

    async with serving(echo, context=gates, middleware=[asks_first]) as site:
        first = await post(site, "/tools/echo", {"toolCallId": "c"})
        assert not gates.executions
        second = await post(site, "/tools/echo", {"resume": [resolve(interrupts_of(first)[0], "theirs")]})
    assert gave(second) == {"text": "theirs"}


async def test_a_middleware_that_answers_for_the_tool_has_answered_for_it() -> None:
    async def swallows(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except BaseException as error:  # noqa: BLE001 - it wants them all
            return f"instead of {type(error).__name__}"

    async with serving(decides, context=Gates(), middleware=[swallows]) as site:
        events = await post(site, "/tools/decides", {"toolCallId": "c"})
    assert text_of(result_of(events)) == "instead of Interrupt"
    assert events[-1]["outcome"] == {"type": "success"}


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no message": (lambda ctx: ctx.interrupt(""), TypeError),
    "a message that is none": (lambda ctx: ctx.interrupt(5), TypeError),
    "no key": (lambda ctx: ctx.interrupt("q", key=""), TypeError),
    "a key that is none": (lambda ctx: ctx.interrupt("q", key=None), TypeError),
    "no reason": (lambda ctx: ctx.interrupt("q", reason=""), TypeError),
    "the gateway's own key": (lambda ctx: ctx.interrupt("q", key="gateway.approval"), ValueError),
    "a schema that is a list": (lambda ctx: ctx.interrupt("q", ["a"]), TypeError),
    "a schema that means nothing": (lambda ctx: ctx.interrupt("q", {"type": "nonsense"}), ValueError),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_an_interrupt_that_is_none_raises_in_the_tool_and_nobody_is_asked(kind: str) -> None:
    act, error = WRONG[kind]

    @tool
    async def asks_wrongly(ctx: ToolContext) -> str:
        """Asks what cannot be asked."""
        with pytest.raises(error):
            act(ctx)
        return "raised"

    async with serving(asks_wrongly) as site:
        assert text_of(result_of(await post(site, "/tools/asks_wrongly", {"toolCallId": "c"}))) == "raised"


@pytest.mark.parametrize(
    "made",
    [
        Interrupt("q", {"type": "nonsense"}),
        Interrupt("q", key="gateway.approval"),
        Interrupt("q", ["a"]),  # type: ignore[arg-type]
        Interrupt(5),  # type: ignore[arg-type]
        Interrupt("q", key=5),  # type: ignore[arg-type]
    ],
    ids=["schema", "key", "list", "message", "number"],
)
async def test_an_interrupt_made_by_hand_that_is_none_fails_the_call(made: Interrupt) -> None:
    @tool
    async def raises(ctx: ToolContext) -> None:
        """Raises an interrupt that cannot be asked."""
        raise made

    async with serving(raises) as site:
        events = await post(site, "/tools/raises", {"toolCallId": "c"})
    assert result_of(events)["status"] == "failed"
    assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("how", ["asks", "by hand"])
async def test_a_nested_call_cannot_interrupt(how: str) -> None:
    @tool
    async def inner(ctx: ToolContext) -> str:
        """Tries to."""
        if how == "by hand":
            raise Interrupt("Inside?")
        with pytest.raises(NotAvailable, match="request_input"):
            ctx.interrupt("Inside?")
        return "cannot"

    async with serving(calls, inner) as site:
        body = {"toolCallId": "c", "arguments": {"name": "inner", "arguments": {}}}
        for headers in (ME, ME | JSON):
            answer_ = await site.client.post("/tools/calls", json=body, headers=headers)
            json = "json" in answer_.headers["content-type"]
            said = answer_.json()["structuredContent"] if json else gave(events_of(answer_.content))
            assert said["status"] == ("failed" if how == "by hand" else "completed")
