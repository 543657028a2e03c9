"""The order machine refuses exactly what the official verifier refuses, and says what closes the rest."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OrderError
from gateway.run.order import BRACKETS, TERMINALS, OrderMachine

FREE = ["CUSTOM", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "TOOL_CALL_RESULT", "RAW", "SOMETHING_NEW"]
KINDS = [*(kind for b in BRACKETS for kind in (b.start, *b.inner, b.end)), *FREE, "RUN_STARTED", *sorted(TERMINALS)]

MORE: dict[str, dict[str, Any]] = {"MESSAGES_SNAPSHOT": {"messages": []}, "TOOL_CALL_RESULT": {"messageId": "r"}}

items = st.tuples(st.sampled_from(KINDS), st.sampled_from(["x", "y"]))


def event(kind: str, name: str) -> dict[str, Any]:
    key = next((b.key for b in BRACKETS if kind in (b.start, *b.inner, b.end)), "id")
    return {"type": kind, key: name, **MORE.get(kind, {})}


def accepted(sequence: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the machine takes of a sequence, leaving out what it refuses."""
    machine = OrderMachine()
    taken = []
    for kind, name in sequence:
        before = (dict(machine._open), machine.started, machine.over)
        try:
            machine.feed(kind, event(kind, name))
        except OrderError:
            assert (machine._open, machine.started, machine.over) == before
        else:
            taken.append((kind, name))
    return taken


@given(st.lists(items, max_size=40))
def test_what_is_taken_is_a_run_as_the_protocol_describes_it(sequence: list[tuple[str, str]]) -> None:
    taken = accepted([("RUN_STARTED", "x"), *sequence])
    kinds = [kind for kind, _ in taken]
    assert kinds[0] == "RUN_STARTED"
    assert kinds.count("RUN_STARTED") == 1
    assert [kind for kind in kinds if kind in TERMINALS] in ([], [kinds[-1]])
    for bracket in BRACKETS:
        for name in ("x", "y"):
            depth = 0
            for kind, of in taken:
                if of != name:
                    continue
                assert kind not in bracket.inner or depth == 1
                depth += (kind == bracket.start) - (kind == bracket.end)
                assert depth in (0, 1)
            if kinds[-1] == "RUN_FINISHED":
                assert depth == 0


@given(st.lists(items, max_size=40))
def test_the_closers_make_a_success_possible_at_any_point(sequence: list[tuple[str, str]]) -> None:
    machine = OrderMachine()
    machine.feed("RUN_STARTED", {})
    for kind, name in sequence:
        if kind not in TERMINALS and kind != "RUN_STARTED":
            try:
                machine.feed(kind, event(kind, name))
            except OrderError:
                continue
    for closer in list(machine.closers()):
        machine.feed(closer["type"], closer)
    assert list(machine.closers()) == []
    machine.feed("RUN_FINISHED", {})
    assert machine.over


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_comes_before_the_start_and_nothing_after_the_end(kind: str) -> None:
    machine = OrderMachine()
    if kind != "RUN_STARTED":
        with pytest.raises(OrderError, match="before RUN_STARTED"):
            machine.feed(kind, event(kind, "x"))
    machine.feed("RUN_STARTED", {})
    machine.feed("RUN_ERROR", {})
    with pytest.raises(OrderError, match="after the end"):
        machine.feed(kind, event(kind, "x"))


@pytest.mark.parametrize("bracket", BRACKETS, ids=lambda bracket: bracket.start)
def test_an_error_may_end_a_run_with_anything_open(bracket: Any) -> None:
    machine = OrderMachine()
    machine.feed("RUN_STARTED", {})
    machine.feed(bracket.start, {bracket.key: "x"})
    with pytest.raises(OrderError, match="open"):
        machine.feed("RUN_FINISHED", {})
    machine.feed("RUN_ERROR", {})
    assert machine.over


def fed(*sequence: dict[str, Any]) -> OrderMachine:
    machine = OrderMachine(started=True)
    for item in sequence:
        machine.feed(item["type"], item)
    return machine


STARTED = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "helper"}
TEXT = {"type": "TEXT_MESSAGE_START", "messageId": "m", "subagentRunId": "s"}


