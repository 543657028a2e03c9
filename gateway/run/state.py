"""What may happen to a run: one table, and the machine that walks it.

Rules, all of them here:

1. A run is in one of eight states; what may happen in each, and where it leads, is `TRANSITIONS`. Anything else raises
   `OrderError` and changes nothing.
2. Every event gets the next number of its run here; stores only check it.
3. A terminal act closes what is open, writes exactly one terminal event, and nothing can follow.

The machine is pure: time comes in as Unix seconds, frames come out as bytes. The caller writes them to a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self

from gateway.errors import OrderError
from gateway.run.order import EDGES, TERMINALS, OrderMachine
from gateway.run.records import CallRecord, RunRecord
from gateway.wire import events
from gateway.wire.codec import encode
from gateway.wire.sse import frame

__all__ = ["TERMINAL", "TRANSITIONS", "Act", "RunMachine", "State"]


class State(StrEnum):
    """The states of a run; all but `NEW` are statuses of the run record (contract 3)."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Act(StrEnum):
    """What can happen to a run."""

    START = "start"
    EMIT = "emit"
    WAIT = "wait"
    RESUME = "resume"
    STOP = "stop"
    FINISH = "finish"
    CANCEL = "cancel"
    INTERRUPT = "interrupt"
    FAIL = "fail"


TRANSITIONS: Mapping[State, Mapping[Act, State]] = {
    State.NEW: {Act.START: State.RUNNING},
    State.RUNNING: {
        Act.EMIT: State.RUNNING,
        Act.WAIT: State.WAITING,
        Act.STOP: State.STOPPING,
        Act.FINISH: State.COMPLETED,
        Act.INTERRUPT: State.INTERRUPTED,
        Act.FAIL: State.FAILED,
    },
    State.WAITING: {
        Act.EMIT: State.WAITING,
        Act.WAIT: State.WAITING,
        Act.RESUME: State.RUNNING,
        Act.STOP: State.STOPPING,
        Act.FINISH: State.COMPLETED,
        Act.INTERRUPT: State.INTERRUPTED,
        Act.FAIL: State.FAILED,
    },
    # A run that is being stopped may still emit while its calls unwind; it ends cancelled (the person's Stop) or failed
    # (time limit, shutdown, a viewer that left), never as a success.
    State.STOPPING: {Act.EMIT: State.STOPPING, Act.CANCEL: State.CANCELLED, Act.FAIL: State.FAILED},
    State.COMPLETED: {},
    State.CANCELLED: {},
    # Stop of an interrupted run changes its record and writes no event (contract 5.3).
    State.INTERRUPTED: {Act.CANCEL: State.CANCELLED},
    State.FAILED: {},
}
NOTHING: Mapping[str, Any] = MappingProxyType({})
TERMINAL = frozenset({State.COMPLETED, State.CANCELLED, State.INTERRUPTED, State.FAILED})


