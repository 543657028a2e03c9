"""What the pages on context, middleware, events and other systems promise, done with their own files."""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from gateway import (
    CANCELLED,
    AbortSignal,
    EventEmitter,
    Gateway,
    NotAvailable,
    TaskContext,
    ToolCall,
    ToolContext,
    call_tool,
    tool,
)
from gateway.execution.child import ProcessContext
from gateway.execution.emitter import default_emitter
from gateway.execution.signals import REASONS
from gateway.testing import run_tool
from tests.docs.checks import events_in
from tests.docs.pages import Page, page

CONTEXT = page("docs/how-to/context.md")
MIDDLEWARE = page("docs/how-to/middleware.md")
APPLICATION_EVENTS = page("docs/how-to/application-events.md")
COMING_FROM = page("docs/how-to/coming-from.md")
TOOLS = page("docs/how-to/tools.md")

Load = Callable[[Page, str], ModuleType]
JSON = {"accept": "application/json"}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a file of a page, which imports others of that page; in an empty folder, as for a reader."""
    names: set[str] = set()

    def load(where: Page, name: str) -> ModuleType:
        for file, text in where.files().items():
            (tmp_path / file).write_text(text, "utf-8")
            names.add(file.removesuffix(".py"))
        for known in names:
            sys.modules.pop(known, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield load
    for name in names:
        sys.modules.pop(name, None)
    default_emitter.remove_all_listeners()


@asynccontextmanager
async def client(gateway: Gateway, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(gateway)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        yield http
    await gateway.shutdown()


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["value"] for event in events if event.get("name") == name]


def names_in(cells: list[str]) -> list[str]:
    return [name.split("(")[0] for cell in cells for name in cell.replace("await ", "").replace("`", "").split(" ")]


def public(kind: type) -> set[str]:
    """Its members; `rebind` is the gateway's own."""
    return {name for name in dir(kind) if not name.startswith("_")} - {"rebind"}


# -- context --


def test_the_table_has_every_member_of_the_context() -> None:
    assert sorted(names_in([row[0] for row in CONTEXT.table("member")])) == sorted(public(ToolContext))


def test_the_reasons_are_those_of_the_signal() -> None:
    assert sorted(names_in([row[0] for row in CONTEXT.table("reason")])) == sorted(REASONS)


def test_the_table_of_a_task_has_every_member() -> None:
    members = [row[0].split("(")[0] for row in CONTEXT.table("`ctx.task`")]
    named_there = {name.strip("`") for cell in members for name in cell.split(" ")}
    assert named_there | {"throw_if_cancelled"} == public(TaskContext)


def test_what_a_process_does_not_have_is_what_the_page_says() -> None:
    ctx = ProcessContext({}, AbortSignal(), None)  # type: ignore[arg-type]  # nothing is sent
    missing = set()
    for name in public(ToolContext):
        try:
            getattr(ctx, name)
        except NotAvailable:
            missing.add(name)
    row = next(row[1] for row in CONTEXT.table("where") if "process" in row[0])
    said = {name for name in ("context", "trace", "mcp_headers", "verified_subject") if f"`{name}`" in row}
    assert "capabilities, visibility, and whatever asks" in row
    visibility = {"enable_tools", "disable_tools", "get_visible_tools"}
    awaited = {"call_tool", "run_detachable"}
    asking = {name for name in public(ToolContext) if "input" in name} | {"interrupt", "waiting_for_user"}
    assert missing == said | visibility | awaited | asking | {"provide", "get", "get_optional"}
    assert ctx.detach is None


async def test_an_import_tells_every_line_and_how_far_it_is(load: Load) -> None:
    output, events = await run_tool(load(CONTEXT, "lines").import_lines, {"text": "a\nb"})
    assert output.structured_content == {"imported": 2}
    assert [(line["number"], line["text"]) for line in named(events, "import.line")] == [(1, "a"), (2, "b")]
    assert named(events, "tool.progress")[-1]["percent"] == 100


async def test_a_watch_ends_in_its_own_way_when_it_is_stopped(load: Load) -> None:
    output, events = await run_tool(
        load(CONTEXT, "watch").watch, {}, stop_when=lambda event: event.get("name") == "watch.began"
    )
    assert output.text == CANCELLED
    assert [value["reason"] for value in named(events, "watch.ended")] == ["user"]


