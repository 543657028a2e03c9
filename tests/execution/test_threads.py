"""The pool of threads for plain functions. Gates (events) stand for work; nothing sleeps."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import pytest
import uvloop

from gateway.execution.settle import Raised, Returned
from gateway.execution.signals import AbortSignal
from gateway.execution.threads import Job, ThreadPool

LONG = 30  # seconds; reached only by a test that fails


class Gate:
    """Work that a test holds: it has `begun`, and goes on when it is `open`ed."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.opened.wait(LONG)
        return "through"


def _second(_: object, second: object) -> object:
    return second


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()


@pytest.fixture
def gates() -> Iterator[Callable[[], Gate]]:
    made: list[Gate] = []

    def gate() -> Gate:
        made.append(Gate())
        return made[-1]

    yield gate
    for each in made:
        each.opened.set()


def submit(pool: ThreadPool, fn: Callable[[], Any], **options: Any) -> Job[Any]:
    return pool.submit(fn, asyncio.get_running_loop(), **options)


async def settled(job: Job[Any]) -> Any:
    async with asyncio.timeout(LONG):
        return await job.future


async def begun(gate: Gate) -> None:
    async with asyncio.timeout(LONG):
        assert await asyncio.to_thread(gate.begun.wait, LONG)


async def idle(pool: ThreadPool) -> None:
    """A job settles just before its thread is idle; nobody is told of that."""
    async with asyncio.timeout(LONG):
        while pool._idle < pool.threads:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)


def ended(thread: threading.Thread | None) -> bool:
    assert thread is not None
    thread.join(LONG)
    return not thread.is_alive()


async def test_a_job_returns_its_value(pool: ThreadPool) -> None:
    job = submit(pool, lambda: 42)
    assert await settled(job) == Returned(42)
    assert job.started


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_one_pool_serves_every_loop(pool: ThreadPool, runner: Callable[..., Any]) -> None:
    async def main() -> list[Any]:
        return [await settled(submit(pool, partial(int, str(n)))) for n in range(100)]

    assert runner(main()) == [Returned(n) for n in range(100)]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        StopIteration(7),
        GeneratorExit(),
        BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_job_raises_is_a_value_and_its_thread_lives_on(error: BaseException) -> None:
    pool = ThreadPool(1)

    def fail() -> NoReturn:
        raise error

    answer = await settled(submit(pool, fail))
    assert isinstance(answer, Raised)
    assert answer.error is error
    name = await settled(submit(pool, lambda: threading.current_thread().name))
    assert name.value.startswith("agui-tool-")
    assert pool.threads == 1
    pool.close()


async def test_threads_are_daemons_named_in_order_and_started_when_needed(
    gates: Callable[[], Gate],
) -> None:
    pool = ThreadPool(3)
    assert pool.threads == 0
    held = [gates() for _ in range(3)]
    jobs = [submit(pool, gate) for gate in held]
    for gate in held:
        await begun(gate)
    threads = [gate.thread for gate in held]
    assert sorted(t.name for t in threads if t) == ["agui-tool-1", "agui-tool-2", "agui-tool-3"]
    assert all(t.daemon for t in threads if t)
    for gate in held:
        gate.opened.set()
    assert [await settled(job) for job in jobs] == [Returned("through")] * 3
    pool.close()
    assert all(map(ended, threads))


async def test_an_idle_thread_is_used_again_before_a_new_one_is_started(pool: ThreadPool) -> None:
    for _ in range(20):
        await settled(submit(pool, threading.get_ident))
        await idle(pool)
    assert pool.threads == 1


async def test_no_more_than_max_threads_work_and_the_others_wait_in_order(
    pool: ThreadPool, gates: Callable[[], Gate]
) -> None:
    held = [gates(), gates()]
    for gate in held:
        submit(pool, gate)
    for gate in held:
        await begun(gate)
    order: list[int] = []
    waiting = [submit(pool, partial(order.append, number)) for number in range(5)]
    assert (pool.threads, pool.queued) == (2, 5)
    assert not any(job.started for job in waiting)
    held[0].opened.set()
    for job in waiting:
        await settled(job)
    assert order == [0, 1, 2, 3, 4]
    assert pool.threads == 2


