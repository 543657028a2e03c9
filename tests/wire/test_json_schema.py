"""Schemas of answers: which ones a tool may ask with, and what is said of an answer that does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from gateway.wire.json_schema import MAX_DETAILS, MAX_TEXT, check_schema, misfits

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]

names = st.sampled_from(["a", "b", "c", "a b", "é"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
payloads = st.recursive(
    scalars | st.integers(-(10**308), 10**308),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)
small = st.integers(0, 3)
exact = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=3,
)
types = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
references = st.sampled_from(["#", "#/$defs/one", "#/$defs/two"])


def several(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, min_size=1, max_size=3)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Any keywords side by side, with what they take."""
    by_name = st.dictionaries(names, inner, max_size=3)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "$ref": references,
        "additionalProperties": inner,
        "allOf": several(inner),
        "anyOf": several(inner),
        "const": exact,
        "contains": inner,
        "dependentRequired": st.dictionaries(names, st.lists(names, unique=True, max_size=2), max_size=2),
        "enum": st.lists(exact, max_size=3),
        "exclusiveMinimum": st.floats(-5, 5),
        "if": inner,
        "items": inner,
        "maxItems": small,
        "maxLength": small,
        "maximum": st.integers(-5, 5),
        "minContains": small,
        "minItems": small,
        "minLength": small,
        "minProperties": small,
        "multipleOf": st.sampled_from([1, 2, 0.1, 1e-300]),
        "not": inner,
        "oneOf": several(inner),
        "pattern": st.sampled_from(["^a", "b$", "."]),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "."]), inner, max_size=2),
        "prefixItems": several(inner),
        "properties": by_name,
        "propertyNames": inner,
        "required": st.lists(names, unique=True, max_size=3),
        "then": inner,
        "type": types | st.lists(types, unique=True, min_size=1, max_size=2),
        "unevaluatedItems": inner,
        "unevaluatedProperties": inner,
        "uniqueItems": st.booleans(),
    }
    chosen = st.lists(st.sampled_from(sorted(optional)), unique=True, max_size=4)
    return chosen.flatmap(lambda picked: st.fixed_dictionaries({name: optional[name] for name in picked}))


subschemas: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.just({}), lambda inner: st.booleans() | keywords(inner), max_leaves=6
)


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    made: Json = draw(keywords(subschemas))
    return {**made, "$defs": {"one": draw(subschemas), "two": draw(subschemas)}}


class Row(BaseModel):
    """One row."""

    id: int
    kind: Literal["plain", "special"] = "plain"


class Order(BaseModel):
    """What to order."""

    rows: list[Row]
    tags: set[str] = Field(default_factory=set)
    first: Row | None = None


def said(schema: Any, payload: Any) -> list[tuple[str, str]]:
    return [(item["field"], item["message"]) for item in misfits(check_schema(schema), payload)]


def accepted(schema: Any) -> Json | None:
    """The schema as it is checked; None where it is refused as the contract of `check_schema` says."""
    try:
        return check_schema(schema)
    except (TypeError, ValueError):
        return None


def is_valid(schema: Json, payload: Any) -> bool:
    """What the library says, of what it can follow."""
    try:
        return Draft202012Validator(schema).is_valid(payload)
    except RecursionError:
        return False


