"""Questions as AG-UI interrupts: the official model takes them, TanStack's client can answer them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core.events import Interrupt
from hypothesis import given
from hypothesis import strategies as st

from gateway.run.interrupts import approval_schema, interrupt_wire
from gateway.run.questions import APPROVAL_KEY, Question
from gateway.wire.codec import decode, encode
from gateway.wire.json_schema import check_schema, misfits
from gateway.wire.schema_events import Interrupt as Published

EXAMPLE = Path(__file__).parents[2] / "schemas" / "examples" / "RUN_FINISHED.interrupt.approval.json"
BINDING = "tanstack:interruptBinding"
ROWS = {"rows": ["a", "b"]}

# `digestInterruptJson(canonicalInterruptJson(schema))` of @tanstack/ai 0.58.0.
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
FORM_HASH = "sha256:049d6f9fcbe60a17a324f4ef329258ddf10f7396111f76903b9d8694900f5011"
ROWS_HASH = "sha256:1877d00882ead34938d297c73bfb0a00fb9e282e49f24dd39703f8cc9c02c9e7"

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def question(**more: Any) -> Question:
    return Question("interrupt-1", "call-1", "import_rows", 1764450000.0, kind="interrupt", **more)


def approval(arguments: dict[str, Any], **more: Any) -> Question:
    schema = approval_schema(arguments)
    return question(key=APPROVAL_KEY, reason="tool_call", response_schema=schema, arguments=arguments, **more)


def test_a_question_without_anything_has_what_an_interrupt_needs_and_a_binding() -> None:
    assert interrupt_wire(question(), "run-1") == {
        "id": "interrupt-1",
        "reason": "input_required",
        "toolCallId": "call-1",
        "metadata": {
            "toolName": "import_rows",
            "key": "input",
            BINDING: {
                "v": 1,
                "kind": "generic",
                "interruptId": "interrupt-1",
                "interruptedRunId": "run-1",
                "generation": 0,
            },
        },
    }


def test_a_question_with_a_form_has_the_hash_that_the_client_computes() -> None:
    wire = interrupt_wire(question(key="who", message="Who?", response_schema=FORM), "run-1")
    assert wire["message"] == "Who?"
    assert wire["responseSchema"] == FORM
    assert wire["metadata"]["key"] == "who"
    assert wire["metadata"][BINDING]["responseSchemaHash"] == FORM_HASH


def test_an_approval_is_the_published_example() -> None:
    wire = interrupt_wire(approval(ROWS, message="Import 2 rows?", expires_at=1764450000 + 7 * 86_400), "run-1")
    assert [wire] == json.loads(EXAMPLE.read_bytes())["outcome"]["interrupts"]
    assert wire["metadata"]["input"] == ROWS
    assert wire["metadata"][BINDING]["responseSchemaHash"] == ROWS_HASH


def test_an_approval_shows_no_key_and_a_question_no_input() -> None:
    assert "key" not in interrupt_wire(approval({}), "run-1")["metadata"]
    assert "input" not in interrupt_wire(question(arguments={"secret": 1}), "run-1")["metadata"]


@given(st.dictionaries(st.text(max_size=5), values, max_size=3), st.randoms(use_true_random=False))
def test_whatever_the_arguments_are_the_hash_is_that_of_the_schema_that_is_sent(arguments: Any, dice: Any) -> None:
    sent: Any = decode(encode(interrupt_wire(approval(arguments), "run-1")))
    keys = list(sent["responseSchema"])
    dice.shuffle(keys)
    again = question(response_schema={key: sent["responseSchema"][key] for key in keys})
    seen = interrupt_wire(again, "run-1")["metadata"][BINDING]["responseSchemaHash"]
    assert seen == sent["metadata"][BINDING]["responseSchemaHash"]
    Interrupt.model_validate(sent)
    Published.model_validate(sent)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ({"approved": True}, []),
        ({"approved": False, "message": "Not today."}, []),
        ({"approved": True, "arguments": {"rows": []}}, []),
        ({}, ["payload.approved"]),
        (None, ["payload"]),
        (True, ["payload"]),
        ({"approved": "yes"}, ["payload.approved"]),
        ({"approved": 1}, ["payload.approved"]),
        ({"approved": True, "arguments": [1]}, ["payload.arguments"]),
        ({"approved": True, "message": None}, ["payload.message"]),
        ({"approved": True, "editedArgs": {}}, ["payload.editedArgs"]),
    ],
)
def test_an_approval_takes_its_answer_and_nothing_else(answer: Any, wrong: list[str]) -> None:
    schema = approval_schema(ROWS)
    assert check_schema(schema) == schema
    assert [item["field"] for item in misfits(schema, answer)] == wrong


def test_the_form_of_an_approval_starts_from_the_arguments_of_the_call() -> None:
    assert approval_schema(ROWS)["properties"]["arguments"]["default"] == ROWS
