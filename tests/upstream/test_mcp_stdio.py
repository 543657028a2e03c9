"""MCP servers that the gateway starts itself: their calls, their environment, their end."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import MCPServer
from tests.http.asking import JSON, Reader
from tests.http.people import answered, asked, gave, post, result_of
from tests.http.site import ME, Site, serving
from tests.support.servers import Serve, eventually
from tests.upstream.mcp_processes import ROOT, command, is_alive, listed

ERAS = pytest.mark.parametrize("era", ["2025", "2026"])


@asynccontextmanager
async def beside(*words: str, **options: Any) -> AsyncIterator[Site]:
    """A gateway with the tools of this command, once they are listed."""
    server = MCPServer(command(*words), cwd=str(ROOT), connect_timeout=60, **options)
    async with serving(mcp_servers={"p": server}) as site:
        await listed(site, "p__add")
        yield site


async def call(site: Site, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to a call, as JSON."""
    given = await site.client.post(f"/tools/{name}", json={"arguments": arguments or {}}, headers=JSON)
    assert given.status_code == 200, given.text
    output: dict[str, Any] = given.json()
    return output


@ERAS
async def test_its_calls_are_those_of_any_server(era: str) -> None:
    async with beside(era, "stdio") as site:
        events = await post(site, "/tools/p__count_up_to", {"toolCallId": "c", "arguments": {"number": 2}})
        assert [event["value"]["progress"] for event in events if event.get("name") == "tool.progress"][-1] == 2
        assert gave(events) == {"result": "2 reached"}

        asking = Reader(await site.open("/tools/p__greet", {"runId": "q", "toolCallId": "c"}, ME))
        await answered(site, await asked(asking), {"name": "Ada"}, run="q")
        assert gave(await asking.rest()) == {"result": "Hello Ada!"}

        stream = Reader(await site.open("/tools/p__wait", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("tool.progress")
        assert (await call(site, "p__add", {"a": 1}))["structuredContent"] == {"result": 2}  # beside it
        await call(site, "p__grow")
        assert (await stream.until("tools.changed"))["value"]["added"] == ["p__grown"]
        await site.client.post("/runs/r/stop", headers=ME)
        assert result_of(await stream.rest())["status"] == "cancelled"
        assert (await call(site, "p__seen"))["structuredContent"]["result"] == ["greets Ada", "waits", "is cancelled"]

        died = await call(site, "p__die")
        assert died["status"] == "interrupted"
        assert "p__grown" in (await site.client.get("/tools")).text  # what it had stays until it says something else
        assert (await call(site, "p__add", {"a": 1}))["status"] == "completed"  # it was started again for this
        await listed(site, "p__grown", gone=True)


async def test_a_question_of_the_older_protocol_that_could_be_of_two_calls_reaches_nobody() -> None:
    async with beside("2025", "stdio") as site:
        stream = Reader(await site.open("/tools/p__wait", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("tool.progress")
        events = await post(site, "/tools/p__greet", {"toolCallId": "c"})
        assert result_of(events)["status"] == "failed"
        assert "tool.waiting" not in [event.get("name") for event in events]
        await site.client.post("/runs/r/stop", headers=ME)
        await stream.rest()


async def test_it_knows_little_of_the_gateways_environment_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_GATEWAY", "secret")
    async with beside("2026", "stdio", env={"KEY": "of the server"}) as site:
        seen = (await call(site, "p__environment"))["structuredContent"]
        assert seen["KEY"] == "of the server"
        assert seen["PATH"] == os.environ["PATH"]
        assert "SECRET_OF_THE_GATEWAY" not in seen
    pid = int(seen["its pid"])
    eventually(lambda: not is_alive(pid), what="the end of the server")


async def test_a_command_that_is_not_there_is_a_server_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(mcp_servers={"p": "no-such-command --flag"}) as site:
        assert (await site.client.post("/tools/p__read", json={}, headers=JSON)).status_code == 404
    assert "no-such-command" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of its input is all that a server gets")
def test_even_a_stubborn_one_ends_when_the_gateway_is_killed(serve: Serve, tmp_path: Path) -> None:
    words = ", ".join(f'"{word}"' for word in command("2026", "stubborn"))
    (tmp_path / "gateway.toml").write_text(f'[mcp_servers.p]\ncommand = [{words}]\ncwd = "{ROOT}"\n')
    gateway = serve("serve", str(tmp_path / "gateway.toml"))
    with gateway.client() as client:
        seen = client.post("/tools/p__environment", json={}, headers=JSON).json()
    pid = int(seen["structuredContent"]["its pid"])
    assert is_alive(pid)
    os.kill(gateway.pid, 9)
    eventually(lambda: not is_alive(pid), what="the end of the server")
