"""The official `@ag-ui/client` 1.0.0 in Node reads runs of `POST /tools/{name}`, without a word on its console."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.execution.outcomes import CANCELLED
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server

# The client is a process and its server another: nothing here is on a loop.
CLIENT = INTEROP / "official_client.mjs"
OPENING = ["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


class Case(NamedTuple):
    """A tool, what is asked of it, and what the client has to make of it."""

    tool: str
    status: str
    text: str
    gated: bool = True
    task: dict[str, Any] = {}  # noqa: RUF012 - never changed
    outcome: str = "success"
    customs: list[str] = []  # noqa: RUF012


TIMED_OUT = (
    'Error [timeout]: "wait_forever" didn\'t answer within 0.5 s, so it was stopped. '
    "It may have done its work: check before retrying."
)
STEPS = ["test.started", *["test.step"] * 5, "tool.result"]
OUTPUTS = ["test.started", *["tool.output"] * 3, "tool.result"]

CASES = {
    "an async tool completes with progress": Case("import_steps", "completed", '{"imported":5}', customs=STEPS),
    "a tool fails": Case("fail", "failed", "Error [failed]: the disk is full", customs=["test.started", "tool.result"]),
    "a tool runs into its time limit": Case(
        "wait_forever", "timeout", TIMED_OUT, gated=False, task={"request": {"timeout": 0.5}},
        customs=["test.started", "tool.result"],
    ),
    "Stop ends a run": Case(
        "wait_forever", "cancelled", CANCELLED, gated=False, task={"onFirstCustom": "stop"}, outcome="cancelled",
        customs=["test.started", "run.stopping", "tool.result"],
    ),
    "payloads that JSON cannot hold": Case(
        "invalid_payloads", "completed",
        '{"nan":null,"big":"18446744073709551616","text":"\ufffd","cycle":{"self":{"$unserializable":"dict"}}}',
        customs=["test.started", "test.integers", "test.surrogate", "test.cycle", "test.keys", "tool.result"],
    ),
    "a tool in a process of its own": Case("in_process", "completed", '{"counted":5}', customs=STEPS),
    "a generator": Case("generate", "completed", '{"part":3}', customs=OUTPUTS),
    "an async generator": Case("generate_async", "completed", '{"part":3}', customs=OUTPUTS),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


def play(server: Server, tool: str, *, gate: Path | None = None, quiet: bool = True, **task: Any) -> dict[str, Any]:
    """What the official client saw of a run of `tool`; unless not `quiet`, a word on its console is a fault of ours."""
    arguments = dict(task.pop("arguments", {}))
    if gate is not None:
        os.mkfifo(gate)
        arguments["gate"] = str(gate)
        task["gate"] = str(gate)
    task.setdefault("runId", str(uuid.uuid4()))
    seen = run_node(CLIENT, url=server.url, tool=tool, arguments=arguments, **task)
    assert not quiet or seen["console"] == []
    return seen


def log_of(server: Server, run_id: str) -> list[dict[str, Any]]:
    """The events of a finished run as the gateway has them."""
    with server.client() as client:
        body = client.get(f"/runs/{run_id}/events").text
    return [json.loads(line.removeprefix("data: ")) for line in body.split("\n") if line.startswith("data: ")]


def customs_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == "CUSTOM" and event["name"] != "tool.progress"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_official_client_accepts_a_run_in_which(case: Case, server: Server, tmp_path: Path) -> None:
    run_id = str(uuid.uuid4())
    seen = play(server, case.tool, gate=tmp_path / "gate" if case.gated else None, runId=run_id, **case.task)
    events = seen["events"]

    assert seen["rejected"] is None
    assert seen["failed"] is None
    assert seen["outcome"]["name"] == case.outcome
    assert seen["outcome"]["wire"] == {"type": case.outcome}
    assert [event["name"] for event in customs_of(events)] == case.customs
    assert events == log_of(server, run_id), "the client has to strip or to change nothing"

    result = next(event["value"] for event in events if event.get("name") == "tool.result")
    assert result["status"] == case.status
    assert result["content"] == [{"type": "text", "text": case.text}]
    asked, answered = seen["messages"]
    assert asked["toolCalls"][0]["function"]["name"] == case.tool
    assert (answered["role"], answered["toolCallId"]) == ("tool", asked["toolCalls"][0]["id"])
    assert answered["content"] == case.text
    assert seen["newMessages"] == seen["messages"]


@pytest.mark.parametrize("tool", ["import_steps", "fail", "invalid_payloads", "in_process", "generate"])
def test_the_first_custom_event_arrives_while_the_tool_still_runs(tool: str, server: Server, tmp_path: Path) -> None:
    seen = play(server, tool, gate=tmp_path / "gate")

    # The tool waits for a second request, which the client makes only when it has the event.
    assert seen["firstCustom"] == {
        "name": "test.started", "before": [*OPENING, "CUSTOM"], "run": "running", "call": "running",
    }  # fmt: skip
    assert seen["gate"] == "completed"
    assert [event["type"] for event in seen["events"]][-2:] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]


def test_progress_reaches_the_official_client_up_to_its_last_step(server: Server, tmp_path: Path) -> None:
    seen = play(server, "import_steps", gate=tmp_path / "gate")

    reports = [event["value"] for event in seen["events"] if event.get("name") == "tool.progress"]
    call_id = seen["messages"][0]["toolCalls"][0]["id"]
    assert reports[-1] == {
        "toolCallId": call_id, "toolName": "import_steps", "progress": 5, "total": 5, "percent": 100,
        "message": "step 5",
    }  # fmt: skip
    assert seen["result"]["structuredContent"] == {"imported": 5}


def test_stop_answers_while_the_stream_is_open_and_the_run_ends_cancelled(server: Server) -> None:
    run_id = str(uuid.uuid4())
    seen = play(server, "wait_forever", runId=run_id, onFirstCustom="stop")

    assert seen["firstCustom"]["run"] == "running"
    assert seen["stop"] == 202
    with server.client() as client:
        record = client.get(f"/runs/{run_id}").json()
    assert (record["status"], record["reason"]) == ("cancelled", "user")
    assert record["outcome"] == {"type": "cancelled"}


def test_a_client_that_aborts_its_request_leaves_the_run_alone(server: Server) -> None:
    run_id = str(uuid.uuid4())
    seen = play(server, "wait_forever", runId=run_id, onFirstCustom="abort")

    assert seen["events"][-1]["type"] == "RUN_ERROR"
    assert seen["events"][-1]["code"] == "abort"
    with server.client() as client:
        assert client.get(f"/runs/{run_id}").json()["status"] == "running"
        assert client.post(f"/runs/{run_id}/stop").status_code == 202


def test_a_client_that_aborts_its_request_ends_a_run_that_asked_for_that(server: Server) -> None:
    run_id = str(uuid.uuid4())
    request = {"onDisconnect": "cancel", "disconnectGrace": 0}
    play(server, "wait_forever", runId=run_id, onFirstCustom="abort", request=request)

    events = log_of(server, run_id)  # follows the run to its end
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "interrupted"
    result = next(event["value"] for event in events if event.get("name") == "tool.result")
    assert result["status"] == "interrupted"


def test_the_official_client_is_refused_before_the_stream_with_the_field_named(server: Server) -> None:
    seen = play(server, "burst", quiet=False, arguments={"count": "many", "colour": "red"})

    assert [level for level, _ in seen["console"]] == ["error"], "the client itself reports what it throws"
    assert seen["events"] == []
    assert seen["rejected"]["status"] == 422
    error = seen["rejected"]["payload"]["error"]
    assert error["code"] == "invalid_arguments"
    assert {item["field"] for item in error["details"]} == {"count", "colour"}


def test_ten_thousand_events_pass_the_official_client_in_order(server: Server) -> None:
    seen = play(server, "burst", arguments={"count": 10_000})

    steps = [event["value"]["step"] for event in customs_of(seen["events"]) if event["name"] == "test.step"]
    assert steps == list(range(1, 10_001))


def history(*calls: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation whose last message asks for these calls: (id, tool, arguments)."""
    asked = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for call_id, tool, arguments in calls
    ]
    return [{"id": "u", "role": "user", "content": "go"}, {"id": "a", "role": "assistant", "toolCalls": asked}]


