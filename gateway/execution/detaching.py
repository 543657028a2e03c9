"""Moving a call to the background: its work goes on as a run of its own, its result here is a note (contract 5.4).

What the tool holds stays valid: `ctx` and its abort signal speak for the background run from then on, and so do the
calls that the work has made inside itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.execution.call import Call
from gateway.execution.waiting import Wait, move_wait

if TYPE_CHECKING:
    from gateway.execution.live import LiveRun

__all__ = [
    "Offer",
    "detached_note",
    "ended_note",
    "lost_note",
    "move",
    "offer",
    "pending_offers",
    "press",
    "run_detachable",
    "waits_of",
]

T = TypeVar("T")

CANCEL_AGAIN = 1.0  # seconds


def detached_note(call_id: str) -> str:
    """The result of a call that moved to the background."""
    return f"The job moved to the background. Its id is {call_id}. You get a note when it ends."


def ended_note(call_id: str, text: str) -> str:
    """The note about a background job that has ended; `text` is that of its result."""
    return f"Background job {call_id} ended.\n{text}"


def lost_note(call_id: str) -> str:
    """The note about a job whose worker died."""
    return f"Background job {call_id} stopped when the host restarted."


class WorkExit(RuntimeError):
    """Work raised `SystemExit` or `KeyboardInterrupt`: the cause."""


class Offer:
    """Work that a tool could leave to the background, and the future that tells it that it has."""

    __slots__ = ("note", "work")

    def __init__(self, work: asyncio.Future[Any]) -> None:
        self.work = work
        self.note: asyncio.Future[str] = work.get_loop().create_future()

    def withdraw(self, *, aborted: bool) -> None:
        """The call is over: its work ends with it. What that raises, or has when the call was aborted, is no news."""
        self.note.cancel()
        if aborted or not self.work.done():
            self.work.add_done_callback(_seen)
            press(self.work)


def _seen(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


def press(work: asyncio.Future[Any]) -> None:
    """Cancels the work, again each second while it does not obey."""
    if not work.done():
        work.cancel()
        work.get_loop().call_later(CANCEL_AGAIN, press, work)


def offer(call: Call, work: Awaitable[Any]) -> asyncio.Future[str]:
    """See `ctx.detach`."""
    made = Offer(begun(work))
    call.offers.append(made)
    return made.note


def begun(work: Awaitable[T]) -> asyncio.Future[T]:
    """The work as something that goes on by itself; `TypeError` for what cannot be awaited."""
    if asyncio.isfuture(work):
        return work
    if not isawaitable(work):
        raise TypeError(f"Work is a task, a future or a coroutine, not {type(work).__name__}.")
    task = asyncio.ensure_future(_contained(work))
    if isinstance(work, Coroutine):
        # A task that is cancelled before its first step never gets to it, and Python would complain that nobody did.
        task.add_done_callback(lambda _: work.close())
    return task


async def _contained(work: Awaitable[T]) -> T:
    """An exit that got out of a task would end the server; in the tool's own code it is a failure of the call."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise WorkExit(str(error) or type(error).__name__) from error


def pending_offers(call: Call) -> list[Offer]:
    """What could move now; nothing of a call that is in the background already, though it may still be offered."""
    return [made for made in call.offers if not made.work.done()] if call.listed else []


async def run_detachable(offer_it: Callable[[asyncio.Future[T]], asyncio.Future[str]], work: Awaitable[T]) -> T | str:
    """Waits for the work, or for its move to the background; then the result is the note."""
    task = begun(work)
    note = offer_it(task)
    either: set[asyncio.Future[Any]] = {task, note}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _end(task)  # it is the tool's own code: it gets the cancellation, and the time to unwind
        raise
    if note.done() and not note.cancelled():
        return note.result()
    return await task


async def _end(task: asyncio.Future[Any]) -> None:
    while not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):  # pressed again, so the task is
            await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen: the cancellation is what counts


def move(call: Call, job: LiveRun) -> Call:
    """Makes the call one of `job`; returns what it is there. All in one turn of the loop."""
    moved = Call(job, call.call_id, call.tool_name, call.tool, call.arguments, call.timeout, background=True)
    moved.signal.detach()
    job.signal.adopt(call.signal)  # the tool may hold this very object
    moved.signal, call.signal = call.signal, call.run.signal.child()
    call.run.move_tails(call.custom.tails, job)
    call.become(moved)
    call.stop_clock()
    if call.waits:
        call.show_waiting(waiting=False)
        moved.show_waiting(waiting=True)
    moved.waits, call.waits = call.waits, []
    for wait in moved.waits:
        move_wait(wait, call.run, moved)
    for nested in call.nested:
        nested.parent = moved
        _move_nested(nested, job)
    moved.nested, call.nested = call.nested, {}
    return moved


def _move_nested(call: Call, job: LiveRun) -> None:
    """Its signal is a child of the one that has moved, so it came along."""
    before = call.run
    if call.ctx is not None:
        call.ctx._rebind(call, job)
    call.run = job
    before.move_tails(call.custom.tails, job)
    for wait in call.waits:
        move_wait(wait, before, call)
    for nested in call.nested:
        _move_nested(nested, job)


def waits_of(call: Call) -> Iterator[tuple[Call, Wait]]:
    """What a call waits for, and those inside it."""
    yield from ((call, wait) for wait in call.waits)
    for nested in call.nested:
        yield from waits_of(nested)
