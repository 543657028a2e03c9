"""Who may talk to the gateway at all: Host, Origin, CORS, and callers from other machines."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn
from starlette.requests import HTTPConnection

import gateway.http
from gateway import Gateway
from gateway.execution.caller import AuthContext
from gateway.http.guard import is_loopback
from tests.http.asking import agent_body, ask, echo, error_of, events_of
from tests.http.site import LONG, ME, AnnouncingServer, serving

PAGE = "https://app.example"
EVIL = "https://evil.example"
COOKIE = {"cookie": "agui_session=a-session-of-0123456789"}
BODY = agent_body(ask(("c", "echo", {})))


@asynccontextmanager
async def reached(
    *, client: str | None = "127.0.0.1", url: str = "http://127.0.0.1:8000", authenticate: Any = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway that is asked from an address: ASGI, for no socket of a test comes from another machine."""
    gateway = Gateway([echo], authenticate=authenticate, **{"drain_timeout": 0, **options})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await gateway({**scope, "client": None if client is None else (client, 1)}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url) as http:
        yield http
    await gateway.shutdown()


# -- addresses --

LOOPBACK = {
    "127.0.0.1": True,
    "127.9.9.9": True,
    "::1": True,
    "::ffff:127.0.0.1": True,
    "[::1]": True,
    "localhost": True,
    "LocalHost": True,
    "app.localhost": True,
    "testclient": True,
    None: True,
    "192.0.2.1": False,
    "::ffff:192.0.2.1": False,
    "0.0.0.0": False,
    "::": False,
    "localhost.example.com": False,
    "127.0.0.1.example.com": False,
    "notlocalhost": False,
    "2130706433": False,
    "127.1": False,
    "": False,
}


@pytest.mark.parametrize("host", LOOPBACK)
def test_what_counts_as_this_machine(host: str | None) -> None:
    assert is_loopback(host) is LOOPBACK[host]


async def test_a_caller_from_elsewhere_is_refused_without_an_authenticator_on_every_path() -> None:
    async with reached(client="192.0.2.1", url="http://gateway.example", page=True) as http:
        for method, path in (
            ("GET", "/"),
            ("GET", "/healthz"),
            ("GET", "/runs"),
            ("GET", "/nothing"),
            ("POST", "/tools/echo"),
            ("OPTIONS", "/tools/echo"),
        ):
            error_of(await http.request(method, path, headers=ME), 403, "anonymous_not_allowed")


async def test_a_caller_from_elsewhere_is_served_when_the_operator_or_an_authenticator_says_so() -> None:
    async def anybody(connection: HTTPConnection) -> AuthContext | None:
        return AuthContext("somebody")

    for options in ({"allow_anonymous": True}, {"authenticate": anybody}):
        async with reached(client="192.0.2.1", url="http://gateway.example", **options) as http:
            assert events_of((await http.post("/tools/echo", json={})).content)


async def test_a_caller_over_a_unix_socket_is_on_this_machine() -> None:
    async with reached(client=None, url="http://whatever") as http:
        assert (await http.get("/tools")).status_code == 200


def address_of_this_machine() -> str | None:
    found = (
        item.address for items in psutil.net_if_addrs().values() for item in items if item.family is socket.AF_INET
    )
    return next((address for address in found if not is_loopback(address)), None)


async def test_a_connection_to_the_machines_own_other_address_counts_as_from_elsewhere() -> None:
    address = address_of_this_machine()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    gateway = Gateway([echo], drain_timeout=0)
    listener = socket.create_server((address, 0))
    server = AnnouncingServer(uvicorn.Config(gateway, log_config=None, lifespan="on"))
    running = asyncio.create_task(server.serve([listener]), name="server")
    async with asyncio.timeout(LONG):
        await server.up.wait()
        url = f"http://{address}:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=LONG) as http:
            answer = await http.post("/tools/echo", json={})
        server.should_exit = True
        await running
    listener.close()
    error_of(answer, 403, "anonymous_not_allowed")


# -- Host --


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8000", True),
        ("127.0.0.1", True),
        ("localhost:8000", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("app.localhost:1", True),
        ("testserver", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("localhost@evil.example", False),
        ("localhost:80:80", False),
        ("192.0.2.1", False),
        ("", False),
    ],
)
async def test_a_connection_on_this_machine_must_ask_for_this_machine(host: str, served: bool) -> None:
    async with reached() as http:
        answer = await http.get("/runs", headers={"host": host})
        if served:
            assert answer.status_code == 200
        else:
            error_of(answer, 421, "bad_host")


async def test_a_real_server_is_not_reached_by_a_rebound_name() -> None:
    async with serving(echo) as site:
        for method, path in (("GET", "/healthz"), ("POST", "/tools/echo"), ("GET", "/nothing")):
            error_of(await site.client.request(method, path, headers={"host": "evil.example"}), 421, "bad_host")


