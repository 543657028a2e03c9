"""`serve` in front of agents and MCP servers that flags and files name, and the demo's own agent, as processes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from gateway.demo.agent import PATH, agent_app
from gateway.demo.backend import Backend
from tests.http.asking import events_of
from tests.support.servers import Serve, Server

PROGRAM = f"{sys.executable} -m tests.upstream.mcp_program 2026 stdio"
HELLO = {"messages": [{"id": "m", "role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with Backend(agent_app) as backend:
        yield backend.url + PATH


def says(server: Server, agent: str, run_id: str) -> str:
    """What the agent says through the gateway."""
    with server.client() as client:
        body = {"threadId": "t", "runId": run_id, **HELLO}
        events = events_of(client.post(f"/agents/{agent}", json=body).raise_for_status().content)
    assert events[-1]["type"] == "RUN_FINISHED"
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def names(server: Server, path: str) -> list[str]:
    with server.client() as client:
        return [item["name"] for item in client.get(path).json()["items"]]


def test_agents_alone_need_no_more_than_their_urls(serve: Serve, agent: str) -> None:
    server = serve("serve", "--agent", f"support={agent}", "--agent", f"sales={agent}")
    assert "Serving support, sales at http://" in server.log
    assert names(server, "/agents") == ["tools", "support", "sales"]
    assert says(server, "support", "r1") == says(server, "sales", "r2")
    with server.client() as client:
        assert client.get("/").headers["content-type"].startswith("text/html")


def test_agents_and_servers_of_flags_stand_beside_those_of_a_file(
    serve: Serve, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPPORT_TOKEN", "a-secret-of-the-gateway")
    (tmp_path / "agents_of_file.py").write_text("async def clerk(input, ctx):\n    yield {'type': 'x'}\n", "utf-8")
    text = f"""\
    [agents]
    clerk = {{ module = "agents_of_file:clerk" }}
    [agents.support]
    url = "{agent}"
    headers = {{ Authorization = "Bearer ${{SUPPORT_TOKEN}}" }}
    [mcp_servers.files]
    command = "{PROGRAM}"
    tools = ["add"]
    """
    (tmp_path / "gateway.toml").write_text(text, "utf-8")
    server = serve("serve", str(tmp_path / "gateway.toml"), "--agent", f"sales={agent}", "--mcp", f"more={PROGRAM}")
    assert names(server, "/agents") == ["tools", "clerk", "support", "sales"]
    assert "I go by words" in says(server, "support", "r1")
    with server.client() as client:
        json = {"arguments": {"a": 1, "b": 2}}
        for tool in ("files__add", "more__add"):
            answer = client.post(f"/tools/{tool}", json=json, headers={"accept": "application/json"})
            assert answer.json()["status"] == "completed", answer.text
    assert "a-secret-of-the-gateway" not in server.log
    listed = names(server, "/tools")
    assert [name for name in listed if name.startswith("files__")] == ["files__add"]
    assert "more__greet" in listed


def test_agents_of_flags_stand_beside_those_of_a_gateway(serve: Serve, agent: str) -> None:
    server = serve("serve", "tests.cli.tools_app:gateway", "--agent", f"support={agent}")
    assert names(server, "/agents") == ["tools", "support"]
    assert "echo" in names(server, "/tools")
    assert "I go by words" in says(server, "support", "r")


def test_the_demo_has_one_agent_for_all_its_workers_and_ends_with_it(serve: Serve, tmp_path: Path) -> None:
    server = serve("demo", "--workers", "2", "--store", f"sqlite:///{tmp_path}/runs.db")
    for number in range(4):
        assert "I go by words" in says(server, "demo", f"r{number}")
    workers = psutil.Process(server.pid).children()
    (url,) = {worker.environ()["_AGUI_GATEWAY_DEMO_AGENT"] for worker in workers}
    assert httpx.post(url, json={"threadId": "t", "runId": "r", **HELLO}, trust_env=False).status_code == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait(within=30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    assert "Traceback" not in server.log
