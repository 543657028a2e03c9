"""What the page about agents says in words and tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import EventType, RunAgentInput

from gateway import RemoteAgent, Settings
from gateway.errors import UpstreamError
from gateway.execution.agent_context import AgentContext
from gateway.execution.tools import tool
from gateway.wire.sse import MAX_MESSAGE_BYTES
from tests.docs.agent_checks import AGENTS
from tests.docs.pages import page
from tests.execution.agents import names, played, told
from tests.execution.running import desk

PAGE = page(AGENTS)
YIELDS = {row[0]: row[1] for row in PAGE.table("event")}


def test_the_table_of_the_context_names_what_an_agent_has() -> None:
    listed = [name for row in PAGE.table("member") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(listed) == sorted(name for name in dir(AgentContext) if not name.startswith("_"))


def test_the_table_of_events_names_events() -> None:
    kinds = {name for cell in YIELDS for name in re.findall(r"`([A-Z_]+)`", cell)}
    assert kinds <= {kind.value for kind in EventType}


def test_the_table_of_options_has_those_of_the_class_with_their_defaults() -> None:
    rows = {row[0].strip("`"): row[2] for row in PAGE.table("option")}
    parameters = inspect.signature(RemoteAgent).parameters
    assert list(rows) == list(parameters)
    shown = {"": inspect.Parameter.empty, "all": True, "nothing": ""}
    for name, text in rows.items():
        default = shown.get(text, int(text) if text.isdigit() else None)
        assert parameters[name].default == default or (text == "none" and not getattr(RemoteAgent("http://x"), name))


def test_the_table_of_codes_has_those_of_remote_agents() -> None:
    rows = [row[0].strip("`") for row in PAGE.table("code")]
    assert sorted(rows) == sorted([*UpstreamError._SENTENCES, "upstream_http_<n>"])


def test_the_limits_are_those_of_the_code() -> None:
    assert f"`max_agent_turns` ({Settings.model_fields['max_agent_turns'].default})" in PAGE.text
    assert f"beyond {MAX_MESSAGE_BYTES // 2**20} MiB" in PAGE.text


async def test_what_an_agent_yields_becomes_what_the_table_says() -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> AsyncGenerator[Any, None]:
        yield {"type": "RUN_STARTED", "threadId": "x", "runId": "x"}
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hello"}
        yield {"type": "CUSTOM", "name": "tool.waiting", "value": {}}
        outcome = {"type": "success", "pendingToolCallIds": ["c"]}
        kept = {"result": 1, "usage": [{"inputTokens": 1}], "metadata": {"k": 1}}
        yield {"type": "RUN_FINISHED", "threadId": "x", "runId": "x", "outcome": outcome, **kept}

    async with desk() as at:
        _, events = await played(at, agent)
        assert told(events) == {"m": "Hello"}
        assert names(events).count("RUN_STARTED") == 1
        assert "upstream.tool.waiting" in names(events)
        assert all("timestamp" in event for event in events)
        end = events[-1]
        assert (end["result"], end["usage"], end["outcome"]["pendingToolCallIds"]) == (1, [{"inputTokens": 1}], ["c"])
        assert end["metadata"]["k"] == 1
    for word in ("result", "usage", "metadata", "pendingToolCallIds", "interrupts"):
        assert f"`{word}`" in YIELDS["`RUN_FINISHED`"]


@pytest.mark.parametrize(
    "item", [{"type": "RUN_ERROR", "message": "No."}, {"type": "TEXT_MESSAGE_END", "messageId": "m"}]
)
async def test_an_agent_fails_with_the_code_of_the_page(item: Any) -> None:
    async def agent(given: RunAgentInput, ctx: AgentContext) -> AsyncGenerator[Any, None]:
        yield item

    async with desk() as at:
        record, _ = await played(at, agent)
        assert record.error is not None
        assert f"`{record.error['code']}`" in YIELDS["`RUN_ERROR`"]


async def test_an_id_that_is_taken_gets_the_suffix_of_the_page() -> None:
    @tool
    async def nothing() -> None:
        """Nothing."""

    async def agent(given: RunAgentInput, ctx: AgentContext) -> AsyncGenerator[Any, None]:
        for _ in range(2):
            await ctx.call_tool("nothing", {}, "call-1")
        yield {"type": "CUSTOM", "name": "x", "value": {}}

    async with desk() as at:
        record, _ = await played(at, agent, tools=[nothing])
        assert f"`{record.calls[1].call_id}`" in PAGE.text
