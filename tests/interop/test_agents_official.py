"""A conversation of an unchanged `HttpAgent` with agent `tools`: what it holds after a turn goes into the next."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import RunAgentInput

from gateway.execution.outcomes import unavailable
from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server

# The client is a process and its server another: nothing here is on a loop.
CLIENT = INTEROP / "agents.mjs"
SESSION = "session-of-the-conversation"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


def asks(message_id: str, *calls: tuple[str, str, Json]) -> Json:
    """An assistant message with these calls: (id, tool, arguments)."""
    asked = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for call_id, tool, arguments in calls
    ]
    return {"id": message_id, "role": "assistant", "toolCalls": asked}


def says(message_id: str, content: str) -> Json:
    return {"id": message_id, "role": "user", "content": content}


def converse(server: Server, *turns: list[Json], quiet: bool = True) -> tuple[str, list[Json]]:
    """The thread, and what the client held after each turn."""
    thread_id = str(uuid.uuid4())
    given = [{"runId": str(uuid.uuid4()), "add": messages} for messages in turns]
    seen = run_node(CLIENT, url=server.url, session=SESSION, threadId=thread_id, turns=given)
    assert not quiet or seen["console"] == []
    return thread_id, seen["turns"]


def thread_of(server: Server, thread_id: str) -> list[Json]:
    """The messages as the gateway folds them; that one failed is more than the client makes of it."""
    with server.client(headers={"x-session-id": SESSION}) as client:
        messages: list[Json] = client.get(f"/threads/{thread_id}").json()["messages"]
    return [{key: value for key, value in message.items() if key != "error"} for message in messages]


def results(turn: Json) -> dict[str, str]:
    return {message["toolCallId"]: message["content"] for message in turn["messages"] if message["role"] == "tool"}


def test_two_tools_run_side_by_side_and_the_history_afterwards_is_valid_input_of_the_next_run(
    server: Server, tmp_path: Path
) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    thread_id, (first, second) = converse(
        server,
        # Each waits for the other: neither would end if they ran one after the other.
        [says("u1", "go"), asks("a1", ("c1", "import_steps", {"gate": gate}), ("c2", "open_gate", {"path": gate}))],
        [says("u2", "more"), asks("a2", ("c3", "burst", {"count": 2}), ("c4", "fail_at_once", {}))],
    )
    for turn in (first, second):
        assert turn["rejected"] is None
        assert turn["valid"]
        assert turn["outcome"] == "success"
        assert turn["events"][-1]["type"] == "RUN_FINISHED"
        RunAgentInput.model_validate({"threadId": thread_id, "runId": "next", "messages": turn["messages"]})
    assert results(first) == {"c1": '{"imported":5}', "c2": "open"}
    assert results(second) == {
        **results(first),
        "c3": '{"result":2}',
        "c4": unavailable("fail_at_once").text,
    }
    assert [event["toolCallId"] for event in second["events"] if event["type"] == "TOOL_CALL_START"] == ["c3", "c4"]
    roles = [message["role"] for message in second["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"] * 2
    arguments = first["messages"][1]["toolCalls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"gate": gate}, "nothing is appended to what the client holds"


def test_the_thread_of_the_gateway_is_what_the_client_holds(server: Server) -> None:
    thread_id, turns = converse(
        server,
        [says("u1", "go"), asks("a1", ("c1", "burst", {"count": 2}), ("c2", "burst", {"count": "x"}))],
        [says("u2", "more"), asks("a2", ("c3", "no_such_tool", {})), says("u3", "hello?")],
        [asks("a3", ("d", "burst", {"count": 1}), ("d", "burst", {"count": 2}))],
    )
    assert all(turn["rejected"] is None for turn in turns)
    assert thread_of(server, thread_id) == turns[-1]["messages"]


def test_ids_that_are_used_twice_run_once_each_over_any_number_of_turns(server: Server) -> None:
    twice = asks("a1", ("c", "burst", {"count": 1}), ("c", "burst", {"count": 2}))
    _, (first, again, third) = converse(
        server, [twice], [], [says("u", "?"), asks("a2", ("e", "burst", {"count": 5}))], quiet=False
    )
    assert results(first) == {"c": '{"result":1}', "c~2": '{"result":2}'}
    calls = first["messages"][0]["toolCalls"]
    assert [(call["id"], json.loads(call["function"]["arguments"])) for call in calls] == [
        ("c", {"count": 1}),
        ("c", {"count": 2}),
        ("c~2", {"count": 2}),
    ]
    assert again["rejected"]["status"] == 400, "everything is answered"
    assert again["messages"] == first["messages"]
    assert third["rejected"] is None
    assert [event["toolCallId"] for event in third["events"] if event["type"] == "TOOL_CALL_START"] == ["e"]