@pytest.mark.parametrize(
    ("allowed", "host", "served"),
    [
        (["api.example"], "api.example", True),
        (["api.example"], "API.example:8443", True),
        (["api.example"], "127.0.0.1", False),
        (["api.example"], "other.example", False),
        (["*.example"], "api.example", True),
        (["*.example"], "a.b.example", True),
        (["*.example"], "example", False),
        (["*.example"], "badexample", False),
        (["*"], "anything.at.all", True),
        (["[::1]"], "[::1]:1", True),
    ],
)
async def test_allowed_hosts_are_the_only_ones(allowed: list[str], host: str, served: bool) -> None:
    for client in ("127.0.0.1", "192.0.2.1"):
        async with reached(client=client, allowed_hosts=allowed, allow_anonymous=True) as http:
            answer = await http.get("/runs", headers={"host": host})
            assert answer.status_code == (200 if served else 421)


# -- Origin --

OWN = "http://127.0.0.1:8000"
# headers, cors_origins, whether a POST is served
ORIGINS: dict[str, tuple[dict[str, str], list[str], bool]] = {
    "no origin: no browser": ({}, [], True),
    "no origin but a cookie": (COOKIE, [], True),
    "its own page": ({"origin": OWN, **COOKIE}, [], True),
    "its own page in capitals": ({"origin": OWN.upper()}, [], True),
    "its own page, as its browser says, behind a proxy": (
        {"origin": PAGE, "sec-fetch-site": "same-origin", **COOKIE},
        [],
        True,
    ),
    "a development server beside it": ({"origin": "http://localhost:5173", **COOKIE}, [], True),
    "a page that is allowed, with a cookie": ({"origin": PAGE, **COOKIE}, [PAGE], True),
    "any page, when all are allowed": ({"origin": EVIL}, ["*"], True),
    "any page with the visitor's cookie, when all are allowed": ({"origin": EVIL, **COOKIE}, ["*"], False),
    "another page": ({"origin": EVIL}, [], False),
    "another page with a cookie": ({"origin": EVIL, **COOKIE}, [PAGE], False),
    "another site, as its browser says": ({"origin": EVIL, "sec-fetch-site": "cross-site"}, [], False),
    "a page below the allowed one": ({"origin": "https://evil.app.example"}, [PAGE], False),
    "the allowed name on another port": ({"origin": PAGE + ":8443"}, [PAGE], False),
    "the allowed name without TLS": ({"origin": "http://app.example"}, [PAGE], False),
    "a sandboxed page or a file": ({"origin": "null"}, [PAGE], False),
    "an empty origin": ({"origin": ""}, [PAGE], False),
    "an origin that is none": ({"origin": "http://[::1"}, [PAGE], False),
    "a name that only looks local": ({"origin": "http://localhost.evil.example"}, [], False),
    "another page that names its session": ({"origin": EVIL, **ME}, [], True),
    "another page that has a key": ({"origin": EVIL, "authorization": "Bearer x"}, [], True),
    "another page with an API key": ({"origin": EVIL, "x-api-key": "x"}, [], True),
    "no origin, but from another site": ({"sec-fetch-site": "cross-site", **COOKIE}, [], False),
    "no origin, from the same site": ({"sec-fetch-site": "same-site"}, [], True),
    "no origin, typed by the user": ({"sec-fetch-site": "none"}, [], True),
}


@pytest.mark.parametrize("what", ORIGINS)
async def test_a_request_that_changes_something_comes_from(what: str) -> None:
    headers, cors_origins, served = ORIGINS[what]
    async with reached(cors_origins=cors_origins) as http:
        for path in ("/tools/echo", "/tools/echo?ticket=made-up", "/runs/r/stop?ticket=made-up"):
            answer = await http.post(path, headers={"origin": "", **headers} if "origin" in headers else headers)
            if served:
                assert answer.status_code in (200, 404), answer.text
            else:
                error_of(answer, 403, "bad_origin")
        for method in ("GET", "HEAD", "OPTIONS"):
            assert (await http.request(method, "/runs", headers=headers)).status_code in (200, 204, 405)


async def test_a_page_of_this_machine_may_not_reach_a_gateway_that_is_on_another_one() -> None:
    async with reached(client="192.0.2.1", url="http://gateway.example", allow_anonymous=True) as http:
        answer = await http.post("/tools/echo", headers={"origin": "http://localhost:5173"})
        error_of(answer, 403, "bad_origin")


# -- CORS --


def names(value: str) -> set[str]:
    return {item.strip().lower() for item in value.split(",") if item.strip()}


def headers_that_are_read() -> set[str]:
    """Every request header that the code of the HTTP layer looks up by name."""
    found: set[str] = set()
    for path in Path(gateway.http.__file__).parent.glob("*.py"):
        text = path.read_text("utf-8")
        found |= set(re.findall(r"headers\.get(?:list)?\(\"([a-z-]+)\"", text))
    return found


