"""Owns every run of this worker, from its creation to its end; no run lives in a response.

It creates runs in the store, runs their jobs, carries Stop requests from the store to them, bounds them in number and
time, and ends them at a shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Any

from gateway.errors import StoreError, TooMany, Unavailable
from gateway.execution.background import Detached, Detacher, Rejected
from gateway.execution.call import Call
from gateway.execution.clocks import PausableTimer
from gateway.execution.coming_to import aborted_output
from gateway.execution.counts import Counts
from gateway.execution.duties import Duties
from gateway.execution.elsewhere import Offering, detach_elsewhere
from gateway.execution.ending import ENDINGS
from gateway.execution.entering import cancelled, enter
from gateway.execution.executor import SHUTDOWN_GRACE, Executor
from gateway.execution.hearing import Hearing
from gateway.execution.live import LiveRun
from gateway.execution.middleware import Middleware
from gateway.execution.names import TOOL_NAME
from gateway.execution.presence import Guests, Watchers
from gateway.execution.question_desk import QuestionDesk
from gateway.execution.spec import RunSpec, no_context
from gateway.execution.threads import ThreadPool
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Lease, StopRequest, Store

__all__ = ["LEAVE_SECONDS", "RunSpec", "Supervisor", "no_context"]

logger = logging.getLogger("gateway")
audit = logging.getLogger("gateway.runs")

# How long a run's context may take to be left once the run is stopped and its calls have ended.
LEAVE_SECONDS = 1.0
# Of what a caller asks for, as much as is written to the log.
SAID_TOOLS = 10
SAID_LETTERS = 50


class Supervisor:
    """See the module. Made and used on one loop."""

    def __init__(self, settings: Settings, store: Store, middleware: Sequence[Middleware] = ()) -> None:
        self.settings = settings
        self.store = store
        self.worker = secrets.token_hex(8)
        self.draining = False
        self._drained = False
        #: Told of a run of which nothing more is stored, and why: `superseded`, `store`, `store_lost`.
        self.on_lost: Callable[[RunRecord, str], None] = lambda record, reason: None
        self.threads = ThreadPool(settings.max_threads)
        self.questions = QuestionDesk(store, self.spawn)
        self.executor = Executor(self.threads, self.spawn, settings.stop_grace, middleware, self.questions)
        self._detacher = Detacher(store, self.questions, self.worker, self._launch)
        self.questions.on_offer = Offering(self.questions, self.spawn, self._move).offer
        self.counts = Counts()
        self._runs: dict[RunKey, LiveRun] = {}
        self._per_session: Counter[str] = Counter()
        self._hearing = Hearing(store, self.worker, self.questions, self._runs.get, self._carry_out)
        self.duties = Duties(store, settings, self.worker, lambda: list(self._runs), self._hearing.look_at)
        self._guests = Guests(store, self.worker, self.spawn)
        self._tasks: set[asyncio.Task[Any]] = set()
        # Those of them that are runs, also a run that is over whose context its background runs still use.
        self._works: set[asyncio.Task[Any]] = set()

    # -- tasks --

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Starts a task that the supervisor keeps until it ends, and whose failure is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Task %s failed", task.get_name(), exc_info=error)

    async def open(self) -> None:
        """Begins to listen, and to end the runs of workers that have died."""
        self.spawn(self._hearing.listen(), name="messages")
        await self.duties.open(self.spawn)

    async def close(self) -> None:
        """Ends what is left: every run `interrupted`, then every task."""
        if not self._drained:  # else what is left had its time
            await self.drain(0)
        ended = self._tasks - self.questions.writing
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        if self.questions.writing:
            await asyncio.wait(self.questions.writing, timeout=SHUTDOWN_GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.duties.close()
        self.threads.close()

    # -- runs --

    @property
    def active(self) -> int:
        """How many runs are at work in this worker."""
        return len(self._runs)

    @property
    def runs(self) -> list[LiveRun]:
        """The runs that are at work in this worker."""
        return list(self._runs.values())

    def live(self, key: RunKey) -> LiveRun | None:
        """The run, if this worker executes it now."""
        return self._runs.get(key)

    def watchers(self, record: RunRecord) -> Watchers | None:
        """Who is to know of a viewer of this run; None: it does not matter."""
        run = self._runs.get(record.key)
        if run is not None:
            return run.presence
        return self._guests.of(record.key) if record.ends_unwatched and not record.over else None

    async def start(self, spec: RunSpec) -> tuple[RunRecord, bool]:
        """Creates and starts a run; `(record, False)` when an equal request created it before.

        Raises `Conflict` (`run_conflict`), `TooMany`, `Unavailable` (`draining`, `store_full`).
        """
        fresh = await self.store.get(spec.key) is None
        if fresh:  # joining a run, or being told of a conflict, is never refused
            self._admit(spec)
        record = RunRecord(
            spec.key,
            spec.thread_id,
            spec.agent,
            created_at=time(),
            parent_run_id=spec.parent_run_id,
            messages=spec.messages,
            ends_unwatched=(spec.on_disconnect or self.settings.on_disconnect) == "cancel",
        )
        if fresh and spec.answers is not None:
            await self.questions.give(spec.answers)
        try:
            created = await self.store.create(record, spec.fingerprint, self.worker)
        except BaseException:
            if fresh and spec.answers is not None:
                await self.questions.take_back(spec.key, spec.answers)
            raise
        if created.lease is None:
            return created.record, False
        self._per_session[_limit_key(spec)] += 1
        run = self._launch(spec, record, created.lease)
        if spec.answers is not None:
            self.questions.used(spec.answers.key, spec.key.run_id)
        # Without asking the store: a tool that never gives way would run before its first viewer is there.
        return replace(run.record, last_event_id=run.machine.seq), True

    def _launch(self, spec: RunSpec, record: RunRecord, lease: Lease) -> LiveRun:
        """Starts a run that is in the store; in one turn of the loop."""
        run = LiveRun(
            record,
            self.store.writer(lease),
            self.settings,
            self.counts,
            spec.tools,
            lease=lease,
            channel=spec.channel,
        )
        run.spec = spec
        run.writer.on_lost(partial(self._lost, run))
        run.presence.want(spec.on_disconnect, spec.disconnect_grace)
        if self.store.shared:
            run.presence.ask = partial(self.store.watched, spec.key)
        run.who = spec.caller.session_label
        spec.prepare(run)
        self._runs[spec.key] = run
        run.start()
        work = self.spawn(self._run(run, spec), name=f"run {spec.key.label}")
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        return run

    def _admit(self, spec: RunSpec) -> None:
        if self.draining:
            raise Unavailable("The gateway is shutting down.", code="draining")
        if len(self._runs) >= self.settings.max_runs:
            raise TooMany(f"{len(self._runs)} runs are at work here already.", code="too_many_runs")
        if self._per_session[_limit_key(spec)] >= self.settings.max_runs_per_session:
            raise TooMany("This session has too many runs at work.", code="too_many_runs")

    async def _run(self, run: LiveRun, spec: RunSpec) -> None:
        audit.info("run %s started: agent=%s tools=%s %s", run.key.label, spec.agent, _tools(run), run.who)
        try:
            await self._work(run, spec)
        finally:
            await self._over(run, spec)

    async def _over(self, run: LiveRun, spec: RunSpec) -> None:
        """After the terminal event; again changes nothing."""
        if self._runs.get(run.key) is not run:
            return
        await run.finished()
        self._forget(run, spec)
        said = "run %s ended: status=%s tools=%s %s duration=%.3fs"
        audit.info(said, run.key.label, run.record.status, _tools(run), run.who, monotonic() - run.began)

    async def _work(self, run: LiveRun, spec: RunSpec) -> None:
        """The job and its terminal event; a failure of our own or of `context` is `internal`, its text hidden."""
        bound = asyncio.timeout(None)
        result = None
        try:
            async with bound:
                with self._limited(run, bound):
                    async with AsyncExitStack() as stack:
                        context = await enter(spec.context(), run, stack)
                        result = await spec.job(run, self.executor, context)
                        if run.jobs:
                            # What went to the background still uses the context, so this run ends before it is left.
                            await self._end(run, result)
                            await self._over(run, spec)
                            bound.reschedule(None)
                            await asyncio.gather(*(job.done.wait() for job in run.jobs))
                await self._end(run, result)
        except BaseException as error:  # the boundary of a run: whatever got here, it ends with its one terminal
            self._broken(run, error, timed_out=bound.expired())
            if isinstance(error, asyncio.CancelledError) and cancelled():
                raise

    def _broken(self, run: LiveRun, error: BaseException, *, timed_out: bool) -> None:
        """The terminal event of a run whose job, context or bound did not come to an orderly end."""
        if isinstance(error, asyncio.CancelledError) and cancelled():
            run.stop("shutdown")
            ending = ENDINGS["shutdown"]
        elif timed_out:
            logger.warning("The context of run %s was not left in time", run.key.label)
            ending = ENDINGS["run_timeout"]
        elif isinstance(error, StoreError):
            logger.error("The store failed run %s: %s", run.key.label, error)
            ending = ENDINGS["store"]
        else:
            logger.error("Run %s failed inside the gateway", run.key.label, exc_info=error)
            ending = ("internal", "The gateway failed; its log says why.")
        if run.machine.over:
            return
        if run.signal.aborted and ending[0] != "internal":  # it ends in what it was stopped for
            self._settle_parked(run)
            run.end()
        else:
            run.fail(*ending)

    async def _end(self, run: LiveRun, result: Any) -> None:
        """The terminal event, after its questions are in the store: who sees it may answer at once."""
        if run.machine.over:
            return
        if run.lease is not None and not run.signal.aborted:
            await self.questions.leave(run.lease, lambda: [] if run.signal.aborted else run.questions)
        if run.signal.reason == "shutdown" and self.store.shared:
            await self._hearing.last_stop(run)
        self._settle_parked(run)
        run.end(result)

    def _settle_parked(self, run: LiveRun) -> None:
        """A run that was stopped is not resumed: also its calls that have asked get their results."""
        if run.signal.aborted:
            for call in run.parked:
                call.finish(aborted_output(call, run.signal.reason))

    @contextmanager
    def _limited(self, run: LiveRun, bound: asyncio.Timeout) -> Iterator[None]:
        """The run's time limit; after it, or a Stop, what is around the calls may not hold up the end for ever."""
        loop = asyncio.get_running_loop()
        limit = self.settings.run_timeout

        def stopped(_: str) -> None:
            bound.reschedule(loop.time() + 2 * self.settings.stop_grace + LEAVE_SECONDS)

        def time_is_up() -> None:
            if not run.stop("run_timeout") and not run.signal.aborted and not run.machine.over:
                bound.reschedule(loop.time())

        if limit:
            run.limit(PausableTimer(limit, time_is_up))
        remove = run.signal.on_abort(stopped)
        try:
            yield
        finally:
            remove()
            if run.clock is not None:
                run.clock.cancel()

    def _forget(self, run: LiveRun, spec: RunSpec) -> None:
        del self._runs[run.key]
        if run.record.background:  # which counts for no session
            return
        key = _limit_key(spec)
        self._per_session[key] -= 1
        if not self._per_session[key]:
            del self._per_session[key]

    # -- Stop --

    async def stop(self, request: StopRequest) -> RunRecord | None:
        """Asks for a Stop, wherever the run is; None when there is no such run.

        Here it is carried out before this returns; in another worker it is on its way, and kept in the store.
        """
        record = await self.store.request_stop(request)
        run = self._runs.get(request.key)
        if run is None:
            if request.call_id is None and record is not None and record.status == "interrupted":
                return await self.store.cancel_interrupted(request.key)
            return record
        self._carry_out(run, request)
        return await self.store.get(request.key)

    def _carry_out(self, run: LiveRun, request: StopRequest) -> None:
        if request.call_id is None:
            if run.stop(request.reason, request.message):
                audit.info("run %s stopped: reason=%s tools=%s %s", run.key.label, request.reason, _tools(run), run.who)
        elif (call := run.find_call(request.call_id)) is None:
            run.early_stops.setdefault(request.call_id, request.reason)
        elif not call.closed:
            call.signal.abort(request.reason)
        elif call.parked and not (run.streaming or run.machine.over):  # an agent would hang
            call.finish(aborted_output(call, request.reason))

    def _lost(self, run: LiveRun, reason: str) -> None:
        """Nothing more of it will be stored: its calls end, and whoever takes it over writes its end."""
        logger.error("Run %s is lost to this worker: %s", run.key.label, reason)
        run.signal.abort("superseded" if reason == "superseded" else "store")
        if reason != "superseded":  # this worker lives, so no other one will find it
            self.duties.owe(run.key, reason)
        self.on_lost(run.record, reason)

    # -- detach --

    async def detach(self, key: RunKey, call_id: str) -> Detached | Rejected:
        """Moves a call to the background."""
        run = self._runs.get(key)
        call = None if run is None else run.calls.get(call_id)
        if run is not None and call is not None:
            return await self._detacher.detach(run, call)
        if self.store.shared:
            return await detach_elsewhere(self.store, key, call_id)
        return Rejected("not_running", "This call is not running any more.")

    async def _move(self, call: Call, run_id: str) -> None:
        await self._detacher.detach(call.run, call, run_id)

    async def drain(self, timeout: float) -> None:
        """Takes no new runs, gives those at work `timeout` seconds, then ends them `interrupted`."""
        self.draining = True
        if timeout:
            await self._wait_for_runs(timeout)
        if self.store.shared:
            await self._hearing.catch_up(list(self._runs))
        for run in list(self._runs.values()):
            run.stop("shutdown")
        await self._wait_for_runs(2 * SHUTDOWN_GRACE + 0.25)  # twice: middleware has a part of its own
        self._drained = True

    async def _wait_for_runs(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self._works and (left := deadline - loop.time()) > 0:  # a detach may add to them
            await asyncio.wait(self._works, timeout=left)


def _tools(run: LiveRun) -> str:
    """The tools of a run for the log. A caller may ask for any name, so one that no tool can have is quoted."""
    names = list(dict.fromkeys(call.tool_name for call in run.calls.values()))
    said = [name if TOOL_NAME.fullmatch(name) else repr(name[:SAID_LETTERS]) for name in names[:SAID_TOOLS]]
    return ",".join([*said, *(["…"] if len(names) > SAID_TOOLS else [])])


def _limit_key(spec: RunSpec) -> str:
    return spec.key.owner or f"address {spec.caller.address}"
