"""The events, records and endings that the reference shows: those of the published examples, and of real runs."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from gateway import Gateway, ToolContext, ToolError, tool
from gateway.execution.agent_stream import AGENT_FAILED
from gateway.execution.ending import ENDINGS
from gateway.wire.schema_custom import CUSTOM_VALUES
from tests.docs.pages import ROOT, page

EVENTS = page("docs/reference/events.md")
HTTP = page("docs/reference/http.md")
TOOLS = page("docs/how-to/tools.md")
EXAMPLES = ROOT / "schemas" / "examples"
ALWAYS = "type timestamp"


@tool
async def count(to: int, ctx: ToolContext) -> dict[str, int]:
    for n in range(1, to + 1):
        ctx.emit_custom_event("counted", {"n": n})
        ctx.report_progress(n, to, "counting")
    return {"counted": to}


@tool
def fails(how: str) -> str:
    if how == "quota":
        raise ToolError("quota", "No searches left today.")
    if how == "raise":
        raise ValueError("the disk is full")
    return "Error: no such book"


@tool(timeout=0.01)
async def slow(ctx: ToolContext) -> None:
    await ctx.abort_signal.wait()
    await ctx.abort_signal.wait()


@tool
async def waits(ctx: ToolContext) -> None:
    ctx.emit_custom_event("waiting", {})
    await ctx.abort_signal.wait()


def client() -> httpx.AsyncClient:
    app = Gateway(tools=[count, fails, slow, waits], stop_grace=0.2)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"x-session-id": "s" * 16})


def shape(value: Any) -> Any:
    """Which fields there are, and of what kind; whatever the tool itself said is left out."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("structuredContent", "output")}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__.replace("float", "int")


async def events_of(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with client() as http:
        answer = await http.post(path, json=body)
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def examples() -> list[dict[str, Any]]:
    return [json.loads(block.text) for block in EVENTS.of("json")]


def test_every_example_is_one_of_the_published_ones() -> None:
    published = [json.loads(path.read_text("utf-8")) for path in EXAMPLES.glob("*.json")]
    assert [example for example in examples() if example not in published] == []


def test_every_ag_ui_event_has_a_heading_and_its_example() -> None:
    headings = re.findall(r"^### (\S+)$", EVENTS.text, re.MULTILINE)
    shown = [example.get("name", example["type"]) for example in examples()]
    assert [name for name in headings if name not in shown] == []
    events = {path.name.partition(".")[0] for path in EXAMPLES.glob("[A-Z]*.json")} - {"CUSTOM"}
    assert events <= set(headings)


def test_the_gateways_own_events_have_the_fields_of_their_schemas() -> None:
    rows = {row[0].strip("`"): row[1].strip("`").split(", ") for row in EVENTS.table("name")}
    assert rows.keys() == CUSTOM_VALUES.keys()
    for name, fields in rows.items():
        schema = json.loads((ROOT / "schemas" / "custom" / f"{name}.schema.json").read_text("utf-8"))
        required = set(schema["required"])
        expected = {field if field in required else f"{field}?" for field in schema["properties"]}
        assert set(fields) == expected, name


def test_every_event_of_the_gateway_is_sent_somewhere() -> None:
    senders = "\n".join(
        path.read_text("utf-8") for layer in ("execution", "run") for path in (ROOT / "gateway" / layer).glob("*.py")
    )
    names = [row[0].strip("`") for row in EVENTS.table("name")]
    assert [name for name in names if f'"{name}"' not in senders] == []


def test_the_codes_of_run_error_are_those_of_the_code() -> None:
    rows = {row[0].strip("`") for row in EVENTS.table("code")}
    assert rows == {code for code, _ in ENDINGS.values()} | {"internal", AGENT_FAILED}


async def test_a_real_run_has_the_shapes_and_the_order_of_the_page() -> None:
    events = await events_of("/tools/count", {"arguments": {"to": 2}, "parentRunId": "run-0"})
    first = reversed(examples())  # of several with one name the first is kept
    by_name = {example.get("name", example["type"]): example for example in first}
    for event in events:
        name = event.get("name", event["type"])
        if name == "counted":
            assert event.keys() == {"type", "timestamp", "name", "value", "metadata"}
        elif name == "TOOL_CALL_START":
            assert shape(event) == {k: v for k, v in shape(by_name[name]).items() if k != "parentMessageId"}
        else:
            assert shape(event) == shape(by_name[name]), name
    order = EVENTS.block("", "TOOL_CALL_START, ").text.strip().split(", ")
    found = [event["type"] for event in events if event.get("name") not in ("counted", "tool.progress")]
    expected = [name.removesuffix(" tool.result") for name in order if name != "CUSTOM *"]
    assert found == ["RUN_STARTED", *expected, "RUN_FINISHED"]


async def test_a_run_record_is_as_the_page_shows_it() -> None:
    async with client() as http:
        await http.post("/tools/count", json={"runId": "r", "arguments": {"to": 1}})
        record = (await http.get("/runs/r")).json()
    assert shape(record) == shape(json.loads(HTTP.block("json").text))
    assert list(record) == list(json.loads(HTTP.block("json").text))


def endings() -> dict[str, tuple[str, str]]:
    """What happened, its status, and how the text begins."""
    return {row[0]: (row[1].strip("`"), row[2].strip("`").partition("…")[0]) for row in TOOLS.table("what happened")}


@pytest.mark.parametrize(
    ("what", "name", "arguments"),
    [
        ("it raised, or answered `Error: …`", "fails", {"how": "raise"}),
        ("it raised, or answered `Error: …`", "fails", {"how": "answer"}),
        ('it raised `ToolError("quota", …)`', "fails", {"how": "quota"}),
        ("arguments do not fit (agent `tools`)", "count", {"to": "many"}),
        ("no answer in time", "slow", {}),
        ("no such tool (agent `tools`)", "nothing", {}),
    ],
)
async def test_a_call_ends_as_the_page_says(what: str, name: str, arguments: dict[str, Any]) -> None:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "c", "type": "function", "function": function}]
    body = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    events = await events_of(
        "/agents/tools", {**body, "messages": [{"id": "m", "role": "assistant", "toolCalls": calls}]}
    )
    (result,) = (event["value"] for event in events if event.get("name") == "tool.result")
    status, text = endings()[what]
    assert result["status"] == status
    assert result["content"][0]["text"].startswith(text.split(" naming")[0])
    assert events[-1]["outcome"] == {"type": "success"}


