"""Approvals: nothing runs before a person has said yes, and what runs is what the person has said yes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway import CANCELLED, AccessDenied, ToolCall, ToolContext, call_tool, tool
from gateway.wire.canonical import sha256_of
from tests.http.asking import ASYNC, JSON, Gates, Reader, agent_body, ask, error_of, events_of, waits
from tests.http.people import (
    END,
    HELD,
    START,
    answer,
    answered,
    approve,
    asked,
    calls,
    gave,
    interrupts_of,
    names_of,
    post,
    record_of,
    resolve,
    result_of,
    results_of,
    text_of,
)
from tests.http.process_tools import deletes_in_a_process
from tests.http.site import ME, SOMEBODY_ELSE, serving

ROWS = {"rows": ["a", "b"]}
OPEN = {"gateway": {"input": "open"}}
DECLINED = "Error [denied]: The person declined this call."
YES, NO = {"approved": True}, {"approved": False}


@tool(needs_approval=True)
async def deletes(ctx: ToolContext, rows: list[str], force: bool = False) -> dict[str, Any]:
    """Deletes rows."""
    if isinstance(ctx.context, Gates):
        ctx.context.executions["deletes"] += 1
    return {"deleted": rows, "force": force}


@tool(name="deletes", needs_approval=True)
def deletes_in_a_thread(rows: list[str], force: bool = False) -> dict[str, Any]:
    """Deletes rows, in a thread."""
    return {"deleted": rows, "force": force}


@tool(name="deletes", needs_approval=True)
async def deletes_and_yields(rows: list[str], force: bool = False) -> AsyncIterator[dict[str, Any]]:
    """Deletes rows, and says so on the way."""
    yield {"deleted": [], "force": force}
    yield {"deleted": rows, "force": force}


@tool(name="deletes", needs_approval=True)
def deletes_and_yields_in_a_thread(rows: list[str], force: bool = False) -> Iterator[dict[str, Any]]:
    """Deletes rows, and says so on the way, in a thread."""
    yield {"deleted": [], "force": force}
    yield {"deleted": rows, "force": force}


KINDS = [deletes, deletes_in_a_thread, deletes_in_a_process, deletes_and_yields, deletes_and_yields_in_a_thread]
EVERY_KIND = pytest.mark.parametrize("made", KINDS, ids=lambda made: made.func.__name__)


def agent(run: str = "r", *entries: Any, arguments: Any = None, name: str = "deletes", **more: Any) -> dict[str, Any]:
    """A request to agent `tools` for one call `c`, perhaps one that resumes."""
    resume = {"resume": list(entries)} if entries else {}
    return agent_body(ask(("c", name, ROWS if arguments is None else arguments)), runId=run, **resume, **more)


def tool_run(run: str = "r", **arguments: Any) -> dict[str, Any]:
    return {"runId": run, "threadId": "t", "toolCallId": "c", "arguments": arguments or ROWS}


# -- what a person is asked --


async def test_an_agents_call_that_needs_an_approval_ends_the_run_before_anything_has_run() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        events = await post(site, "/agents/tools", agent())
        record = await record_of(site)
    (interrupt,) = interrupts_of(events)
    assert (interrupt["reason"], interrupt["message"]) == ("tool_call", 'May "deletes" run?')
    assert interrupt["toolCallId"] == "c"
    assert interrupt["metadata"] == {
        "toolName": "deletes",
        "input": ROWS,
        "tanstack:interruptBinding": {
            "v": 1,
            "kind": "generic",
            "interruptId": interrupt["id"],
            "interruptedRunId": "r",
            "generation": 0,
            "responseSchemaHash": sha256_of(interrupt["responseSchema"]),
        },
    }
    schema = interrupt["responseSchema"]
    assert {name: kind["type"] for name, kind in schema["properties"].items()} == {
        "approved": "boolean",
        "arguments": "object",
        "message": "string",
    }
    assert schema["properties"]["arguments"]["default"] == ROWS
    assert (schema["required"], schema["additionalProperties"]) == (["approved"], False)
    assert names_of(events, "c") == HELD
    assert record["toolCalls"][0]["status"] == "interrupted"
    assert not gates.executions


async def test_a_tool_run_that_needs_an_approval_asks_inside_the_open_run() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
        waiting = await asked(stream)
        assert waiting["message"] == 'May "deletes" run?'
        assert waiting["responseSchema"]["properties"]["arguments"]["default"] == ROWS
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
        assert not gates.executions
        await answered(site, waiting, YES)
        events = await stream.rest()
    assert gave(events) == {"deleted": ["a", "b"], "force": False}
    assert names_of(events, "c") == [*START, "tool.waiting", "tool.resumed", *END]
    assert gates.executions["deletes"] == 1


@pytest.mark.parametrize("props", [{}, {"gateway": {}}, {"gateway": {"input": "interrupt"}}, OPEN])
async def test_a_request_to_an_agent_may_ask_to_be_asked_inside_the_open_run(props: dict[str, Any]) -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        stream = Reader(await site.open("/agents/tools", agent(forwardedProps=props), ME))
        if props is OPEN:
            await answered(site, await asked(stream), YES)
        events = await stream.rest()
    if props is OPEN:
        assert gave(events)["deleted"] == ["a", "b"]
    else:
        assert interrupts_of(events)[0]["reason"] == "tool_call"
        assert not gates.executions


async def test_an_unknown_way_to_be_asked_is_a_bad_request() -> None:
    async with serving(deletes) as site:
        body = agent(forwardedProps={"gateway": {"input": "mail"}})
        error = error_of(await site.client.post("/agents/tools", json=body, headers=ME), 400, "invalid_request")
    assert error["details"][0]["field"] == "forwardedProps.gateway.input"


async def test_a_background_run_asks_for_its_approval_too() -> None:
    async with serving(deletes, context=Gates()) as site:
        started = await site.client.post("/tools/deletes", json=tool_run(), headers=ME | ASYNC)
        assert started.status_code == 202
        stream = Reader(await site.open("/runs/r/events", None, ME))
        await answered(site, await asked(stream), YES)
        assert gave(await stream.rest())["deleted"] == ["a", "b"]


NOT_TO_BE_MADE: dict[str, tuple[str, Any, str]] = {
    "arguments that do not fit": ("deletes", {"rows": 5}, "invalid_arguments"),
    "arguments that are missing": ("deletes", {}, "invalid_arguments"),
    "arguments that there are not": ("deletes", {**ROWS, "more": 1}, "invalid_arguments"),
    "arguments that are no JSON": ("deletes", "{", "invalid_arguments"),
    "no such tool": ("nothing", {}, "unavailable"),
}


@pytest.mark.parametrize("kind", NOT_TO_BE_MADE)
@pytest.mark.parametrize("props", [{}, OPEN], ids=["interrupt", "open"])
async def test_nobody_is_asked_about_a_call_that_cannot_be_made(kind: str, props: dict[str, Any]) -> None:
    name, arguments, code = NOT_TO_BE_MADE[kind]
    async with serving(deletes) as site:
        body = agent_body(ask(("c", name, arguments)), forwardedProps=props)
        events = await post(site, "/agents/tools", body)
    assert result_of(events)["error"]["code"] == code
    assert names_of(events, "c") == [*HELD, *END]


# -- yes --


@EVERY_KIND
@pytest.mark.parametrize("how", ["interrupt", "open", "json"])
@pytest.mark.allow_blocking  # a process is started on the loop
async def test_every_kind_of_tool_runs_once_approved_and_only_then(made: Any, how: str) -> None:
    gates = Gates()

    async def counts(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        gates.executions["came back"] += 1
        return output

    async with serving(made, middleware=[counts]) as site:
        if how == "open":
            stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
            waiting = await asked(stream)
            assert not gates.executions
            await answered(site, waiting, YES)
            found = gave(await stream.rest())
        elif how == "interrupt":
            first = await post(site, "/agents/tools", agent())
            assert not gates.executions
            assert "deleting" not in names_of(first)
            found = gave(await post(site, "/agents/tools", agent("r2", approve(interrupts_of(first)[0]))))
        else:
            said = (await site.client.post("/tools/deletes", json=tool_run(), headers=ME | JSON)).json()
            assert (said["status"], said["runId"], said["toolCallId"]) == ("interrupted", "r", "c")
            assert said["interrupts"][0]["reason"] == "tool_call"
            assert not gates.executions
            body = {"runId": "r2", "resume": [approve(said["interrupts"][0])]}
            found = (await site.client.post("/tools/deletes", json=body, headers=ME | JSON)).json()["structuredContent"]
    assert found == {"deleted": ["a", "b"], "force": False}
    assert gates.executions["came back"] == 1


@EVERY_KIND
@pytest.mark.parametrize("how", ["interrupt", "open"])
@pytest.mark.allow_blocking  # a process is started on the loop
async def test_approved_with_other_arguments_it_runs_with_those_as_a_whole(made: Any, how: str) -> None:
    edited = {"approved": True, "arguments": {"rows": ["c"]}}
    first: dict[str, Any] = {"rows": ["a"], "force": True}
    async with serving(made) as site:
        if how == "open":
            stream = Reader(await site.open("/tools/deletes", tool_run(**first), ME))
            await answered(site, await asked(stream), edited)
            events = await stream.rest()
            args = "".join(event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS")
            assert '"a"' in args, "what the model asked for stays what it asked for"
        else:
            before = await post(site, "/agents/tools", agent(arguments=first))
            events = await post(site, "/agents/tools", agent("r2", resolve(interrupts_of(before)[0], edited)))
    assert gave(events) == {"deleted": ["c"], "force": False}


@pytest.mark.parametrize("how", ["interrupt", "open"])
async def test_a_message_beside_a_yes_changes_nothing(how: str) -> None:
    said = {"approved": True, "message": "Error: go ahead"}
    async with serving(deletes) as site:
        stream = Reader(await site.open("/agents/tools", agent(forwardedProps=OPEN if how == "open" else {}), ME))
        if how == "open":
            await answered(site, await asked(stream), said)
            events = await stream.rest()
        else:
            entry = resolve(interrupts_of(await stream.rest())[0], said)
            events = await post(site, "/agents/tools", agent("r2", entry))
    assert gave(events)["deleted"] == ["a", "b"]


MISFITS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "invalid_payload"),
    "a bare yes": (True, "invalid_payload"),
    "no answer": ({}, "invalid_payload"),
    "a yes as text": ({"approved": "true"}, "invalid_payload"),
    "a yes as number": ({"approved": 1}, "invalid_payload"),
    "a null": ({"approved": None}, "invalid_payload"),
    "arguments as text": ({"approved": True, "arguments": "{}"}, "invalid_payload"),
    "arguments as list": ({"approved": True, "arguments": []}, "invalid_payload"),
    "arguments as null": ({"approved": True, "arguments": None}, "invalid_payload"),
    "a message as number": ({"approved": False, "message": 5}, "invalid_payload"),
    "a field that there is not": ({"approved": True, "always": True}, "invalid_payload"),
    "arguments that do not fit": ({"approved": True, "arguments": {"rows": "a"}}, "invalid_arguments"),
    "arguments that are missing": ({"approved": True, "arguments": {}}, "invalid_arguments"),
    "arguments that there are not": ({"approved": True, "arguments": {**ROWS, "x": 1}}, "invalid_arguments"),
}


@pytest.mark.parametrize("kind", MISFITS)
@pytest.mark.parametrize("how", ["interrupt", "open"])
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(kind: str, how: str) -> None:
    payload, code = MISFITS[kind]
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        if how == "open":
            stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
            waiting = await asked(stream)
            error = error_of(await answer(site, waiting["interruptId"], payload), 422, code)
            assert (await record_of(site))["status"] == "waiting"
            await answered(site, waiting, YES)
            events = await stream.rest()
        else:
            (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
            body = agent("r2", resolve(interrupt, payload))
            error = error_of(await site.client.post("/agents/tools", json=body, headers=ME), 422, code)
            events = await post(site, "/agents/tools", agent("r2", approve(interrupt)))
    assert error["details"]
    assert gave(events)["deleted"] == ["a", "b"]
    assert gates.executions["deletes"] == 1


# -- no --

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "a no": ({"status": "resolved", "payload": NO}, DECLINED),
    "a no with a reason": (
        {"status": "resolved", "payload": {**NO, "message": "not today"}},
        f"{DECLINED[:-1]}: not today",
    ),
    "a no with an empty reason": ({"status": "resolved", "payload": {**NO, "message": ""}}, DECLINED),
    "a no with arguments": ({"status": "resolved", "payload": {**NO, "arguments": {"rows": 5}}}, DECLINED),
    "no answer": ({"status": "cancelled"}, DECLINED),
    "no answer that says yes": ({"status": "cancelled", "payload": YES}, DECLINED),
    "no answer with what nobody has checked": ({"status": "cancelled", "payload": {"message": {"a": 1}}}, DECLINED),
}


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("how", ["interrupt", "open", "json"])
async def test_a_call_that_is_declined_is_denied_and_never_runs(kind: str, how: str) -> None:
    given, text = REFUSALS[kind]
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        if how == "open":
            stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
            body = {"interruptId": (await asked(stream))["interruptId"], **given}
            assert (await site.client.post("/runs/r/input", json=body, headers=ME)).status_code == 202
            value = result_of(await stream.rest())
        elif how == "interrupt":
            (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
            events = await post(site, "/agents/tools", agent("r2", {"interruptId": interrupt["id"], **given}))
            assert events[-1]["outcome"] == {"type": "success"}
            value = result_of(events)
        else:
            said = (await site.client.post("/tools/deletes", json=tool_run(), headers=ME | JSON)).json()
            body = {"resume": [{"interruptId": said["interrupts"][0]["id"], **given}]}
            value = (await site.client.post("/tools/deletes", json=body, headers=ME | JSON)).json()
    assert (value["status"], value["isError"], text_of(value)) == ("failed", True, text)
    assert value["structuredContent"]["error"] == {"code": "denied", "retryable": False}
    assert not gates.executions


# -- what was approved is what runs --


async def test_what_the_history_says_of_the_call_by_now_does_not_count() -> None:
    gates = Gates()

    @tool(needs_approval=True)
    async def formats(ctx: ToolContext, rows: list[str]) -> None:
        """Is worse."""
        gates.executions["formats"] += 1

    async with serving(deletes, formats, context=gates) as site:
        for number, (name, arguments) in enumerate((("deletes", {"rows": ["everything"]}), ("formats", ROWS))):
            (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent(f"a{number}")))
            changed = agent(f"b{number}", approve(interrupt), name=name, arguments=arguments)
            events = await post(site, "/agents/tools", changed)
            assert next(e for e in events if e["type"] == "TOOL_CALL_START")["toolCallName"] == "deletes"
            assert gave(events)["deleted"] == ["a", "b"]
    assert gates.executions == {"deletes": 2}


async def test_an_approval_is_of_its_call_and_of_no_other_one_of_the_same_request() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
        both = ask(("c", "deletes", ROWS), ("d", "deletes", {"rows": ["more"]}))
        body = agent_body(both, runId="r2", resume=[approve(interrupt)])
        events = await post(site, "/agents/tools", body)
        assert gave(events, "c")["deleted"] == ["a", "b"]
        assert [item["toolCallId"] for item in interrupts_of(events)] == ["d"]
    assert gates.executions["deletes"] == 1


async def test_a_json_approval_is_refused_for_a_changed_call() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        said = (await site.client.post("/tools/deletes", json=tool_run(), headers=ME | JSON)).json()
        entry = approve(said["interrupts"][0])
        for field, value in (("arguments", {"rows": ["everything"]}), ("arguments", {}), ("toolCallId", "d")):
            body = {"runId": "r2", "resume": [entry], field: value}
            refused = await site.client.post("/tools/deletes", json=body, headers=ME | JSON)
            assert error_of(refused, 400, "invalid_request")["details"][0]["field"] == field
        assert not gates.executions
        same = {**tool_run("r2"), "resume": [entry]}
        done = (await site.client.post("/tools/deletes", json=same, headers=ME | JSON)).json()
    assert done["structuredContent"]["deleted"] == ["a", "b"]


async def test_an_approval_counts_once_and_the_same_call_is_asked_about_again() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent("r1")))
        await post(site, "/agents/tools", agent("r2", approve(interrupt)))
        again = await site.client.post("/agents/tools", json=agent("r3", approve(interrupt)), headers=ME)
        error_of(again, 409, "interrupt_answered")
        assert interrupts_of(await post(site, "/agents/tools", agent("r4")))[0]["id"] != interrupt["id"]
    assert gates.executions["deletes"] == 1


async def test_an_approval_is_kept_over_the_interrupts_of_the_tool_with_its_arguments() -> None:
    gates = Gates()

    @tool(needs_approval=True)
    async def deletes_slowly(ctx: ToolContext, rows: list[str]) -> dict[str, Any]:
        """Asks twice more."""
        gates.executions["deletes"] += 1
        first = ctx.input_response
        day, hour = ctx.interrupt("Day?", key="day").payload, ctx.interrupt("Hour?", key="hour").payload
        return {
            "rows": rows,
            "day": day,
            "hour": hour,
            "first": first and first.payload,
            "keys": [*ctx.input_responses],
        }

    async with serving(deletes_slowly) as site:
        entries: list[Any] = []
        answers = [YES | {"arguments": {"rows": ["edited"]}}, "Monday", 5]
        for number, payload in enumerate([*answers, None]):
            events = await post(site, "/agents/tools", agent(f"r{number}", *entries, name="deletes_slowly"))
            if payload is not None:
                entries = [resolve(interrupts_of(events)[0], payload)]
    keys = ["day", "hour"]
    assert gave(events) == {"rows": ["edited"], "day": "Monday", "hour": 5, "first": 5, "keys": keys}
    assert gates.executions["deletes"] == 3


@pytest.mark.parametrize("how", ["interrupt", "open"])
async def test_an_approval_is_no_answer_to_a_question_of_the_tool(how: str) -> None:
    @tool(name="deletes", needs_approval=True)
    async def looks(ctx: ToolContext, rows: list[str]) -> dict[str, Any]:
        """Says what it was answered."""
        return {"newest": ctx.input_response, "all": dict(ctx.input_responses)}

    async with serving(looks) as site:
        stream = Reader(await site.open("/agents/tools", agent(forwardedProps=OPEN if how == "open" else {}), ME))
        if how == "open":
            await answered(site, await asked(stream), YES)
            events = await stream.rest()
        else:
            events = await post(site, "/agents/tools", agent("r2", approve(interrupts_of(await stream.rest())[0])))
    assert gave(events) == {"newest": None, "all": {}}


async def test_two_calls_are_asked_about_apart_and_each_gets_its_own_answer() -> None:
    gates = Gates()
    both = ask(("c1", "deletes", {"rows": ["one"]}), ("c2", "deletes", {"rows": ["two"]}))
    async with serving(deletes, context=gates) as site:
        first, second = interrupts_of(await post(site, "/agents/tools", agent_body(both, runId="r1")))
        entries = [approve(second), approve(first, approved=False)]
        events = await post(site, "/agents/tools", agent_body(both, runId="r2", resume=entries))
        assert (text_of(result_of(events, "c1")), gave(events, "c2")["deleted"]) == (DECLINED, ["two"])
        stream = Reader(await site.open("/agents/tools", agent_body(both, runId="r", forwardedProps=OPEN), ME))
        questions = {waiting["toolCallId"]: waiting for waiting in [await asked(stream), await asked(stream)]}
        await answered(site, questions["c2"], NO)
        await answered(site, questions["c1"], YES)
        events = await stream.rest()
        assert (gave(events, "c1")["deleted"], text_of(result_of(events, "c2"))) == (["one"], DECLINED)
    assert gates.executions["deletes"] == 2


@pytest.mark.parametrize("how", ["interrupt", "open"])
async def test_of_many_answers_at_once_one_counts_and_the_tool_runs_at_most_once(how: str) -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        payloads = [{"approved": number % 2 == 0, "arguments": {"rows": [str(number)]}} for number in range(20)]
        stream = Reader(await site.open("/agents/tools", agent(forwardedProps=OPEN if how == "open" else {}), ME))
        if how == "open":
            waiting = await asked(stream)
            given = await asyncio.gather(*(answer(site, waiting["interruptId"], payload) for payload in payloads))
            value = result_of(await stream.rest())
        else:
            (interrupt,) = interrupts_of(await stream.rest())
            bodies = [agent(f"r{number}", resolve(interrupt, payload)) for number, payload in enumerate(payloads)]
            given = await asyncio.gather(*(site.client.post("/agents/tools", json=body, headers=ME) for body in bodies))
        accepted = [number for number, one in enumerate(given) if one.is_success]
        assert len(accepted) == 1
        if how == "interrupt":
            text = given[accepted[0]].text
            assert ("declined" if accepted[0] % 2 else f'"{accepted[0]}"') in text
        else:
            expected = DECLINED if accepted[0] % 2 else f'{{"deleted":["{accepted[0]}"],"force":false}}'
            assert text_of(value) == expected
    assert gates.executions["deletes"] == (0 if accepted[0] % 2 else 1)


async def test_somebody_else_approves_nothing() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
        waiting = await asked(stream)
        error_of(await answer(site, waiting["interruptId"], YES, headers=SOMEBODY_ELSE), 404, "run_not_found")
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent("r1")))
        body = agent("r2", approve(interrupt))
        refused = await site.client.post("/agents/tools", json=body, headers=SOMEBODY_ELSE)
        error_of(refused, 404, "interrupt_not_found")
        assert not gates.executions
        await answered(site, waiting, NO)
        await stream.rest()


# -- the tool's own idea of when --


@pytest.mark.parametrize("kind", ["plain", "async", "a class"])
async def test_a_callable_of_the_arguments_says_which_calls_need_one(kind: str) -> None:
    seen: list[Any] = []

    def many(arguments: dict[str, Any]) -> bool:
        seen.append(arguments)
        return len(arguments["rows"]) > 1

    async def many_later(arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return many(arguments)

    class Many:
        async def __call__(self, arguments: dict[str, Any]) -> bool:
            return many(arguments)

    needs: Any = {"plain": many, "async": many_later, "a class": Many()}[kind]
    some = tool(name="deletes", needs_approval=needs)(deletes.func)
    async with serving(some) as site:
        events = await post(site, "/agents/tools", agent(arguments={"rows": ["a"]}))
        assert gave(events)["deleted"] == ["a"]
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent("r1")))
        edited = approve(interrupt, arguments={"rows": ["x", "y", "z"]})
        events = await post(site, "/agents/tools", agent("r2", edited))
    assert gave(events)["deleted"] == ["x", "y", "z"], "a person who has seen it is not asked again"
    assert [arguments["rows"] for arguments in seen] == [["a"], ["a", "b"]]


@pytest.mark.parametrize("said", ["yes", 1, [0], object()], ids=["text", "number", "list", "object"])
async def test_what_it_says_counts_as_python_counts_it(said: Any) -> None:
    some = tool(name="deletes", needs_approval=lambda _: said)(deletes.func)
    async with serving(some) as site:
        assert interrupts_of(await post(site, "/agents/tools", agent()))


FAILS: dict[str, BaseException] = {
    "an error": ValueError("no idea"),
    "a missing key": KeyError("amount"),
    "an exit": SystemExit(3),
    "a keyboard interrupt": KeyboardInterrupt(),
    "a cancellation": asyncio.CancelledError(),
    "a group": ExceptionGroup("several", [ValueError("one")]),
    "something else": BaseException("odd"),
    "a generator's exit": GeneratorExit(),
}


@pytest.mark.parametrize("kind", FAILS)
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("around", [False, True], ids=["alone", "with middleware"])
async def test_when_it_raises_the_call_fails_and_the_tool_does_not_run(kind: str, later: bool, around: bool) -> None:
    gates = Gates()

    def fails(_: Any) -> bool:
        raise FAILS[kind]

    async def fails_later(_: Any) -> bool:
        await asyncio.sleep(0)
        raise FAILS[kind]

    async def passes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(call)

    some = tool(name="deletes", needs_approval=fails_later if later else fails)(deletes.func)
    async with serving(some, waits, context=gates, middleware=[passes] if around else []) as site:
        body = agent_body(ask(("c", "deletes", ROWS), ("d", "waits", {"name": "go"})))
        stream = Reader(await site.open("/agents/tools", body, ME))
        value = (await stream.until("tool.result"))["value"]
        gates["go"].set()
        events = await stream.rest()
    assert (value["toolCallId"], value["status"], value["error"]["code"]) == ("c", "failed", "failed")
    assert result_of(events, "d")["status"] == "completed"
    assert events[-1]["outcome"] == {"type": "success"}
    assert not gates.executions["deletes"]


@pytest.mark.parametrize("around", [False, True], ids=["alone", "with middleware"])
@pytest.mark.parametrize("how", ["stop", "timeout"])
async def test_one_that_hangs_can_be_stopped_and_is_bound_by_the_clock(how: str, around: bool) -> None:
    gates = Gates()

    async def hangs(_: Any) -> bool:
        gates["hangs"].set()
        await gates["never"].wait()
        return False

    async def passes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(call)

    some = tool(name="deletes", needs_approval=hangs, timeout=0.05 if how == "timeout" else 0)(deletes.func)
    async with serving(some, context=gates, middleware=[passes] if around else []) as site:
        stream = Reader(await site.open("/agents/tools", agent(), ME))
        await stream.until("TOOL_CALL_END")
        await gates["hangs"].wait()
        if how == "stop":
            assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = await stream.rest()
    value = result_of(events)
    assert value["status"] == ("cancelled" if how == "stop" else "timeout")
    assert events[-1]["outcome"] == {"type": "cancelled" if how == "stop" else "success"}
    assert not gates.executions


async def test_it_sees_the_arguments_as_the_tool_will() -> None:
    seen: list[Any] = []

    def many(arguments: dict[str, Any]) -> bool:
        seen.append(dict(arguments))
        return bool(arguments["force"])

    @tool(needs_approval=many)
    async def wipes(rows: list[str], force: bool = True) -> str:
        """Uses force unless told otherwise."""
        return "wiped"

    async with serving(wipes) as site:
        assert interrupts_of(await post(site, "/agents/tools", agent(name="wipes")))
    assert seen == [{"rows": ["a", "b"], "force": True}]


# -- guards --


@pytest.mark.parametrize("how", ["interrupt", "open"])
@pytest.mark.parametrize("grouped", [False, True], ids=["plain", "in a task group"])
async def test_guards_see_the_arguments_that_the_person_has_edited(how: str, grouped: bool) -> None:
    seen: list[Any] = []

    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        seen.append(call.arguments["rows"])
        if "forbidden" in call.arguments["rows"]:
            raise AccessDenied("Not these.")
        if not grouped:
            return await call_next(call)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call_next(call))
        return task.result()

    gates = Gates()
    async with serving(deletes, context=gates, middleware=[guard]) as site:
        for number, rows in enumerate((["allowed"], ["forbidden"])):
            edited = YES | {"arguments": {"rows": rows}}
            props = OPEN if how == "open" else {}
            stream = Reader(await site.open("/agents/tools", agent(f"a{number}", forwardedProps=props), ME))
            if how == "open":
                await answered(site, await asked(stream), edited, run=f"a{number}")
                events = await stream.rest()
            else:
                entry = resolve(interrupts_of(await stream.rest())[0], edited)
                events = await post(site, "/agents/tools", agent(f"b{number}", entry))
            if rows == ["allowed"]:
                assert gave(events)["deleted"] == rows
            else:
                assert text_of(result_of(events)) == "Error [denied]: Not these."
    assert seen == [["a", "b"], ["allowed"], ["a", "b"], ["forbidden"]]
    assert gates.executions["deletes"] == 1


@pytest.mark.parametrize("props", [{}, OPEN], ids=["interrupt", "open"])
async def test_nobody_is_asked_about_a_call_that_a_guard_refuses(props: dict[str, Any]) -> None:
    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        raise AccessDenied("Never.")

    async with serving(deletes, middleware=[guard]) as site:
        events = await post(site, "/agents/tools", agent(forwardedProps=props))
    assert text_of(result_of(events)) == "Error [denied]: Never."
    assert "tool.waiting" not in names_of(events)


async def test_a_guard_sees_the_denial_and_may_say_more() -> None:
    async def explains(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except AccessDenied as error:
            raise AccessDenied(f"{error} Do not ask again.") from None

    async with serving(deletes, middleware=[explains]) as site:
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
        events = await post(site, "/agents/tools", agent("r2", approve(interrupt, approved=False)))
    assert text_of(result_of(events)).startswith(DECLINED)


@pytest.mark.parametrize("how", ["interrupt", "open"])
async def test_the_person_is_shown_what_will_run_after_a_middleware_has_changed_it(how: str) -> None:
    async def adds(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(ToolCall(call.name, {**call.arguments, "force": True}))

    async with serving(deletes, middleware=[adds]) as site:
        stream = Reader(await site.open("/agents/tools", agent(forwardedProps=OPEN if how == "open" else {}), ME))
        if how == "open":
            waiting = await asked(stream)
            shown = waiting["responseSchema"]
            await answered(site, waiting, YES)
            events = await stream.rest()
        else:
            (interrupt,) = interrupts_of(await stream.rest())
            shown = interrupt["responseSchema"]
            events = await post(site, "/agents/tools", agent("r2", approve(interrupt)))
    assert shown["properties"]["arguments"]["default"] == {**ROWS, "force": True}
    assert gave(events) == {"deleted": ["a", "b"], "force": True}


# -- nested, and where there is nobody --


@pytest.mark.parametrize("path", ["/tools/calls", "/agents/tools"])
@pytest.mark.parametrize("said", [YES, NO], ids=["yes", "no"])
async def test_a_nested_call_asks_for_its_approval_through_the_open_run(path: str, said: dict[str, Any]) -> None:
    gates = Gates()
    nested: dict[str, Any] = {"name": "deletes", "arguments": ROWS}
    body = agent(name="calls", arguments=nested) if path == "/agents/tools" else tool_run(**nested)
    async with serving(calls, deletes, context=gates) as site:
        stream = Reader(await site.open(path, body, ME))
        waiting = await asked(stream)
        assert (waiting["toolCallId"], waiting["toolName"]) == ("c/1", "deletes")
        assert not gates.executions
        await answered(site, waiting, said)
        found = gave(await stream.rest())
    if said is YES:
        assert found["content"]["deleted"] == ["a", "b"]
    else:
        assert (found["status"], found["text"]) == ("failed", DECLINED)
    assert gates.executions["deletes"] == (1 if said is YES else 0)


async def test_a_nested_call_runs_with_the_arguments_that_the_person_has_edited() -> None:
    async with serving(calls, deletes) as site:
        stream = Reader(await site.open("/tools/calls", tool_run(name="deletes", arguments=ROWS), ME))
        waiting = await asked(stream)
        wrong = await answer(site, waiting["interruptId"], YES | {"arguments": {}})
        error_of(wrong, 422, "invalid_arguments")
        await answered(site, waiting, YES | {"arguments": {"rows": ["c"]}})
        assert gave(await stream.rest())["content"] == {"deleted": ["c"], "force": False}


async def test_an_approved_call_may_call_others_that_need_their_own() -> None:
    outer = tool(name="outer", needs_approval=True)(calls.func)
    async with serving(outer, deletes) as site:
        stream = Reader(await site.open("/tools/outer", tool_run(name="deletes", arguments=ROWS), ME))
        first = await asked(stream)
        await answered(site, first, YES)
        second = await asked(stream)
        assert [first["toolCallId"], second["toolCallId"]] == ["c", "c/1"]
        await answered(site, second, YES)
        events = await stream.rest()
    assert gave(events)["content"]["deleted"] == ["a", "b"]


async def test_a_nested_call_of_a_json_answer_has_nobody_to_ask_and_fails() -> None:
    gates = Gates()
    async with serving(calls, deletes, context=gates) as site:
        body = tool_run(name="deletes", arguments=ROWS)
        said = (await site.client.post("/tools/calls", json=body, headers=ME | JSON)).json()
    assert said["structuredContent"]["status"] == "failed"
    assert "approval" in said["structuredContent"]["text"]
    assert not gates.executions


async def test_a_call_without_a_run_has_nobody_to_ask_and_fails() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        output = await site.gateway.call_tool(ToolCall("deletes", ROWS))
        assert (output.status, output.is_error) == ("failed", True)
        assert "approval" in output.text
    output = await call_tool(ToolCall("deletes", ROWS), [deletes], context=gates)
    assert output.status == "failed"
    assert not gates.executions


# -- Stop, and the clock --


@EVERY_KIND
async def test_stop_while_an_approval_is_open_cancels_the_call_which_never_runs(made: Any) -> None:
    gates = Gates()
    async with serving(made, context=gates) as site:
        stream = Reader(await site.open("/tools/deletes", tool_run(), ME))
        waiting = await asked(stream)
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        error_of(await answer(site, waiting["interruptId"], YES), 409, "interrupt_closed")
        events = await stream.rest()
        error_of(await answer(site, waiting["interruptId"], YES), 409, "interrupt_closed")
    assert (result_of(events)["status"], text_of(result_of(events))) == ("cancelled", CANCELLED)
    assert "stillRunning" not in result_of(events)
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert not gates.executions


async def test_stop_of_the_call_that_asks_leaves_the_others_at_work() -> None:
    gates = Gates()
    async with serving(deletes, waits, context=gates) as site:
        both = ask(("c", "deletes", ROWS), ("d", "waits", {"name": "go"}))
        stream = Reader(await site.open("/agents/tools", agent_body(both, forwardedProps=OPEN), ME))
        waiting = await asked(stream)
        assert (await site.client.post("/runs/r/tool-calls/c/stop", headers=ME)).status_code == 202
        await stream.until("TOOL_CALL_RESULT")
        error_of(await answer(site, waiting["interruptId"], YES), 409, "interrupt_closed")
        gates["go"].set()
        events = await stream.rest()
    assert text_of(result_of(events)) == CANCELLED
    assert result_of(events, "d")["status"] == "completed"
    assert not gates.executions["deletes"]


async def test_after_stop_of_the_run_that_has_asked_nothing_can_be_approved() -> None:
    gates = Gates()
    async with serving(deletes, context=gates) as site:
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
        assert (await site.client.post("/runs/r/stop", headers=ME)).json()["status"] == "cancelled"
        refused = await site.client.post("/agents/tools", json=agent("r2", approve(interrupt)), headers=ME)
        error_of(refused, 409, "interrupt_closed")
        events = await post(site, "/agents/tools", agent("r2", resolve(interrupt, status="cancelled")))
    assert text_of(result_of(events)) == CANCELLED
    assert not gates.executions


async def test_an_approval_that_has_expired_can_only_be_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Gates()
    async with serving(deletes, context=gates, interrupt_ttl=100) as site:
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent()))
        monkeypatch.setattr("gateway.http.resume.time", lambda: 1e11)
        refused = await site.client.post("/agents/tools", json=agent("r2", approve(interrupt)), headers=ME)
        error_of(refused, 410, "interrupt_expired")
        events = await post(site, "/agents/tools", agent("r2", resolve(interrupt, status="cancelled")))
    assert text_of(result_of(events)) == DECLINED
    assert not gates.executions


SHORT = 0.4  # seconds: long enough to ask in


@pytest.mark.parametrize("around", [False, True], ids=["alone", "with middleware"])
async def test_the_time_of_a_call_stands_still_for_good_once_it_waits_for_its_approval(around: bool) -> None:
    @tool(needs_approval=True, timeout=SHORT)
    async def is_slow() -> str:
        """Takes longer than it may."""
        await asyncio.sleep(1.5 * SHORT)
        return "done"

    async def passes(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(call)

    async with serving(is_slow, middleware=[passes] if around else []) as site:
        body = {"runId": "r", "toolCallId": "c"}
        stream = Reader(await site.open("/tools/is_slow", body, ME))
        waiting = await asked(stream)
        still = await site.client.get("/runs/r", params={"wait": str(1.5 * SHORT)}, headers=ME)
        assert still.json()["status"] == "waiting"
        await answered(site, waiting, YES)
        assert text_of(result_of(await stream.rest())) == "done"


async def test_others_finish_beside_a_call_that_ends_its_run_with_an_approval() -> None:
    gates = Gates()
    async with serving(deletes, waits, context=gates) as site:
        both = ask(("c", "deletes", ROWS), ("d", "waits", {"name": "go"}))
        stream = Reader(await site.open("/agents/tools", agent_body(both), ME))
        await stream.until("came")
        gates["go"].set()
        events = await stream.rest()
        assert set(results_of(events)) == {"d"}
        (interrupt,) = interrupts_of(events)
        history = (await site.client.get("/threads/t", headers=ME)).json()
        assert [item["id"] for item in history["interrupts"]] == [interrupt["id"]]
        body = agent_body(history["messages"], runId="r2", resume=[approve(interrupt)])
        assert gave(await post(site, "/agents/tools", body))["deleted"] == ["a", "b"]
    assert gates.trail == ["go came", "go went"]


# -- what was shown is what runs --


@tool(needs_approval=True)
async def removes(path: str) -> dict[str, str]:
    """Says what it would remove."""
    return {"removed": path}


async def test_an_approval_shows_the_arguments_as_the_middleware_has_made_them() -> None:
    async def rooted(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(ToolCall(call.name, {"path": "/etc/" + call.input["path"]}))

    async with serving(removes, middleware=[rooted]) as site:
        body = agent_body(ask(("c", "removes", {"path": "p"})))
        (asked,) = events_of((await site.client.post("/agents/tools", json=body, headers=ME)).content)[-1]["outcome"][
            "interrupts"
        ]
        shown = {"path": "/etc/p"}
        assert asked["metadata"]["input"] == shown
        assert asked["responseSchema"]["properties"]["arguments"]["default"] == shown
        payload = {"approved": True, "arguments": shown}  # a form that sends back what it was given
        entry = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
        again = agent_body(ask(("c", "removes", {"path": "p"})), runId="again", resume=[entry])
        events = events_of((await site.client.post("/agents/tools", json=again, headers=ME)).content)
        (result,) = [event["value"] for event in events if event.get("name") == "tool.result"]
        assert result["structuredContent"] == {"removed": "/etc/p"}


async def test_an_approval_is_for_what_was_shown_and_something_else_is_asked_about_again() -> None:
    async def greedy(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        await call_next(call)
        return await call_next(ToolCall(call.name, {"path": "second"}))

    async with serving(removes, middleware=[greedy]) as site:
        stream = Reader(await site.open("/tools/removes", {"runId": "r", "arguments": {"path": "first"}}, ME))
        for path in ("first", "second"):
            asked = (await stream.until("tool.waiting"))["value"]
            assert asked["responseSchema"]["properties"]["arguments"]["default"] == {"path": path}
            answer = {"interruptId": asked["interruptId"], "status": "resolved", "payload": {"approved": True}}
            assert (await site.client.post("/runs/r/input", json=answer, headers=ME)).status_code == 202
        assert (await stream.until("tool.result"))["value"]["structuredContent"] == {"removed": "second"}
