"""Page tools, through real HTTP: a page claims the call, runs it, answers; whatever it does, the call has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import NAVIGATED, AccessDenied, ToolCall, ToolContext, ToolOutput, tool
from gateway.execution.outcomes import CANCELLED, unavailable
from tests.execution.running import quiet
from tests.http.asking import JSON, Gates, Reader, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving

GONE = "Error [interrupted]: The page cancelled this call before it finished. Check the page before retrying."
IN_PAGES = {"gateway": {"pageTools": True}}
STORES = pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
Asked = tuple[str, str, Any]


def page_tool(name: str = "cart.add") -> dict[str, Any]:
    """A tool as a frontend describes it."""
    return {"name": name, "description": "Of the page.", "parameters": {"type": "object"}}


def body_of(*calls: Asked, tools: tuple[str, ...] = ("cart.add",), **more: Any) -> dict[str, Any]:
    return agent_body(ask(*calls), tools=[page_tool(name) for name in tools], **{"forwardedProps": IN_PAGES, **more})


async def requested(site: Site, *calls: Asked, count: int = 1, **more: Any) -> tuple[Reader, list[dict[str, Any]]]:
    """The stream of a run, and the values of the first `tool.requested`."""
    calls = calls or (("c", "cart.add", {"sku": "x"}),)
    stream = Reader(await site.open("/agents/tools", body_of(*calls, **more), ME))
    return stream, [(await stream.until("tool.requested"))["value"] for _ in range(count)]


async def post(site: Site, what: str, body: Any, call_id: str = "c", headers: Mapping[str, str] = ME) -> httpx.Response:
    return await site.client.post(f"/runs/r/tool-calls/{call_id}/{what}", json=body, headers=dict(headers))


async def claim(site: Site, call_id: str = "c") -> str:
    """Takes the call."""
    answer = await post(site, "claim", {}, call_id)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"claimId", "expiresIn"}
    return str(answer.json()["claimId"])


async def answered(site: Site, claim_id: str, output: Any, call_id: str = "c") -> None:
    answer = await post(site, "result", {"claimId": claim_id, "output": output}, call_id)
    assert answer.status_code == 202, answer.text
    assert answer.json()["runId"] == "r"


def every(claim_id: str) -> list[tuple[str, Any]]:
    """All that a page that holds this claim may send."""
    holds = {"claimId": claim_id}
    return [("claim", holds), ("waiting", holds), ("result", {**holds, "output": None})]


def said(text: str, **more: Any) -> dict[str, Any]:
    """A `ToolOutput`."""
    return {"content": [{"type": "text", "text": text}], **more}


def result_of(events: list[dict[str, Any]], call_id: str = "c") -> dict[str, Any]:
    (found,) = [
        event["value"]
        for event in events
        if event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id
    ]
    return dict(found)


def text_of(value: Mapping[str, Any]) -> str:
    return str(value["content"][0]["text"])


async def record_of(site: Site) -> Any:
    return (await site.client.get("/runs/r", headers=ME)).json()


# -- left to the frontend --


@pytest.mark.parametrize("props", [{}, {"gateway": {}}, {"gateway": {"pageTools": False}}], ids=str)
async def test_a_call_of_the_frontends_own_tool_passes_through(props: dict[str, Any]) -> None:
    async with serving(echo) as site:
        calls: tuple[Asked, ...] = (
            ("c1", "cart.add", {"sku": "x"}),
            ("c2", "echo", {"text": "hi"}),
            ("c3", "cart.add", {}),
        )
        answer = await site.client.post("/agents/tools", json=body_of(*calls, forwardedProps=props), headers=ME)
        events = events_of(answer.content)
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1", "c3"]}
        assert {event["toolCallId"] for event in events if "toolCallId" in event} == {"c2"}
        assert "tool.requested" not in answer.text
        assert [call["toolCallId"] for call in (await record_of(site))["toolCalls"]] == ["c2"]
        for what, given in every("x"):
            error_of(await post(site, what, given, "c1"), 404, "call_not_found")


async def test_a_run_may_have_nothing_but_calls_of_the_frontends() -> None:
    async with serving() as site:
        answer = await site.client.post(
            "/agents/tools", json=body_of(("c", "cart.add", {}), forwardedProps={}), headers=ME
        )
        events = events_of(answer.content)
        assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_FINISHED"]
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c"]}


# -- the usual way --


async def test_a_page_claims_a_call_runs_it_and_answers() -> None:
    async with serving(echo) as site:
        stream, (value,) = await requested(site)
        assert value == {"toolCallId": "c", "toolName": "cart.add", "input": {"sku": "x"}}
        assert (await record_of(site))["toolCalls"][0]["status"] == "running"
        answer = await post(site, "claim", {})
        assert answer.status_code == 200
        assert answer.json()["expiresIn"] == 15
        output = {"content": [{"type": "text", "text": "added"}], "structuredContent": {"cart": 3}, "isError": False}
        await answered(site, answer.json()["claimId"], output)
        events = await stream.rest()
        assert [event.get("name", event["type"]) for event in events] == [
            "RUN_STARTED",
            "TOOL_CALL_START",
            "TOOL_CALL_END",
            "tool.requested",
            "tool.result",
            "TOOL_CALL_RESULT",
            "RUN_FINISHED",
        ]
        assert events[1]["parentMessageId"] == "a"
        result = result_of(events)
        assert (result["status"], result["isError"], result["structuredContent"]) == ("completed", False, {"cart": 3})
        assert events[-2]["content"] == "added"
        assert events[-1]["outcome"] == {"type": "success"}
        assert (await record_of(site))["toolCalls"][0]["status"] == "completed"


@pytest.mark.parametrize(("arguments", "seen"), [("[1]", {}), ("", {}), ('{"a": 1}', {"a": 1})])
async def test_the_page_gets_the_models_arguments_as_an_object(arguments: str, seen: Any) -> None:
    async with serving() as site:
        stream, (value,) = await requested(site, ("c", "cart.add", arguments))
        assert value["input"] == seen
        await answered(site, await claim(site), said("ok"))
        assert result_of(await stream.rest())["status"] == "completed"


async def test_arguments_that_are_no_json_never_reach_the_page() -> None:
    async with serving() as site:
        answer = await site.client.post("/agents/tools", json=body_of(("c", "cart.add", "{oops")), headers=ME)
        events = events_of(answer.content)
        assert result_of(events)["error"]["code"] == "invalid_arguments"
        assert "tool.requested" not in answer.text


async def test_a_page_tool_and_a_gateway_tool_run_side_by_side() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        calls: tuple[Asked, ...] = (
            ("c1", "cart.add", {}),
            ("c2", "waits", {}),
            ("c3", "cart.pay", {}),
            ("c4", "missing", {}),
        )
        stream, values = await requested(site, *calls, tools=("cart.add", "cart.pay"), count=2)
        assert [value["toolCallId"] for value in values] == ["c1", "c3"]
        first, third = await claim(site, "c1"), await claim(site, "c3")
        error_of(await post(site, "claim", {}, "c2"), 409, "not_waiting")
        error_of(await post(site, "result", {"claimId": first, "output": said("x")}, "c2"), 409, "not_waiting")
        error_of(await post(site, "result", {"claimId": first, "output": said("x")}, "c3"), 409, "claim_lost")
        await answered(site, third, said("paid"), "c3")
        gates["go"].set()
        while (await stream.until("tool.result"))["value"]["toolCallId"] != "c2":
            pass
        await answered(site, first, said("added"), "c1")
        events = await stream.rest()
        assert {f"c{n}": text_of(result_of(events, f"c{n}")) for n in range(1, 4)} == {
            "c1": "added",
            "c2": "go",
            "c3": "paid",
        }
        assert result_of(events, "c4")["status"] == "unavailable"
        assert "pendingToolCallIds" not in events[-1]["outcome"]


async def test_calls_of_the_page_wait_their_turn_where_calls_run_one_by_one() -> None:
    async with serving(echo, parallel_tool_calls=False) as site:
        stream, (value,) = await requested(site, ("c1", "cart.add", {}), ("c2", "cart.add", {}))
        assert value["toolCallId"] == "c1"
        error_of(await post(site, "claim", {}, "c2"), 409, "not_waiting")
        await answered(site, await claim(site, "c1"), said("one"), "c1")
        assert (await stream.until("tool.requested"))["value"]["toolCallId"] == "c2"
        await answered(site, await claim(site, "c2"), said("two"), "c2")
        events = await stream.rest()
        assert [text_of(result_of(events, call_id)) for call_id in ("c1", "c2")] == ["one", "two"]


async def test_a_gateway_tool_of_the_same_name_wins() -> None:
    async with serving(echo) as site:
        body = body_of(("c", "echo", {"text": "here"}), tools=("echo",))
        answer = await site.client.post("/agents/tools", json=body, headers=ME)
        assert result_of(events_of(answer.content))["structuredContent"] == {"text": "here"}
        assert "tool.requested" not in answer.text
        body = body_of(("c", "echo", {"text": "here"}), tools=("echo",), forwardedProps={}, runId="r2")
        answer = await site.client.post("/agents/tools", json=body, headers=ME)
        assert events_of(answer.content)[-1]["outcome"] == {"type": "success"}


async def test_a_page_tool_may_have_the_name_of_one_that_is_hidden_here() -> None:
    hidden = tool(name="secret", visibility="hidden")(echo.func)
    async with serving(hidden) as site:
        stream, (value,) = await requested(site, ("c", "secret", {}), tools=("secret",))
        assert value["toolName"] == "secret"
        await answered(site, await claim(site), said("of the page"))
        assert text_of(result_of(await stream.rest())) == "of the page"


# -- claims --


@STORES
async def test_of_fifty_tabs_that_claim_at_once_exactly_one_gets_the_call(store: str, tmp_path: Path) -> None:
    async with serving(store=store.format(tmp_path)) as site:
        stream, _ = await requested(site)
        answers = await asyncio.gather(*(post(site, "claim", {}) for _ in range(50)))
        (won,) = [answer for answer in answers if answer.status_code == 200]
        for answer in answers:
            if answer is not won:
                error_of(answer, 409, "claim_lost")
        assert (await site.client.post("/runs/r/tool-calls/c/claim", headers=ME)).status_code == 409, "no body"
        await answered(site, won.json()["claimId"], said("once"))
        assert text_of(result_of(await stream.rest())) == "once"


@STORES
async def test_of_many_answers_at_once_the_first_counts(store: str, tmp_path: Path) -> None:
    async with serving(store=store.format(tmp_path)) as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        bodies = [{"claimId": claim_id, "output": said(str(n))} for n in range(20)]
        answers = await asyncio.gather(*(post(site, "result", body) for body in bodies))
        accepted = [n for n, answer in enumerate(answers) if answer.status_code == 202]
        assert len(accepted) == 1
        for n, answer in enumerate(answers):
            if n not in accepted:
                error_of(answer, 409, "not_waiting")
        assert text_of(result_of(await stream.rest())) == str(accepted[0])


async def test_only_who_holds_the_claim_may_renew_it_pause_and_answer() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        for what, body in every("mine"):
            error_of(await post(site, what, body), 409, "claim_lost")
        claim_id = await claim(site)
        for what, body in [*every("mine"), ("claim", {})]:
            error_of(await post(site, what, body), 409, "claim_lost")
        renewed = await post(site, "claim", {"claimId": claim_id})
        assert renewed.json() == {"claimId": claim_id, "expiresIn": 15}
        await answered(site, claim_id, said("mine"))
        assert text_of(result_of(await stream.rest())) == "mine"


async def test_a_claim_that_is_not_renewed_lapses_and_the_call_is_interrupted() -> None:
    async with serving(page_claim=0.05) as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        events = await stream.rest()
        result = result_of(events)
        assert (result["status"], text_of(result), result["isError"]) == ("interrupted", GONE, True)
        assert (result["error"]["code"], result["error"]["retryable"]) == ("interrupted", False)
        assert events[-1]["outcome"] == {"type": "success"}
        for what, body in [*every(claim_id), ("claim", {})]:
            error_of(await post(site, what, body), 409, "not_waiting")


# -- the clock, and waiting for the person --


TIMED_OUT = 'Error [timeout]: "cart.add" didn\'t answer within 0.5 s, so it was stopped. '
TIMED_OUT += "It may have done its work: check before retrying."


async def test_a_page_that_does_not_answer_in_time_is_a_timeout_and_answers_too_late() -> None:
    async with serving(tool_timeout=0.5) as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        result = (await stream.until("tool.result"))["value"]
        assert (result["status"], text_of(result)) == ("timeout", TIMED_OUT)
        assert result["error"]["retryable"] is False
        error_of(await post(site, "result", {"claimId": claim_id, "output": said("x")}), 409, "not_waiting")
        error_of(await post(site, "claim", {"claimId": claim_id}), 409, "not_waiting")
        await stream.rest()


async def test_a_tool_that_no_page_has_claimed_in_time_is_not_on_this_page() -> None:
    async with serving(tool_timeout=0.05) as site:
        stream, _ = await requested(site)
        result = (await stream.until("tool.result"))["value"]
        assert (result["status"], text_of(result)) == ("unavailable", unavailable("cart.add", on_page=True).text)
        assert result["error"]["retryable"] is True, "it never ran"
        error_of(await post(site, "claim", {}), 409, "not_waiting")
        await stream.rest()


async def test_a_page_may_say_that_it_waits_for_the_person() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        stream, _ = await requested(site, ("c", "cart.add", {}), ("c2", "waits", {}))
        claim_id = await claim(site)
        answer = await post(site, "waiting", {"claimId": claim_id, "message": "Which size?"})
        assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
        waiting = (await stream.until("tool.waiting"))["value"]
        assert {key: waiting[key] for key in waiting if key != "since"} == {
            "toolCallId": "c",
            "toolName": "cart.add",
            "message": "Which size?",
        }
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("waiting", "waiting")
        # Again changes nothing but the claim.
        assert (await post(site, "waiting", {"claimId": claim_id})).status_code == 202
        await answered(site, claim_id, said("large"))
        resumed = (await stream.until("tool.resumed"))["value"]
        assert set(resumed) == {"toolCallId", "toolName", "waitedMs"}
        assert text_of((await stream.until("tool.result"))["value"]) == "large"
        assert (await record_of(site))["status"] == "running"
        gates["go"].set()
        events = await stream.rest()
        names = [event["name"] for event in events if event.get("value", {}).get("toolCallId") == "c"]
        assert names == ["tool.requested", "tool.waiting", "tool.resumed", "tool.result"]


# -- what the page answers --


OUTPUTS: dict[str, tuple[Any, str, str, str | None]] = {
    "text": (said("added"), "completed", "added", None),
    "nothing at all": ({}, "completed", "", None),
    "structured": ({"content": [], "structuredContent": {"a": 1}}, "completed", '{"a":1}', None),
    "an error by its text": (said("Error: sold out"), "failed", "Error [failed]: sold out", "failed"),
    "an error by its flag": (said("sold out", isError=True), "failed", "Error [failed]: sold out", "failed"),
    "an error without words": (
        {"content": [], "isError": True},
        "failed",
        "Error [failed]: The tool reported an error.",
        "failed",
    ),
    "a code in its text": (said("Error [sold_out]: none left"), "failed", "Error [sold_out]: none left", "sold_out"),
    "a code beside it": (
        said("none left", isError=True, structuredContent={"error": {"code": "sold_out"}}),
        "failed",
        "Error [sold_out]: none left",
        "sold_out",
    ),
    "a form that the person closed": (
        said(CANCELLED, isError=True, status="cancelled"),
        "cancelled",
        CANCELLED,
        "cancelled",
    ),
    "a status that there is not": (said("fine", status="splendid"), "completed", "fine", None),
    "a status that its answer is not": (said("fine", status="failed"), "completed", "fine", None),
}


@pytest.mark.parametrize("what", OUTPUTS)
async def test_the_output_of_a_page_is_an_outcome_like_every_other(what: str) -> None:
    output, status, text, code = OUTPUTS[what]
    async with serving() as site:
        stream, _ = await requested(site)
        await answered(site, await claim(site), output)
        events = await stream.rest()
        result = result_of(events)
        assert (result["status"], events[-2]["content"], result["isError"]) == (status, text, code is not None)
        assert result.get("error", {}).get("code") == code
        assert (await record_of(site))["toolCalls"][0]["status"] == status


async def test_a_page_that_navigated_away_leaves_the_result_unknown_which_is_no_error() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        await answered(site, await claim(site), None)
        events = await stream.rest()
        result = result_of(events)
        assert (result["status"], result["isError"], text_of(result)) == ("unknown", False, NAVIGATED)
        assert "error" not in result
        assert (events[-2]["content"], "metadata" in events[-2]) == (NAVIGATED, False)
        assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"output": None},
        {"claimId": "CLAIM"},
        {"claimId": "CLAIM", "output": "text"},
        {"claimId": "CLAIM", "output": [said("x")]},
        {"claimId": "CLAIM", "output": {"content": "text"}},
        {"claimId": "CLAIM", "output": {"content": ["text"]}},
        {"claimId": "CLAIM", "output": {"isError": "yes"}},
        {"claimId": "CLAIM", "output": {"structuredContent": [1]}},
        {"claimId": "CLAIM", "output": {"status": 5}},
        {"claimId": "CLAIM", "output": None, "more": 1},
        {"claimId": "", "output": None},
        [1],
    ],
    ids=str,
)
async def test_an_output_that_is_none_is_refused_and_can_be_sent_again(body: Any) -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        if isinstance(body, dict) and body.get("claimId") == "CLAIM":
            body = {**body, "claimId": claim_id}
        error = error_of(await post(site, "result", body), 400, "invalid_request")
        assert body == [1] or error["details"][0]["field"]
        await answered(site, claim_id, said("better"))
        assert text_of(result_of(await stream.rest())) == "better"


async def test_an_output_that_is_too_large_is_the_calls_failure_and_a_body_far_beyond_it_is_refused() -> None:
    limit = 20_000
    async with serving(max_result_bytes=limit) as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        beyond = {"claimId": claim_id, "output": said("x" * (limit + 20_000))}
        error_of(await post(site, "result", beyond), 413, "body_too_large")
        await answered(site, claim_id, said("x" * (limit + 1)))
        result = result_of(await stream.rest())
        assert (result["status"], result["error"]["code"]) == ("failed", "too_large")


async def test_an_output_of_any_json_never_breaks_the_stream() -> None:
    odd = said("a\u2028b\x00", structuredContent={"n": 2**60, "s": "\u0085", "deep": [[[[None]]]]})
    async with serving() as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        await answered(site, claim_id, odd)
        result = result_of(await stream.rest())
        assert (result["status"], text_of(result)) == ("completed", odd["content"][0]["text"])
        assert result["structuredContent"] == {**odd["structuredContent"], "n": str(2**60)}


# -- Stop, and other ends --


@STORES
@pytest.mark.parametrize("which", ["run", "call"])
@pytest.mark.parametrize("state", ["requested", "claimed", "waiting"])
async def test_stop_ends_a_page_tool_and_its_answer_comes_too_late(
    which: str, state: str, store: str, tmp_path: Path
) -> None:
    async with serving(store=store.format(tmp_path)) as site:
        stream, _ = await requested(site)
        claim_id = "none" if state == "requested" else await claim(site)
        if state == "waiting":
            await post(site, "waiting", {"claimId": claim_id})
        path = "/runs/r/stop" if which == "run" else "/runs/r/tool-calls/c/stop"
        assert (await site.client.post(path, headers=ME)).status_code == 202
        result = (await stream.until("tool.result"))["value"]
        assert (result["status"], text_of(result), "stillRunning" in result) == ("cancelled", CANCELLED, False)
        error_of(await post(site, "result", {"claimId": claim_id, "output": said("x")}), 409, "not_waiting")
        events = await stream.rest()
        assert events[-1]["outcome"]["type"] == ("cancelled" if which == "run" else "success")
        names = [event.get("name") for event in events]
        assert ("tool.resumed" in names) is (state == "waiting")


async def test_the_leaving_of_the_last_viewer_ends_it_where_somebody_asked_for_that() -> None:
    async with serving() as site:
        props = {"gateway": {"pageTools": True, "onDisconnect": "cancel", "disconnectGrace": 0}}
        stream, _ = await requested(site, forwardedProps=props)
        claim_id = await claim(site)
        stream.stream.leave()
        record = (await site.client.get("/runs/r?wait=20", headers=ME)).json()
        assert (record["status"], record["toolCalls"][0]["status"]) == ("failed", "interrupted")
        error_of(await post(site, "result", {"claimId": claim_id, "output": said("x")}), 409, "not_waiting")


async def test_a_page_may_come_back_to_a_call_that_nobody_has_claimed() -> None:
    async with serving() as site:
        stream, (value,) = await requested(site)
        stream.stream.leave()
        again = Reader(await site.open("/runs/r/events", None, ME))
        assert (await again.until("tool.requested"))["value"] == value
        await answered(site, await claim(site), said("after a reload"))
        assert text_of(result_of(await again.rest())) == "after a reload"


async def test_a_shutdown_ends_it() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        await claim(site)
        draining = asyncio.create_task(site.engine.drain())
        events = await stream.rest()
        await draining
        assert result_of(events)["status"] == "interrupted"
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")


async def test_after_its_end_a_run_takes_nothing_from_a_page() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        claim_id = await claim(site)
        await answered(site, claim_id, said("done"))
        await stream.rest()
        for what, body in [*every(claim_id), ("claim", {})]:
            error_of(await post(site, what, body), 409, "not_waiting")


async def test_a_question_of_a_page_is_none_that_a_person_answers() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        (question,) = await site.engine.store.questions(next(iter(site.engine.supervisor._runs)))
        given = {"interruptId": question.interrupt_id, "status": "resolved", "payload": said("x")}
        answer = await site.client.post("/runs/r/input", json=given, headers=ME)
        error_of(answer, 404, "interrupt_not_found")
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["interrupts"] == []
        await answered(site, await claim(site), said("done"))
        await stream.rest()


# -- who may --


async def test_everybody_else_gets_the_404_of_an_unknown_run_before_any_check_of_the_body() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        for headers in (SOMEBODY_ELSE, {}):
            for what in ("claim", "waiting", "result"):
                for body in ({}, {"odd": 1}, {"claimId": "x", "output": None}):
                    error_of(await post(site, what, body, "c", headers), 404, "run_not_found")
        for what, body in every("x"):
            error_of(await post(site, what, body, "other"), 404, "call_not_found")
        wrong: list[tuple[str, Any]] = [("claim", {"odd": 1}), ("waiting", {}), ("waiting", {"claimId": 5})]
        for what, body in wrong:
            error_of(await post(site, what, body), 400, "invalid_request")
        await answered(site, await claim(site), said("mine"))
        assert text_of(result_of(await stream.rest())) == "mine"


async def test_a_run_that_is_nobodys_can_be_served_by_any_page_that_knows_it() -> None:
    async with serving() as site:
        stream = Reader(await site.open("/agents/tools", body_of(("c", "cart.add", {}))))
        await stream.until("tool.requested")
        answer = await post(site, "claim", {}, "c", SOMEBODY_ELSE)
        claim_id = answer.json()["claimId"]
        answer = await post(site, "result", {"claimId": claim_id, "output": said("anybody")}, "c", {})
        assert answer.status_code == 202
        assert text_of(result_of(await stream.rest())) == "anybody"


# -- middleware --


async def test_middleware_guards_page_tools_like_all_others() -> None:
    seen: list[Any] = []

    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> ToolOutput:
        seen.append((call.name, dict(call.arguments), ctx.detach, ctx.tool_call_id))
        if call.arguments.get("sku") == "forbidden":
            raise AccessDenied("Not this one.")
        output: ToolOutput = await call_next(ToolCall(call.name, {**call.arguments, "checked": True}))
        return ToolOutput([{"type": "text", "text": f"{output.status}: {output.text}"}])

    async with serving(middleware=[guard]) as site:
        calls: tuple[Asked, ...] = (("c1", "cart.add", {"sku": "x"}), ("c2", "cart.add", {"sku": "forbidden"}))
        stream, (value,) = await requested(site, *calls)
        assert value["toolCallId"] == "c1"
        await answered(site, await claim(site, "c1"), said("added"), "c1")
        events = await stream.rest()
        assert text_of(result_of(events, "c1")) == "completed: added"
        refused = result_of(events, "c2")
        assert (refused["status"], text_of(refused)) == ("failed", "Error [denied]: Not this one.")
        assert seen == [
            ("cart.add", {"sku": "x"}, None, "c1"),
            ("cart.add", {"sku": "forbidden"}, None, "c2"),
        ]
        assert value["input"] == {"sku": "x", "checked": True}, "what the page runs is what the guards let through"
        assert len([event for event in events if event.get("name") == "tool.requested"]) == 1


async def test_a_page_tool_cannot_be_detached() -> None:
    async with serving() as site:
        stream, _ = await requested(site)
        answer = await site.client.post("/runs/r/tool-calls/c/detach", headers=ME)
        error = '"cart.add" cannot be moved to the background now.'
        assert (answer.status_code, answer.json()) == (
            409,
            {"status": "rejected", "reason": "not_detachable", "error": error},
        )
        await answered(site, await claim(site), said("here"))
        await stream.rest()


async def test_the_frontends_tools_are_none_of_the_gateways() -> None:
    async with serving(echo) as site:
        stream, _ = await requested(site)
        assert [item["name"] for item in (await site.client.get("/tools", headers=ME)).json()["items"]] == ["echo"]
        error_of(await site.client.post("/tools/cart.add", json={}, headers=ME | JSON), 404, "tool_not_found")
        await answered(site, await claim(site), said("done"))
        await stream.rest()
        await quiet(lambda: not site.engine.supervisor.active)


async def test_a_result_that_was_accepted_counts_though_stop_comes_in_the_same_moment() -> None:
    async with serving() as site:
        for number in range(30):
            run = f"/runs/r{number}"
            stream, _ = await requested(site, runId=f"r{number}")
            claim_id = (await site.client.post(f"{run}/tool-calls/c/claim", headers=ME)).json()["claimId"]
            body = {"claimId": claim_id, "output": said("done")}
            sent = site.client.post(f"{run}/tool-calls/c/result", json=body, headers=ME)
            taken, _ = await asyncio.gather(sent, site.client.post(f"{run}/stop", headers=ME))
            result = result_of(await stream.rest())
            assert result["status"] == ("completed" if taken.status_code == 202 else "cancelled")
