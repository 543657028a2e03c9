"""The unchanged `HttpAgent` as the person: it gets a tool's questions as interrupts and resumes with the answers."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.interop.test_agents_official import asks, results, says
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server

CLIENT = INTEROP / "interrupts.mjs"
SESSION = "session-of-the-interrupted"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


def play(server: Server, messages: list[Json], *answers: dict[str, Json]) -> list[Json]:
    """What the client held after each of its runs."""
    thread_id = str(uuid.uuid4())
    seen = run_node(CLIENT, url=server.url, session=SESSION, threadId=thread_id, add=messages, answers=answers)
    assert seen["console"] == []
    assert [run["rejected"] for run in seen["runs"]] == [None] * len(seen["runs"])
    runs: list[Json] = seen["runs"]
    return runs


def yes(payload: object) -> Json:
    return {"status": "resolved", "payload": payload}


def customs(run: Json) -> list[str]:
    return [event["name"] for event in run["events"] if event["type"] == "CUSTOM"]


def test_a_tool_asks_twice_and_gets_both_answers_over_two_resumes(server: Server) -> None:
    first, second, third = play(
        server,
        [says("u1", "go"), asks("a1", ("c1", "book", {"place": "Rome"}), ("c2", "burst", {"count": 2}))],
        {"days": yes(3)},
        {"sure": yes(True)},
    )
    assert [run["outcome"] for run in (first, second, third)] == ["interrupt", "interrupt", "success"]
    assert [[asked["message"] for asked in run["pending"]] for run in (first, second, third)] == [
        ["How many days?"],
        ["3 days in Rome?"],
        [],
    ]
    assert first["expired"] == [False]
    assert results(first) == {"c2": '{"result":2}'}, "what did not ask has answered"
    assert "test.step" not in customs(second) + customs(third), "and is not run again"
    assert results(third) == {**results(first), "c1": '{"booked":true,"days":3,"place":"Rome"}'}
    assert customs(first).count("test.booked") + customs(second).count("test.booked") == 0
    assert customs(third).count("test.booked") == 1
    calls = third["messages"][1]["toolCalls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"place": "Rome"}', '{"count": 2}']


def test_an_approval_is_given_and_another_one_declined_in_one_resume(server: Server) -> None:
    first, second = play(
        server,
        [asks("a1", ("c1", "delete", {"path": "/a"}), ("c2", "delete", {"path": "/b"}))],
        {"c1": yes({"approved": True, "arguments": {"path": "/c"}}), "c2": {"status": "cancelled"}},
    )
    assert first["outcome"] == "interrupt"
    assert [asked["reason"] for asked in first["pending"]] == ["tool_call", "tool_call"]
    assert results(first) == {}
    assert results(second) == {"c1": "deleted /c", "c2": "Error [denied]: The person declined this call."}
    deleted = [event["value"]["path"] for event in second["events"] if event.get("name") == "test.deleted"]
    assert deleted == ["/c"]


def test_a_question_that_the_person_cancels_reaches_the_tool(server: Server) -> None:
    first, second = play(server, [asks("a1", ("c1", "book", {"place": "Oslo"}))], {"days": {"status": "cancelled"}})
    assert (first["outcome"], second["outcome"]) == ("interrupt", "success")
    assert results(second) == {"c1": '{"booked":false}'}