# What browsers send without being asked, and may not be asked about.
BROWSERS_OWN = {"host", "origin", "content-length", "sec-fetch-site", "accept", "cookie"} | {
    "access-control-request-headers",
    "access-control-request-method",
}
ADMITTED = {
    "content-type",
    "authorization",
    "last-event-id",
    "x-run-id",
    "x-request-id",
    "x-session-id",
    "prefer",
    "traceparent",
    "tracestate",
    "baggage",
    "cache-control",
    "mcp-session-id",
    "mcp-anything",
}


async def test_a_preflight_admits_every_header_that_we_read_and_no_other() -> None:
    read = headers_that_are_read() - BROWSERS_OWN
    assert {"last-event-id", "x-run-id", "prefer"} <= read
    async with reached(cors_origins=[PAGE]) as http:
        asked = {"origin": PAGE, "access-control-request-method": "POST"}
        wanted = ", ".join(sorted(ADMITTED | read)).upper() + ", x-evil,,mcp"
        answer = await http.options("/tools/echo", headers={**asked, "access-control-request-headers": wanted})
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert names(answer.headers["access-control-allow-headers"]) == ADMITTED | read
        assert {"get", "post"} <= names(answer.headers["access-control-allow-methods"])
        assert int(answer.headers["access-control-max-age"]) > 0
        assert "origin" in names(answer.headers["vary"])
        assert answer.headers["x-request-id"]
        assert (await http.options("/tools/echo", headers=asked)).status_code == 204


async def test_a_preflight_needs_no_credential() -> None:
    async def nobody(connection: HTTPConnection) -> AuthContext | None:
        return None

    async with reached(cors_origins=[PAGE], authenticate=nobody) as http:
        asked = {
            "origin": PAGE,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        assert (await http.options("/tools/echo", headers=asked)).status_code == 204
        refused = await http.get("/runs", headers={"origin": PAGE})
        error_of(refused, 401, "unauthenticated")
        assert refused.headers["access-control-allow-origin"] == PAGE


async def test_an_origin_that_is_not_allowed_gets_no_word_of_cors() -> None:
    for cors_origins in ([], [PAGE]):
        async with reached(cors_origins=cors_origins) as http:
            for method in ("GET", "OPTIONS"):
                asked = {"origin": EVIL, "access-control-request-method": "POST"}
                answer = await http.request(method, "/runs", headers=asked)
                assert not [name for name in answer.headers if name.startswith("access-control")]
                # A cache in between must not give it to the page that is allowed.
                assert ("origin" in names(answer.headers.get("vary", ""))) is bool(cors_origins)
        assert answer.status_code == 405


async def test_everybody_means_without_credentials() -> None:
    async with reached(cors_origins=["*"]) as http:
        for method in ("GET", "OPTIONS"):
            asked = {"origin": EVIL, "access-control-request-method": "POST"}
            answer = await http.request(method, "/runs", headers=asked)
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answer.headers
    async with reached(cors_origins=["*", PAGE]) as http:
        answer = await http.get("/runs", headers={"origin": PAGE})
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-allow-credentials"] == "true"


async def test_streams_json_and_every_refusal_carry_cors() -> None:
    async with serving(echo, cors_origins=[PAGE], page=False) as site:
        asked = {"origin": PAGE}
        answers = [
            await site.client.post("/agents/tools", json=BODY, headers=asked),
            await site.client.get("/runs/r/events", headers=asked),
            await site.client.get("/runs/r/events?offset=99", headers=asked),
            await site.client.get("/runs/r/events?offset=6", headers=asked),
            await site.client.post("/tools/echo", json={}, headers={**asked, "prefer": "respond-async"}),
            await site.client.get("/tools", headers=asked),
            await site.client.post("/agents/tools", content=b"{", headers=asked),
            await site.client.get("/runs/nothing", headers=asked),
            await site.client.get("/nothing", headers=asked),
            await site.client.delete("/runs", headers=asked),
            await site.client.get("/runs", headers={**asked, "x-session-id": "bad"}),
            await site.client.get("/runs", headers={**asked, "host": "evil.example"}),
        ]
        assert {answer.status_code for answer in answers} == {200, 202, 204, 400, 404, 405, 415, 421}
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == PAGE, answer
            assert names(answer.headers["access-control-expose-headers"]) == {"location", "retry-after", "x-request-id"}
            assert "origin" in names(answer.headers["vary"])
            assert answer.headers["x-request-id"]
    async with reached(client="192.0.2.1", url="http://gateway.example", cors_origins=[PAGE]) as http:
        refused = await http.get("/runs", headers=asked)
        error_of(refused, 403, "anonymous_not_allowed")
        assert refused.headers["access-control-allow-origin"] == PAGE


async def test_a_request_without_an_origin_is_not_about_cors() -> None:
    async with serving(echo, cors_origins=[PAGE]) as site:
        answer = await site.client.get("/tools")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "origin" in names(answer.headers["vary"])
