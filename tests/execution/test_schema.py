"""The arguments of a callable: what schema its signature gives, what fits, and what the call gets."""

import functools
import inspect
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from gateway.errors import InvalidArguments
from gateway.execution.context import ToolContext
from gateway.execution.schema import MAX_DETAILS, Parameters, parameters_of


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Inner(BaseModel):
    n: int
    level: Level = Level.LOW


class Outer(BaseModel):
    """A thing that holds others."""

    inner: Inner
    many: list[Inner] = []


class Options(TypedDict, total=False):
    title: str
    depth: int


@dataclass
class Point:
    x: int
    y: int = 0


def read(func: Callable[..., Any], **descriptions: str) -> Parameters:
    return parameters_of(func, "t", descriptions)


def call(func: Callable[..., Any], arguments: object, ctx: object = None) -> Any:
    parameters = read(func)
    return parameters.bind(func, parameters.validate(arguments), ctx)()


def details(func: Callable[..., Any], arguments: object) -> dict[str, str]:
    with pytest.raises(InvalidArguments) as caught:
        read(func).validate(arguments)
    for item in caught.value.details:  # type: ignore[attr-defined]
        assert item["field"] in str(caught.value)
        assert item["message"] in str(caught.value)
    return {item["field"]: item["message"] for item in caught.value.details}  # type: ignore[attr-defined]


# -- the schema --


