"""The encoder is total, says what it changed, and agrees with the golden examples, which are normative."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import functools
import json
import math
import string
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast
from uuid import UUID

import numpy as np
import orjson
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import PayloadError
from gateway.wire import normalise
from gateway.wire.codec import Change, as_mapping, decode, encode, encode_strict
from tests.support.effort import times

SAFE = 2**53 - 1
GOLDEN = json.loads((Path(__file__).parents[2] / "schemas/examples/payloads.json").read_text("utf-8"))


class Colour(enum.Enum):
    RED = "red"


class When(enum.Enum):
    DAY = date(2026, 1, 2)


class Mode(enum.StrEnum):
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 3
    HUGE = 2**60


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "what a subclass says of itself is not what it holds"


class Int(int):
    pass


class Float(float):
    pass


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Point:
    x: object
    _hidden: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    when: date


class Inner(pydantic.BaseModel):
    url: pydantic.HttpUrl
    secret: pydantic.SecretStr


class Model(pydantic.BaseModel):
    id: UUID
    tags: set[str]
    raw: bytes
    inner: Inner | None = None


class Reading(pydantic.BaseModel):
    value: float


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Broken:
    """Whatever is asked of it ends in an exception, one of them not even an `Exception`."""

    def __str__(self) -> str:
        raise SystemExit(3)

    def __repr__(self) -> str:  # for the test's own report
        return "Broken()"

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def cycle() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


def loop() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    fields["self"] = fields
    return fields


def twice() -> list[list[int]]:
    item = [1]
    return [item, item]


def moved() -> collections.OrderedDict[str, int]:
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    return ordered


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def nested_dict(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


# What the expressions of the golden file may use.
NAMES = {
    "nan": math.nan,
    "inf": math.inf,
    "np": np,
    "UTC": UTC,
    "Counter": collections.Counter,
    "MappingProxyType": types.MappingProxyType,
    **{kind.__name__: kind for kind in (date, datetime, time, timedelta, Decimal, UUID, PurePosixPath)},
    **{kind.__name__: kind for kind in (Colour, When, Mode, Level, Text, Int, Float, Pair, Point, Slotted)},
    **{kind.__name__: kind for kind in (Inner, Model, Reading, Numbers, Broken)},
    **{make.__name__: make for make in (cycle, loop, twice, moved, nested, nested_dict)},
}


@pytest.mark.parametrize("example", GOLDEN, ids=lambda example: example["name"])
def test_encodes_the_golden_example(example: dict[str, Any]) -> None:
    changes: list[Change] = []
    encoded = encode(eval(example["python"], dict(NAMES)), changes)  # noqa: S307 - the file is ours
    assert encoded.decode("utf-8") == example["json"]
    assert [list(change) for change in changes] == example.get("changes", [])


# The examples of a hundred levels would be one level too deep within another value.
@pytest.mark.parametrize("example", [e for e in GOLDEN if len(e["json"]) < 200], ids=lambda example: example["name"])
def test_a_golden_example_within_other_values_is_encoded_the_same(example: dict[str, Any]) -> None:
    value = eval(example["python"], dict(NAMES))  # noqa: S307 - the file is ours
    changes: list[Change] = []
    assert encode({"v": value, "w": object()}, changes).startswith(b'{"v":' + example["json"].encode())
    assert [c.path.replace("$.v", "$", 1) for c in changes[:-1]] == [p for _, p in example.get("changes", [])]


# --- Properties ---------------------------------------------------------------------------------------------------

clean_text = st.text(st.characters(exclude_categories=["Cs"]))
clean_leaves = (
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False) | clean_text
)


def trees(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=30)


clean = trees(clean_leaves, clean_text)

all_text = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\ud800\udc00\u2028\u2029\x85\r\n\0"))
odd_leaves = st.one_of(
    clean_leaves,
    all_text,
    st.integers(),
    st.integers().map(lambda n: n * 2**60),
    st.floats(),
    st.binary(),
    st.binary().map(bytearray),
    st.binary().map(lambda data: memoryview(data)),
    st.decimals(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.complex_numbers(),
    st.sampled_from([*Colour, *Mode, *Level, *When, int, len, ..., NotImplemented, Mode, Point, Model]),
    st.builds(object),
    st.builds(Broken),
    st.builds(cycle),
    st.builds(loop),
    st.sets(st.integers()),
    st.frozensets(st.text()),
    all_text.map(Text),
    st.integers().map(Int),
    st.floats().map(Float),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.lists(st.floats()).map(np.array),
    st.builds(Point, st.floats()),
    st.builds(Reading, value=st.floats()),
    st.builds(lambda: iter([1])),
)
odd_keys = st.one_of(
    all_text,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.uuids(),
    st.binary(),
    st.tuples(st.integers()),
    st.sampled_from([*Colour, *Mode, *Level, *When]),
    st.builds(Broken),
    st.builds(object),
)
odd = st.recursive(
    odd_leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(odd_keys, inner),
        st.lists(inner).map(tuple),
        st.builds(Point, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(all_text, inner).map(collections.OrderedDict),
        st.dictionaries(all_text, inner).map(types.MappingProxyType),
    ),
    max_leaves=20,
)

# Nearly plain data, to reach every exit of the fast path.
mixed = trees(clean_leaves | st.floats() | st.integers() | all_text, all_text | st.integers())


def slow(value: object) -> bytes:
    return orjson.dumps(normalise.normalise(value)[0])


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)


def refuse_constant(token: str) -> None:
    raise AssertionError(f"{token} is no JSON")


@settings(max_examples=times(200))
@given(odd | mixed)
def test_whatever_comes_one_line_of_json_goes_out(value: object) -> None:
    encoded = encode(value)
    text = encoded.decode("utf-8")
    parsed = json.loads(text, parse_constant=refuse_constant)
    assert not set(text) & set("\r\n\u2028\u2029\x85")
    assert len(text.splitlines()) == 1
    assert all(abs(number) <= SAFE for number in numbers(parsed) if isinstance(number, int))
    assert decode(encoded) == parsed


@settings(max_examples=times(200))
@given(clean)
def test_clean_values_come_back_as_they_were(value: object) -> None:
    changes: list[Change] = []
    encoded = encode(value, changes)
    assert changes == []
    assert decode(encoded) == value
    assert encode_strict(value) == encoded


@settings(max_examples=times(200))
@given(mixed)
def test_the_fast_and_the_slow_path_write_the_same(value: object) -> None:
    plain, changes = normalise.normalise(value)
    fast_changes: list[Change] = []
    fast = encode(value, fast_changes)
    assert decode(fast) == decode(orjson.dumps(plain))
    assert fast_changes == changes


def replaced(value: object, encoded: object) -> bool:
    """An independent look at a `mixed` value and its JSON: whether they differ anywhere."""
    if isinstance(value, dict):
        assert isinstance(encoded, dict)
        if list(value) != list(encoded):
            return True
        return any(replaced(value[key], encoded[key]) for key in value)
    if isinstance(value, list):
        assert isinstance(encoded, list)
        return any(map(replaced, value, encoded))
    return type(value) is not type(encoded) or value != encoded


@settings(max_examples=times(200))
@given(trees(clean_leaves | st.floats() | st.integers(), clean_text | st.integers()))
def test_changes_are_reported_if_and_only_if_something_was_replaced(value: object) -> None:
    changes: list[Change] = []
    encoded = encode(value, changes)
    assert bool(changes) == replaced(value, decode(encoded))


@settings(max_examples=times(200))
@given(odd | mixed)
def test_strict_raises_at_the_first_change_with_its_path(value: object) -> None:
    changes: list[Change] = []
    # An iterator that is asked twice would be another value the second time.
    encoded = encode(value, changes)
    if not changes:
        assert encode_strict(value) == encoded
        return
    with pytest.raises(PayloadError) as caught:
        encode_strict(value)
    assert (caught.value.kind, caught.value.path) == changes[0]


@settings(max_examples=times(150))
@given(odd)
def test_changes_are_added_to_what_the_list_holds(value: object) -> None:
    alone: list[Change] = []
    encode(value, alone)
    before = Change("nan", "$.before")
    changes = [before]
    encode(value, changes)
    assert changes == [before, *alone]


@settings(max_examples=times(150))
@given(st.integers())
def test_integers_are_numbers_while_javascript_can_hold_them(number: int) -> None:
    for n in (number, number * 2**50, Int(number), np.array([number], dtype=object)):
        [parsed] = json.loads(encode([n] if isinstance(n, int) else n))
        exact = int(n) if isinstance(n, int) else number
        assert parsed == (exact if abs(exact) <= SAFE else str(exact))


@settings(max_examples=times(150))
@given(all_text)
def test_text_without_lone_surrogates_keeps_its_meaning(text: str) -> None:
    changes: list[Change] = []
    parsed = json.loads(encode(text, changes))
    # What Python's own encoder makes of it, read back, still has the lone surrogates and no others.
    reference = json.loads(json.dumps(text))
    assert parsed == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in reference)
    assert bool(changes) == (parsed != reference)


# --- Hostile values -----------------------------------------------------------------------------------------------


def unserializable(value: object) -> str:
    """The type name that the value was replaced by, when nothing of it was encoded."""
    changes: list[Change] = []
    parsed = json.loads(encode({"v": value, "end": 1}, changes))
    assert parsed["end"] == 1
    assert changes == [Change("unserializable", "$.v")]
    [(key, name)] = parsed["v"].items()
    assert key == "$unserializable"
    assert isinstance(name, str)
    return name


class LoopingValue(enum.Enum):
    A = 1

    @property
    def value(self) -> Any:
        return self


class RaisingValue(enum.Enum):
    A = 1

    @property
    def value(self) -> Any:
        raise SystemExit(3)


def test_an_enum_whose_value_is_itself_ends_somewhere() -> None:
    # orjson alone dies of this one and the next with a segmentation fault.
    assert unserializable(LoopingValue.A) == "LoopingValue"


def test_an_enum_whose_value_raises_is_replaced() -> None:
    assert unserializable(RaisingValue.A) == "RaisingValue"


def test_keys_may_be_hostile_enums() -> None:
    encoded = encode({LoopingValue.A: 1, RaisingValue.A: 2})
    assert list(json.loads(encoded).values()) == [1, 2]


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(1), asyncio.CancelledError(), GeneratorExit(), RecursionError()]
)
def test_whatever_a_model_raises_it_is_replaced(error: BaseException) -> None:
    class Raising(pydantic.BaseModel):
        def model_dump(self, **options: Any) -> dict[str, Any]:
            raise error

    assert unserializable(Raising()) == "Raising"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_what_is_not_the_values_fault_gets_through(error: BaseException) -> None:
    class Interrupted(datetime):
        def isoformat(self, *args: Any, **options: Any) -> str:
            raise error

    with pytest.raises(type(error)):
        encode(Interrupted(2026, 1, 2))


def test_a_model_that_dumps_to_itself_ends_somewhere() -> None:
    class Self(pydantic.BaseModel):
        def model_dump(self, **options: Any) -> Any:
            return self

    assert unserializable(Self()) == "Self"


def test_a_model_in_itself_is_replaced() -> None:
    class Node(pydantic.BaseModel):
        next: Node | None = None

    node = Node()
    node.next = node
    assert unserializable(node) == "Node"


def test_a_model_that_does_not_fit_its_own_types_is_encoded_without_a_warning() -> None:
    assert encode(Reading.model_construct(None, value=cast("Any", "text"))) == b'{"value":"text"}'


def test_a_dataclass_in_itself_is_cut_where_it_comes_again() -> None:
    point = Point(None)
    point.x = [point]
    changes: list[Change] = []
    encoded = encode(point, changes)
    assert encoded == b'{"x":[{"$unserializable":"Point"}],"_hidden":0}'
    assert changes == [Change("unserializable", "$.x[0]")]


def test_a_dataclass_that_lost_a_field_is_replaced() -> None:
    point = Point(1)
    del point.x
    assert unserializable(point) == "Point"


def test_subclasses_are_read_by_what_they_hold() -> None:
    def broken(*args: Any) -> Any:
        raise ValueError

    methods = ("__iter__", "__len__", "__getitem__", "keys", "items", "values", "copy", "__str__", "__int__")
    contents: list[Any] = [{"a": 1}, [2], (3,), {4}, frozenset({5}), "6", 7, 8.5, Decimal(9)]
    hostile = [type("Sub", (type(content),), dict.fromkeys(methods, broken))(content) for content in contents]
    changes: list[Change] = []
    assert encode(hostile, changes) == b'[{"a":1},[2],[3],[4],[5],"6",7,8.5,"9"]'
    assert changes == []


def test_a_mapping_that_breaks_while_it_is_read_is_replaced() -> None:
    class Lazy(Mapping[str, int]):
        def __iter__(self) -> Iterator[str]:
            yield "a"
            raise RuntimeError("gone")

        def __len__(self) -> int:
            return 1

        def __getitem__(self, key: str) -> int:
            return 1

    assert unserializable(Lazy()) == "Lazy"


def test_a_container_that_its_own_items_change_is_encoded_as_it_was() -> None:
    # With a default hook, orjson would read freed memory here.
    items: list[object] = []

    class Clearing(datetime):
        def isoformat(self, *args: Any, **options: Any) -> str:
            items.clear()
            return "cleared"

    items += [Clearing(2026, 1, 2), *("x" * n for n in range(1000))]
    parsed = json.loads(encode(items))
    assert parsed[0] == "cleared"
    assert len(parsed) == 1001
    assert items == []


def test_a_dict_that_another_thread_changes_is_encoded() -> None:
    shared: dict[str, Any] = {}
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for n in range(200):
                shared[f"k{n}"] = [n, Colour.RED]
            shared.clear()

    changer = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    changer.start()
    try:
        parsed = [json.loads(encode(shared)) for _ in range(300)]
    finally:
        stop.set()
        changer.join()
        sys.setswitchinterval(interval)
    assert all(item[1] == "red" for fields in parsed for item in fields.values())


def test_ten_thousand_levels_are_cut_at_a_hundred_and_one() -> None:
    for value, name in ((nested(10_000), "list"), (nested_dict(10_000), "dict")):
        changes: list[Change] = []
        assert encode(value, changes).count(b"$unserializable") == 1
        assert [change.kind for change in changes] == ["unserializable"]
        assert name.encode() in encode(value)


def test_the_level_of_sets_arrays_and_dataclasses_counts_too() -> None:
    def within(value: object) -> bytes:
        return encode(functools.reduce(lambda inner, _: [inner], range(99), value))

    assert b"$uns" not in within({1})
    assert b"$uns" not in within(np.array([1]))
    assert b'{"$unserializable":"set"}' in within([{1}])
    assert b'{"$unserializable":"Point"}' in within([Point(1)])
    assert b'{"$unserializable":"list"}' in within(np.array([[1]]))


def test_a_cycle_with_two_ways_round_is_not_followed_for_ever() -> None:
    items: list[Any] = []
    items += [items, items, {"k": items}]
    assert encode(items).count(b"$unserializable") == 3


def test_a_caller_near_the_end_of_the_stack_gets_the_value_replaced_whole() -> None:
    value = [[[Colour.RED]] * 3] * 3
    outcomes = set()

    def deep(left: int) -> bytes:
        return deep(left - 1) if left else encode(value)

    limit = sys.getrecursionlimit()
    for left in range(limit):
        try:
            outcomes.add(deep(left))
        except RecursionError:  # not even the call of encode fits
            break
    assert outcomes <= {encode(value)} | {o for o in outcomes if b"$unserializable" in o}
    assert len(outcomes) > 1


def test_a_value_that_does_not_even_say_its_class_is_replaced() -> None:
    class Classless:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise ValueError

    assert unserializable(Classless()) == "Classless"
    assert b'":1' in encode({Classless(): 1})
    with pytest.raises(TypeError, match=r"Classless.*ValueError"):
        as_mapping(Classless())


def test_type_names_may_be_hostile_too() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise ValueError

        def __hash__(cls) -> int:
            raise ValueError

        def __eq__(cls, other: object) -> bool:
            raise ValueError

        def __instancecheck__(cls, instance: object) -> bool:
            raise ValueError

    assert unserializable(Meta("Odd", (), {})()) == "Odd"
    assert unserializable(type("Sur\x85rogate", (), {})()) == "Sur\x85rogate"


def test_a_released_memoryview_is_replaced() -> None:
    view = memoryview(b"x")
    view.release()
    assert unserializable(view) == "memoryview"


def test_a_broken_numpy_is_the_arrays_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", types.ModuleType("numpy"))
    assert unserializable(date(2026, 1, 2)) == "date"


def test_without_numpy_nothing_of_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    assert encode([date(2026, 1, 2)]) == b'["2026-01-02"]'
    assert "numpy" not in sys.modules


def test_numpy_durations_and_complex_numbers_are_replaced() -> None:
    assert unserializable(np.timedelta64(1, "s")) == "timedelta64"
    assert unserializable(np.array([1], dtype="timedelta64[ns]")) == "ndarray"
    assert unserializable(np.complex128(1j)) == "complex128"


def test_bytes_that_are_json_already_do_not_get_past_the_rules() -> None:
    assert unserializable(orjson.Fragment(b"{broken")) == "Fragment"


def test_integers_with_more_digits_than_python_prints_are_strings() -> None:
    encoded = encode({"n": -(10**5000), 10**5000: 1})
    assert encoded == b'{"n":"-1%b","1%b":1}' % (b"0" * 5000, b"0" * 5000)


# --- as_mapping ---------------------------------------------------------------------------------------------------


def test_a_dict_is_its_own_mapping() -> None:
    fields = {"a": 1}
    assert as_mapping(fields) is fields


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.UserDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Point(Point(1)), {"x": Point(1), "_hidden": 0}),
        (Reading(value=1), {"value": 1.0}),
    ],
)
def test_mappings_dataclasses_and_models_are_read_as_dicts(value: object, fields: dict[str, object]) -> None:
    result = as_mapping(value)
    assert type(result) is dict
    assert result == fields


@pytest.mark.parametrize("value", [None, 1, "text", [("a", 1)], {1}, Point, Reading, Numbers([1]), Colour.RED])
def test_anything_else_is_a_type_error_that_names_the_type(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}$"):
        as_mapping(value)


def test_a_mapping_that_cannot_be_read_is_a_type_error() -> None:
    point = Point(1)
    del point.x
    with pytest.raises(TypeError, match=r"Point.*AttributeError"):
        as_mapping(point)


# --- decode -------------------------------------------------------------------------------------------------------


@settings(max_examples=times(150))
@given(trees(st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | clean_text, clean_text))
def test_decoding_agrees_with_the_standard_library(value: object) -> None:
    data = json.dumps(value)
    if "Infinity" in data:
        return
    assert repr(decode(data.encode())) == repr(json.loads(data))


@pytest.mark.parametrize(
    "number",
    [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, -(10**18), 10**300, -(10**300)],
)
def test_integers_are_exact_beyond_64_bits_too(number: int) -> None:
    assert decode(b'{"n":[%d,0.1234567890123456789]}' % number) == {"n": [number, 0.12345678901234568]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"NaN",
        b"[1, Infinity]",
        b"-Infinity",
        b"1e400",
        b"[1,]",
        b"{'a':1}",
        b"1 2",
        b'"\\ud800"',
        b'"\xff"',
        b'"\n"',
        b"01",
        b"\xef\xbb\xbf1",
        b"[" * 2000 + b"]" * 2000,
        b"1" * 5000,
    ],
)
def test_what_is_not_json_is_refused_with_the_position(data: bytes) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        decode(data)
    assert 0 <= caught.value.pos <= len(data)


def test_deep_json_with_a_long_integer_is_read_or_refused() -> None:
    data = b"[" * 1000 + b"1" * 30 + b"]" * 1000
    with pytest.raises(json.JSONDecodeError, match="nesting too deep"):
        decode(data)


@settings(max_examples=times(150))
@given(st.binary() | st.text(string.digits + '-.eE[]{}",: nulltrefas').map(str.encode))
def test_garbage_is_a_value_error_or_what_the_standard_library_reads(data: bytes) -> None:
    try:
        value = decode(data)
    except json.JSONDecodeError:
        return
    assert value == json.loads(data)
