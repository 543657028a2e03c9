"""`@tanstack/ai-client` 0.33.2 in Node reads our frames with its own SSE reader, and comes back by their ids.

Joining a run is the client as it is. Starting one replaces the body of its request, since `/tools` is no agent.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server

CLIENT = INTEROP / "tanstack_client.mjs"


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


def play(server: Server, mode: str, **task: Any) -> dict[str, Any]:
    seen = run_node(CLIENT, url=server.url, mode=mode, **task)
    assert seen["console"] == []
    return seen


def finished_run(server: Server, tool: str, **arguments: Any) -> tuple[str, list[dict[str, Any]]]:
    """The id and the events of a run that is over."""
    run_id = str(uuid.uuid4())
    with server.client() as client:
        client.post(f"/tools/{tool}", json={"runId": run_id, "arguments": arguments}).raise_for_status()
    return run_id, log_of(server, run_id)


def log_of(server: Server, run_id: str) -> list[dict[str, Any]]:
    with server.client() as client:
        body = client.get(f"/runs/{run_id}/events").text
    return [json.loads(line.removeprefix("data: ")) for line in body.split("\n") if line.startswith("data: ")]


def without_extras(chunks: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chunks without the fields that the client adds to some of them (`toolName`, `finishReason`)."""
    assert len(chunks) == len(events)
    return [
        {name: value for name, value in chunk.items() if name in event}
        for chunk, event in zip(chunks, events, strict=True)
    ]


def test_tanstack_joins_a_run_from_its_start(server: Server) -> None:
    run_id, events = finished_run(server, "burst", count=200)
    seen = play(server, "join", runId=run_id)

    assert [request["method"] for request in seen["requests"]] == ["GET"]
    assert without_extras(seen["chunks"], events) == events


def test_tanstack_comes_back_to_a_joined_run_by_the_last_id_and_misses_nothing(server: Server) -> None:
    run_id, events = finished_run(server, "burst", count=200)
    seen = play(server, "join", runId=run_id, cutAfter=5_000)

    first, second = seen["requests"]
    assert (first["lastEventId"], first["status"]) == (None, 200)
    assert 1 < int(second["lastEventId"]) < len(events)
    assert without_extras(seen["chunks"], events) == events


def test_tanstack_comes_back_to_a_post_without_a_second_execution(server: Server) -> None:
    run_id = str(uuid.uuid4())
    seen = play(server, "connect", tool="burst", arguments={"count": 200}, runId=run_id, cutAfter=5_000)

    assert [request["method"] for request in seen["requests"]] == ["POST", "POST"]
    assert int(seen["requests"][1]["lastEventId"]) > 1
    events = log_of(server, run_id)
    assert [event["value"]["step"] for event in events if event.get("name") == "test.step"] == list(range(1, 201))
    assert without_extras(seen["chunks"], events) == events


def test_tanstacks_chat_client_builds_the_call_its_result_and_the_custom_events(server: Server) -> None:
    seen = play(server, "chat", tool="burst", arguments={"count": 3})

    assert seen["status"] == "ready"
    assert "error" not in seen
    assert len(seen["requests"]) == 1, "a finished tool call is no reason to send again"
    asked, answered = seen["messages"]
    call, result = answered["parts"]
    assert (asked["role"], answered["role"]) == ("user", "assistant")
    assert (call["type"], call["name"], call["state"]) == ("tool-call", "burst", "complete")
    assert (result["type"], result["state"], result["content"]) == ("tool-result", "complete", '{"result":3}')
    assert [custom["name"] for custom in seen["customs"]] == [*["test.step"] * 3, "tool.result"]
    assert {custom["context"]["toolCallId"] for custom in seen["customs"]} == {call["id"]}


def test_tanstacks_chat_client_shows_a_failed_call_as_an_error(server: Server) -> None:
    seen = play(server, "chat", tool="open_gate", arguments={"path": "/nowhere/at/all"})

    call, result = seen["messages"][1]["parts"]
    assert seen["status"] == "ready"
    assert call["name"] == "open_gate"
    assert (result["state"], result["content"].split(":")[0]) == ("error", "Error [failed]")
