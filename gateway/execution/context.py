"""What a tool sees of its call. One object per call, injected where a parameter is annotated `ToolContext`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import time, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.errors import NotAvailable
from gateway.execution import asking, detaching
from gateway.execution.asking import InputResponse
from gateway.execution.caller import AuthContext, Caller, TraceContext
from gateway.execution.capabilities import Capabilities, Capability
from gateway.execution.live import FULL
from gateway.execution.middleware import ToolCall, checked_timeout
from gateway.execution.outcomes import ToolOutput, failed
from gateway.execution.signals import AbortSignal
from gateway.execution.task_context import TaskContext
from gateway.wire.codec import FLAT, FLAT_OPTIONS, dumps
from gateway.wire.events import custom

if TYPE_CHECKING:
    from gateway.execution.call import Call
    from gateway.execution.executor import Executor
    from gateway.execution.live import LiveRun
    from gateway.execution.question_desk import QuestionDesk

__all__ = ["ToolContext"]

T = TypeVar("T")

# A tool, or a middleware, that always calls another one would fill the memory long before its time is up.
MAX_DEPTH = 250


class CallLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds request, run, call and tool to every record, as attributes (`extra`); stdlib logging underneath."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


class ToolContext:
    """What a tool sees of its call. Members may be used from any thread unless they are `async`.

    Source: contract 2.2.
    """

    __slots__ = (
        "_add",
        "_call",
        "_caller",
        "_capabilities",
        "_executor",
        "_heads",
        "_limit",
        "_logger",
        "_pieces",
        "_pressure",
        "_run",
        "_tail",
        "_until",
        "context",
    )

    def __init__(self, call: Call, caller: Caller, context: Any = None, executor: Executor | None = None) -> None:
        self._caller = caller
        self._executor = executor
        self._capabilities = Capabilities()
        call.ctx = self
        self._rebind(call, call.run)
        #: What `Gateway(context=...)` gave this run.
        self.context = context

    def _rebind(self, call: Call, run: LiveRun) -> None:
        """Speaks for this call from now on, and the call for this run. For the gateway."""
        self._logger: CallLogger | None = None
        limit = run.settings.max_event_bytes
        # What emitting needs, one step away instead of three. No step of this is a call, so no other thread comes in
        # between: what it emits the quick way and the other way goes to the same run.
        self._call = call
        call.run = self._run = run
        self._add = run.stage.add
        self._pieces = run.stage.pieces
        self._pressure = run.pressure
        self._heads = call.custom.stamped
        self._tail = call.custom.tail
        self._limit = limit
        self._until = 0.0

    @property
    def run_id(self) -> str | None:
        """Id of the run this call belongs to; None for a call that an adapter made without a run."""
        return None if self._run.unheard else self._run.key.run_id

    @property
    def thread_id(self) -> str:
        """Id of the conversation."""
        return self._call.run.record.thread_id

    @property
    def parent_run_id(self) -> str | None:
        """The run this one continues or was started by, if the caller named one."""
        return self._call.run.record.parent_run_id

    @property
    def tool_call_id(self) -> str:
        """Id of this call, unique in its run."""
        return self._call.call_id

    @property
    def tool_name(self) -> str:
        """Name of the tool as it was called."""
        return self._call.tool_name

    @property
    def request_id(self) -> str:
        """The gateway's own id of the starting request, the one in `X-Request-Id`."""
        return self._caller.request_id

    @property
    def client_request_id(self) -> str | None:
        """The `X-Request-Id` that the caller sent."""
        return self._caller.client_request_id

    @property
    def session_id(self) -> str:
        """`anon:<session>` or `user:<subject>:<session>`; without a session a fresh one per run."""
        return self._caller.session_id

    @property
    def auth(self) -> AuthContext | None:
        """Who calls, or None."""
        return self._caller.auth

    @property
    def verified_subject(self) -> str | None:
        """`auth.subject` when an authenticator verified it, else None."""
        return None if self._caller.auth is None else self._caller.auth.subject

    @property
    def metadata(self) -> Mapping[str, Any]:
        """`{"headers", "forwarded_props", "context", "client_tools", "client_request_id"}`.

        Headers by allow-list, lower-case; never credentials or cookies.
        """
        return self._caller.metadata

    @property
    def mcp_headers(self) -> Mapping[str, str]:
        """Incoming `mcp-*` headers, lower-case."""
        headers: Mapping[str, str] = self.metadata.get("headers", {})
        return {name: value for name, value in headers.items() if name.startswith("mcp-")}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger bound to request, run, call and tool."""
        if self._logger is None:
            extra = {
                "request_id": self.request_id,
                "run_id": self.run_id,
                "tool_call_id": self.tool_call_id,
                "tool_name": self.tool_name,
            }
            self._logger = CallLogger(logging.getLogger(f"gateway.tools.{self.tool_name}"), extra)
        return self._logger

    @property
    def abort_signal(self) -> AbortSignal:
        """Tells that this call shall end, and why."""
        return self._call.signal

    def emit_custom_event(self, name: str, value: object, *, batch: bool = False) -> None:
        """Sends a CUSTOM event to everybody who watches the run; synchronous, ordered, from any thread.

        `value` is a mapping, dataclass or pydantic model; `toolCallId` is added to it. It is encoded now, so it may be
        changed afterwards. What JSON cannot hold is replaced and counted, never an error (`strict_payloads` raises
        `PayloadError`). `batch=True` may wait up to 50 ms to share a write. Raises `TypeError` or `ValueError` for a
        name or value that is none, `Backpressure` on the loop (threads wait) while more than `max_pending_bytes` is not
        stored yet. Source: contract 4.3.
        """
        # The hot path, in one frame and with no call that is not C. What is unusual goes the long way instead.
        if time() >= self._until:
            self._next_millisecond()
        if self._pressure.full:
            self._pressure.hold()
        try:
            head = self._heads[name]
            if type(value) is dict and value and "toolCallId" not in value and not batch:
                for item in value.values():
                    kind = type(item)
                    if kind is not str and kind is not int and kind not in FLAT:
                        break
                else:
                    data = dumps(value, None, FLAT_OPTIONS)
                    if len(data) <= self._limit:
                        self._add((None, head, data[1:-1], self._tail))
                        if len(self._pieces) >= FULL or not self._run.taking:
                            self._run.staged()
                        return
        except (KeyError, TypeError, RuntimeError):
            pass  # a new name or millisecond, or a dict that is none of orjson's: the long way knows better
        self._call.emit(name, value, batch)

    def _next_millisecond(self) -> None:
        """Heads carry the time, so those of the last millisecond are of no more use."""
        self._until = (int(time() * 1000) + 1) / 1000
        self._heads.clear()

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Reports how far the tool is, in any unit; at most one event in 50 ms goes out, the last one always.

        A lower or NaN `progress` keeps the last one. Synchronous, from any thread. Source: contract 4.4.
        """
        self._call.progress(progress, total, message)

    def flush(self) -> Awaitable[None]:
        """Everything emitted so far is in the store when `await ctx.flush()` returns.

        It is also the way to give way in a tight loop. In plain functions, where nothing can be awaited, it blocks, and
        what it returns need not be awaited.
        """
        return self._call.run.flush()

    def waiting_for_user(self, message: str | None = None) -> AbstractAsyncContextManager[None]:
        """`async with ctx.waiting_for_user("Look at your phone."):` the call waits for the person in its own way.

        Its clock stops for good; viewers hear `tool.waiting` and `tool.resumed`. Raises `NotAvailable` in a call that
        is answered with JSON. Source: contract 2.2, 4.4.
        """
        return asking.waiting(self._call, message)

    async def request_input(self, message: str, schema: object = None) -> InputResponse:
        """Asks the person inside the open run and waits for the answer, however long; the clock stops for good.

        `schema` is the JSON Schema of the answer's payload, or a pydantic model: an answer that breaks it is refused.
        Several questions of one call may be open at once. Raises `AbortError` when the call is aborted first,
        `NotAvailable` in a call that is answered with JSON, `TypeError` or `ValueError` for what is no schema. Source:
        contract 2.2.
        """
        asking.check_open(self._call, "request_input")
        question = asking.new_question(self._call, asking.checked_message(message), asking.check_schema(schema))
        return asking.response_of(await asking.ask_open(self._call, self._desk("request_input"), question))

    def request_input_sync(self, message: str, schema: object = None) -> InputResponse:
        """`request_input` for plain functions: blocks their thread. Raises `RuntimeError` on the loop's own thread."""
        return self._run.block_on(partial(self.request_input, message, schema))

    def interrupt(
        self, message: str, schema: object = None, reason: str = "input_required", key: str = "input"
    ) -> InputResponse:
        """The person's answer for `key`; if there is none yet, the run ends with an AG-UI interrupt.

        Then the tool is run again from its start once the run is resumed, and gets the answer here. Answers are kept
        over all resumes. Raises `Interrupt`, which must not be caught; `NotAvailable` in nested calls, in the
        background and without a run. Source: contract 2.2, 4.2.
        """
        return asking.interrupt(self._call, message, schema, reason, key)

    def _can_ask(self) -> bool:
        """Whether there is anybody to ask. For the gateway."""
        return asking.can_ask(self._call)

    async def _ask(self, message: str, schema: object, key: str) -> InputResponse:
        """`interrupt` or `request_input`, by the switch of contract 5.6. For the gateway."""
        if asking.asks_by_interrupt(self._call):
            return self.interrupt(message, schema, key=key)
        return await self.request_input(message, schema)

    @property
    def input_response(self) -> InputResponse | None:
        """The person's newest answer to this call, or None."""
        newest = self._call.newest
        return None if newest is None else asking.response_of(newest)

    @property
    def input_responses(self) -> Mapping[str, InputResponse]:
        """The answers to the interrupts of this call by key, over all resumes."""
        return {key: asking.response_of(answer) for key, answer in self._call.answers.items()}

    @property
    def detach(self) -> Callable[[Awaitable[Any]], asyncio.Future[str]] | None:
        """`ctx.detach(work)` offers a task, future or coroutine to the background; None where a call cannot move.

        The future resolves to a note when a person moves the call: that note is the call's result, and the work goes
        on as a run of its own, for which this context speaks from then on. Source: contract 5.4.
        """
        call = self._call
        movable = call.listed and call.run.channel in ("open", "interrupt")
        if not movable or call.tool is None or getattr(call.tool, "kind", None) not in ("async", "async_generator"):
            return None
        return self._offer

    def _offer(self, work: Awaitable[Any]) -> asyncio.Future[str]:
        note = detaching.offer(self._call, work)
        if self._call.listed and self._executor is not None and self._executor.desk is not None:
            self._executor.desk.on_offer(self._call)
        return note

    async def run_detachable(self, work: Awaitable[T]) -> T | str:
        """Awaits `work`, or until a person moves the call to the background: then the note is returned.

        The usual form is `return await ctx.run_detachable(work())`. Just awaits where `detach` is None.
        """
        return await work if self.detach is None else await detaching.run_detachable(self._offer, work)

    def _desk(self, member: str) -> QuestionDesk:
        if self._executor is None or self._executor.desk is None:
            raise NotAvailable(f"ctx.{member} is not available here.")
        return self._executor.desk

    @property
    def task(self) -> TaskContext | None:
        """This call as a task; None when the tool says `task_support="forbidden"`."""
        call = self._call
        if call.tool is None or call.tool.task_support == "forbidden":
            return None
        return TaskContext(self._task_id, call.signal, call.update)

    def _task_id(self) -> str:
        return self._call.run.key.run_id

    @property
    def trace(self) -> TraceContext | None:
        """The caller's W3C trace context, if it sent a valid one."""
        return self._caller.trace

    def provide(self, capability: Capability[T], value: T) -> None:
        """Gives a capability to what comes after: other middleware, and the tool."""
        self._capabilities.provide(capability, value)

    def get(self, capability: Capability[T]) -> T:
        """What a middleware provided; raises `CapabilityError` when none did."""
        return self._capabilities.get(capability)

    def get_optional(self, capability: Capability[T]) -> T | None:
        """What a middleware provided, or None."""
        return self._capabilities.get_optional(capability)

    async def enable_tools(self, names: Iterable[str]) -> None:
        """Makes tools visible for this session; for this run only, when the caller has no session.

        Raises `ValueError` for an unknown name. It never grants a scope. Viewers hear of it by `tools.changed`.
        """
        await self._switch(names, on=True)

    async def disable_tools(self, names: Iterable[str]) -> None:
        """Hides tools from this session: neither listed nor callable. As `enable_tools` otherwise."""
        await self._switch(names, on=False)

    def get_visible_tools(self) -> frozenset[str] | None:
        """Names of the tools that are there for this session; None when it has no rule of its own."""
        return self._run.tools.names()

    async def _switch(self, names: Iterable[str], *, on: bool) -> None:
        changed = await self._run.tools.switch(names, on=on)
        if not self._call.closed:
            self._run.write(custom(time_ns() // 1_000_000, "tools.changed", changed))

    async def call_tool(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolOutput:
        """Calls another tool inside this run, under the same signal; never raises for an outcome.

        `timeout` is seconds, 0 for ever, None the tool's own; `ValueError` for another one. Its events carry
        `<this call>/<n>` as `toolCallId`; it is not part of the conversation. For the loop's own thread. Source:
        contract 4.2.
        """
        if self._executor is None:
            raise NotAvailable("call_tool is not available here.")
        if self._call.depth >= MAX_DEPTH:
            return failed(f"Tools call each other more than {MAX_DEPTH} deep.")
        nested = self._call.nest(name, ToolCall(name, arguments).arguments, checked_timeout(timeout))
        output = await self._executor.execute(nested, self._caller, self.context)
        if output is None:
            raise RuntimeError("A nested call has ended its run.")  # it cannot: `check_interruptible`
        return output
