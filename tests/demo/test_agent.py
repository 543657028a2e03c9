"""The demo's agent by itself: any client of the protocol may talk to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.demo import agent
from gateway.demo.backend import Backend
from gateway.demo.samples import ALICE
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve

SESSION = "session-of-the-demo"

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "WORD_SECONDS", 0)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """Served where the programs of tests/interop look for an agent."""
    with Backend(Starlette(routes=[Route("/agents/demo", agent.answer, methods=["POST"])])) as running:
        yield running


def says(text: str) -> Json:
    return {"id": f"user-{text}", "role": "user", "content": text}


def ask(backend: Backend, *messages: Json, **more: Any) -> list[Json]:
    """The events of one run."""
    body = {"threadId": "t", "runId": "r", "messages": messages, **more}
    stream = httpx.post(f"{backend.url}/agents/demo", json=body, trust_env=False).raise_for_status().text
    return [json.loads(frame.removeprefix("data: ")) for frame in stream.split("\n\n") if frame]


def told(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def called(events: list[Json]) -> list[tuple[str, Json]]:
    names = [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"]
    arguments = "".join(event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS")
    return [(name, json.loads(arguments)) for name in names]


def test_the_official_client_takes_each_of_its_runs(backend: Backend) -> None:
    turns = [{"runId": text, "add": [says(text)]} for text in ("hello", "import", "read to me")]
    seen = run_node(INTEROP / "agents.mjs", url=backend.url, session=SESSION, threadId="t", agent="demo", turns=turns)
    assert seen["console"] == []
    assert [(turn["rejected"], turn["outcome"]) for turn in seen["turns"]] == [(None, "success")] * 3
    answers = [message["content"] for message in seen["turns"][-1]["messages"] if message["role"] == "assistant"]
    assert answers[0] == agent.HELP
    assert "nobody gave me one" in answers[1]
    assert answers[2] == ALICE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"status": "resolved", "payload": {"people": 3, "time": "18:00"}}, "I have booked a table for 3 at 18:00."),
        ({"status": "cancelled"}, "Then I book nothing."),
    ],
)
def test_the_official_client_answers_its_question(backend: Backend, given: Json, said: str) -> None:
    seen = run_node(
        INTEROP / "interrupts.mjs",
        url=backend.url,
        session=SESSION,
        threadId="t",
        agent="demo",
        add=[says("book a table")],
        answers=[{"table": given}],
    )
    assert seen["console"] == []
    asked, answered = seen["runs"]
    assert (asked["outcome"], answered["outcome"], answered["rejected"]) == ("interrupt", "success", None)
    assert answered["messages"][-1]["content"] == said


def test_behind_the_gateway_the_official_client_gets_the_import_and_the_booking_whole(serve: Serve) -> None:
    demo = {"url": serve("demo").url, "session": SESSION, "threadId": "t", "agent": "demo"}
    seen = run_node(INTEROP / "agents.mjs", **demo, turns=[{"runId": "r", "add": [says("import")]}])
    assert seen["console"] == []
    (turn,) = seen["turns"]
    assert (turn["rejected"], turn["outcome"]) == (None, "success")
    roles = [message["role"] for message in turn["messages"]]
    assert roles == ["user", "reasoning", "assistant", "assistant", "tool", "assistant"]
    assert turn["messages"][-1]["content"] == "Done: 21 orders are in, and 3 lines did not fit."
    assert "import.row" in [event.get("name") for event in turn["events"]]

    given = {"table": {"status": "resolved", "payload": {"people": 3, "time": "18:00"}}}
    seen = run_node(INTEROP / "interrupts.mjs", **demo, add=[says("book")], answers=[given])
    assert seen["console"] == []
    assert [run["outcome"] for run in seen["runs"]] == ["interrupt", "success"]
    assert seen["runs"][-1]["messages"][-1]["content"] == "I have booked a table for 3 at 18:00."


def test_it_calls_the_tool_that_it_is_offered_and_reports_what_that_did(backend: Backend) -> None:
    tool = {"name": agent.IMPORT_TOOL, "description": "", "parameters": {}}
    events = ask(backend, says("Please import them"), tools=[tool], state={"kept": 1})
    assert called(events) == [(agent.IMPORT_TOOL, {"delay_ms": 80})]
    assert {"kept": 1, "stage": "importing"} in [event.get("snapshot") for event in events]
    call_id = next(event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START")

    result = {"id": "x", "role": "tool", "toolCallId": call_id, "content": '{"imported": 21, "rejected": 3}'}
    events = ask(backend, says("Please import them"), result, state={"kept": 1, "stage": "importing"})
    assert told(events) == "Done: 21 orders are in, and 3 lines did not fit."
    (delta,) = [event["delta"] for event in events if event["type"] == "STATE_DELTA"]
    assert {item["path"]: item["value"] for item in delta} == {"/stage": "imported", "/imported": 21, "/rejected": 3}


def test_it_says_what_a_tool_said_that_did_not_work(backend: Backend) -> None:
    result = {"id": "x", "role": "tool", "toolCallId": "c", "content": "Error [cancelled]: Cancelled by the user."}
    events = ask(backend, says("import"), result)
    assert told(events).endswith("Error [cancelled]: Cancelled by the user.")
    assert events[-1]["type"] == "RUN_FINISHED"


def test_an_answer_that_does_not_fit_is_a_run_error(backend: Backend) -> None:
    resume = [{"interruptId": "x", "status": "resolved", "payload": {"people": "many"}}]
    events = ask(backend, says("book"), resume=resume)
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]


def test_a_body_that_is_no_input_is_refused(backend: Backend) -> None:
    answer = httpx.post(f"{backend.url}/agents/demo", json={"threadId": 1}, trust_env=False)
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_the_server_is_gone_with_its_block_also_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "WORD_SECONDS", 60)
    with Backend(agent.agent_app) as running, httpx.Client(trust_env=False, timeout=30) as client:
        body = {"threadId": "t", "runId": "r", "messages": [says("read")]}
        with client.stream("POST", running.url + agent.PATH, json=body) as answer:
            assert next(answer.iter_lines()).startswith("data: ")
    with pytest.raises(httpx.ConnectError):
        httpx.get(running.url, trust_env=False)
