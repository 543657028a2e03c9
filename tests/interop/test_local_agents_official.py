"""The unchanged `HttpAgent` with local agents: it takes what they say, asks the person, and is told of jobs once."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from tests.interop.test_agents_official import says
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server

SESSION = "session-of-the-agents-0"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.agents_app:gateway")


def converse(server: Server, agent: str, thread_id: str, *turns: list[Json]) -> list[Json]:
    """What the client held after each turn; it has not complained."""
    given = [{"runId": str(uuid.uuid4()), "add": messages} for messages in turns]
    task: Json = {"url": server.url, "session": SESSION, "threadId": thread_id, "agent": agent, "turns": given}
    seen = run_node(INTEROP / "agents.mjs", **task)
    assert seen["console"] == []
    assert [turn["rejected"] for turn in seen["turns"]] == [None] * len(turns)
    assert all(turn["valid"] for turn in seen["turns"])
    held: list[Json] = seen["turns"]
    return held


def thread(client: httpx.Client, thread_id: str) -> list[Json]:
    """The messages as the gateway folds them; that one failed is more than the client makes of it."""
    messages: list[Json] = client.get(f"/threads/{thread_id}").json()["messages"]
    return [{key: value for key, value in message.items() if key != "error"} for message in messages]


def texts(turn: Json) -> dict[str, str]:
    return {
        item["id"]: item["content"] for item in turn["messages"] if item["role"] == "assistant" and "content" in item
    }


def test_everything_that_an_agent_may_say_is_taken_over_several_turns(server: Server) -> None:
    thread_id = str(uuid.uuid4())
    turns = converse(server, "everything", thread_id, [says("u1", "go")], [says("u2", "again")])
    for turn in turns:
        assert turn["outcome"] == "success"
        assert {"Let me count.", '{"result":2}', "Me too."} <= set(texts(turn).values())
    assert len(turns[1]["messages"]) == 2 * len(turns[0]["messages"])
    with server.client(headers={"x-session-id": SESSION}) as client:
        folded = thread(client, thread_id)
        assert [(item["id"], item.get("content")) for item in folded] == [
            (item["id"], item.get("content")) for item in turns[1]["messages"]
        ]


def test_an_agent_that_raises_is_an_error_of_the_run_and_the_client_is_well(server: Server) -> None:
    (turn,) = converse(server, "fails", str(uuid.uuid4()), [says("u1", "go")])
    assert turn["events"][-1]["type"] == "RUN_ERROR"
    assert (turn["events"][-1]["code"], turn["events"][-1]["message"]) == ("agent_failed", "The model is gone.")


def test_an_agent_asks_and_so_does_its_tool_over_two_resumes(server: Server) -> None:
    answers = [
        {"which": {"status": "resolved", "payload": "/a"}},
        {"c1": {"status": "resolved", "payload": {"approved": True, "arguments": {"path": "/b"}}}},
    ]
    task: Json = {"url": server.url, "session": SESSION, "threadId": str(uuid.uuid4()), "agent": "careful"}
    seen = run_node(INTEROP / "interrupts.mjs", **task, add=[says("u1", "go")], answers=answers)
    assert seen["console"] == []
    first, second, third = seen["runs"]
    assert [run["rejected"] for run in seen["runs"]] == [None] * 3
    assert [run["outcome"] for run in seen["runs"]] == ["interrupt", "interrupt", "success"]
    assert [asked["reason"] for asked in first["pending"] + second["pending"]] == ["choice", "tool_call"]
    assert first["expired"] == second["expired"] == [False]
    assert [message["role"] for message in third["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert third["messages"][-1]["content"] == "deleted /b"


def test_a_job_of_the_conversation_is_told_once_and_stays_in_it(server: Server) -> None:
    thread_id = str(uuid.uuid4())
    with server.client(headers={"x-session-id": SESSION}) as client:
        body = {"threadId": thread_id, "runId": "job", "toolCallId": "c1"}
        assert client.post("/tools/job", json=body, headers={"prefer": "respond-async"}).status_code == 202
        with client.stream("GET", "/runs/job/events") as stream:
            assert any("test.working" in line for line in stream.iter_lines())
        moved = client.post("/runs/job/tool-calls/c1/detach").json()
        assert client.get(f"/runs/{moved['runId']}?wait=20").json()["status"] == "completed"
        first, second = converse(server, "everything", thread_id, [says("u1", "go")], [says("u2", "again")])
        note = "Background job c1 ended.\n42"
        for turn in (first, second):
            assert texts(turn)["c1:note"] == note
        told = [event["type"] for event in second["events"] if event.get("messageId") == "c1:note"]
        assert told == []
        assert [item["content"] for item in thread(client, thread_id) if item["id"] == "c1:note"] == [note]
