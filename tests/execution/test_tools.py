"""`@tool`: what a tool is made of, what each option accepts, and what its result must look like."""

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from gateway.errors import InvalidArguments, ToolError
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import ToolOutput
from gateway.execution.tools import Tool, tool


class Row(BaseModel):
    """One row."""

    name: str
    n: int = 0


@dataclass
class Point:
    x: int


@dataclass
class Locked:
    """Nothing that pydantic could validate."""

    lock: threading.Event


class Size(TypedDict):
    width: int


def plain(a: int, b: int = 2) -> int:
    """Add two numbers.

    Slowly.

    Args:
        a: The first.
    """
    return a + b


def produces(result: object) -> Callable[..., Any]:
    """A function whose return annotation is `result`."""

    def func() -> Any: ...

    func.__annotations__["return"] = result
    return func


# -- the decorator --


def test_a_bare_decorator_takes_all_from_the_function() -> None:
    made = tool(plain)
    assert (made.name, made.description, made.kind) == ("plain", "Add two numbers.", "plain")
    assert made.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (made.timeout, made.task_support, made.visibility) == (None, "optional", "visible")
    assert (made.isolation, made.cooperative, made.needs_approval) == ("thread", False, False)
    assert (made.requires, made.output_model, made.events) == (frozenset(), None, {})
    assert (made.annotations, made.output_schema) == ({}, None)
    assert not made.retryable


def test_the_three_forms_make_the_same_tool() -> None:
    decorated = tool(timeout=5, name="add")(plain)
    direct = tool(plain, timeout=5, name="add")
    built = Tool(plain, timeout=5, name="add")
    assert decorated.descriptor() == direct.descriptor() == built.descriptor()


def test_a_tool_stays_callable_and_keeps_the_names_of_its_function() -> None:
    made = tool(plain)
    assert made(1, b=3) == 4
    assert (made.__name__, made.__module__) == ("plain", __name__)  # type: ignore[attr-defined]
    assert made.__doc__ == plain.__doc__
    assert inspect.signature(made) == inspect.signature(plain)
    assert repr(made) == "<Tool 'plain'>"


async def test_an_async_tool_called_directly_gives_its_coroutine() -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8


def test_validated_arguments_are_bound_with_the_context() -> None:
    @tool
    def func(ctx: ToolContext, row: Row) -> object:
        return ctx, row

    ctx: Any = object()
    assert func.bind(func.validate({"row": {"name": "x"}}), ctx)() == (ctx, Row(name="x"))


def test_arguments_that_do_not_fit_are_refused_with_the_name_of_the_tool() -> None:
    made = tool(plain, name="add")
    with pytest.raises(InvalidArguments, match=r'^Arguments of "add" do not fit: a: Field required$'):
        made.validate({})


# -- what can be a tool --


def test_each_kind_of_function_is_told_apart() -> None:
    async def coroutine() -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    class Instance:
        """Does it."""

        async def __call__(self, n: int) -> int:
            return n

    kinds = [tool(func).kind for func in (plain, coroutine, generator, async_generator, Instance())]
    assert kinds == ["plain", "async", "generator", "async_generator", "async"]
    assert tool(functools.partial(coroutine)).kind == "async"


def test_a_bound_method_is_a_tool() -> None:
    class Store:
        def __init__(self) -> None:
            self.rows = [1, 2]

        async def count(self, at_least: int) -> int:
            """Count rows."""
            return sum(row >= at_least for row in self.rows)

        @classmethod
        def make(cls, n: "int") -> str:
            return f"{cls.__name__}{n}"

        @staticmethod
        def twice(n: int) -> int:
            return 2 * n

    made = tool(Store().count)
    assert (made.name, made.description, made.kind) == ("count", "Count rows.", "async")
    assert list(made.parameters["properties"]) == ["at_least"]
    assert tool(Store.make).bind({"n": 1}, None)() == "Store1"
    assert tool(Store.twice)(2) == 4
    assert tool(Store.__dict__["twice"])(2) == 4


def test_an_instance_is_a_tool_named_after_its_class() -> None:
    class Adder:
        """Adds."""

        def __call__(self, a: int) -> int:
            return a + 1

    made = tool(Adder())
    assert (made.name, made.description) == ("Adder", "Adds.")
    assert made.bind(made.validate({"a": 1}), None)() == 2


def test_a_partial_is_a_tool_of_what_is_left() -> None:
    made = tool(functools.partial(plain, b=5))
    assert (made.name, made.description) == ("plain", "Add two numbers.")
    assert list(made.parameters["properties"]) == ["a"]
    assert made.bind(made.validate({"a": 1}), None)() == 6


