"""The places where a tool's code runs, behind one face: a task, a thread, a process, and work left to the background.

A body settles its `future` when the code has really ended. `unwind` presses it to end, by the means it has: a task gets
`CancelledError`, again each second if it swallows it; a thread only sees the signal; a process gets SIGTERM after half
of the grace, then SIGKILL (contract 5.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from gateway.execution.processes import ProcessJob
from gateway.execution.settle import Raised, Settled
from gateway.execution.threads import Job
from gateway.wire.codec import Change

__all__ = ["Body", "ProcessBody", "TaskBody", "ThreadBody", "WorkBody", "settled"]

CANCEL_AGAIN = 1.0  # seconds
KILL_AT = 0.8  # of the grace: the process must be gone before its result is due


class Body(Protocol):
    """See the module."""

    @property
    def future(self) -> asyncio.Future[Settled[Any]]: ...

    @property
    def changes(self) -> Sequence[Change]:
        """What was replaced in the answer before it came here."""

    async def unwind(self, grace: float) -> bool:
        """Presses the code to end; true when it did within `grace` seconds."""

    def abandon(self) -> None:
        """Gives the code up: nobody waits for it any more."""


def settled(future: asyncio.Future[Settled[Any]], aborted: bool) -> Settled[Any]:
    """What a finished body came back with. One that never began, or cancelled itself and returned, was cancelled."""
    if future.cancelled():
        return Raised(asyncio.CancelledError(), aborted_first=aborted)
    return future.result()


class TaskBody:
    """An async function, on the loop."""

    changes: Sequence[Change] = ()

    def __init__(self, work: Coroutine[Any, Any, Settled[Any]], *, cooperative: bool, name: str) -> None:
        self.future: asyncio.Task[Settled[Any]] = asyncio.create_task(work, name=name)
        self._cooperative = cooperative

    async def unwind(self, grace: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        if self._cooperative:
            await asyncio.wait({self.future}, timeout=grace / 2)
        while not self.future.done():
            self.future.cancel()
            left = deadline - loop.time()
            # Without any time left it still gets the turn of the loop that obeying takes.
            await asyncio.wait({self.future}, timeout=min(CANCEL_AGAIN, max(left, 0)))
            if left <= 0:
                break
        return self.future.done()

    def abandon(self) -> None:
        if not self.future.done():
            self.future.cancel()
            asyncio.get_running_loop().call_later(CANCEL_AGAIN, self.abandon)


class ThreadBody:
    """A plain function, in a thread: it sees the signal, and that is all that can be done."""

    changes: Sequence[Change] = ()

    def __init__(self, job: Job[Any]) -> None:
        self._job = job
        self.future = job.future

    async def unwind(self, grace: float) -> bool:
        if self._job.cancel_unstarted():
            return True
        await asyncio.wait({self.future}, timeout=grace)
        return self.future.done()

    def abandon(self) -> None:
        self._job.abandon()


class ProcessBody:
    """A plain function, in a process of its own."""

    def __init__(self, job: ProcessJob) -> None:
        self._job = job
        self.future = job.future

    @property
    def changes(self) -> Sequence[Change]:
        return [Change(*change) for change in self._job.changes]

    async def unwind(self, grace: float) -> bool:
        steps: tuple[tuple[float, Callable[[], None]], ...] = (
            (grace / 2, self._job.terminate),
            (grace * (KILL_AT - 0.5), self._job.kill),
        )
        for delay, press in steps:
            await asyncio.wait({self.future}, timeout=delay)
            if self.future.done():
                return True
            press()
        await asyncio.wait({self.future}, timeout=grace * (1 - KILL_AT))
        return self.future.done()

    def abandon(self) -> None:
        self._job.kill()


class WorkBody:
    """What a tool has left to the background: futures of its own, the last of which has the result.

    `frame` is the tool's own code, which is on its way to return, or waits in a task group for this very work.
    """

    changes: Sequence[Change] = ()

    def __init__(
        self,
        settle: Coroutine[Any, Any, Settled[Any]],
        work: Sequence[asyncio.Future[Any]],
        frame: Body,
        *,
        cooperative: bool,
        name: str,
    ) -> None:
        self.future: asyncio.Task[Settled[Any]] = asyncio.create_task(settle, name=name)
        self._work = work
        self._frame = frame
        self._cooperative = cooperative

    async def unwind(self, grace: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        if self._cooperative:
            await asyncio.wait({self.future}, timeout=grace / 2)
        while not self.future.done():
            for work in self._work:
                work.cancel()
            left = deadline - loop.time()
            await asyncio.wait({self.future}, timeout=min(CANCEL_AGAIN, max(left, 0)))
            if left <= 0:
                break
        # One that waited for the work returns by now. To cancel it earlier would cancel the tasks of a group once more.
        await asyncio.wait({self._frame.future}, timeout=min(CANCEL_AGAIN, max(deadline - loop.time(), 0)))
        await self._frame.unwind(max(deadline - loop.time(), 0))
        return self.future.done()

    def abandon(self) -> None:
        self._frame.abandon()
        if not self.future.done():
            for work in self._work:
                work.cancel()
            asyncio.get_running_loop().call_later(CANCEL_AGAIN, self.abandon)
