"""The threads that plain functions run in: daemons, so that a tool that hangs never keeps the process alive.

Not `concurrent.futures`: a thread that will not come back is abandoned here, and its place is taken by a
new one. A job settles by one wake-up of its loop, as a `Returned` or a `Raised`, whatever it raised.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.signals import AbortSignal

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Job(Generic[T]):
    """One function on its way through the pool.

    `future` lives on the submitter's loop and gets a `Settled`. It is cancelled, and nothing comes any more,
    once the job was cancelled before its start, abandoned, or dropped by a closing pool.
    """

    __slots__ = (
        "_abandoned",
        "_context",
        "_finished",
        "_fn",
        "_loop",
        "_pool",
        "_signal",
        "future",
        "started",
    )

    def __init__(
        self,
        pool: ThreadPool,
        fn: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        signal: AbortSignal | None,
    ) -> None:
        self.future: asyncio.Future[Settled[T]] = loop.create_future()
        self.started = False
        self._abandoned = False
        self._finished = False
        self._pool = pool
        self._fn: Callable[[], T] | None = fn
        self._loop = loop
        self._signal = signal
        self._context = contextvars.copy_context()

    def cancel_unstarted(self) -> bool:
        """Take the job back before any thread has begun it. True if it did not run and never will."""
        if not self._pool._withdraw(self):
            return False
        self.future.cancel()
        return True

    def abandon(self) -> None:
        """Give the job up: whatever it may still return is ignored, and its thread is replaced at once.

        Call it on the job's loop. The thread itself cannot be ended; it leaves the pool when it comes back.
        """
        self._pool._abandon(self)
        self.future.cancel()

    def _run(self) -> None:
        """In the worker: run the function, and wake the loop once."""
        fn, self._fn = self._fn, None
        # A future that was cancelled by its awaiting task asks for a result no more.
        if fn is None or self._abandoned or self.future.cancelled():
            return
        settled = _settle(self._context, fn, self._signal)
        if not self._abandoned:
            self._soon(_deliver, self.future, settled)

    def _soon(self, callback: Callable[..., object], *args: object) -> None:
        # A loop that has closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)


class ThreadPool:
    """At most `max_threads` threads at work, started when they are first needed; further jobs wait in order.

    Abandoned threads do not count. Safe to use from several threads and several loops.
    """

    def __init__(self, max_threads: int) -> None:
        if max_threads < 1:
            raise ValueError("max_threads must be at least 1")
        self._max_threads = max_threads
        self._numbers = itertools.count(1)
        # One lock for everything; idle threads wait on it. An ordered dict is a queue with O(1) withdrawal.
        self._work = threading.Condition()
        self._queue: OrderedDict[Job[Any], None] = OrderedDict()
        self._threads = 0
        self._idle = 0
        self._abandoned = 0
        self._closed = False

    @property
    def threads(self) -> int:
        """How many threads belong to the pool now, idle ones included, abandoned ones not."""
        return self._threads

    @property
    def queued(self) -> int:
        """How many jobs wait for a thread."""
        return len(self._queue)

    @property
    def abandoned(self) -> int:
        """How many threads were given up and have not come back."""
        return self._abandoned

    def submit(
        self, fn: Callable[[], T], loop: asyncio.AbstractEventLoop, *, signal: AbortSignal | None = None
    ) -> Job[T]:
        """Run `fn` in a thread, inside a copy of the caller's context variables.

        `signal` fills `aborted_first` of what it settles as. Raises `RuntimeError` when the pool is closed,
        or has not a single thread and the system refuses one.
        """
        job = Job(self, fn, loop, signal)
        with self._work:
            if self._closed:
                raise RuntimeError("The thread pool is closed.")
            self._queue[job] = None
            if not self._grow() and self._threads == 0:
                del self._queue[job]
                raise RuntimeError("The system refuses to start a thread.")
            self._work.notify()
        return job

    def close(self) -> None:
        """Take no more jobs and drop the waiting ones. Does not wait for those that run."""
        with self._work:
            self._closed = True
            dropped, self._queue = self._queue, OrderedDict()
            self._work.notify_all()
        for job in dropped:
            job._soon(job.future.cancel)

    def _withdraw(self, job: Job[Any]) -> bool:
        with self._work:
            if job not in self._queue:
                return False
            del self._queue[job]
            job._fn = None
            return True

    def _abandon(self, job: Job[Any]) -> None:
        with self._work:
            if job._abandoned or job._finished:
                return
            job._abandoned = True
            if job.started:
                self._threads -= 1
                self._abandoned += 1
                self._grow()
            else:
                self._queue.pop(job, None)
                job._fn = None

    def _grow(self) -> bool:
        """With the lock: start one more thread if jobs wait for it. False only if that was refused."""
        if len(self._queue) <= self._idle or self._threads >= self._max_threads:
            return True
        thread = threading.Thread(target=self._serve, name=f"agui-tool-{next(self._numbers)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.error("No thread for a tool: %s", error)
            return False
        self._threads += 1
        return True

    def _serve(self) -> None:
        """The life of one thread."""
        while (job := self._next()) is not None:
            job._run()
            if not self._done(job):
                return
            # Nothing of a job, its result least of all, may live on in a thread that waits for the next one.
            del job

    def _next(self) -> Job[Any] | None:
        with self._work:
            self._idle += 1
            try:
                while not self._queue:
                    if self._closed:
                        self._threads -= 1
                        return None
                    self._work.wait()
            finally:
                self._idle -= 1
            job, _ = self._queue.popitem(last=False)
            job.started = True
            return job

    def _done(self, job: Job[Any]) -> bool:
        """Whether the thread that ran the job still belongs to the pool."""
        with self._work:
            job._finished = True
            if job._abandoned:
                self._abandoned -= 1
            return not job._abandoned


def _settle(context: contextvars.Context, fn: Callable[[], T], signal: AbortSignal | None) -> Settled[T]:
    """Run it. A function of its own, so that the traceback of an error does not hold the job that holds it.

    Whether the abort came first is read here, in the worker: nowhere else is the moment of return known.
    """
    try:
        value = context.run(fn)
    except BaseException as error:  # noqa: BLE001 - a tool's SystemExit fails its call, not this thread
        return Raised(error, signal is not None and signal.aborted)
    return Returned(value, signal is not None and signal.aborted)


def _deliver(future: asyncio.Future[Settled[T]], settled: Settled[T]) -> None:
    if not future.done():
        future.set_result(settled)
