"""What agents send comes out in an order that every official client takes, and what was right is left alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OrderError
from gateway.run.fold import MessageFold
from gateway.run.order import OrderMachine
from gateway.run.repair import REPAIRS, Repair, Repaired
from gateway.wire.codec import encode
from gateway.wire.frames import Frames
from tests.support.streams import RUN, Event, Streams

NOW = 1_700_000_000_000
PAGE = Path(__file__).parents[2] / "docs/reference/repairs.md"

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
FAILED = {"type": "RUN_ERROR", "message": "No."}
CUSTOM = {"type": "CUSTOM", "name": "n", "value": 1}


def start(name: str = "m", **more: Any) -> Event:
    return {"type": "TEXT_MESSAGE_START", "messageId": name, **more}


def content(name: str = "m", **more: Any) -> Event:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": "x", **more}


def end(name: str = "m", **more: Any) -> Event:
    return {"type": "TEXT_MESSAGE_END", "messageId": name, **more}


def call(name: str = "c", **more: Any) -> Event:
    return {"type": "TOOL_CALL_START", "toolCallId": name, "toolCallName": "t", **more}


def call_end(name: str = "c", **more: Any) -> Event:
    return {"type": "TOOL_CALL_END", "toolCallId": name, **more}


def subagent(name: str = "s", **more: Any) -> Event:
    return {"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": "helper", **more}


def fed(repair: Repair, *events: Event) -> list[Event]:
    """The events that pass, each of which is what its bytes say."""
    passed = [item for event in events for item in repair.feed(encode(event), NOW)]
    assert all(item.payload is None or json.loads(item.payload) == item.event for item in passed)
    return [item.event for item in passed]


def repaired(*events: Event) -> list[Event]:
    """What passes between beginning and end of an answer."""
    repair = Repair()
    return fed(repair, STARTED, *events, FINISHED) + [item.event for item in repair.close(NOW)]


# --- beginning and end -----------------------------------------------------------------------------------------------


def test_the_ends_of_the_agent_are_held_and_its_beginning_is_dropped() -> None:
    repair = Repair()
    assert fed(repair, STARTED) == []
    assert fed(repair, CUSTOM) == [CUSTOM]
    assert (repair.finished, repair.failed) == (None, None)
    assert fed(repair, FINISHED) == []
    assert (repair.finished, repair.failed) == (FINISHED, None)
    assert repair.seen == 3
    assert repair.counts == {}


def test_an_error_beats_a_success_before_and_after_it() -> None:
    for events in ([FINISHED, FAILED], [FAILED, FINISHED], [FAILED, {**FAILED, "message": "Again."}]):
        repair = Repair()
        fed(repair, STARTED, *events)
        assert (repair.finished, repair.failed) == (None, FAILED)


def test_of_several_runs_in_one_answer_the_last_end_counts() -> None:
    repair = Repair()
    last = {**FINISHED, "runId": "2"}
    fed(repair, STARTED, FAILED, STARTED, last)
    assert (repair.finished, repair.failed) == (last, None)
    fed(repair, STARTED)
    assert (repair.finished, repair.failed) == (None, None)  # cut off in the third
    fed(repair, FAILED)
    assert (repair.finished, repair.failed) == (None, FAILED)


def test_what_comes_after_an_error_is_dropped_until_the_next_run() -> None:
    repair = Repair()
    assert fed(repair, STARTED, FAILED, CUSTOM, start()) == []
    assert repair.counts == {"dropped": 2}
    assert fed(repair, STARTED, CUSTOM) == [CUSTOM]


def test_what_a_run_has_left_open_is_closed_before_the_next_one_of_the_answer() -> None:
    repair = Repair()
    assert fed(repair, STARTED, start(), FAILED, STARTED) == [start(), end(timestamp=NOW)]
    assert fed(repair, start()) == [start()]


def test_a_result_after_the_success_is_passed_and_the_success_stays() -> None:
    repair = Repair()
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "x"}
    assert fed(repair, STARTED, call(), call_end(), FINISHED, result) == [call(), call_end(), result]
    assert repair.finished == FINISHED
    assert repair.counts == {"order": 1}


def test_an_answer_that_is_cut_in_a_message_after_its_success_has_none() -> None:
    repair = Repair()
    fed(repair, STARTED, FINISHED, start())
    assert repair.finished is None
    fed(repair, end())
    assert repair.finished == FINISHED
    fed(repair, start("n"))
    assert [item.event for item in repair.close(NOW)] == [end("n", timestamp=NOW)]
    assert repair.finished is None


def test_what_was_open_before_the_success_does_not_undo_it() -> None:
    repair = Repair()
    fed(repair, STARTED, start(), FINISHED, CUSTOM)
    assert [item.event for item in repair.close(NOW)] == [end(timestamp=NOW)]
    assert repair.finished == FINISHED
    assert repair.counts == {"order": 2}


def test_events_before_the_beginning_are_passed_and_a_second_beginning_is_dropped() -> None:
    repair = Repair()
    assert fed(repair, CUSTOM, STARTED, start(), STARTED, end()) == [CUSTOM, start(), end()]
    assert repair.counts == {"order": 1, "dropped": 1}


def test_another_answer_forgets_the_ends_but_not_what_belongs_to_whom() -> None:
    repair = Repair()
    fed(repair, STARTED, start(subagentRunId="s"), end(), FAILED)
    repair.begin()
    assert (repair.failed, repair.seen) == (None, 0)
    assert fed(repair, STARTED, start(subagentRunId="t")) == [start(subagentRunId="s")]


def test_what_the_run_says_itself_counts_for_what_the_agent_may_say() -> None:
    repair = Repair()
    repair.note(call())
    assert fed(repair, STARTED, call(), call_end(subagentRunId="s")) == [call_end()]


def test_a_call_whose_id_the_run_has_already_has_another_one_in_this_answer() -> None:
    repair = Repair()
    args = {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"}
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "x"}
    first = [call(subagentRunId="s"), args, call_end()]
    assert fed(repair, STARTED, *first, result) == [*first, result]
    repair.begin()
    # It is a call of its own, whoever the other one belongs to, and one that begins twice still begins once.
    passed = fed(repair, STARTED, call(), call(), {**args, "subagentRunId": "s"}, call_end(), result)
    assert passed == [call("c~2"), {**args, "toolCallId": "c~2"}, call_end("c~2"), {**result, "toolCallId": "c~2"}]


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ([content(timestamp=5), end()], [start(role="assistant", timestamp=5), content(timestamp=5), end()]),
        ([start(), end(), content()], [start(), end(), start(role="assistant"), content(), end(timestamp=NOW)]),
        ([start(), start(role="user"), content(), end(), end()], [start(), content(), end()]),
        ([end(), {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{"}, call_end()], []),
        (
            [{"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}],
            [
                {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
                {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
                {"type": "REASONING_MESSAGE_END", "messageId": "m", "timestamp": NOW},
            ],
        ),
        (
            [start(subagentRunId="s"), content(subagentRunId="t"), content(), end(subagentRunId="t")],
            [start(subagentRunId="s"), content(subagentRunId="s"), content(), end(subagentRunId="s")],
        ),
        ([start(), content(subagentRunId="s"), end()], [start(), content(), end()]),
        (
            [start(subagentRunId="s"), end(), call(parentMessageId="m", subagentRunId="t"), call_end()],
            [start(subagentRunId="s"), end(), call(parentMessageId="m", subagentRunId="s"), call_end()],
        ),
        (
            [call(subagentRunId="s"), call_end(), start(), end(), call(parentMessageId="m"), call_end()],
            [call(subagentRunId="s"), call_end(), start(), end(), call("c~2", parentMessageId="m"), call_end("c~2")],
        ),
        (
            [subagent(parentSubagentRunId="x"), subagent(), {"type": "SUBAGENT_FINISHED", "subagentRunId": "t"}],
            [subagent(), {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "timestamp": NOW}],
        ),
        (
            [
                {"type": "STEP_STARTED", "stepName": "a", "subagentRunId": "s"},
                {"type": "STEP_STARTED", "stepName": "a", "subagentRunId": "s"},
                {"type": "STEP_FINISHED", "stepName": "a"},
            ],
            [
                {"type": "STEP_STARTED", "stepName": "a", "subagentRunId": "s"},
                {"type": "STEP_FINISHED", "stepName": "a", "subagentRunId": "s"},
            ],
        ),
        (
            [
                {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "plan", "content": {}},
                {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "plan", "patch": [], "subagentRunId": "s"},
            ],
            [
                {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "plan", "content": {}},
                {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "plan", "patch": []},
            ],
        ),
    ],
)
def test_what_is_out_of_order_is_put_in_order(sent: list[Event], passed: list[Event]) -> None:
    assert repaired(*sent) == passed


def test_messages_calls_and_subagents_may_run_side_by_side() -> None:
    sent = [
        start("m"),
        call("a", parentMessageId="m"),
        call("b"),
        subagent(),
        start("n", subagentRunId="s"),
        content("m"),
        content("n", subagentRunId="s"),
        {"type": "TOOL_CALL_ARGS", "toolCallId": "b", "delta": "{}"},
        {"type": "STEP_STARTED", "stepName": "x"},
        {"type": "STEP_STARTED", "stepName": "x", "subagentRunId": "s"},
        call_end("b"),
        end("m"),
        call_end("a"),
        {"type": "STEP_FINISHED", "stepName": "x"},
        {"type": "STEP_FINISHED", "stepName": "x", "subagentRunId": "s"},
        end("n"),
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    ]
    repair = Repair()
    payloads = [encode(event) for event in sent]
    passed = [item for payload in [encode(STARTED), *payloads] for item in repair.feed(payload, NOW)]
    assert [item.payload for item in passed] == payloads
    assert repair.close(NOW) == []
    assert repair.counts == {}


def test_a_snapshot_says_anew_whose_a_message_is() -> None:
    messages = {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": ""}]}
    sent = [start(subagentRunId="s"), messages, content(subagentRunId="s")]
    assert repaired(*sent) == [start(subagentRunId="s"), messages, content(), end(timestamp=NOW)]


# --- what is brought up to date --------------------------------------------------------------------------------------


def test_chunks_are_messages_and_other_events_between_them_do_not_end_one() -> None:
    chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "x"}
    repair = Repair()
    passed = fed(repair, STARTED, chunk, CUSTOM, {"type": "TEXT_MESSAGE_CHUNK", "delta": "y"}, FINISHED)
    assert passed == [start(), content(), CUSTOM, {**content(), "delta": "y"}, end()]
    assert repair.counts == {"chunk": 2}


def test_a_chunk_that_belongs_to_nothing_is_dropped() -> None:
    repair = Repair()
    assert fed(repair, STARTED, {"type": "TEXT_MESSAGE_CHUNK", "delta": "x"}, {"type": "TOOL_CALL_CHUNK"}) == []
    assert repair.counts == {"dropped": 2}


def test_thinking_of_protocol_0_is_reasoning_with_ids_of_its_own() -> None:
    kinds = ("START", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "END", "START")
    repair = Repair()
    more = {"TEXT_MESSAGE_CONTENT": {"delta": "hm"}}
    passed = fed(repair, STARTED, *({"type": f"THINKING_{kind}", **more.get(kind, {})} for kind in kinds))
    span, message, another = (f"thinking-{NOW}-{number}" for number in (1, 2, 3))
    assert [(event["type"], event["messageId"]) for event in passed] == [
        ("REASONING_START", span),
        ("REASONING_MESSAGE_START", message),
        ("REASONING_MESSAGE_CONTENT", message),
        ("REASONING_MESSAGE_END", message),
        ("REASONING_END", span),
        ("REASONING_START", another),
    ]
    assert passed[1]["role"] == "reasoning"
    assert repair.counts["legacy"] == 6


def test_a_line_end_of_unicode_is_escaped_and_nothing_else_of_the_payload_changes() -> None:
    payload = '{ "type":"CUSTOM", "name":"n", "value":["\u2028\u0085\u2029", 1.50, 1e2, 12345678901234567890123] }'
    repair = Repair()
    repair.feed(encode(STARTED), NOW)
    (item,) = repair.feed(payload.encode(), NOW)
    escaped = payload.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
    assert item.payload == escaped.encode()
    assert repair.counts == {"escaped": 1}


def test_what_is_nobodys_business_passes_byte_for_byte() -> None:
    payloads = [
        b'{"type":"TOMORROW","value":null}',
        b'{ "value" : 1.0 ,"name":"x","type":"CUSTOM", "seq": 5, "metadata":{"a":null}}',
        b'{"type":"CUSTOM","name":"tool.result","value":{"status":"completed"}}',
        b'{"type":"RAW","event":{"deep":[[[[null]]]]},"source":"x"}',
    ]
    repair = Repair()
    repair.feed(encode(STARTED), NOW)
    assert [item.payload for payload in payloads for item in repair.feed(payload, NOW)] == payloads
    assert repair.counts == {}


# --- whatever comes --------------------------------------------------------------------------------------------------


def accepted(passed: Iterable[Repaired]) -> None:
    """Between its beginning and its end, the run takes all of it, and it can be told as messages."""
    machine, fold = OrderMachine(started=True), MessageFold()
    for item in passed:
        assert item.event["type"] not in RUN
        machine.feed(item.event["type"], item.event)
        fold.feed([item.event])
    machine.feed("RUN_FINISHED", {})


RECORDED = b"".join(
    b"data: %b\n\n" % encode(event)
    for event in (
        STARTED,
        start(),
        content(),
        call(parentMessageId="m"),
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"a":1}'},
        end(),
        call_end(),
        {"type": "REASONING_START", "messageId": "r"},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r", "delta": "é…"},
        {"type": "REASONING_END", "messageId": "r"},
        {"type": "STEP_STARTED", "stepName": "x"},
        subagent(),
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "n", "delta": "x", "subagentRunId": "s"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/x", "value": 1}]},
        {"type": "STEP_FINISHED", "stepName": "x"},
        FINISHED,
    )
)


def answered(*chunks: bytes) -> tuple[Repair, list[Repaired]]:
    frames, repair = Frames(), Repair()
    payloads = [*(payload for chunk in chunks for payload in frames.feed(chunk)), *frames.close()]
    passed = [item for payload in payloads for item in repair.feed(payload, NOW)]
    return repair, passed + repair.close(NOW)


def test_a_recorded_answer_that_is_cut_at_any_byte_is_a_run_without_a_success() -> None:
    whole, everything = answered(RECORDED)
    assert whole.finished == FINISHED
    for place in range(len(RECORDED) - 3):  # the last brace and the two line ends
        repair, passed = answered(RECORDED[:place])
        assert (repair.finished, repair.failed) == (None, None)
        accepted(passed)
        assert len(passed) <= len(everything) + 4  # what is closed early
    assert answered(*(bytes([byte]) for byte in RECORDED))[1] == everything


@given(st.lists(st.binary(max_size=40) | st.just(RECORDED[:200]), max_size=6))
def test_garbage_is_no_answer(chunks: list[bytes]) -> None:
    repair, passed = answered(*chunks)
    accepted(passed)
    assert repair.counts.keys() <= REPAIRS.keys()
    assert bool(passed) <= bool(repair.seen)


@pytest.mark.parametrize("kind", ["right", "bent", "wild"])
def test_whatever_comes_the_run_takes_what_passes(kind: str) -> None:
    streams = Streams(7)
    for _ in range(700):
        repair = Repair()
        sent = getattr(streams, kind)()
        passed = [item for event in sent for item in repair.feed(json.dumps(event).encode(), NOW)]
        passed += repair.close(NOW)
        accepted(passed)
        assert repair.counts.keys() <= REPAIRS.keys()
        for item in passed:
            assert item.payload is None or json.loads(item.payload) == item.event


def test_what_was_repaired_needs_no_repair() -> None:
    streams = Streams(8)
    for _ in range(500):
        first, second = Repair(), Repair()
        second.feed(encode(STARTED), NOW)
        passed = [item for event in streams.bent() for item in first.feed(json.dumps(event).encode(), NOW)]
        payloads = [json.dumps(item.event).encode() for item in passed]
        assert [item.payload for payload in payloads for item in second.feed(payload, NOW)] == payloads
        assert second.counts == {}


def test_what_the_run_refuses_of_itself_is_an_error() -> None:
    with pytest.raises(OrderError):
        Repair().note(end())


def test_the_page_lists_every_repair_in_the_codes_own_words() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert rows == REPAIRS
