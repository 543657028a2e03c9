"""The values that stores keep come back from their JSON exactly as they were."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.run.order import Open
from gateway.run.questions import Answer, Claim, Note, Question
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.stores.base import Lease, QuestionChanged, StopRequest, Ticket, Visibility
from gateway.stores.values import dump, load

# Lone surrogates are no text of UTF-8, but of Python.
TEXT = st.text(st.characters(), max_size=8)
SECONDS = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
KEY = st.builds(RunKey, st.none() | TEXT, TEXT)
ANSWER = st.builds(Answer, TEXT, JSON, st.none() | TEXT)
VALUES: dict[type, st.SearchStrategy[Any]] = {
    RunRecord: st.builds(
        RunRecord,
        key=KEY,
        created_at=SECONDS,
        started_at=st.none() | SECONDS,
        outcome=st.none() | OBJECT | OBJECT.map(MappingProxyType),
        error=st.none() | st.dictionaries(TEXT, TEXT, max_size=2),
        calls=st.lists(st.builds(CallRecord, TEXT, TEXT, TEXT, st.none() | SECONDS, open=st.booleans())).map(tuple),
        result=st.none() | st.binary(max_size=20),
        messages=st.none() | st.binary(max_size=20),
        opened=st.lists(st.builds(Open, TEXT, TEXT, st.none() | TEXT), max_size=3).map(tuple),
    ),
    Question: st.builds(
        Question,
        TEXT,
        asked_at=SECONDS,
        response_schema=st.none() | OBJECT,
        arguments=OBJECT | OBJECT.map(MappingProxyType),
        earlier=st.dictionaries(TEXT, ANSWER, max_size=2),
        answer=st.none() | ANSWER,
        claim=st.none() | st.builds(Claim, TEXT, st.integers(), st.integers(), st.none() | TEXT),
    ),
    Note: st.builds(Note, TEXT, TEXT, TEXT, SECONDS, st.none() | TEXT),
    StopRequest: st.builds(StopRequest, KEY, TEXT, st.none() | TEXT, st.none() | TEXT),
    Ticket: st.builds(Ticket, TEXT, KEY, TEXT, st.none() | SECONDS, st.none() | SECONDS, st.none() | st.integers()),
    Visibility: st.builds(Visibility, st.frozensets(TEXT), st.frozensets(TEXT)),
    Lease: st.builds(Lease, KEY, TEXT, st.integers()),
    QuestionChanged: st.builds(QuestionChanged, KEY, TEXT),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_a_value_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    text = dump(value)
    assert load(kind, text) == value
    assert text.isascii()


def test_a_field_that_is_not_there_has_its_default() -> None:
    """A store that an older version has written."""
    record = RunRecord(RunKey(None, "run-1"), "thread-1", "tools", 1.0)
    old = '{"key":[null,"run-1"],"thread_id":"thread-1","agent":"tools","created_at":1.0}'
    assert load(RunRecord, old) == record


def test_a_field_that_nobody_knows_any_more_is_dropped() -> None:
    assert load(Note, '{"run_id":"a","call_id":"b","text":"c","ended_at":1,"gone":2}') == Note("a", "b", "c", 1)


def test_a_number_that_is_none_comes_back_too() -> None:
    assert math.isnan(load(Answer, dump(Answer("resolved", math.nan))).payload)


def test_what_no_store_keeps_is_refused() -> None:
    with pytest.raises(TypeError):
        dump(object())