def run_python(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- schemas --


def test_no_schema_is_none_and_takes_everything() -> None:
    assert check_schema(None) is None
    for payload in (None, 1, {"a": [1]}):
        assert misfits(None, payload) == misfits({}, payload) == []


def test_a_schema_comes_back_as_the_plain_json_that_is_sent_and_as_a_copy() -> None:
    given_schema = MappingProxyType({"enum": ("a", 1, None), "title": "Which?"})
    checked = check_schema(given_schema)
    assert checked == {"enum": ["a", 1, None], "title": "Which?"}
    assert type(checked) is dict
    source: Json = {"properties": {}}
    copy = check_schema(source)
    source["properties"]["a"] = False
    assert copy == {"properties": {}}


def test_a_model_class_stands_for_its_schema() -> None:
    assert check_schema(Order) == Order.model_json_schema()
    assert misfits(check_schema(Order), {"rows": [{"id": 1}], "tags": ["a"], "first": None}) == []


def test_a_model_with_a_default_that_json_cannot_hold_has_a_schema() -> None:
    class Odd(BaseModel):
        price: Any = object()

    checked = check_schema(Odd)
    assert checked is not None
    assert checked["properties"]["price"] == {"title": "Price"}


@pytest.mark.parametrize("wrong", [5, "string", True, [{"type": "string"}], Row(id=1), int, object(), b"{}"])
def test_what_is_neither_a_mapping_nor_a_model_class_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="A schema is a mapping or a pydantic model class, not "):
        check_schema(wrong)


def test_a_model_without_a_schema_is_a_type_error_that_names_it() -> None:
    class Calls(BaseModel):
        call: Callable[[], int]

    with pytest.raises(TypeError, match="The model Calls has no JSON Schema"):
        check_schema(Calls)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"type": "objekt"}, r"schema\.type: Input should be one of .*\"object\""),
        ({"properties": {"a": {"minLength": -1}}}, r"schema\.properties\.a\.minLength: Input should be at least 0"),
        ({"pattern": "["}, r"schema\.pattern: .*regex"),
        ({"properties": {"a": {"pattern": r"\p{L}"}}}, r"schema\.properties\.a\.pattern: .*regex"),
        ({"required": True}, r"schema\.required: Input should be a list"),
        ({"items": [{"type": "string"}]}, r"schema\.items: Input should be an object or a boolean"),
        ({"default": float("nan")}, r"not JSON: nan at \$\.default"),
        ({"const": 2**60}, r"not JSON: int at \$\.const"),
        ({"default": object()}, r"not JSON: unserializable at \$\.default"),
        ({1: "one"}, r"not JSON: key"),
        ({"title": "\ud800"}, r"not JSON: surrogate"),
        ({"$ref": "https://example.org/person.json"}, "Nothing is at"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "Nothing is at"),
        ({"$dynamicRef": "#anchor"}, "Nothing is at"),
        ({"$ref": "http://["}, "Nothing is at"),
        ({"$ref": "#/own", "own": {"type": "objekt"}}, r"#/own\.type"),
        ({"$ref": "#/own", "own": 5}, "#/own: Input should be an object or a boolean"),
        ({"$ref": "#/own", "own": {"$ref": "#/missing"}}, "Nothing is at"),
        ({"$ref": "#"}, "refers to itself"),
        ({"type": "object", "allOf": [{"anyOf": [{"$ref": "#"}]}]}, "refers to itself"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "may name its dialect"),
    ],
)
def test_what_cannot_be_used_is_a_value_error_that_says_where_and_why(wrong: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_schema(wrong)


def test_a_schema_beyond_sense_is_refused() -> None:
    for depth in (90, 5_000):
        deep: Json = {}
        for _ in range(depth):
            deep = {"not": deep}
        assert accepted(deep) in (deep, None)
    assert accepted(deep) is None


def test_references_inside_a_schema_lead_anywhere_in_it() -> None:
    tree: Json = {
        "$id": "https://example.org/tree.json",
        "$ref": "#/$defs/node",
        "$defs": {"node": {"$anchor": "node", "type": "object", "additionalProperties": {"$ref": "#node"}}},
    }
    assert said(tree, {"a": {"b": {}}}) == []
    assert said(tree, {"a": {"b": 1}}) == [("payload.a.b", "Input should be an object")]


def test_the_dialect_is_ours_whatever_the_schema_says() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"x": {"$ref": "#"}}, "const": {}}
    assert check_schema(old) == old
    assert said(old, {"x": 1}) == [("payload", "Input should be {}"), ("payload.x", "Input should be {}")]


