"""Whose a run is: every route with every kind of caller, and the same 404 for what is not yours as for what is not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from gateway import Gateway
from gateway.errors import AccessDenied
from gateway.execution.caller import AuthContext
from gateway.http.routes import Routes
from tests.http.asking import ASYNC, JSON, Gates, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving

COOKIE = "agui_session"
ALICE, BOB = {"authorization": "Bearer alice"}, {"authorization": "Bearer bob"}
MINE, THEIRS = ME["x-session-id"], SOMEBODY_ELSE["x-session-id"]

Headers = dict[str, str]

CALLERS: dict[str, Headers] = {
    "my session": ME,
    "my session as a cookie": {"cookie": f"{COOKIE}={MINE}"},
    "another session": SOMEBODY_ELSE,
    "another session as a cookie": {"cookie": f"{COOKIE}={THEIRS}"},
    "the header of another session beside my cookie": {**SOMEBODY_ELSE, "cookie": f"{COOKIE}={MINE}"},
    "no session": {},
    "alice": ALICE,
    "alice with my session": {**ALICE, **ME},
    "alice with another session": {**ALICE, **SOMEBODY_ELSE},
    "bob": BOB,
    "bob with my session": {**BOB, **ME},
}
# Who started the run, and who may therefore see it.
OWNERS: dict[str, tuple[Headers, set[str]]] = {
    "my session": (ME, {"my session", "my session as a cookie"}),
    "my session as a cookie": (CALLERS["my session as a cookie"], {"my session", "my session as a cookie"}),
    "alice": (ALICE, {"alice", "alice with my session", "alice with another session"}),
    "alice with my session": (
        {**ALICE, **ME},
        {"alice", "alice with my session", "alice with another session"},
    ),
    "nobody": ({}, set(CALLERS)),
}

# How each route treats a run or thread of somebody else: one row a route, or the matrix fails.
OPEN = "open"  # says the same to everybody
RUN, THREAD, OWN, START = "run", "thread", "own", "start"
ROWS: dict[tuple[str, str], str] = {
    ("GET", "/agents"): OPEN,
    ("GET", "/agents/{agent}"): RUN,
    ("POST", "/agents/{agent}"): START,
    ("GET", "/agents/{agent}/capabilities"): OPEN,
    ("GET", "/capabilities"): OPEN,
    ("GET", "/tools"): OPEN,
    ("POST", "/tools/{tool}"): START,
    ("GET", "/runs"): OWN,
    ("GET", "/runs/{run_id}"): RUN,
    ("GET", "/runs/{run_id}/events"): RUN,
    ("POST", "/runs/{run_id}/ticket"): RUN,
    ("POST", "/runs/{run_id}/stop"): RUN,
    ("POST", "/runs/{run_id}/detach"): RUN,
    ("POST", "/runs/{run_id}/input"): RUN,
    ("POST", "/runs/{run_id}/tool-calls/{call_id:call}/stop"): RUN,
    ("POST", "/runs/{run_id}/tool-calls/{call_id:call}/detach"): RUN,
    ("POST", "/runs/{run_id}/tool-calls/{call_id:call}/claim"): RUN,
    ("POST", "/runs/{run_id}/tool-calls/{call_id:call}/waiting"): RUN,
    ("POST", "/runs/{run_id}/tool-calls/{call_id:call}/result"): RUN,
    ("GET", "/threads/{thread_id}"): THREAD,
    ("POST", "/threads/{thread_id}/stop"): THREAD,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/schemas/{file:path}"): OPEN,
}


async def authenticate(connection: HTTPConnection) -> AuthContext | None:
    """`Authorization: Bearer NAME` is NAME."""
    scheme, _, name = connection.headers.get("authorization", "").partition(" ")
    return AuthContext(name) if scheme == "Bearer" and name else None


@asynccontextmanager
async def house(gates: Gates | None = None, **options: Any) -> AsyncIterator[Site]:
    async with serving(echo, waits, context=gates, authenticate=authenticate, allow_anonymous=True, **options) as site:
        yield site


def path_of(route: str, run_id: str = "r", thread_id: str = "t") -> str:
    """The route for a run; by GET an agent is asked for the run."""
    known = {"agent": "tools", "tool": "echo", "run_id": run_id, "thread_id": thread_id, "call_id": "c", "file": "x"}
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: known[match[1]], route)
    return f"{path}?runId={run_id}" if route == "/agents/{agent}" else path


def comparable(answer: httpx.Response) -> Any:
    """All of an answer but what differs between any two."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")}
    return answer.status_code, answer.content, headers


GARBAGE: list[dict[str, Any]] = [
    {},
    {"content": b"{", "headers": {"content-type": "application/json"}},
    {"content": b"[]", "headers": {"content-type": "text/plain"}},
    {"content": b'{"reason": 7, "use": "x"}', "headers": {"content-type": "application/json"}},
    {"content": b" " * 40_000, "headers": {"content-type": "application/json"}},
]


