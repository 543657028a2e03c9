"""An event that official clients take is left alone; one that they would refuse is mended, or is none."""

from __future__ import annotations

import json
from random import Random
from typing import Any, get_args

import pytest
from ag_ui.core import Event
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.wire.codec import encode
from gateway.wire.proxied import SHAPES, check, read
from tests.support.streams import FIELDS, Streams, make_event

OFFICIAL: TypeAdapter[Any] = TypeAdapter(Event)
MODELS = {model.model_fields["type"].default: model for model in get_args(get_args(Event)[0])}
# Of these the gateway has its own, with its own ids, so that what theirs lack is not missed.
FRAME = {"RUN_STARTED", "RUN_FINISHED"}


def mended(event: dict[str, Any]) -> tuple[Any, list[str]]:
    repairs: list[str] = []
    return check(event, repairs), repairs


def test_the_table_has_the_fields_of_every_official_event() -> None:
    assert {str(kind.value) for kind in MODELS} == set(SHAPES)
    for kind, model in MODELS.items():
        shape = SHAPES[kind.value]
        if kind.value in FRAME:
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        assert set(fields) == set(shape.fields), kind
        needed = {name for name, field in fields.items() if field.is_required() or field.default is not None}
        assert needed - {"type"} == {name for name, field in shape.fields.items() if field.needed}, kind


@pytest.mark.parametrize("kind", FIELDS)
def test_what_is_right_is_not_touched_whatever_else_it_has(kind: str) -> None:
    rng = Random(kind)
    for _ in range(200):
        event = make_event(rng, kind)
        if "postponed" in json.dumps(event):
            continue  # an outcome that nobody knows is success
        assert mended(event) == (event, [])
        assert check(event, []) is event


def test_what_nobody_knows_passes() -> None:
    event = {"type": "TOMORROW", "timestamp": None, "metadata": 5, "message_id": [1]}
    assert mended(event) == (event, [])


START = {"type": "TEXT_MESSAGE_START", "messageId": "m"}
CALL = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"}
RESULT = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "x"}
CUSTOM = {"type": "CUSTOM", "name": "n", "value": 1}


