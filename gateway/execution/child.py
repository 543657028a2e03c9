"""The inside of a tool process: one call, from the handshake to its answer.

Runs in a fresh interpreter that `processes` starts; never imported by the gateway's own process. Everything
the tool says goes through one `Outbox`; a thread listens for the abort and for acknowledged flushes.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import math
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from gateway.errors import AbortError, InvalidArguments, NotAvailable, PayloadError
from gateway.execution.caller import AuthContext
from gateway.execution.names import check_event_name
from gateway.execution.outbox import Outbox
from gateway.execution.outcomes import ToolOutput, error_of, invalid_arguments, output_of
from gateway.execution.pipes import CANCEL, CHANGES, EMIT, FLUSH, LOG, PROGRESS, RESULT, TRACEBACK, pack
from gateway.execution.signals import AbortSignal
from gateway.execution.task_context import TaskContext
from gateway.execution.tools import Tool, tool
from gateway.run.pacing import as_number
from gateway.wire.codec import Change, encode
from gateway.wire.events import CustomWriter

# A CPU-bound tool must let the listener in: 5 ms, the default, is what an abort would wait for.
SWITCH_INTERVAL = 0.001
# When the gateway has died, the tool hears "shutdown" and has this long to tidy up.
ORPHAN_SECONDS = 1.0

# Contract 2.2 without what a process has. `detach` is `None` there, which says the same without an error.
_ELSEWHERE = frozenset(
    {
        "call_tool",
        "context",
        "disable_tools",
        "enable_tools",
        "get",
        "get_optional",
        "get_visible_tools",
        "input_response",
        "input_responses",
        "interrupt",
        "mcp_headers",
        "provide",
        "request_input",
        "request_input_sync",
        "run_detachable",
        "trace",
        "verified_subject",
        "waiting_for_user",
    }
)


class Flushes:
    """Who waits for which acknowledgement."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, threading.Event] = {}

    def begin(self) -> tuple[int, threading.Event]:
        """A new request: its number, and what to wait for."""
        number, done = next(self._numbers), threading.Event()
        self._waiting[number] = done
        return number, done

    def acknowledge(self, number: int) -> None:
        """Everything up to this request is stored."""
        if done := self._waiting.pop(number, None):
            done.set()

    def release(self) -> None:
        """Nobody will acknowledge anything any more."""
        for number in list(self._waiting):
            self.acknowledge(number)


