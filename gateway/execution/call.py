"""One tool call of a run: what goes out for it, from its start to its result.

`begin` and `finish` bracket the call; in between the tool emits through its context, from any thread. After `finish`
nothing of the call goes out any more: late emits are dropped and counted (contract 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from gateway.errors import PayloadError
from gateway.execution.names import check_event_name
from gateway.run.pacing import ProgressPacer
from gateway.run.records import CallRecord
from gateway.wire import events
from gateway.wire.codec import Change, as_mapping, encode
from gateway.wire.events import CustomWriter

if TYPE_CHECKING:
    from gateway.execution.live import LiveRun
    from gateway.execution.outcomes import ToolOutput
    from gateway.execution.tools import Tool

__all__ = ["Call"]

logger = logging.getLogger("gateway.payloads")

MAX_LOGGED_PATHS = 1_000
_logged_paths: set[tuple[str, str]] = set()


class Call:
    """See the module. `arguments` are as the caller sent them.

    `refused` is the outcome of a call that never runs: no such tool, no JSON. A call that the
    client `held` already, in `parent_message_id`, sends no ARGS: the client would append them to what it has.
    """

    __slots__ = (
        "_custom",
        "_pacer",
        "_pacing",
        "_record",
        "_started",
        "arguments",
        "call_id",
        "closed",
        "held",
        "output",
        "parent_message_id",
        "refused",
        "run",
        "signal",
        "timeout",
        "tool",
        "tool_name",
    )

    def __init__(
        self,
        run: LiveRun,
        call_id: str,
        tool_name: str,
        tool: Tool | None,
        arguments: Mapping[str, Any],
        timeout: float,
        *,
        refused: ToolOutput | None = None,
        parent_message_id: str | None = None,
        held: bool = False,
    ) -> None:
        self.run = run
        self.call_id = call_id
        self.tool_name = tool_name
        self.tool = tool
        self.arguments = arguments
        self.timeout = timeout
        self.refused = refused
        self.parent_message_id = parent_message_id
        self.held = held
        self.signal = run.signal.child()
        self.closed = False
        self.output: ToolOutput | None = None
        self._custom = CustomWriter(call_id, tool_name)
        self._pacer: ProgressPacer | None = None
        self._pacing = False
        self._started = monotonic()
        self._record = CallRecord(call_id, tool_name)
        run.calls[call_id] = self

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that begin the value of every event of the gateway about this call."""
        return {"toolCallId": self.call_id, "toolName": self.tool_name}

    def begin(self) -> None:
        """TOOL_CALL_START, ARGS and END: the call as the model made it."""
        self._started = monotonic()
        now = time()
        ms = int(now * 1000)
        self._record = CallRecord(self.call_id, self.tool_name, "running", now, open=True)
        start = events.tool_call_start(ms, self.call_id, self.tool_name, self.parent_message_id)
        with self.run.lock:
            self.run.write(start)
            if not self.held:
                self.run.write(events.tool_call_args(ms, self.call_id, events.arguments_text(self.arguments)))
            self.run.write(events.tool_call_end(ms, self.call_id))
            self.run.save_call(self._record)

    def finish(self, output: ToolOutput, *, still_running: bool = False) -> None:
        """`tool.result` and TOOL_CALL_RESULT; the last progress goes out before them."""
        now = time()
        ms = int(now * 1000)
        wire = output.to_wire()
        value: dict[str, Any] = {**self.identity, "status": output.status}
        value.update({key: item for key, item in wire.items() if key != "status"})
        if error := (output.structured_content or {}).get("error") if output.is_error else None:
            value["error"] = {"code": error["code"], "message": output.text, "retryable": error["retryable"]}
        value["durationMs"] = round((monotonic() - self._started) * 1000)
        if still_running:
            value["stillRunning"] = True
        with self.run.lock:
            if self._pacer and (last := self._pacer.take(monotonic(), force=True)):
                self._write_progress(ms, last)
            self.run.write(events.custom(ms, "tool.result", value))
            self.run.write(events.tool_call_result(ms, self.call_id, output.text, is_error=output.is_error))
            self.closed = True
            self.output = output
            started = self._record.started_at
            self.run.save_call(CallRecord(self.call_id, self.tool_name, output.status, started, now))
        self.signal.detach()

    # -- what the tool emits; any thread --

    def emit(self, name: str, value: object, batch: bool = False) -> None:
        """A custom event of the tool. `TypeError`/`ValueError` for a bad name or value, see contract 4.3."""
        if type(name) is not str or not self._custom.knows(name):
            check_event_name(name)
        changes: list[Change] = []
        self.emit_encoded(name, CustomWriter.value(value, changes), changes, batch)

    def emit_encoded(self, name: str, value: bytes, changes: Sequence[Change] = (), batch: bool = False) -> None:
        """The same with a value that is bytes already (process tools encode in their own process)."""
        if changes:
            self.replaced(changes)
        limit = self.run.settings.max_event_bytes
        if len(value) > limit:
            self.replaced([Change("too_large", "$")])
            value = b'{"$too_large":%d}' % len(value)
        payload = self._custom.wrap(int(time() * 1000), name, value)
        run = self.run
        with run.lock:
            if self.closed:
                run.counts.add("late_emits")
            else:
                run.writer.write(run.machine.emit_custom(payload), batch=batch)

    def emit_output(self, value: object) -> None:
        """`tool.output`: what a generator yields; a non-mapping `y` as `{"value": y}`."""
        changes: list[Change] = []
        output = encode(_fields(value), changes)
        if changes:
            self.replaced(changes)
        if len(output) > self.run.settings.max_event_bytes:
            self.replaced([Change("too_large", "$")])
            output = b'{"$too_large":%d}' % len(output)
        payload = b'{"type":"CUSTOM","timestamp":%d,"name":"tool.output","value":%b,"output":%b}}' % (
            int(time() * 1000),
            encode(self.identity)[:-1],
            output,
        )
        with self.run.lock:
            if self.closed:
                self.run.counts.add("late_emits")
            else:
                self.run.writer.write(self.run.machine.emit_custom(payload))

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Takes a report; at most one in 50 ms goes out, the last one always (contract 4.4)."""
        progress = _number("progress", progress)
        total = None if total is None else _number("total", total)
        if message is not None and not isinstance(message, str):
            raise TypeError(f"The message of a progress report is a str, not {type(message).__name__}.")
        with self.run.lock:
            if self.closed:
                self.run.counts.add("late_emits")
                return
            if self._pacer is None:
                self._pacer = ProgressPacer()
            value = self._pacer.report(monotonic(), progress, total, message)
            if value is not None:
                self._write_progress(int(time() * 1000), value)
            elif not self._pacing:
                self._pacing = True
                self.run.soon(self._pace)

    def _pace(self) -> None:
        """Waits on the loop until the kept report is due, then sends what is the last one by then."""
        with self.run.lock:
            due = self._pacer.due if self._pacer and not self.closed else None
            if due is None:
                self._pacing = False
                return
            now = monotonic()
            if value := self._pacer.take(now) if self._pacer else None:
                self._write_progress(int(time() * 1000), value)
                self._pacing = False
                return
        self.run.later(due - now, self._pace)

    def _write_progress(self, ms: int, value: Mapping[str, Any]) -> None:
        self.run.write(events.custom(ms, "tool.progress", {**self.identity, **value}))

    def replaced(self, changes: Sequence[Change]) -> None:
        """Counts what JSON could not hold, and logs each place once a tool; raises under `strict_payloads`."""
        if self.run.settings.strict_payloads:
            raise PayloadError(changes[0].path, changes[0].kind)
        for change in changes:
            self.run.counts.add(f"payload_replaced.{change.kind}")
            place = (self.tool_name, change.path)
            if place not in _logged_paths and len(_logged_paths) < MAX_LOGGED_PATHS:
                _logged_paths.add(place)
                logger.warning("%s: the value at %s was replaced (%s)", *place, change.kind)


def _fields(value: object) -> Mapping[Any, Any]:
    try:
        return as_mapping(value)
    except TypeError:
        return {"value": value}


def _number(what: str, value: object) -> float:
    """Any real number as int or float; numpy's and Decimal's too."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"The {what} of a progress report is a number, not {type(value).__name__}.")
    return float(value)
