"""What schemathesis cannot know of the gateway: which tools and agents there are, and which requests make sense."""

from __future__ import annotations

from typing import Any

import schemathesis

from tests.http.openapi_app import TOOLS

AGENT_OPERATIONS = {"runAgent", "joinAgent", "agentCapabilities"}
NAMES = [tool.name for tool in TOOLS]


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """Sends what is valid to where it can be taken; what was made wrong on purpose stays wrong."""
    if case.meta is not None and case.meta.generation.mode.is_negative:
        return case
    name = case.operation.definition.raw["operationId"]
    if name in AGENT_OPERATIONS:
        case.path_parameters["agent"] = "tools"
    if name == "runTool":
        choose_tool(case)
    if name == "runAgent" and isinstance(case.body, dict):
        ask_for_calls(case.body)
    if name in ("runTool", "runAgent"):
        align_run_id(case)
    return case


def choose_tool(case: Any) -> None:
    """One of the tools that are there, every other time in the background."""
    name = case.path_parameters["name"]
    if name not in NAMES:
        number = sum(name.encode())
        case.path_parameters["name"] = NAMES[number % len(NAMES)]
        if number // len(NAMES) % 2:
            case.headers = {"Prefer": "respond-async"}


def ask_for_calls(body: dict[str, Any]) -> None:
    """Ends the history with calls that nobody has answered, else there is nothing to run."""
    messages = body.get("messages")
    if isinstance(messages, list) and len(messages) % 2 == 0:
        calls = [
            {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate([(NAMES[0], '{"count":1}'), ("missing", ""), (NAMES[1], "[")])
        ]
        body["messages"] = [*messages, {"id": "last", "role": "assistant", "toolCalls": calls}]
        body.pop("resume", None)


def align_run_id(case: Any) -> None:
    """`X-Run-Id` says the same as the body or is absent: no schema can ask for that."""
    run_id = case.body.get("runId") if isinstance(case.body, dict) else None
    if case.headers is not None and "X-Run-Id" in case.headers:
        del case.headers["X-Run-Id"]
        if isinstance(run_id, str) and run_id.isascii() and run_id.isprintable() and run_id.strip() == run_id:
            case.headers["X-Run-Id"] = run_id
