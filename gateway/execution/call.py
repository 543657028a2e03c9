"""One tool call of a run: what goes out for it, from its start to its result.

`begin` and `finish` bracket the call; in between the tool emits through its context, from any thread. After `finish`
nothing of the call goes out any more: late emits are dropped and counted (contract 4.3).
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic, time, time_ns
from typing import TYPE_CHECKING, Any

from gateway.errors import Interrupt
from gateway.execution import payloads
from gateway.execution.names import check_event_name
from gateway.execution.results import result_fields
from gateway.execution.signals import AbortSignal
from gateway.execution.waiting import Wait, end_waits, question_of
from gateway.run.pacing import ProgressPacer, as_number
from gateway.run.questions import NONE, Answer, Question
from gateway.run.records import CallRecord
from gateway.run.stage import END
from gateway.wire import events
from gateway.wire.codec import Change, as_mapping, encode
from gateway.wire.events import CustomWriter

if TYPE_CHECKING:
    from gateway.execution.bodies import Body, TaskBody
    from gateway.execution.context import ToolContext
    from gateway.execution.detaching import Offer
    from gateway.execution.live import LiveRun
    from gateway.execution.middleware import Inside
    from gateway.execution.outcomes import ToolOutput
    from gateway.execution.page_tools import PageTool
    from gateway.execution.tools import Tool

__all__ = ["Call", "now_ms"]


class Call:
    """See the module. `arguments` are as the caller sent them.

    `refused` is the outcome of a call that never runs: no such tool, no JSON. A call that the
    client `held` already, in `parent_message_id`, sends no ARGS: the client would append them to what it has.
    A call that has moved to the background (`background`) is not in the model's history any more, nor is a nested one:
    only CUSTOM events tell of them.
    """

    __slots__ = (
        "_numbered",
        "_paced",
        "_pacer",
        "_pacing",
        "_percent",
        "_record",
        "_started",
        "answers",
        "approval",
        "approved_for",
        "arguments",
        "around",
        "body",
        "call_id",
        "clock",
        "closed",
        "ctx",
        "custom",
        "depth",
        "dropped",
        "expired",
        "held",
        "left",
        "listed",
        "moved",
        "nested",
        "newest",
        "offers",
        "output",
        "parent",
        "parent_message_id",
        "question",
        "refused",
        "run",
        "signal",
        "still_running",
        "taken",
        "timeout",
        "tool",
        "tool_name",
        "unoffer",
        "untimed",
        "waits",
        "woken",
        "work",
        "work_left",
    )
    approved_for: Mapping[str, Any] | None  # the arguments that the person has approved
    around: tuple[TaskBody, Inside] | None  # the middleware, as its task
    work_left: list[asyncio.Future[Any]]  # of a call in the background, by the tool

    def __init__(
        self,
        run: LiveRun,
        call_id: str,
        tool_name: str,
        tool: Tool | PageTool | None,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        parent: Call | None = None,
        background: bool = False,
        refused: ToolOutput | None = None,
        parent_message_id: str | None = None,
        held: bool = False,
    ) -> None:
        self.run = run
        self.call_id, self.tool_name = call_id, tool_name
        self.tool = tool
        self.arguments = arguments
        self.timeout = timeout
        self.refused = refused
        self.parent_message_id, self.held = parent_message_id, held
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.signal: AbortSignal = run.signal.child() if parent is None else parent.signal.child()
        if parent is not None and parent.ended:
            self.signal.abort("tool")  # code that its parent left behind: nobody would hear of it, and no Stop reach it
        self.closed = self.still_running = self.dropped = False
        self.expired = False  # its own clock has rung
        self.taken = False  # a page has claimed it
        self.left = False  # code of it goes on that nobody waits for
        self.nested: dict[Call, None] = {}  # calls inside it that have no result yet
        self.work: asyncio.Future[Any] | None = None
        self.around, self.work_left, self.approved_for = None, [], None
        self.output: ToolOutput | None = None
        self.listed = parent is None and not background
        self.ctx: ToolContext | None = None
        self.clock: asyncio.TimerHandle | None = None
        self.untimed = False  # it has waited for the person: no clock any more
        self.waits: list[Wait] = []
        self.answers: Mapping[str, Answer] = NONE  # to its interrupts, by key
        self.newest: Answer | None = None
        self.approval: Answer | None = None
        self.question: Question | None = None  # with which it has ended its run
        self.offers: list[Offer] = []  # work that may move to the background
        self.unoffer: Callable[[], None] | None = None  # tells other workers that it cannot move any more
        self.moved: Call | None = None  # what it is there
        self.body: Body | None = None  # the tool's own code
        self.woken: set[asyncio.Future[None]] = set()  # of the executor, for when it moves
        self.custom = CustomWriter(call_id, tool_name, END, None if parent is None else parent.call_id)
        self._numbered = 0
        self._percent = self._paced = False
        self._pacer = ProgressPacer()
        self._pacing = threading.Lock()
        self._started = monotonic()
        self._record = CallRecord(call_id, tool_name)
        if parent is None:
            run.calls[call_id] = self

    def nest(self, tool_name: str, arguments: Mapping[str, Any], timeout: float | None) -> Call:
        """A call inside this one, under its signal: not in the model's history, so only CUSTOM events tell of it."""
        self._numbered += 1
        nested = Call(self.run, f"{self.call_id}/{self._numbered}", tool_name, None, arguments, timeout, parent=self)
        self.nested[nested] = None
        return nested

    @property
    def ended(self) -> bool:
        """Whether it has its result, or has asked by an interrupt: what code of it still does is for nobody."""
        return self.output is not None or self.question is not None

    @property
    def current(self) -> Call:
        """What it is by now: itself, or its call in the background."""
        return self if self.moved is None else self.moved.current

    @property
    def parked(self) -> bool:
        """Whether it has asked by an interrupt, and its run has not ended yet."""
        return self.question is not None and self.output is None

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
        """The call goes out as the model made it."""
        self._started = monotonic()
        if self.parent is not None:
            return
        now = time()
        self._record = CallRecord(self.call_id, self.tool_name, "running", now, open=True)
        self.announce(int(now * 1000))
        self.run.save_call(self._record)

    def announce(self, ms: int) -> None:
        """TOOL_CALL_START, ARGS and END."""
        run = self.run
        run.write(events.tool_call_start(ms, self.call_id, self.tool_name, self.parent_message_id))
        if not self.held:
            run.write(events.tool_call_args(ms, self.call_id, events.arguments_text(self.arguments)))
        run.write(events.tool_call_end(ms, self.call_id))

    def finish(self, output: ToolOutput) -> None:
        """`tool.result` and TOOL_CALL_RESULT; the last progress goes out before them."""
        self.output = output
        if self.parent is not None:
            self.parent.nested.pop(self, None)
        self._let_go()
        if self.run.machine.over:  # a nested call that outlived its run: nobody is there to hear of it
            self.closed = True
            return
        now = time()
        fields = result_fields(output, monotonic() - self._started, still_running=self.still_running)
        self._last_progress(self.close)
        self.signal.detach()
        self.tell("tool.result", fields)
        if self.listed:
            ms = int(now * 1000)
            self.run.write(events.tool_call_result(ms, self.call_id, output.text, is_error=output.is_error))
        if self.parent is None:
            self._save(status=output.status, ended_at=now, open=False)

    def park(self, asked: Interrupt) -> None:
        """The call has asked by an interrupt: it gets no result in this run, and is made again on resume."""
        now = time()
        self.question = question_of(self, asked, now)
        self._let_go()
        self._last_progress(self.close)
        self.signal.detach()
        self._save(status="interrupted", ended_at=now, open=False)

    def _let_go(self) -> None:
        """What it started for itself ends with it."""
        self.stop_clock()
        end_waits(self)
        self.ctx = None
        if self.unoffer is not None:
            self.unoffer()
            self.unoffer = None
        for offer in self.offers:
            offer.withdraw(aborted=self.signal.aborted)
        self.offers.clear()

    def stop_clock(self) -> None:
        """For good: the call waits for the person, or is over."""
        self.untimed = True
        if self.clock is not None:
            self.clock.cancel()
            self.clock = None

    def tell(self, name: str, fields: Mapping[str, Any]) -> None:
        """One of the gateway's own events about the call, after what it has emitted and reported so far."""
        self._last_progress()
        parent = None if self.parent is None else {"parentToolCallId": self.parent.call_id}
        self.run.write(events.custom(now_ms(), name, {**self.identity, **fields}, parent))

    def _save(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        self.run.save_call(self._record)

    def show_waiting(self, *, waiting: bool) -> None:
        """Says in the run's record whether the call waits for the person."""
        if self.parent is None and not self.closed:
            self._save(status="waiting" if waiting else "running")

    def show_detached(self, run_id: str) -> None:
        """Says in the run's record where the call goes on."""
        self._save(detached_run_id=run_id)

    def become(self, moved: Call) -> None:
        """Hands over to what this call is in the background: progress so far, the numbers of calls inside it, its
        answers, and from now on also what a thread still reports here."""
        moved._percent, moved._numbered, moved._started = self._percent, self._numbered, self._started
        moved.answers, moved.newest, moved.untimed = self.answers, self.newest, True
        moved.ctx, self.ctx = self.ctx, None
        with self._pacing, moved._pacing:
            moved._pacer, self._pacer = self._pacer, ProgressPacer()
            moved._paced = self._paced
            # All the ways in which a thread may say something change here: one that stayed would be overtaken.
            if moved.ctx is not None:
                moved.ctx._rebind(moved, moved.run)
            self.moved = moved
        moved._save(status="running", started_at=time())

    def close(self) -> None:
        """From now on nothing of the tool goes out; what it emitted before does."""
        self.run.settle()
        self.closed = True
        self.run.closed_tails.update(self.custom.tails)

    def _last_progress(self, then: Callable[[], None] | None = None) -> None:
        with self._pacing:
            if (last := self._pacer.take(monotonic(), force=True)) is not None:
                self._add_progress(last)
            if then is not None:
                then()

    # -- what the tool emits; any thread --

    def emit(self, name: str, value: object, batch: bool = False) -> None:
        """A custom event of the tool. `TypeError`/`ValueError` for a bad name or value, see contract 4.3."""
        if type(name) is not str or not self.custom.knows(name):
            check_event_name(name)
        changes: list[Change] = []
        self.emit_encoded(name, self.custom.value(value, changes), changes, batch)

    def emit_encoded(self, name: str, value: bytes, changes: Sequence[Change] = (), batch: bool = False) -> None:
        """The same with a checked name and a value that is bytes already: process tools encode in their process."""
        value = payloads.within_limits(self.run, self.tool_name, value, changes)
        tail = self.custom.bare_tail if value == b"{}" else self.custom.tail
        self._add(self.custom.head(now_ms(), name), value[1:-1], tail, batch)

    def emit_output(self, value: object) -> None:
        """`tool.output`: what a generator yields; a non-mapping `y` as `{"value": y}`."""
        changes: list[Change] = []
        encoded = encode(_mapping(value), changes)
        output = payloads.within_limits(self.run, self.tool_name, encoded, changes)
        self._add(self.custom.own_head(now_ms(), "tool.output"), b'"output":' + output, self.custom.own_tail)

    def _add(self, head: bytes, fields: bytes, tail: bytes, batch: bool = False) -> None:
        if self.moved is not None:
            self.moved._add(head, fields, tail, batch)
        elif self.closed:
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
            moved = self.moved
            if moved is not None:
                pass  # below, without this lock
            elif self.closed:
                self.run.counts.add("late_emits")
            elif (value := self._pacer.report(monotonic(), progress, total, message)) is not None:
                self._add_progress(value)
            elif not self._paced:
                self._paced = True
                self.run.soon(self._pace)
        if moved is not None:
            moved.progress(progress, total, message)

    def update(self, message: str, percent: float | None = None) -> None:
        """A task's progress: a message, and a part of 100 once that is known."""
        self._percent = self._percent or percent is not None
        self.progress(math.nan if percent is None else percent, 100 if self._percent else None, message)

    def _pace(self) -> None:
        """Waits on the loop until the kept report is due, then sends what is the last one by then."""
        if self.moved is not None:  # and so has the report
            self.moved._pace()
            return
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
        """What JSON could not hold of what the tool returned; raises under `strict_payloads`."""
        payloads.replaced(self.run, self.tool_name, changes)


def now_ms() -> int:
    """Unix milliseconds, the unit of `timestamp`."""
    return time_ns() // 1_000_000


def _mapping(value: object) -> Mapping[Any, Any]:
    try:
        return as_mapping(value)
    except TypeError:
        return {"value": value}
