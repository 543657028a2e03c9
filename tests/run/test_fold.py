"""From events back to messages: what the official client would hold."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ag_ui.core import Message as WireMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.run.fold import MessageFold

MESSAGES: TypeAdapter[Any] = TypeAdapter(list[WireMessage])

Json = dict[str, Any]


def call(call_id: str, name: str = "tool", arguments: str = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def start(call_id: str, parent: str | None = None, name: str = "tool") -> Json:
    event = {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name}
    return event if parent is None else {**event, "parentMessageId": parent}


def args(call_id: str, delta: str) -> Json:
    return {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": delta}


def result(call_id: str, content: str = "ok", **more: Any) -> Json:
    message_id = f"{call_id}:result"
    return {"type": "TOOL_CALL_RESULT", "messageId": message_id, "toolCallId": call_id, "content": content, **more}


def text(message_id: str, *deltas: str, **more: Any) -> list[Json]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant", **more},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
    ]


def folded(*steps: list[Json]) -> list[Json]:
    """Messages (they have a role) and events, in this order."""
    fold = MessageFold()
    for step in steps:
        if step and "role" in step[0] and "type" not in step[0]:
            fold.add(step)
        else:
            fold.feed(step)
    return fold.messages


USER = {"id": "u", "role": "user", "content": "go"}
ASSISTANT = {"id": "a", "role": "assistant", "toolCalls": [call("c1"), call("c2")]}


def test_texts_grow_by_their_deltas() -> None:
    assert folded(text("m", "Hel", "lo"), text("n", "!", name="bot")) == [
        {"id": "m", "role": "assistant", "content": "Hello"},
        {"id": "n", "role": "assistant", "content": "!", "name": "bot"},
    ]


def test_reasoning_is_a_message_of_its_own() -> None:
    events = [
        {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "hm"},
    ]
    assert folded(events) == [{"id": "r", "role": "reasoning", "content": "hm"}]


def test_a_call_belongs_to_its_parent_message_or_to_one_of_its_own() -> None:
    [message, own] = folded(
        [*text("m", "x"), start("c1", "m"), args("c1", '{"a"'), args("c1", ":1}"), start("c2"), args("c2", "{}")]
    )
    assert message["toolCalls"] == [call("c1", arguments='{"a":1}')]
    assert own == {"id": "c2", "role": "assistant", "toolCalls": [call("c2")]}


def test_a_parent_that_is_no_assistant_message_holds_no_call() -> None:
    user, own = folded([USER], [start("c", "u")])
    assert user == USER
    assert own == {"id": "c", "role": "assistant", "toolCalls": [call("c", arguments="")]}


def test_a_call_that_is_held_already_is_not_doubled() -> None:
    assert folded([USER, ASSISTANT], [start("c1", "a"), result("c1")]) == [
        USER,
        ASSISTANT,
        {"id": "c1:result", "role": "tool", "toolCallId": "c1", "content": "ok"},
    ]


def test_a_result_stands_behind_its_call_and_those_before_it() -> None:
    impatient = {"id": "v", "role": "user", "content": "?"}
    messages = folded([USER, ASSISTANT, impatient], [result("c2"), *text("m", "x"), result("c1")])
    assert [message["id"] for message in messages] == ["u", "a", "c2:result", "c1:result", "v", "m"]


def test_a_result_of_an_unknown_call_comes_last_and_a_second_one_replaces_the_first() -> None:
    messages = folded([USER], [result("x", "1"), *text("m", "y"), result("x", "2")])
    assert [(message["id"], message["content"]) for message in messages] == [("u", "go"), ("x:result", "2"), ("m", "y")]


def test_a_failed_call_is_an_error_with_its_metadata() -> None:
    metadata = {"tanstack": {"state": "output-error"}}
    *_, message = folded([ASSISTANT], [result("c1", "Error [failed]: x", metadata=metadata)])
    assert message["error"] == "Error [failed]: x"
    assert message["metadata"] == metadata


@pytest.mark.parametrize("metadata", [None, {}, {"tanstack": None}, {"tanstack": {}}, {"other": 1}])
def test_metadata_of_any_kind_is_no_failure(metadata: Any) -> None:
    *_, message = folded([ASSISTANT], [result("c1", metadata=metadata)])
    assert "error" not in message


def test_a_later_request_has_the_newer_copy_in_the_old_place() -> None:
    edited = {"id": "u", "role": "user", "content": "edited"}
    assert folded([USER], text("m", "x"), [edited]) == [edited, *folded(text("m", "x"))]


def test_an_answer_under_another_id_is_the_same_answer() -> None:
    kept = {"id": "own", "role": "tool", "toolCallId": "c1", "content": "ok"}
    messages = folded([ASSISTANT], [result("c1"), result("c2")], [ASSISTANT, kept])
    assert [message["id"] for message in messages] == ["a", "own", "c2:result"]


def test_a_text_goes_on_in_a_message_without_text() -> None:
    for content in (None, [{"type": "text", "text": "x"}]):
        [message] = folded([{"id": "m", "role": "assistant", "content": content}], text("m", "y"))
        assert message["content"] == "y"


def test_what_belongs_to_nothing_changes_nothing() -> None:
    stray = [args("x", "1"), {"type": "TEXT_MESSAGE_CONTENT", "messageId": "x", "delta": "1"}]
    others = [{"type": kind} for kind in ("RUN_STARTED", "STEP_STARTED", "STATE_SNAPSHOT", "RUN_ERROR", "NEW_IN_2.0")]
    assert folded([USER], [*stray, *others]) == [USER]


def test_a_snapshot_replaces_what_the_agent_holds_and_keeps_what_only_clients_hold() -> None:
    activity = {"id": "p", "role": "activity", "activityType": "plan", "content": {}}
    reasoning = {"id": "r", "role": "reasoning", "content": "hm"}
    newer = {"id": "u", "role": "user", "content": "newer"}
    snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "n", "role": "assistant", "content": "n"}, newer]}
    messages = folded([activity, USER, reasoning, ASSISTANT], [snapshot, start("c1", "n")])
    assert [message["id"] for message in messages] == ["p", "u", "r", "n"]
    assert messages[1] == newer
    assert messages[3]["toolCalls"] == [call("c1", arguments="")], "the calls of what has gone have gone"


ids = st.sampled_from(["a", "b", "c", "u"])
events = st.lists(
    st.one_of(
        ids.map(lambda i: {"type": "TEXT_MESSAGE_START", "messageId": i}),
        ids.map(lambda i: {"type": "TEXT_MESSAGE_CONTENT", "messageId": i, "delta": "x"}),
        st.tuples(ids, ids | st.none()).map(lambda pair: start(*pair)),
        ids.map(lambda i: args(i, "{}")),
        ids.map(result),
        ids.map(lambda i: {"type": "REASONING_MESSAGE_START", "messageId": i}),
        ids.map(lambda i: {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": i, "role": "user", "content": ""}]}),
    ),
    max_size=30,
)


@given(events, events)
def test_any_order_of_events_gives_messages_that_the_official_models_take(one: list[Json], other: list[Json]) -> None:
    history: list[Json] = [USER, ASSISTANT]
    before = copy.deepcopy((history, one, other))
    messages = folded(history, one, history, other)
    MESSAGES.validate_python(messages)
    assert len({message["id"] for message in messages}) == len(messages)
    assert (history, one, other) == before, "what was given stays as it was"


@given(events, st.integers(0, 30))
def test_events_may_come_in_pieces(given_events: list[Json], place: int) -> None:
    assert folded([USER], given_events) == folded([USER], given_events[:place], given_events[place:])


def test_what_is_encrypted_stays_with_its_reasoning_and_with_its_call() -> None:
    def encrypted(subtype: str, entity: str) -> Json:
        return {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": subtype,
            "entityId": entity,
            "encryptedValue": f"of {entity}",
        }

    reasoning = {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"}
    strangers = [encrypted("message", "c1"), encrypted("tool-call", "r"), encrypted("message", "nobody")]
    thought, message = folded(
        [reasoning, encrypted("message", "r"), start("c1"), encrypted("tool-call", "c1"), *strangers]
    )
    assert thought == {"id": "r", "role": "reasoning", "content": "", "encryptedValue": "of r"}
    # Of the id of a call, the message that was made for it.
    assert message["encryptedValue"] == "of c1"
    assert message["toolCalls"] == [{**call("c1", arguments=""), "encryptedValue": "of c1"}]


def test_activities_are_replaced_and_patched() -> None:
    def activity(**fields: Any) -> Json:
        return {"type": "ACTIVITY_SNAPSHOT", "messageId": "p", "activityType": "plan", "content": {"n": 1}, **fields}

    patch = {"type": "ACTIVITY_DELTA", "messageId": "p", "activityType": "done"}
    fits = {**patch, "patch": [{"op": "replace", "path": "/n", "value": 2}]}
    fails = {**patch, "activityType": "x", "patch": [{"op": "remove", "path": "/m"}], "metadata": {"late": 1}}
    made = {"id": "p", "role": "activity", "activityType": "done", "content": {"n": 2}}
    assert folded([activity(), fits]) == [made]
    assert folded([activity(), fits, fails]) == [{**made, "metadata": {"late": 1}}]
    assert folded([activity(), fits, activity(replace=False, content={})]) == [made]
    [again] = folded([activity(metadata={"a": 1}), fits, activity(content={}, metadata={"b": 1})])
    assert (again["content"], again["metadata"]) == ({}, {"a": 1, "b": 1})
    assert folded([activity(), *text("p", "no text")]) == folded([activity()])


@pytest.mark.parametrize(
    ("said", "left"),
    [({}, []), (None, []), (["plan"], ["t"]), (["other"], ["p"]), ([1], ["p", "t"]), ("?", ["p", "t"])],
)
def test_a_snapshot_may_say_which_activities_it_has_all_of(said: Any, left: list[str]) -> None:
    shown = [
        {"id": name, "role": "activity", "activityType": kind, "content": {}}
        for name, kind in (("p", "plan"), ("t", "other"))
    ]
    extra = {"id": "x", "role": "activity", "activityType": "y", "content": {}}
    metadata = {} if said == {} else {"@ag-ui/client": {"authoritativeActivityTypes": said}}
    snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": [extra], "metadata": metadata}
    assert [message["id"] for message in folded(shown, [snapshot])] == [*left, "x"]


def test_metadata_of_every_event_of_a_message_or_call_counts_the_last_one_most() -> None:
    events = [*text("m", "x"), start("c", "m"), args("c", "{}"), {"type": "TOOL_CALL_END", "toolCallId": "c"}]
    [message] = folded([{**event, "metadata": {"last": event["type"], event["type"]: 1}} for event in events])
    assert message["metadata"]["last"] == "TEXT_MESSAGE_END"
    assert message["toolCalls"][0]["metadata"]["last"] == "TOOL_CALL_END"
    assert {"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"} < message["metadata"].keys()


def test_no_result_and_no_call_takes_the_place_of_another_message() -> None:
    messages = folded([USER, ASSISTANT], [{**result("c1"), "messageId": "a"}, start("u")])
    assert [(message["id"], message["role"]) for message in messages] == [
        ("u", "user"),
        ("a", "assistant"),
        ("a~2", "tool"),
        ("u~2", "assistant"),
    ]


def test_what_subagents_say_is_theirs() -> None:
    owned = {"subagentRunId": "s"}
    messages = folded([{**text("m")[0], **owned}, {**start("c"), **owned}, {**result("c"), **owned}])
    assert [message["subagentRunId"] for message in messages] == ["s", "s", "s"]
