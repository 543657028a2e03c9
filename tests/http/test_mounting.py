"""The gateway inside another application: under a prefix, without a lifespan, with its own errors and cookie."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway import Gateway
from tests.http.asking import ASYNC, JSON, Gates, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import LONG, AnnouncingServer


def in_starlette(gateway: Gateway) -> Any:
    return Starlette(routes=[Mount("/ai", gateway)])


def in_starlette_twice(gateway: Gateway) -> Any:
    return Starlette(routes=[Mount("/app", Starlette(routes=[Mount("/ai", gateway)]))])


def in_fastapi(gateway: Gateway) -> Any:
    app = FastAPI()
    app.mount("/ai", gateway)
    return app


def behind_a_prefix(gateway: Gateway) -> Any:
    """A proxy that strips its prefix and says so, as `uvicorn --root-path` does."""
    return gateway


HOSTS: dict[str, tuple[Any, str, str]] = {
    "Starlette": (in_starlette, "/ai", ""),
    "Starlette in Starlette": (in_starlette_twice, "/app/ai", ""),
    "FastAPI": (in_fastapi, "/ai", ""),
    "a root path": (behind_a_prefix, "/proxy", "/proxy"),
}


@asynccontextmanager
async def mounted(host: str, gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """The host application behind a real server that never tells it of a lifespan; the client asks under the prefix."""
    build, prefix, root_path = HOSTS[host]
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does it only for sockets of its own
    config = uvicorn.Config(build(gateway), log_config=None, lifespan="off", root_path=root_path)
    server = AnnouncingServer(config)
    running = asyncio.create_task(server.serve([listener]), name="server")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with asyncio.timeout(LONG):
        await server.up.wait()
    # A proxy would have taken the prefix away; uvicorn puts it in front of every path.
    base = url if root_path else url + prefix
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=LONG) as client:
        yield client
    await gateway.shutdown()
    server.should_exit = True
    async with asyncio.timeout(LONG):
        await running
    listener.close()


@pytest.mark.parametrize("host", HOSTS)
async def test_everything_works_under_a_prefix_in(host: str) -> None:
    prefix = HOSTS[host][1]
    gateway = Gateway([echo], page=True, drain_timeout=0)
    async with mounted(host, gateway) as http:
        body = agent_body(ask(("c", "echo", {"text": "hello"})))
        assert events_of((await http.post("/agents/tools", json=body)).content)[-1]["type"] == "RUN_FINISHED"
        background = await http.post("/tools/echo", json={}, headers=ASYNC)
        assert background.headers["location"] == f"{prefix}/runs/{background.json()['runId']}"
        path = background.headers["location"].removeprefix(prefix)
        assert (await http.get(path + "?wait=20")).json()["status"] == "completed"
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        error_of(await http.get("/runs/nothing"), 404, "run_not_found")
        error_of(await http.get("/nothing/at/all"), 404, "not_found")
        error_of(await http.delete("/runs"), 405, "method_not_allowed")
        error_of(await http.get("/runs", headers={"host": "evil.example"}), 421, "bad_host")


@pytest.mark.parametrize("host", HOSTS)
async def test_the_page_gives_a_session_for_its_own_paths_only_in(host: str) -> None:
    prefix = HOSTS[host][1]
    gateway = Gateway([echo], page=True, drain_timeout=0)
    async with mounted(host, gateway) as http:
        page = await http.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        name, *attributes = page.headers["set-cookie"].split("; ")
        session = name.removeprefix("agui_session=")
        assert len(session) >= 16
        assert {item.lower() for item in attributes} == {"httponly", f"path={prefix}", "samesite=lax"}
        cookie = {"cookie": f"agui_session={session}"}
        await http.post("/tools/echo", json={"runId": "r"}, headers={**cookie, **JSON})
        assert [run["runId"] for run in (await http.get("/runs", headers=cookie)).json()["items"]] == ["r"]
        assert "set-cookie" not in (await http.get("/", headers=cookie)).headers
        assert "set-cookie" not in (await http.get("/", headers={"x-session-id": session})).headers
        renewed = await http.get("/", headers={"cookie": "agui_session=bad"})
        assert "agui_session=" in renewed.headers["set-cookie"]
        assert (await http.get("/app.js")).headers["content-type"].startswith("text/javascript")


async def test_the_cookie_is_secure_where_the_page_is() -> None:
    gateway = Gateway([echo], page=True, drain_timeout=0)
    transport = httpx.ASGITransport(gateway, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as http:
        assert "secure" in (await http.get("/")).headers["set-cookie"].lower()
    await gateway.shutdown()


async def test_a_stream_in_fastapi_is_live_and_stop_reaches_it() -> None:
    gates = Gates()
    gateway = Gateway([waits], context=gates, drain_timeout=0)
    async with (
        mounted("FastAPI", gateway) as http,
        http.stream("POST", "/tools/waits", json={"runId": "r"}) as stream,
        asyncio.timeout(LONG),
    ):
        lines = stream.aiter_lines()
        async for line in lines:
            if '"name":"came"' in line:
                assert (await http.post("/runs/r/stop")).status_code == 202
            if line.startswith("data: "):
                last = json.loads(line[6:])
    assert last["outcome"] == {"type": "cancelled"}


async def test_two_gateways_in_one_application_know_nothing_of_each_other() -> None:
    one, other = (Gateway([echo], drain_timeout=0) for _ in range(2))
    app = Starlette(routes=[Mount("/one", one), Mount("/other", other)])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=("127.0.0.1", 1)), base_url="http://localhost"
    ) as http:
        await http.post("/one/tools/echo", json={"runId": "r"})
        assert (await http.get("/one/runs/r")).status_code == 200
        error_of(await http.get("/other/runs/r"), 404, "run_not_found")
    await one.shutdown()
    await other.shutdown()


async def test_a_gateway_that_was_shut_down_starts_again_with_the_next_request() -> None:
    gateway = Gateway([echo], drain_timeout=0)
    transport = httpx.ASGITransport(gateway, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        for _ in range(2):
            assert (await http.post("/tools/echo", json={"runId": "r"}, headers=JSON)).json()["status"] == "completed"
            await gateway.shutdown()
        error_of(await http.get("/runs/r"), 404, "run_not_found")
    await gateway.shutdown()


async def test_requests_that_come_together_start_the_gateway_once() -> None:
    gates = Gates()
    gateway = Gateway([echo], context=gates, drain_timeout=0)
    transport = httpx.ASGITransport(gateway, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(http.post("/tools/echo", json={"runId": "r"}, headers=JSON))
        assert gates.executions == {"r": 1}
    await gateway.shutdown()


@pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient` is deprecated")
def test_starlettes_test_client_works_with_and_without_a_lifespan() -> None:
    from starlette.testclient import TestClient

    with TestClient(Gateway([echo], drain_timeout=0)) as client:
        assert events_of(client.post("/tools/echo", json={}).content)
        assert client.get("/healthz").status_code == 200
    # Without: every request has a loop of its own, and the gateway outlives the first one's.
    client = TestClient(Gateway([echo], drain_timeout=0))
    for number in range(3):
        body = {"runId": str(number), "arguments": {"text": "x"}}
        assert client.post("/tools/echo", json=body, headers=JSON).json()["structuredContent"] == {"text": "x"}
        assert events_of(client.get(f"/runs/{number}/events").content)[-1]["type"] == "RUN_FINISHED"
