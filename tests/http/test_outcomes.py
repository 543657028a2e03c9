"""Every row of contract 5.1 that needs neither a person's form nor a page, through real HTTP, named by its row."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import CANCELLED, AccessDenied, ToolCall, ToolContext, ToolError, ToolOutput, is_cancelled, tool
from tests.execution.process_tools import kill_itself
from tests.http.asking import JSON, agent_body, ask, events_of
from tests.http.site import ME, Site, serving

CHECK = "It may have done its work: check before retrying."
ERROR = {"type": "text", "text": "Error: no paper"}

# What happened (the first column of 5.1) -> how the tests of it begin.
ROWS = {
    "the tool answered": "test_answered_",
    "it answered an error without a code": "test_uncoded_",
    "it answered an error with a code": "test_coded_",
    "it raised": "test_raised_",
    "it raised CancelledError on its own": "test_cancelled_itself_",
    "arguments do not fit, or are not JSON": "test_arguments_",
    "refused by a guard or a person": "test_denied_",
    "the person pressed Stop": "test_stopped_",
    "no answer in time": "test_timeout_",
    "something other than the person ended it": "test_interrupted_",
    "no such tool, hidden, or its server is down": "test_unavailable_",
}


def test_there_is_a_test_for_every_row() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    for row, prefix in ROWS.items():
        assert any(name.startswith(prefix) for name in tests), row


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Person(BaseModel):
    name: str
    age: int | None = None


@tool(name="ends")
async def ends(how: str, ctx: ToolContext) -> Any:
    """Ends as the test says."""
    return ctx.context[how]()


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits for ever."""
    ctx.emit_custom_event("waiting", {})
    await asyncio.Event().wait()


@tool(visibility="hidden")
async def secret() -> None:
    """Is not there."""


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


async def outcome(site: Site, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The output of a call, which the stream, its messages, the JSON answer and the record agree about."""
    stream = await site.client.post(f"/tools/{name}", json=body or {}, headers=ME)
    assert stream.status_code == 200
    events = events_of(stream.content)
    output = told(events)
    assert events[-1]["result"] == output
    assert events[-1]["outcome"] == {"type": "success"}
    answer = await site.client.post(f"/tools/{name}", json=body or {}, headers=ME | JSON)
    assert answer.status_code == 200
    assert answer.json() == output
    return output


def told(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The output of the call of a stream, from `tool.result`; the message that the model reads agrees with it."""
    message = next(event for event in events if event["type"] == "TOOL_CALL_RESULT")
    values = [event["value"] for event in events if event.get("name") == "tool.result"]
    value = next(value for value in values if value["toolCallId"] == message["toolCallId"])
    output = {key: value[key] for key in ("content", "isError", "structuredContent", "status") if key in value}
    assert message["content"] == text_of(output)
    assert ("metadata" in message) is output["isError"]
    if output["isError"]:
        assert value["error"] == {**output["structuredContent"]["error"], "message": message["content"]}
        assert message["metadata"]["tanstack"]["state"] == "output-error"
    return output


def text_of(output: Mapping[str, Any]) -> str:
    texts = [block["text"] for block in output["content"] if block["type"] == "text"]
    return "\n".join(texts) if texts or "structuredContent" not in output else json.dumps(output["structuredContent"])


def error(output: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    """Status, text, code and retryable of an error."""
    assert output["isError"]
    found = output["structuredContent"]["error"]
    return output["status"], text_of(output), found["code"], found["retryable"]


def structured(value: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return {
        "content": [{"type": "text", "text": text}],
        "isError": False,
        "structuredContent": value,
        "status": "completed",
    }


def plain(*blocks: Any) -> dict[str, Any]:
    return {"content": list(blocks), "isError": False, "status": "completed"}


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mapping": ({"rows": 2}, structured({"rows": 2})),
    "dataclass": (Point(1, 2), structured({"x": 1, "y": 2})),
    "model": (Person(name="Ada"), structured({"name": "Ada", "age": None})),
    "list": ([1, "b"], structured({"result": [1, "b"]})),
    "number": (2.5, structured({"result": 2.5})),
    "bool": (True, structured({"result": True})),
    "none": (None, plain({"type": "text", "text": ""})),
    "str": ("done", plain({"type": "text", "text": "done"})),
    "block": (IMAGE, plain(IMAGE)),
    "blocks": ([{"type": "text", "text": "a"}, IMAGE], plain({"type": "text", "text": "a"}, IMAGE)),
    "output": (
        ToolOutput([{"type": "text", "text": "a"}], structured_content={"n": 1}),
        {**plain({"type": "text", "text": "a"}), "structuredContent": {"n": 1}},
    ),
    "nan": ({"n": float("nan")}, structured({"n": None})),
    "large integer": ({"n": 2**60}, structured({"n": str(2**60)})),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_answered_is_completed_with_the_answer_in_its_shape(shape: str) -> None:
    value, expected = SHAPES[shape]
    async with serving(ends, context={shape: lambda: value}) as site:
        assert await outcome(site, "ends", {"arguments": {"how": shape}}) == expected


async def test_answered_is_validated_by_the_output_model() -> None:
    @tool(output_model=Person)
    async def fits() -> dict[str, Any]:
        """Answers what the model wants."""
        return {"name": "Ada", "age": "36"}

    @tool(output_model=Person)
    async def does_not() -> dict[str, Any]:
        """Answers something else."""
        return {"age": "old"}

    async with serving(fits, does_not) as site:
        assert await outcome(site, "fits") == structured({"name": "Ada", "age": 36})
        status, text, code, retryable = error(await outcome(site, "does_not"))
    assert (status, code, retryable) == ("failed", "failed", False)
    assert text.startswith('Error [failed]: The result of "does_not" does not fit:')
    assert "name" in text
    assert "age" in text


async def test_answered_beyond_max_result_bytes_is_too_large() -> None:
    async with serving(ends, context={"big": lambda: "x" * 2000}, max_result_bytes=1000) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "big"}}))
    assert found == ("failed", "Error [too_large]: The result is larger than 1000 bytes.", "too_large", False)


