"""How the process ends: on a signal, in time, whatever tools still do; under the command line and under uvicorn."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.execution.running import check_stream, parse
from tests.support.servers import Serve, Server

APP = "tests.http.endings_app:gateway"
ROOT = Path(__file__).parents[2]
# The contract says 2 s; a machine that is busy with other tests gets some more.
SOON = 5.0
LONG = 30.0


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve("serve", APP, "--drain-timeout", "0.2")


def call(server: Server, name: str, **headers: str) -> Any:
    with server.client() as client:
        return client.post(f"/tools/{name}", json={"runId": "r"}, headers=headers).json()


@contextmanager
def started(server: Server, name: str) -> Iterator[None]:
    """While a viewer, who has seen the tool begin, stays connected."""
    with server.client() as client, client.stream("POST", f"/tools/{name}", json={"runId": "r"}) as answer:
        for chunk in answer.iter_raw():
            if b"started" in chunk:
                break
        yield


@pytest.mark.parametrize("tool", ["never_comes_back", "never_gives_up"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_although_a_tool_still_runs(
    server: Server, tool: str, number: signal.Signals
) -> None:
    assert call(server, tool, accept="application/json")["status"] == "timeout"
    server.send_signal(number)
    assert server.wait(SOON) == 0
    assert "Traceback" not in server.log


def test_a_run_at_work_is_given_the_drain_and_then_ends_interrupted_on_its_stream(server: Server) -> None:
    with server.client() as client, client.stream("POST", "/tools/waits", json={"runId": "r"}) as answer:
        data = b""
        for chunk in answer.iter_raw():
            if b"started" in chunk and not data.count(b"started"):
                server.send_signal(signal.SIGTERM)
            data += chunk
    numbered = parse(data)
    check_stream(numbered)
    assert numbered[-1][1]["code"] == "interrupted"
    assert server.wait(SOON) == 0
    assert "Traceback" not in server.log


def test_a_second_signal_ends_the_process_at_once(serve: Serve) -> None:
    server = serve("serve", APP, "--drain-timeout", "600")
    with started(server, "waits"):
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        assert server.wait(SOON) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_one_signal_ends_a_process_whose_loop_is_held_by_a_tool(server: Server) -> None:
    with started(server, "holds_the_loop"):
        server.send_signal(signal.SIGTERM)
        assert server.wait(SOON) == 0


def test_two_signals_end_a_process_whose_loop_is_held_by_a_tool(server: Server) -> None:
    with started(server, "holds_the_loop"):
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        assert server.wait(SOON) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_a_tool_that_exits_fails_its_call_and_the_server_lives(server: Server) -> None:
    assert call(server, "exits", accept="application/json")["status"] == "failed"
    with server.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}
    server.send_signal(signal.SIGTERM)
    assert server.wait(SOON) == 0


# -- under plain uvicorn --


@contextmanager
def uvicorn_server(**environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`uvicorn module:gateway`, as its documentation says; its process and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", APP, "--port", "0"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = None
    while url is None:
        line = process.stderr.readline()
        assert line, "uvicorn did not start"
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    reader.start()
    try:
        yield process, url[0]
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


def test_under_uvicorn_a_signal_ends_runs_and_streams_and_then_the_process() -> None:
    with (
        uvicorn_server(AGUI_GATEWAY_DRAIN_TIMEOUT="0.2") as (process, url),
        httpx.Client(base_url=url, trust_env=False, timeout=LONG) as client,
    ):
        with client.stream("POST", "/tools/waits", json={"runId": "r"}) as answer:
            data = b""
            for chunk in answer.iter_raw():
                if b"started" in chunk and not data.count(b"started"):
                    process.send_signal(signal.SIGTERM)
                data += chunk
        numbered = parse(data)
        check_stream(numbered)
        assert numbered[-1][1]["code"] == "interrupted"
        client.close()
        process.wait(LONG)


def test_under_uvicorn_a_signal_ends_a_process_with_a_run_that_nobody_watches() -> None:
    with (
        uvicorn_server(AGUI_GATEWAY_DRAIN_TIMEOUT="0.2") as (process, url),
        httpx.Client(base_url=url, trust_env=False, timeout=LONG) as client,
    ):
        started = client.post("/tools/waits", json={"runId": "r"}, headers={"prefer": "respond-async"})
        assert started.status_code == 202
        assert json.loads(started.content)["status"] == "running"
        client.close()
        process.send_signal(signal.SIGTERM)
        process.wait(LONG)