async def test_each_run_gets_a_folder_that_is_gone_when_it_is_over(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "all"))
    async with client(load(CONTEXT, "workspace").gateway, **JSON) as http:
        for _ in range(2):
            answer = await http.post("/tools/draft", json={"arguments": {"text": "Dear Sir"}})
            assert answer.json()["structuredContent"] == {"files": ["draft.txt"]}
    assert list((tmp_path / "all").iterdir()) == []


@pytest.mark.parametrize(("support", "row"), [(row[0].strip("`"), row) for row in CONTEXT.table("`task_support`")])
async def test_task_support_is_as_the_table_says(support: Any, row: list[str]) -> None:
    @tool(task_support=support)
    async def work(ctx: ToolContext) -> bool:
        return ctx.task is not None

    async with client(Gateway(tools=[work]), **JSON) as http:
        for cell, headers in ((row[1], {}), (row[2], {"prefer": "respond-async"})):
            given = await http.post("/tools/work", headers=headers)
            said = cell.strip("`").split(" ")
            if said[0] == "stream":
                assert given.json()["structuredContent"] == {"result": support != "forbidden"}
            elif said[0] == "202":
                assert given.status_code == 202
            else:
                assert [str(given.status_code), given.json()["error"]["code"]] == said


async def test_a_log_line_has_the_tool_and_its_run(load: Load) -> None:
    tools_logger = logging.getLogger("gateway.tools")
    before, level = list(tools_logger.handlers), tools_logger.level
    handler = load(CONTEXT, "logs").handler
    handler.setStream(io.StringIO())
    try:
        await run_tool(importlib.import_module("who").who, {}, run_id="run-7")
        assert handler.stream.getvalue() == "INFO who run-7 somebody asks who calls\n"
    finally:
        tools_logger.handlers[:] = before
        tools_logger.setLevel(level)


# -- middleware --


async def test_the_middleware_of_the_shop_does_what_the_page_says(load: Load) -> None:
    async with client(load(MIDDLEWARE, "app").gateway, **JSON) as http:

        async def call(name: str, item: str, **headers: str) -> dict[str, Any]:
            answer = await http.post(f"/tools/{name}", json={"arguments": {"item": item}}, headers=headers)
            assert answer.status_code == 200
            found: dict[str, Any] = answer.json()
            return found

        assert (await call("stock.take", "tea"))["structuredContent"] == {"taken": "tea", "left": 2}
        assert (await call("stock.take", "milk"))["structuredContent"]["ask"] == "(hidden)"
        limited = await call("stock.take", "tea")
        assert limited["content"][0]["text"].startswith("Error [rate_limited]: Try again in ")
        assert limited["structuredContent"]["error"] == {"code": "rate_limited", "retryable": True}
        assert 0 < limited["structuredContent"]["retryAfter"] <= 60
        refused = await call("admin.refill", "tea", **{"x-on-call": "no"})
        assert refused["structuredContent"]["error"]["code"] == "denied"
        done = await call("admin.refill", "tea", **{"x-on-call": "yes"})
        assert done["structuredContent"] == {"filled": "tea"}


async def test_the_interceptor_tells_the_viewers_how_long_it_took(load: Load) -> None:
    async with client(load(MIDDLEWARE, "app").gateway) as http:
        answer = await http.post("/tools/stock.take", json={"arguments": {"item": "tea"}})
    (timing,) = named(events_in(answer.text), "timing")
    assert timing["status"] == "completed"
    assert timing["seconds"] >= 0


async def test_a_capability_that_nobody_provides_is_named(load: Load) -> None:
    output, _ = await run_tool(load(MIDDLEWARE, "stock").take, {"item": "tea"})
    assert "'stock'" in output.text