def test_the_schema_names_types_defaults_and_what_is_required() -> None:
    def func(rows: list[str], limit: Annotated[int, Field(ge=1)] = 10, mode: Literal["a", "b"] = "a") -> None: ...

    assert read(func, rows="The rows.").schema == {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "string"}, "description": "The rows."},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        },
        "required": ["rows"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def func() -> None: ...

    assert read(func).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_titles_are_gone_but_not_what_is_called_title() -> None:
    def func(title: str, outer: Outer, options: Options, level: Level = Level.LOW) -> None: ...

    schema = read(func).schema
    assert list(schema["properties"]) == ["title", "outer", "options", "level"]
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["properties"]["outer"] == {"$ref": "#/$defs/Outer"}
    assert schema["$defs"]["Options"]["properties"]["title"] == {"type": "string"}
    assert set(schema["$defs"]) == {"Inner", "Level", "Options", "Outer"}
    assert '"title": "' not in json.dumps(schema)


def test_the_default_of_a_schema_keeps_its_title() -> None:
    def func(options: dict[str, Any] = {"title": "x"}) -> None: ...  # noqa: B006

    assert read(func).schema["properties"]["options"]["default"] == {"title": "x"}


def test_a_field_describes_better_than_the_docstring() -> None:
    def func(
        a: Annotated[int, Field(description="field")],
        b: Annotated[int, Field(ge=0)],
        c: Outer,
        d: int = Field(3, description="field"),
    ) -> None: ...

    properties = read(func, a="doc", b="doc", c="doc", d="doc").schema["properties"]
    assert [item["description"] for item in properties.values()] == ["field", "doc", "doc", "field"]
    assert properties["b"]["minimum"] == 0
    assert properties["d"]["default"] == 3


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema() -> None:
    missing = object()

    def func(a: Any = missing) -> object:
        return a

    assert read(func).schema["properties"]["a"] == {}
    assert call(func, {}) is missing


def test_awkward_names_are_fine() -> None:
    def func(json: int, schema: int, copy: int, _x: int, model_config: int, a1: int, validate: int = 7) -> object:
        return json, schema, copy, _x, model_config, a1, validate

    names = ["json", "schema", "copy", "_x", "model_config", "a1", "validate"]
    assert list(read(func).schema["properties"]) == names
    assert call(func, {name: at for at, name in enumerate(names)}) == (0, 1, 2, 3, 4, 5, 6)
    assert details(func, {**dict.fromkeys(names, 1), "a0": 1}) == {"a0": "Unexpected argument"}


def test_an_alias_of_the_author_is_the_name_on_the_wire() -> None:
    def func(row_count: Annotated[int, Field(alias="rowCount")]) -> int:
        return row_count

    assert list(read(func).schema["properties"]) == ["rowCount"]
    assert call(func, {"rowCount": 3}) == 3


# -- what fits --


def test_values_come_from_their_json_forms() -> None:
    def func(
        day: date, key: uuid.UUID, pair: tuple[int, str], words: set[str], level: Level, raw: bytes, point: Point
    ) -> object:
        return day, key, pair, words, level, raw, point

    key = uuid.uuid4()
    arguments = {
        "day": "2026-01-02",
        "key": str(key),
        "pair": [1, "a"],
        "words": ["a", "b", "a"],
        "level": "high",
        "raw": "abc",
        "point": {"x": 1},
    }
    expected = (date(2026, 1, 2), key, (1, "a"), {"a", "b"}, Level.HIGH, b"abc", Point(1, 0))
    assert call(func, arguments) == expected


def test_strict_fields_accept_their_json_forms() -> None:
    def func(day: Annotated[date, Field(strict=True)]) -> date:
        return day

    assert call(func, {"day": "2026-01-02"}) == date(2026, 1, 2)


def test_python_callers_may_give_python_values() -> None:
    def func(day: date, outer: Outer, options: Options) -> object:
        return day, outer, options

    given_values = {
        "day": date(2026, 1, 2),
        "outer": Outer(inner=Inner(n=1)),
        "options": MappingProxyType({"depth": 1}),
    }
    assert call(func, MappingProxyType(given_values)) == (date(2026, 1, 2), Outer(inner=Inner(n=1)), {"depth": 1})


def test_models_arrive_as_models() -> None:
    def func(outer: Outer, maybe: Inner | None = None) -> object:
        return outer, maybe

    outer, maybe = call(func, {"outer": {"inner": {"n": 1}, "many": [{"n": 2, "level": "high"}]}})
    assert outer == Outer(inner=Inner(n=1), many=[Inner(n=2, level=Level.HIGH)])
    assert maybe is None


def test_integers_are_exact_and_unannotated_parameters_take_anything() -> None:
    def func(n: int, anything) -> object:  # type: ignore[no-untyped-def]
        return n, anything

    assert call(func, {"n": 2**70, "anything": {"a": [2**60, None]}}) == (2**70, {"a": [2**60, None]})


def test_mutable_defaults_are_copied_for_each_call() -> None:
    def func(rows: list[int] = [], inner: Inner = Inner(n=1), more: list[int] = Field([])) -> object:  # noqa: B006, B008
        rows.append(1)
        more.append(1)
        inner.n += 1
        return rows, inner.n, more

    parameters = read(func)
    for _ in range(2):
        assert parameters.bind(func, parameters.validate({}), None)() == ([1], 2, [1])


def test_defaults_may_come_from_a_factory() -> None:
    def func(key: Annotated[list[int], Field(default_factory=lambda: [7])]) -> list[int]:
        return key

    assert call(func, {}) == [7]


# -- what does not --


def test_each_field_that_does_not_fit_is_named() -> None:
    def func(rows: list[int], outer: Outer, limit: int = 1) -> None: ...

    arguments = {"rows": [1, "x"], "outer": {"inner": {"n": 1, "level": "no"}}, "foo": 1}
    assert details(func, arguments) == {
        "rows.1": "Input should be a valid integer, unable to parse string as an integer",
        "outer.inner.level": "Input should be 'low' or 'high'",
        "foo": "Unexpected argument",
    }


def test_the_message_reads_as_the_contract_says() -> None:
    def func(rows: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        parameters_of(func, "import_rows", {}).validate({"foo": 1})
    assert str(caught.value) == (
        'Arguments of "import_rows" do not fit: rows: Field required; foo: Unexpected argument'
    )
    assert (caught.value.status, caught.value.code) == (422, "invalid_arguments")


def test_ten_thousand_bad_rows_make_a_short_message() -> None:
    def func(rows: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        read(func).validate({"rows": ["x"] * 10_000})
    assert len(caught.value.details) == MAX_DETAILS  # type: ignore[arg-type]
    assert str(caught.value).endswith("; 9950 more")


@pytest.mark.parametrize(
    ("arguments", "found"), [([], "a list"), ("x", "a string"), (None, "null"), (3, "a number"), (True, "a boolean")]
)
def test_arguments_that_are_no_object_are_refused(arguments: object, found: str) -> None:
    def func() -> None: ...

    assert details(func, arguments) == {"": f"Input should be an object, not {found}"}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), object(), threading.Lock(), nested(100_000), nested(1_000), "\ud800", iter([])],
    ids=["nan", "inf", "object", "lock", "very deep", "deep", "surrogate", "iterator"],
)
def test_arguments_that_are_no_json_are_refused(value: object) -> None:
    def func(a: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r'^Arguments of "t" do not fit: '):
        read(func).validate({"a": value})


