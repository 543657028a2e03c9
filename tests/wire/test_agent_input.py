"""`RunAgentInput` as the gateway takes it: which calls wait for an answer, and under which names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ag_ui.core import RunAgentInput
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.wire.agent_input import AgentInput, parse_agent_input
from gateway.wire.inputs import MAX_ID

Json = dict[str, Any]


def call(call_id: str, arguments: str = "{}", name: str = "tool") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def parsed(messages: list[Json], **more: Any) -> AgentInput:
    return parse_agent_input(json.dumps({"threadId": "t", "runId": "r", "messages": messages, **more}).encode())


def asked(*calls: Json, answers: tuple[str, ...] = ()) -> AgentInput:
    """What is pending when an assistant made these calls, and some are answered."""
    messages: list[Json] = [{"id": "a", "role": "assistant", "toolCalls": list(calls)}]
    messages += [{"id": f"x{n}", "role": "tool", "toolCallId": i, "content": ""} for n, i in enumerate(answers)]
    return parsed(messages)


def pending(given_input: AgentInput) -> list[tuple[str, bool]]:
    return [(item.call_id, item.held) for item in given_input.pending_calls()]


def test_the_calls_of_the_last_assistant_message_are_pending_until_they_are_answered() -> None:
    assert pending(asked(call("1"), call("2"), call("3"), answers=("2",))) == [("1", True), ("3", True)]
    assert pending(asked(call("1"), answers=("1",))) == []
    assert pending(parsed([])) == []


def test_only_the_last_assistant_message_counts_and_only_what_follows_it_answers() -> None:
    old = {"id": "o", "role": "assistant", "toolCalls": [call("0")]}
    early = {"id": "e", "role": "tool", "toolCallId": "1", "content": "too early"}
    last = {"id": "l", "role": "assistant", "toolCalls": [call("1")]}
    user = {"id": "u", "role": "user", "content": "?"}
    [found] = list(parsed([old, early, last, user]).pending_calls())
    assert (found.call_id, found.message_id) == ("1", "l")
    assert pending(parsed([old, {"id": "n", "role": "assistant", "content": "never mind"}])) == []


def test_an_id_used_twice_is_renamed_past_every_name_that_another_call_has() -> None:
    calls = [call("c", "1"), call("c", "2"), call("c~2", "[]", "other"), call("c", "4"), call("c~2", "{}", "third")]
    assert pending(asked(*calls)) == [
        ("c", True),
        ("c~3", False),
        ("c~2", True),
        ("c~4", False),
        ("c~2~2", False),
    ]


def test_a_call_that_comes_back_under_both_of_its_names_is_one_call() -> None:
    calls = [call("c", '{"a":1}'), call("c", '{ "b": 2, "a": [] }'), call("c~2", '{"a":[],"b":2}')]
    assert pending(asked(*calls)) == [("c", True), ("c~2", True)]
    assert pending(asked(*calls, answers=("c", "c~2"))) == []
    assert pending(asked(*calls[:2], answers=("c", "c~2"))) == [], "a client that keeps results only"


def test_what_cannot_be_read_comes_back_as_no_arguments() -> None:
    assert pending(asked(call("c"), call("c", "{oops"), call("c~2", "{}"), answers=("c", "c~2"))) == []


def test_a_new_name_is_never_longer_than_an_id_may_be() -> None:
    long = "x" * MAX_ID
    names = [name for name, _ in pending(asked(call(long, "1"), call(long, "2"), call(long, "3")))]
    assert names == [long, "x" * (MAX_ID - 2) + "~2", "x" * (MAX_ID - 2) + "~3"]


ids = st.sampled_from(["a", "b", "a~2", "a~3", "b~2", "a~2~2", "x" * MAX_ID, "x" * (MAX_ID - 2) + "~2"])
many = st.lists(st.tuples(ids, st.sampled_from(["{}", '{"n":1}', '{"n":2}', "oops"])), max_size=12)


@given(many)
def test_names_are_unique_and_a_second_look_at_what_the_client_then_holds_finds_nothing_new(
    given_calls: list[tuple[str, str]],
) -> None:
    calls = [call(*item) for item in given_calls]
    found = list(asked(*calls).pending_calls())
    names = [item.call_id for item in found]
    assert len(set(names)) == len(names)
    assert {item["id"] for item in calls} <= set(names)
    # The client adds the calls that it did not hold, with the arguments as they came to, and has the results.
    for item in found:
        if not item.held:
            try:
                arguments = json.loads(item.arguments)
            except ValueError:
                arguments = {}
            calls.append(call(item.call_id, json.dumps(arguments), item.tool_name))
    assert pending(asked(*calls, answers=tuple(names))) == []


def test_thousands_of_equal_ids_are_named_one_by_one() -> None:
    calls = [call("c", str(number)) for number in range(20_000)]
    assert len(list(asked(*calls).pending_calls())) == 20_000


@pytest.mark.parametrize("bad", ["", "a/b", "a\nb", "x" * (MAX_ID + 1)])
def test_a_call_that_waits_needs_an_id_and_one_that_is_answered_had_what_it_had(bad: str) -> None:
    with pytest.raises(RequestError) as caught:
        list(asked(call("1"), call(bad)).pending_calls())
    assert [item["field"] for item in caught.value.details] == ["messages.0.toolCalls.1.id"]  # type: ignore[attr-defined]
    assert pending(asked(call("1"), call(bad), answers=(bad,))) == [("1", True)]


def test_options_stand_under_forwarded_props_gateway() -> None:
    options = {"onDisconnect": "cancel", "disconnectGrace": 2}
    found = parsed([], forwardedProps={"gateway": options, "other": 1})
    assert (found.props.on_disconnect, found.props.disconnect_grace) == ("cancel", 2.0)
    assert found.forwarded_props == {"gateway": options, "other": 1}
    nothing: Any
    for nothing in (None, {}, {"gateway": None}, {"gateway": {}}, [], "text", 7):
        found = parsed([], forwardedProps=nothing)
        assert (found.props.on_disconnect, found.props.disconnect_grace) == (None, None)
        assert found.forwarded_props == (nothing if isinstance(nothing, dict) else {})


def test_questions_and_page_tools_follow_the_options() -> None:
    props = parsed([]).props
    assert (props.input, props.page_tools) == (None, False)
    props = parsed([], forwardedProps={"gateway": {"input": "open", "pageTools": True}}).props
    assert (props.input, props.page_tools) == ("open", True)


@pytest.mark.parametrize(
    ("option", "field"),
    [({"input": "ask"}, "input"), ({"pageTools": 1}, "pageTools"), ({"page_tools": True}, "page_tools")],
)
def test_an_option_that_does_not_fit_is_named(option: Json, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parsed([], forwardedProps={"gateway": option})
    assert [item["field"] for item in caught.value.details] == [f"forwardedProps.gateway.{field}"]  # type: ignore[attr-defined]


def test_a_resume_is_read_in_both_spellings_and_fields_of_others_pass() -> None:
    entry = {"interruptId": "q", "status": "resolved", "payload": {"some_key": None}, "metadata": {"a_b": 1}, "new": 1}
    python = {"interrupt_id": "q", "status": "resolved", "payload": {"some_key": None}}
    for spelled in (entry, python):
        found = parsed([], resume=[spelled, {"interruptId": "r", "status": "cancelled"}])
        assert [(item.interrupt_id, item.status, item.payload) for item in found.resume] == [
            ("q", "resolved", {"some_key": None}),
            ("r", "cancelled", None),
        ]
    nothing: Json
    for nothing in ({}, {"resume": None}, {"resume": []}):
        assert parsed([], **nothing).resume == []


@pytest.mark.parametrize(
    ("resume", "field"),
    [
        ([{"interruptId": "", "status": "resolved"}], "resume.0.interruptId"),
        ([{"interruptId": "x" * (MAX_ID + 1), "status": "resolved"}], "resume.0.interruptId"),
        ([{"interruptId": "q", "status": "denied"}], "resume.0.status"),
        ([{"interruptId": "q", "status": "resolved"}, {"interruptId": "q", "status": "cancelled"}], "resume"),
    ],
)
def test_a_resume_that_does_not_fit_or_names_a_question_twice_is_named(resume: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parsed([], resume=resume)
    assert [item["field"] for item in caught.value.details] == [field]  # type: ignore[attr-defined]


def test_the_tools_of_the_client_are_there_by_name_as_it_sent_them() -> None:
    tools = [
        {"name": "pick", "description": "Picks.", "parameters": {"type": "object"}, "ourOwn": 1},
        {"name": "pick", "description": "Again."},
        {"name": "show", "description": ""},
    ]
    assert parsed([], tools=tools).client_tools == {"pick": tools[0], "show": tools[2]}
    assert parsed([]).client_tools == parsed([], tools=None).client_tools == {}


def test_unknown_fields_are_kept_in_both_spellings() -> None:
    messages: list[Json] = [
        {"id": "u", "role": "user", "content": "x", "ourOwn": {"kept": True}},
        {"id": "a", "role": "assistant", "content": None, "toolCalls": None},
    ]
    found = parsed(messages, tools=None, context=None, newIn2={"a": 1}, parentRunId=None)
    assert found.wire == found.parsed
    assert found.wire["messages"] == messages
    found = parsed(messages, parent_run_id="p", newIn2={"a": 1})
    assert found.wire["messages"] == [messages[0], {"id": "a", "role": "assistant"}]
    assert found.wire["newIn2"] == {"a": 1}
    assert found.wire["parentRunId"] == "p"


def test_a_message_in_the_words_of_another_protocol_is_understood() -> None:
    """Camel case outside, `tool_calls` inside: messages as a model's provider has them."""
    messages: list[Json] = [
        {"id": "a", "role": "assistant", "tool_calls": [call("c")]},
        {"id": "b", "role": "user", "content": ""},
    ]
    assert pending(parsed(messages)) == [("c", True)]
    assert parsed(messages).wire["messages"][0] == {"id": "a", "role": "assistant", "toolCalls": [call("c")]}


def test_the_python_spelling_of_the_models_gives_the_same_wire() -> None:
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [
            {"id": "a", "role": "assistant", "toolCalls": [call("c")]},
            {"id": "x", "role": "tool", "toolCallId": "c", "content": "ok"},
        ],
        "forwardedProps": {"keep_this": {"asItIs": 1}, "gateway": {"onDisconnect": "cancel"}},
    }
    python = RunAgentInput.model_validate(body).model_dump(mode="json")
    assert "thread_id" in python
    found = parse_agent_input(json.dumps(python).encode())
    assert found.wire == body
    assert found.props.on_disconnect == "cancel"


@given(st.binary(max_size=60))
def test_any_bytes_are_an_input_or_a_refusal(data: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse_agent_input(data)
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize("missing", ["threadId", "runId", "messages"])
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    body = {"threadId": "t", "runId": "r", "messages": []}
    del body[missing]
    with pytest.raises(RequestError) as caught:
        parse_agent_input(json.dumps(body).encode())
    assert [item["field"] for item in caught.value.details] == [missing]  # type: ignore[attr-defined]
