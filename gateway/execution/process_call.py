"""A call whose tool runs in a process of its own: what goes over, and what comes back into the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gateway.execution.call import Call
from gateway.execution.context import ToolContext
from gateway.execution.processes import ProcessJob
from gateway.execution.tools import Tool
from gateway.wire.codec import Change

__all__ = ["process_job"]

logger = logging.getLogger("gateway")


class CallSink:
    """Takes what the process sends, in order, on the loop."""

    def __init__(self, call: Call, ctx: ToolContext) -> None:
        self._call = call
        self._ctx = ctx
        self._flushes: set[asyncio.Future[None]] = set()
        self.job: ProcessJob | None = None
        self._held = False

    def emit(self, name: str, value: bytes, changes: Sequence[tuple[str, str]]) -> None:
        self._call.emit_encoded(name, value, [Change(*change) for change in changes])
        pressure = self._call.run.pressure
        if pressure.full and self.job is not None and not self._held:
            self._held = True
            self.job.pause_reading()
            pressure.when_free(self._go_on)

    def _go_on(self) -> None:
        self._held = False
        if self.job is not None:
            self.job.resume_reading()

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._call.progress(progress, total, message)

    def log(self, level: int, message: str) -> None:
        self._ctx.logger.log(level, "%s", message)

    def flushed(self, done: Callable[[], None]) -> None:
        flush = asyncio.ensure_future(self._call.run.flush())
        self._flushes.add(flush)
        flush.add_done_callback(self._flushes.discard)
        flush.add_done_callback(lambda _: done())

    def traceback(self, text: str) -> None:
        run_id = self._call.run.key.label
        logger.warning("Tool %s of run %s raised\n%s", self._call.tool_name, run_id, text)


def process_job(tool: Tool, call: Call, ctx: ToolContext, arguments: Mapping[str, Any]) -> ProcessJob:
    """The job for a call of a tool with `isolation="process"`; not started yet."""
    context: dict[str, Any] = {
        "run_id": ctx.run_id,
        "thread_id": ctx.thread_id,
        "parent_run_id": ctx.parent_run_id,
        "tool_call_id": ctx.tool_call_id,
        "tool_name": ctx.tool_name,
        "request_id": ctx.request_id,
        "client_request_id": ctx.client_request_id,
        "session_id": ctx.session_id,
        "strict_payloads": call.run.settings.strict_payloads,
        "task": ctx.task is not None,
        "metadata": dict(ctx.metadata),
        "auth": None if ctx.auth is None else {**asdict(ctx.auth), "scopes": sorted(ctx.auth.scopes)},
    }
    sink = CallSink(call, ctx)
    job = sink.job = ProcessJob(
        target=f"{tool.func.__module__}:{tool.func.__qualname__}",
        arguments=dict(arguments),
        context=context,
        sink=sink,
        signal=call.signal,
    )
    return job
