"""Canonical JSON: one text for equal values, and byte for byte the text and the hash that TanStack's client makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.canonical import canonical_json, sha256_of
from gateway.wire.codec import decode, encode

# What `canonicalInterruptJson` and `digestInterruptJson` of @tanstack/ai 0.58.0 make of these JSON texts.
GOLDEN = [
    (
        '{"b":[1,2.50,-0.0,1e21,1e20,1e-6,1e-7,1.5e300,5e-324],"a":null,"":true}',
        '{"":true,"a":null,"b":[1,2.5,0,1e+21,100000000000000000000,0.000001,1e-7,1.5e+300,5e-324]}',
        "817935aa421dba2f82d2c5c71d974965450ac949c17eec11ebee9ef6d57d45d0",
    ),
    (
        r'{"\ue000":1,"\ud83d\ude00":2,"z":3,"Z":4,"10":5,"9":6}',
        '{"10":5,"9":6,"Z":4,"z":3,"\U0001f600":2,"\ue000":1}',
        "ad7b729707d2cd822b83bc746d84386c4fe9d918470beb8ffa35f6155fea3aeb",
    ),
    (
        r'["\u0000\u001f\b\t\n\f\r\"\\/\u007f\u0085\u2028\u00e9"]',
        r'["\u0000\u001f\b\t\n\f\r\"\\/' + '\x7f\x85\u2028\xe9"]',
        "dde51cb7efa298f7d96bdd8f7357c2dba2a88ca937387a5fef0f3131580e6a36",
    ),
    (
        '{"type":"object","properties":{"name":{"type":"string","minLength":1},'
        '"age":{"type":"integer","minimum":0}},"required":["name"],"additionalProperties":false}',
        '{"additionalProperties":false,"properties":{"age":{"minimum":0,"type":"integer"},'
        '"name":{"minLength":1,"type":"string"}},"required":["name"],"type":"object"}',
        "049d6f9fcbe60a17a324f4ef329258ddf10f7396111f76903b9d8694900f5011",
    ),
    ("{}", "{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
    (
        "123456789012345680000.0",
        "123456789012345680000",
        "725abf175290195635e55a971cf88e02a46d6d56e964ec2d8bc47614b9559062",
    ),
    ("0.1", "0.1", "14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310"),
]

floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(("text", "canonical", "digest"), GOLDEN)
def test_text_and_hash_are_those_of_the_client(text: str, canonical: str, digest: str) -> None:
    value = decode(text.encode())
    assert canonical_json(value) == canonical
    assert sha256_of(value) == f"sha256:{digest}"


def shuffled(value: Any, dice: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        dice.shuffle(keys)
        return {key: shuffled(value[key], dice) for key in keys}
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


@given(values, st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(value: Any, dice: Any) -> None:
    assert sha256_of(shuffled(value, dice)) == sha256_of(value)


@given(values)
def test_the_text_is_the_value_that_a_client_reads(value: Any) -> None:
    read = decode(encode(value))
    assert json.loads(canonical_json(value), parse_int=float) == read  # JavaScript has no other numbers
    assert canonical_json(read) == canonical_json(value)


@given(floats)
def test_a_number_keeps_its_value_and_a_whole_one_has_no_point(value: float) -> None:
    text = canonical_json(value)
    assert float(text) == value
    assert ("." in text or "e" in text) or value.is_integer()


@given(st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1))
def test_an_integer_and_the_float_of_its_value_are_one_text(value: int) -> None:
    assert canonical_json(value) == canonical_json(float(value)) == str(value)


@pytest.mark.parametrize("value", [float("nan"), 2**60, "\ud800", {1, 2}, object()])
def test_what_json_cannot_hold_is_hashed_as_it_is_sent(value: Any) -> None:
    assert canonical_json({"x": value}) == canonical_json(decode(encode({"x": value})))