async def test_every_route_has_a_row() -> None:
    gateway = Gateway()
    routes = Routes(await gateway.startup()).table()
    await gateway.shutdown()
    there = {(method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"}
    assert there - set(ROWS) == set(), "a route without a row: say how it treats what is somebody else's"
    assert set(ROWS) - there == set()


@pytest.mark.parametrize("owner", ["my session", "alice with my session", "nobody"])
async def test_a_run_is_there_for_its_owner_and_like_none_for_everybody_else_on_every_path(owner: str) -> None:
    started_by, may = OWNERS[owner]
    gates = Gates()
    async with house(gates) as site:
        body = {"runId": "r", "threadId": "t", "toolCallId": "c"}
        assert (await site.client.post("/tools/waits", json=body, headers={**started_by, **ASYNC})).status_code == 202
        garbage = cycle(GARBAGE)
        for caller, headers in CALLERS.items():
            for (method, route), kind in ROWS.items():
                if kind not in (RUN, THREAD):
                    continue
                if caller in may and (kind is RUN or owner != "nobody"):
                    continue  # whether it is there is the next test; asking here would stop it
                extra = next(garbage) if method == "POST" else GARBAGE[0]
                sent, content = {**extra.get("headers", {}), **headers}, extra.get("content")
                foreign = await site.client.request(method, path_of(route), content=content, headers=sent)
                error_of(foreign, 404, f"{kind}_not_found")
                unknown = path_of(route, "no-such-run", "no-such-thread")
                missing = await site.client.request(method, unknown, content=content, headers=sent)
                assert comparable(foreign) == comparable(missing), (caller, method, route)
        record = (await site.client.get("/runs/r", headers=started_by)).json()
        assert record["status"] == "running", "nobody has stopped it"
        gates["go"].set()


@pytest.mark.parametrize("owner", OWNERS)
async def test_those_who_may_see_a_run_reach_it_on_every_path(owner: str) -> None:
    started_by, may = OWNERS[owner]
    gates = Gates()
    gates["go"].set()
    async with house(gates) as site:
        body = {"runId": "r", "threadId": "t", "toolCallId": "c"}
        events = events_of((await site.client.post("/tools/waits", json=body, headers=started_by)).content)
        for caller in may:
            headers = CALLERS[caller]
            for (method, route), kind in ROWS.items():
                if kind is RUN or (kind is THREAD and owner != "nobody"):
                    answer = await site.client.request(method, path_of(route), headers=headers)
                    # An empty body is no answer to a question, and a call that is over does not move.
                    assert answer.status_code in (200, 201, 400, 409), (caller, method, route, answer.text)
            seen = events_of((await site.client.get("/runs/r/events", headers=headers)).content)
            assert seen == events
            listed = (await site.client.get("/runs", headers=headers)).json()["items"]
            assert [run["runId"] for run in listed] == ([] if owner == "nobody" else ["r"])


@pytest.mark.parametrize("path", ["/agents/tools", "/tools/echo"])
async def test_starting_with_the_id_of_somebody_elses_run_is_another_run(path: str) -> None:
    gates = Gates()
    async with house(gates) as site:
        body = agent_body(ask(("c", "echo", {}))) if path == "/agents/tools" else {"runId": "r", "threadId": "t"}
        answer = await site.client.post(path, json=body, headers=ME)
        assert answer.status_code == 200
        for number, caller in enumerate(("another session", "alice with my session", "bob with my session"), 2):
            headers = CALLERS[caller]
            lost = await site.client.post(path, json=body, headers={**headers, "last-event-id": "1"})
            error_of(lost, 404, "run_not_found")
            assert (await site.client.post(path, json=body, headers=headers)).status_code == 200
            assert gates.executions == {"r": number}


async def test_the_routes_without_an_owner_say_the_same_to_everybody() -> None:
    async with house() as site:
        for (method, route), kind in ROWS.items():
            if kind is OPEN:
                answers = [
                    comparable(await site.client.request(method, path_of(route), headers=headers))
                    for headers in CALLERS.values()
                ]
                assert answers == [answers[0]] * len(answers), route


async def test_what_nobody_owns_is_in_no_list_and_in_no_thread() -> None:
    async with house() as site:
        await site.client.post("/tools/echo", json={"runId": "r", "threadId": "t"})
        for headers in CALLERS.values():
            assert (await site.client.get("/runs", headers=headers)).json() == {"items": [], "next": None}
            error_of(await site.client.get("/threads/t", headers=headers), 404, "thread_not_found")
            error_of(await site.client.post("/threads/t/stop", headers=headers), 404, "thread_not_found")
            hydrated = (await site.client.get("/agents/tools?threadId=t", headers=headers)).json()
            assert hydrated == {"messages": [], "activeRun": None, "interrupts": None}
            assert (await site.client.get("/runs/r", headers=headers)).status_code == 200


async def test_an_own_run_comes_before_one_of_the_same_id_that_nobody_owns() -> None:
    async with house() as site:
        for headers, text in (({}, "nobody's"), (ME, "mine")):
            body = {"runId": "r", "arguments": {"text": text}}
            await site.client.post("/tools/echo", json=body, headers={**headers, **JSON})
        for headers, text in ((ME, "mine"), (SOMEBODY_ELSE, "nobody's"), ({}, "nobody's"), (ALICE, "nobody's")):
            events = events_of((await site.client.get("/runs/r/events", headers=headers)).content)
            assert events[-1]["result"]["structuredContent"] == {"text": text}


async def test_what_a_tool_sees_of_its_session() -> None:
    gates = Gates()
    async with house(gates) as site:
        expected = {
            "my session": f"anon:{MINE}",
            "my session as a cookie": f"anon:{MINE}",
            "the header of another session beside my cookie": f"anon:{THEIRS}",
            "alice": "user:alice:default",
            "alice with my session": f"user:alice:{MINE}",
        }
        for number, (caller, session) in enumerate(expected.items()):
            await site.client.post("/tools/echo", json={"runId": str(number)}, headers=CALLERS[caller])
            assert gates.contexts[-1].session_id == session
        await site.client.post("/tools/echo", json={}, headers={"authorization": "Bearer a/b:c d"})
        ctx = gates.contexts[-1]
        assert ctx.session_id == "user:a%2Fb%3Ac%20d:default"
        assert ctx.verified_subject == "a/b:c d"
        fresh = set()
        for _ in range(3):
            await site.client.post("/tools/echo", json={})
            fresh.add(gates.contexts[-1].session_id)
            assert gates.contexts[-1].auth is None
            assert gates.contexts[-1].verified_subject is None
        assert len(fresh) == 3
        assert all(re.fullmatch(r"anon:[A-Za-z0-9_-]{16,}", session) for session in fresh)


MALFORMED = ["", "short", "x" * 15, "x" * 129, "with space 00000000", "ünïcödé-00000000", "a" * 16 + ";"]


async def test_a_malformed_session_is_refused_on_every_path() -> None:
    bad = cycle(MALFORMED)
    async with house() as site:
        await site.client.post("/tools/echo", json={"runId": "r"})
        for (method, route), kind in ROWS.items():
            if route in ("/healthz", "/readyz", "/openapi.json", "/schemas/{file:path}"):
                continue  # nobody is asked who he is there
            body = {"/tools/{tool}": {}, "/agents/{agent}": agent_body(ask(("c", "echo", {})))} if kind is START else {}
            for who in ({}, ALICE):
                headers = {b"x-session-id": next(bad).encode()}
                headers |= {name.encode(): value.encode() for name, value in who.items()}
                answer = await site.client.request(method, path_of(route), headers=headers, json=body.get(route))
                error = error_of(answer, 400, "invalid_request")
                assert error["details"][0]["field"] == "X-Session-Id"


async def test_a_malformed_cookie_is_no_session_for_another_program_may_have_set_it() -> None:
    async with house() as site:
        await site.client.post("/tools/echo", json={"runId": "r"})
        for bad in MALFORMED:
            cookie = {b"cookie": f"{COOKIE}={bad}".encode()}
            assert (await site.client.get("/runs", headers=cookie)).json()["items"] == []
            assert (await site.client.get("/runs/r", headers=cookie)).status_code == 200


async def test_a_session_has_sixteen_to_a_hundred_and_twenty_eight_characters() -> None:
    async with house() as site:
        for good in ("x" * 16, "x" * 128, "AZaz09_-AZaz09_-"):
            headers = {"x-session-id": good}
            await site.client.post("/tools/echo", json={"runId": "r"}, headers=headers)
            assert len((await site.client.get("/runs", headers=headers)).json()["items"]) == 1


# -- the authenticator --


async def test_without_a_credential_an_authenticating_gateway_answers_nothing_but_its_health() -> None:
    async with serving(echo, authenticate=authenticate) as site:
        for method, route in ROWS:
            answer = await site.client.request(method, path_of(route), headers=ME)
            if route in ("/healthz", "/readyz"):
                assert answer.status_code == 200
                continue
            error_of(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await site.client.get("/runs", headers=ALICE)).status_code == 200


async def test_an_authenticator_that_fails_lets_nobody_in_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(connection: HTTPConnection) -> AuthContext | None:
        raise LookupError("the secret table is gone")

    async with serving(echo, authenticate=broken, allow_anonymous=True) as site:
        answer = await site.client.get("/runs")
        error_of(answer, 500, "internal")
        assert "secret table" not in answer.text
    assert "The authenticator failed" in caplog.text


async def test_a_subject_is_in_the_log_in_clear_and_a_session_only_as_a_hash(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with house() as site:
        await site.client.post("/tools/echo", json={}, headers={**ALICE, **ME})
        await site.client.post("/tools/echo", json={}, headers=SOMEBODY_ELSE)
    said = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("gateway"))
    assert [line for line in said.splitlines() if "started" in line and "alice" in line]
    assert [line for line in said.splitlines() if "started" in line and "alice" not in line]
    assert MINE not in said
    assert THEIRS not in said
    assert "Bearer" not in said


async def test_an_authenticator_that_refuses_is_answered_403() -> None:
    async def authenticate(connection: Any) -> AuthContext | None:
        raise AccessDenied("Not you.")

    async with serving(authenticate=authenticate) as site:
        answer = await site.client.get("/tools")
    assert answer.status_code == 403
    assert answer.json() == {"error": {"code": "denied", "message": "Not you."}}
