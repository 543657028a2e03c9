"""One tool call of a run: what goes out for it, from its start to its result.

`begin` and `finish` bracket the call; in between the tool emits through its context, from any thread. After `finish`
nothing of the call goes out any more: late emits are dropped and counted (contract 4.3).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from time import monotonic, time, time_ns
from typing import TYPE_CHECKING, Any

from gateway.errors import PayloadError
from gateway.execution.names import check_event_name
from gateway.execution.signals import AbortSignal
from gateway.run.pacing import ProgressPacer, as_number
from gateway.run.records import CallRecord
from gateway.run.stage import END
from gateway.wire import events
from gateway.wire.codec import Change, as_mapping, encode
from gateway.wire.events import CustomWriter

if TYPE_CHECKING:
    from gateway.execution.live import LiveRun
    from gateway.execution.outcomes import ToolOutput
    from gateway.execution.tools import Tool

__all__ = ["Call", "now_ms"]

logger = logging.getLogger("gateway.payloads")

MAX_LOGGED_PATHS = 1_000
_logged_paths: set[tuple[str, str]] = set()


class Call:
    """See the module. `arguments` are as the caller sent them.

    `refused` is the outcome of a call that never runs: no such tool, no JSON. A call that the
    client `held` already, in `parent_message_id`, sends no ARGS: the client would append them to what it has.
    """

    __slots__ = (
        "_nested",
        "_paced",
        "_pacer",
        "_pacing",
        "_percent",
        "_record",
        "_started",
        "arguments",
        "call_id",
        "closed",
        "custom",
        "depth",
        "dropped",
        "expired",
        "held",
        "left",
        "nested",
        "output",
        "parent",
        "parent_message_id",
        "refused",
        "run",
        "signal",
        "still_running",
        "timeout",
        "tool",
        "tool_name",
        "work",
    )

    def __init__(
        self,
        run: LiveRun,
        call_id: str,
        tool_name: str,
        tool: Tool | None,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        parent: Call | None = None,
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
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.signal: AbortSignal = run.signal.child() if parent is None else parent.signal.child()
        if parent is not None and parent.output is not None:
            self.signal.abort("tool")  # code that its parent left behind: nobody would hear of it, and no Stop reach it
        self.closed = False
        self.still_running = False
        self.dropped = False
        self.expired = False  # its own clock has rung
        self.left = False  # code of it goes on that nobody waits for
        self.nested = 0  # calls inside it that have no result yet
        self.work: asyncio.Future[Any] | None = None
        self.output: ToolOutput | None = None
        self.custom = CustomWriter(call_id, tool_name, END, None if parent is None else parent.call_id)
        self._nested = 0
        self._percent = False
        self._pacer = ProgressPacer()
        self._pacing = threading.Lock()
        self._paced = False
        self._started = monotonic()
        self._record = CallRecord(call_id, tool_name)
        if parent is None:
            run.calls[call_id] = self

    def nest(self, tool_name: str, arguments: Mapping[str, Any], timeout: float | None) -> Call:
        """A call inside this one, under its signal: not in the model's history, so only CUSTOM events tell of it."""
        self._nested += 1
        self.nested += 1
        return Call(self.run, f"{self.call_id}/{self._nested}", tool_name, None, arguments, timeout, parent=self)

    @property
    def limit(self) -> float:
        """Its time limit in seconds, 0 for ever: the caller's, else the tool's, else the gateway's."""
        if self.timeout is not None:
            return self.timeout
        own = None if self.tool is None else self.tool.timeout
        return self.run.settings.tool_timeout if own is None else own

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that begin the value of every event of the gateway about this call."""
        return {"toolCallId": self.call_id, "toolName": self.tool_name}

    def begin(self) -> None:
        """TOOL_CALL_START, ARGS and END: the call as the model made it."""
        self._started = monotonic()
        now = time()
        ms = int(now * 1000)
        if self.parent is not None:
            return
        self._record = CallRecord(self.call_id, self.tool_name, "running", now, open=True)
        run = self.run
        run.write(events.tool_call_start(ms, self.call_id, self.tool_name, self.parent_message_id))
        if not self.held:
            run.write(events.tool_call_args(ms, self.call_id, events.arguments_text(self.arguments)))
        run.write(events.tool_call_end(ms, self.call_id))
        run.save_call(self._record)

    def finish(self, output: ToolOutput) -> None:
        """`tool.result` and TOOL_CALL_RESULT; the last progress goes out before them."""
        self.output = output
        if self.parent is not None:
            self.parent.nested -= 1
        if self.run.machine.over:  # a nested call that outlived its run: nobody is there to hear of it
            self.closed = True
            return
        now = time()
        ms = int(now * 1000)
        wire = output.to_wire()
        value: dict[str, Any] = {**self.identity, "status": output.status}
        value.update({key: item for key, item in wire.items() if key != "status"})
        if error := (output.structured_content or {}).get("error") if output.is_error else None:
            value["error"] = {"code": error["code"], "message": output.text, "retryable": error["retryable"]}
        value["durationMs"] = round((monotonic() - self._started) * 1000)
        if self.still_running:
            value["stillRunning"] = True
        with self._pacing:
            if (last := self._pacer.take(monotonic(), force=True)) is not None:
                self._add_progress(last)
            self.close()
        self.signal.detach()
        if self.parent is not None:
            self.run.write(events.custom(ms, "tool.result", value, {"parentToolCallId": self.parent.call_id}))
            return
        self.run.write(events.custom(ms, "tool.result", value))
        self.run.write(events.tool_call_result(ms, self.call_id, output.text, is_error=output.is_error))
        self.run.save_call(CallRecord(self.call_id, self.tool_name, output.status, self._record.started_at, now))

    def close(self) -> None:
        """From now on nothing of the tool goes out; what it emitted before does."""
        self.run.settle()
        self.closed = True
        self.run.closed_tails.update(self.custom.tails)

    # -- what the tool emits; any thread --

    def emit(self, name: str, value: object, batch: bool = False) -> None:
        """A custom event of the tool. `TypeError`/`ValueError` for a bad name or value, see contract 4.3."""
        if type(name) is not str or not self.custom.knows(name):
            check_event_name(name)
        changes: list[Change] = []
        self.emit_encoded(name, self.custom.value(value, changes), changes, batch)

    def emit_encoded(self, name: str, value: bytes, changes: Sequence[Change] = (), batch: bool = False) -> None:
        """The same with a checked name and a value that is bytes already: process tools encode in their process."""
        value = self._within_limits(value, changes)
        tail = self.custom.bare_tail if value == b"{}" else self.custom.tail
        self._add(self.custom.head(now_ms(), name), value[1:-1], tail, batch)

    def emit_output(self, value: object) -> None:
        """`tool.output`: what a generator yields; a non-mapping `y` as `{"value": y}`."""
        changes: list[Change] = []
        output = self._within_limits(encode(_mapping(value), changes), changes)
        self._add(self.custom.own_head(now_ms(), "tool.output"), b'"output":' + output, self.custom.own_tail)

    def _within_limits(self, value: bytes, changes: Sequence[Change]) -> bytes:
        if changes:
            self.replaced(changes)
        if len(value) <= self.run.settings.max_event_bytes:
            return value
        self._count([Change("too_large", "$")])
        return b'{"$too_large":%d}' % len(value)

    def _add(self, head: bytes, fields: bytes, tail: bytes, batch: bool = False) -> None:
        if self.closed:
            self.run.counts.add("late_emits")
        else:
            self.run.stage.add((None, head, fields, tail))
            self.run.staged(batch)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Takes a report; at most one in 50 ms goes out, the last one always (contract 4.4)."""
        progress = as_number("progress", progress)
        total = None if total is None else as_number("total", total)
        if message is not None and not isinstance(message, str):
            raise TypeError(f"The message of a progress report is a str, not {type(message).__name__}.")
        with self._pacing:
            if self.closed:
                self.run.counts.add("late_emits")
            elif (value := self._pacer.report(monotonic(), progress, total, message)) is not None:
                self._add_progress(value)
            elif not self._paced:
                self._paced = True
                self.run.soon(self._pace)

    def update(self, message: str, percent: float | None = None) -> None:
        """A task's progress: a message, and a part of 100 once that is known."""
        self._percent = self._percent or percent is not None
        self.progress(math.nan if percent is None else percent, 100 if self._percent else None, message)

    def _pace(self) -> None:
        """Waits on the loop until the kept report is due, then sends what is the last one by then."""
        with self._pacing:
            due = None if self.closed else self._pacer.due
            now = monotonic()
            if due is not None and due > now:
                self.run.later(due - now, self._pace)
                return
            self._paced = False
            if due is not None and (value := self._pacer.take(now)) is not None:
                self._add_progress(value)

    def _add_progress(self, value: Mapping[str, Any]) -> None:
        self._add(self.custom.own_head(now_ms(), "tool.progress"), encode(value)[1:-1], self.custom.own_tail)

    def replaced(self, changes: Sequence[Change]) -> None:
        """Counts what JSON could not hold, and logs each place once a tool; raises under `strict_payloads`."""
        if self.run.settings.strict_payloads:
            raise PayloadError(changes[0].path, changes[0].kind)
        self._count(changes)

    def _count(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.run.counts.add(f"payload_replaced.{change.kind}")
            place = (self.tool_name, change.path)
            if place not in _logged_paths and len(_logged_paths) < MAX_LOGGED_PATHS:
                _logged_paths.add(place)
                logger.warning("%s: the value at %s was replaced (%s)", *place, change.kind)


def now_ms() -> int:
    """Unix milliseconds, the unit of `timestamp`."""
    return time_ns() // 1_000_000


def _mapping(value: object) -> Mapping[Any, Any]:
    try:
        return as_mapping(value)
    except TypeError:
        return {"value": value}
