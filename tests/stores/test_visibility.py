"""How long the memory store keeps what sessions have switched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.settings import Settings
from gateway.stores.base import Visibility
from gateway.stores.memory import MemoryStore

TTL = 100
RULES = Visibility(enabled=frozenset({"a"}))
NO_RULES = Visibility()


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_rules_are_forgotten_session_ttl_after_their_last_use() -> None:
    clock = Clock()
    store = MemoryStore(Settings(session_ttl=TTL), clock=clock)
    await store.set_visibility("anon:ada", RULES)
    for _ in range(3):
        clock.now += TTL
        assert await store.visibility("anon:ada") == RULES, "asking keeps them"
    clock.now += TTL + 1
    assert await store.visibility("anon:ada") == NO_RULES


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "ask"]), st.integers(0, TTL + 20)), max_size=30
)


@given(STEPS)
async def test_each_session_is_kept_by_its_own_use_alone(steps: list[tuple[str, str, int]]) -> None:
    clock = Clock()
    store = MemoryStore(Settings(session_ttl=TTL), clock=clock)
    used: dict[str, float] = {}
    for session, what, passes in steps:
        clock.now += passes
        known = session in used and used[session] >= clock.now - TTL
        if what == "set":
            await store.set_visibility(session, RULES)
            used[session] = clock.now
        else:
            assert await store.visibility(session) == (RULES if known else NO_RULES)
            if known:
                used[session] = clock.now
    await store.visibility("somebody else")
    assert set(store._visibility) == {name for name, at in used.items() if at >= clock.now - TTL}, "nothing piles up"
