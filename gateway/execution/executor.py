"""Runs one tool call to its outcome: starts the code, watches clock and Stop, and makes a result of whatever happens.

The one place where a tool's exceptions are caught. `execute` never raises for an outcome; only a cancellation from
outside goes through it. The rules are contract 5.1 to 5.6.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from gateway.errors import GatewayError, Interrupt, InvalidArguments, NotAvailable, PayloadError, ToolError
from gateway.execution import outcomes
from gateway.execution.approvals import ApprovalAsked, Edited, approved_arguments
from gateway.execution.asking import check_interrupt, check_interruptible
from gateway.execution.bodies import Body, TaskBody, WorkBody, settled
from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.coming_to import aborted_output, converted, fitting, is_cancellation, wanted_in
from gateway.execution.context import ToolContext
from gateway.execution.detaching import detached_note, press
from gateway.execution.middleware import Inside, Middleware, ToolCall, onion
from gateway.execution.outcomes import ToolOutput
from gateway.execution.page_tools import PageGone, PageTool
from gateway.execution.processes import ProcessDied
from gateway.execution.question_desk import QuestionDesk
from gateway.execution.servers import ServerDown, ServerLost
from gateway.execution.settle import Raised, Settled
from gateway.execution.start import Starter, await_work, run_async
from gateway.execution.threads import ThreadPool
from gateway.execution.tools import Tool
from gateway.wire.codec import Change

__all__ = ["SHUTDOWN_GRACE", "Executor"]

logger = logging.getLogger("gateway")

SHUTDOWN_GRACE = 0.5  # seconds
AT_ONCE = 0.1  # seconds that middleware has to pass on the result of a call whose time is up

AnyTool = Tool | PageTool


class Spawn(Protocol):
    """Starts a task that somebody owns."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


