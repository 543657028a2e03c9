"""Captured streams under `ag-ui-validate` (its command, its pytest plugin, its live mode) and `ag_ui.core`'s models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from ag_ui.core import Event
from ag_ui_validate.pytest_plugin import assert_valid_agui, validate_agui_endpoint
from pydantic import BaseModel, TypeAdapter

from tests.support.servers import Serve, Server, eventually

# Every rule of the validator is on, the informational ones too, and nothing may be found; one exception, for agents:
# AGUI208 misses the message of `parentMessageId`, which is in the request. The validator reads the answer alone.
OFF_FOR_AGENTS = {"AGUI208": "off"}

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
VALIDATOR = Path(sys.executable).with_name("ag-ui-validate")


class Capture(NamedTuple):
    """The bytes of one response, and the events in it."""

    body: bytes
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway")


@pytest.fixture(scope="module")
def captures(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Capture]:
    """One stream for each way to end and each kind of tool, read as a client reads it: while it is written."""
    folder = tmp_path_factory.mktemp("gates")
    gated = ["import_steps", "fail", "invalid_payloads", "in_process", "generate", "generate_async"]
    captured = {tool: capture(server, tool, gate=folder / tool) for tool in gated}
    captured["timeout"] = capture(server, "wait_forever", timeout=0.2)
    captured["stopped"] = capture(server, "wait_forever", then="stop")
    captured["one call stopped"] = capture(server, "wait_forever", then="tool-calls/call-1/stop", toolCallId="call-1")
    captured["refused result"] = capture(server, "open_gate", arguments={"path": str(folder / "no" / "such")})
    captured["burst"] = capture(server, "burst", arguments={"count": 1_000})
    captured["interrupted"] = interrupted(server)
    return captured


def capture(server: Server, tool: str, *, gate: Path | None = None, then: str = "", **body: Any) -> Capture:
    """The stream of a run; with its first custom event in hand the gate opens, or `then` is posted below the run."""
    run_id = str(uuid.uuid4())
    if gate is not None:
        os.mkfifo(gate)
        body["arguments"] = {"gate": str(gate)}
    with (
        server.client() as client,
        client.stream("POST", f"/tools/{tool}", json={"runId": run_id, **body}) as response,
    ):
        assert response.status_code == 200
        chunks = response.iter_bytes()
        received = read_until(chunks, b'"CUSTOM"')
        if gate is not None:
            client.post("/tools/open_gate", json={"arguments": {"path": str(gate)}}).raise_for_status()
        if then:
            client.post(f"/runs/{run_id}/{then}").raise_for_status()
        return parsed(received + b"".join(chunks))


def read_until(chunks: Iterator[bytes], sign: bytes) -> bytes:
    received = b""
    for chunk in chunks:
        received += chunk
        if sign in received:
            return received
    raise AssertionError(f"The stream ended before {sign!r}: {received!r}")


def interrupted(server: Server) -> Capture:
    """A run that its only viewer ended by leaving, as somebody reads it who comes later."""
    run_id = str(uuid.uuid4())
    body = {"runId": run_id, "onDisconnect": "cancel", "disconnectGrace": 0}
    with server.client() as client:
        with client.stream("POST", "/tools/wait_forever", json=body) as response:
            read_until(response.iter_bytes(), b'"CUSTOM"')
        eventually(lambda: client.get(f"/runs/{run_id}").json()["status"] == "failed", what="the run has ended")
        return parsed(client.get(f"/runs/{run_id}/events").content)


def parsed(body: bytes) -> Capture:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return Capture(body, [json.loads(line) for line in lines])


NAMES = [
    "import_steps", "fail", "invalid_payloads", "in_process", "generate", "generate_async", "timeout", "stopped",
    "one call stopped", "refused result", "burst", "interrupted",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_validator_finds_nothing_in_the_bytes_of(name: str, captures: dict[str, Capture], tmp_path: Path) -> None:
    recording = tmp_path / "run.sse"
    recording.write_bytes(captures[name].body)
    done = subprocess.run(
        [VALIDATOR, recording, "--json", "--fail-on", "warning"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["diagnostics"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_validators_pytest_assertion_holds_for(name: str, captures: dict[str, Capture]) -> None:
    assert_valid_agui(captures[name].events, max_warnings=0)


async def test_the_validator_finds_nothing_on_a_live_connection_to_a_tool(server: Server) -> None:
    report = await validate_agui_endpoint(f"{server.url}/tools/burst", input={"arguments": {"count": 10}})

    assert report.diagnostics == []
    assert report.internal_errors == []
    assert report.event_count == len(["start", "call", "arguments", "end", *range(10), "custom", "result", "finish"])


async def test_the_validator_finds_nothing_on_a_live_connection_to_agent_tools(server: Server) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "burst", "arguments": '{"count": 10}'}}
    body = {
        "threadId": "thread-1",
        "runId": str(uuid.uuid4()),
        "messages": [{"id": "a", "role": "assistant", "toolCalls": [call]}],
    }
    report = await validate_agui_endpoint(f"{server.url}/agents/tools", input=body, severity_overrides=OFF_FOR_AGENTS)

    assert report.diagnostics == []
    assert report.internal_errors == []
    assert report.event_count == len(["start", "call", "end", *range(10), "custom", "result", "finish"])


@pytest.mark.parametrize("name", NAMES)
def test_the_official_models_hold_every_event_of(name: str, captures: dict[str, Capture]) -> None:
    for event in captures[name].events:
        model = EVENT.validate_python(event)
        assert list(unknown_fields(model)) == []
        assert model.model_dump(mode="json", by_alias=True) == event
        assert json.loads(model.model_dump_json(by_alias=True)) == event


def unknown_fields(model: BaseModel, path: str = "$") -> Iterator[str]:
    """Fields that the official models do not declare, at any depth below an event's own."""
    yield from (f"{path}.{name}" for name in model.model_extra or {})
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from unknown_fields(value, f"{path}.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_numbered_without_gaps_and_framed_by_line_feeds_only(
    name: str, captures: dict[str, Capture]
) -> None:
    body, events = captures[name]
    head, *frames = body.removesuffix(b"\n\n").split(b"\n\n")

    assert body.endswith(b"\n\n")
    assert b"\r" not in body
    assert head.startswith(b"retry: ")
    assert [frame.split(b"\ndata: ")[0] for frame in frames] == [b"id: %d" % seq for seq in range(1, len(frames) + 1)]
    assert len(frames) == len(events)


def test_what_json_cannot_hold_is_replaced_as_the_contract_says(captures: dict[str, Capture]) -> None:
    values = {event["name"]: event["value"] for event in captures["invalid_payloads"].events if "name" in event}

    def payload(name: str) -> dict[str, Any]:
        return {key: value for key, value in values[name].items() if key != "toolCallId"}

    assert payload("test.started") == {"nan": None, "infinity": [None, None]}
    assert payload("test.integers") == {"safe": 2**53 - 1, "big": str(2**53), "huge": str(-(10**40))}
    assert payload("test.surrogate") == {"text": "a\ufffdb", "\ufffd": 1, "separators": "\u2028\u2029\x85\r\n"}
    assert payload("test.keys") == {"keys": {"null": 1, "true": 2, "3": 4}}
    assert payload("test.cycle")["object"] == {"$unserializable": "object"}


def test_a_stream_is_plain_sse_that_no_proxy_may_hold_back(server: Server) -> None:
    with server.client() as client:
        response: httpx.Response = client.post("/tools/burst", json={"arguments": {"count": 1}})

    assert response.headers["content-type"].split(";")[0] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"]
