"""The run machine: whatever is tried, its events are numbered 1 … n, in a legal order, with one terminal, last."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ag_ui.core import Event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import TypeAdapter

from gateway.errors import OrderError
from gateway.run.order import TERMINALS, OrderMachine
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.run.state import TERMINAL, TRANSITIONS, Act, RunMachine, State
from gateway.wire import events
from gateway.wire.sse import Decoder, frame

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
NOW = 1_700_000_000.0
ROW = b'{"type":"CUSTOM","timestamp":1,"name":"row","value":{}}'

words = st.sampled_from(["a", "b"])
acts = st.sampled_from(list(Act))


def record(**fields: Any) -> RunRecord:
    return RunRecord(RunKey(None, "run-1"), "thread-1", "tools", created_at=NOW, **fields)


def act(machine: RunMachine, what: Act) -> bytes:
    """Does one thing to a run, as anybody might who does not look first."""
    match what:
        case Act.START:
            return machine.start(NOW)
        case Act.EMIT:
            return machine.emit(events.custom(1, "row", {}))
        case Act.WAIT:
            machine.wait()
        case Act.RESUME:
            machine.resume()
        case Act.STOP:
            return machine.stop(NOW, "user", "please")
        case Act.FINISH:
            return b"".join(machine.finish(NOW, {"n": 1}))
        case Act.CANCEL:
            return b"".join(machine.cancel(NOW))
        case Act.INTERRUPT:
            return b"".join(machine.interrupt(NOW, [{"id": "i", "reason": "input_required"}]))
        case Act.FAIL:
            return b"".join(machine.fail(NOW, "internal", "No."))
    return b""


def in_state(state: State) -> RunMachine:
    """A machine that has come to this state by the shortest way."""
    ways: dict[State, list[Act]] = {State.NEW: []}
    while state not in ways:
        for known, way in list(ways.items()):
            for what, to in TRANSITIONS[known].items():
                ways.setdefault(to, [*way, what])
    machine = RunMachine(record())
    for what in ways[state]:
        act(machine, what)
    assert machine.state is state
    return machine


def everything_of(machine: RunMachine) -> tuple[Any, ...]:
    return machine.state, machine.seq, machine.record, list(machine._order._open), machine._emits


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("what", Act)
def test_an_act_does_what_the_table_says_and_any_other_changes_nothing(state: State, what: Act) -> None:
    machine = in_state(state)
    to = TRANSITIONS[state].get(what)
    if to is None:
        before = everything_of(machine)
        with pytest.raises(OrderError, match=what.value):
            act(machine, what)
        assert everything_of(machine) == before
    else:
        act(machine, what)
        assert machine.state is to
        assert machine.record.status == to.value
        assert machine.over is (to in TERMINAL)


@pytest.mark.parametrize("state", State)
def test_custom_events_in_bytes_are_taken_exactly_where_an_emit_is(state: State) -> None:
    machine = in_state(state)
    before = everything_of(machine)
    if Act.EMIT in TRANSITIONS[state]:
        machine.advance(3)
        assert machine.seq == before[1] + 3
    else:
        with pytest.raises(OrderError):
            machine.advance(3)
        assert everything_of(machine) == before


def test_every_state_can_be_reached_and_only_terminal_ones_are_the_end() -> None:
    for state in State:
        assert in_state(state).state is state
    without_a_way_on = {state for state in State if not TRANSITIONS[state]}
    assert without_a_way_on == TERMINAL - {State.INTERRUPTED}


def test_every_state_before_the_end_can_fail_and_a_stopped_run_never_succeeds() -> None:
    for state in set(State) - TERMINAL - {State.NEW}:
        assert Act.FAIL in TRANSITIONS[state]
    assert Act.FINISH not in TRANSITIONS[State.STOPPING]
    assert Act.INTERRUPT not in TRANSITIONS[State.STOPPING]


def test_stop_of_an_interrupted_run_changes_its_record_and_writes_nothing() -> None:
    machine = in_state(State.INTERRUPTED)
    seq = machine.seq
    assert machine.cancel(NOW) == []
    assert machine.seq == seq
    assert machine.record.status == "cancelled"
    assert machine.record.outcome == {"type": "cancelled"}


def test_a_success_closes_what_is_open_innermost_first() -> None:
    machine = in_state(State.RUNNING)
    machine.emit({"type": "TEXT_MESSAGE_START", "timestamp": 1, "messageId": "m", "role": "assistant"})
    machine.emit(events.tool_call_start(1, "c", "tool"))
    frames = machine.finish(NOW)
    kinds = [json.loads(frame.split(b"data: ", 1)[1])["type"] for frame in frames]
    assert kinds == ["TOOL_CALL_END", "TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_the_first_reason_of_a_stop_holds() -> None:
    machine = in_state(State.RUNNING)
    machine.stop(NOW, "run_timeout")
    with pytest.raises(OrderError):
        machine.stop(NOW, "user")
    machine.fail(NOW, "run_timeout", "Too long.")
    assert machine.record.reason == "run_timeout"


def test_what_an_agent_adds_to_its_end_stands_beside_what_the_gateway_says() -> None:
    more = {"usage": [{"inputTokens": 1}], "metadata": {"model": "m"}}
    for frames in (
        in_state(State.RUNNING).finish(NOW, more=more),
        in_state(State.RUNNING).interrupt(NOW, [{"id": "i", "reason": "x"}], more),
        in_state(State.RUNNING).fail(NOW, "agent_failed", "No.", more),
    ):
        *_, last = frames
        event = json.loads(last.split(b"data: ", 1)[1])
        assert event["usage"] == [{"inputTokens": 1}]
        assert set(event["metadata"]) == {"model", "tanstack"}


class AnyRun(RuleBasedStateMachine):
    """Any acts in any order, some of them refused; the stream is right all the while."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = RunMachine(record())
        self.stream = b""
        self.tried_in_vain = 0

    def attempt(self, allowed: bool, do: Any) -> None:
        before = everything_of(self.machine)
        try:
            self.stream += do()
        except OrderError:
            self.tried_in_vain += 1
            assert not allowed
            assert everything_of(self.machine) == before
        else:
            assert allowed

    @initialize(at_once=st.booleans())
    def begin(self, at_once: bool) -> None:
        if at_once:
            self.attempt(True, lambda: self.machine.start(NOW))

    @rule(what=acts)
    def anything(self, what: Act) -> None:
        self.attempt(what in TRANSITIONS[self.machine.state], lambda: act(self.machine, what))

    @rule(count=st.integers(1, 5))
    def custom(self, count: int) -> None:
        def staged() -> bytes:
            first = self.machine.seq + 1
            self.machine.advance(count)
            return b"".join(frame(number, ROW) for number in range(first, first + count))

        self.attempt(Act.EMIT in TRANSITIONS[self.machine.state], staged)

    @precondition(lambda self: Act.EMIT in TRANSITIONS[self.machine.state])
    @rule(call=words)
    def tool_call(self, call: str) -> None:
        is_open = ("TOOL_CALL_START", call) in self.machine._order._open
        self.attempt(not is_open, lambda: self.machine.emit(events.tool_call_start(1, call, "tool")))

    @precondition(lambda self: Act.EMIT in TRANSITIONS[self.machine.state])
    @rule(call=words)
    def arguments(self, call: str) -> None:
        is_open = ("TOOL_CALL_START", call) in self.machine._order._open
        self.attempt(is_open, lambda: self.machine.emit(events.tool_call_args(1, call, "{}")))

    @precondition(lambda self: Act.EMIT in TRANSITIONS[self.machine.state])
    @rule(call=words)
    def end_of_tool_call(self, call: str) -> None:
        is_open = ("TOOL_CALL_START", call) in self.machine._order._open
        self.attempt(is_open, lambda: self.machine.emit(events.tool_call_end(1, call)))

    @precondition(lambda self: Act.EMIT in TRANSITIONS[self.machine.state])
    @rule(kind=st.sampled_from(["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"]))
    def a_terminal_smuggled_in_as_an_event(self, kind: str) -> None:
        self.attempt(False, lambda: self.machine.emit({"type": kind, "threadId": "t", "runId": "r"}))

    @invariant()
    def the_stream_is_one_that_every_client_accepts(self) -> None:
        messages = Decoder().feed(self.stream)
        assert [message.id for message in messages] == [str(n) for n in range(1, len(messages) + 1)]
        assert self.machine.seq == len(messages)
        order = OrderMachine()
        for message in messages:
            event = json.loads(message.data)
            EVENT.validate_python(event)
            order.feed(event["type"], event)
        kinds = [json.loads(message.data)["type"] for message in messages]
        ends = [index for index, kind in enumerate(kinds) if kind in TERMINALS]
        assert ends == ([len(kinds) - 1] if self.machine.over else [])
        assert order.over is self.machine.over

    @invariant()
    def the_record_says_what_the_machine_is(self) -> None:
        machine = self.machine
        assert machine.record.over is machine.over
        if machine.state is not State.NEW:
            assert machine.record.status == machine.state.value
        assert (machine.record.error is not None) is (machine.state is State.FAILED)
        assert (machine.record.outcome is not None) is (machine.over and machine.state is not State.FAILED)

    @invariant()
    def whoever_takes_it_over_would_go_on_as_it_would(self) -> None:
        machine = self.machine
        other = RunMachine.resumed(machine.record, machine.seq)
        assert (other.state, other.seq, other._emits) == (machine.state, machine.seq, machine._emits)
        assert (other._order.started, other._order.over) == (machine._order.started, machine._order.over)
        if not machine.over:
            assert list(other._order.closers()) == list(machine._order.closers())


TestAnyRun = AnyRun.TestCase


def test_a_calls_state_lives_in_the_record() -> None:
    machine = in_state(State.RUNNING)
    machine.set_call(CallRecord("c", "tool", "running", NOW, open=True))
    machine.set_call(CallRecord("c", "tool", "completed", NOW, NOW))
    assert [call.status for call in machine.record.calls] == ["completed"]