class Executor:
    """Executes calls; one per worker. `spawn` keeps what goes on after a result: unwinding. `desk` asks the person."""

    def __init__(
        self,
        threads: ThreadPool,
        spawn: Spawn,
        stop_grace: float,
        middleware: Sequence[Middleware] = (),
        desk: QuestionDesk | None = None,
    ) -> None:
        self._starter = Starter(threads, desk, self._keep)
        self._spawn = spawn
        self._grace = stop_grace
        self._middleware = middleware
        self.desk = desk

    async def execute(self, call: Call, caller: Caller, context: Any) -> ToolOutput | None:
        """Begins the call, runs it, sends its result, and returns it; None when it ended its run with a question."""
        call.begin()
        try:
            output = await self._executed(call, caller, context)
        except Interrupt as asked:
            call.park(asked)
            _end_the_rest(call)
            return None
        except asyncio.CancelledError:
            # From outside. Nobody waits for the code any more, but a call that was begun is answered.
            call.signal.abort("shutdown" if call.parent is None else "tool")
            call.finish(aborted_output(call))
            raise
        call.finish(output)
        _end_the_rest(call)
        return output

    async def _executed(self, call: Call, caller: Caller, context: Any) -> ToolOutput:
        if call.tool is None and call.refused is None:
            await call.run.tools.arrival(call.tool_name, call.signal)
            await call.run.tools.refresh()
            call.tool = call.run.tools.get(call.tool_name)
        if call.signal.aborted:
            return aborted_output(call)
        if call.refused is not None or call.tool is None:
            return call.refused or outcomes.unavailable(call.tool_name)
        _start_clock(call)
        ctx = ToolContext(call, caller, context, self)
        while True:
            try:
                return await self._through(call.tool, call, ctx)
            except Edited as edited:
                call.arguments = edited.arguments
            except Interrupt as asked:
                if call.signal.aborted:
                    return aborted_output(call)
                try:
                    check_interruptible(call)
                    if not isinstance(asked, ApprovalAsked):
                        check_interrupt(asked)
                except (NotAvailable, TypeError, ValueError) as error:  # a tool raised it on its own
                    return outcomes.error_of(error)
                raise

    async def go_on(self, call: Call, frame: Body) -> ToolOutput:
        """The rest of a call that has moved to the background: waits for its work, sends the result, returns it."""
        tool = call.tool or PageTool(call.tool_name)
        try:
            if call.around is None:
                output = await self._rest(tool, call, frame)
            else:
                output = await self._end_of_around(tool, call, *call.around)
        except Interrupt:
            output = outcomes.error_of(NotAvailable("An interrupt is not available in the background."))
        except asyncio.CancelledError:
            call.signal.abort("shutdown")
            call.finish(aborted_output(call))
            raise
        for work in call.work_left:
            press(work)  # a middleware may have answered without it
        call.finish(output)
        _end_the_rest(call)
        return output

    async def _rest(self, tool: AnyTool, call: Call, frame: Body) -> ToolOutput:
        """What becomes of the work that the tool has left to the background, and of the tool's own code."""
        cooperative = isinstance(tool, Tool) and tool.cooperative
        name, work = f"background {call.call_id}", call.work_left
        body = WorkBody(await_work(work, call), work, frame, cooperative=cooperative, name=name)
        try:
            await self._watch(body, call)
            output = await self._outcome(tool, call, body)
            with suppress(TimeoutError):  # the tool's own code, which may have waited for its work, can still return
                async with asyncio.timeout(self._grace):
                    await self._watch(frame, call)
        except asyncio.CancelledError:  # as in `_to_its_end`
            call.still_running = call.signal.aborted and not body.future.done()
            body.abandon()
            raise
        if not frame.future.done():
            frame.abandon()
        return output

    async def _through(self, tool: AnyTool, call: Call, ctx: ToolContext) -> ToolOutput:
        """The call through its middleware, which may hang, raise, and make several calls of one or none."""
        if not self._middleware:
            return await self._run(tool, call, ctx, call.arguments)
        inside = Inside()

        async def innermost(given: ToolCall) -> ToolOutput:
            if given.name != call.tool_name:
                raise ValueError("A middleware passes on a call of the same tool; ctx.call_tool calls another one.")
            with inside.running():
                output = await self._run(tool, call, ctx, given.arguments)
            inside.last = output
            return output

        def invoke() -> Any:
            around = onion(self._middleware, ctx, innermost, partial(converted, call))
            return around(ToolCall(call.tool_name, dict(call.arguments)))

        body = TaskBody(run_async(invoke, call), cooperative=False, name=f"middleware of {call.call_id}")
        call.work = body.future
        call.around = (body, inside)
        return await self._end_of_around(tool, call, body, inside)

    async def _end_of_around(self, tool: AnyTool, call: Call, body: TaskBody, inside: Inside) -> ToolOutput:
        """Of a call that moves only the note: what is around it moves too, and sees what becomes of the work."""
        try:
            while not body.future.done() and not call.signal.aborted and call.moved is None:
                await self._watch(body, call)
            if call.moved is not None:
                return outcomes.detached(detached_note(call.call_id))
            if not body.future.done():
                await self._unwind_around(body, call, inside)
        except asyncio.CancelledError:
            if call.moved is None:
                body.abandon()
            raise
        call.left = inside.left or inside.active > 0
        return self._of_middleware(tool, call, body, inside)

    async def _unwind_around(self, body: TaskBody, call: Call, inside: Inside) -> None:
        """After an abort: the tool inside is ended by itself, then what is around it, all in one grace."""
        loop = asyncio.get_running_loop()
        on_time = call.signal.reason == "timeout"
        deadline = loop.time() + (AT_ONCE if on_time else self._grace_of(call))
        if inside.active:
            waiting: set[asyncio.Future[Any]] = {body.future, inside.idle(loop)}
            await asyncio.wait(waiting, timeout=deadline - loop.time(), return_when=FIRST_COMPLETED)
        if inside.called:
            # It has learnt what its call came to, and may do its own part about that: a note, a filter, a refusal.
            await asyncio.wait({body.future}, timeout=max(deadline - loop.time(), 0) / 2)
        if body.future.done():
            return
        if on_time:
            self._unwind_alone(body, call)
        else:
            await body.unwind(max(deadline - loop.time(), 0))

    def _of_middleware(self, tool: AnyTool, call: Call, body: TaskBody, inside: Inside) -> ToolOutput:
        if not body.future.done():
            if call.signal.reason != "timeout":
                body.abandon()
                call.still_running = True
            return aborted_output(call)
        answer = settled(body.future, call.signal.aborted)
        # An answer that the tool gave before the abort counts, but only as all that is around it has let it pass.
        kept = inside.last is not None and not call.dropped and not is_cancellation(answer)
        if answer.aborted_first and not kept:
            return aborted_output(call)
        return self._raised(tool, call, answer.error) if isinstance(answer, Raised) else fitting(call, answer.value)

    async def _run(self, tool: AnyTool, call: Call, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        if call.ended:  # call_next after the end of the call
            call.signal.abort("tool")
        if call.moved is not None:
            return outcomes.failed("A call that has moved to the background cannot be made again.")
        if call.signal.aborted:
            call.dropped = True
            return aborted_output(call)
        try:
            if isinstance(tool, Tool):
                arguments = await approved_arguments(tool, call, self.desk, arguments)
            body = await self._starter.start(tool, call, ctx, arguments)
        except (OSError, RuntimeError) as error:  # the system gives no thread or process
            logger.warning("Tool %s could not be started", tool.name, exc_info=error)
            return outcomes.error_of(error)
        except Exception as error:  # noqa: BLE001 - `needs_approval` may be the author's code; it fails closed
            call.dropped = call.signal.reason is not None
            return aborted_output(call) if call.dropped else self._raised(tool, call, error)
        if not self._middleware:
            call.work = body.future
        call.body = body
        return await self._to_its_end(tool, call, body)

    async def _to_its_end(self, tool: AnyTool, call: Call, body: Body) -> ToolOutput:
        try:
            await self._watch(body, call)
            if (moved := call.moved) is None:
                return await self._outcome(tool, call, body)
            if moved.around is None:
                return outcomes.detached(detached_note(call.call_id))
            return await self._rest(tool, moved, body)
        except asyncio.CancelledError:
            # By a middleware's own time limit, say: only `execute` knows whether the call ends with it.
            call.still_running = call.signal.aborted and not body.future.done()
            if call.moved is None:
                body.abandon()
            raise

    # -- watching --

    async def _watch(self, body: Body, call: Call) -> None:
        """Returns when the code has ended, the signal is aborted, by the clock or by somebody, or the call moves."""
        woken = asyncio.get_running_loop().create_future()
        call.woken.add(woken)
        remove = call.signal.on_abort(lambda _: call.run.soon(partial(_resolve, woken)))
        try:
            await asyncio.wait({body.future, woken}, return_when=FIRST_COMPLETED)
        finally:
            remove()
            call.woken.discard(woken)

    async def _outcome(self, tool: AnyTool, call: Call, body: Body) -> ToolOutput:
        if (answer := _answer(body, call)) is not None:
            return self._answered(tool, call, answer, body.changes)
        if call.signal.reason == "timeout":
            # The result goes out at once; the code may go on unwinding, watched by nobody but the executor.
            call.dropped = True
            self._unwind_alone(body, call)
            return aborted_output(call)
        ended = await self._unwind(body, call)
        if (answer := _answer(body, call)) is not None:
            return self._answered(tool, call, answer, body.changes)
        call.dropped = True
        call.still_running = not ended
        return aborted_output(call)

    def _unwind_alone(self, body: Body, call: Call) -> None:
        """Goes on unwinding after the result, unless a shutdown cuts that short."""
        self._keep(self._unwind(body, call), f"unwind {call.call_id}", body.abandon)

    def _keep(self, work: Coroutine[Any, Any, Any], name: str, give_up: Callable[[], None]) -> None:
        """Starts a task; `give_up` when it is cancelled, perhaps before its first step: then none of its code runs."""
        task = self._spawn(work, name=name)
        task.add_done_callback(lambda done: give_up() if done.cancelled() else None)

    async def _unwind(self, body: Body, call: Call) -> bool:
        ended = await body.unwind(self._grace_of(call))
        if not ended:
            logger.warning("Tool %s of run %s goes on after its end", call.tool_name, call.run.key.label)
            body.abandon()
        return ended

    def _grace_of(self, call: Call) -> float:
        """A process that is told to exit has promised to be gone soon."""
        return min(self._grace, SHUTDOWN_GRACE) if call.signal.reason == "shutdown" else self._grace

    # -- outcomes --

    def _answered(self, tool: AnyTool, call: Call, answer: Settled[Any], replaced: Sequence[Change]) -> ToolOutput:
        """The output for what the code returned or raised by itself; `replaced` is what was changed on its way here."""
        if isinstance(answer, Raised):
            return self._raised(tool, call, answer.error)
        if isinstance(tool, PageTool):
            return fitting(call, answer.value)
        changes = list(replaced)
        try:
            output = outcomes.output_of(tool.check_output(answer.value), changes)
            if changes:
                call.replaced(changes)
        except (ToolError, PayloadError) as error:
            return outcomes.error_of(error)
        except BaseException as error:  # noqa: BLE001 - a result runs its author's code once more: validators, models
            return self._raised(tool, call, error)
        return fitting(call, output)

    def _raised(self, tool: AnyTool, call: Call, error: BaseException) -> ToolOutput:
        if (wanted := wanted_in(error)) is not None:
            raise wanted
        if isinstance(error, PageGone):
            return outcomes.interrupted(tool.name, "its page", retryable=False, on_page=True)
        if isinstance(error, ProcessDied):
            logger.warning("Tool %s of run %s: %s", tool.name, call.run.key.label, error)
            return outcomes.interrupted(tool.name, "the death of its process", retryable=tool.retryable)
        if isinstance(error, ServerLost):
            return outcomes.interrupted(tool.name, "the loss of its server", retryable=tool.retryable)
        if isinstance(error, ServerDown):
            return outcomes.unavailable(tool.name)
        if isinstance(error, InvalidArguments):
            return outcomes.invalid_arguments(error.message, error.details)
        if not isinstance(error, GatewayError):
            logger.warning("Tool %s of run %s raised", tool.name, call.run.key.label, exc_info=error)
        return fitting(call, outcomes.error_of(error))


def _end_the_rest(call: Call) -> None:
    """What it started and did not wait for ends with it: nobody would hear of that, and no Stop reach it."""
    if call.left or call.nested:
        call.signal.abort("tool")


def _start_clock(call: Call) -> None:
    if call.limit and not call.untimed:
        loop = asyncio.get_running_loop()
        # An answer that arrives in the very turn in which the clock rings wins, so look once more after it.
        call.clock = loop.call_later(call.limit, loop.call_soon, partial(_expire, call))


def _expire(call: Call) -> None:
    if not call.untimed and (call.work is None or not call.work.done()):
        call.expired = not call.signal.aborted
        call.signal.abort("timeout")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _answer(body: Body, call: Call) -> Settled[Any] | None:
    """What the code came back with, if it did so before the abort; later answers are dropped."""
    if not body.future.done():
        return None
    answer = settled(body.future, call.signal.aborted)
    return None if answer.aborted_first else answer