@pytest.mark.parametrize(
    ("sent", "right", "repairs"),
    [
        ({**START, "role": None, "rawEvent": None, "subagentRunId": None}, START, ["null"] * 3),
        ({**CALL, "parentMessageId": None}, CALL, ["null"]),
        ({**CUSTOM, "metadata": None}, CUSTOM, ["null"]),
        ({**CUSTOM, "value": None}, {**CUSTOM, "value": None}, []),
        ({**CUSTOM, "timestamp": 5.7}, {**CUSTOM, "timestamp": 5}, ["type"]),
        ({**CUSTOM, "timestamp": 5.0}, {**CUSTOM, "timestamp": 5.0}, []),
        ({**CUSTOM, "timestamp": "2026-01-01"}, CUSTOM, ["type"]),
        ({**CUSTOM, "timestamp": True}, CUSTOM, ["type"]),
        ({**CUSTOM, "timestamp": 2**53}, CUSTOM, ["type"]),
        ({**CUSTOM, "timestamp": 1e300}, CUSTOM, ["type"]),
        ({**CUSTOM, "metadata": ["x"]}, CUSTOM, ["type"]),
        ({"type": "CUSTOM", "name": "n"}, {"type": "CUSTOM", "name": "n", "value": None}, ["filled"]),
        ({**CUSTOM, "name": "tool.waiting"}, {**CUSTOM, "name": "upstream.tool.waiting"}, ["renamed"]),
        ({**CUSTOM, "name": "tool.requested"}, {**CUSTOM, "name": "upstream.tool.requested"}, ["renamed"]),
        ({**CUSTOM, "name": "tool.result"}, {**CUSTOM, "name": "tool.result"}, []),
        ({"type": "TEXT_MESSAGE_START", "message_id": "m"}, START, ["renamed"]),
        ({**START, "message_id": "other"}, {**START, "message_id": "other"}, []),
        ({**START, "messageId": 7}, {**START, "messageId": "7"}, ["type"]),
        ({**START, "role": "model"}, START, ["type"]),
        ({"type": "TOOL_CALL_START", "toolCallId": "c", "toolName": "t"}, CALL, ["renamed"]),
        (
            {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": {"a": [1]}},
            {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"a":[1]}'},
            ["type"],
        ),
        ({**RESULT, "content": {"a": 1}}, {**RESULT, "content": '{"a":1}'}, ["type"]),
        ({**RESULT, "content": [1, "x"]}, {**RESULT, "content": '[1,"x"]'}, ["type"]),
        ({**RESULT, "content": None, "role": "user"}, {**RESULT, "content": ""}, ["null", "type", "filled"]),
        (
            {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "content": "x"},
            {**RESULT, "messageId": "c:result"},
            ["filled"],
        ),
        (
            {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"},
            {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
            ["type", "filled"],
        ),
        ({"type": "RUN_ERROR"}, {"type": "RUN_ERROR", "message": "The agent failed."}, ["filled"]),
        (
            {"type": "RUN_ERROR", "message": "No.", "code": 5},
            {"type": "RUN_ERROR", "message": "No.", "code": "5"},
            ["type"],
        ),
        (
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s"},
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "s"},
            ["filled"],
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_what_is_nearly_right_is_mended(sent: dict[str, Any], right: dict[str, Any], repairs: list[str]) -> None:
    before = json.dumps(sent)
    assert mended(sent) == (right, repairs)
    assert json.dumps(sent) == before


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "TEXT_MESSAGE_START"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": None},
        {"type": "TOOL_CALL_RESULT", "content": "x"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": ["t"]},
        {"type": "STATE_SNAPSHOT"},
        {"type": "RAW"},
        {"type": "SUBAGENT_STARTED", "name": "helper"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "plan", "content": ["x"]},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "other", "entityId": "m", "encryptedValue": "x"},
        {"type": "MESSAGES_SNAPSHOT", "messages": {"id": "m"}},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1}, {"op": "move", "path": "/a"}]},
        {"type": "STATE_DELTA", "delta": [{"op": "move", "from": "", "path": "/a"}]},
        {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/a~2"}]},
        {"type": "ACTIVITY_DELTA", "messageId": "m", "activityType": "plan", "patch": ["x"]},
    ],
    ids=json.dumps,
)
def test_what_lacks_something_that_nobody_can_know_is_no_event(sent: dict[str, Any]) -> None:
    assert mended(sent)[0] is None


def test_patches_are_rooted_and_have_values() -> None:
    sent = [{"op": "replace", "path": "a/b"}, {"op": "copy", "from": "a", "path": ""}, {"op": "later", "path": 5}]
    right = [{"op": "replace", "path": "/a/b", "value": None}, {"op": "copy", "from": "/a", "path": ""}, sent[2]]
    event, repairs = mended({"type": "STATE_DELTA", "delta": sent})
    assert event["delta"] == right
    assert repairs == ["type", "filled", "type"]


def test_messages_are_mended_one_by_one() -> None:
    sent = [
        {"id": "a", "role": "assistant", "content": None, "tool_calls": None, "name": None},
        {"id": "b", "role": "assistant", "content": [{"type": "text", "text": "x"}, {"text": "y"}, 1]},
        {
            "id": "c",
            "role": "assistant",
            "toolCalls": [{"id": "1", "function": {"name": "t", "arguments": {"k": 1}}}, 5],
        },
        {"id": "d", "role": "user", "content": None},
        {
            "id": "e",
            "role": "user",
            "content": [{"type": "image", "source": {"type": "data"}}, {"type": "text", "text": "x"}],
        },
        {"id": "f", "role": "tool", "content": {"x": 1}, "tool_call_id": "1", "error": None},
        {"id": "g", "role": "tool", "content": "lost"},
        {"id": "h", "role": "activity", "activityType": "plan", "content": "x"},
        {"id": "i", "role": "oracle", "content": None},
        {"role": "user", "content": "nobody"},
        {"id": "j", "content": "no role"},
        "x",
    ]
    event, repairs = mended({"type": "MESSAGES_SNAPSHOT", "messages": sent})
    assert event["messages"] == [
        {"id": "a", "role": "assistant"},
        {"id": "b", "role": "assistant", "content": "xy"},
        {
            "id": "c",
            "role": "assistant",
            "toolCalls": [{"id": "1", "function": {"name": "t", "arguments": '{"k":1}'}, "type": "function"}],
        },
        {"id": "d", "role": "user", "content": ""},
        {"id": "e", "role": "user", "content": [{"type": "text", "text": "x"}]},
        {"id": "f", "role": "tool", "content": '{"x":1}', "toolCallId": "1"},
        {"id": "i", "role": "oracle", "content": None},
    ]
    assert set(repairs) == {"null", "type", "renamed", "filled"}


@pytest.mark.parametrize(
    ("outcome", "right"),
    [
        (None, None),
        ("success", None),
        ({"type": "postponed"}, None),
        ({"type": "interrupt", "interrupts": []}, None),
        ({"type": "interrupt", "interrupts": [{"reason": "x"}, 5]}, None),
        (
            {"type": "success", "pendingToolCallIds": ["c", None, 5]},
            {"type": "success", "pendingToolCallIds": ["c", "5"]},
        ),
        (
            {"type": "interrupt", "interrupts": [{"id": "i", "message": None, "subagentRunId": None}, {}]},
            {"type": "interrupt", "interrupts": [{"id": "i", "reason": "interrupt"}]},
        ),
        ({"type": "cancelled", "why": 1}, {"type": "cancelled", "why": 1}),
    ],
)
def test_an_outcome_is_one_that_the_protocol_knows_or_there_is_none(outcome: Any, right: Any) -> None:
    event, _ = mended({"type": "RUN_FINISHED", "outcome": outcome})
    assert event.get("outcome") == right


def test_token_counts_are_whole_numbers_or_missing() -> None:
    usage = [{"model": "m", "inputTokens": 5.5, "outputTokens": -1, "totalTokens": None, "reasoningTokens": 7}, None]
    event, _ = mended({"type": "RUN_ERROR", "message": "No.", "usage": usage})
    assert event["usage"] == [{"model": "m", "inputTokens": 5, "reasoningTokens": 7}]


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (b'{"type":"X","v":[NaN,-Infinity,1e999]}', {"type": "X", "v": [None, None, None]}),
        (b'{"type":"X","v":"\\ud83d"}', {"type": "X", "v": "\ufffd"}),
        (b'{"type":"X","v":"a\tb"}', {"type": "X", "v": "a\tb"}),
        (b'{"type":"X","v":"\xff"}', {"type": "X", "v": "\ufffd"}),
    ],
)
def test_what_is_nearly_json_is_read(payload: bytes, event: dict[str, Any]) -> None:
    repairs: list[str] = []
    assert read(payload, repairs) == event
    assert repairs == ["json"]


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"type":5}', b'{"type":""}', b"[" * 9999]
)
def test_what_is_no_object_with_a_type_is_nothing(payload: bytes) -> None:
    assert read(payload, []) is None


@given(st.binary(max_size=60))
def test_reading_garbage_raises_nothing(garbage: bytes) -> None:
    for payload in (garbage, b'{"type":"CUSTOM","name":"' + garbage + b'","value":0}'):
        event = read(payload, [])
        assert event is None or isinstance(event["type"], str)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_whatever_its_fields_hold_an_event_comes_out_right_or_not_at_all(kind: str, data: st.DataObject) -> None:
    names = sorted(SHAPES[kind].fields.keys() - {"type"})
    values = data.draw(st.dictionaries(st.sampled_from(names), json_values, max_size=len(names)))
    event = check({"type": kind, **json.loads(encode(values))}, [])
    if event is not None and kind not in FRAME:
        OFFICIAL.validate_python(event, strict=False)
        assert mended(event) == (event, [])


def test_mending_twice_is_mending_once() -> None:
    streams = Streams(1)
    for _ in range(500):
        for sent in streams.bent():
            if isinstance(sent.get("type"), str) and (event := check(sent, [])) is not None:
                assert mended(event) == (event, [])