@given(st.dictionaries(st.sampled_from(["$ref", "$id", "type", "enum", "items", "x", "allOf", "$schema"]), payloads))
def test_any_mapping_is_a_schema_or_refused(schema: Any) -> None:
    checked = accepted(schema)
    assert checked is None or misfits(checked, {"a": [1]}) is not None


# -- answers --


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        ({"rows": []}, []),
        ({}, [("payload.rows", "Field required")]),
        (None, [("payload", "Input should be an object")]),
        (
            {"rows": [{"id": "1", "kind": "odd"}, 5]},
            [
                ("payload.rows.0.id", "Input should be an integer"),
                ("payload.rows.0.kind", 'Input should be one of "plain", "special"'),
                ("payload.rows.1", "Input should be an object"),
            ],
        ),
        (
            {"rows": [], "tags": ["a", "a", 1]},
            [
                ("payload.tags", "Input should have no equal items"),
                ("payload.tags.2", "Input should be a string"),
            ],
        ),
        ({"rows": [], "first": {"id": None}}, [("payload.first.id", "Input should be an integer")]),
        ({"rows": [], "first": 1}, [("payload.first", "Input should be an object or be null")]),
    ],
)
def test_each_thing_that_is_wrong_is_said_once_with_its_field(payload: Any, wrong: list[Any]) -> None:
    assert said(Order, payload) == wrong


@pytest.mark.parametrize(
    ("schema", "payload", "wrong"),
    [
        ({"type": ["string", "null"]}, 1, [("payload", "Input should be a string or null")]),
        ({"const": "yes"}, "no", [("payload", 'Input should be "yes"')]),
        ({"minimum": 1}, 0, [("payload", "Input should be at least 1")]),
        ({"exclusiveMaximum": 1}, 1, [("payload", "Input should be less than 1")]),
        ({"multipleOf": 0.5}, 0.7, [("payload", "Input should be a multiple of 0.5")]),
        ({"maxLength": 2}, "abc", [("payload", "Input should have at most 2 characters")]),
        ({"pattern": "^a"}, "b", [("payload", 'Input should match the pattern "^a"')]),
        ({"minItems": 1}, [], [("payload", "Input should have at least 1 items")]),
        ({"prefixItems": [True], "items": False}, [1, 2], [("payload", "Input should have no more items")]),
        ({"not": {"type": "null"}}, None, [("payload", 'Input should not fit {"type": "null"}')]),
        (
            {"oneOf": [{"minimum": 0}, {"maximum": 9}]},
            5,
            [("payload", "Input should fit one of the alternatives only")],
        ),
        ({"minContains": 2, "contains": {}}, [1], [("payload", "Input should fit the rule minContains")]),
        (
            {"additionalProperties": False, "properties": {"a": {}}, "patternProperties": {"^x-": {}}},
            {"a": 1, "x-b": 1, "z": 1, "y": 1},
            [("payload.y", "Unexpected field"), ("payload.z", "Unexpected field")],
        ),
        ({"additionalProperties": {"type": "null"}}, {"b": 1}, [("payload.b", "Input should be null")]),
        ({"items": {"type": "null"}}, [0] * 11, [(f"payload.{i}", "Input should be null") for i in range(11)]),
        ({"allOf": [{"required": ["a"]}, {"required": ["a"]}]}, {}, [("payload.a", "Field required")]),
    ],
)
def test_messages_are_sentences_of_the_gateway(schema: Json, payload: Any, wrong: list[Any]) -> None:
    assert said(schema, payload) == wrong


@pytest.mark.parametrize(
    ("items", "differ"),
    [
        ([1, True], True),
        ([0, False], True),
        ([1, 1.0], False),
        ([[1], [True]], True),
        ([[], {}, "", 0, None, False], True),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([2**60, 2**60 + 1], True),
        (["1", 1], True),
    ],
)
def test_items_differ_as_json_says(items: list[Any], differ: bool) -> None:
    assert (said({"uniqueItems": True}, items) == []) is differ


