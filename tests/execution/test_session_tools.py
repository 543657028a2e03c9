"""The tools of a session: a model of the rules, and what the switching says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.tools import Tool, tool
from gateway.settings import Settings
from gateway.stores.memory import MemoryStore


def named(name: str, **options: object) -> Tool:
    async def nothing() -> None:
        """Does nothing."""

    return tool(name=name, **options)(nothing)  # type: ignore[call-overload,no-any-return]  # options of any test


VISIBLE = named("visible")
HIDDEN = named("hidden", visibility="hidden")
GUARDED = named("guarded", requires="admin")
BOTH = named("both", visibility="hidden", requires={"admin", "write"})
APPROVED = named("approved", needs_approval=True)
ALL = [VISIBLE, HIDDEN, GUARDED, BOTH, APPROVED]
NAMES = st.sampled_from([made.name for made in ALL])
SWITCH = st.tuples(st.sampled_from(["a", "b"]), st.booleans(), st.sets(NAMES, max_size=3))


def is_there(made: Tool, scopes: frozenset[str], switched: dict[str, bool]) -> bool:
    """The one rule: visible for the session, and the scopes are held."""
    shown = switched.get(made.name, made.visibility == "visible")
    return shown and made.requires <= scopes


@given(st.lists(SWITCH, max_size=12), st.sets(st.sampled_from(["admin", "write"])))
async def test_whatever_is_switched_each_session_has_its_own_rules(
    switches: list[tuple[str, bool, set[str]]], scopes: set[str]
) -> None:
    held = frozenset(scopes)
    async with MemoryStore(Settings()) as store:
        sessions: dict[str, dict[str, bool]] = {"a": {}, "b": {}}
        for session, on, names in switches:
            tools = SessionTools(Registry(ALL), held, store, session)
            await tools.refresh()
            before = {made.name for made in ALL if is_there(made, held, sessions[session])}
            changed = await tools.switch(names, on=on)
            sessions[session].update(dict.fromkeys(names, on))
            after = {made.name for made in ALL if is_there(made, held, sessions[session])}
            assert changed == {
                "added": sorted(after - before),
                "removed": sorted(before - after),
                "visible": sorted(after),
            }
        for session, switched in sessions.items():
            tools = SessionTools(Registry(ALL), held, store, session)
            await tools.refresh()
            there = {made.name for made in ALL if is_there(made, held, switched)}
            assert {made.name for made in tools.all()} == there
            assert {made.name for made in ALL if tools.get(made.name) is not None} == there
            assert tools.names() == (there if switched else None)


async def test_an_unknown_name_switches_nothing_at_all() -> None:
    async with MemoryStore(Settings()) as store:
        tools = SessionTools(Registry(ALL), store=store, session="a")
        with pytest.raises(ValueError, match=r"^There is no tool named nope, other\.$"):
            await tools.switch(["hidden", "other", "nope"], on=True)
        assert tools.names() is None
        assert tools.get("hidden") is None


async def test_one_name_alone_is_one_name_and_not_its_letters() -> None:
    tools = SessionTools(Registry(ALL))
    assert (await tools.switch("hidden", on=True))["added"] == ["hidden"]


async def test_without_a_session_the_rules_are_one_objects_alone() -> None:
    async with MemoryStore(Settings()) as store:
        tools = SessionTools(Registry(ALL), store=store)
        await tools.switch(["hidden"], on=True)
        await tools.refresh()
        assert tools.get("hidden") is HIDDEN
        assert SessionTools(Registry(ALL), store=store).get("hidden") is None


async def test_scopes_are_never_granted() -> None:
    tools = SessionTools(Registry(ALL), frozenset({"write"}))
    assert (await tools.switch(["guarded", "both"], on=True))["added"] == []
    assert tools.get("guarded") is None
    assert tools.get("both") is None
