"""What the log says of every run: who, which tools, how it ended; never a secret, never an argument."""

from __future__ import annotations

import asyncio
import logging
import re
from hashlib import sha256

import pytest
from starlette.requests import HTTPConnection

from gateway import AuthContext, ToolContext, tool
from tests.http.asking import JSON, agent_body, ask
from tests.http.site import ME, serving

SECRET = "4242-4242-4242-4242"
SESSION = sha256(f"anon:{ME['x-session-id']}".encode()).hexdigest()[:12]


@tool
async def pays(card: str) -> str:
    """Pays."""
    return f"paid with {card}"


@tool(timeout=0)
async def waits(card: str, ctx: ToolContext) -> None:
    """Waits for ever."""
    ctx.emit_custom_event("waiting", {"card": card})
    await asyncio.Event().wait()


def audit(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "gateway.runs"]
    assert {record.levelno for record in records} <= {logging.INFO}
    return [record.getMessage() for record in records]


async def test_one_line_at_start_and_one_at_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(pays) as site:
        body = {"runId": "r", "arguments": {"card": SECRET}}
        assert (await site.client.post("/tools/pays", json=body, headers=ME | JSON)).status_code == 200
    start, end = audit(caplog)
    assert start == f"run r started: agent=tools tools=pays subject=- session={SESSION}"
    assert re.fullmatch(
        rf"run r ended: status=completed tools=pays subject=- session={SESSION} duration=\d+\.\d{{3}}s", end
    )
    assert SECRET not in caplog.text
    assert ME["x-session-id"] not in caplog.text


async def test_one_line_at_stop_however_often_it_is_pressed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(waits) as site:
        stream = await site.open("/tools/waits", {"runId": "r", "arguments": {"card": SECRET}}, ME)
        await stream.until("waiting")
        for _ in range(3):
            await site.client.post("/runs/r/stop", json={"reason": SECRET}, headers=ME)
        await stream.rest()
    lines = audit(caplog)
    assert [line.split(":")[0] for line in lines] == ["run r started", "run r stopped", "run r ended"]
    assert lines[1] == f"run r stopped: reason=user tools=waits subject=- session={SESSION}"
    assert "status=cancelled" in lines[2]
    assert SECRET not in caplog.text


async def test_a_subject_is_named_and_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    subject = "eve\nrun x ended: status=completed"

    async def authenticate(connection: HTTPConnection) -> AuthContext:
        return AuthContext(subject)

    caplog.set_level(logging.INFO)
    async with serving(pays, authenticate=authenticate) as site:
        body = {"runId": "r", "arguments": {"card": SECRET}}
        await site.client.post("/tools/pays", json=body, headers=JSON | {"authorization": f"Bearer {SECRET}"})
    lines = audit(caplog)
    assert len(lines) == 2
    assert all("\n" not in line and repr(subject) in line for line in lines)
    assert SECRET not in caplog.text


async def test_a_tools_name_that_somebody_made_up_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    forged = "x\nrun y ended: status=completed tools=x"
    calls = [("a", forged, {}), ("b", "pays", {"card": SECRET})]
    calls += [(f"c{number}", "n" * 200 + str(number), {}) for number in range(30)]
    caplog.set_level(logging.INFO)
    async with serving(pays) as site:
        answer = await site.client.post("/agents/tools", json=agent_body(ask(*calls)), headers=ME)
        assert answer.status_code == 200
    lines = audit(caplog)
    assert len(lines) == 2
    for line in lines:
        assert "\n" not in line
        assert repr(forged) in line
        assert len(line) < 1_000
    assert SECRET not in caplog.text


async def test_a_run_that_is_nobodys_is_named_by_a_digest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway")
    async with serving(pays) as site:
        body = {"runId": "a-capability", "arguments": {"card": SECRET}}
        await site.client.post("/tools/pays", json=body, headers=JSON)
    digest = sha256(b"a-capability").hexdigest()[:12]
    assert [line.split(" ")[1] for line in audit(caplog)] == [f"~{digest}"] * 2
    assert "a-capability" not in "".join(audit(caplog))
