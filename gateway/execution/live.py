"""A run that this worker executes: the state machine, its writer, and the signal that stops it.

Everything that changes a run goes through here, on the loop. Tools emit from any thread into the run's stage, and the
loop takes it from there: after a quiet time in its next turn, while events come quickly when one turn brought nothing
new, at most after 2 ms (performance.md 1). Methods that are not marked *any thread* belong to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gateway.errors import StoreError
from gateway.execution.clocks import PausableTimer
from gateway.execution.counts import Counts
from gateway.execution.ending import ENDINGS, SUCCESS, Ending
from gateway.execution.presence import Presence
from gateway.execution.pressure import Pressure
from gateway.execution.signals import AbortSignal
from gateway.run.interrupts import interrupt_wire
from gateway.run.questions import Question
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.run.stage import PIECES, Stage
from gateway.run.state import RunMachine, State
from gateway.settings import Settings
from gateway.stores.base import Lease, RunWriter
from gateway.wire import events
from gateway.wire.codec import encode

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.session_tools import SessionTools
    from gateway.execution.spec import RunSpec

__all__ = ["Channel", "LiveRun"]

# How the calls of a run may ask the person (contract 5.6): inside the open run; approvals by an AG-UI interrupt;
# only by interrupt, since the answer is one JSON; not at all, since there is no run that anybody sees.
Channel = Literal["open", "interrupt", "json", "none"]

logger = logging.getLogger("gateway")
T = TypeVar("T")

BUSY = 0.002  # seconds: the longest that events wait in the stage while more keep coming
BATCH_SECONDS = 0.05
BATCH_EVENTS = 32
# About a socket write. From a tool that never gives way it is taken in the tool's own frame.
FULL = 192 * PIECES
OVERFULL = 64 * FULL
OVERFULL_SECONDS = 1.0  # a thread waits no longer: perhaps the loop is waiting for that very thread


class Flushed:
    """What a flush in a thread returns: awaiting it returns at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # what makes it a generator


