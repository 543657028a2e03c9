"""What a tool sees of its call. One object per call, injected where a parameter is annotated `ToolContext`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from time import time, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.errors import NotAvailable
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

__all__ = ["AuthContext", "Caller", "ToolContext", "TraceContext"]

T = TypeVar("T")

# A tool, or a middleware, that always calls another one would fill the memory long before its time is up.
MAX_DEPTH = 250


@dataclass(frozen=True, slots=True)
class AuthContext:
    """Who calls, as an authenticator found it. `subject` is the person or service; times are Unix seconds.

    `scopes` may be given as any collection and is a frozenset; `audience` as str or sequence, and is a tuple.
    """

    subject: str
    scopes: Collection[str] = frozenset()
    client_id: str | None = None
    issuer: str | None = None
    audience: str | Sequence[str] = ()
    expires_at: float | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Tokens have lists; what is decided by scopes must not depend on which kind an authenticator handed on.
        object.__setattr__(self, "scopes", frozenset(self.scopes))
        object.__setattr__(
            self, "audience", (self.audience,) if isinstance(self.audience, str) else tuple(self.audience)
        )

    @property
    def aud(self) -> str | Sequence[str]:
        """Alias of `audience`."""
        return self.audience


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The W3C trace context of the starting request: `traceparent`, and the two that may come with it."""

    traceparent: str
    tracestate: str | None = None
    baggage: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """What a run knows of the request that started it; the same for all of its calls."""

    request_id: str
    session_id: str
    owner: str | None = None
    client_request_id: str | None = None
    auth: AuthContext | None = None
    address: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trace: TraceContext | None = None

    @property
    def session_label(self) -> str:
        """For logs: the subject in clear, a session (it is a secret) only as a hash."""
        subject = "-" if self.auth is None else repr(self.auth.subject)
        return f"subject={subject} session={sha256(self.session_id.encode()).hexdigest()[:12]}"


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
        "_run",
        "_tail",
        "_until",
        "context",
    )

    def __init__(self, call: Call, caller: Caller, context: Any = None, executor: Executor | None = None) -> None:
        self._call = call
        self._caller = caller
        self._executor = executor
        self._capabilities = Capabilities()
        self._logger: CallLogger | None = None
        # What emitting needs, one step away instead of three.
        self._run = call.run
        self._add = call.run.stage.add
        self._pieces = call.run.stage.pieces
        self._heads = call.custom.stamped
        self._tail = call.custom.tail
        self._limit = call.run.settings.max_event_bytes
        self._until = 0.0
        #: What `Gateway(context=...)` gave this run.
        self.context = context

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
        name or value that is none. Source: contract 4.3.
        """
        # The hot path, in one frame and with no call that is not C. What is unusual goes the long way instead.
        if time() >= self._until:
            self._next_millisecond()
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

    @property
    def detach(self) -> None:
        """None: this call cannot be moved to the background."""
        return None

    @property
    def task(self) -> TaskContext | None:
        """This call as a task; None when the tool says `task_support="forbidden"`."""
        call = self._call
        if call.tool is None or call.tool.task_support == "forbidden":
            return None
        return TaskContext(call.run.key.run_id, call.signal, call.update)

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
        return await self._executor.execute(nested, self._caller, self.context)