async def test_uncoded_error_text_is_recoded_as_failed() -> None:
    async with serving(ends, context={"text": lambda: "Error: no paper"}) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "text"}}))
    assert found == ("failed", "Error [failed]: no paper", "failed", False)


async def test_uncoded_is_error_is_recoded_and_keeps_its_own_structured_content() -> None:
    said = ToolOutput([IMAGE, {"type": "text", "text": "jammed"}], is_error=True, structured_content={"tray": 2})
    async with serving(ends, context={"flag": lambda: said}) as site:
        output = await outcome(site, "ends", {"arguments": {"how": "flag"}})
    assert error(output) == ("failed", "Error [failed]: jammed", "failed", False)
    assert output["structuredContent"] == {"tray": 2, "error": {"code": "failed", "retryable": False}}
    assert output["content"][0] == IMAGE


async def test_uncoded_error_without_any_text_gets_a_sentence() -> None:
    async with serving(ends, context={"mute": lambda: ToolOutput([], is_error=True)}) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "mute"}}))
    assert found == ("failed", "Error [failed]: The tool reported an error.", "failed", False)


async def test_coded_error_is_unchanged_and_forced_to_be_an_error() -> None:
    async with serving(ends, context={"coded": lambda: "Error [quota]: none left"}) as site:
        output = await outcome(site, "ends", {"arguments": {"how": "coded"}})
    assert error(output) == ("failed", "Error [quota]: none left", "quota", False)


async def test_coded_error_is_retryable_where_it_said_so() -> None:
    said = ToolOutput(
        [{"type": "text", "text": "Error [busy]: later"}],
        structured_content={"error": {"code": "x", "retryable": True}},
    )
    async with serving(ends, context={"coded": lambda: said}) as site:
        output = await outcome(site, "ends", {"arguments": {"how": "coded"}})
    assert error(output) == ("failed", "Error [busy]: later", "busy", True)


RAISED: dict[str, tuple[BaseException, str]] = {
    "exception": (ValueError("no such row"), "Error [failed]: no such row"),
    "without words": (KeyError(), "Error [failed]: KeyError"),
    "already coded": (RuntimeError("Error [quota]: none left"), "Error [quota]: none left"),
    "a group": (ExceptionGroup("two of them", [ValueError("a"), ValueError("b")]), "Error [failed]: two of them"),
    "exit": (SystemExit(3), "Error [failed]: 3"),
    "interrupt": (KeyboardInterrupt(), "Error [failed]: KeyboardInterrupt"),
}


