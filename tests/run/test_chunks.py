"""Chunks come out as whole messages: an official client takes them with anything in between."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from ag_ui.core import Event
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.errors import OrderError
from gateway.run.chunks import Chunks
from gateway.run.order import OrderMachine

EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def text(delta: str | None = None, message_id: str | None = None, **more: Any) -> dict[str, Any]:
    given = {"messageId": message_id, "delta": delta, **more}
    return {"type": "TEXT_MESSAGE_CHUNK", **{key: value for key, value in given.items() if value is not None}}


def call(delta: str | None = None, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    given = {"toolCallId": call_id, "toolCallName": name, "delta": delta}
    return {"type": "TOOL_CALL_CHUNK", **{key: value for key, value in given.items() if value is not None}}


CUSTOM = {"type": "CUSTOM", "name": "row", "value": {}}


def expanded(*events: dict[str, Any]) -> list[dict[str, Any]]:
    chunks = Chunks()
    return [made for event in events for made in chunks.feed(event)]


def short(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["type"], e.get("messageId") or e.get("toolCallId"), e.get("delta")) for e in events]


def test_a_message_begins_with_its_first_chunk_and_goes_on_without_its_id() -> None:
    events = expanded(text("Hel", "m", role="assistant"), CUSTOM, text("lo"))
    assert short(events) == [
        ("TEXT_MESSAGE_START", "m", None),
        ("TEXT_MESSAGE_CONTENT", "m", "Hel"),
        ("CUSTOM", None, None),
        ("TEXT_MESSAGE_CONTENT", "m", "lo"),
    ]
    assert events[0]["role"] == "assistant"


def test_a_chunk_of_another_message_and_an_explicit_event_end_it() -> None:
    start = {"type": "TEXT_MESSAGE_START", "messageId": "o"}
    events = expanded(text("a", "m"), text("b", "n"), call("{", "c", "tool"), call("}"), start)
    assert [(kind, name) for kind, name, _ in short(events) if not kind.endswith(("CONTENT", "ARGS"))] == [
        ("TEXT_MESSAGE_START", "m"),
        ("TEXT_MESSAGE_END", "m"),
        ("TEXT_MESSAGE_START", "n"),
        ("TEXT_MESSAGE_END", "n"),
        ("TOOL_CALL_START", "c"),
        ("TOOL_CALL_END", "c"),
        ("TEXT_MESSAGE_START", "o"),
    ]


@pytest.mark.parametrize("between", ["STATE_DELTA", "STEP_STARTED", "ACTIVITY_SNAPSHOT", "RAW", "CUSTOM"])
def test_what_is_no_message_does_not_end_it(between: str) -> None:
    assert short(expanded(text("a", "m"), {"type": between}, text("b")))[-1] == ("TEXT_MESSAGE_CONTENT", "m", "b")


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([text("a")], "without messageId"),
        ([call("{", "c")], "without toolCallName"),
        ([text("a", "m"), call("{")], "without toolCallId"),
        ([text("a", "m"), {"type": "TEXT_MESSAGE_START", "messageId": "o"}, text("b")], "without messageId"),
        ([text("a", "m"), text("b", subagentRunId="s")], "without messageId"),
    ],
)
def test_a_chunk_that_says_too_little_is_refused(events: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(OrderError, match=problem):
        expanded(*events)


def test_a_subagent_has_a_message_of_its_own() -> None:
    events = expanded(text("a", "m"), text("b", "n", subagentRunId="s"), text("c"), text("d", subagentRunId="s"))
    assert [e["messageId"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT"] == ["m", "n", "m", "n"]
    (closed, end) = expanded(text("b", "n", subagentRunId="s"), {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"})[2:]
    assert closed == {"type": "TEXT_MESSAGE_END", "messageId": "n", "subagentRunId": "s"}
    assert end["type"] == "SUBAGENT_FINISHED"


def test_a_chunk_without_an_owner_goes_on_with_the_only_message_that_it_can_mean() -> None:
    events = expanded(text("a", "n", subagentRunId="s"), call("{", "c", "tool"), text("b"), text("c", "n"))
    assert [e.get("subagentRunId") for e in events if e["type"] == "TEXT_MESSAGE_CONTENT"] == ["s", "s", "s"]
    with pytest.raises(OrderError, match="without messageId"):
        expanded(text("a", "m", subagentRunId="s"), text("b", "n", subagentRunId="t"), text("c"))


def test_a_chunk_that_names_a_message_is_of_its_owner() -> None:
    events = expanded(text("a", "m", subagentRunId="s"), text("b", "m", subagentRunId="t"))
    assert [(e["type"], e.get("subagentRunId")) for e in events] == [
        ("TEXT_MESSAGE_START", "s"),
        ("TEXT_MESSAGE_CONTENT", "s"),
        ("TEXT_MESSAGE_CONTENT", "s"),
    ]


def test_what_nobody_knows_of_a_chunk_goes_along() -> None:
    reasoning = {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r", "delta": "x", "role": "model", "seq": 1}
    assert expanded(reasoning)[0] == {
        "type": "REASONING_MESSAGE_START",
        "messageId": "r",
        "role": "reasoning",
        "seq": 1,
    }


@pytest.mark.parametrize("ends", ["RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"])
def test_what_is_of_the_whole_run_ends_every_message(ends: str) -> None:
    events = expanded(text("a", "m"), text("b", "n", subagentRunId="s"), {"type": ends})
    assert [e["type"] for e in events[-3:]] == ["TEXT_MESSAGE_END", "TEXT_MESSAGE_END", ends]


def test_time_and_metadata_come_along_once() -> None:
    events = expanded(text("a", "m", timestamp=7, metadata={"k": 1}), text("b", timestamp=8, metadata={"k": 2}))
    assert [e["timestamp"] for e in events] == [7, 7, 8]
    assert [e.get("metadata") for e in events] == [{"k": 1}, None, {"k": 2}]


names = st.sampled_from(["m", "n", None])
owners = st.sampled_from([None, "s"])
chunk = st.one_of(
    st.builds(text, st.sampled_from(["x", None]), names, subagentRunId=owners),
    st.builds(call, st.sampled_from(["x", None]), names, st.sampled_from(["tool", None])),
    st.builds(lambda name: {"type": "REASONING_MESSAGE_CHUNK", "messageId": name, "delta": "r"}, st.just("r")),
    st.just(CUSTOM),
    st.just({"type": "MESSAGES_SNAPSHOT", "messages": []}),
)


@given(st.lists(chunk, max_size=20))
def test_whatever_is_chunked_comes_out_in_an_order_that_every_client_accepts(events: list[dict[str, Any]]) -> None:
    chunks, machine = Chunks(), OrderMachine(started=True)
    said = ""
    for event in events:
        with suppress(OrderError):
            for made in chunks.feed(event):
                EVENT.validate_python(made)
                machine.feed(made["type"], made)
                said += made.get("delta", "") if made["type"] == "TEXT_MESSAGE_CONTENT" else ""
    assert set(said) <= {"x"}
    assert len(machine.opened) <= 2  # one message of the agent, one of the subagent
