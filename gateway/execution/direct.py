"""Tool calls for adapters: no run, no stream, only the outcome.

The call goes through the same executor, in a run that nobody can hear. Source: contract 2.3.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from time import time
from typing import Any
from urllib.parse import quote

from gateway.execution.call import Call
from gateway.execution.caller import AuthContext, Caller
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.middleware import Middleware, ToolCall, checked_timeout
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.signals import AbortSignal
from gateway.execution.threads import ThreadPool
from gateway.execution.tools import Tool
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings

__all__ = ["call_tool", "direct_caller", "run_unheard"]


class NoWriter:
    """Takes events and keeps nothing."""

    pending_bytes = 0

    def write(self, data: bytes, count: int = 1) -> None:
        """Nobody hears it."""

    def save(self, record: RunRecord) -> None:
        """Nobody asks for it."""

    def on_trim(self, callback: Callable[[], None]) -> None:
        """There is nothing to trim."""

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """There is nothing to lose."""

    async def flush(self) -> None:
        await asyncio.sleep(0)


def direct_caller(auth: AuthContext | None, session_id: str | None) -> Caller:
    """Who calls, when no request does."""
    metadata: dict[str, Any] = {
        "headers": {},
        "forwarded_props": {},
        "context": [],
        "client_tools": [],
        "client_request_id": None,
    }
    return Caller(secrets.token_hex(16), _session_id(auth, session_id), auth=auth, metadata=metadata)


def _session_id(auth: AuthContext | None, session_id: str | None) -> str:
    """As for a request that brings no session."""
    if session_id is not None:
        return session_id
    return f"anon:{secrets.token_urlsafe(16)}" if auth is None else f"user:{quote(auth.subject, safe='')}:default"


async def run_unheard(
    executor: Executor,
    tools: SessionTools,
    settings: Settings,
    caller: Caller,
    call: ToolCall,
    *,
    context: Any = None,
    signal: AbortSignal | None = None,
    timeout: float | None = None,
) -> ToolOutput:
    """One call, to its outcome. Only a cancellation from outside is raised."""
    timeout = checked_timeout(timeout)
    record = RunRecord(RunKey(None, secrets.token_hex(8)), secrets.token_hex(8), "tools", created_at=time())
    run = LiveRun(record, NoWriter(), settings, tools=tools, unheard=True)
    run.start()
    made = Call(run, f"call_{secrets.token_urlsafe(9)}", call.name, None, dict(call.arguments), timeout)
    if signal is not None and signal.aborted:
        made.signal.abort(signal.reason or "user")  # at once: what was stopped before is never started
    remove = None if signal is None else signal.on_abort(lambda why: run.soon(partial(made.signal.abort, why)))
    try:
        output = await executor.execute(made, caller, context)
    finally:
        run.signal.detach()
        if remove is not None:
            remove()
    if output is None:
        raise RuntimeError("A call without a run has ended it.")  # it cannot: `check_interruptible`
    return output


_tasks: set[asyncio.Task[Any]] = set()


def _spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
    task = asyncio.create_task(work, name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def call_tool(
    call: ToolCall,
    tools: Iterable[Tool | Callable[..., Any]],
    *,
    signal: AbortSignal | None = None,
    timeout: float | None = None,
    auth: AuthContext | None = None,
    session: str | None = None,
    middleware: Sequence[Middleware] = (),
    context: Any = None,
) -> ToolOutput:
    """Calls one of `tools` as the gateway does, without a gateway; for adapters of agent frameworks.

    `timeout` is seconds, 0 for ever, None the tool's own or 30; `signal` is a Stop of the caller's. An input that is
    not an object counts as `{}`. Never raises for an outcome: a tool that fails, is unknown, too slow or stopped is an
    output. A cancellation of the caller goes through. Source: contract 2.3 and 5.1.
    """
    settings = Settings()
    threads = ThreadPool(settings.max_threads)  # of which as many start as are needed
    caller = direct_caller(auth, session)
    scopes = () if auth is None else auth.scopes
    try:
        executor = Executor(threads, _spawn, settings.stop_grace, middleware)
        return await run_unheard(
            executor,
            SessionTools(Registry(tools), scopes),
            settings,
            caller,
            call,
            context=context,
            signal=signal,
            timeout=timeout,
        )
    finally:
        threads.close()