def test_what_a_subagent_has_opened_is_closed_in_its_name() -> None:
    machine = fed(STARTED, TEXT, {"type": "STEP_STARTED", "stepName": "x", "subagentRunId": "s"})
    assert list(machine.closers()) == [
        {"type": "STEP_FINISHED", "stepName": "x", "subagentRunId": "s"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "subagentRunId": "s"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    ]


@pytest.mark.parametrize(
    "refused",
    [
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "subagentRunId": "t"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "subagentRunId": "t"},
        {"type": "STEP_FINISHED", "stepName": "x", "subagentRunId": "s"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "t", "name": "other", "parentSubagentRunId": "nobody"},
        {"type": "RUN_FINISHED"},
        STARTED,
    ],
    ids=lambda event: event["type"],
)
def test_nobody_goes_on_with_what_belongs_to_somebody_else(refused: dict[str, Any]) -> None:
    machine = fed(STARTED, TEXT, {"type": "STEP_STARTED", "stepName": "x"})
    with pytest.raises(OrderError):
        machine.feed(refused["type"], refused)


SNAPSHOT = {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "toolCalls": [{"id": "c"}]}]}
ACTIVITY = {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "plan", "content": {}}
CALL = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"}
TEXT_END = {"type": "TEXT_MESSAGE_END", "messageId": "m"}
CALL_END = {"type": "TOOL_CALL_END", "toolCallId": "c"}
SECRET = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "m", "encryptedValue": "x"}
RESULT = {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "x"}


def of(owner: str, event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "subagentRunId": owner}


def test_an_event_without_an_owner_is_the_owners() -> None:
    machine = fed(TEXT, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m"}, {**CALL, "parentMessageId": "m"})
    assert [item.owner for item in machine.opened] == ["s", "s"]
    assert fed(TEXT, TEXT_END, {"type": "TEXT_MESSAGE_START", "messageId": "m"}).opened[0].owner == "s"


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ([TEXT, TEXT_END], of("t", TEXT)),
        ([TEXT, TEXT_END], of("t", SECRET)),
        ([of("s", CALL), CALL_END], of("t", {**SECRET, "subtype": "tool-call", "entityId": "c"})),
        ([of("s", {"type": "REASONING_START", "messageId": "m"})], of("t", SECRET)),
        (
            [of("s", {"type": "REASONING_START", "messageId": "m"})],
            of("t", {"type": "REASONING_MESSAGE_START", "messageId": "m"}),
        ),
        ([TEXT], of("t", {**CALL, "parentMessageId": "m"})),
        ([of("t", CALL), CALL_END, TEXT], {**CALL, "parentMessageId": "m"}),
        ([ACTIVITY, of("s", {**ACTIVITY, "replace": False})], of("s", {**ACTIVITY, "type": "ACTIVITY_DELTA"})),
        ([TEXT, SNAPSHOT], of("s", TEXT_END)),
        ([SNAPSHOT], of("s", CALL)),
        ([TEXT, TEXT_END, RESULT], TEXT),
    ],
)
def test_what_is_closed_and_what_is_told_in_a_snapshot_has_an_owner_too(
    before: list[dict[str, Any]], refused: dict[str, Any]
) -> None:
    machine = fed(*before)
    opened = machine.opened
    with pytest.raises(OrderError):
        machine.feed(refused["type"], refused)
    assert machine.opened == opened


def test_a_snapshot_gives_what_is_open_to_another_owner_and_so_it_is_closed() -> None:
    assert list(fed(TEXT, SNAPSHOT).closers()) == [TEXT_END]
    assert list(fed({"type": "TEXT_MESSAGE_START", "messageId": "m"}, of("s", RESULT)).closers()) == [of("s", TEXT_END)]
    machine = fed(ACTIVITY, of("s", ACTIVITY))
    machine.feed("ACTIVITY_DELTA", of("s", {**ACTIVITY, "type": "ACTIVITY_DELTA"}))


def test_a_subagent_ends_by_an_error_too_and_never_begins_again() -> None:
    machine = fed(STARTED, {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "No."})
    assert machine.opened == ()
    with pytest.raises(OrderError, match="twice"):
        machine.feed("SUBAGENT_STARTED", STARTED)
    fed(STARTED, {**STARTED, "subagentRunId": "t", "parentSubagentRunId": "s"})


def test_two_subagents_may_take_steps_of_one_name() -> None:
    step = {"type": "STEP_STARTED", "stepName": "x"}
    machine = fed(step, {**step, "subagentRunId": "s"}, {**step, "subagentRunId": "t"})
    machine.feed("STEP_FINISHED", {**step, "type": "STEP_FINISHED", "subagentRunId": "s"})
    assert [item.owner for item in machine.opened] == [None, "t"]


@given(st.lists(items, max_size=40))
def test_a_machine_that_knows_what_is_open_closes_it_as_the_first_one_would(sequence: list[tuple[str, str]]) -> None:
    machine = OrderMachine(started=True)
    for kind, name in sequence:
        with suppress(OrderError):
            machine.feed(kind, event(kind, name))
    other = OrderMachine(machine.opened, started=True)
    assert list(other.closers()) == list(machine.closers())
