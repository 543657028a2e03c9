"""Real agents of other makers behind the gateway, read by the unchanged official client: Agno, LangGraph, Pydantic AI
and TanStack AI, each with its own AG-UI server. Their models are scripts (tests/interop/backends/script.py)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui_validate.pytest_plugin import assert_valid_agui

from tests.interop.test_agents_official import says
from tests.support.backends import PROGRAMS, Backend, running
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server, eventually

# The client is a process and its server another: nothing here is on a loop.
SESSION = "session-of-the-backends"
# What the person says in one conversation, and what the answer to it is.
TURNS = {
    "hello": "Hello there.",
    "look": "It says a room",
    "count": "It says 2 in all",
    "count at once": "It says 2 in all",
    "both": "It says a room and 2 in all",
    "recall": "hello / look / count / count at once / both / recall",
}
# LangGraph leaves its model running when its caller goes; that the connection was closed it sees as the others do.
CLOSES_ITS_MODEL = set(PROGRAMS) - {"langgraph"}
# What is asked is in their own words; Agno and TanStack AI ask by a call that is left to the frontend.
ASKS = ["langgraph", "pydantic-ai"]

# TanStack AI with its log in front, whose CUSTOM comes before RUN_STARTED, and as lines of JSON.
OTHER_WIRES = ["durable", "lines"]

Json = dict[str, Any]


@pytest.fixture(scope="module")
def backends() -> Iterator[dict[str, Backend]]:
    with running(PROGRAMS) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(serve: Serve, backends: dict[str, Backend], tmp_path_factory: pytest.TempPathFactory) -> Server:
    agents = {name: backend.url for name, backend in backends.items()}
    agents |= {path: backends["tanstack"].url.replace("/agent", f"/{path}") for path in OTHER_WIRES}
    return serve("serve", str(gateway_file(tmp_path_factory.mktemp("gateway"), "proxied_tools", agents)))


def gateway_file(folder: Path, tools: str, agents: dict[str, str], **settings: Any) -> Path:
    lines = ["[settings]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    lines += ["[tools]", f'modules = ["tests.interop.{tools}"]']
    lines += ["[agents]", *(f'{name} = "{url}"' for name, url in agents.items())]
    file = folder / "gateway.toml"
    file.write_text("\n".join(lines), "utf-8")
    return file


class Conversation:
    """What the official client held after each turn of one conversation with an agent."""

    def __init__(self, gateway: Server, name: str, said: list[str]) -> None:
        self.thread_id = str(uuid.uuid4())
        turns = [{"runId": str(uuid.uuid4()), "add": [says(str(uuid.uuid4()), text)]} for text in said]
        task: Json = {"url": gateway.url, "session": SESSION, "threadId": self.thread_id, "agent": name}
        seen = run_node(INTEROP / "agents.mjs", **task, turns=turns)
        self.console = seen["console"]
        self.turns: dict[str, Json] = dict(zip(said, seen["turns"], strict=True))

    def events(self, said: str) -> list[Json]:
        events: list[Json] = self.turns[said]["events"]
        return events


@pytest.fixture(scope="module", params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def conversation(gateway: Server, name: str) -> Conversation:
    return Conversation(gateway, name, list(TURNS))


def kinds(events: list[Json], *wanted: str) -> list[str]:
    """Types, and the names of custom events, in their order; only the wanted ones."""
    found = [event["name"] if event["type"] == "CUSTOM" else event["type"] for event in events]
    return [kind for kind in found if kind in wanted]


def answer(turn: Json) -> str:
    """What the assistant said last."""
    return str(next(item["content"] for item in reversed(turn["messages"]) if item["role"] == "assistant"))


def call_of(events: list[Json], tool: str) -> str:
    (call_id,) = [event["toolCallId"] for event in events if event.get("toolCallName") == tool]
    return str(call_id)


def of_call(events: list[Json], call_id: str) -> list[str]:
    """What belongs to a call, each kind once for what comes in pieces."""
    found: list[str] = []
    for event in events:
        custom = event["type"] == "CUSTOM"
        if (event["value"] if custom else event).get("toolCallId") == call_id:
            kind = event["name"] if custom else event["type"]
            if kind != "TOOL_CALL_ARGS" or kind not in found:
                found.append(kind)
    return found


@pytest.mark.parametrize("said", TURNS)
def test_the_official_client_takes_all_that_an_agent_answers(conversation: Conversation, said: str) -> None:
    turn = conversation.turns[said]
    assert conversation.console == []
    assert turn["rejected"] is None
    assert turn["valid"]
    assert turn["outcome"] == "success"
    assert kinds(turn["events"], "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR") == ["RUN_STARTED", "RUN_FINISHED"]
    assert turn["events"][-1]["type"] == "RUN_FINISHED"
    assert answer(turn) == TURNS[said]
    assert_valid_agui(turn["events"])


def test_an_agents_own_tool_and_its_custom_event_pass(conversation: Conversation, name: str) -> None:
    events = conversation.events("look")
    call_id = call_of(events, "look")
    looked = "Looked" if name == "agno" else "backend.looked"
    order = kinds(events, "TOOL_CALL_START", looked, "TOOL_CALL_RESULT", "RUN_FINISHED")
    assert order == ["TOOL_CALL_START", looked, "TOOL_CALL_RESULT", "RUN_FINISHED"]
    (value,) = [event["value"] for event in events if event.get("name") == looked]
    assert value["at"] == "the room"
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert result["toolCallId"] == call_id
    assert "a room" in result["content"]


@pytest.mark.parametrize("said", ["count", "count at once", "both"])
def test_an_agent_uses_a_tool_of_the_gateway_in_the_same_run(conversation: Conversation, said: str) -> None:
    events = conversation.events(said)
    call_id = call_of(events, "count")
    assert [kind for kind in of_call(events, call_id) if kind != "TOOL_CALL_ARGS"] == [
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "test.counted",
        "test.counted",
        "tool.result",
        "TOOL_CALL_RESULT",
    ]
    after = events[[event["type"] for event in events].index("TOOL_CALL_RESULT") :]
    assert "TEXT_MESSAGE_CONTENT" in [event["type"] for event in after], "the agent goes on with the result"


def test_the_agent_is_called_again_as_a_new_run_of_the_thread(
    conversation: Conversation, name: str, backends: dict[str, Backend]
) -> None:
    requests = [request["body"] for request in backends[name].requests(conversation.thread_id)]
    runs = [[body for body in requests if said_last(body) == said] for said in TURNS]
    assert [len(bodies) for bodies in runs] == [1, 1, 2, 2, 2, 1]
    for first, second in runs[2:5]:
        assert second["runId"] != first["runId"]
        assert second["parentRunId"] == first["runId"]
        assert second["messages"][-1]["role"] == "tool"
        assert second["messages"][-1]["content"] == "2 in all"
        assert {tool["name"] for tool in first["tools"]} == {tool["name"] for tool in second["tools"]}
    assert {tool["name"] for tool in requests[0]["tools"]} == {"count", "remove"}


def said_last(body: Json) -> str:
    return str(next(item["content"] for item in reversed(body["messages"]) if item["role"] == "user"))


def test_the_agent_is_sent_neither_the_session_nor_a_cookie(
    conversation: Conversation, name: str, backends: dict[str, Backend]
) -> None:
    for request in backends[name].requests(conversation.thread_id):
        assert SESSION not in json.dumps(request)
        assert "cookie" not in request["headers"]


def test_the_thread_of_the_gateway_is_what_the_client_holds(gateway: Server, conversation: Conversation) -> None:
    with gateway.client(headers={"x-session-id": SESSION}) as client:
        folded = client.get(f"/threads/{conversation.thread_id}").json()["messages"]
    held = conversation.turns["recall"]["messages"]
    assert [message["id"] for message in folded] == [message["id"] for message in held]
    for message, same in zip(folded, held, strict=True):
        assert {key: message.get(key) for key in same} == same


def test_an_agent_that_fails_in_the_middle_is_an_error_of_the_run(gateway: Server, name: str) -> None:
    failed = Conversation(gateway, name, ["fail"])
    assert failed.console == []
    events = failed.events("fail")
    assert answer(failed.turns["fail"]) == "Well"
    assert (events[-1]["type"], events[-1]["message"]) == ("RUN_ERROR", "The model is gone.")
    assert_valid_agui(events)


@pytest.mark.parametrize("wire", OTHER_WIRES)
def test_tanstacks_other_wires_are_as_good(gateway: Server, wire: str) -> None:
    said = ["hello", "look", "count"]
    conversation = Conversation(gateway, wire, said)
    assert conversation.console == []
    assert [answer(turn) for turn in conversation.turns.values()] == [TURNS[text] for text in said]
    assert [turn["outcome"] for turn in conversation.turns.values()] == ["success"] * 3
    assert ("run.accepted" in kinds(conversation.events("hello"), "run.accepted")) == (wire == "durable")


def test_stop_in_the_middle_closes_the_connection_to_the_agent(
    gateway: Server, name: str, backends: dict[str, Backend]
) -> None:
    run_id, thread_id = str(uuid.uuid4()), str(uuid.uuid4())
    closed_before = backends[name].seen()["notes"].count("closed")
    with gateway.client() as client:
        events = stopped(client, f"/agents/{name}", run_id, thread_id)
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert_valid_agui(events)
    (request,) = eventually(
        lambda: [request for request in backends[name].requests(thread_id) if request["ended"]],
        what="the backend sees that nobody reads",
    )
    assert request["ended"] == "left"
    if name in CLOSES_ITS_MODEL:
        eventually(lambda: backends[name].seen()["notes"].count("closed") > closed_before, what="its model is closed")


def stopped(client: httpx.Client, path: str, run_id: str, thread_id: str) -> list[Json]:
    """The events of a run that is stopped when it has begun to speak."""
    body = {"threadId": thread_id, "runId": run_id, "messages": [says("u", "wait")]}
    events: list[Json] = []
    with client.stream("POST", path, json=body) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["type"] == "TEXT_MESSAGE_CONTENT":
                    assert client.post(f"/runs/{run_id}/stop").status_code == 202
    return events


def asked(gateway: Server, name: str, said: str) -> Json:
    """What the client held after a run that asks the person, and after the one that brings the answer."""
    task: Json = {"url": gateway.url, "session": SESSION, "threadId": str(uuid.uuid4()), "agent": name}
    yes = {"any": {"status": "resolved", "payload": {"approved": True}}}
    seen = run_node(INTEROP / "interrupts.mjs", **task, add=[says("u1", said)], answers=[yes])
    assert seen["console"] == []
    assert [run["rejected"] for run in seen["runs"]] == [None, None]
    assert [run["outcome"] for run in seen["runs"]] == ["interrupt", "success"]
    return seen


@pytest.mark.parametrize("asking", ASKS)
def test_what_an_agent_asks_the_person_is_answered_by_a_resume(gateway: Server, asking: str) -> None:
    first, second = asked(gateway, asking, "delete")["runs"]
    assert len(first["pending"]) == 1
    assert answer(second) == "It says deleted /a"


def test_an_approval_of_the_gateways_tool_stands_between_two_runs_of_the_agent(
    gateway: Server, name: str, backends: dict[str, Backend]
) -> None:
    seen = asked(gateway, name, "remove")
    first, second = seen["runs"]
    assert [interrupt["reason"] for interrupt in first["pending"]] == ["tool_call"]
    assert answer(second) == "It says removed /a"


@pytest.fixture(scope="module")
def inner(serve: Serve, backends: dict[str, Backend], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A gateway whose only viewer is another one: when that leaves, its run is to end."""
    agents = {"agent": backends["pydantic-ai"].url}
    folder = tmp_path_factory.mktemp("inner")
    return serve(
        "serve", str(gateway_file(folder, "proxied_tools", agents, on_disconnect="cancel", disconnect_grace=0))
    )


