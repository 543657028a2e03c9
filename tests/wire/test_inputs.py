"""Request bodies: every error names its field, equal requests are equal, ids have limits."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.wire.codec import decode
from gateway.wire.inputs import (
    MAX_DETAILS,
    MAX_ID,
    AnswerInput,
    ClaimInput,
    Input,
    ResultInput,
    StopInput,
    ToolRunInput,
    WaitingInput,
    fingerprint,
    parse_body,
    valid_id,
)

characters = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(characters),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(characters, max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.text(characters, min_size=1, max_size=MAX_ID))
def test_every_id_of_the_contract_is_taken_as_it_is(value: str) -> None:
    assert valid_id(value) == value


@given(st.text(max_size=5), st.characters(categories=["Cc"]) | st.just("/"), st.text(max_size=5))
def test_no_id_has_a_slash_or_a_control_character(before: str, bad: str, after: str) -> None:
    assert bad == "/" or unicodedata.category(bad) == "Cc"
    with pytest.raises(ValueError, match="control characters"):
        valid_id(before + bad + after)


@pytest.mark.parametrize("value", ["", "x" * (MAX_ID + 1)])
def test_an_id_has_one_to_two_hundred_characters(value: str) -> None:
    with pytest.raises(ValueError, match="1 to 200"):
        valid_id(value)


def shuffled(value: Any, dice: Any) -> Any:
    """The same value with its keys in another order, at every depth."""
    if isinstance(value, dict):
        keys = list(value)
        dice.shuffle(keys)
        return {key: shuffled(value[key], dice) for key in keys}
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


@given(values, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 2]))
def test_a_request_is_equal_to_itself_in_any_spelling(value: Any, dice: Any, ascii_only: bool, indent: Any) -> None:
    spelled = json.dumps(shuffled(value, dice), ensure_ascii=ascii_only, indent=indent).encode()
    assert fingerprint("p", decode(spelled)) == fingerprint("p", value)


@given(values, values)
def test_different_requests_are_different(one: Any, other: Any) -> None:
    assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))
    assert fingerprint("p", one) != fingerprint("p", other)
    assert fingerprint("p", one) != fingerprint("q", one)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1), (None, ""), ([], {}), ([1], [[1]])]
)
def test_what_python_takes_for_equal_need_not_be(one: Any, other: Any) -> None:
    assert fingerprint("p", {"x": one}) != fingerprint("p", {"x": other})


def test_the_path_and_the_body_cannot_be_mistaken_for_each_other() -> None:
    assert fingerprint("a", ["b"]) != fingerprint('a",["b"', [])


@pytest.mark.parametrize("depth", [100, 900, 1_000, 1_024])
def test_a_body_nested_beyond_sense_is_a_bad_request(depth: int) -> None:
    value: Any = decode(b"[" * depth + b"]" * depth)
    try:
        assert fingerprint("p", value) == fingerprint("p", value)
    except RequestError as error:
        assert error.code == "invalid_request"  # noqa: PT017 - either is right, a RecursionError is not
        assert depth > 100


@given(values)
def test_any_json_is_a_body_or_a_refusal(value: Any) -> None:
    data = json.dumps(value).encode()
    for model in (ToolRunInput, StopInput, AnswerInput, ClaimInput, WaitingInput, ResultInput):
        try:
            body, parsed = parse_body(model, data)
        except RequestError as error:
            assert (error.code, bool(error.message)) == ("invalid_request", True)  # noqa: PT017
        else:
            assert parsed == value
            assert isinstance(body, model)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_body_or_a_refusal(data: bytes) -> None:
    try:
        _, parsed = parse_body(ToolRunInput, data)
    except RequestError as error:
        assert error.status == 400  # noqa: PT017
    else:
        assert isinstance(parsed, dict)


@pytest.mark.parametrize("data", [b"", b" ", b"\n\t", b"{}"])
def test_an_empty_body_is_an_empty_object(data: bytes) -> None:
    body, parsed = parse_body(ToolRunInput, data)
    assert parsed == {}
    assert body.arguments == {}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"runID": "r"}, "runID"),
        ({"run_id": "r"}, "run_id"),
        ({"runId": 1}, "runId"),
        ({"timeout": "1"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": -0.1}, "timeout"),
        ({"timeout": None, "disconnectGrace": -1}, "disconnectGrace"),
        ({"onDisconnect": "stop"}, "onDisconnect"),
        ({"parentRunId": ""}, "parentRunId"),
    ],
)
def test_a_field_that_does_not_fit_is_named_as_the_client_wrote_it(body: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_body(ToolRunInput, json.dumps(body).encode())
    assert [item["field"] for item in caught.value.details] == [field]  # type: ignore[attr-defined]
    assert field in caught.value.message


def test_a_refusal_names_fifty_fields_at_most_and_shows_no_value() -> None:
    body = {f"field{number}": "secret" for number in range(1_000)}
    with pytest.raises(RequestError) as caught:
        parse_body(ToolRunInput, json.dumps(body).encode())
    assert len(caught.value.details) == MAX_DETAILS  # type: ignore[arg-type]
    assert "secret" not in repr((caught.value.message, caught.value.details))


def test_numbers_may_be_whole_where_seconds_are_meant() -> None:
    body, _ = parse_body(ToolRunInput, b'{"timeout":1,"disconnectGrace":0}')
    assert (body.timeout, body.disconnect_grace) == (1.0, 0.0)


def test_a_reason_has_a_thousand_characters_at_most() -> None:
    assert parse_body(StopInput, json.dumps({"reason": "x" * 1_000}).encode())[0].reason == "x" * 1_000
    with pytest.raises(RequestError, match="reason"):
        parse_body(StopInput, json.dumps({"reason": "x" * 1_001}).encode())


def refused(model: type[Input], body: Any) -> list[str]:
    """The fields that the refusal of this body names."""
    with pytest.raises(RequestError) as caught:
        parse_body(model, json.dumps(body).encode())
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")
    return [item["field"] for item in caught.value.details]  # type: ignore[attr-defined]


def test_arguments_that_were_not_sent_are_told_from_empty_ones() -> None:
    absent, _ = parse_body(ToolRunInput, b'{"resume":[]}')
    empty, _ = parse_body(ToolRunInput, b'{"arguments":{}}')
    assert absent.arguments == empty.arguments == {}
    assert ("arguments" in absent.model_fields_set, "arguments" in empty.model_fields_set) == (False, True)


def test_a_resume_answers_questions_in_the_words_of_ag_ui() -> None:
    answers = [
        {"interruptId": "a/1", "status": "resolved", "payload": {"approved": True}, "metadata": {"signed": "x"}},
        {"interruptId": "2", "status": "cancelled"},
        {"interruptId": "3", "status": "resolved", "payload": None},
    ]
    body, _ = parse_body(ToolRunInput, json.dumps({"resume": answers}).encode())
    assert body.resume is not None
    assert [(entry.interrupt_id, entry.status, entry.payload) for entry in body.resume] == [
        ("a/1", "resolved", {"approved": True}),
        ("2", "cancelled", None),
        ("3", "resolved", None),
    ]
    for none in (b"{}", b'{"resume":null}'):
        assert parse_body(ToolRunInput, none)[0].resume is None


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"status": "resolved"}, "resume.1.interruptId"),
        ({"interruptId": "", "status": "resolved"}, "resume.1.interruptId"),
        ({"interruptId": "x" * (MAX_ID + 1), "status": "resolved"}, "resume.1.interruptId"),
        ({"interruptId": 7, "status": "resolved"}, "resume.1.interruptId"),
        ({"interruptId": "b"}, "resume.1.status"),
        ({"interruptId": "b", "status": "denied"}, "resume.1.status"),
        ({"interruptId": "b", "status": "resolved", "metadata": []}, "resume.1.metadata"),
        ({"interruptId": "b", "status": "resolved", "answer": 1}, "resume.1.answer"),
        ("b", "resume.1"),
        ({"interruptId": "a", "status": "resolved"}, "resume"),
    ],
)
def test_a_resume_that_does_not_fit_or_names_a_question_twice_is_named(entry: Any, field: str) -> None:
    assert refused(ToolRunInput, {"resume": [{"interruptId": "a", "status": "cancelled"}, entry]}) == [field]


def test_an_answer_names_its_question_and_says_how_it_ended() -> None:
    body, _ = parse_body(AnswerInput, b'{"interruptId":"q","status":"resolved","payload":[1]}')
    assert (body.interrupt_id, body.status, body.payload) == ("q", "resolved", [1])
    assert refused(AnswerInput, {}) == ["interruptId", "status"]
    assert refused(AnswerInput, {"interruptId": "q", "status": "open"}) == ["status"]
    assert refused(AnswerInput, {"interruptId": "q", "status": "cancelled", "metadata": {}}) == ["metadata"]


def test_a_claim_is_new_or_renewed() -> None:
    assert parse_body(ClaimInput, b"")[0].claim_id is None
    assert parse_body(ClaimInput, b'{"claimId":"c"}')[0].claim_id == "c"
    assert refused(ClaimInput, {"claimId": ""}) == ["claimId"]


def test_a_page_that_waits_says_so_in_a_thousand_characters() -> None:
    body, _ = parse_body(WaitingInput, json.dumps({"claimId": "c", "message": "x" * 1_000}).encode())
    assert (body.claim_id, body.message) == ("c", "x" * 1_000)
    assert parse_body(WaitingInput, b'{"claimId":"c"}')[0].message is None
    assert refused(WaitingInput, {"message": "x" * 1_001}) == ["claimId", "message"]


def test_a_result_is_an_object_or_null_and_never_left_out() -> None:
    assert parse_body(ResultInput, b'{"claimId":"c","output":null}')[0].output is None
    assert parse_body(ResultInput, b'{"claimId":"c","output":{"content":[]}}')[0].output == {"content": []}
    assert refused(ResultInput, {"claimId": "c"}) == ["output"]
    assert refused(ResultInput, {"claimId": "c", "output": "text"}) == ["output"]
