"""The built-in agent `tools`: it runs what the last assistant message left unanswered, and says nothing twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from ag_ui.core import AgentCapabilities, RunAgentInput

from gateway.execution.context import ToolContext
from gateway.execution.outcomes import CANCELLED
from gateway.execution.tools import tool
from tests.http.asking import Gates, Reader, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import LONG, ME, serving


@tool(visibility="hidden")
async def hidden() -> str:
    """Absent until it is enabled."""
    return "boo"


@tool
async def optional(ctx: ToolContext, text: str = "nothing") -> str:
    """Needs no argument."""
    return text


def of_call(events: list[dict[str, Any]], call_id: str) -> list[str]:
    """What happened to a call: event types, and the names of custom events."""
    return [
        event.get("name", event["type"])
        for event in events
        if call_id in (event.get("toolCallId"), (event.get("value") or {}).get("toolCallId"))
    ]


def result_of(events: list[dict[str, Any]], call_id: str) -> dict[str, Any]:
    return next(
        event["value"]
        for event in events
        if event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id
    )


# -- side by side, one after the other --


async def test_calls_of_one_run_work_side_by_side_and_each_answers_when_it_ends() -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})))
        stream = Reader(await site.open("/agents/tools", body))
        came = [(await stream.until("came"))["value"]["name"] for _ in range(2)]
        assert sorted(came) == ["one", "two"]
        gates["two"].set()
        assert (await stream.until("TOOL_CALL_RESULT"))["toolCallId"] == "c2"
        record = (await site.client.get("/runs/r")).json()
        assert {call["toolCallId"]: call["status"] for call in record["toolCalls"]} == {
            "c1": "running",
            "c2": "completed",
        }
        gates["one"].set()
        events = await stream.rest()
        assert [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["c2", "c1"]
        assert events[-1]["outcome"] == {"type": "success"}
        assert "result" not in events[-1]


async def test_calls_run_one_after_the_other_when_the_operator_says_so() -> None:
    gates = Gates()
    async with serving(waits, context=gates, parallel_tool_calls=False) as site:
        body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})))
        stream = Reader(await site.open("/agents/tools", body))
        assert (await stream.until("came"))["value"]["toolCallId"] == "c1"
        gates["two"].set()
        gates["one"].set()
        await stream.rest()
        assert gates.trail == ["one came", "one went", "two came", "two went"]
        events = events_of((await site.client.get("/runs/r/events")).content)
        order = [event["toolCallId"] for event in events if event["type"] in ("TOOL_CALL_START", "TOOL_CALL_RESULT")]
        assert order == ["c1", "c1", "c2", "c2"]
        assert (await site.client.get("/capabilities")).json()["tools"]["parallelCalls"] is False


async def test_a_call_that_has_not_started_can_be_stopped_and_the_others_go_on() -> None:
    gates = Gates()
    async with serving(waits, context=gates, parallel_tool_calls=False) as site:
        body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})))
        stream = Reader(await site.open("/agents/tools", body))
        await stream.until("came")
        record = (await site.client.get("/runs/r")).json()
        assert [(call["toolCallId"], call["status"]) for call in record["toolCalls"]] == [
            ("c1", "running"),
            ("c2", "pending"),
        ]
        stopped = await site.client.post("/runs/r/tool-calls/c2/stop")
        assert stopped.status_code == 202
        gates["one"].set()
        await stream.rest()
        events = events_of((await site.client.get("/runs/r/events")).content)
        assert gates.trail == ["one came", "one went"]
        assert result_of(events, "c1")["status"] == "completed"
        assert result_of(events, "c2")["content"] == [{"type": "text", "text": CANCELLED}]
        assert events[-1]["outcome"] == {"type": "success"}


async def test_stop_of_the_run_answers_every_call_also_those_that_had_not_started() -> None:
    gates = Gates()
    async with serving(waits, context=gates, parallel_tool_calls=False) as site:
        body = agent_body(ask(*((f"c{n}", "waits", {"name": str(n)}) for n in range(3))))
        stream = Reader(await site.open("/agents/tools", body))
        await stream.until("came")
        assert (await site.client.post("/runs/r/stop")).status_code == 202
        await stream.rest()
        events = events_of((await site.client.get("/runs/r/events")).content)
        results = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert [event["content"] for event in results] == [CANCELLED] * 3
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert gates.trail == ["0 came"]


# -- what goes out for a call --


async def test_a_call_that_the_client_holds_is_named_again_without_its_arguments() -> None:
    async with serving(echo) as site:
        body = agent_body(ask(("c1", "echo", {"text": "hello"})))
        events = events_of((await site.client.post("/agents/tools", json=body)).content)
        assert of_call(events, "c1") == ["TOOL_CALL_START", "TOOL_CALL_END", "tool.result", "TOOL_CALL_RESULT"]
        assert events[1]["parentMessageId"] == "a"
        assert events[-2]["messageId"] == "c1:result"
        assert events[-2]["content"] == '{"text":"hello"}'


async def test_an_id_used_twice_is_renamed_and_the_new_call_sends_its_arguments() -> None:
    async with serving(echo) as site:
        calls = [("c", "echo", {"text": "1"}), ("c", "echo", {"text": "2"}), ("c~2", "echo", {"text": "3"})]
        body = agent_body(ask(*calls, ("c", "echo", {"text": "4"})))
        events = events_of((await site.client.post("/agents/tools", json=body)).content)
        said = {
            event["toolCallId"]: json.loads(event["content"])["text"]
            for event in events
            if event["type"] == "TOOL_CALL_RESULT"
        }
        assert said == {"c": "1", "c~2": "3", "c~3": "2", "c~4": "4"}
        sent = [
            (event["toolCallId"], json.loads(event["delta"])) for event in events if event["type"] == "TOOL_CALL_ARGS"
        ]
        assert sorted(sent) == [("c~3", {"text": "2"}), ("c~4", {"text": "4"})]
        parents = {event["parentMessageId"] for event in events if event["type"] == "TOOL_CALL_START"}
        assert parents == {"a"}


async def test_a_client_that_sends_a_renamed_call_back_has_it_answered_already() -> None:
    gates = Gates()
    async with serving(echo, context=gates) as site:
        calls = [("c", "echo", {"text": "1"}), ("c", "echo", {"text": "2"})]
        await site.client.post("/agents/tools", json=agent_body(ask(*calls)), headers=ME)
        thread = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [call["id"] for call in thread[1]["toolCalls"]] == ["c", "c", "c~2"]
        again = await site.client.post("/agents/tools", json=agent_body(thread, runId="r2"), headers=ME)
        error_of(again, 400, "invalid_request")
        thread.pop()  # the last result got lost
        again = await site.client.post("/agents/tools", json=agent_body(thread, runId="r3"), headers=ME)
        events = events_of(again.content)
        assert [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"] == ["c~2"]
        assert gates.executions == {"r": 2, "r3": 1}


async def test_a_tool_that_is_not_there_is_unavailable_and_the_others_run() -> None:
    async with serving(echo, hidden) as site:
        names = ["nothing", "hidden", "echo"]
        body = agent_body(ask(*((name, name, {}) for name in names)))
        events = events_of((await site.client.post("/agents/tools", json=body)).content)
        for name in names[:-1]:
            result = result_of(events, name)
            assert result["status"] == "unavailable"
            assert result["error"]["retryable"] is True
            text = (
                f'Error [unavailable]: Tool "{name}" is not available right now. Use another tool or try again later.'
            )
            assert result["content"] == [{"type": "text", "text": text}]
            assert of_call(events, name)[:2] == ["TOOL_CALL_START", "TOOL_CALL_END"]
        assert result_of(events, "echo")["status"] == "completed"
        assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("text", ['{"text":', "NaN", "{'text': 1}", '{"text": "\\ud800"}', "[" * 2_000])
async def test_arguments_that_are_no_json_fail_the_call_by_name(text: str) -> None:
    async with serving(optional) as site:
        events = events_of(
            (await site.client.post("/agents/tools", json=agent_body(ask(("c", "optional", text))))).content
        )
        result = result_of(events, "c")
        assert result["status"] == "failed"
        assert result["error"]["code"] == "invalid_arguments"
        assert result["error"]["retryable"] is False
        assert 'Arguments of "optional" are not JSON' in result["content"][0]["text"]


@pytest.mark.parametrize("text", ["", "  ", "null", "[]", '"text"', "3", "true"])
async def test_arguments_that_are_no_object_count_as_none_at_all(text: str) -> None:
    async with serving(optional) as site:
        events = events_of(
            (await site.client.post("/agents/tools", json=agent_body(ask(("c", "optional", text))))).content
        )
        assert result_of(events, "c")["content"] == [{"type": "text", "text": "nothing"}]


async def test_arguments_that_do_not_fit_the_tool_name_their_fields_in_the_result() -> None:
    async with serving(echo) as site:
        body = agent_body(ask(("c", "echo", {"text": 1, "colour": "red"})))
        events = events_of((await site.client.post("/agents/tools", json=body)).content)
        result = result_of(events, "c")
        assert result["error"]["code"] == "invalid_arguments"
        assert "text" in result["content"][0]["text"]
        assert "colour" in result["content"][0]["text"]


# -- refusals --

ANSWERED = [*ask(("c", "echo", {})), {"id": "x", "role": "tool", "toolCallId": "c", "content": "ok"}]
REFUSALS: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "nobody has asked for anything": ({"messages": []}, 400, "invalid_request", "messages"),
    "the last assistant message makes no call": (
        {"messages": [*ask(("c", "echo", {})), {"id": "b", "role": "assistant", "content": "done"}]},
        400,
        "invalid_request",
        "messages",
    ),
    "all calls are answered": ({"messages": ANSWERED}, 400, "invalid_request", "messages"),
    "a resume finds no open question": (
        {"messages": ANSWERED, "resume": [{"interruptId": "i", "status": "resolved", "payload": 1}]},
        404,
        "interrupt_not_found",
        None,
    ),
    "a call has an id that no path can hold": (
        {"messages": ask(("a/b", "echo", {}))},
        400,
        "invalid_request",
        "messages.1.toolCalls.0.id",
    ),
    "a call has no id": ({"messages": ask(("", "echo", {}))}, 400, "invalid_request", "messages.1.toolCalls.0.id"),
    "a message has no role": ({"messages": [{"id": "1", "content": "x"}]}, 400, "invalid_request", "messages.0"),
    "the run has no thread": ({"threadId": ""}, 400, "invalid_request", "threadId"),
    "the run's id has a slash": ({"runId": "a/b"}, 400, "invalid_request", "runId"),
    "the run's id has a control character": ({"runId": "a\nb"}, 400, "invalid_request", "runId"),
    "the run's id is too long": ({"runId": "x" * 201}, 400, "invalid_request", "runId"),
    "the run's id is a number": ({"runId": 7}, 400, "invalid_request", "runId"),
    "the parent's id is none": ({"parentRunId": "/"}, 400, "invalid_request", "parentRunId"),
    "an option is not known": (
        {"forwardedProps": {"gateway": {"onDisconect": "cancel"}}},
        400,
        "invalid_request",
        "forwardedProps.gateway.onDisconect",
    ),
    "an option is of no use": (
        {"forwardedProps": {"gateway": {"disconnectGrace": -1}}},
        400,
        "invalid_request",
        "forwardedProps.gateway.disconnectGrace",
    ),
    "the options are no object": (
        {"forwardedProps": {"gateway": "cancel"}},
        400,
        "invalid_request",
        "forwardedProps.gateway.",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_nothing_starts_when(what: str) -> None:
    change, status, code, field = REFUSALS[what]
    gates = Gates()
    async with serving(echo, context=gates) as site:
        body = {**agent_body(ask(("c", "echo", {}))), **change}
        error = error_of(await site.client.post("/agents/tools", json=body, headers=ME), status, code)
        if field is not None:
            fields = [item["field"] for item in error["details"]]
            assert any(item.startswith(field) for item in fields), fields
        assert not gates.executions
        assert (await site.client.get("/runs", headers=ME)).json()["items"] == []


async def test_an_agent_that_is_not_there_is_not_found_on_every_path() -> None:
    async with serving(echo) as site:
        for answer in (
            await site.client.post("/agents/nobody", content=b"{", headers={"content-type": "application/json"}),
            await site.client.get("/agents/nobody?runId=r"),
            await site.client.get("/agents/nobody?threadId=t"),
            await site.client.get("/agents/nobody/capabilities"),
        ):
            error_of(answer, 404, "agent_not_found")


async def test_nested_beyond_sense_is_a_bad_request_and_not_our_failure() -> None:
    async with serving(echo) as site:
        for depth in (500, 900, 1_000, 1_020, 100_000):
            deep = "[" * depth + "]" * depth
            text = json.dumps(agent_body(ask(("c", "echo", {})), runId=f"r{depth}")).replace("{}", deep, 1)
            answer = await site.client.post("/agents/tools", content=text, headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400), answer.text


async def test_both_spellings_of_the_official_models_mean_the_same() -> None:
    gates = Gates()
    async with serving(waits, echo, context=gates, on_disconnect="continue") as site:
        made = RunAgentInput.model_validate(
            agent_body(ask(("c", "echo", {"text": "hello"})), forwardedProps={"user": 1}, parentRunId="p")
        )
        body = made.model_dump(mode="json")
        assert "thread_id" in body
        events = events_of((await site.client.post("/agents/tools", json=body, headers=ME)).content)
        assert of_call(events, "c") == ["TOOL_CALL_START", "TOOL_CALL_END", "tool.result", "TOOL_CALL_RESULT"]
        assert events[0]["parentRunId"] == "p"
        assert gates.contexts[0].metadata["forwarded_props"] == {"user": 1}
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert [message["role"] for message in thread["messages"]] == ["user", "assistant", "tool"]
        assert len(thread["messages"][1]["toolCalls"]) == 1


async def test_the_answer_is_a_stream_whatever_is_accepted() -> None:
    async with serving(echo) as site:
        for number, accept in enumerate(("application/json", "text/html", "application/vnd.ag-ui.event+proto")):
            body = agent_body(ask(("c", "echo", {})), runId=str(number))
            answer = await site.client.post("/agents/tools", json=body, headers={"accept": accept})
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert events_of(answer.content)[-1]["type"] == "RUN_FINISHED"


async def test_what_the_body_says_reaches_the_tools_and_credentials_do_not(caplog: pytest.LogCaptureFixture) -> None:
    gates, secrets = Gates(), {
        "authorization": "Bearer secret-0001",
        "cookie": "agui_session=secret-of-a-cookie-0002",
        "x-api-key": "secret-0003",
        "x-session-id": "secret-of-a-session-0004",
        "proxy-authorization": "secret-0005",
    }  # fmt: skip
    shown = {"accept-language": "de", "user-agent": "me/1", "x-request-id": "mine", "mcp-session-id": "m", "mcp-x": "y"}
    caplog.set_level("DEBUG")
    async with serving(echo, context=gates) as site:
        body = agent_body(
            ask(("c", "echo", {})),
            context=[{"description": "d", "value": "v"}],
            tools=[{"name": "theirs", "description": "", "parameters": {}}],
            forwardedProps={"k": {"deep": [1]}, "gateway": {"onDisconnect": "continue"}},
        )
        answer = await site.client.post("/agents/tools?ticket=secret-0006", json=body, headers={**secrets, **shown})
        ctx = gates.contexts[0]
        assert ctx.metadata == {
            "headers": shown,
            "forwarded_props": body["forwardedProps"],
            "context": body["context"],
            "client_tools": body["tools"],
            "client_request_id": "mine",
        }
        assert ctx.mcp_headers == {"mcp-session-id": "m", "mcp-x": "y"}
        assert ctx.client_request_id == "mine"
        assert answer.headers["x-request-id"] == ctx.request_id != "mine"
    said = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert said
    assert not [line for line in said if "secret-" in line]
    assert "secret-" not in repr([vars(record) for record in caplog.records if record.name.startswith("gateway")])


# -- the catalogue --


async def test_the_catalogue_and_the_capabilities_are_what_the_official_models_expect() -> None:
    async with serving(echo, hidden, run_timeout=12.5) as site:
        assert [item["name"] for item in (await site.client.get("/agents")).json()["items"]] == ["tools"]
        whole = (await site.client.get("/capabilities")).json()
        assert (await site.client.get("/agents/tools/capabilities")).json() == whole
        said = AgentCapabilities.model_validate(whole)
        assert said.model_dump(by_alias=True, exclude_none=True) == whole
        assert said.transport is not None
        assert said.transport.resumable is True
        assert said.transport.streaming is True
        assert said.tools is not None
        assert [item.name for item in said.tools.items or ()] == ["echo"]
        assert said.tools.parallel_calls is True
        assert said.execution is not None
        assert said.execution.max_execution_time == 12_500
        assert said.human_in_the_loop is not None
        assert said.human_in_the_loop.supported is True
        assert said.human_in_the_loop.approvals is True
        assert said.human_in_the_loop.approve_with_edits is True
        assert said.human_in_the_loop.interrupts is True
        assert said.human_in_the_loop.feedback is False
        declared = {"identity", "transport", "tools", "execution", "humanInTheLoop"}
        assert not set(whole) - declared, "only what is there is declared"
        assert [item["name"] for item in (await site.client.get("/tools")).json()["items"]] == ["echo"]


async def test_many_calls_of_one_message_all_run_and_all_answer() -> None:
    async with serving(echo) as site:
        body = agent_body(ask(*((f"c{n}", "echo", {"text": str(n)}) for n in range(200))))
        async with asyncio.timeout(LONG):
            events = events_of((await site.client.post("/agents/tools", json=body)).content)
        results = {event["toolCallId"]: event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"}
        assert results == {f"c{n}": f'{{"text":"{n}"}}' for n in range(200)}
