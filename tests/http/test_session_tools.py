"""Switching tools for a session: who sees it, how long it holds, and that list, agents and calls agree."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from gateway import AuthContext, ToolContext, tool
from tests.http.asking import JSON, Reader, agent_body, ask, events_of
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving


@tool(visibility="hidden")
async def admin() -> str:
    """Hidden until it is enabled."""
    return "admin here"


@tool
async def plain() -> str:
    """Always there, unless it is disabled."""
    return "plain here"


@tool(requires="admin")
async def guarded() -> str:
    """For those who hold the scope."""
    return "guarded here"


@tool
async def switch(on: bool, names: list[str], ctx: ToolContext) -> str:
    """Switches tools on or off."""
    try:
        await (ctx.enable_tools(names) if on else ctx.disable_tools(names))
    except ValueError as error:
        return str(error)
    return "switched"


ALL = (admin, plain, guarded, switch)


async def enable(site: Site, *names: str, headers: dict[str, str], on: bool = True) -> list[dict[str, Any]]:
    """The events of a run that switches."""
    body = {"arguments": {"on": on, "names": list(names)}, "toolCallId": "c"}
    answer = await site.client.post("/tools/switch", json=body, headers=headers)
    return events_of(answer.content)


async def everywhere(site: Site, headers: dict[str, str]) -> set[str]:
    """What is there for a caller, which the list, the capabilities, direct calls and agents agree about."""
    items = (await site.client.get("/tools", headers=headers)).json()["items"]
    listed = {item["name"] for item in items}
    told = (await site.client.get("/capabilities", headers=headers)).json()
    assert {item["name"] for item in told["tools"]["items"]} == listed
    names = [made.name for made in ALL if made is not switch]
    for name in names:
        answer = await site.client.post(f"/tools/{name}", json={}, headers=headers | JSON)
        assert (answer.status_code == 200) is (name in listed), name
        if name not in listed:
            assert answer.json()["error"]["code"] == "tool_not_found"
    asked = agent_body(ask(*((name, name, {}) for name in names)), runId=uuid.uuid4().hex)
    events = events_of((await site.client.post("/agents/tools", json=asked, headers=headers)).content)
    statuses = {
        event["value"]["toolName"]: event["value"]["status"] for event in events if event.get("name") == "tool.result"
    }
    assert statuses == {name: "completed" if name in listed else "unavailable" for name in names}
    return listed


async def test_list_agents_and_calls_agree_before_and_after_any_switch() -> None:
    async with serving(*ALL) as site:
        assert await everywhere(site, ME) == {"plain", "switch"}
        await enable(site, "admin", headers=ME)
        assert await everywhere(site, ME) == {"admin", "plain", "switch"}
        await enable(site, "plain", headers=ME, on=False)
        assert await everywhere(site, ME) == {"admin", "switch"}
        await enable(site, "plain", headers=ME)
        await enable(site, "admin", headers=ME, on=False)
        assert await everywhere(site, ME) == {"plain", "switch"}


async def test_sessions_do_not_see_each_others_switches() -> None:
    async with serving(*ALL) as site:
        await enable(site, "admin", headers=ME)
        await enable(site, "plain", headers=SOMEBODY_ELSE, on=False)
        assert await everywhere(site, ME) == {"admin", "plain", "switch"}
        assert await everywhere(site, SOMEBODY_ELSE) == {"switch"}
        assert await everywhere(site, {}) == {"plain", "switch"}


async def authenticate(connection: HTTPConnection) -> AuthContext | None:
    """`Authorization: <subject> <scope>`."""
    subject, _, scope = connection.headers.get("authorization", "").partition(" ")
    return AuthContext(subject, frozenset(scope.split())) if subject else None


async def test_a_subjects_sessions_are_apart_and_scopes_are_never_granted() -> None:
    alice, root = {"authorization": "alice"}, {"authorization": "root admin"}
    async with serving(*ALL, authenticate=authenticate) as site:
        await enable(site, "guarded", "admin", headers=alice)
        assert await everywhere(site, alice) == {"admin", "plain", "switch"}
        assert await everywhere(site, alice | ME) == {"plain", "switch"}
        assert await everywhere(site, root) == {"plain", "switch", "guarded"}
        await enable(site, "guarded", headers=root, on=False)
        assert await everywhere(site, root) == {"plain", "switch"}


async def test_viewers_hear_of_a_switch_exactly_once_and_in_these_words() -> None:
    async with serving(*ALL) as site:
        events = await enable(site, "admin", headers=ME)
        changed = [event for event in events if event.get("name") == "tools.changed"]
        assert [event["value"] for event in changed] == [
            {"added": ["admin"], "removed": [], "visible": ["admin", "plain", "switch"]}
        ]
        events = await enable(site, "plain", "admin", headers=ME, on=False)
        changed = [event for event in events if event.get("name") == "tools.changed"]
        assert [event["value"] for event in changed] == [
            {"added": [], "removed": ["admin", "plain"], "visible": ["switch"]}
        ]


async def test_an_unknown_name_raises_and_changes_nothing() -> None:
    async with serving(*ALL) as site:
        events = await enable(site, "admin", "nope", headers=ME)
        assert events[-1]["result"]["content"][0]["text"] == "There is no tool named nope."
        assert not [event for event in events if event.get("name") == "tools.changed"]
        assert await everywhere(site, ME) == {"plain", "switch"}


async def test_without_a_session_a_switch_holds_for_its_own_run_only() -> None:
    calls = ask(("one", "switch", {"on": True, "names": ["admin"]}), ("two", "admin", {}), ("three", "plain", {}))
    async with serving(*ALL, parallel_tool_calls=False) as site:
        answer = await site.client.post("/agents/tools", json=agent_body(calls))
        told = [event["value"] for event in events_of(answer.content) if event.get("name") == "tool.result"]
        assert [value["status"] for value in told] == ["completed"] * 3
        assert await everywhere(site, {}) == {"plain", "switch"}


@pytest.mark.parametrize("headers", [ME, {}], ids=["session", "no session"])
async def test_a_call_sees_what_an_earlier_one_of_its_run_has_switched(headers: dict[str, str]) -> None:
    calls = ask(
        ("a", "admin", {}),
        ("b", "switch", {"on": True, "names": ["admin"]}),
        ("c", "admin", {}),
        ("d", "switch", {"on": False, "names": ["admin", "plain"]}),
        ("e", "admin", {}),
        ("f", "plain", {}),
    )
    async with serving(*ALL, parallel_tool_calls=False) as site:
        answer = await site.client.post("/agents/tools", json=agent_body(calls), headers=headers)
    told = [event["value"] for event in events_of(answer.content) if event.get("name") == "tool.result"]
    assert [(value["toolCallId"], value["status"]) for value in told] == [
        ("a", "unavailable"),
        ("b", "completed"),
        ("c", "completed"),
        ("d", "completed"),
        ("e", "unavailable"),
        ("f", "unavailable"),
    ]


async def test_a_nested_call_sees_what_the_call_around_it_has_switched() -> None:
    @tool
    async def opens(ctx: ToolContext) -> list[str]:
        """Enables a tool, and calls it."""
        statuses = [(await ctx.call_tool("admin", {})).status]
        await ctx.enable_tools(["admin"])
        return [*statuses, (await ctx.call_tool("admin", {})).status]

    async with serving(*ALL, opens) as site:
        answer = await site.client.post("/tools/opens", json={}, headers=ME | JSON)
        assert answer.json()["structuredContent"] == {"result": ["unavailable", "completed"]}


async def test_a_run_sees_what_another_run_of_its_session_switches_meanwhile() -> None:
    go = asyncio.Event()

    @tool(timeout=0)
    async def waits(ctx: ToolContext) -> str:
        """Waits, then calls what was hidden when it began."""
        ctx.emit_custom_event("waiting", {})
        await ctx.context.wait()
        return (await ctx.call_tool("admin", {})).text

    async with serving(*ALL, waits, context=go) as site:
        reader = Reader(await site.open("/tools/waits", {}, ME))
        await reader.until("waiting")
        await enable(site, "admin", headers=ME)
        go.set()
        last = (await reader.rest())[-1]
    assert last["result"]["content"][0]["text"] == "admin here"


async def test_a_switch_is_forgotten_session_ttl_after_its_last_use() -> None:
    async with serving(*ALL, session_ttl=60) as site:
        now = site.engine.store._clock()  # type: ignore[attr-defined]  # the memory store's
        await enable(site, "admin", headers=ME)
        site.engine.store._clock = lambda: now + 59  # type: ignore[attr-defined]
        assert await everywhere(site, ME) == {"admin", "plain", "switch"}
        site.engine.store._clock = lambda: now + 59 + 59  # type: ignore[attr-defined]
        assert await everywhere(site, ME) == {"admin", "plain", "switch"}, "to use it keeps it"
        site.engine.store._clock = lambda: now + 59 + 59 + 61  # type: ignore[attr-defined]
        assert await everywhere(site, ME) == {"plain", "switch"}


@tool
async def hides_itself(ctx: ToolContext) -> str:
    """Is there for one call."""
    await ctx.disable_tools(["hides_itself"])
    return "gone"


async def test_a_run_whose_tool_has_hidden_itself_is_still_joined_by_an_equal_request() -> None:
    async with serving(hides_itself) as site:
        headers = {**ME, "accept": "application/json"}
        first = await site.client.post("/tools/hides_itself", json={"runId": "r"}, headers=headers)
        again = await site.client.post("/tools/hides_itself", json={"runId": "r"}, headers=headers)
        new = await site.client.post("/tools/hides_itself", json={"runId": "other"}, headers=headers)
    assert first.json()["content"][0]["text"] == "gone"
    assert again.json() == first.json()
    assert new.status_code == 404
