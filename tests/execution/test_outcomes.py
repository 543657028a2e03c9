"""Every row of contract 5.1 that needs no clock, no person and no page; and that any value at all makes an output."""

import asyncio
import dataclasses
import datetime
import enum
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from ag_ui.core import ImagePart, TextPart
from ag_ui.core import UrlSource as Url
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from gateway.errors import AccessDenied, ToolError
from gateway.execution import outcomes
from gateway.execution.outcomes import CANCELLED, NAVIGATED, WHAT_ENDED, ToolOutput, error_of, output_of, recode
from gateway.wire.codec import Change

CODED = re.compile(r"Error \[([^\[\]\r\n]+)\]:")


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def error(code: str, retryable: bool = False) -> dict[str, Any]:
    return {"error": {"code": code, "retryable": retryable}}


# -- the texts of 5.1 --

ENDINGS = {
    "cancelled": (
        outcomes.cancelled(),
        "cancelled",
        "Error [cancelled]: Cancelled by the user.",
        error("cancelled"),
    ),
    "timeout": (
        outcomes.timed_out("add", 30.0, False),
        "timeout",
        'Error [timeout]: "add" didn\'t answer within 30 s, so it was stopped. '
        "It may have done its work: check before retrying.",
        error("timeout"),
    ),
    "timeout of a read-only tool": (
        outcomes.timed_out("add", 0.1 + 0.2, True),
        "timeout",
        'Error [timeout]: "add" didn\'t answer within 0.3 s, so it was stopped. '
        "It may have done its work: check before retrying.",
        error("timeout", True),
    ),
    "interrupted": (
        outcomes.interrupted("add", WHAT_ENDED["run_timeout"], True),
        "interrupted",
        'Error [interrupted]: "add" was ended by the run\'s time limit before it finished. '
        "It may have done its work: check before retrying.",
        error("interrupted", True),
    ),
    "interrupted by its page": (
        outcomes.interrupted("add", "", False, on_page=True),
        "interrupted",
        "Error [interrupted]: The page cancelled this call before it finished. Check the page before retrying.",
        error("interrupted"),
    ),
    "unavailable": (
        outcomes.unavailable("add"),
        "unavailable",
        'Error [unavailable]: Tool "add" is not available right now. Use another tool or try again later.',
        error("unavailable", True),
    ),
    "unavailable on its page": (
        outcomes.unavailable("add", on_page=True),
        "unavailable",
        'Error [unavailable]: Tool "add" is not on this page right now. Use another tool or try again later.',
        error("unavailable", True),
    ),
    "invalid arguments": (
        outcomes.invalid_arguments("x: Field required", [{"field": "x", "message": "Field required"}]),
        "failed",
        "Error [invalid_arguments]: x: Field required",
        {"details": [{"field": "x", "message": "Field required"}], **error("invalid_arguments")},
    ),
    "denied": (outcomes.denied("Not today."), "failed", "Error [denied]: Not today.", error("denied")),
    "too large": (
        outcomes.too_large(4194304),
        "failed",
        "Error [too_large]: The result is larger than 4194304 bytes.",
        error("too_large"),
    ),
    "failed": (outcomes.failed("No."), "failed", "Error [failed]: No.", error("failed")),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_has_the_status_text_and_code_of_the_contract(name: str) -> None:
    output, status, said, structured = ENDINGS[name]
    assert (output.status, output.text, output.is_error) == (status, said, True)
    assert output.structured_content == structured
    assert output.to_wire() == {
        "content": [text(said)],
        "isError": True,
        "structuredContent": structured,
        "status": status,
    }


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_recoded_to_itself(name: str) -> None:
    output = ENDINGS[name][0]
    assert recode(output) == output


def test_a_page_that_navigated_is_unknown_and_no_error() -> None:
    output = outcomes.navigated()
    assert output.to_wire() == {"content": [text(NAVIGATED)], "isError": False, "status": "unknown"}
    assert recode(output) is output


def test_every_abort_reason_has_words_for_what_ended_the_call() -> None:
    reasons = {"user", "timeout", "disconnect", "run_timeout", "shutdown", "superseded", "store", "tool"}
    assert set(WHAT_ENDED) == reasons


def test_cancelled_is_recognised_in_both_forms() -> None:
    assert outcomes.is_cancelled(CANCELLED)
    assert outcomes.is_cancelled("Error [cancelled] by somebody")
    assert outcomes.is_cancelled("Cancelled by the user before codes existed")
    assert not outcomes.is_cancelled("It was Cancelled by the user.")
    assert not outcomes.is_cancelled("Error [timeout]: Cancelled by the user.")


# -- what a tool answers --


@pytest.mark.parametrize(
    ("answer", "said", "structured"),
    [
        ("Error: no disk", "Error [failed]: no disk", error("failed")),
        ("Error:\nno disk", "Error [failed]: no disk", error("failed")),
        ("Error:", "Error [failed]: The tool reported an error.", error("failed")),
        (ToolOutput([text("no disk")], True), "Error [failed]: no disk", error("failed")),
        (ToolOutput([text("")], True), "Error [failed]: The tool reported an error.", error("failed")),
        (ToolOutput([], True), "Error [failed]: The tool reported an error.", error("failed")),
        (ToolOutput([text("x")], True, {"rows": 3}), "Error [failed]: x", {"rows": 3, **error("failed")}),
        (
            ToolOutput([text("x")], True, {"error": {"retryable": True, "why": 1}}),
            "Error [failed]: x",
            {"error": {"code": "failed", "retryable": False, "why": 1}},
        ),
        (
            ToolOutput([text("slow down")], True, error("rate_limited", True)),
            "Error [rate_limited]: slow down",
            error("rate_limited", True),
        ),
        ("Error [busy]: later", "Error [busy]: later", error("busy")),
        (ToolOutput([text("Error [busy]: later")]), "Error [busy]: later", error("busy")),
        (
            ToolOutput([text("Error [busy]: later")], structured_content={"n": 1, **error("busy", True)}),
            "Error [busy]: later",
            {"n": 1, **error("busy", True)},
        ),
        (
            ToolOutput([text("Error [busy]: later")], structured_content={"error": "a text"}),
            "Error [busy]: later",
            error("busy"),
        ),
        ([text("Error: no disk")], "Error [failed]: no disk", error("failed")),
        (ToolOutput([text(CANCELLED)], True, None, "cancelled"), CANCELLED, error("cancelled")),
    ],
)
def test_an_answer_that_reports_an_error_is_failed_and_coded(
    answer: object, said: str, structured: Mapping[str, Any]
) -> None:
    output = output_of(answer)
    assert (output.text, output.is_error, output.status) == (said, True, "failed")
    assert output.structured_content == structured


def test_only_the_first_text_block_is_recoded() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    output = recode(ToolOutput([image, text("Error: a"), text("Error: b")]))
    assert output.content == [image, text("Error [failed]: a"), text("Error: b")]


def test_an_error_without_text_gets_one_before_its_other_blocks() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    output = recode(ToolOutput([image], True))
    assert output.content == [text("Error [failed]: The tool reported an error."), image]


@pytest.mark.parametrize(
    "said", ["Error", "error: x", "Errors: 3", "An Error: x", "Error [x", "Error []: x", "Error:404"]
)
def test_text_that_merely_looks_like_an_error_is_an_answer(said: str) -> None:
    output = output_of(said)
    assert output == ToolOutput([text(said)])
    assert not outcomes.reports_error(said)


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("not even this")


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Row(BaseModel):
    name: str
    when: datetime.date


WHEN = datetime.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("value", "structured", "said"),
    [
        (None, None, ""),
        ("", None, ""),
        ("hello", None, "hello"),
        (Word("hello"), None, "hello"),
        ({"a": [1, 2]}, {"a": [1, 2]}, '{"a":[1,2]}'),
        (MappingProxyType({"a": 1}), {"a": 1}, '{"a":1}'),
        ({}, {}, "{}"),
        (Point(1, 2), {"x": 1, "y": 2}, '{"x":1,"y":2}'),
        (
            Row(name="n", when=WHEN),
            {"name": "n", "when": "2026-01-02"},
            '{"name":"n","when":"2026-01-02"}',
        ),
        (RootModel[list[int]]([1]), {"result": [1]}, '{"result":[1]}'),
        ([1, "a", None], {"result": [1, "a", None]}, '{"result":[1,"a",null]}'),
        ((1, 2), {"result": [1, 2]}, '{"result":[1,2]}'),
        ([], {"result": []}, '{"result":[]}'),
        (7, {"result": 7}, '{"result":7}'),
        (1.5, {"result": 1.5}, '{"result":1.5}'),
        (True, {"result": True}, '{"result":true}'),
        (Decimal("1.10"), {"result": "1.10"}, '{"result":"1.10"}'),
        (Colour.RED, {"result": "red"}, '{"result":"red"}'),
        (WHEN, {"result": "2026-01-02"}, '{"result":"2026-01-02"}'),
        (uuid.UUID(int=0), {"result": str(uuid.UUID(int=0))}, f'{{"result":"{uuid.UUID(int=0)}"}}'),
        (float("nan"), {"result": None}, '{"result":null}'),
        (iter([1]), {"result": {"$unserializable": "list_iterator"}}, '{"result":{"$unserializable":"list_iterator"}}'),
        ({"type": "text"}, {"type": "text"}, '{"type":"text"}'),
        ({"type": "image", "data": None}, {"type": "image", "data": None}, '{"type":"image","data":null}'),
        ([text("a"), 1], {"result": [text("a"), 1]}, '{"result":[{"type":"text","text":"a"},1]}'),
    ],
)
def test_a_value_becomes_text_and_structured_content(value: object, structured: object, said: str) -> None:
    output = output_of(value)
    assert (output.structured_content, output.text) == (structured, said)
    assert output.content == [text(said)]
    assert (output.is_error, output.status) == (False, "completed")