def test_a_validator_that_breaks_refuses_the_arguments() -> None:
    def func(a: Annotated[int, Field(max_length=3)]) -> None: ...

    assert details(func, {"a": 1})[""].startswith("TypeError: Unable to apply constraint")


def test_null_is_not_a_missing_argument() -> None:
    def func(limit: int = 1) -> None: ...

    assert details(func, {"limit": None}) == {"limit": "Input should be a valid integer"}


# -- the context --


def test_the_context_is_injected_and_no_argument() -> None:
    def plain(ctx: ToolContext, a: int) -> object:
        return ctx, a

    def optional(a: int, context: ToolContext | None = None) -> object:
        return context, a

    def old_style(a: int, *, c: Optional[ToolContext] = None) -> object:  # noqa: UP045
        return c, a

    def annotated(a: int, c: Annotated[ToolContext, "the context"]) -> object:
        return c, a

    def quoted(a: int, c: "ToolContext") -> object:
        return c, a

    def positional(c: ToolContext, a: int, /) -> object:
        return c, a

    ctx = object()
    for func in (plain, optional, old_style, annotated, quoted, positional):
        assert list(read(func).schema["properties"]) == ["a"]
        assert call(func, {"a": 1}, ctx) == (ctx, 1)
        for name in ("ctx", "context", "c"):
            with pytest.raises(InvalidArguments):
                read(func).validate({"a": 1, name: {}})


def test_a_context_imported_for_type_checking_only_is_recognised() -> None:
    scope: dict[str, Any] = {}
    exec("def func(c: 'ToolContext', a: int): return c, a", scope)  # noqa: S102
    assert call(scope["func"], {"a": 1}, "ctx") == ("ctx", 1)


def test_another_class_of_that_name_is_not_the_context() -> None:
    scope: dict[str, Any] = {"ToolContext": int}
    exec("def func(c: 'ToolContext'): return c", scope)  # noqa: S102
    assert call(scope["func"], {"c": 1}, "ctx") == 1


# -- kinds of parameters --


def test_positional_only_and_keyword_only_parameters_are_called_as_they_must() -> None:
    def func(a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5) -> object:
        return a, b, c, d, e

    assert call(func, {"d": 4, "a": 1}) == (1, 2, 3, 4, 5)
    assert call(func, {"e": 9, "d": 8, "c": 7, "b": 6, "a": 5}) == (5, 6, 7, 8, 9)


def test_what_a_partial_has_filled_is_no_argument() -> None:
    def func(a: int, b: str, c: int = 3) -> object:
        return a, b, c

    part = functools.partial(functools.partial(func, 1), b="x")
    assert list(read(part).schema["properties"]) == ["c"]
    assert call(part, {"c": 4}) == (1, "x", 4)


def test_a_wrapper_has_the_signature_of_what_it_wraps() -> None:
    def func(a: int, b: "Level") -> object:
        return a, b

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> object:
        return func(*args, **kwargs)

    assert call(wrapper, {"a": 1, "b": "low"}) == (1, Level.LOW)


# -- what cannot be read --


def star(*rows: int) -> None: ...
def double(**options: int) -> None: ...
def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def broken(fine: int, a: int) -> None: ...
def unusable(fine: int, a: threading.Event) -> None: ...
def silent(fine: int, a: Callable[[], int]) -> None: ...
def mixed(fine: int, a: ToolContext | str) -> None: ...


