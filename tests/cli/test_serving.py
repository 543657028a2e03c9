"""`serve` and `demo` as processes: what they refuse, what they log, how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import events_of, run_command
from tests.support.servers import ROOT, Serve, eventually

APP = "tests.cli.tools_app:gateway"
# Idle, it takes 0.2 s on a free machine: two polls of uvicorn.
IDLE_SECONDS = 1.5


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process must not get the gateway that an earlier one has configured."""
    monkeypatch.delitem(sys.modules, APP.partition(":")[0], raising=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serve", APP, "--workers", "2"), "--workers: memory:// holds runs in one process"),
        (("serve", APP, "--store", "mysql://x"), "--store: mysql:// is no store; use memory://"),
        (("serve", APP, "--port", "-1"), "--port: Input should be greater than or equal to 0"),
        (("serve", APP, "--port", "x"), "Invalid value for '--port'"),
        (("serve", APP, "--on-disconnect", "x"), "Invalid value for '--on-disconnect'"),
        (("serve", APP, "--host", "0.0.0.0"), "give the Gateway an authenticator, or add --allow-anonymous."),
        (("serve", "tests.cli.tools_app"), "does not name an object"),
        (("serve", "tests.cli.tools_app:echo"), "is not a Gateway but Tool"),
        (("serve", "tests.cli.tools_app:nothing"), "has no 'nothing'"),
        (("serve", "no_such_module:app"), "There is no module 'no_such_module' here or installed."),
        (("serve", "nothing.toml"), "Cannot read nothing.toml"),
        (("serve",), "Say what to serve: an APP, or an agent as --agent NAME=URL."),
        (("serve", "--agent", "http://x/agent"), "--agent http://x/agent: write it as NAME=URL."),
        (("serve", "--agent", "a=x"), "--agent a: The URL of an agent is http://… or https://…, not 'x'."),
        (("serve", "--mcp", "files"), "--mcp files: write it as NAME=URL."),
        (("serve", "--mcp", "files="), "--mcp files: The command of an MCP server is empty."),
        (("serve", "--mcp", "a=x", "--mcp", "a=y"), "--mcp a: There are two MCP servers named 'a'."),
        (("serve", "--agent", "a b=http://x"), "--agent a b: The name of an agent has"),
        (("serve", "--agent", "tools=http://x"), "--agent tools: The agent 'tools' is built in"),
        (("serve", "--agent", "a=http://x", "--agent", "a=http://y"), "--agent a: There are two agents named 'a'."),
        (("demo", "--stop-grace", "nan"), "--stop-grace: "),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(arguments: tuple[str, ...], says: str) -> None:
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_a_fault_in_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGUI_GATEWAY_PORT", "tcp://10.0.0.1:8000")
    result = run_command("demo")
    assert result.exit_code == 2
    assert "AGUI_GATEWAY_PORT: Input should be a valid integer" in result.stderr


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "gateway", "demo", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"Error: Cannot bind 127.0.0.1:{port}: Address already in use.\n"


def test_a_file_is_served_below_the_environment_and_the_flags(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served_tools.py").write_text("def hello() -> str:\n    return 'hello'\n", "utf-8")
    text = """\
    [settings]
    page = false
    tool_timeout = 11
    cors_origins = ["https://file.example"]
    [tools]
    modules = ["served_tools:hello"]
    """
    (tmp_path / "gateway.toml").write_text(text, "utf-8")
    monkeypatch.setenv("AGUI_GATEWAY_TOOL_TIMEOUT", "12")
    monkeypatch.setenv("AGUI_GATEWAY_CORS_ORIGINS", "https://one.example,https://two.example")
    server = serve("serve", str(tmp_path / "gateway.toml"), "--tool-timeout", "13")
    with server.client() as client:
        (tool,) = client.get("/tools").json()["items"]
        assert (tool["name"], tool["timeout"]) == ("hello", 13)
        assert client.get("/").status_code == 404
        for origin, allowed in (("two", True), ("file", False)):
            headers = client.get("/tools", headers={"origin": f"https://{origin}.example"}).headers
            assert ("access-control-allow-origin" in headers) is allowed


def test_a_gateway_that_knows_its_callers_may_serve_beyond_this_machine(serve: Serve) -> None:
    server = serve("serve", "tests.cli.tools_app:guarded", "--host", "0.0.0.0")
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert run_command("call", "echo", "--url", url).exit_code == 3
    assert run_command("call", "echo", "--url", url, "--token", "token-of-ada", "--run-id", "hers").exit_code == 0
    (record,) = events_of(run_command("runs", "--url", url, "--token", "token-of-ada"))
    assert record["runId"] == "hers"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_exits_with_0_and_at_once(serve: Serve, number: signal.Signals) -> None:
    server = serve("serve", APP)
    with server.client() as client:
        client.get("/tools").raise_for_status()
        server.send_signal(number)  # while a connection is open
        assert server.wait(IDLE_SECONDS) == 0
    assert "Traceback" not in server.log


def test_a_signal_while_the_server_starts_ends_it_when_it_has_started() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "tests.cli.early_app:gateway", "--port", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0
    assert "Traceback" not in result.stderr


def test_a_thread_that_a_tool_has_left_behind_does_not_hold_the_exit(serve: Serve) -> None:
    server = serve("serve", APP)
    with server.client() as client:
        client.post("/tools/litter", json={"runId": "1"}, headers={"prefer": "respond-async"}).raise_for_status()
        eventually(lambda: client.get("/runs/1").json()["lastEventId"] > 4, what="the tool has begun")
        client.post("/runs/1/stop").raise_for_status()
        eventually(lambda: client.get("/runs/1").json()["status"] == "cancelled", what="the run is over")
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert "Tools are still at work" in server.log


def test_a_second_signal_exits_at_once(serve: Serve) -> None:
    server = serve("serve", APP)
    with server.client() as client:
        client.post("/tools/forever", json={}, headers={"prefer": "respond-async"}).raise_for_status()
        server.send_signal(signal.SIGTERM)
        eventually(lambda: client.get("/readyz").status_code == 503, what="the server drains")
        server.send_signal(signal.SIGINT)
        assert server.wait(IDLE_SECONDS) == 128 + signal.SIGINT


def test_a_drain_ends_the_runs_at_work_and_their_callers_know(serve: Serve) -> None:
    server = serve("serve", APP, "--drain-timeout", "0", "--stop-grace", "0.1")
    environment = {**os.environ, "AGUI_GATEWAY_URL": server.url}
    call = subprocess.Popen(
        [sys.executable, "-m", "gateway", "call", "forever"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with call:
        assert call.stdout is not None
        while "test.started" not in call.stdout.readline():
            pass
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        stdout, stderr = call.communicate(timeout=20)
    assert '"code":"interrupted"' in stdout.splitlines()[-1]
    assert (call.returncode, stderr) == (75, "")


def test_no_secret_reaches_the_log(serve: Serve) -> None:
    server = serve("serve", APP, "--stop-grace", "0.1")
    session, headers = "session-secret-0123456789", {"authorization": "Bearer bearer-secret"}
    with server.client(headers=headers) as client:
        mine = {"x-session-id": session, "cookie": "agui_session=cookie-secret-0123456789"}
        for path in ("/tools", "/runs", "/nothing", "/runs/nothing", "/runs/1/events"):
            client.get(path, params={"ticket": "ticket-secret"}, headers=mine)
        client.get("/tools", headers={"host": "host.example"}, params={"ticket": "ticket-secret"})
        client.post("/tools/echo?ticket=ticket-secret", content=b'{"body-secret', headers=mine)
        client.post("/tools/echo?ticket=ticket-secret", json={"arguments": {"value": "argument-secret"}}, headers=mine)
        client.post("/tools/fail?ticket=ticket-secret", json={}, headers=mine)
        client.post("/tools/show_secrets", json={"arguments": {"url": server.url}}, headers=mine)
        client.post("/tools/forever", json={"timeout": 0.01}, headers={"x-session-id": session, **mine})
        client.get("/tools", headers={"x-session-id": "malformed session-secret"})
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port)) as raw:
        raw.sendall(b"GET /?ticket=ticket-secret HTTP/1.1\r\nAuthorization bearer-secret\r\n\r\n")
        raw.recv(1000)
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "the disk is full" in server.log
    assert "a tool failed" in server.log
    assert "Invalid HTTP request" in server.log
    assert [line for line in server.log.splitlines() if "secret" in line and "show_secrets" not in line] == []


def test_the_library_leaves_the_process_as_it_is() -> None:
    """Logging, garbage collection, signals and the switch interval belong to the command line."""
    code = """
import asyncio, gc, logging, signal, sys
def state():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    loggers = [logging.getLogger(name) for name in (None, "gateway", "httpx", "uvicorn")]
    return gc.get_threshold(), gc.get_freeze_count(), sys.getswitchinterval(), handlers, [
        (logger.level, list(logger.handlers)) for logger in loggers
    ]
before = state()
from gateway import Gateway
async def main():
    gateway = Gateway()
    await gateway.startup()
    await gateway.shutdown()
asyncio.run(main())
assert state() == before, (before, state())
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=30)