async def test_on_its_own_path_a_tool_refuses_instead() -> None:
    async with client() as http:
        wrong = await http.post("/tools/count", json={"arguments": {"to": "many"}})
        missing = await http.post("/tools/nothing", json={})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_arguments")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "tool_not_found")
    assert "`422 invalid_arguments`" in TOOLS.text
    assert "`404 tool_not_found`" in TOOLS.text


REFUSALS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "/tools/count", {"json": {"arguments": {"to": 1}, "speed": 3}}, 400, "invalid_request"),
    ("GET", "/runs/r/events?offset=last", {}, 400, "invalid_cursor"),
    ("POST", "/tools/never", {"json": {}, "headers": {"prefer": "respond-async"}}, 400, "task_forbidden"),
    ("POST", "/tools/only", {"json": {}}, 400, "task_required"),
    ("GET", "/nothing", {}, 404, "not_found"),
    ("POST", "/tools/nothing", {}, 404, "tool_not_found"),
    ("GET", "/agents/nobody?runId=r", {}, 404, "agent_not_found"),
    ("GET", "/runs/nothing", {}, 404, "run_not_found"),
    ("POST", "/runs/r/tool-calls/nothing/stop", {}, 404, "call_not_found"),
    ("GET", "/threads/nothing", {}, 404, "thread_not_found"),
    ("GET", "/tools/count", {}, 405, "method_not_allowed"),
    ("POST", "/tools/count", {"json": {"runId": "r", "arguments": {"to": 2}}}, 409, "run_conflict"),
    ("POST", "/tools/count", {"content": b" " * 2000, "headers": {"content-type": "text/json"}}, 413, "body_too_large"),
    ("POST", "/tools/count", {"content": b"{}"}, 415, "unsupported_media_type"),
    ("GET", "/tools", {"headers": {"host": "evil.example"}}, 421, "bad_host"),
    ("POST", "/tools/count", {"json": {}}, 422, "invalid_arguments"),
]


@tool(task_support="forbidden")
async def never() -> None: ...


@tool(task_support="required")
async def only() -> None: ...


async def test_the_refusals_of_the_reference_are_real() -> None:
    rows = {(int(row[0]), row[1].strip("`")) for row in HTTP.table("status")}
    app = Gateway(tools=[count, never, only], max_body_bytes=1000)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers={"x-session-id": "s" * 16}
    ) as http:
        await http.post("/tools/count", json={"runId": "r", "arguments": {"to": 1}})
        for method, path, request, status, code in REFUSALS:
            answer = await http.request(method, path, **request)
            found = answer.json()["error"]["code"] if answer.is_error else ""
            assert (answer.status_code, found) == (status, code), (method, path)
            assert not code or (status, code) in rows
            assert "x-request-id" in answer.headers
