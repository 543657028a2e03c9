"""Questions inside an open run: what a person sees of them, and how an answer gets back to the tool."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway import ToolCall, ToolContext, tool
from tests.execution.running import quiet
from tests.http.asking import ASYNC, Gates, Reader, agent_body, ask, echo, error_of, waits
from tests.http.people import (
    END,
    NAME,
    START,
    a_question,
    answer,
    answered,
    asked,
    asks,
    asks_freely,
    asks_in_a_thread,
    asks_several,
    calls,
    check_published,
    gave,
    names_of,
    post,
    record_of,
    result_of,
    text_of,
)
from tests.http.site import ME, SOMEBODY_ELSE, serving

COOKIE = {"cookie": f"agui_session={ME['x-session-id']}"}


@tool
async def waits_for_user(ctx: ToolContext, message: str | None = None) -> str:
    """Waits until the person has done something elsewhere."""
    async with ctx.waiting_for_user(message):
        await ctx.context["done"].wait()
    ctx.emit_custom_event("goes on", {})
    await ctx.context["end"].wait()
    return "seen"


# -- asking and answering --


@pytest.mark.parametrize("kind", [asks, asks_in_a_thread], ids=["async", "thread"])
@pytest.mark.parametrize("path", ["/tools/asks", "/agents/tools"])
async def test_a_tool_asks_inside_the_open_run_and_goes_on_with_the_answer(kind: Any, path: str) -> None:
    body = agent_body(ask(("c", "asks", {}))) if path == "/agents/tools" else {"runId": "r", "toolCallId": "c"}
    async with serving(kind) as site:
        stream = Reader(await site.open(path, body, ME))
        waiting = await asked(stream)
        assert set(waiting) == {"toolCallId", "toolName", "message", "interruptId", "responseSchema", "since"}
        assert (waiting["toolCallId"], waiting["toolName"]) == ("c", "asks")
        assert (waiting["message"], waiting["responseSchema"]) == ("Who are you?", NAME)
        done = await answer(site, waiting["interruptId"], {"name": "Ada"})
        assert done.status_code == 202
        assert (done.json()["runId"], done.json()["toolCalls"][0]["toolCallId"]) == ("r", "c")
        events = await stream.rest()
    assert gave(events) == {"status": "resolved", "resolved": True, "payload": {"name": "Ada"}}
    start = START if path == "/tools/asks" else ["TOOL_CALL_START", "TOOL_CALL_END"]
    assert names_of(events, "c") == [*start, "tool.waiting", "tool.resumed", *END]
    resumed = next(event["value"] for event in events if event.get("name") == "tool.resumed")
    check_published("tool.resumed", resumed)
    assert set(resumed) == {"toolCallId", "toolName", "waitedMs", "interruptId"}
    assert (resumed["toolCallId"], resumed["interruptId"]) == ("c", waiting["interruptId"])
    assert events[-1]["outcome"] == {"type": "success"}


async def test_a_person_who_will_not_say_is_an_answer_without_a_payload() -> None:
    async with a_question(asks) as (site, stream, waiting):
        await answered(site, waiting, status="cancelled")
        events = await stream.rest()
    assert gave(events) == {"status": "cancelled", "resolved": False, "payload": None}


async def test_what_comes_with_a_cancelled_answer_was_checked_by_nobody_and_reaches_no_tool() -> None:
    async with a_question(asks) as (site, stream, waiting):
        await answered(site, waiting, {"name": 5, "admin": True}, "cancelled")
        events = await stream.rest()
    assert gave(events)["payload"] is None


@pytest.mark.parametrize("payload", [None, False, 0, -1.5, "", "text", [], {}, {"a": [{"b": None}]}, "x" * 100_000])
async def test_a_question_without_a_schema_takes_every_payload(payload: Any) -> None:
    async with a_question(asks_freely) as (site, stream, waiting):
        assert "responseSchema" not in waiting
        await answered(site, waiting, payload)
        events = await stream.rest()
    assert gave(events) == {"status": "resolved", "payload": payload}


async def test_an_answer_may_come_without_a_payload() -> None:
    async with a_question(asks_freely) as (site, stream, waiting):
        body = {"interruptId": waiting["interruptId"], "status": "resolved"}
        assert (await site.client.post("/runs/r/input", json=body, headers=ME)).status_code == 202
        events = await stream.rest()
    assert gave(events) == {"status": "resolved", "payload": None}


class Person(BaseModel):
    name: str
    age: int


async def test_a_schema_may_be_a_model() -> None:
    @tool
    async def asks_for_a_person(ctx: ToolContext) -> Any:
        """Asks for a person."""
        return (await ctx.request_input("Who?", Person)).payload

    async with a_question(asks_for_a_person) as (site, stream, waiting):
        assert waiting["responseSchema"] == Person.model_json_schema()
        error_of(await answer(site, waiting["interruptId"], {"name": "Ada"}), 422, "invalid_payload")
        await answered(site, waiting, {"name": "Ada", "age": 36})
        events = await stream.rest()
    assert gave(events) == {"name": "Ada", "age": 36}


WRONG = {
    "a message that is none": ((5, None), TypeError),
    "a schema that is a list": (("q", ["name"]), TypeError),
    "a schema that is a class": (("q", int), TypeError),
    "a schema that means nothing": (("q", {"type": "nonsense"}), ValueError),
    "a schema that JSON cannot hold": (("q", {"default": object()}), ValueError),
    "a schema of elsewhere": (("q", {"$ref": "https://schemas.example/name"}), ValueError),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_a_question_that_is_none_raises_in_the_tool_and_nobody_sees_it(kind: str) -> None:
    given, error = WRONG[kind]

    @tool
    async def asks_wrongly(ctx: ToolContext) -> str:
        """Asks what cannot be asked."""
        asks_any: Any = ctx.request_input
        with pytest.raises(error):
            await asks_any(*given)
        return "raised"

    async with serving(asks_wrongly) as site:
        events = await post(site, "/tools/asks_wrongly", {"toolCallId": "c"})
    assert text_of(result_of(events)) == "raised"
    assert names_of(events, "c") == [*START, *END]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_several_questions_of_one_call_are_open_at_once_and_answered_in_any_order(order: Sequence[int]) -> None:
    names = ["one", "two", "three"]
    body = {"runId": "r", "toolCallId": "c", "arguments": {"names": names}}
    async with serving(asks_several) as site:
        stream = Reader(await site.open("/tools/asks_several", body, ME))
        questions = [await asked(stream) for _ in names]
        assert [waiting["message"] for waiting in questions] == names
        assert len({waiting["interruptId"] for waiting in questions}) == 3
        for place in order:
            record = await record_of(site)
            assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
            await answered(site, questions[place], place)
            resumed = await stream.until("tool.resumed")
            assert resumed["value"]["interruptId"] == questions[place]["interruptId"]
        events = await stream.rest()
    assert gave(events) == {"one": 0, "two": 1, "three": 2}


async def test_a_tool_asks_one_thing_after_the_other() -> None:
    @tool
    async def asks_on(ctx: ToolContext) -> list[Any]:
        """Asks until it is told to stop."""
        told: list[Any] = []
        while not told or told[-1] != "stop":
            told.append((await ctx.request_input(f"{len(told)}?")).payload)
        return told

    async with a_question(asks_on) as (site, stream, waiting):
        for number, said in enumerate(("a", "b", "stop")):
            assert waiting["message"] == f"{number}?"
            await answered(site, waiting, said)
            if said != "stop":
                waiting = await asked(stream)
        events = await stream.rest()
    assert gave(events) == {"result": ["a", "b", "stop"]}
    assert names_of(events, "c") == [*START, *["tool.waiting", "tool.resumed"] * 3, *END]


async def test_each_of_two_calls_gets_the_answer_to_its_own_question() -> None:
    async with serving(asks_freely, waits, context=Gates()) as site:
        body = agent_body(ask(("c1", "asks_freely", {}), ("c2", "asks_freely", {}), ("c3", "waits", {"name": "go"})))
        stream = Reader(await site.open("/agents/tools", body, ME))
        questions = {waiting["toolCallId"]: waiting for waiting in [await asked(stream), await asked(stream)]}
        await answered(site, questions["c2"], "second")
        await stream.until("TOOL_CALL_RESULT")
        record = await record_of(site)
        assert record["status"] == "waiting", "one of them still waits"
        assert [call["status"] for call in record["toolCalls"]] == ["waiting", "completed", "running"]
        await answered(site, questions["c1"], "first")
        await stream.until("TOOL_CALL_RESULT")
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][2]["status"]) == ("running", "running")
        site.gateway._context["go"].set()
        events = await stream.rest()
    assert (gave(events, "c1")["payload"], gave(events, "c2")["payload"]) == ("first", "second")


@pytest.mark.parametrize("headers", [ME, COOKIE], ids=["header", "cookie"])
async def test_another_client_of_the_session_sees_the_question_and_answers_it(headers: dict[str, str]) -> None:
    async with a_question(asks) as (site, stream, first):
        other = Reader(await site.open("/runs/r/events", None, headers))
        waiting = await asked(other)
        assert waiting == first
        async with httpx.AsyncClient(base_url=site.client.base_url, trust_env=False) as client:
            body = {"interruptId": waiting["interruptId"], "status": "resolved", "payload": {"name": "Ada"}}
            assert (await client.post("/runs/r/input", json=body, headers=headers)).status_code == 202
        assert await other.rest() == await stream.rest()
    assert gave(other.events)["payload"] == {"name": "Ada"}


async def test_who_leaves_and_comes_back_can_still_answer() -> None:
    async with a_question(asks) as (site, stream, waiting):
        stream.stream.leave()
        await quiet(lambda: not len(site.engine.viewers))
        assert (await record_of(site))["status"] == "waiting"
        again = Reader(await site.open("/runs/r/events", None, ME))
        assert await asked(again) == waiting
        await answered(site, waiting, {"name": "Ada"})
        events = await again.rest()
    assert gave(events)["payload"] == {"name": "Ada"}


async def test_whoever_knows_the_id_of_a_run_without_an_owner_may_answer_it() -> None:
    async with serving(asks) as site:
        stream = Reader(await site.open("/tools/asks", {"runId": "r", "toolCallId": "c"}))
        waiting = await asked(stream)
        await answered(site, waiting, {"name": "Ada"}, headers=SOMEBODY_ELSE)
        events = await stream.rest()
    assert gave(events)["payload"] == {"name": "Ada"}


async def test_a_background_run_asks_too_and_is_answered_by_who_looks() -> None:
    async with serving(asks) as site:
        started = await site.client.post("/tools/asks", json={"runId": "r", "toolCallId": "c"}, headers=ME | ASYNC)
        assert started.status_code == 202
        stream = Reader(await site.open("/runs/r/events", None, ME))
        await answered(site, await asked(stream), {"name": "Ada"})
        assert (await record_of(site, over=True))["status"] == "completed"
        assert gave(await stream.rest())["payload"] == {"name": "Ada"}


async def test_a_nested_call_asks_through_the_open_run() -> None:
    body = {"runId": "r", "toolCallId": "c", "arguments": {"name": "asks", "arguments": {"question": "Inside?"}}}
    async with serving(calls, asks) as site:
        stream = Reader(await site.open("/tools/calls", body, ME))
        waiting = await asked(stream)
        assert (waiting["toolCallId"], waiting["toolName"], waiting["message"]) == ("c/1", "asks", "Inside?")
        assert stream.events[-1]["metadata"] == {"parentToolCallId": "c"}
        assert (await record_of(site))["status"] == "waiting"
        await answered(site, waiting, {"name": "Ada"})
        events = await stream.rest()
    assert gave(events)["content"]["payload"] == {"name": "Ada"}
    resumed = next(event for event in events if event.get("name") == "tool.resumed")
    assert (resumed["value"]["toolCallId"], resumed["metadata"]) == ("c/1", {"parentToolCallId": "c"})


async def test_a_middleware_may_ask_before_the_call_goes_on() -> None:
    async def asks_first(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        given = await ctx.request_input("What text?")
        return await call_next(ToolCall(call.name, {"text": given.payload}))

    async with a_question(echo, middleware=[asks_first]) as (site, stream, waiting):
        await answered(site, waiting, "theirs")
        events = await stream.rest()
    assert gave(events) == {"text": "theirs"}


# -- the record --


async def test_a_run_that_waits_says_so_in_its_record_and_its_list_and_runs_again_afterwards() -> None:
    gates = Gates()

    @tool
    async def asks_between(ctx: ToolContext) -> None:
        """Works, asks, works."""
        await gates["before"].wait()
        await ctx.request_input("Go on?")
        await gates["after"].wait()

    async def listed(status: str) -> list[str]:
        found = await site.client.get("/runs", params={"status": status}, headers=ME)
        return [item["runId"] for item in found.json()["items"]]

    async with serving(asks_between) as site:
        stream = Reader(await site.open("/tools/asks_between", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("TOOL_CALL_END")
        assert (await record_of(site))["status"] == "running"
        gates["before"].set()
        waiting = await asked(stream)
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
        assert "endedAt" not in record
        assert "endedAt" not in record["toolCalls"][0]
        assert (await listed("waiting"), await listed("running"), await listed("interrupted")) == (["r"], [], [])
        await answered(site, waiting)
        await stream.until("tool.resumed")
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("running", "running")
        assert (await listed("waiting"), await listed("running")) == ([], ["r"])
        gates["after"].set()
        await stream.rest()
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("completed", "completed")


async def test_waiting_for_user_says_that_it_waits_and_cannot_be_answered() -> None:
    gates = Gates()
    async with serving(waits_for_user, context=gates) as site:
        body = {"runId": "r", "toolCallId": "c", "arguments": {"message": "Look at your phone."}}
        stream = Reader(await site.open("/tools/waits_for_user", body, ME))
        waiting = await asked(stream)
        assert set(waiting) == {"toolCallId", "toolName", "message", "since"}
        assert waiting["message"] == "Look at your phone."
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
        gates["done"].set()
        resumed = (await stream.until("tool.resumed"))["value"]
        check_published("tool.resumed", resumed)
        assert set(resumed) == {"toolCallId", "toolName", "waitedMs"}
        await stream.until("goes on")
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("running", "running")
        gates["end"].set()
        events = await stream.rest()
    assert text_of(result_of(events)) == "seen"


async def test_waiting_for_user_needs_no_message_and_takes_no_other_thing_for_one() -> None:
    @tool
    async def waits_shortly(ctx: ToolContext) -> str:
        """Waits without a word, then wrongly."""
        async with ctx.waiting_for_user():
            pass
        wrong: Any = 5
        try:
            async with ctx.waiting_for_user(wrong):
                return "waited"
        except TypeError:
            return "TypeError"

    async with serving(waits_shortly) as site:
        events = await post(site, "/tools/waits_shortly", {"toolCallId": "c"})
    waiting = [event["value"] for event in events if event.get("name") == "tool.waiting"]
    assert [set(value) for value in waiting] == [{"toolCallId", "toolName", "since"}]
    assert text_of(result_of(events)) == "TypeError"


async def test_a_tool_that_fails_while_it_waits_has_waited_and_fails() -> None:
    @tool
    async def fails(ctx: ToolContext) -> None:
        """Fails in the middle."""
        async with ctx.waiting_for_user("Wait."):
            raise ValueError("no luck")

    async with serving(fails) as site:
        events = await post(site, "/tools/fails", {"runId": "r", "toolCallId": "c"})
        assert (await record_of(site))["status"] == "completed"
    assert names_of(events, "c") == [*START, "tool.waiting", "tool.resumed", *END]
    assert text_of(result_of(events)) == "Error [failed]: no luck"


@pytest.mark.parametrize("how", ["asks", "waits"])
async def test_the_last_progress_is_seen_before_the_call_waits(how: str) -> None:
    @tool
    async def reports(ctx: ToolContext) -> None:
        """Reports quickly, then asks."""
        for number in range(100):
            ctx.report_progress(number, 100)
        ctx.emit_custom_event("asks now", {})
        if how == "asks":
            await ctx.request_input("Go on?")
        else:
            async with ctx.waiting_for_user():
                ctx.report_progress(100, 100)

    async with serving(reports) as site:
        stream = Reader(await site.open("/tools/reports", {"runId": "r", "toolCallId": "c"}, ME))
        waiting = await asked(stream)
        before = itertools.takewhile(lambda event: event.get("name") != "tool.waiting", stream.events)
        seen = [event["value"]["progress"] for event in before if event.get("name") == "tool.progress"]
        assert seen == sorted(seen)
        assert seen[-1] == 99, "what was reported before the question is seen before it"
        if how == "asks":
            await answered(site, waiting)
        events = await stream.rest()
    names = names_of(events, "c")
    assert names.index("asks now") < names.index("tool.waiting")
    after = [event["value"]["progress"] for event in events if event.get("name") == "tool.progress"][len(seen) :]
    assert after == ([] if how == "asks" else [100])


# -- the clock --

SHORT = 0.4  # seconds: long enough to ask in


@tool(timeout=SHORT)
async def takes_its_time(ctx: ToolContext, how: str) -> str:
    """Asks, or not; then works for longer than it may take."""
    if how == "asks":
        await ctx.request_input("Go on?")
    elif how == "waits":
        async with ctx.waiting_for_user():
            await ctx.context["done"].wait()
    await asyncio.sleep(1.5 * SHORT)
    return "done"


@tool(timeout=SHORT)
def takes_its_time_in_a_thread(ctx: ToolContext) -> str:
    """The same, in a thread."""
    ctx.request_input_sync("Go on?")
    threading.Event().wait(1.5 * SHORT)
    return "done"


@pytest.mark.parametrize("how", ["asks", "waits", "asks in a thread", "works"])
async def test_the_clock_of_a_call_stops_for_good_once_it_waits_for_the_person(how: str) -> None:
    gates = Gates()
    name = "takes_its_time_in_a_thread" if how == "asks in a thread" else "takes_its_time"
    arguments = {} if how == "asks in a thread" else {"how": how}
    async with serving(takes_its_time, takes_its_time_in_a_thread, context=gates) as site:
        body = {"runId": "r", "toolCallId": "c", "arguments": arguments}
        stream = Reader(await site.open(f"/tools/{name}", body, ME))
        if how != "works":
            waiting = await asked(stream)
            still = await site.client.get("/runs/r", params={"wait": str(1.5 * SHORT)}, headers=ME)
            assert still.json()["status"] == "waiting", "its time is up, and nothing happens"
            gates["done"].set()
            if how != "waits":
                await answered(site, waiting)
        events = await stream.rest()
    assert result_of(events)["status"] == ("timeout" if how == "works" else "completed")


@pytest.mark.parametrize("waits_inside", [True, False])
async def test_the_clock_of_the_parent_stops_too_when_a_nested_call_waits(waits_inside: bool) -> None:
    how = "asks" if waits_inside else "works"
    arguments = {"name": "takes_its_time", "arguments": {"how": how}, "timeout": 0 if how == "works" else None}
    async with serving(calls, takes_its_time) as site:
        body = {"runId": "r", "toolCallId": "c", "timeout": SHORT, "arguments": arguments}
        stream = Reader(await site.open("/tools/calls", body, ME))
        if waits_inside:
            waiting = await asked(stream)
            still = await site.client.get("/runs/r", params={"wait": str(1.5 * SHORT)}, headers=ME)
            assert still.json()["status"] == "waiting"
            await answered(site, waiting)
        events = await stream.rest()
    if waits_inside:
        assert gave(events)["text"] == "done"
    else:
        assert result_of(events)["status"] == "timeout"


async def test_the_time_limit_of_a_run_does_not_count_while_it_waits() -> None:
    async with a_question(asks, run_timeout=2.5 * SHORT) as (site, stream, waiting):
        still = await site.client.get("/runs/r", params={"wait": str(3.5 * SHORT)}, headers=ME)
        assert still.json()["status"] == "waiting"
        await answered(site, waiting, {"name": "Ada"})
        events = await stream.rest()
    assert events[-1]["type"] == "RUN_FINISHED"


# -- every answer arrives as it was sent --

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=25)
@given(payloads=st.lists(JSON_VALUES, min_size=1, max_size=4), orders=st.randoms(use_true_random=False))
def test_every_payload_reaches_the_question_that_it_answers_as_it_was_sent(payloads: list[Any], orders: Any) -> None:
    names = [str(number) for number in range(len(payloads))]

    async def scenario() -> None:
        body = {"runId": "r", "toolCallId": "c", "arguments": {"names": names}}
        async with a_question(asks_several, body=body) as (site, stream, first):
            questions = [first, *[await asked(stream) for _ in names[1:]]]
            places = list(range(len(names)))
            orders.shuffle(places)
            for place in places:
                await answered(site, questions[place], payloads[place])
            events = await stream.rest()
        assert gave(events) == dict(zip(names, payloads, strict=True))

    asyncio.run(scenario())