RESOURCE = {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (text("a"), [text("a")]),
        ([text("a"), RESOURCE, LINK], [text("a"), RESOURCE, LINK]),
        ((text("a"),), [text("a")]),
        (TextPart(text="a"), [text("a")]),
        (
            [TextPart(text="a"), ImagePart(source=Url(type="url", value="http://h/a.png"))],
            [text("a"), {"type": "image", "source": {"type": "url", "value": "http://h/a.png"}}],
        ),
    ],
)
def test_content_blocks_pass(value: object, content: object) -> None:
    output = output_of(value)
    assert output.content == content
    assert output.structured_content is None


def test_the_text_of_several_blocks_is_one_line_each() -> None:
    assert output_of([text("a"), LINK, text("b")]).text == "a\nb"


def test_the_text_without_blocks_is_the_structured_content() -> None:
    assert ToolOutput(structured_content={"a": 1}).text == '{"a":1}'
    assert ToolOutput().text == ""


def test_an_output_that_a_tool_makes_is_made_plain() -> None:
    content: Any = [TextPart(text="a"), "b", 3]
    made = ToolOutput(content, structured_content={"when": WHEN}, status="timeout")
    assert output_of(made).to_wire() == {
        "content": [text("a"), text("b"), text("3")],
        "isError": False,
        "structuredContent": {"when": "2026-01-02"},
        "status": "completed",
    }
    careless: Any = ToolOutput("just text", structured_content=[1])  # type: ignore[arg-type]
    assert output_of(careless) == ToolOutput([text("just text")], structured_content={"result": [1]})