class LiveRun:
    """See the module. `done` is set when the terminal event is in the store."""

    def __init__(
        self,
        record: RunRecord,
        writer: RunWriter,
        settings: Settings,
        counts: Counts | None = None,
        tools: SessionTools | None = None,
        *,
        unheard: bool = False,
        lease: Lease | None = None,
        channel: Channel = "open",
    ) -> None:
        self.machine = RunMachine(record)
        self.lease = lease
        self.channel: Channel = "none" if unheard else channel
        #: What it was started for; None for a run that only carries one call of an adapter.
        self.spec: RunSpec | None = None
        #: Calls of the request that a frontend runs, after this run.
        self.pending_call_ids: list[str] = []
        #: An agent is at work: there is something to stop although no call is open.
        self.streaming = False
        #: What the agent wants it to end in.
        self.ending: Ending = SUCCESS
        #: Background runs of its calls, which use its context.
        self.jobs: list[LiveRun] = []
        #: Its time limit, which stands still while a call waits for the person.
        self.clock: PausableTimer | None = None
        self.began = monotonic()
        self._waits = 0
        # Tails of calls that have moved to a background run, and for such a run where its call came from.
        self._moved: dict[bytes | None, LiveRun] = {}
        self._source: LiveRun | None = None
        self.writer = writer
        self.pressure = Pressure(writer, settings.max_pending_bytes, lambda: self.machine.over or self.signal.aborted)
        self.stage = Stage()
        self.taking = False
        self.closed_tails: set[bytes] = set()
        self.settings = settings
        self._tools = tools
        #: A run that only carries one call of an adapter: nobody can see or stop it.
        self.unheard = unheard
        self.who = ""  # started it, as the log says it
        self.signal = AbortSignal()
        self.calls: dict[str, Call] = {}
        self.early_stops: dict[str, str] = {}  # of calls that are announced and not made yet: the reason
        # The worker's own: a tool that goes on after the end of its run is still counted.
        self.counts = Counts() if counts is None else counts
        self.done = asyncio.Event()
        leave, cancels = partial(self.stop, "disconnect"), settings.on_disconnect == "cancel"
        self.presence = Presence(leave, cancels=cancels, grace=settings.disconnect_grace)
        self._batched = self._seen = 0
        self._batching, self._settled_at = False, 0.0
        self._notices: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def key(self) -> RunKey:
        return self.machine.record.key

    @property
    def record(self) -> RunRecord:
        return self.machine.record

    @property
    def tools(self) -> SessionTools:
        """The tools that are there for whoever started it."""
        if self._tools is None:
            raise RuntimeError("This run was started without a catalogue.")
        return self._tools

    @property
    def has_work(self) -> bool:
        """Whether an agent is at work, or a call open or to be started: else Stop has nothing to stop."""
        return self.streaming or any(not call.closed or call.parked for call in self.calls.values())

    def find_call(self, call_id: str) -> Call | None:
        """A call of the run, or one inside of such a call."""
        return self.calls.get(call_id) or _find(self.calls.values(), call_id)

    @property
    def parked(self) -> list[Call]:
        """The calls that have asked by an interrupt and wait for the end of the run."""
        return [call for call in self.calls.values() if call.parked]

    @property
    def questions(self) -> list[Question]:
        """The questions that it will end with, unless it is stopped."""
        of_calls = [call.question for call in self.parked if call.question is not None]
        return [*of_calls, *(question for question, _ in self.ending.asked)]

    # -- events --

    def start(self) -> None:
        self.writer.on_trim(partial(self.notice, "warning", "log_trimmed", "The oldest events of this run are gone."))
        self.writer.write(self.machine.start(time()))
        self.writer.save(self.machine.record)

    def write(self, event: Mapping[str, Any], payload: bytes | None = None) -> None:
        """Writes an event between start and end of the run, after what is staged; as `payload`, its JSON, if given."""
        self.settle()
        before = self.machine.record
        self.writer.write(self.machine.emit(event, payload))
        if self.machine.record is not before:  # it says what is open
            self.writer.save(self.machine.record)

    def save_call(self, call: CallRecord) -> None:
        """Puts a call's state into the run's record."""
        self.machine.set_call(call)
        self.writer.save(self.machine.record)

    def staged(self, batch: bool = False) -> None:
        """*Any thread.* Something was added to the stage: sees to it that it is taken, and that it stays bounded."""
        if len(self.stage.pieces) >= FULL:
            self._relieve()
        elif batch and not self.taking:
            # Counting from several threads may lose one, so the timer does not hang on the count.
            self._batched += 1
            if self._batched >= BATCH_EVENTS:
                self._batched = 0
                self._take_soon()
            elif not self._batching:
                self._batching = True
                self.soon(partial(self.later, BATCH_SECONDS, self._batch_due))
        elif not self.taking:
            self._take_soon()

    def settle(self) -> None:
        """Moves what is staged into the log."""
        self.taking = False  # before the look: whoever adds later sees it, and calls again
        self._batched = self._seen = 0
        if self._source is not None:
            self._source.hand_over()
        if self._moved:
            self.hand_over()
        if not self.stage.pieces:
            return
        self._settled_at = monotonic()
        if self.machine.over:
            self.counts.add("late_emits", len(self.stage))
            self.stage.pieces.clear()
            return
        data, count, dropped = self.stage.take(self.machine.seq + 1, self.closed_tails)
        if dropped:
            self.counts.add("late_emits", dropped)
        if count:
            self.machine.advance(count)
            self.writer.write(data, count)
            self.pressure.look()

    def _batch_due(self) -> None:
        self._batching = False  # before the look, as in `settle`
        self.settle()

    def flush(self) -> Awaitable[None]:
        """*Any thread.* See `ToolContext.flush`."""
        if threading.get_ident() == self._thread:
            self.settle()
            return self.writer.flush()
        asyncio.run_coroutine_threadsafe(self._settle_and_flush(), self._loop).result()
        return Flushed()

    def block_on(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """*Any other thread.* Runs a coroutine on the loop and blocks until it is done."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("This would block the loop: await the other form.")
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result()

    async def _settle_and_flush(self) -> None:
        self.settle()
        await self.writer.flush()

    def _take_soon(self) -> None:
        self.taking = True
        self.soon(self._look)

    def _look(self) -> None:
        staged = len(self.stage.pieces)
        if staged != self._seen and monotonic() - self._settled_at < BUSY:
            # Busy: look again in the next turn; a tool that gives way after each event runs in between.
            self._seen = staged
            self._loop.call_soon(self._look)
        else:
            self.settle()

    def _relieve(self) -> None:
        """The stage is full: on the loop it is taken at once; a thread that outruns the loop waits for a turn of it."""
        if threading.get_ident() == self._thread:
            self.settle()
        elif len(self.stage.pieces) >= OVERFULL:
            turned = threading.Event()
            self.soon(self.settle)
            self.soon(turned.set)
            turned.wait(OVERFULL_SECONDS)
        elif not self.taking:
            self._take_soon()

    # -- what moves to the background --

    def move_tails(self, tails: tuple[bytes, ...], job: LiveRun) -> None:
        """From now on the events with these tails belong to `job`: a thread may just be adding one here."""
        self.settle()
        self._moved.update(dict.fromkeys(tails, job))
        job._source = self

    def hand_over(self) -> None:
        """Gives what is staged here for background runs to them, before what they have themselves: that is older."""
        if not self.stage.pieces:
            return
        pieces = self.stage.withdraw(self._moved)
        given: dict[LiveRun, list[bytes | None]] = {}
        for start in range(0, len(pieces), PIECES):
            event = pieces[start : start + PIECES]
            given.setdefault(self._moved[event[-1]], []).extend(event)
        for job, events_of_it in given.items():
            job.stage.pieces[:0] = events_of_it
            job.staged()

    # -- waiting for the person --

    def limit(self, clock: PausableTimer) -> None:
        """Gives the run its time limit. A background run may be waiting already."""
        self.clock = clock
        if self._waits:
            clock.pause()

    def wait_began(self) -> None:
        """One more wait for the person."""
        self._waits += 1
        if self._waits == 1 and self.clock is not None:
            self.clock.pause()
        if self._waits == 1 and self.machine.state is State.RUNNING:
            self.machine.wait()
            self.writer.save(self.machine.record)

    def wait_ended(self) -> None:
        self._waits -= 1
        if self._waits == 0 and self.clock is not None:
            self.clock.resume()
        if self._waits == 0 and self.machine.state is State.WAITING:
            self.machine.resume()
            self.writer.save(self.machine.record)

    # -- more events --

    def notice(self, level: str, code: str, message: str) -> None:
        """`gateway.notice`, at most one a code and run; silently none when the run is over."""
        if code in self._notices or self.machine.over:
            return
        self._notices.add(code)
        value = {"level": level, "code": code, "message": message}
        self.write(events.custom(int(time() * 1000), "gateway.notice", value))

    def soon(self, callback: Callable[[], object]) -> None:
        """*Any thread.* Calls back on the loop; nothing happens when the loop has gone."""
        if threading.get_ident() == self._thread:
            self._loop.call_soon(callback)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)

    def later(self, delay: float, callback: Callable[[], object]) -> None:
        """Calls back on the loop after `delay` seconds; for the loop's own thread."""
        self._loop.call_later(delay, callback)

    # -- ending --

    def stop(self, reason: str, message: str | None = None) -> bool:
        """Aborts the run's calls. False, and nothing changes, when nothing is left to run or it is stopping already."""
        if not self.has_work or self.signal.aborted or self.machine.over:
            return False
        self.settle()
        self.writer.write(self.machine.stop(time(), reason, message))
        self.writer.save(self.machine.record)
        self.signal.abort(reason)
        return True

    def stopped_after_all(self, reason: str) -> None:
        """The person wanted it stopped, too, although something else has stopped it first."""
        self.machine.record = replace(self.machine.record, reason=reason, stop_requested=reason)

    def end(self, result: Any = None) -> None:
        """The terminal event that the run's history calls for; exactly once."""
        self.settle()
        if result is not None:
            self.machine.record = replace(self.machine.record, result=encode(result))
        self._write_last(self._last_frames(time(), result))

    def _last_frames(self, now: float, result: Any) -> list[bytes]:
        reason, machine, ending = self.signal.reason, self.machine, self.ending
        if "user" in (reason, machine.record.stop_requested):
            return machine.cancel(now, result)
        if reason is not None:
            return machine.fail(now, *ENDINGS[reason])
        if ending.failure is not None:
            return machine.fail(now, *ending.failure, ending.more)
        of_calls = [interrupt_wire(call.question, self.key.run_id) for call in self.parked if call.question is not None]
        if asked := [*of_calls, *(wire for _, wire in ending.asked)]:
            return machine.interrupt(now, asked, ending.more)
        return machine.finish(now, result, self.pending_call_ids, ending.more)

    def fail(self, code: str, message: str) -> None:
        """RUN_ERROR, whatever is open."""
        self.settle()
        self._write_last(self.machine.fail(time(), code, message))

    def _write_last(self, frames: list[bytes]) -> None:
        for frame in frames:
            self.writer.write(frame)
        for call in self.calls.values():
            call.closed = True  # whatever went wrong with it: what it still emits is dropped, not an error
        self.writer.save(self.machine.record)

    async def finished(self) -> None:
        """Waits until the end of the run is in the store, then lets the waiters know."""
        try:
            await self.writer.flush()
        except StoreError as error:
            logger.error("The end of run %s could not be stored: %s", self.key.label, error)
        self.signal.detach()
        self.presence.close()
        self.done.set()


def _find(calls: Iterable[Call], call_id: str) -> Call | None:
    for call in calls:
        found = call if call.call_id == call_id else _find(call.nested, call_id)
        if found is not None:
            return found
    return None
