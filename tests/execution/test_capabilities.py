"""Capabilities: known by identity, given for one call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CapabilityError
from gateway.execution.capabilities import Capabilities, Capability


def test_two_of_one_name_are_two() -> None:
    first, second = Capability[int]("n"), Capability[int]("n")
    held = Capabilities()
    held.provide(first, 1)
    assert held.get(first) == 1
    assert held.get_optional(second) is None
    with pytest.raises(CapabilityError, match="'n'"):
        held.get(second)


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers()), max_size=20))
def test_the_last_one_that_was_provided_holds(given_in_order: list[tuple[int, int | None]]) -> None:
    keys = [Capability[int | None](str(number)) for number in range(4)]
    held, model = Capabilities(), dict[int, int | None]()
    for index, value in given_in_order:
        held.provide(keys[index], value)
        model[index] = value
    for index, key in enumerate(keys):
        assert held.get_optional(key) == model.get(index)
        if index in model:
            assert held.get(key) == model[index], "None is a value like any other"


def test_what_was_provided_to_one_call_is_not_there_for_another() -> None:
    key = Capability[str]("db")
    Capabilities().provide(key, "mine")
    assert Capabilities().get_optional(key) is None


def test_the_error_says_what_is_missing_and_who_must_provide_it() -> None:
    with pytest.raises(CapabilityError) as raised:
        Capabilities().get(Capability[str]("database"))
    assert str(raised.value) == (
        "The capability 'database' was not provided: a middleware must do so before this is called."
    )
    assert repr(Capability[str]("database")) == "<Capability database>"
