"""The outcomes and results that the page on adapters has tables of: every row, by a call that ends so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway import (
    CANCELLED,
    TOOL_TIMEOUT,
    AbortSignal,
    AccessDenied,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    call_tool,
    is_cancelled,
    recode,
    tool,
)
from tests.docs.pages import page

ADAPTERS = page("docs/how-to/adapters.md")


@tool
async def answer(how: str) -> Any:
    if how == "raise":
        raise ValueError("the disk is full")
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "own":
        raise ToolError("quota", "No searches left.", retryable=True)
    return "Error: no such book" if how == "error" else "fine"


@tool(timeout=0.01)
async def slow(ctx: ToolContext) -> None:
    await asyncio.sleep(60)


@tool(timeout=0.01, annotations={"read_only": True})
async def slow_reader(ctx: ToolContext) -> None:
    await asyncio.sleep(60)


@tool(output_model=dict[str, int])
async def unfit() -> Any:
    return {"a": "many"}


@tool(timeout=0)
async def wait() -> None:
    await asyncio.sleep(60)


@tool
async def huge() -> str:
    return "a" * 5_000_000


@tool
async def asks(ctx: ToolContext) -> None:
    ctx.interrupt("Well?")


@tool(needs_approval=True)
async def guarded() -> None: ...


async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
    if call.input.get("how") == "denied":
        raise AccessDenied("No.")
    return await call_next(call)


ENDINGS: list[tuple[str, str, dict[str, Any], str | None]] = [
    ("it answered", "answer", {"how": "well"}, None),
    ("it answered `Error: …`, or set `is_error`", "answer", {"how": "error"}, None),
    ("it answered `Error [code]: …`, or raised `ToolError(code, …)`", "answer", {"how": "own"}, None),
    ("it raised", "answer", {"how": "raise"}, None),
    ("it raised `CancelledError` by itself", "answer", {"how": "cancel"}, None),
    ("the arguments do not fit", "answer", {"who": 1}, None),
    ("its result does not fit `output_model`", "unfit", {}, None),
    ("its result is larger than `max_result_bytes`", "huge", {}, None),
    ("a guard refused", "answer", {"how": "denied"}, None),
    ("it [asks](ask.md), or needs an approval: there is nobody to ask", "asks", {}, None),
    ("it [asks](ask.md), or needs an approval: there is nobody to ask", "guarded", {}, None),
    ("Stop", "wait", {}, "user"),
    ("no answer in time", "slow", {}, None),
    ("something else ended it", "wait", {}, "shutdown"),
    ("no such tool, or it is hidden", "nothing", {}, None),
]


def test_every_row_of_the_outcomes_is_tried() -> None:
    assert [row[0] for row in ADAPTERS.table("what happened")] == list(dict.fromkeys(what for what, *_ in ENDINGS))


@pytest.mark.parametrize(
    ("what", "name", "arguments", "reason"), ENDINGS, ids=[f"{what}: {name}" for what, name, *_ in ENDINGS]
)
async def test_an_outcome_is_as_the_table_says(
    what: str, name: str, arguments: dict[str, Any], reason: str | None
) -> None:
    row = next(row for row in ADAPTERS.table("what happened") if row[0] == what)
    _, status, text, code, retryable = (cell.strip(" `|") for cell in row)
    signal = AbortSignal()
    if reason:
        asyncio.get_running_loop().call_later(0.05, signal.abort, reason)
    output = await call_tool(
        ToolCall(name, arguments),
        [answer, slow, slow_reader, unfit, wait, huge, asks, guarded],
        signal=signal,
        middleware=[guard],
    )
    assert output.status == status
    error = (output.structured_content or {}).get("error", {"code": "–", "retryable": False})
    assert error["code"] == (code if code != "its own" else "quota")
    start = text.replace("[code]", "[quota]").partition("…")[0]
    assert output.text.startswith("fine" if text == "its answer" else start.partition(" is not")[0])
    assert is_cancelled(output.text) == (status == "cancelled")
    assert error["retryable"] == (retryable in ("yes", "only if it says so"))


async def test_a_reader_that_was_too_slow_may_be_tried_again() -> None:
    output = await call_tool(ToolCall("slow_reader"), [slow_reader])
    assert output.structured_content == {"error": {"code": "timeout", "retryable": True}}


@pytest.mark.parametrize(
    ("value", "structured", "text"),
    [
        ({"a": 1}, {"a": 1}, '{"a":1}'),
        ([1], {"result": [1]}, '{"result":[1]}'),
        (None, None, ""),
        ("text", None, "text"),
        ({"type": "text", "text": "a block"}, None, "a block"),
        (ToolOutput([{"type": "text", "text": "b"}], structured_content={"c": 1}), {"c": 1}, "b"),
    ],
)
async def test_a_result_becomes_what_the_table_says(value: Any, structured: Any, text: str) -> None:
    def returns() -> Any:
        return value

    output = await call_tool(ToolCall("returns"), [returns])
    assert (output.structured_content, output.text) == (structured, text)


def test_the_default_limit_and_the_text_of_a_stop_are_as_the_page_says() -> None:
    assert f"`TOOL_TIMEOUT`, {TOOL_TIMEOUT:g} s" in ADAPTERS.text
    assert CANCELLED in ADAPTERS.text
    theirs = ToolOutput([{"type": "text", "text": "Error: no"}])
    assert recode(recode(theirs)) == recode(theirs)