def test_what_json_cannot_hold_is_reported() -> None:
    changes: list[Change] = []
    output = output_of({"a": [float("inf")], "b": "\ud800"}, changes)
    assert output.structured_content == {"a": [None], "b": "\ufffd"}
    assert sorted(changes) == [Change("nan", "$.a[0]"), Change("surrogate", "$.b")]
    changes.clear()
    assert output_of("x\ud800", changes).text == "x\ufffd"
    assert [change.kind for change in changes] == ["surrogate"]
    changes.clear()
    assert output_of([2**53], changes).structured_content == {"result": ["9007199254740992"]}
    assert changes == [Change("int", "$.result[0]")]


# -- what a tool raises --


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("exc", "said"),
    [
        (ValueError("no disk"), "Error [failed]: no disk"),
        (ValueError(), "Error [failed]: ValueError"),
        (ValueError("  "), "Error [failed]: ValueError"),
        (ValueError("Error: no disk"), "Error [failed]: no disk"),
        (ValueError("Error [failed]: no disk"), "Error [failed]: no disk"),
        (asyncio.CancelledError(), "Error [failed]: The tool cancelled itself."),
        (KeyboardInterrupt(), "Error [failed]: KeyboardInterrupt"),
        (SystemExit("bye"), "Error [failed]: bye"),
        (ExceptionGroup("several", [ValueError("a")]), "Error [failed]: several"),
        (BaseExceptionGroup("several", [KeyboardInterrupt()]), "Error [failed]: several"),
        (Hostile(), "Error [failed]: Hostile"),
        (ValueError("\ud800"), "Error [failed]: \ufffd"),
    ],
)
def test_what_a_tool_raises_is_failed_with_its_message(exc: BaseException, said: str) -> None:
    assert error_of(exc) == ToolOutput([text(said)], True, error("failed"), "failed")


def test_a_tool_error_keeps_code_retryable_and_data() -> None:
    output = error_of(ToolError("rate_limited", "Wait.", retryable=True, data={"until": WHEN}))
    assert output.to_wire() == {
        "content": [text("Error [rate_limited]: Wait.")],
        "isError": True,
        "structuredContent": {"until": "2026-01-02", **error("rate_limited", True)},
        "status": "failed",
    }