class RunMachine:
    """One run. `record` is what is known of it now, `seq` the number of its last event."""

    __slots__ = ("_emits", "_order", "record", "seq", "state")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.state = State.NEW
        self.seq = 0
        self._order = OrderMachine()
        self._emits = False

    @classmethod
    def resumed(cls, record: RunRecord, seq: int) -> Self:
        """Goes on with a run from the record that was stored last; `seq` is the number of its last event."""
        machine = cls(record)
        if seq:
            machine.state, machine.seq = State(record.status), seq
            machine._order = OrderMachine(record.opened, started=True)
            machine._order.over = machine.over
            machine._emits = Act.EMIT in TRANSITIONS[machine.state]
        return machine

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    def start(self, now: float) -> bytes:
        """RUN_STARTED, always the first event."""
        self._act(Act.START)
        self.record = replace(self.record, status=self.state.value, started_at=now)
        record = self.record
        return self._write(events.run_started(_ms(now), record.thread_id, record.key.run_id, record.parent_run_id))

    def emit(self, event: Mapping[str, Any], payload: bytes | None = None) -> bytes:
        """Any event between start and end; raises `OrderError` where the verifier would refuse it.

        `payload` is the event as one line of JSON, where it has come as that.
        """
        if event["type"] in TERMINALS:
            raise OrderError(f"{event['type']} without the act that ends the run")
        self._act(Act.EMIT)
        return self._write(event, payload)

    def advance(self, count: int) -> None:
        """`count` CUSTOM events that are bytes already (`run.stage`) have taken the numbers after `seq`.

        They are legal anywhere between start and end, so only that is checked.
        """
        if not self._emits:
            raise OrderError("CUSTOM outside of an open run")
        self.seq += count

    def set_call(self, call: CallRecord) -> None:
        self.record = self.record.with_call(call)

    def wait(self) -> None:
        """A call waits for a person."""
        self._act(Act.WAIT)
        self.record = replace(self.record, status=self.state.value)

    def resume(self) -> None:
        """No call waits any more."""
        self._act(Act.RESUME)
        self.record = replace(self.record, status=self.state.value)

    def stop(self, now: float, reason: str, message: str | None = None) -> bytes:
        """`run.stopping`; a run is stopped once, the first reason holds."""
        self._act(Act.STOP)
        self.record = replace(self.record, status=self.state.value, reason=reason)
        value = {"reason": reason} if message is None else {"reason": reason, "message": message}
        return self._write(events.custom(_ms(now), "run.stopping", value))

    def finish(
        self, now: float, result: Any = None, pending_call_ids: Sequence[str] = (), more: Mapping[str, Any] = NOTHING
    ) -> list[bytes]:
        """RUN_FINISHED, success; `pending_call_ids`: calls that are left for the frontend to run.

        `more` are fields that an agent adds to its terminal event: `usage`, `metadata`.
        """
        outcome: dict[str, Any] = {"type": "success"}
        if pending_call_ids:
            outcome["pendingToolCallIds"] = list(pending_call_ids)
        return self._finish(Act.FINISH, now, outcome, result, more)

    def cancel(self, now: float, result: Any = None) -> list[bytes]:
        """RUN_FINISHED, cancelled: the person's Stop. Of an interrupted run: only its record changes."""
        if self.state is State.INTERRUPTED:
            self._act(Act.CANCEL)
            self.record = replace(self.record, status=self.state.value, outcome={"type": "cancelled"})
            return []
        return self._finish(Act.CANCEL, now, {"type": "cancelled"}, result)

    def interrupt(
        self, now: float, interrupts: Sequence[Mapping[str, Any]], more: Mapping[str, Any] = NOTHING
    ) -> list[bytes]:
        """RUN_FINISHED, interrupt: the run can be resumed with answers."""
        return self._finish(Act.INTERRUPT, now, {"type": "interrupt", "interrupts": list(interrupts)}, None, more)

    def fail(self, now: float, code: str, message: str, more: Mapping[str, Any] = NOTHING) -> list[bytes]:
        """RUN_ERROR."""
        self._act(Act.FAIL)
        self.record = replace(
            self.record,
            status=self.state.value,
            ended_at=now,
            error={"code": code, "message": message},
            reason=self.record.reason or code,
        )
        record = self.record
        terminal = events.run_error(_ms(now), record.thread_id, record.key.run_id, code, message)
        return [*self._close(now), self._write(_with(terminal, more))]

    def _finish(
        self, act: Act, now: float, outcome: Mapping[str, Any], result: Any, more: Mapping[str, Any] = NOTHING
    ) -> list[bytes]:
        self._act(act)
        self.record = replace(self.record, status=self.state.value, ended_at=now, outcome=outcome)
        record = self.record
        closing = self._close(now)
        terminal = events.run_finished(_ms(now), record.thread_id, record.key.run_id, outcome, result)
        return [*closing, self._write(_with(terminal, more))]

    def _close(self, now: float) -> list[bytes]:
        return [self._write({**closer, "timestamp": _ms(now)}) for closer in list(self._order.closers())]

    def _act(self, act: Act) -> None:
        to = TRANSITIONS[self.state].get(act)
        if to is None:
            raise OrderError(f"{act.value} of a run that is {self.state.value}")
        self.state = to
        self._emits = Act.EMIT in TRANSITIONS[to]

    def _write(self, event: Mapping[str, Any], payload: bytes | None = None) -> bytes:
        self._order.feed(event["type"], event)
        if event["type"] in EDGES:
            self.record = replace(self.record, opened=self._order.opened)
        self.seq += 1
        return frame(self.seq, encode(event) if payload is None else payload)


def _with(terminal: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an agent says in its terminal event, beside what the gateway does."""
    return {**terminal, **more, "metadata": {**more.get("metadata", {}), **terminal["metadata"]}} if more else terminal


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