@pytest.fixture(scope="module")
def outer(serve: Serve, inner: Server, tmp_path_factory: pytest.TempPathFactory) -> Server:
    agents = {"agent": f"{inner.url}/agents/agent"}
    return serve("serve", str(gateway_file(tmp_path_factory.mktemp("outer"), "outer_tools", agents)))


def test_a_gateway_behind_a_gateway_runs_its_tools_and_the_outer_one_its_own(
    outer: Server, backends: dict[str, Backend]
) -> None:
    said = ["hello", "count", "count and measure"]
    conversation = Conversation(outer, "agent", said)
    assert conversation.console == []
    assert [turn["rejected"] for turn in conversation.turns.values()] == [None] * 3
    assert [turn["outcome"] for turn in conversation.turns.values()] == ["success"] * 3
    assert [answer(turn) for turn in conversation.turns.values()] == [
        "Hello there.",
        "It says 2 in all",
        "It says 2 in all and the room: 3 m",
    ]
    events = conversation.events("count and measure")
    for tool, custom in (("count", "test.counted"), ("measure", "test.measured")):
        kinds_of_call = of_call(events, call_of(events, tool))
        assert custom in kinds_of_call
        assert kinds_of_call[-1] == "TOOL_CALL_RESULT"
    (body, *_) = [request["body"] for request in backends["pydantic-ai"].requests(conversation.thread_id)]
    assert {tool["name"] for tool in body["tools"]} == {"count", "remove", "measure"}


def test_stop_goes_through_two_gateways(outer: Server, inner: Server, backends: dict[str, Backend]) -> None:
    run_id, thread_id = str(uuid.uuid4()), str(uuid.uuid4())
    with outer.client() as client:
        events = stopped(client, "/agents/agent", run_id, thread_id)
    assert events[-1]["outcome"] == {"type": "cancelled"}
    eventually(
        lambda: [request["ended"] for request in backends["pydantic-ai"].requests(thread_id)] == ["left"],
        what="the agent sees that nobody reads",
    )
    with inner.client() as client:
        status = eventually(lambda: over(client, run_id), what="the inner run has ended")
    assert status == "failed", "its viewer has left; it was not the inner gateway's Stop"


def over(client: httpx.Client, run_id: str) -> str | None:
    status = str(client.get(f"/runs/{run_id}").json()["status"])
    return status if status in ("completed", "cancelled", "failed") else None