@pytest.mark.parametrize(
    ("exc", "said", "code"),
    [
        (AccessDenied("Not you."), "Error [denied]: Not you.", "denied"),
        (ToolError("a", "Error [b]: c"), "Error [a]: c", "a"),
        (ToolError("a]\nb", "c"), "Error [a__b]: c", "a__b"),
        (ToolError("", "c"), "Error [failed]: c", "failed"),
        (ToolError("a", ""), "Error [a]: ToolError", "a"),
        (RuntimeError("Error [busy]: again"), "Error [busy]: again", "busy"),
    ],
)
def test_a_code_is_never_doubled_nor_broken(exc: Exception, said: str, code: str) -> None:
    output = error_of(exc)
    assert (output.text, output.structured_content, output.status) == (said, error(code), "failed")


# -- the wire --


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ({"content": "text"}, "content"),
        ({"content": ["text"]}, "content"),
        ({"isError": 1}, "isError"),
        ({"structuredContent": []}, "structuredContent"),
        ({"status": None}, "status"),
    ],
)
def test_an_output_from_elsewhere_that_does_not_fit_names_the_field(wire: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be"):
        ToolOutput.from_wire(wire)


# -- any value at all --


class Odd:
    """Fails at everything that an encoder may try."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("iter")

    def __str__(self) -> str:
        raise RuntimeError("str")

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise RuntimeError("bool")


class Faceless:
    __class__ = property(lambda self: 1 / 0)


def test_an_object_that_cannot_say_its_class_makes_an_output() -> None:
    assert output_of(Faceless()).structured_content == {"result": {"$unserializable": "Faceless"}}


class OddMapping(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        raise RuntimeError("len")


def loop() -> list[object]:
    cycle: list[object] = []
    cycle.append(cycle)
    return cycle


odd_makers: list[Callable[[], object]] = [
    Odd, OddMapping, loop, object, lambda: Odd, lambda: print, lambda: (n for n in "ab"), lambda: ValueError("x"),
    lambda: Point(1, Odd()),  # type: ignore[arg-type]
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(codec=None)),
    st.sampled_from(["Error: x", "Error:", "Error [a]: b", "Error [a", "Error [failed]: ", CANCELLED, "Error"]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(), st.decimals(), st.dates(), st.uuids(),
    st.timedeltas(), st.complex_numbers(), st.just(Colour.RED), st.sampled_from(odd_makers).map(lambda make: make()),
)  # fmt: skip
blocks = st.builds(text, texts)
values = st.recursive(
    scalars | blocks,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(blocks, min_size=1),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(texts, st.integers(), st.none(), st.booleans()), inner),
        st.dictionaries(st.sampled_from(["type", "text", "data", "error", "code"]), inner),
    ),
    max_leaves=12,
)
outputs = st.builds(
    ToolOutput,
    st.lists(blocks | st.dictionaries(st.text(), scalars)),
    st.booleans(),
    st.none() | st.dictionaries(texts, values) | st.fixed_dictionaries({"error": values}),
    st.sampled_from(["completed", "failed", "timeout", "unknown", "anything"]),
)


@given(values | outputs)
def test_any_value_makes_an_output_that_is_plain_json(value: object) -> None:
    output = output_of(value)
    wire = output.to_wire()
    assert json.loads(json.dumps(wire, allow_nan=False).encode()) == wire
    assert ToolOutput.from_wire(wire) == output
    assert output.status == ("failed" if output.is_error else "completed")


@given(values | outputs)
def test_text_begins_with_a_code_exactly_when_it_is_an_error(value: object) -> None:
    output = output_of(value)
    found = CODED.match(output.text)
    assert bool(found) is output.is_error
    if found:
        assert output.structured_content is not None
        told = output.structured_content["error"]
        assert (told["code"], type(told["retryable"])) == (found[1], bool)


@given(values | outputs)
def test_recoding_twice_changes_nothing(value: object) -> None:
    output = output_of(value)
    assert recode(output) == output
    assert output_of(output) == output


@given(texts, texts, st.booleans())
def test_any_error_raised_makes_a_coded_output(code: str, message: str, retryable: bool) -> None:
    for exc in (ToolError(code, message, retryable=retryable), ValueError(message)):
        output = error_of(exc)
        assert output.is_error
        assert CODED.match(output.text)
        assert json.dumps(output.to_wire()).encode()
        assert recode(output) == output


def test_a_content_block_without_what_its_kind_needs_is_shown_as_text() -> None:
    output = output_of(ToolOutput([{"type": "text", "text": 5}, {"type": "of_tomorrow", "x": 1}]))
    assert output.content == [{"type": "text", "text": '{"type":"text","text":5}'}, {"type": "of_tomorrow", "x": 1}]