class Holder:
    def method(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Row, "made of a function"),
        (3, "made of a function"),
        (classmethod(lambda cls: None), "made of a function"),
        (tool(plain), '"plain" is already a tool'),
        (Holder.method, r"use `tool\(obj\.method\)`"),
    ],
)
def test_what_is_no_function_is_refused(thing: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tool(thing)


# -- options --


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True))
def test_any_name_of_the_allowed_letters_is_kept(name: str) -> None:
    assert tool(plain, name=name).name == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "a\n", "x" * 129])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a tool name"):
        tool(plain, name=name)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ValueError, match="'<lambda>' is not a tool name"):
        tool(lambda: 1)
    assert tool(lambda: 1, name="one")() == 1


@pytest.mark.parametrize("timeout", [None, 0, 1, 0.5, 1e9])
def test_a_timeout_is_seconds_or_none(timeout: float | None) -> None:
    assert tool(plain, timeout=timeout).timeout == timeout


GOOD: list[tuple[dict[str, Any], object]] = [
    ({"description": "Other."}, "Other."),
    ({"task_support": "required"}, "required"),
    ({"visibility": "hidden"}, "hidden"),
    ({"isolation": "process"}, "process"),
    ({"cooperative": True}, True),
    ({"needs_approval": True}, True),
    ({"needs_approval": plain}, plain),
    ({"requires": "rows:write"}, {"rows:write"}),
    ({"requires": ["a", "b"]}, {"a", "b"}),
    ({"requires": ()}, set()),
    ({"events": {"import.row": Row, "import.size": Size}}, {"import.row": Row, "import.size": Size}),
    ({"events": None}, {}),
    ({"annotations": {"read_only": True, "destructive": False}}, {"read_only": True, "destructive": False}),
    ({"annotations": None}, {}),
    ({"output_model": Row}, Row),
]


@pytest.mark.parametrize(("options", "kept"), GOOD)
def test_an_option_is_kept(options: dict[str, Any], kept: object) -> None:
    made = tool(plain, **options)
    assert [getattr(made, name) for name in options] == [kept]


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"timout": 3}, TypeError, "Unknown option of tool: timout"),
    ({"name": 3}, TypeError, "name must be a str"),
    ({"description": 3}, TypeError, "description must be a str"),
    ({"timeout": True}, TypeError, "timeout must be a number"),
    ({"timeout": "3"}, TypeError, "timeout must be a number"),
    ({"timeout": -1}, ValueError, "timeout must be 0"),
    ({"timeout": float("nan")}, ValueError, "timeout must be 0"),
    ({"timeout": float("inf")}, ValueError, "timeout must be 0"),
    ({"task_support": "maybe"}, ValueError, "task_support must be one of forbidden, optional, required"),
    ({"visibility": None}, ValueError, "visibility must be one of visible, hidden"),
    ({"isolation": "fork"}, ValueError, "isolation must be one of thread, process"),
    ({"cooperative": 1}, TypeError, "cooperative must be True or False"),
    ({"needs_approval": "yes"}, TypeError, "needs_approval must be True, False or a callable"),
    ({"requires": 3}, TypeError, "requires must be"),
    ({"requires": [3]}, TypeError, "requires must hold scopes"),
    ({"requires": ""}, TypeError, "requires must hold scopes"),
    ({"output_model": object()}, TypeError, 'output_model of "plain" cannot be validated'),
    ({"events": [Row]}, TypeError, "events must be"),
    ({"events": {"tool.result": Row}}, ValueError, "tool."),
    ({"events": {"": Row}}, ValueError, "empty"),
    ({"events": {3: Row}}, TypeError, "str"),
    ({"events": {"row": object()}}, TypeError, r'events\["row"\] cannot be validated'),
    ({"annotations": [1]}, TypeError, "annotations must be a mapping"),
    ({"annotations": {"readonly": True}}, TypeError, "Unknown annotation 'readonly'"),
    ({"annotations": {"read_only": 1}}, TypeError, "annotation read_only must be True or False"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD)
def test_a_wrong_option_is_named_at_decoration(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        tool(plain, **options)


async def coroutine() -> None: ...
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "func",
    [coroutine, generator, lambda: 1, produces(int), Holder().method, functools.partial(plain, 1), print],
    ids=["async", "generator", "lambda", "nested", "method", "partial", "builtin"],
)
def test_only_a_plain_function_of_a_module_runs_in_a_process(func: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match='isolation="process" needs a plain function'):
        tool(func, name="it", isolation="process")


