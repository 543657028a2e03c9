"""Every member of contract 2.2, through real HTTP, in a test named by it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection, Request

from gateway import AuthContext, Capability, CapabilityError, ToolCall, ToolContext, ToolOutput, tool
from gateway.http.sessions import SHOWN_HEADERS, caller, identify
from tests.execution.process_tools import look_around
from tests.http.asking import JSON, Reader, agent_body, ask, events_of
from tests.http.people import answered, asked, gave, interrupts_of, post, resolve
from tests.http.process_tools import lists_what_is_missing
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving

MEMBERS = (
    "abort_signal",
    "auth",
    "call_tool",
    "client_request_id",
    "context",
    "detach",
    "disable_tools",
    "emit_custom_event",
    "enable_tools",
    "flush",
    "get",
    "get_optional",
    "get_visible_tools",
    "input_response",
    "input_responses",
    "interrupt",
    "logger",
    "mcp_headers",
    "metadata",
    "parent_run_id",
    "provide",
    "report_progress",
    "request_id",
    "request_input",
    "request_input_sync",
    "run_detachable",
    "run_id",
    "session_id",
    "task",
    "thread_id",
    "tool_call_id",
    "tool_name",
    "trace",
    "verified_subject",
    "waiting_for_user",
)
PERSONAL = (
    "input_response",
    "input_responses",
    "interrupt",
    "request_input",
    "request_input_sync",
    "waiting_for_user",
)
SECRET = "kept-from-every-tool"


def test_there_is_a_test_for_every_member_and_a_member_for_every_name() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    for member in MEMBERS:
        assert any(name.startswith(f"test_{member}_") for name in tests), member
    assert sorted(name for name in dir(ToolContext) if not name.startswith("_")) == list(MEMBERS)


@tool
async def sees(what: list[str], ctx: ToolContext) -> dict[str, Any]:
    """Says what members of its context are."""
    return {name: getattr(ctx, name) for name in what}


async def seen(site: Site, *what: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """What a call saw: the value of one member, or those of several."""
    answer = await site.client.post(
        "/tools/sees", json={"arguments": {"what": what}, **body}, headers=JSON | (headers or {})
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed", answer.text
    found = answer.json()["structuredContent"]
    return found[what[0]] if len(what) == 1 else found


async def result(site: Site, name: str, headers: dict[str, str] | None = None, **arguments: Any) -> Any:
    """The structured content, else the text, of a call."""
    answer = await site.client.post(f"/tools/{name}", json={"arguments": arguments}, headers=JSON | (headers or {}))
    assert answer.status_code == 200, answer.text
    return answer.json().get("structuredContent") or answer.json()["content"][0]["text"]


async def authenticate(connection: HTTPConnection) -> AuthContext | None:
    """`Authorization: Bearer <subject>`."""
    _, _, subject = connection.headers.get("authorization", "").partition(" ")
    if not subject:
        return None
    return AuthContext(
        subject=base64.b64decode(subject).decode(),
        scopes=frozenset({"read", "write"}),
        client_id="app",
        issuer="https://issuer.example",
        audience=("api",),
        expires_at=4e9,
        claims={"org": "acme"},
    )


def bearer(subject: str) -> dict[str, str]:
    return {"authorization": f"Bearer {base64.b64encode(subject.encode()).decode()}"}


# -- identifiers --


async def test_run_id_is_the_clients_or_one_of_its_own() -> None:
    async with serving(sees) as site:
        assert await seen(site, "run_id", runId="my-run") == "my-run"
        first, second = await seen(site, "run_id"), await seen(site, "run_id")
        assert first != second
        assert (await site.client.get(f"/runs/{first}")).json()["runId"] == first


async def test_thread_id_is_the_clients_or_one_of_its_own() -> None:
    async with serving(sees) as site:
        assert await seen(site, "thread_id", threadId="my-thread") == "my-thread"
        run, thread = (await seen(site, "run_id", "thread_id")).values()
        assert (await site.client.get(f"/runs/{run}")).json()["threadId"] == thread


async def test_tool_call_id_is_the_clients_or_the_one_that_the_stream_names() -> None:
    async with serving(sees) as site:
        assert await seen(site, "tool_call_id", toolCallId="my-call") == "my-call"
        stream = await site.client.post("/tools/sees", json={"arguments": {"what": ["tool_call_id"]}})
        events = events_of(stream.content)
        named = next(event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START")
        assert events[-1]["result"]["structuredContent"] == {"tool_call_id": named}


async def test_tool_name_is_the_name_it_was_called_by() -> None:
    other = tool(name="looks.like-this")(sees.func)
    async with serving(sees, other) as site:
        assert await seen(site, "tool_name") == "sees"
        assert await result(site, "looks.like-this", what=["tool_name"]) == {"tool_name": "looks.like-this"}


async def test_request_id_is_the_gateways_own_and_returned() -> None:
    async with serving(sees) as site:
        answer = await site.client.post(
            "/tools/sees",
            json={"arguments": {"what": ["request_id"]}},
            headers=JSON | {"x-request-id": "callers-own"},
        )
        assert answer.json()["structuredContent"] == {"request_id": answer.headers["x-request-id"]}
        assert answer.headers["x-request-id"] != "callers-own"


async def test_client_request_id_is_what_the_caller_sent() -> None:
    async with serving(sees) as site:
        assert await seen(site, "client_request_id", headers={"x-request-id": "callers-own"}) == "callers-own"
        assert await seen(site, "client_request_id") is None


async def test_parent_run_id_is_what_the_body_says() -> None:
    async with serving(sees) as site:
        assert await seen(site, "parent_run_id", parentRunId="before") == "before"
        assert await seen(site, "parent_run_id") is None


# -- who calls --


async def test_session_id_of_an_anonymous_session_names_it() -> None:
    async with serving(sees) as site:
        assert await seen(site, "session_id", headers=ME) == f"anon:{ME['x-session-id']}"
        cookie = {"cookie": f"agui_session={ME['x-session-id']}"}
        assert await seen(site, "session_id", headers=cookie) == f"anon:{ME['x-session-id']}"


async def test_session_id_without_a_session_is_fresh_for_every_run() -> None:
    async with serving(sees) as site:
        found = [await seen(site, "session_id") for _ in range(3)]
    assert len(set(found)) == 3
    assert all(item.startswith("anon:") and len(item) > 20 for item in found)


@pytest.mark.parametrize("subject", ["alice", "a:b/c d", "ümlaut", "user:bob:default"])
async def test_session_id_of_a_subject_is_unambiguous(subject: str) -> None:
    async with serving(sees, authenticate=authenticate) as site:
        escaped = quote(subject, safe="")
        assert ":" not in escaped
        assert await seen(site, "session_id", headers=bearer(subject)) == f"user:{escaped}:default"
        with_session = bearer(subject) | ME
        assert await seen(site, "session_id", headers=with_session) == f"user:{escaped}:{ME['x-session-id']}"


async def test_auth_is_what_the_authenticator_found() -> None:
    seen_by_tool: list[AuthContext | None] = []

    @tool
    async def keeps(ctx: ToolContext) -> None:
        """Keeps who called."""
        seen_by_tool.append(ctx.auth)

    async with serving(keeps, authenticate=authenticate, allow_anonymous=True) as site:
        await result(site, "keeps", bearer("alice"))
        await result(site, "keeps")
    alice, nobody = seen_by_tool
    assert nobody is None
    assert alice is not None
    assert (alice.subject, alice.scopes, alice.client_id) == ("alice", frozenset({"read", "write"}), "app")
    assert (alice.issuer, alice.expires_at, alice.claims) == ("https://issuer.example", 4e9, {"org": "acme"})
    assert alice.audience == alice.aud == ("api",)


async def test_verified_subject_is_the_subject_and_never_what_a_caller_claims() -> None:
    async with serving(sees, authenticate=authenticate, allow_anonymous=True) as site:
        assert await seen(site, "verified_subject", headers=bearer("alice")) == "alice"
        claims = {"x-user": "alice", "mcp-subject": "alice", "x-session-id": "user-alice-default0"}
        assert await seen(site, "verified_subject", headers=claims) is None


# -- what the gateway was given --


async def test_context_is_the_value_that_the_gateway_was_given() -> None:
    async with serving(sees, context={"db": "here"}) as site:
        assert await seen(site, "context") == {"db": "here"}
    async with serving(sees) as site:
        assert await seen(site, "context") is None


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_context_is_what_a_callable_makes_of_the_starting_connection(kind: str) -> None:
    def of(connection: HTTPConnection) -> dict[str, Any]:
        return {"path": connection.url.path, "agent": connection.headers["user-agent"]}

    async def later(connection: HTTPConnection) -> dict[str, Any]:
        return of(connection)

    async with serving(sees, context=of if kind == "plain" else later) as site:
        assert await seen(site, "context", headers={"user-agent": "me"}) == {"path": "/tools/sees", "agent": "me"}


async def test_context_manager_is_entered_for_the_runs_life() -> None:
    trail: list[str] = []

    @asynccontextmanager
    async def connected(connection: HTTPConnection) -> AsyncIterator[str]:
        trail.append("entered")
        yield "a connection"
        trail.append("left")

    @tool
    async def uses(ctx: ToolContext) -> None:
        """Uses what it was given."""
        trail.append(ctx.context)

    async with serving(uses, context=connected) as site:
        for _ in range(2):
            await result(site, "uses")
    assert trail == ["entered", "a connection", "left"] * 2


# -- what the request said --


async def test_metadata_has_the_allowed_headers_and_what_the_agents_body_says() -> None:
    sent = {"accept-language": "de", "user-agent": "me", "x-request-id": "q", "mcp-thing": "1", "x-tenant": "acme"}
    secrets = {"authorization": f"Bearer {SECRET}", "cookie": f"a={SECRET}", "x-api-key": SECRET, "x-other": "no"}
    body = agent_body(
        ask(("c", "sees", {"what": ["metadata"]})),
        forwardedProps={"theme": "dark"},
        context=[{"description": "page", "value": "cart"}],
        tools=[{"name": "client_tool", "description": "", "parameters": {}}],
    )
    async with serving(sees, shown_headers=["X-Tenant", "Authorization", "X-Api-Key"]) as site:
        answer = await site.client.post("/agents/tools", json=body, headers=sent | secrets)
    value = next(event["value"] for event in events_of(answer.content) if event.get("name") == "tool.result")
    found = value["structuredContent"]["metadata"]
    assert found["headers"] == sent
    assert found["forwarded_props"] == {"theme": "dark"}
    assert found["context"] == [{"description": "page", "value": "cart"}]
    assert [item["name"] for item in found["client_tools"]] == ["client_tool"]
    assert found["client_request_id"] == "q"
    assert set(found) == {"headers", "forwarded_props", "context", "client_tools", "client_request_id"}
    assert SECRET not in answer.text


TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=24)
CREDENTIALS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "x-session-id")


def spelt(name: str, mask: int) -> str:
    """The name with some letters in upper case."""
    return "".join(letter.upper() if mask >> index & 1 else letter for index, letter in enumerate(name))


@given(
    others=st.dictionaries(TOKEN, TOKEN, max_size=8),
    shown=st.lists(st.one_of(TOKEN, st.sampled_from(CREDENTIALS)), max_size=8),
    mask=st.integers(0, 2**20),
    credential=st.sampled_from(CREDENTIALS),
)
def test_metadata_of_any_headers_and_settings_has_no_credential(
    others: dict[str, str], shown: list[str], mask: int, credential: str
) -> None:
    secret = f"secret-{SECRET}"
    sent = [(name, value) for name, value in others.items() if name not in CREDENTIALS]
    sent.append((spelt(credential, mask), secret))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/tools/x",
        "query_string": f"ticket={secret}".encode(),
        # What a server hands over: names in lower case.
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent],
        SHOWN_HEADERS: frozenset(name.lower() for name in (*shown, spelt(credential, mask))),
    }
    request = Request(scope)
    who = caller(request, identify(request), "request-1")
    assert secret not in repr(who.metadata)
    assert secret not in who.session_label
    assert set(who.metadata["headers"]) <= {name for name, _ in sent}


async def test_mcp_headers_are_those_in_lower_case() -> None:
    headers = {"Mcp-Method": "tools/call", "MCP-PROTOCOL-VERSION": "2026-07-28", "X-Other": "no"}
    async with serving(sees) as site:
        found = await seen(site, "mcp_headers", headers=headers)
        assert found == {"mcp-method": "tools/call", "mcp-protocol-version": "2026-07-28"}
        assert await seen(site, "mcp_headers") == {}


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_trace_is_the_callers_w3c_context() -> None:
    sent = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=7"}
    async with serving(sees) as site:
        assert await seen(site, "trace", headers=sent) == sent
        alone = await seen(site, "trace", headers={"traceparent": PARENT})
        assert alone == {"traceparent": PARENT, "tracestate": None, "baggage": None}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "junk",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-more",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
async def test_trace_of_an_invalid_parent_is_none(parent: str) -> None:
    async with serving(sees) as site:
        assert await seen(site, "trace", headers={"traceparent": parent, "tracestate": "vendor=1"}) is None


async def test_trace_joins_a_list_that_came_in_several_headers_and_believes_one_parent_only() -> None:
    several = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"), ("accept", "application/json")]
    body = {"arguments": {"what": ["trace"]}}
    async with serving(sees) as site:
        answer = await site.client.post("/tools/sees", json=body, headers=several)
        assert answer.json()["structuredContent"]["trace"]["tracestate"] == "a=1,b=2"
        answer = await site.client.post("/tools/sees", json=body, headers=[*several, ("traceparent", PARENT)])
        assert answer.json()["structuredContent"]["trace"] is None


async def test_logger_binds_request_run_call_and_tool(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def logs(ctx: ToolContext) -> str:
        """Says something to the log, with a field of its own."""
        ctx.logger.info("on row %d", 7, extra={"row": 7})
        return ctx.request_id

    caplog.set_level(logging.INFO)
    async with serving(logs) as site:
        answer = await site.client.post("/tools/logs", json={"runId": "r", "toolCallId": "c"}, headers=JSON)
    (record,) = [record for record in caplog.records if record.name == "gateway.tools.logs"]
    assert record.getMessage() == "on row 7"
    found = {name: getattr(record, name) for name in ("request_id", "run_id", "tool_call_id", "tool_name", "row")}
    assert found == {
        "request_id": answer.headers["x-request-id"],
        "run_id": "r",
        "tool_call_id": "c",
        "tool_name": "logs",
        "row": 7,
    }


# -- ending --


@tool(timeout=0)
async def waits(ctx: ToolContext) -> None:
    """Waits until it is told to end, and says why."""
    removed: list[str] = []
    remove = ctx.abort_signal.on_abort(removed.append)
    remove()
    ctx.abort_signal.on_abort(lambda reason: ctx.emit_custom_event("told", {"reason": reason, "removed": removed}))
    ctx.emit_custom_event("waiting", {"aborted": ctx.abort_signal.aborted, "reason": ctx.abort_signal.reason})
    try:
        await asyncio.Event().wait()
    finally:
        ctx.emit_custom_event("unwinding", {"aborted": ctx.abort_signal.aborted, "reason": ctx.abort_signal.reason})


@pytest.mark.parametrize("which", ["run", "call"])
async def test_abort_signal_says_that_the_person_pressed_stop(which: str) -> None:
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r", "toolCallId": "c"}, ME)
        assert (await stream.until("waiting"))["value"] == {"aborted": False, "reason": None, "toolCallId": "c"}
        path = "/runs/r/stop" if which == "run" else "/runs/r/tool-calls/c/stop"
        assert (await site.client.post(path, headers=ME)).status_code == 202
        events = {event.get("name"): event.get("value") for _, event in await stream.rest()}
    assert events["told"] == {"reason": "user", "removed": [], "toolCallId": "c"}
    assert events["unwinding"] == {"aborted": True, "reason": "user", "toolCallId": "c"}


async def test_abort_signal_reaches_a_thread_and_throws_there() -> None:
    @tool(timeout=0)
    def works(ctx: ToolContext) -> None:
        """Works until it is told to end."""
        ctx.emit_custom_event("working", {})
        asyncio.run(ctx.abort_signal.wait())
        ctx.emit_custom_event("heard", {"reason": ctx.abort_signal.reason})
        ctx.abort_signal.throw_if_aborted()

    async with serving(works) as site:
        stream = await site.open("/tools/works", {"runId": "r"}, ME)
        await stream.until("working")
        await site.client.post("/runs/r/stop", headers=ME)
        assert (await stream.until("heard"))["value"]["reason"] == "user"
        result = await stream.until("tool.result")
    assert result["value"]["status"] == "cancelled"
    assert "stillRunning" not in result["value"]


async def test_detach_is_none_where_a_call_cannot_be_detached() -> None:
    @tool
    def in_a_thread(ctx: ToolContext) -> dict[str, Any]:
        """A plain function."""
        return {"detach": ctx.detach}

    @tool
    async def around(ctx: ToolContext) -> Any:
        """Calls another tool."""
        return (await ctx.call_tool("sees", {"what": ["detach"]})).structured_content

    async with serving(sees, in_a_thread, around) as site:
        assert await seen(site, "detach") is None, "the answer is JSON"
        for name in ("in_a_thread", "around"):
            stream = await site.client.post(f"/tools/{name}", json={})
            assert events_of(stream.content)[-1]["result"]["structuredContent"] == {"detach": None}
        output = await site.gateway.call_tool(ToolCall("sees", {"what": ["detach"]}))
        assert output.structured_content == {"detach": None}, "there is no run"


async def test_detach_offers_work_and_tells_by_a_future_that_it_has_moved() -> None:
    go = asyncio.Event()

    @tool(timeout=0)
    async def offers(ctx: ToolContext) -> str:
        """Waits for its work, or for the note."""

        async def work() -> str:
            await go.wait()
            return ctx.run_id or ""

        task = asyncio.create_task(work())
        assert ctx.detach is not None
        note = ctx.detach(task)
        ctx.emit_custom_event("offered", {})
        await asyncio.wait({task, note}, return_when=asyncio.FIRST_COMPLETED)
        return note.result()

    async with serving(offers) as site:
        stream = Reader(await site.open("/tools/offers", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("offered")
        job = (await site.client.post("/runs/r/tool-calls/c/detach", headers=ME)).json()["runId"]
        value = (await stream.until("tool.result"))["value"]
        assert value["status"] == "detached"
        told = "The job moved to the background. Its id is c. You get a note when it ends."
        assert value["content"] == [{"type": "text", "text": told}]
        go.set()
        events = events_of((await site.client.get(f"/runs/{job}/events", headers=ME)).content)
        assert events[-1]["result"]["content"][0]["text"] == job


@pytest.mark.parametrize("accept", [{}, JSON], ids=["stream", "json"])
async def test_run_detachable_just_awaits_while_nobody_detaches_and_where_nobody_can(accept: dict[str, str]) -> None:
    @tool
    async def awaits(ctx: ToolContext) -> dict[str, Any]:
        """Awaits work that answers and work that fails."""
        found = [await ctx.run_detachable(asyncio.sleep(0, "slept"))]
        try:
            await ctx.run_detachable(asyncio.wait_for(asyncio.Event().wait(), 0))
        except TimeoutError as error:
            found.append(type(error).__name__)
        return {"found": found, "detachable": ctx.detach is not None}

    async with serving(awaits) as site:
        answer = await site.client.post("/tools/awaits", json={}, headers=ME | accept)
        answer_of = answer.json() if accept else events_of(answer.content)[-1]["result"]
        assert answer_of["structuredContent"] == {"found": ["slept", "TimeoutError"], "detachable": not accept}


async def test_run_detachable_returns_the_note_when_the_person_detaches() -> None:
    go = asyncio.Event()
    returned: list[Any] = []

    @tool(timeout=0)
    async def leaves(ctx: ToolContext) -> Any:
        """Leaves its work to the background."""

        async def work() -> str:
            ctx.emit_custom_event("working", {})
            await go.wait()
            return "done"

        returned.append(await ctx.run_detachable(work()))
        return returned[0]

    async with serving(leaves) as site:
        stream = Reader(await site.open("/tools/leaves", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("working")
        job = (await site.client.post("/runs/r/detach", headers=ME)).json()["jobs"][0]["runId"]
        events = await stream.rest()
        assert returned == ["The job moved to the background. Its id is c. You get a note when it ends."]
        assert events[-2]["content"] == returned[0]
        go.set()
        events = events_of((await site.client.get(f"/runs/{job}/events", headers=ME)).content)
        assert events[-1]["result"]["content"][0]["text"] == "done"


# -- what it says --


async def test_emit_custom_event_is_seen_before_the_tool_goes_on() -> None:
    go = asyncio.Event()

    @tool(timeout=0)
    async def emits(ctx: ToolContext) -> None:
        """Emits one event, waits, emits another."""
        ctx.emit_custom_event("one", {"n": 1, "toolCallId": "overwritten"})
        await ctx.context.wait()
        ctx.emit_custom_event("two", {"n": 2}, batch=True)

    async with serving(emits, context=go) as site:
        stream = await site.open("/tools/emits", {"toolCallId": "c"})
        first = await stream.until("one")
        go.set()
        second = await stream.until("two")
    assert first["value"] == {"n": 1, "toolCallId": "c"}
    assert first["metadata"] == {"toolName": "emits"}
    assert second["value"] == {"n": 2, "toolCallId": "c"}


async def test_report_progress_is_seen_while_the_tool_works() -> None:
    go = asyncio.Event()

    @tool(timeout=0)
    async def reports(ctx: ToolContext) -> None:
        """Reports, waits, reports."""
        ctx.report_progress(1, 4, "a quarter")
        await ctx.context.wait()
        ctx.report_progress(float("nan"), 4)
        ctx.report_progress(5, 4)

    async with serving(reports, context=go) as site:
        stream = await site.open("/tools/reports", {"toolCallId": "c"})
        first = await stream.until("tool.progress")
        go.set()
        last = await stream.until("tool.progress")
    ids = {"toolCallId": "c", "toolName": "reports"}
    assert first["value"] == {**ids, "progress": 1, "total": 4, "percent": 25, "message": "a quarter"}
    assert last["value"] == {**ids, "progress": 5, "total": 4, "percent": 100}


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_flush_returns_when_everything_is_in_the_store(kind: str) -> None:
    async def stored(ctx: ToolContext) -> bool:
        bounds = await ctx.context["site"].engine.store.bounds(ctx._run.key)
        return bool(bounds.last >= 4 + 50)

    @tool(name="flushes")
    async def on_the_loop(ctx: ToolContext) -> dict[str, bool]:
        """Emits, and asks whether it is there."""
        for number in range(50):
            ctx.emit_custom_event("row", {"number": number}, batch=True)
        await ctx.flush()
        return {"stored": await stored(ctx)}

    @tool(name="flushes")
    def in_a_thread(ctx: ToolContext) -> dict[str, bool]:
        """The same, where nothing can be awaited."""
        for number in range(50):
            ctx.emit_custom_event("row", {"number": number}, batch=True)
        ctx.flush()
        loop = ctx.context["loop"]
        return {"stored": asyncio.run_coroutine_threadsafe(stored(ctx), loop).result()}

    held: dict[str, Any] = {"loop": asyncio.get_running_loop()}
    async with serving(on_the_loop if kind == "async" else in_a_thread, context=held) as site:
        held["site"] = site
        assert await result(site, "flushes") == {"stored": True}


# -- capabilities --

DATABASE = Capability[str]("database")
CACHE = Capability[str]("cache")


async def test_provide_makes_a_middleware_give_something_to_the_tool() -> None:
    async def provides(ctx: ToolContext, call: ToolCall, call_next: Any) -> ToolOutput:
        ctx.provide(DATABASE, f"of {ctx.tool_name}")
        output: ToolOutput = await call_next(call)
        return output

    @tool
    async def uses(ctx: ToolContext) -> str:
        """Uses what was provided."""
        return ctx.get(DATABASE)

    async with serving(uses, middleware=[provides]) as site:
        assert await result(site, "uses") == "of uses"


async def test_get_of_what_nobody_provided_raises_and_names_it() -> None:
    @tool
    async def wants(ctx: ToolContext) -> dict[str, str]:
        """Wants what is not there."""
        try:
            return {"got": ctx.get(CACHE)}
        except CapabilityError as error:
            return {"raised": str(error)}

    async with serving(wants) as site:
        assert "'cache'" in (await result(site, "wants"))["raised"]


async def test_get_optional_of_what_nobody_provided_is_none() -> None:
    @tool
    async def wants(ctx: ToolContext) -> dict[str, Any]:
        """Wants what is not there, or not."""
        return {"cache": ctx.get_optional(CACHE)}

    async with serving(wants) as site:
        assert await result(site, "wants") == {"cache": None}


# -- the session's tools --


@tool(visibility="hidden")
async def admin() -> str:
    """For those who have enabled it."""
    return "admin here"


@tool
async def enable(names: list[str], ctx: ToolContext) -> None:
    """Enables tools for this session."""
    await ctx.enable_tools(names)


@tool
async def disable(names: list[str], ctx: ToolContext) -> None:
    """Disables tools for this session."""
    await ctx.disable_tools(names)


async def there(site: Site, name: str, headers: dict[str, str]) -> bool:
    """Whether a tool is there for a caller; list and call agree."""
    listed = [item["name"] for item in (await site.client.get("/tools", headers=headers)).json()["items"]]
    answer = await site.client.post(f"/tools/{name}", json={}, headers=headers | JSON)
    assert (answer.status_code == 200) is (name in listed)
    return name in listed


async def test_enable_tools_makes_a_hidden_tool_be_there_for_this_session_only() -> None:
    async with serving(admin, enable) as site:
        assert not await there(site, "admin", ME)
        await result(site, "enable", ME, names=["admin"])
        assert await there(site, "admin", ME)
        assert not await there(site, "admin", SOMEBODY_ELSE)
        assert not await there(site, "admin", {})


async def test_disable_tools_takes_a_tool_away_from_this_session_only() -> None:
    async with serving(sees, disable) as site:
        await result(site, "disable", ME, names=["sees"])
        assert "sees" not in (await site.client.get("/tools", headers=ME)).text
        assert (await site.client.post("/tools/sees", json={}, headers=ME)).status_code == 404
        assert (await seen(site, "tool_name", headers=SOMEBODY_ELSE)) == "sees"


async def test_get_visible_tools_is_none_without_a_rule_and_names_afterwards() -> None:
    @tool
    async def visible(ctx: ToolContext) -> dict[str, Any]:
        """Says what is there."""
        found = ctx.get_visible_tools()
        assert found is None or isinstance(found, frozenset)
        return {"visible": None if found is None else sorted(found)}

    async with serving(visible, admin, enable) as site:
        assert await result(site, "visible", ME) == {"visible": None}
        await result(site, "enable", ME, names=["admin"])
        assert await result(site, "visible", ME) == {"visible": ["admin", "enable", "visible"]}
        assert await result(site, "visible", SOMEBODY_ELSE) == {"visible": None}


# -- tasks --


async def test_task_is_none_exactly_when_the_tool_forbids_it() -> None:
    async def shows(ctx: ToolContext) -> dict[str, Any]:
        """Says what its task is."""
        task = ctx.task
        return {"task": None if task is None else [task.task_id == ctx.run_id, task.cancelled]}

    made = [tool(name=kind, task_support=kind)(shows) for kind in ("forbidden", "optional", "required")]
    async with serving(*made) as site:
        assert await result(site, "forbidden") == {"task": None}
        assert await result(site, "optional") == {"task": [True, False]}
        started = await site.client.post("/tools/required", json={"runId": "r"}, headers={"prefer": "respond-async"})
        assert started.status_code == 202
        await site.client.get("/runs/r", params={"wait": "20"})
        events = events_of((await site.client.get("/runs/r/events")).content)
        assert events[-1]["result"]["structuredContent"] == {"task": [True, False]}


@pytest.mark.allow_blocking
async def test_task_in_a_process_is_there_too() -> None:
    async with serving(look_around) as site:
        found = await result(site, "look_around")
    assert found["missing"] != []
    assert found["optional"][2] is not None


# -- the person --


@tool
async def talks(ctx: ToolContext) -> dict[str, Any]:
    """Interrupts, asks inside the open run, and says what it has heard so far at each step."""
    heard = [None if ctx.input_response is None else ctx.input_response.payload]
    by_key = [{key: given.payload for key, given in ctx.input_responses.items()}]
    day = ctx.interrupt("Which day?", {"type": "string"}, key="day")
    given = await ctx.request_input("Which hour?", {"type": "integer"})
    assert ctx.input_response == given
    heard.append(ctx.input_response.payload)
    by_key.append({key: answer_.payload for key, answer_ in ctx.input_responses.items()})
    return {"day": day.payload, "hour": given.payload, "heard": heard, "by_key": by_key}


async def talked(site: Site) -> list[Any]:
    """What the tool says at the end of its two runs."""
    first = await post(site, "/tools/talks", {"toolCallId": "c"})
    (interrupt,) = interrupts_of(first)
    assert (interrupt["message"], interrupt["responseSchema"]) == ("Which day?", {"type": "string"})
    body = {"runId": "r", "resume": [resolve(interrupt, "Monday")]}
    stream = Reader(await site.open("/tools/talks", body, ME))
    await answered(site, await asked(stream), 5)
    found = gave(await stream.rest())
    return [found["day"], found["hour"], found["heard"], found["by_key"]]


async def test_interrupt_ends_the_run_and_returns_the_answer_in_the_next_one() -> None:
    async with serving(talks) as site:
        day, _, _, _ = await talked(site)
    assert day == "Monday"


async def test_request_input_asks_inside_the_open_run_and_returns_the_answer() -> None:
    async with serving(talks) as site:
        _, hour, _, _ = await talked(site)
    assert hour == 5


async def test_input_response_is_the_newest_answer_of_either_kind_or_none() -> None:
    async with serving(talks) as site:
        _, _, heard, _ = await talked(site)
    assert heard == ["Monday", 5]

    @tool
    async def looks(ctx: ToolContext) -> dict[str, Any]:
        """Looks before it asks."""
        return {"newest": ctx.input_response, "all": dict(ctx.input_responses)}

    async with serving(looks) as site:
        assert await result(site, "looks") == {"newest": None, "all": {}}


async def test_input_responses_are_the_answers_to_interrupts_by_key_over_all_resumes() -> None:
    async with serving(talks) as site:
        _, _, _, by_key = await talked(site)
    assert by_key == [{"day": "Monday"}, {"day": "Monday"}]


async def test_request_input_sync_asks_from_a_thread() -> None:
    @tool
    def blocks(ctx: ToolContext) -> dict[str, Any]:
        """Blocks until somebody answers."""
        given = ctx.request_input_sync("Who?", {"type": "string"})
        return {"status": given.status, "payload": given.payload}

    async with serving(blocks) as site:
        stream = Reader(await site.open("/tools/blocks", {"runId": "r", "toolCallId": "c"}, ME))
        await answered(site, await asked(stream), "Ada")
        assert gave(await stream.rest()) == {"status": "resolved", "payload": "Ada"}


async def test_waiting_for_user_tells_everybody_that_the_call_waits() -> None:
    @tool
    async def watches(ctx: ToolContext) -> str:
        """Waits in its own way."""
        async with ctx.waiting_for_user("Look at your phone."):
            ctx.emit_custom_event("inside", {})
        return "seen"

    async with serving(watches) as site:
        events = await post(site, "/tools/watches", {"toolCallId": "c"})
    names = [event["name"] for event in events if event["type"] == "CUSTOM"]
    assert names == ["tool.waiting", "inside", "tool.resumed", "tool.result"]
    assert next(event["value"]["message"] for event in events if event["type"] == "CUSTOM") == "Look at your phone."


@pytest.mark.allow_blocking  # a process is started on the loop
async def test_what_needs_a_person_is_not_available_in_a_process() -> None:
    async with serving(lists_what_is_missing) as site:
        missing = await result(site, "lists_what_is_missing", names=list(PERSONAL))
    assert missing == {name: f"ctx.{name} is not available in a process tool." for name in PERSONAL}


# -- other tools --


@tool
async def inner(ctx: ToolContext, text: str) -> dict[str, Any]:
    """Says what it was told, and who it is."""
    ctx.emit_custom_event("inside", {"text": text})
    return {"text": text, "id": ctx.tool_call_id, "run": ctx.run_id, "session": ctx.session_id}


async def test_call_tool_runs_another_tool_inside_this_run() -> None:
    @tool
    async def outer(ctx: ToolContext) -> list[Any]:
        """Calls another tool twice."""
        outputs = [await ctx.call_tool("inner", {"text": text}) for text in ("a", "b")]
        return [output.structured_content for output in outputs]

    async with serving(outer, inner) as site:
        stream = Reader(await site.open("/tools/outer", {"runId": "r", "toolCallId": "c"}, ME))
        events = await stream.rest()
    session = f"anon:{ME['x-session-id']}"
    assert events[-1]["result"]["structuredContent"] == {
        "result": [{"text": text, "id": f"c/{n}", "run": "r", "session": session} for n, text in ((1, "a"), (2, "b"))]
    }
    starts = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    assert starts == ["c"], "a nested call is not in the model's history"
    nested = [event for event in events if event["type"] == "CUSTOM" and event["value"]["toolCallId"] != "c"]
    assert [(event["name"], event["value"]["toolCallId"]) for event in nested] == [
        ("inside", "c/1"),
        ("tool.result", "c/1"),
        ("inside", "c/2"),
        ("tool.result", "c/2"),
    ]
    assert {event["metadata"]["parentToolCallId"] for event in nested} == {"c"}
    assert json.loads(events[-2]["content"])["result"][0]["text"] == "a"
