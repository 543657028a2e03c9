"""MCP servers that answer as none should: every call ends, and as what it was."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.upstream import mcp_watch
from tests.http.asking import JSON
from tests.http.people import resolve
from tests.http.site import LONG, ME, AnnouncingServer, Site, serving
from tests.upstream.mcp_processes import listed


def result(**fields: Any) -> Callable[[Any], Response]:
    def answer(request_id: Any) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete", **fields}})

    return answer


def asks(method: str, **params: Any) -> Callable[[Any], Response]:
    return result(resultType="input_required", inputRequests={"k": {"method": method, "params": params}})


# What a tool answers; the status of the call, and a part of its text or content.
ANSWERS: dict[str, tuple[Callable[[Any], Response], str, str]] = {
    "is_broken": (lambda _: PlainTextResponse("secret", 500), "failed", "Server returned an error response"),
    "is_busy": (lambda _: PlainTextResponse("later", 503), "unavailable", "is not available right now"),
    "wants_a_key": (lambda _: PlainTextResponse("who?", 401), "unavailable", "is not available right now"),
    "moves": (lambda _: RedirectResponse("http://192.0.2.1/", 307), "failed", "not one of the protocol"),
    "says_no_json": (lambda _: Response("{", media_type="application/json"), "failed", "not one of the protocol"),
    "says_text": (lambda _: PlainTextResponse("secret"), "failed", "not one of the protocol"),
    "breaks_off": (
        lambda _: Response("data: {", media_type="text/event-stream"),
        "interrupted",
        "the loss of its server",
    ),
    "has_no_content": (result(content="none"), "failed", "not one of the protocol"),
    "starts_a_task": (result(resultType="task", taskId="t"), "failed", "not one of the protocol"),
    "knows_no_such_tool": (
        lambda i: JSONResponse({"jsonrpc": "2.0", "id": i, "error": {"code": -32602, "message": "Unknown tool"}}),
        "failed",
        "Error [failed]: Unknown tool",
    ),
    "lists": (result(content=[], structuredContent=[1, 2]), "completed", '{"result": [1, 2]}'),
    "asks_for_roots": (asks("roots/list"), "failed", "asks for roots/list, which is not supported"),
    "asks_nothing": (
        asks("elicitation/create", message="", requestedSchema={"type": "object", "properties": {}}),
        "failed",
        "not empty",
    ),
    "signs_in": (
        asks("elicitation/create", mode="url", message="Sign in.", url="https://example.com/", elicitationId="e"),
        "interrupted",
        "Sign in.",
    ),
    "is_too_long": (result(content=[{"type": "text", "text": "x" * 5_000_000}]), "failed", "[too_large]"),
    "is_endless": (
        lambda _: StreamingResponse((b" " * 65536 for _ in itertools.count()), media_type="application/json"),
        "failed",
        "[too_large]",
    ),
    "is_packed": (
        lambda _: Response(gzip.compress(b"{}"), headers={"content-encoding": "gzip"}, media_type="application/json"),
        "failed",
        "not one of the protocol",
    ),
}
LISTED = list(ANSWERS)


async def odd(request: Request) -> Response:
    message = json.loads(await request.body())
    request_id, method = message.get("id"), message["method"]
    cached = {"ttlMs": 0, "cacheScope": "public"}
    if method == "server/discover":
        return result(supportedVersions=["2026-07-28"], capabilities={"tools": {}}, **cached)(request_id)
    if method == "tools/list":
        output = {"type": "array", "items": {"$ref": "#/$defs/one"}, "$defs": {"one": {"type": "integer"}}}
        able = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        names = [name for name in LISTED if name != "signs_in" or "elicitation" in able]  # only to whom it can ask
        tools: list[Any] = [{"name": name, "inputSchema": {"type": "object"}, "outputSchema": output} for name in names]
        tools.insert(1, {"name": "is_no_tool", "inputSchema": {"type": "string"}})
        # Page by page, each one a tool.
        page = int(message.get("params", {}).get("cursor", 0))
        more = {"nextCursor": str(page + 1)} if page + 1 < len(tools) else {}
        return result(tools=tools[page : page + 1], **more, **cached)(request_id)
    if method == "tools/call":
        if "inputResponses" in message["params"]:
            return result(content=[], structuredContent=message["params"]["inputResponses"])(request_id)
        return ANSWERS[message["params"]["name"]][0](request_id)
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no"}}, 404)


@asynccontextmanager
async def beside_it() -> AsyncIterator[Site]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/mcp", odd, methods=["POST"])])
    server = AnnouncingServer(uvicorn.Config(app, log_config=None))
    running = asyncio.create_task(server.serve([listener]))
    async with asyncio.timeout(LONG):
        await server.up.wait()
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with serving(mcp_servers={"odd": url}, beside_others=True) as site:
            await listed(site, f"odd__{LISTED[-1]}")
            yield site
    finally:
        server.should_exit = True
        await running
        listener.close()


async def test_every_call_ends_as_what_it_was_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway")
    async with beside_it() as site:
        for name, (_, status, text) in ANSWERS.items():
            given = await site.client.post(f"/tools/odd__{name}", json={}, headers=JSON)
            output = given.json()
            assert output["status"] == status, (name, output)
            told = json.dumps(output.get("interrupts") or output["content"] or output["structuredContent"])
            assert text in told, name
            assert not any(word in told for word in ("secret", "192.0.2.1", "text/plain"))  # what only the log has
    reasons = [
        record.message for record in caplog.records if "has got no answer from its MCP server: " in record.message
    ]
    assert any("Redirect to http://192.0.2.1/" in reason for reason in reasons)
    assert any("Unexpected content type: text/plain" in reason for reason in reasons)


async def test_values_that_are_no_objects_are_announced_as_they_come() -> None:
    async with beside_it() as site:
        assert (await listed(site, "odd__lists"))["odd__lists"]["outputSchema"] == {
            "type": "object",
            "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/one"}}},
            "required": ["result"],
            "$defs": {"one": {"type": "integer"}},
        }


@pytest.mark.parametrize(("status", "action"), [("resolved", "accept"), ("cancelled", "cancel")])
async def test_a_question_by_an_address_is_told_with_it_and_answered_by_consent(status: str, action: str) -> None:
    async with beside_it() as site:
        given = await site.client.post("/tools/odd__signs_in", json={"runId": "r"}, headers={**JSON, **ME})
        (interrupt,) = given.json()["interrupts"]
        assert interrupt["message"] == "Sign in.\nhttps://example.com/"
        assert "responseSchema" not in interrupt
        body = {"runId": "r2", "resume": [resolve(interrupt, status=status)]}
        done = await site.client.post("/tools/odd__signs_in", json=body, headers={**JSON, **ME})
        assert done.json()["structuredContent"] == {"k": {"action": action}}


async def test_a_server_that_says_nothing_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_watch, "POLL", 0.05)
    async with beside_it() as site:
        monkeypatch.setitem(ANSWERS, "new", (result(content=[]), "completed", ""))
        LISTED.append("new")
        try:
            await listed(site, "odd__new")
        finally:
            LISTED.remove("new")
        await listed(site, "odd__new", gone=True)


async def test_many_calls_at_once_are_none_of_each_others_business() -> None:
    async with beside_it() as site:

        async def status(name: str) -> str:
            given = await site.client.post(f"/tools/odd__{name}", json={}, headers=JSON)
            return str(given.json()["status"])

        names = ["lists", "breaks_off", "is_busy"] * 20
        found = await asyncio.gather(*map(status, names))
        assert found == ["completed", "interrupted", "unavailable"] * 20
