"""JSON Patch: what RFC 6902 says, what another library makes of it, and that a patch costs what it changes."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.codec import encode
from gateway.wire.json_patch import MAX_NESTING, patched

Json = dict[str, Any]

# RFC 6902, appendix A: the document, the patch, and the result; an error where there is none.
ERROR = object()
EXAMPLES: dict[str, tuple[Any, list[Any], Any]] = {
    "A.1": ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    "A.2": (
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    "A.3": ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    "A.4": ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    "A.5": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    "A.6": (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    "A.7": (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    "A.8": (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    "A.9": ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], ERROR),
    "A.10": (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.11": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    "A.12": ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], ERROR),
    "A.14": ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    "A.15": ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], ERROR),
    "A.16": (
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
}
LAST = {"op": "add", "path": "/x", "value": 1}
WRONG: dict[str, Any] = {
    "no object": "add",
    "unknown": {"op": "teleport", "path": "/a"},
    "no operation": {"path": "/a", "value": 1},
    "a list of operations": {"op": ["add"], "path": "/a", "value": 1},
    "no path": {"op": "remove"},
    "no pointer": {"op": "add", "path": "a", "value": 1},
    "a number as a pointer": {"op": "add", "path": 1, "value": 1},
    "a bad escape": {"op": "add", "path": "/a~2", "value": 1},
    "no value": {"op": "add", "path": "/a"},
    "no value to replace with": {"op": "replace", "path": "/a"},
    "no value to test": {"op": "test", "path": "/a"},
    "no source": {"op": "move", "path": "/a"},
    "a source that is not there": {"op": "copy", "from": "/nowhere", "path": "/a"},
    "nothing to remove": {"op": "remove", "path": "/nowhere"},
    "nothing to replace": {"op": "replace", "path": "/nowhere", "value": 1},
    "behind the last item": {"op": "remove", "path": "/list/-"},
    "beyond the end": {"op": "add", "path": "/list/3", "value": 1},
    "no index": {"op": "add", "path": "/list/x", "value": 1},
    "a negative index": {"op": "remove", "path": "/list/-1"},
    "a leading zero": {"op": "remove", "path": "/list/00"},
    "a digit of another script": {"op": "remove", "path": "/list/\u0661"},
    "an endless index": {"op": "remove", "path": "/list/" + "9" * 5000},
    "through a number": {"op": "add", "path": "/a/b", "value": 1},
    "through a text": {"op": "test", "path": "/text/0", "value": "t"},
    "into itself": {"op": "move", "from": "/list", "path": "/list/0"},
    "true is not 1": {"op": "test", "path": "/a", "value": True},
    "nor within": {"op": "test", "path": "/list", "value": [True, 2]},
}


def state() -> dict[str, Any]:
    return {"a": 1, "list": [1, 2], "text": "t", "deep": {"er": {}}}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_standard(name: str) -> None:
    document, patch, result = EXAMPLES[name]
    if result is ERROR:
        with pytest.raises(ValueError, match=r"."):
            patched(document, patch)
    else:
        assert patched(document, patch) == result


@pytest.mark.parametrize("name", WRONG)
def test_of_a_patch_that_does_not_fit_nothing_counts(name: str) -> None:
    given_state = state()
    with pytest.raises(ValueError, match=r"."):
        patched(given_state, [LAST, {"op": "remove", "path": "/deep/er"}, WRONG[name]])
    assert given_state == state()


def test_the_whole_is_replaced_and_removed_too() -> None:
    assert patched(state(), [{"op": "add", "path": "", "value": [1]}, {"op": "add", "path": "/0", "value": 0}]) == [
        0,
        1,
    ]
    assert patched(state(), [{"op": "replace", "path": "", "value": 7}]) == 7
    assert patched(state(), [{"op": "move", "from": "/deep", "path": ""}]) == {"er": {}}
    assert patched(state(), [{"op": "remove", "path": ""}]) is None
    assert patched(None, [{"op": "test", "path": "", "value": None}, {"op": "move", "from": "", "path": ""}]) is None


def test_numbers_are_equal_whatever_their_spelling() -> None:
    assert patched([1, {"x": [2.0]}], [{"op": "test", "path": "", "value": [1.0, {"x": [2]}]}]) == [1, {"x": [2.0]}]


def test_only_what_is_on_the_path_is_copied() -> None:
    given_state: Json = {"rows": [{"n": 1}, {"n": 2}], "rest": {}}
    value = {"new": True}
    result = patched(given_state, [{"op": "add", "path": "/rows/0/m", "value": value}])
    assert result["rest"] is given_state["rest"]
    assert result["rows"][1] is given_state["rows"][1]
    assert result["rows"][0]["m"] is value
    assert given_state == {"rows": [{"n": 1}, {"n": 2}], "rest": {}}


def test_what_is_copied_is_not_the_same_any_more() -> None:
    patch: list[Json] = [
        {"op": "add", "path": "/deep/er/x", "value": [1]},
        {"op": "copy", "from": "/deep", "path": "/copy"},
        {"op": "add", "path": "/copy/er/x/-", "value": 2},
        {"op": "add", "path": "/deep/er/y", "value": 3},
    ]
    result = patched(state(), patch)
    assert (result["deep"], result["copy"]) == ({"er": {"x": [1], "y": 3}}, {"er": {"x": [1, 2]}})
    assert patch[0]["value"] == [1]


def test_many_patches_of_a_large_state_share_it() -> None:
    """Each by itself, and together as one: to copy the state for each would be a hundred million rows."""
    rows = [{"id": number} for number in range(10_000)]
    patches = [{"op": "replace", "path": "/text", "value": "x" * number} for number in range(10_000)]
    now: Any = {"rows": rows, "text": ""}
    for patch in patches:
        now = patched(now, [patch])
    assert now == patched({"rows": rows, "text": ""}, patches)
    assert now["rows"] is rows
    appended = patched({"rows": []}, [{"op": "add", "path": "/rows/-", "value": row} for row in rows])
    assert appended == {"rows": rows}


def test_copies_do_not_grow_beyond_all_bounds() -> None:
    twice = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(24)]
    with pytest.raises(ValueError, match="larger than"):
        patched({"a": 1}, twice)
    now, fitting = as_often_as_it_fits({"a": 1}, twice, limit=100_000)
    assert fitting > 10
    assert len(encode(now)) < 100_000


@pytest.mark.parametrize("source", ["/text", "/list"])
def test_a_large_value_is_copied_as_often_as_the_limit_has_room_for(source: str) -> None:
    large = {"text": "x" * 1000, "list": ["y" * 100] * 10, "copies": []}
    copies = [{"op": "copy", "from": source, "path": "/copies/-"}] * 100
    size = len(encode(patched(large, copies[:50])))
    assert len(encode(patched(large, copies, limit=size * 2))) < size * 2
    with pytest.raises(ValueError, match="larger than"):
        patched(large, copies, limit=size)


def test_what_has_left_again_does_not_count() -> None:
    patch = [{"op": "copy", "from": "/list", "path": "/copy"}, {"op": "remove", "path": "/copy"}] * 100
    before = {"list": [0] * 100}
    assert patched(before, patch, limit=3000) == before


@pytest.mark.parametrize("operation", [{"op": "copy", "from": ""}, {"op": "add", "value": {"k": {}}}])
def test_nesting_has_a_bound(operation: Json) -> None:
    deeper = [{**operation, "path": "/k" * depth} for depth in range(1, 2 * MAX_NESTING)]
    now, fitting = as_often_as_it_fits({"k": {}}, deeper)
    assert 5 < fitting < MAX_NESTING
    assert encode(now).count(b"}") <= MAX_NESTING


def test_two_deep_values_do_not_make_one_too_deep() -> None:
    half = MAX_NESTING // 2 + 10
    with pytest.raises(ValueError, match="nested"):
        patched({"a": nested(half), "b": nested(half)}, [{"op": "move", "from": "/a", "path": "/b" + "/k" * half}])


def test_no_depth_is_too_much_to_look_at() -> None:
    deep = nested(sys.getrecursionlimit() * 5)
    with pytest.raises(ValueError, match="nested"):
        patched({}, [{"op": "add", "path": "/x", "value": deep}])
    assert patched(deep, [{"op": "test", "path": "", "value": nested(sys.getrecursionlimit() * 5)}]) is deep


def as_often_as_it_fits(now: Any, patch: list[Json], **options: int) -> tuple[Any, int]:
    """The operations one after the other, until one does not fit any more; and how many those were that did."""
    for number, operation in enumerate(patch):
        try:
            now = patched(now, [operation], **options)
        except ValueError:
            return now, number
    return now, len(patch)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"k": value}
    return value


leaves = st.sampled_from([None, True, False, 0, 1, 1.0, "", "x"])
keys = st.sampled_from(["a", "b", "", "~", "/", "0"])
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
parts = st.sampled_from(["a", "b", "", "~0", "~1", "0", "1", "2", "-"])
pointers = st.lists(parts, max_size=3).map(lambda names: "".join(f"/{name}" for name in names))
operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": pointers,
        "from": pointers,
        "value": documents,
    }
).filter(lambda operation: (operation["op"], operation["path"]) != ("remove", ""))  # which the library refuses


@given(documents, st.lists(operations, max_size=6))
def test_it_is_what_another_library_makes_of_it(document: Any, patch: list[Json]) -> None:
    """One operation after the other, so that one that does not fit does not hide the others; and all at once."""
    before = copy.deepcopy((document, patch))
    now: Any = document
    for operation in patch:
        assert spelled(now, [operation], patched) == spelled(now, [operation], jsonpatch.apply_patch)
        now, _ = as_often_as_it_fits(now, [operation])
    assert spelled(document, patch, patched) == spelled(document, patch, jsonpatch.apply_patch)
    assert (document, patch) == before


def spelled(document: Any, patch: list[Json], by: Callable[[Any, Any], Any]) -> str | None:
    """The result as text, in which `true` is not 1; None where there is none."""
    try:
        return json.dumps(by(document, patch), sort_keys=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError, KeyError, IndexError):
        return None