@pytest.mark.parametrize(
    ("annotations", "retryable"),
    [
        ({"read_only": True}, True),
        ({"idempotent": True}, True),
        ({"read_only": False, "idempotent": False}, False),
        ({"destructive": True, "open_world": True}, False),
    ],
)
def test_what_changes_nothing_twice_may_be_retried(annotations: dict[str, bool], retryable: bool) -> None:
    assert tool(plain, annotations=annotations).retryable is retryable


def test_a_descriptor_has_the_names_of_the_wire() -> None:
    made = tool(plain, output_model=Row, annotations={"read_only": True, "open_world": False}, task_support="required")
    assert made.descriptor(default_timeout=30) == {
        "name": "plain",
        "description": "Add two numbers.",
        "parameters": made.parameters,
        "outputSchema": made.output_schema,
        "timeout": 30,
        "taskSupport": "required",
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    assert tool(plain).descriptor()["timeout"] is None
    assert tool(plain, timeout=0).descriptor(30)["timeout"] == 0
    assert "outputSchema" not in tool(plain).descriptor()


# -- the result --

ROW_SCHEMA = {
    "type": "object",
    "description": "One row.",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 0}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("model", "schema"),
    [
        (Row, ROW_SCHEMA),
        (Point, {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            list[Row],
            {
                "type": "object",
                "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
                "required": ["result"],
                "$defs": {"Row": ROW_SCHEMA},
            },
        ),
        (int, {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}),
        (str, None),
        (Callable[[], int], None),
        (Row | None, None),
    ],
)
def test_the_output_schema_is_that_of_the_structured_content(model: object, schema: object) -> None:
    assert tool(plain, output_model=model).output_schema == schema


@pytest.mark.parametrize(
    ("annotation", "described"),
    [
        (Row, True), (Point, True), (Size, True), ("Row", True),
        (dict[str, int], False), (dict, False), (int, False), (None, False), (ToolOutput, False),
        ("Nowhere", False), (Any, False), (Locked, False),
    ],
)  # fmt: skip
def test_a_return_annotation_that_is_a_model_gives_the_output_schema(annotation: object, described: bool) -> None:
    made = tool(produces(annotation), name="it")
    assert (made.output_schema is not None) is described
    assert made.check_output({"any": "thing"}) == {"any": "thing"}


def test_the_output_model_comes_before_the_return_annotation() -> None:
    assert tool(produces(Point), name="it", output_model=Row).output_schema == ROW_SCHEMA


class Node(BaseModel):
    children: "list[Node]" = []


def test_the_schema_of_a_model_that_holds_itself_is_an_object_too() -> None:
    schema = tool(plain, output_model=Node).output_schema
    assert schema is not None
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "Node" in schema["$defs"]


@pytest.mark.parametrize(
    ("model", "value", "checked"),
    [
        (Row, {"name": "a"}, Row(name="a")),
        (Row, Row(name="a"), Row(name="a")),
        (list[Row], [{"name": "a"}], [Row(name="a")]),
        (str, "text", "text"),
        (None, object, object),
        (Row, "Error: no", "Error: no"),
        (Row, "Error [busy]: no", "Error [busy]: no"),
    ],
)
def test_a_result_is_validated(model: object, value: object, checked: object) -> None:
    assert tool(plain, output_model=model).check_output(value) == checked


@pytest.mark.parametrize(
    ("model", "output"),
    [
        (Row, ToolOutput([], structured_content={"name": "a"})),
        (list[int], ToolOutput([], structured_content={"result": [1]})),
        (Row, ToolOutput([{"type": "text", "text": "no structure"}])),
        (Row, ToolOutput([], True, {"other": 1})),
        (Row, ToolOutput([{"type": "text", "text": "Error: x"}], structured_content={"other": 1})),
    ],
)
def test_an_output_that_fits_or_reports_an_error_is_returned_as_it_is(model: object, output: ToolOutput) -> None:
    assert tool(plain, output_model=model).check_output(output) is output


@pytest.mark.parametrize(
    ("model", "value", "path"),
    [
        (Row, {"name": 3}, "name: Input should be a valid string"),
        (Row, {}, "name: Field required"),
        (list[Row], [{"name": "a"}, {"n": 1}], "1.name: Field required"),
        (Row, None, "Input should be a valid dictionary or instance of Row"),
        (Row, ToolOutput([], structured_content={"n": 1}), "name: Field required"),
        (list[int], ToolOutput([], structured_content={"result": ["x"]}), "0: Input should be a valid integer"),
    ],
)
def test_a_result_that_does_not_fit_is_failed_and_names_the_path(model: object, value: object, path: str) -> None:
    with pytest.raises(ToolError) as caught:
        tool(plain, name="t", output_model=model).check_output(value)
    assert caught.value.code == "failed"
    assert str(caught.value).startswith(f'The result of "t" does not fit: {path}')
