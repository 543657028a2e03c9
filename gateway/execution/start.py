"""Starting a tool's code where it belongs: on the loop, in a thread, in a process, on a page.

What the code returns and raises comes back as a value (`settle`), never through asyncio's own machinery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, cast

from gateway.execution.bodies import Body, ProcessBody, TaskBody, ThreadBody
from gateway.execution.call import Call
from gateway.execution.context import ToolContext
from gateway.execution.page_tools import PageTool, run_on_page
from gateway.execution.process_call import process_job
from gateway.execution.processes import ProcessJob
from gateway.execution.question_desk import QuestionDesk
from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.threads import ThreadPool
from gateway.execution.tools import Tool

__all__ = ["Invoke", "Starter", "await_work", "run_async"]

GIVE_WAY = 0.01  # seconds

Invoke = Callable[[], Any]
Keep = Callable[..., None]


class Starter:
    """`keep(work, name, give_up)` keeps a task that outlives the call."""

    def __init__(self, threads: ThreadPool, desk: QuestionDesk | None, keep: Keep) -> None:
        self._threads = threads
        self._desk = desk
        self._keep = keep

    async def start(self, tool: Tool | PageTool, call: Call, ctx: ToolContext, arguments: Mapping[str, Any]) -> Body:
        """Raises `OSError` or `RuntimeError` when the system gives no thread or process."""
        name = f"tool {tool.name} {call.call_id}"
        if isinstance(tool, PageTool):
            asked = run_on_page(call, arguments, self._desk, call.run.settings.page_claim)
            return TaskBody(asked, cooperative=False, name=name)
        if tool.isolation == "process":
            job = process_job(tool, call, ctx, arguments)
            self._keep(_reap(job, call), f"process of {call.call_id}", job.close)
            await job.start()
            return ProcessBody(job)
        invoke = partial(_invoke, tool, arguments, ctx)
        if tool.kind in ("async", "async_generator"):
            run = run_async if tool.kind == "async" else run_async_generator
            return TaskBody(run(invoke, call), cooperative=tool.cooperative, name=name)
        work = invoke if tool.kind == "plain" else partial(run_generator, invoke, call)
        loop = asyncio.get_running_loop()
        return ThreadBody(self._threads.submit(work, loop, signal=call.signal))


async def _reap(job: ProcessJob, call: Call) -> None:
    """Until the process is gone, which may be after its answer; a shutdown does not wait for it."""
    try:
        await job.wait_gone()
    except asyncio.CancelledError:
        job.close()
        await job.wait_gone()
        raise
    finally:
        call.run.counts.add("late_emits", job.late_emits)


def _invoke(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
    return tool.bind(tool.validate(arguments), ctx)()


async def run_async(invoke: Invoke, call: Call) -> Settled[Any]:
    """An async function as a value, whatever it raises: SystemExit in a task would end the server."""
    try:
        value = await invoke()
    except BaseException as error:  # noqa: BLE001 - the boundary to the tool's code
        return Raised(error, call.current.signal.aborted)
    return Returned(value, call.current.signal.aborted)


async def run_async_generator(invoke: Invoke, call: Call) -> Settled[Any]:
    async def drain() -> Any:
        last = None
        generator = invoke()
        try:
            turn = monotonic()
            async for last in generator:
                call.emit_output(last)
                if call.signal.aborted:
                    break
                if monotonic() - turn > GIVE_WAY:
                    # One that only yields would never give way, not even to Stop.
                    await asyncio.sleep(0)
                    turn = monotonic()
        finally:
            await generator.aclose()
        return last

    return await run_async(cast("Invoke", drain), call)


def run_generator(invoke: Invoke, call: Call) -> Any:
    """In a thread. A generator gives way at each yield, so there its thread can be had back after a Stop."""
    last = None
    generator = invoke()
    try:
        for last in generator:
            call.emit_output(last)
            if call.signal.aborted:
                break
    finally:
        generator.close()
    return last


async def await_work(work: list[asyncio.Future[Any]], call: Call) -> Settled[Any]:
    """What becomes of the work of a call in the background: all of it ends, the last has the result."""

    async def last() -> Any:
        await asyncio.wait(work)
        for other in work[:-1]:
            if not other.cancelled():
                other.exception()  # seen: the tool waits for what it needs of them
        return await work[-1]

    # Of the moment of the abort, if there is one: what has ended by then has answered, though nobody has looked yet.
    in_time: list[bool] = []
    remove = call.signal.on_abort(lambda _: in_time.append(all(each.done() for each in work)))
    try:
        answer = await run_async(last, call)
    finally:
        remove()
    return replace(answer, aborted_first=False) if in_time == [True] else answer