broken.__annotations__["a"] = "int["


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (star, r'^Tool "t": \*rows has no schema'),
        (double, r'^Tool "t": \*\*options has no schema'),
        (unknown, '^Tool "t": the annotation of "a" cannot be resolved: .*Nowhere'),
        (broken, '^Tool "t": the annotation of "a" cannot be resolved: '),
        (unusable, '^Tool "t": parameter "a" cannot be used: '),
        (silent, '^Tool "t": parameter "a" cannot be used: '),
        (mixed, '^Tool "t": parameter "a" cannot be used: '),
        (getattr, '^Tool "t" has no signature that can be read'),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(func: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        read(func)


# -- any signature --

Case = tuple[Any, Any, Any]  # annotation, argument as JSON, value in the call


def cases() -> st.SearchStrategy[Case]:
    integers = st.integers()
    simple: list[st.SearchStrategy[Case]] = [
        integers.map(lambda n: (int, n, n)),
        st.text(st.characters(codec="utf-8")).map(lambda s: (str, s, s)),
        st.booleans().map(lambda b: (bool, b, b)),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda f: (float, f, f)),
        st.sampled_from(Level).map(lambda level: (Level, level.value, level)),
        st.dates().map(lambda day: (date, day.isoformat(), day)),
        st.datetimes().map(lambda at: (datetime, at.isoformat(), at)),
        st.uuids().map(lambda key: (uuid.UUID, str(key), key)),
        st.lists(integers).map(lambda n: (list[int], n, n)),
        st.lists(integers).map(lambda n: (set[int], n, set(n))),
        st.tuples(integers, st.booleans()).map(lambda t: (tuple[int, bool], list(t), t)),
        st.dictionaries(st.text(st.characters(codec="utf-8")), integers).map(lambda d: (dict[str, int], d, d)),
        integers.map(lambda n: (Outer, {"inner": {"n": n}}, Outer(inner=Inner(n=n)))),
        integers.map(lambda n: (list[Inner], [{"n": n, "level": "high"}], [Inner(n=n, level=Level.HIGH)])),
        st.none().map(lambda n: (Inner | None, n, n)),
        integers.map(lambda n: (Optional[Inner], {"n": n}, Inner(n=n))),  # noqa: UP045
        integers.map(lambda n: (Any, [n, None], [n, None])),
    ]
    return st.one_of(simple)


NAMES = ["a", "a0", "a1", "json", "schema", "copy", "_x", "__y", "model_fields", "self", "dict", "ctx", "class_", "ü"]
signatures = st.dictionaries(st.sampled_from(NAMES), st.tuples(cases(), st.booleans()), max_size=6)


def function_of(signature: Mapping[str, tuple[Case, bool]]) -> Callable[..., Any]:
    """A function with these parameters that returns what it was called with; half of them have a default."""

    def func(**received: Any) -> dict[str, Any]:
        return received

    func.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=case[0],
                default="default" if optional else inspect.Parameter.empty,
            )
            for name, (case, optional) in signature.items()
        ]
    )
    return func


@given(signatures, st.data())
def test_arguments_that_fit_reach_the_call_as_their_types(
    signature: dict[str, tuple[Case, bool]], data: st.DataObject
) -> None:
    func = function_of(signature)
    left_out = [name for name, (_, optional) in signature.items() if optional and data.draw(st.booleans())]
    arguments = {name: case[1] for name, (case, _) in signature.items() if name not in left_out}
    expected = {name: "default" if name in left_out else case[2] for name, (case, _) in signature.items()}
    assert call(func, json.loads(json.dumps(arguments))) == expected


@given(signatures)
def test_the_schema_lists_exactly_the_parameters(signature: dict[str, tuple[Case, bool]]) -> None:
    schema = read(function_of(signature)).schema
    assert list(schema["properties"]) == list(signature)
    assert schema.get("required", []) == [name for name, (_, optional) in signature.items() if not optional]
    assert schema["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema


@given(signatures, st.text(st.characters(codec="utf-8")))
def test_unknown_arguments_are_refused_by_name(signature: dict[str, tuple[Case, bool]], name: str) -> None:
    func = function_of(signature)
    arguments = {known: case[1] for known, (case, _) in signature.items()}
    if name not in signature:
        assert details(func, {**arguments, name: 1}) == {name: "Unexpected argument"}
