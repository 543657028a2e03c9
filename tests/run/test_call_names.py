"""Ids of calls: one for each call, in every field that names it, and the agent's own again in what the agent gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.run.call_names import CallNames
from gateway.wire.inputs import valid_id

Event = dict[str, Any]


def start(call_id: str = "c") -> Event:
    return {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": "look"}


def end(call_id: str = "c") -> Event:
    return {"type": "TOOL_CALL_END", "toolCallId": call_id}


def result(call_id: str = "c") -> Event:
    return {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": call_id, "content": "x"}


def asks(*call_ids: str) -> Event:
    calls = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in call_ids]
    return {"id": f"a {call_ids}", "role": "assistant", "toolCalls": calls}


def answers(call_id: str) -> Event:
    return {"id": f"r {call_id}", "role": "tool", "toolCallId": call_id, "content": "x"}


def named(names: CallNames, *events: Event) -> list[Event | None]:
    return [names.named(event, lambda _: False) for event in events]


def test_an_event_whose_ids_are_the_agents_is_the_very_same() -> None:
    names = CallNames()
    for event in (start(), end(), result(), {"type": "CUSTOM", "name": "x", "value": {"toolCallId": "c"}}):
        assert names.named(event, lambda _: False) is event


def test_a_second_call_of_one_id_has_another_in_every_field_that_names_it() -> None:
    names = CallNames()
    named(names, start(), end(), result())
    interrupts = [{"id": "i", "reason": "tool_call", "toolCallId": "c"}, {"id": "j", "reason": "confirmation"}]
    outcome = {"type": "interrupt", "interrupts": interrupts, "pendingToolCallIds": ["c", "d"]}
    started, ended, encrypted, subagent, custom, finished, answered = named(
        names,
        start(),
        end(),
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "c", "encryptedValue": "e"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n", "parentToolCallId": "c"},
        {"type": "CUSTOM", "name": "x", "value": {"toolCallId": "c", "n": 1}},
        {"type": "RUN_FINISHED", "outcome": outcome},
        result(),
    )
    assert started == start("c~2")
    assert ended == end("c~2")
    assert encrypted is not None
    assert encrypted["entityId"] == "c~2"
    assert subagent is not None
    assert subagent["parentToolCallId"] == "c~2"
    assert custom is not None
    assert custom["value"] == {"toolCallId": "c~2", "n": 1}
    assert finished is not None
    assert [each.get("toolCallId") for each in finished["outcome"]["interrupts"]] == ["c~2", None]
    assert finished["outcome"]["pendingToolCallIds"] == ["c~2", "d"]
    assert answered == result("c~2")


def test_an_id_that_the_conversation_has_is_taken() -> None:
    names = CallNames([asks("c"), answers("c")])
    assert named(names, start()) == [start("c~2")]
    assert names.sent([asks("c"), answers("c"), asks("c~2"), answers("c~2")]) == [
        asks("c"),
        answers("c"),
        {**asks("c"), "id": asks("c~2")["id"]},
        {**answers("c"), "id": answers("c~2")["id"]},
    ]


def test_a_snapshot_of_all_messages_and_one_of_the_newest_name_the_same_call() -> None:
    for told in ([asks("c"), answers("c"), asks("c"), answers("c")], [asks("c"), answers("c")]):
        names = CallNames([asks("c"), answers("c")])
        named(names, start(), end())
        (snapshot,) = named(names, {"type": "MESSAGES_SNAPSHOT", "messages": told})
        assert snapshot is not None
        assert snapshot["messages"][-2]["toolCalls"][0]["id"] == "c~2"
        assert snapshot["messages"][-1]["toolCallId"] == "c~2"
        if len(told) == 4:
            assert snapshot["messages"][:2] == told[:2]


def test_a_snapshot_does_not_take_the_place_of_a_call_that_is_open() -> None:
    names = CallNames()
    named(names, start())
    named(names, {"type": "MESSAGES_SNAPSHOT", "messages": [asks("c"), asks("c")]})
    assert named(names, end()) == [end()]


def test_a_call_that_only_a_snapshot_tells_has_an_id_of_its_own() -> None:
    names = CallNames([asks("c"), answers("c")])
    told = [asks("c"), answers("c"), asks("c")]
    (snapshot,) = named(names, {"type": "MESSAGES_SNAPSHOT", "messages": told})
    assert snapshot is not None
    assert snapshot["messages"][2]["toolCalls"][0]["id"] == "c~2"
    assert names.agents("c~2") == "c"


def test_a_call_that_somebody_else_has_answered_gets_no_second_result_from_the_agent() -> None:
    names = CallNames([asks("old"), answers("old")])
    assert named(names, result("old")) == [None]
    assert named(names, start(), end(), result(), result()) == [start(), end(), result(), result()]
    names.answer("d")
    assert named(names, start("d"), result("d")) == [start("d"), None]
    assert named(names, result("of a call that nobody has shown")) == [result("of a call that nobody has shown")]


def test_a_call_that_goes_on_in_the_same_answer_is_the_same_call() -> None:
    names = CallNames()
    named(names, start())
    assert names.named(start(), names.goes_on) == start()
    named(names, result())
    assert names.named(start(), names.goes_on) == start("c~2")
    names.begin()
    assert names.named(start(), names.goes_on) == start("c~3")


@pytest.mark.parametrize("odd", ["a/b", "x" * 300, "a\nb", "", "\u0085"])
def test_an_id_that_no_path_can_hold_has_another_and_goes_back_as_it_was(odd: str) -> None:
    names = CallNames()
    (started,) = named(names, start(odd))
    assert started is not None
    name = started["toolCallId"]
    assert valid_id(name) == name
    assert names.sent([asks(name), answers(name)])[1]["toolCallId"] == odd


ids = st.sampled_from(["c", "d", "c~2", "a/b", ""])
kinds = st.sampled_from([start, end, result])


@given(st.lists(st.tuples(kinds, ids), max_size=40), st.lists(ids, max_size=3))
def test_no_two_calls_share_an_id_no_result_is_for_an_answered_call_of_before_and_every_id_goes_back(
    said: list[tuple[Any, str]], history: list[str]
) -> None:
    names = CallNames([message for each in dict.fromkeys(history) for message in (asks(each), answers(each))])
    begun = set(history)
    for make, given_id in said:
        event = names.named(make(given_id), lambda _: False)
        if event is None:
            assert make is result
            continue
        name = event["toolCallId"]
        if make is start:
            assert name not in begun
            assert names.agents(name) == given_id
            assert valid_id(name) == name
            begun.add(name)
        elif make is result:
            assert name not in history
            begun.add(name)