@pytest.mark.parametrize("what", RAISED)
async def test_raised_is_failed_with_its_message(what: str) -> None:
    exception, text = RAISED[what]
    async with serving(ends, context={what: raises(exception)}) as site:
        status, said, code, retryable = error(await outcome(site, "ends", {"arguments": {"how": what}}))
    assert (status, said, retryable) == ("failed", text, False)
    assert code == ("quota" if "quota" in text else "failed")


async def test_raised_tool_error_keeps_its_code_retryable_and_data() -> None:
    limited = ToolError("rate_limited", "Try again in a minute.", retryable=True, data={"retryAfter": 60})
    async with serving(ends, context={"limit": raises(limited)}) as site:
        output = await outcome(site, "ends", {"arguments": {"how": "limit"}})
    assert error(output) == ("failed", "Error [rate_limited]: Try again in a minute.", "rate_limited", True)
    assert output["structuredContent"]["retryAfter"] == 60


async def test_raised_in_a_thread_or_generator_is_failed_as_well() -> None:
    @tool
    def thread() -> None:
        """Exits in its thread."""
        sys.exit("gone")

    @tool
    async def generator() -> Any:
        """Yields, then raises."""
        yield 1
        raise ValueError("after one")

    async with serving(thread, generator) as site:
        assert error(await outcome(site, "thread"))[:2] == ("failed", "Error [failed]: gone")
        assert error(await outcome(site, "generator"))[:2] == ("failed", "Error [failed]: after one")


async def test_cancelled_itself_is_failed() -> None:
    async with serving(ends, context={"cancel": raises(asyncio.CancelledError())}) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "cancel"}}))
    assert found == ("failed", "Error [failed]: The tool cancelled itself.", "failed", False)


@tool
async def typed(count: int, to: str) -> None:
    """Wants a number and a word."""


async def test_arguments_that_do_not_fit_are_422_by_field_on_tools() -> None:
    async with serving(typed) as site:
        refused = await site.client.post("/tools/typed", json={"arguments": {"count": "many", "nonsense": 1}})
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "invalid_arguments"
        assert {item["field"] for item in refused.json()["error"]["details"]} == {"count", "to", "nonsense"}
        not_an_object = await site.client.post("/tools/typed", json={"arguments": [1]})
        assert (not_an_object.status_code, not_an_object.json()["error"]["code"]) == (422, "invalid_arguments")


@pytest.mark.parametrize(
    ("given", "names"),
    [('{"count": "many"}', ("count", "to")), ("{not json", ("typed", "JSON")), ("[1]", ("count", "to"))],
)
async def test_arguments_of_an_agents_call_fail_the_call_and_name_what_is_wrong(
    given: str, names: tuple[str, ...]
) -> None:
    async with serving(typed) as site:
        answer = await site.client.post("/agents/tools", json=agent_body(ask(("c", "typed", given))), headers=ME)
        status, text, code, retryable = error(told(events_of(answer.content)))
    assert (status, code, retryable) == ("failed", "invalid_arguments", False)
    assert text.startswith("Error [invalid_arguments]: ")
    assert all(name in text for name in names)


async def test_denied_by_a_guard() -> None:
    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> ToolOutput:
        raise AccessDenied("Not on a Sunday.")

    async with serving(ends, context={}, middleware=[guard]) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "never"}}))
    assert found == ("failed", "Error [denied]: Not on a Sunday.", "denied", False)


async def test_denied_by_the_tool_itself() -> None:
    async with serving(ends, context={"no": raises(AccessDenied())}) as site:
        found = error(await outcome(site, "ends", {"arguments": {"how": "no"}}))
    assert found == ("failed", "Error [denied]: Access denied.", "denied", False)


