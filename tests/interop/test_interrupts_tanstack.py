"""TanStack's client answers our interrupts: without the binding in their metadata it could only show them."""

from __future__ import annotations

import pytest

from tests.support.node import INTEROP, run_node
from tests.support.servers import Serve, Server


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


def test_tanstack_resolves_two_interrupts_of_one_call_through_their_bindings(server: Server) -> None:
    seen = run_node(
        INTEROP / "tanstack_interrupts.mjs",
        url=server.url,
        tool="book",
        arguments={"place": "Rome"},
        answers={"days": 3, "sure": True},
    )
    assert seen["console"] == []
    assert seen["error"] is None
    assert seen["kinds"] == ["generic", "generic"]
    first, second, third = seen["requests"]
    assert second["parentRunId"] == first["runId"]
    assert third["parentRunId"] == second["runId"]
    assert [(entry["status"], entry["payload"]) for entry in second["resume"]] == [("resolved", 3)]
    assert [(entry["status"], entry["payload"]) for entry in third["resume"]] == [("resolved", True)]
    assert [item["value"]["place"] for item in seen["customs"] if item["name"] == "test.booked"] == ["Rome"]
    parts = [part for message in seen["messages"] for part in message["parts"]]
    assert [part["content"] for part in parts if part["type"] == "tool-result"] == [
        '{"booked":true,"days":3,"place":"Rome"}'
    ]
    assert seen["status"] == "ready"
