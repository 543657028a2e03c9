"""Which names custom events may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.execution.names import check_event_name
from gateway.wire.events import OWN_PREFIXES


@given(st.text(min_size=1).filter(lambda name: not name.startswith(OWN_PREFIXES)))
def test_every_other_text_is_a_name(name: str) -> None:
    check_event_name(name)


@given(st.sampled_from(OWN_PREFIXES), st.text())
def test_names_of_the_gateway_are_refused_and_named(prefix: str, rest: str) -> None:
    with pytest.raises(ValueError, match="own") as raised:
        check_event_name(prefix + rest)
    assert repr(prefix) in str(raised.value)


@pytest.mark.parametrize("name", ["tool", "tools", "run", "gateway", "toolbox.open", "runner", "Tool.result", " "])
def test_names_that_only_look_like_the_gateways_are_fine(name: str) -> None:
    check_event_name(name)


@pytest.mark.parametrize("name", [None, 3, b"row", ["row"]])
def test_what_is_no_text_is_a_type_error(name: object) -> None:
    with pytest.raises(TypeError, match=type(name).__name__):
        check_event_name(name)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        check_event_name("")
