"""What each command of the page about agents must do."""

from __future__ import annotations

import re

from tests.docs.checks import Check, backend_is_up, events_in, get, says_hello, stands_before
from tests.docs.person_checks import shown_frames
from tests.docs.shells import Shell

__all__ = ["AGENTS", "AGENT_CHECKS"]

AGENTS = "docs/how-to/agents.md"
POST = 'curl -N http://127.0.0.1:8000/agents/clerk -H \'content-type: application/json\' -d \'{"threadId": "thread-1", '


ASK_SUPPORT = (
    'curl -N http://127.0.0.1:8000/agents/support -H \'content-type: application/json\' -d \'{"threadId": "thread-2", '
)


def imports_with_the_gateways_tool(_: Shell, output: str) -> None:
    events = events_in(output)
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["import_csv"]
    assert "tool.progress" in [event.get("name") for event in events]
    said = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert said.endswith("Done: 3 orders are in, and 0 lines did not fit.")
    assert events[-1]["outcome"] == {"type": "success"}


def lists_the_clerk(shell: Shell, _: str) -> None:
    items = get(shell, "/agents").json()["items"]
    assert items[1:] == [{"name": "clerk", "description": "Keeps the shelf full."}]


def says_and_asks(shell: Shell, output: str) -> None:
    assert re.search(f"^{shown_frames(AGENTS, 'There are 3')}$", output, re.MULTILINE)
    events = events_in(output)
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["stock", "order"]
    (asked,) = events[-1]["outcome"]["interrupts"]
    assert (asked["reason"], asked["toolCallId"]) == ("tool_call", "call-1")
    assert asked["metadata"]["input"] == {"item": "tea", "count": 7}
    shell.values["INTERRUPT_ID"] = asked["id"]


def orders(_: Shell, output: str) -> None:
    events = events_in(output)
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["Ordered: 7 tea"]
    assert events[-1]["outcome"] == {"type": "success"}


AGENT_CHECKS: dict[tuple[str, str], Check] = {
    (AGENTS, "uvicorn gateway.demo.agent:agent_app"): backend_is_up,
    (AGENTS, "agui-gateway serve --agent"): stands_before("support"),
    (AGENTS, f'{ASK_SUPPORT}"runId": "run-3"'): says_hello,
    (AGENTS, "agui-gateway serve gateway.toml"): stands_before("support", "clerk", "sales"),
    (AGENTS, "agui-gateway serve front:gateway"): stands_before("support"),
    (AGENTS, f'{ASK_SUPPORT}"runId": "run-4"'): imports_with_the_gateways_tool,
    (AGENTS, "agui-gateway serve app:gateway"): lists_the_clerk,
    (AGENTS, f'{POST}"runId": "run-1"'): says_and_asks,
    (AGENTS, f'{POST}"runId": "run-2"'): orders,
}