class ProcessContext:
    """The `ToolContext` of a tool with `isolation="process"`.

    It has the identifiers, `abort_signal`, `emit_custom_event`, `report_progress`, `flush` (blocking),
    `logger`, `metadata`, `auth` and `task`; every other member raises `NotAvailable`. Source: contract 2.1.
    """

    def __init__(self, fields: Mapping[str, Any], abort_signal: AbortSignal, outbox: Outbox) -> None:
        self.run_id: str | None = fields.get("run_id")
        self.thread_id: str | None = fields.get("thread_id")
        self.tool_call_id: str | None = fields.get("tool_call_id")
        self.tool_name: str | None = fields.get("tool_name")
        self.request_id: str | None = fields.get("request_id")
        self.parent_run_id: str | None = fields.get("parent_run_id")
        self.client_request_id: str | None = fields.get("client_request_id")
        self.session_id: str | None = fields.get("session_id")
        self.metadata: dict[str, Any] = fields.get("metadata") or {}
        self.auth = _auth(fields.get("auth"))
        #: The call as a task; None when the tool says `task_support="forbidden"`.
        self.task: TaskContext | None = None
        if fields.get("task"):
            self.task = TaskContext(lambda: str(self.run_id), abort_signal, self._update)
        self.detach = None
        self.abort_signal = abort_signal
        self.logger = _logger(self, outbox, fields.get("log_level") or logging.DEBUG)
        self._strict = bool(fields.get("strict_payloads"))
        self._outbox = outbox
        self._flushes = Flushes()
        self._percent = False
        abort_signal.on_abort(self._aborted)

    def __getattr__(self, name: str) -> Any:
        if name in _ELSEWHERE:
            raise NotAvailable(f"ctx.{name} is not available in a process tool.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def emit_custom_event(self, name: str, value: object, *, batch: bool = False) -> None:
        """Send a custom event, in order, from any thread; blocks only while the gateway takes nothing.

        `value` is a mapping, dataclass or pydantic model; `toolCallId` is added to it. A wrong name or value
        is a `TypeError` or `ValueError` here. `batch` changes nothing: every emit here shares its write.
        """
        check_event_name(name)
        changes: list[Change] = []
        body = CustomWriter.value(value, changes)
        frame = pack(EMIT, body, name.encode("utf-8", "surrogatepass"))
        self._outbox.put(self._changed(changes) + frame if changes else frame)

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the tool is, in any unit, from any thread; a lower or NaN one keeps the last."""
        if message is not None and not isinstance(message, str):
            raise TypeError(f"The message of a progress report is a str, not {type(message).__name__}.")
        report = [as_number("progress", progress), None if total is None else as_number("total", total), message]
        # Not our encoder: NaN has a meaning here, and never leaves the gateway.
        self._outbox.put(pack(PROGRESS, json.dumps(report).encode()))

    def flush(self) -> None:
        """Block until everything emitted so far is in the store. `AbortError` when the gateway has died."""
        number, done = self._flushes.begin()
        self._outbox.put(pack(FLUSH, b"%d" % number), urgent=True)
        if not self._outbox.lost:
            done.wait()
        if self._outbox.lost:
            raise AbortError("shutdown")

    def _update(self, message: str, percent: float | None) -> None:
        """As `Call.update`: a part of 100 once one is known."""
        self._percent = self._percent or percent is not None
        self.report_progress(math.nan if percent is None else percent, 100 if self._percent else None, message)

    def _aborted(self, reason: str) -> None:
        """`ctx.task.cancel()` aborts the signal here; the gateway must hear of it, and when it was."""
        if reason == "tool":
            self._outbox.put(pack(CANCEL, b"%d" % time.monotonic_ns()), urgent=True)

    def _changed(self, changes: list[Change]) -> bytes:
        """A frame that tells what had to be changed in the next one; an error under `strict_payloads`."""
        if self._strict:
            raise PayloadError(changes[0].path, changes[0].kind)
        return pack(CHANGES, encode([list(change) for change in changes]))


class _Forward(logging.Handler):
    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        self._outbox.put(pack(LOG, encode([record.levelno, self.format(record)])))


def _logger(ctx: ProcessContext, outbox: Outbox, level: int) -> logging.LoggerAdapter[logging.Logger]:
    """A logger whose records are written by the gateway, with its handlers."""
    logger = logging.getLogger(f"gateway.tools.{ctx.tool_name}")
    logger.propagate = False
    logger.setLevel(level)
    logger.handlers = [_Forward(outbox)]
    names = ("request_id", "run_id", "tool_call_id", "tool_name")
    return logging.LoggerAdapter(logger, {name: getattr(ctx, name) for name in names})


def _auth(fields: Mapping[str, Any] | None) -> AuthContext | None:
    if fields is None:
        return None
    lists = {"scopes": frozenset(fields["scopes"]), "audience": tuple(fields["audience"])}
    return AuthContext(**{**fields, **lists})


def main(frames: socket.socket, control: socket.socket, handshake: dict[str, Any]) -> None:
    """Run the one call of this process. Called by the line of code that `processes` starts Python with."""
    for channel in (frames, control):
        channel.set_inheritable(False)
        # A fork of this process must not keep the gateway waiting for the end of the channel.
        os.register_at_fork(after_in_child=channel.close)
    sys.setswitchinterval(SWITCH_INTERVAL)
    sys.argv = handshake["argv"]
    abort_signal, outbox = AbortSignal(), Outbox(frames.sendall)
    os.register_at_fork(after_in_child=outbox.forget)  # it has no writer thread either
    ctx = ProcessContext(handshake["context"], abort_signal, outbox)
    listener = (control, abort_signal, outbox, ctx._flushes)
    threading.Thread(target=_listen, args=listener, name="agui-control", daemon=True).start()
    answer = _answer(handshake, ctx)
    outbox.put(answer, urgent=True)
    outbox.close()


def _answer(handshake: dict[str, Any], ctx: ProcessContext) -> bytes:
    """The frames that end the call, whatever the tool does short of ending its process."""
    try:
        found = _tool(handshake)
        value = found.bind(found.validate(handshake["arguments"]), ctx)()
        returned_at = time.monotonic_ns()
        changes: list[Change] = []
        body = encode(output_of(found.check_output(value), changes).to_wire())
        before = ctx._changed(changes) if changes else b""
    except BaseException as error:  # noqa: BLE001 - the boundary of this process
        returned_at = time.monotonic_ns()
        before, body = _traceback_of(error, ctx), encode(_output_of_error(error).to_wire())
    return before + pack(RESULT, body, b"%d" % returned_at)


def _output_of_error(error: BaseException) -> ToolOutput:
    if isinstance(error, InvalidArguments):
        return invalid_arguments(error.message, error.details)
    return error_of(error)


def _traceback_of(error: BaseException, ctx: ProcessContext) -> bytes:
    """The frame for the log; none for a caller's mistake, or while it is being stopped: then it should raise."""
    if ctx.abort_signal.aborted or isinstance(error, InvalidArguments):
        return b""
    return pack(TRACEBACK, "".join(traceback.format_exception(error)).encode("utf-8", "replace"))


def _tool(handshake: dict[str, Any]) -> Tool:
    if handshake["main"] is not None:
        _adopt_main(handshake["main"])
    found = _find(handshake["target"])
    # `other = tool(isolation="process")(function)` leaves the plain function at the name we look under.
    return found if isinstance(found, Tool) else tool(found)


def _find(target: str) -> Any:
    module, _, qualname = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _adopt_main(main: Mapping[str, str]) -> None:
    """Load the gateway's main module as `__mp_main__`, as multiprocessing does, to find its tools there."""
    if "name" in main:
        content = runpy.run_module(main["name"], run_name="__mp_main__", alter_sys=True)
    else:
        content = runpy.run_path(main["path"], run_name="__mp_main__")
    module = ModuleType("__mp_main__")
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _listen(control: socket.socket, abort_signal: AbortSignal, outbox: Outbox, flushes: Flushes) -> None:
    """The thread that hears the gateway, until the gateway has died; then this process has to follow it."""
    rest = b""
    while data := _receive(control):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "abort" in message:
                _abort(abort_signal, message["abort"])
            else:
                flushes.acknowledge(message["flushed"])
    outbox.lose()
    flushes.release()
    _abort(abort_signal, "shutdown")
    time.sleep(ORPHAN_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _receive(control: socket.socket) -> bytes:
    try:
        return control.recv(65536)
    except OSError:
        return b""


def _abort(abort_signal: AbortSignal, reason: str) -> None:
    # Callbacks of the tool may wait for this listener (`ctx.flush()`), so they get a thread of their own.
    threading.Thread(target=abort_signal.abort, args=(reason,), name="agui-abort", daemon=True).start()