def play_agent(server: Server, messages: list[dict[str, Any]], **task: Any) -> dict[str, Any]:
    """What an unchanged HttpAgent saw of agent `tools`."""
    seen = run_node(CLIENT, url=server.url, agent="tools", messages=messages, **task)
    assert seen["console"] == []
    assert seen["rejected"] is None
    return seen


def test_an_unchanged_http_agent_runs_the_calls_of_the_last_message(server: Server) -> None:
    run_id = str(uuid.uuid4())
    messages = history(("c1", "burst", {"count": 3}), ("c2", "burst", {"count": "x"}), ("c3", "no_such_tool", {}))
    seen = play_agent(server, messages, runId=run_id)

    assert seen["events"] == log_of(server, run_id)
    assert seen["outcome"]["wire"] == {"type": "success"}
    assert seen["messages"][:2] == messages, "the calls that the client has already stay as they are"
    results = {message["toolCallId"]: message["content"] for message in seen["newMessages"]}
    assert results.keys() == {"c1", "c2", "c3"}
    assert results["c1"] == '{"result":3}'
    assert results["c2"].startswith("Error [invalid_arguments]: ")
    assert results["c3"].startswith('Error [unavailable]: Tool "no_such_tool"')


def test_an_unchanged_http_agent_sees_stop_cancel_every_call(server: Server) -> None:
    messages = history(("c1", "wait_forever", {}), ("c2", "wait_forever", {}))
    seen = play_agent(server, messages, runId=str(uuid.uuid4()), onFirstCustom="stop")

    assert seen["firstCustom"]["run"] == "running"
    assert seen["stop"] == 202
    assert seen["outcome"] == {"name": "cancelled", "wire": {"type": "cancelled"}}
    assert [message["content"] for message in seen["newMessages"]] == [CANCELLED, CANCELLED]
