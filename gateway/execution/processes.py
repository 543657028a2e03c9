"""A tool call in a process of its own: `isolation="process"`, for code that must be stoppable by force.

One fresh interpreter a call, in its own session and so its own process group. Frames (`pipes`) come back over
one socket pair, JSON lines go there over another. POSIX only. The inside of the process is `child`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal as signals
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol, cast

from gateway.execution import exits, pipes
from gateway.execution.outcomes import ToolOutput
from gateway.execution.settle import Raised, Returned, Settled
from gateway.execution.signals import AbortSignal
from gateway.wire.codec import decode

__all__ = ["ProcessDied", "ProcessJob", "ProcessSink"]

# How long a process may take to exit once it has answered (or closed its side), before it is killed.
EXIT_SECONDS = 1.0
# How long its last words may take to arrive once it is gone: only a process that escaped from the group can
# hold the socket open any longer.
DRAIN_SECONDS = 1.0

# Only the standard library is used before `sys.path` is the gateway's own, so that the child finds what the
# gateway found. `-P`: a module in the working directory must not pass for one of these.
_BOOTSTRAP = """\
import json, socket, sys
frames, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
size = int(control.recv(16, socket.MSG_WAITALL) or sys.exit(1))
handshake = json.loads(control.recv(size, socket.MSG_WAITALL))
sys.path[:] = handshake["path"]
from gateway.execution.child import main
main(frames, control, handshake)
"""


class ProcessDied(Exception):
    """The process ended without an answer: with `exit_code`, or by the signal number `signal`."""

    def __init__(self, returncode: int) -> None:
        self.exit_code = returncode if returncode >= 0 else None
        self.signal = -returncode if returncode < 0 else None
        how = f"by signal {self.signal}" if self.signal else f"with exit code {self.exit_code}"
        super().__init__(f"The tool's process ended {how} before it answered.")


class ProcessSink(Protocol):
    """Takes what the process says, in its order, on the loop. Nothing comes after the job has settled."""

    def emit(self, name: str, value: bytes, changes: Sequence[tuple[str, str]]) -> None:
        """A custom event, its name checked, its value an encoded object without `toolCallId`."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """A progress report; `progress` may be NaN."""

    def log(self, level: int, message: str) -> None:
        """A record of `ctx.logger`."""

    def flushed(self, done: Callable[[], None]) -> None:
        """Call `done()`, from any thread, once everything taken so far is stored."""

    def traceback(self, text: str) -> None:
        """For the log: where the exception came from that the answer reports."""


class ProcessJob:
    """One call of the function at `target` (`module:qualname`) in a process.

    `future` gets `Returned(ToolOutput)` for every answer, results and errors alike, or `Raised`: of
    `ProcessDied`, of what kept the process from starting, or of what `sink` raised. When it is settled by an
    answer, the process gets a second to exit; in any case its whole group is killed. All methods belong to
    the loop it was made on; `signal` may be aborted from anywhere.

    `context` holds the fields of the context as JSON; besides the members of `ToolContext`: `log_level` (an
    int, default everything) and `strict_payloads` (default false).
    """

    def __init__(
        self,
        *,
        target: str,
        arguments: Mapping[str, Any],
        context: Mapping[str, Any],
        sink: ProcessSink,
        signal: AbortSignal,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.future: asyncio.Future[Settled[ToolOutput]] = self._loop.create_future()
        #: What had to be changed to write the result as JSON, as `(kind, path)`.
        self.changes: Sequence[tuple[str, str]] = ()
        #: Events that came after the answer, and were dropped.
        self.late_emits = 0
        self._target = target
        self._arguments = arguments
        self._context = context
        self._sink = sink
        self._signal = signal
        self._aborted_at: int | None = None
        self._unlisten: Callable[[], None] = _nothing
        self._process: subprocess.Popen[bytes] | None = None
        self._frames: asyncio.Transport | None = None
        # Apart from the frames: a write to a process that has just gone closes its transport, and with it
        # would go the answer that is still unread.
        self._control: asyncio.Transport | None = None
        self._reader = pipes.FrameReader(self._take)
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._connected = False
        self._gone = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process, which is also the number of its group; `None` before `start`."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process and send it the call. A failure settles the job as `Raised`."""
        try:
            handshake = self._handshake()
            frames, control = self._spawn()
        except (OSError, ValueError, TypeError, RecursionError, subprocess.SubprocessError) as error:
            self._settle(Raised(error, self._signal.aborted))
            self._gone.set()
            return
        self._connected = True
        try:
            self._frames, _ = await self._loop.create_unix_connection(lambda: _Frames(self), sock=frames)
            self._control, _ = await self._loop.create_unix_connection(asyncio.Protocol, sock=control)
        except BaseException:  # a cancellation too: no socket is left open, and it goes on
            self._connected = self._frames is not None
            control.close()
            if not self._connected:
                frames.close()
            self.close()
            raise
        self._control.write(b"%15d\n%b" % (len(handshake), handshake))
        self._unlisten = self._signal.on_abort(self._aborted)

    def terminate(self) -> None:
        """Ask the whole group to end (SIGTERM)."""
        self._send_signal(signals.SIGTERM)

    def kill(self) -> None:
        """End the whole group (SIGKILL)."""
        self._send_signal(signals.SIGKILL)

    def close(self) -> None:
        """Give everything up: kill, and listen no more. An unsettled job settles when the process is gone."""
        self._unlisten()
        self.kill()
        for transport in (self._frames, self._control):
            if transport:
                transport.close()

    async def wait_gone(self) -> None:
        """Wait until the process is gone and nothing is left to clean up."""
        await self._gone.wait()

    def pause_reading(self) -> None:
        """Backpressure: take nothing more for now. Once its pipe is full, the tool's emits block."""
        if self._frames and not self._paused:
            self._paused = True
            self._frames.pause_reading()

    def resume_reading(self) -> None:
        """The opposite of `pause_reading`."""
        if self._frames and self._paused:
            self._paused = False
            self._frames.resume_reading()

    # -- starting --

    def _handshake(self) -> bytes:
        fields = {
            "path": sys.path,
            "argv": sys.argv,
            "main": _main_module() if self._target.startswith("__main__:") else None,
            "target": self._target,
            "arguments": self._arguments,
            "context": self._context,
        }
        # Not the total encoder: arguments must arrive as they are, also integers that a browser cannot hold.
        return json.dumps(fields, default=_plain).encode()

    def _spawn(self) -> tuple[socket.socket, socket.socket]:
        with ExitStack() as theirs, ExitStack() as ours:
            kept, passed = [], []
            for _ in range(2):
                here, there = socket.socketpair()
                kept.append(ours.enter_context(here))
                passed.append(theirs.enter_context(there).fileno())
                here.setblocking(False)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-P", "-c", _BOOTSTRAP, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
            )
            ours.pop_all()
        exits.watch(self._process, self._loop, self._exited)
        return kept[0], kept[1]

    # -- what the process says --

    def _received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this one call
            self._settle(Raised(error, self._signal.aborted))
            self.close()

    def _take(self, kind: int, name: bytes, body: bytes) -> None:
        if self.future.done():
            self.late_emits += kind == pipes.EMIT
        elif kind == pipes.EMIT:
            changes, self.changes = self.changes, ()
            self._sink.emit(name.decode("utf-8", "surrogatepass"), body, changes)
        else:
            self._take_other(kind, name, body)

    def _take_other(self, kind: int, name: bytes, body: bytes) -> None:
        if kind == pipes.CHANGES:
            self.changes = tuple((kind, path) for kind, path in json.loads(body))
        elif kind == pipes.PROGRESS:
            progress, total, message = json.loads(body)
            self._sink.progress(progress, total, message)
        elif kind == pipes.LOG:
            level, message = json.loads(body)
            self._sink.log(level, message)
        elif kind == pipes.FLUSH:
            number = int(body)
            self._sink.flushed(lambda: self._tell({"flushed": number}))
        elif kind == pipes.CANCEL:
            self._aborted_at = self._aborted_at or int(body)
            self._signal.abort("tool")
        elif kind == pipes.TRACEBACK:
            self._sink.traceback(body.decode())
        elif kind == pipes.RESULT:
            self._answer(int(name), body)
        else:
            raise ValueError(f"Unknown frame kind {kind} from the tool's process")

    def _answer(self, returned_at: int, body: bytes) -> None:
        output = ToolOutput.from_wire(cast(Mapping[str, Any], decode(body)))
        # One clock for all processes of a machine: what was first is known to the microsecond.
        aborted_first = self._aborted_at is not None and self._aborted_at <= returned_at
        self._settle(Returned(output, aborted_first))
        if not self._reaped:
            self._kill_after(EXIT_SECONDS)

    # -- what it is told --

    def _aborted(self, reason: str) -> None:
        """*Any thread.*"""
        self._aborted_at = self._aborted_at or time.monotonic_ns()
        self._tell({"abort": reason})

    def _tell(self, message: Mapping[str, Any]) -> None:
        """*Any thread.* At once from the loop, otherwise in its next turn."""
        line = json.dumps(message).encode() + b"\n"
        if threading.get_ident() == self._thread:
            self._write(line)
        else:
            with suppress(RuntimeError):  # the loop has closed, and the process died of it
                self._loop.call_soon_threadsafe(self._write, line)

    def _write(self, line: bytes) -> None:
        if self._control and not self._control.is_closing():
            self._control.write(line)

    # -- its end --

    def _exited(self) -> None:
        """The process is gone and reaped; its last words may still be on their way."""
        if self._timer:
            self._timer.cancel()
        if self._connected:
            self._timer = self._loop.call_later(DRAIN_SECONDS, self._drained)
        else:
            self._finish()

    def _drained(self) -> None:
        if self._paused:
            self._timer = self._loop.call_later(DRAIN_SECONDS, self._drained)
        elif self._frames:
            self._frames.abort()

    def _disconnected(self) -> None:
        self._connected = False
        if self._reaped:
            self._finish()
        else:
            self._kill_after(EXIT_SECONDS)

    def _finish(self) -> None:
        """The process is reaped and has nothing more to say."""
        if self._timer:
            self._timer.cancel()
        if self._control:
            self._control.close()
        returncode = self._process.returncode if self._process else 0
        self._settle(Raised(ProcessDied(returncode), self._signal.aborted))
        self._gone.set()

    @property
    def _reaped(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    def _kill_after(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.kill)

    def _settle(self, settled: Settled[ToolOutput]) -> None:
        self._unlisten()
        if not self.future.done():
            self.future.set_result(settled)

    def _send_signal(self, number: int) -> None:
        if self._process and not self._reaped:
            exits.signal_group(self._process.pid, number)


class _Frames(asyncio.Protocol):
    """Our end of the socket that the frames come over."""

    def __init__(self, job: ProcessJob) -> None:
        self._job = job

    def data_received(self, data: bytes) -> None:
        self._job._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._job._disconnected()


def _main_module() -> dict[str, str] | None:
    """How the child can load our `__main__`; as multiprocessing does."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"name": name}
    path = getattr(main, "__file__", None)
    return None if path is None else {"path": os.path.abspath(path)}


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _nothing() -> None:
    """Stands for a removal when there is nothing to remove."""
