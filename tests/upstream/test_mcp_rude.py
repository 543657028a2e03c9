"""A command that does what no MCP server should: it takes nothing from the calls of others."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import MCPServer
from tests.http.asking import JSON, Reader, agent_body, ask
from tests.http.people import answered, asked, interrupts_of, post, resolve, result_of, text_of
from tests.http.site import ME, Site, serving
from tests.upstream.mcp_processes import ROOT, listed
from tests.upstream.mcp_rude import NAMES

COMMAND = [sys.executable, "-m", "tests.upstream.mcp_rude"]
OTHER = {"x-session-id": "session-of-another-1"}
HUGE = 20_000_000  # bytes: more than anybody takes


@asynccontextmanager
async def beside_it() -> AsyncIterator[Site]:
    server = MCPServer(COMMAND, cwd=str(ROOT), connect_timeout=60)
    async with serving(mcp_servers={"p": server}, beside_others=True) as site:
        await listed(site, "p__pid")
        yield site


async def call(site: Site, name: str, **arguments: Any) -> dict[str, Any]:
    given = await site.client.post(f"/tools/p__{name}", json={"arguments": arguments}, headers=JSON)
    assert given.status_code == 200, given.text
    output: dict[str, Any] = given.json()
    return output


async def stopped(site: Site, name: str) -> None:
    """I begin a call there, and stop it; the server goes on."""
    stream = Reader(await site.open(f"/tools/p__{name}", {"runId": "stopped", "toolCallId": "c"}, ME))
    await stream.until("tool.progress")
    await site.client.post("/runs/stopped/stop", headers=ME)
    assert result_of(await stream.rest())["status"] == "cancelled"


async def greets(site: Site, run: str) -> None:
    """The server asks for this call, and gets the answer."""
    stream = Reader(await site.open("/tools/p__ask", {"runId": run, "toolCallId": "c"}, ME))
    await answered(site, await asked(stream), {"name": run}, run=run)
    assert f'"name": "{run}"' in text_of(result_of(await stream.rest()))


# -- whose question it is --


async def test_a_question_and_progress_of_a_stopped_call_reach_nobody_else() -> None:
    async with beside_it() as site:
        await stopped(site, "late")
        stream = Reader(await site.open("/tools/p__hold", {"runId": "other", "toolCallId": "c"}, OTHER))
        events = await stream.rest()
        assert not {"tool.waiting", "tool.progress"} & {event.get("name") for event in events}
        assert "the late one heard" in text_of(result_of(events))
        assert "cannot be told which of them asks" in text_of(result_of(events))
        await greets(site, "next")  # the stopped one is answered now


async def test_a_server_that_never_answers_a_stopped_call_can_ask_in_the_next_one() -> None:
    async with beside_it() as site:
        await greets(site, "first")
        before = text_of(await call(site, "pid"))
        await stopped(site, "forget")
        await greets(site, "second")
        assert text_of(await call(site, "pid")) != before


async def test_one_that_never_asks_goes_on_with_a_call_that_was_stopped() -> None:
    async with beside_it() as site:
        before = text_of(await call(site, "pid"))
        await stopped(site, "forget")
        assert text_of(await call(site, "pid")) == before


async def test_a_call_that_has_ended_with_its_question_is_not_in_the_way_of_its_resume() -> None:
    async with beside_it() as site:
        messages = ask(("c", "p__ask", {}))
        before = text_of(await call(site, "pid"))
        (interrupt,) = interrupts_of(await post(site, "/agents/tools", agent_body(messages)))
        body = agent_body(messages, runId="r2", resume=[resolve(interrupt, {"name": "Ada"})])
        assert '"name": "Ada"' in text_of(result_of(await post(site, "/agents/tools", body)))
        assert text_of(await call(site, "pid")) == before  # it was told, so it has answered


# -- what it lists --


async def test_what_is_no_tool_is_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gateway")
    async with beside_it() as site:
        assert set(await listed(site, "p__pid")) >= {f"p__{name}" for name in NAMES}
        await listed(site, "p__wrong", gone=True)
        await call(site, "big", bytes=HUGE, id="nowhere")
        assert (await call(site, "pid"))["status"] == "completed"  # started and listed again
    told = [record.message for record in caplog.records if "left out" in record.message]
    assert [line.split(" is left out: ")[0] for line in told] == [
        f"MCP server p: its tool {name}" for name in ("'wrong'", "'bare'", "5", "'no tool'")
    ]
    assert "inputSchema.type" in told[0]


# -- what it says --


@pytest.mark.parametrize("place", ["first", "last", "turned"])
async def test_an_answer_that_is_too_large_fails_its_call_alone(place: str) -> None:
    async with beside_it() as site:
        stream = Reader(await site.open("/tools/p__late", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("tool.progress")
        before = text_of(await call(site, "pid"))
        large, small = await asyncio.gather(call(site, "big", bytes=HUGE, id=place), call(site, "pid"))
        assert (large["status"], large["structuredContent"]["error"]["code"]) == ("failed", "too_large")
        assert "[too_large]: The server's answer is larger than 8388608 bytes." in text_of(large)
        assert text_of(small) == before
        await site.client.post("/runs/r/stop", headers=ME)
        assert result_of(await stream.rest())["status"] == "cancelled"


async def test_a_line_that_is_too_large_and_could_be_anything_ends_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with beside_it() as site:
        before = text_of(await call(site, "pid"))
        assert (await call(site, "big", bytes=HUGE, id="nowhere"))["status"] == "interrupted"
        assert text_of(await call(site, "pid")) != before
    assert "A message of more than 8388608 bytes." in caplog.text


async def test_bytes_that_are_no_text_are_not_the_end() -> None:
    async with beside_it() as site:
        assert text_of(await call(site, "stutter")) == "stuttered"
        assert (await call(site, "pid"))["status"] == "completed"