async def test_stopped_is_cancelled_with_the_words_that_is_cancelled_knows() -> None:
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r"}, ME)
        await stream.until("waiting")
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = [event for _, event in await stream.rest()]
    output = told(events)
    assert error(output) == ("cancelled", CANCELLED, "cancelled", False)
    assert CANCELLED == "Error [cancelled]: Cancelled by the user."
    assert is_cancelled(text_of(output))
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_stopped_call_is_cancelled_and_its_run_completes() -> None:
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r", "toolCallId": "c"}, ME)
        await stream.until("waiting")
        assert (await site.client.post("/runs/r/tool-calls/c/stop", headers=ME)).status_code == 202
        events = [event for _, event in await stream.rest()]
    assert error(told(events))[:2] == ("cancelled", CANCELLED)
    assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("annotations", "retryable"),
    [({}, False), ({"read_only": True}, True), ({"idempotent": True}, True), ({"destructive": True}, False)],
)
async def test_timeout_names_tool_and_limit_and_is_retryable_if_safe(
    annotations: dict[str, bool], retryable: bool
) -> None:
    @tool(timeout=0.05, annotations=annotations)
    async def slow() -> None:
        """Takes its time."""
        await asyncio.Event().wait()

    async with serving(slow) as site:
        found = error(await outcome(site, "slow"))
    text = f'Error [timeout]: "slow" didn\'t answer within 0.05 s, so it was stopped. {CHECK}'
    assert found == ("timeout", text, "timeout", retryable)


async def test_timeout_of_the_caller_is_the_one_that_is_named() -> None:
    async with serving(waits) as site:
        found = error(await outcome(site, "waits", {"timeout": 0.1}))
    assert found[1] == f'Error [timeout]: "waits" didn\'t answer within 0.1 s, so it was stopped. {CHECK}'


def ended(what: str, name: str = "waits") -> tuple[str, str, str, bool]:
    text = f'Error [interrupted]: "{name}" was ended by {what} before it finished. {CHECK}'
    return ("interrupted", text, "interrupted", False)


async def over(site: Site) -> list[dict[str, Any]]:
    """The events of run `r`, once it is over."""
    await site.client.get("/runs/r", params={"wait": "20"}, headers=ME)
    return events_of((await site.client.get("/runs/r/events", headers=ME)).content)


async def test_interrupted_by_its_own_request() -> None:
    @tool
    async def gives_up(ctx: ToolContext) -> None:
        """Ends itself."""
        assert ctx.task is not None
        await ctx.task.cancel()
        await asyncio.Event().wait()

    async with serving(gives_up) as site:
        assert error(await outcome(site, "gives_up")) == ended("its own request", "gives_up")


async def test_interrupted_by_the_disconnect_of_its_last_viewer() -> None:
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r", "onDisconnect": "cancel", "disconnectGrace": 0}, ME)
        await stream.until("waiting")
        stream.leave()
        events = await over(site)
    assert error(told(events)) == ended("the disconnect of its last viewer")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")


async def test_interrupted_by_the_runs_time_limit() -> None:
    async with serving(waits, run_timeout=0.1) as site:
        stream = await site.open("/tools/waits", {"runId": "r"}, ME)
        events = [event for _, event in await stream.rest()]
    assert error(told(events)) == ended("the run's time limit")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "run_timeout")


async def test_interrupted_by_the_gateways_shutdown() -> None:
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r"}, ME)
        await stream.until("waiting")
        await site.gateway.drain()
        events = await over(site)
    assert error(told(events)) == ended("the gateway's shutdown")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")


@pytest.mark.allow_blocking
async def test_interrupted_by_the_death_of_its_process() -> None:
    async with serving(kill_itself) as site:
        assert error(await outcome(site, "kill_itself")) == ended("the death of its process", "kill_itself")


@pytest.mark.parametrize("name", ["nothing", "secret"])
async def test_unavailable_is_retryable_and_says_the_same_of_a_hidden_tool(name: str) -> None:
    async with serving(secret) as site:
        answer = await site.client.post("/agents/tools", json=agent_body(ask(("c", name, {}))), headers=ME)
        found = error(told(events_of(answer.content)))
        assert (await site.client.post(f"/tools/{name}", json={})).status_code == 404
    text = f'Error [unavailable]: Tool "{name}" is not available right now. Use another tool or try again later.'
    assert found == ("unavailable", text, "unavailable", True)


async def test_unavailable_nested_call_is_an_output_of_the_caller_as_well() -> None:
    @tool
    async def asks(ctx: ToolContext) -> str:
        """Calls what is not there."""
        return (await ctx.call_tool("nothing", {})).status

    async with serving(asks) as site:
        assert text_of(await outcome(site, "asks")) == "unavailable"