def test_nothing_of_the_payload_is_shown_but_the_names_of_fields() -> None:
    schema = {"properties": {"code": {"enum": ["a"]}, "list": {"maxItems": 0}, "any": {"anyOf": [{"const": 1}]}}}
    payload = {"code": "secret", "list": ["secret"], "any": "secret"}
    assert len(said(schema, payload)) == 3
    assert "secret" not in repr(said(schema, payload))


def test_fifty_details_are_enough_and_no_text_is_long() -> None:
    schema = {
        "additionalProperties": {"anyOf": [{"enum": ["x" * 5_000]}, {"pattern": "y" * 5_000}]},
        "propertyNames": {"maxLength": 3},
    }
    found = said(schema, {f"{number:05}" + "n" * 5_000: "" for number in range(100)})
    assert len(found) == MAX_DETAILS
    assert all(len(field) <= MAX_TEXT and len(message) <= MAX_TEXT + 50 for field, message in found)


def test_what_is_nested_beyond_sense_does_not_fit() -> None:
    tree: Json = {"items": {"$ref": "#"}}
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    assert said(tree, deep) == [("payload", "Input is nested too deeply, or its schema is")]
    inside = {"properties": {"x": {"$ref": "#/properties/x"}}}
    assert said(inside, {"x": 1}) == [("payload", "Input is nested too deeply, or its schema is")]


def test_a_hundred_thousand_objects_are_compared_in_no_time() -> None:
    started = time.perf_counter()
    assert said({"uniqueItems": True}, [{"a": number} for number in range(100_000)]) == []
    assert time.perf_counter() - started < 30


@given(schemas(), payloads)
def test_an_answer_is_judged_as_the_library_judges_it_and_nothing_is_raised(schema: Json, payload: Any) -> None:
    checked = accepted(schema)
    if checked is None:
        return
    found = misfits(checked, payload)
    assert (found == []) is is_valid(checked, payload)
    assert found == misfits(json.loads(json.dumps(checked)), payload)
    assert len(found) <= MAX_DETAILS
    assert all(item.keys() == {"field", "message"} and item["field"].startswith("payload") for item in found)


# -- the library --


def test_the_package_is_imported_without_the_library_which_comes_with_the_first_question() -> None:
    run_python("""
import sys
from gateway.wire.json_schema import warm_up

import gateway
assert not {"jsonschema", "referencing", "rpds"} & sys.modules.keys()
warm_up()
assert "jsonschema" in sys.modules
""")


def test_once_warm_nothing_blocks_the_event_loop() -> None:
    run_python("""
import asyncio
from blockbuster import blockbuster_ctx
from gateway.wire.json_schema import check_schema, misfits, warm_up

SCHEMA = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"uniqueItems": True, "required": ["a"]}}}

async def main():
    with blockbuster_ctx("gateway"):
        await asyncio.to_thread(warm_up)
        assert misfits(check_schema(SCHEMA), {})

asyncio.run(main())
""")


def test_no_pattern_takes_longer_than_its_text() -> None:
    schema = check_schema({"type": "string", "pattern": r"^(\w+\s?)*$"})
    assert misfits(schema, "a" * 100_000 + "!") == [
        {"field": "payload", "message": 'Input should match the pattern "^(\\\\w+\\\\s?)*$"'}
    ]
    assert misfits(schema, "words and words") == []
    named = check_schema({"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}})
    assert misfits(named, {"a" * 1_000 + "!": "x", "aa": 1}) == []
    assert misfits(named, {"aa": "x"}) == [{"field": "payload.aa", "message": "Input should be an integer"}]


@pytest.mark.parametrize("pattern", [r"^(?=a)", r"(a)\1", r"(?<!x)y"])
def test_a_pattern_that_needs_backtracking_is_refused_when_it_is_asked_with(pattern: str) -> None:
    with pytest.raises(ValueError, match="Cannot be checked in bounded time"):
        check_schema({"type": "string", "pattern": pattern})