async def test_a_job_sees_the_context_variables_of_its_submitter_and_changes_only_a_copy(
    pool: ThreadPool,
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def work() -> str:
        before = variable.get()
        variable.set("changed in the thread")
        return before

    variable.set("of the caller")
    assert await settled(submit(pool, work)) == Returned("of the caller")
    assert variable.get() == "of the caller"


# -- the abort and the answer --


async def test_an_answer_before_the_abort_says_so(pool: ThreadPool) -> None:
    signal = AbortSignal()
    job = submit(pool, lambda: 1, signal=signal)
    answer = await settled(job)
    signal.abort("user")
    assert answer == Returned(1, aborted_first=False)


async def test_the_moment_of_return_counts_not_the_moment_of_arrival(pool: ThreadPool) -> None:
    signal = AbortSignal()
    returned = threading.Event()
    job = submit(pool, lambda: 1, signal=signal)
    # A second job in the same thread can only run when the first has returned. The loop does not turn meanwhile.
    submit(pool, returned.set)
    submit(pool, returned.set)
    assert await asyncio.to_thread(returned.wait, LONG)
    answer = await settled(job)
    signal.abort("user")
    assert answer.aborted_first is False


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_after_the_abort_says_so(pool: ThreadPool, gates: Callable[[], Gate], fails: bool) -> None:
    signal, gate = AbortSignal(), gates()

    def work() -> None:
        gate()
        if fails:
            raise ValueError

    job = submit(pool, work, signal=signal)
    await begun(gate)
    signal.abort("user")
    gate.opened.set()
    answer = await settled(job)
    assert isinstance(answer, Raised if fails else Returned)
    assert answer.aborted_first is True


# -- taking back and giving up --


async def test_a_waiting_job_can_be_taken_back_and_never_runs(pool: ThreadPool, gates: Callable[[], Gate]) -> None:
    held = [gates(), gates()]
    for gate in held:
        submit(pool, gate)
    ran: list[str] = []
    first, second = submit(pool, partial(ran.append, "first")), submit(pool, partial(ran.append, "second"))
    assert first.cancel_unstarted() is True
    assert first.cancel_unstarted() is False
    assert first.future.cancelled()
    for gate in held:
        gate.opened.set()
    await settled(second)
    assert ran == ["second"]
    assert not first.started


async def test_a_started_job_cannot_be_taken_back(pool: ThreadPool, gates: Callable[[], Gate]) -> None:
    gate = gates()
    job = submit(pool, gate)
    await begun(gate)
    assert job.cancel_unstarted() is False
    gate.opened.set()
    assert await settled(job) == Returned("through")
    assert job.cancel_unstarted() is False


async def test_an_abandoned_thread_is_replaced_at_once_and_leaves_when_it_comes_back(
    gates: Callable[[], Gate],
) -> None:
    pool = ThreadPool(1)
    stuck = gates()
    job = submit(pool, stuck)
    await begun(stuck)
    waiting = submit(pool, lambda: "served")
    assert not waiting.started
    job.abandon()
    job.abandon()
    assert await settled(waiting) == Returned("served")
    assert job.future.cancelled()
    assert (pool.threads, pool.abandoned) == (1, 1)
    stuck.opened.set()
    assert ended(stuck.thread)
    assert (pool.threads, pool.abandoned) == (1, 0)
    assert await settled(submit(pool, lambda: "still there")) == Returned("still there")
    pool.close()


async def test_a_job_abandoned_before_its_start_never_runs(pool: ThreadPool, gates: Callable[[], Gate]) -> None:
    held = [gates(), gates()]
    for gate in held:
        submit(pool, gate)
        await begun(gate)
    ran: list[int] = []
    job = submit(pool, partial(ran.append, 1))
    job.abandon()
    assert (pool.queued, pool.abandoned, pool.threads) == (0, 0, 2)
    for gate in held:
        gate.opened.set()
    await settled(submit(pool, partial(ran.append, 2)))
    assert ran == [2]
    assert job.future.cancelled()


async def test_abandoning_a_finished_job_changes_nothing(pool: ThreadPool) -> None:
    job = submit(pool, lambda: 1)
    answer = await settled(job)
    await settled(submit(pool, lambda: 2))
    await idle(pool)
    job.abandon()
    assert pool.abandoned == 0
    assert job.future.result() == answer


async def test_a_job_whose_awaiting_task_was_cancelled_does_not_start(
    pool: ThreadPool, gates: Callable[[], Gate]
) -> None:
    held = [gates(), gates()]
    for gate in held:
        submit(pool, gate)
    ran: list[int] = []
    job = submit(pool, partial(ran.append, 1))
    job.future.cancel()
    for gate in held:
        gate.opened.set()
    await settled(submit(pool, partial(ran.append, 2)))
    assert ran == [2]


async def test_a_result_that_nobody_waits_for_any_more_is_dropped(pool: ThreadPool, gates: Callable[[], Gate]) -> None:
    gate = gates()
    job = submit(pool, gate)
    await begun(gate)
    job.future.cancel()
    gate.opened.set()
    assert await settled(submit(pool, lambda: "next")) == Returned("next")


# -- the end --


async def test_a_closed_pool_drops_what_waits_finishes_what_runs_and_takes_no_more(
    pool: ThreadPool, gates: Callable[[], Gate]
) -> None:
    held = [gates(), gates()]
    running = [submit(pool, gate) for gate in held]
    for gate in held:
        await begun(gate)
    waiting = submit(pool, lambda: "never")
    pool.close()
    async with asyncio.timeout(LONG):
        await asyncio.wait({waiting.future})
    assert waiting.future.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        submit(pool, lambda: "late")
    for gate in held:
        gate.opened.set()
    assert [await settled(job) for job in running] == [Returned("through")] * 2
    assert all(ended(gate.thread) for gate in held)
    assert pool.threads == 0


def test_a_loop_that_closes_first_costs_the_pool_nothing(pool: ThreadPool, gates: Callable[[], Gate]) -> None:
    gate = gates()

    async def leave() -> None:
        submit(pool, gate)
        await begun(gate)

    asyncio.run(leave())
    gate.opened.set()

    async def come_back() -> Any:
        return await settled(submit(pool, lambda: "fine"))

    assert asyncio.run(come_back()) == Returned("fine")


async def test_an_idle_thread_holds_nothing_of_its_last_job(pool: ThreadPool) -> None:
    class Big:
        pass

    async def run() -> tuple[weakref.ref[Big], weakref.ref[Big]]:
        argument, result = Big(), Big()
        references = weakref.ref(argument), weakref.ref(result)
        await settled(submit(pool, partial(_second, argument, result)))
        return references

    references = await run()
    await asyncio.sleep(0)  # the loop itself holds what it calls until its next turn
    await idle(pool)
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="max_threads"):
        ThreadPool(0)


@pytest.mark.parametrize("already", [0, 1])
async def test_a_system_that_refuses_a_thread_fails_the_job_only_if_there_is_no_other(
    already: int, monkeypatch: pytest.MonkeyPatch, gates: Callable[[], Gate]
) -> None:
    pool = ThreadPool(2)
    gate = gates()
    for _ in range(already):
        submit(pool, gate)
        await begun(gate)

    def refuse(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        if not already:
            with pytest.raises(RuntimeError, match="refuses"):
                submit(pool, lambda: 1)
        else:
            job = submit(pool, lambda: 1)
            gate.opened.set()
            assert await settled(job) == Returned(1)
    assert await settled(submit(pool, lambda: 2)) == Returned(2)
    pool.close()


async def test_ten_thousand_jobs_from_many_tasks_each_settle_once() -> None:
    pool = ThreadPool(8)

    async def some(start: int) -> list[Any]:
        return [await settled(submit(pool, partial(int, n))) for n in range(start, start + 100)]

    answers = await asyncio.gather(*(some(start) for start in range(0, 10_000, 100)))
    assert [answer.value for batch in answers for answer in batch] == list(range(10_000))
    assert pool.threads <= 8
    pool.close()