async def test_a_middleware_may_replace_arguments_and_output() -> None:
    async def double(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(ToolCall(call.name, {"n": call.input["n"] * 2}))
        return {"was": output.structured_content["result"]}

    def same(n: int) -> int:
        return n

    output = await call_tool(ToolCall("same", {"n": 2}), [same], middleware=[double])
    assert output.structured_content == {"was": 4}


async def test_no_stop_gets_past_a_filter() -> None:
    signal = AbortSignal()

    async def hide(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        signal.abort("user")
        await asyncio.sleep(0)
        return output.text.replace("secret", "hidden")

    def tells() -> str:
        return "secret"

    output = await call_tool(ToolCall("tells"), [tells], middleware=[hide], signal=signal)
    assert "secret" not in output.text


async def test_a_middleware_does_not_call_another_tool_by_call_next() -> None:
    async def astray(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        return await call_next(ToolCall("other", {}))

    def same() -> str:
        return "done"

    output = await call_tool(ToolCall("same"), [same], middleware=[astray])
    assert output.status == "failed"
    assert "ctx.call_tool" in output.text


# -- application events --


def test_the_table_has_every_method_of_an_emitter() -> None:
    assert {row[0].split("(")[0].strip("`") for row in APPLICATION_EVENTS.table("`EventEmitter`")} | {
        "event_names"
    } == public(EventEmitter)


async def test_a_broken_handler_is_logged_and_reaches_nobody(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    output, _ = await run_tool(load(APPLICATION_EVENTS, "orders").pay, {"order_id": "7"})
    assert output.structured_content == {"paid": "7"}
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["the counter is broken"]


# -- other systems --


async def test_the_tool_from_tanstack_tells_progress_and_uses_its_capability(load: Load) -> None:
    async with client(load(COMING_FROM, "tanstack").gateway) as http:
        done = await http.post("/tools/process_data", json={"arguments": {"records": ["a", "b"]}})
    events = events_in(done.text)
    assert [value["step"] for value in named(events, "data.progress")] == [1, 2]
    assert events[-1]["result"]["structuredContent"] == {"tenant": "acme", "processed": ["A", "B"]}


async def test_the_loop_from_tanstack_ends_at_a_stop(load: Load) -> None:
    async with client(load(COMING_FROM, "tanstack").gateway) as http:
        body = {"runId": "r", "arguments": {"records": ["a"] * 100_000}}
        started = await http.post("/tools/process_data", json=body, headers={"prefer": "respond-async"})
        assert started.status_code == 202
        assert (await http.post("/runs/r/stop")).status_code == 202
        record = (await http.get("/runs/r?wait=25")).json()
    assert (record["status"], record["toolCalls"][0]["status"]) == ("cancelled", "cancelled")


async def test_the_shop_from_nitrostack_works(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shop = load(COMING_FROM, "nitro")
    alice = {"authorization": "Bearer let-alice-in"}
    async with client(shop.gateway, **JSON) as http:
        assert (await http.post("/tools/export_orders", json={"arguments": {"orders": 1}})).status_code == 404
        hello = await http.post("/tools/login", headers=alice)
        assert hello.json()["structuredContent"] == {"hello": "alice", "tools": ["export_orders", "login"]}
        body = {"arguments": {"orders": 3}}
        done = await http.post("/tools/export_orders", json=body, headers={**alice, "accept": "text/event-stream"})
        events = events_in(done.text)
        assert events[-1]["result"]["structuredContent"] == {"exported": 3}
        assert named(events, "tool.progress")[-1]["message"] == "order 3 of 3"
        assert shop.receipts == [{"task": events[0]["runId"], "orders": 3}]
        unlucky = (await http.post("/tools/export_orders", json={"arguments": {"orders": 20}}, headers=alice)).json()
        assert unlucky["status"] == "interrupted"
        logged = [record for record in caplog.records if record.name == "gateway.tools.export_orders"]
        assert f"request {done.headers['x-request-id']}" in logged[1].getMessage()


async def test_the_guard_from_nitrostack_refuses_who_is_not_logged_in(load: Load) -> None:
    direct: Gateway = load(COMING_FROM, "nitro").gateway

    @direct.tool
    async def secret() -> str:
        return "secret"

    refused = await direct.call_tool(ToolCall("secret"))
    assert refused.text == "Error [denied]: Log in first."
    await direct.shutdown()


def test_every_name_on_the_left_has_its_answer_on_the_right() -> None:
    rows = [row for row in COMING_FROM.prose.splitlines() if row.startswith("| `") and " | " in row]
    assert len(rows) > 40
    assert [row for row in rows if not row.split(" | ", 1)[1].strip(" |")] == []
    assert [row for row in rows if "in this version" in row] == []
