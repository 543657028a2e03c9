"""Tools that run in processes of their own. They must be importable there: plain functions of this module."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from gateway.errors import ToolError
from gateway.execution.context import ToolContext
from gateway.execution.tools import tool


def flush(ctx: Any) -> None:
    """`flush` blocks here; the annotation speaks of async tools."""
    ctx.flush()


@tool(isolation="process")
def add(a: int, b: int) -> int:
    return a + b


def plain_add(a: int, b: int = 2) -> int:
    return a + b


def _renamed(ctx: ToolContext, word: str) -> dict[str, Any]:
    return {"word": word, "call": ctx.tool_call_id}


renamed = tool(name="another_name", isolation="process")(_renamed)


@tool(isolation="process")
def spin_until_aborted(ctx: ToolContext) -> dict[str, Any]:
    """Never sleeps, never lets go of the interpreter by itself."""
    ctx.emit_custom_event("spinning", {"pid": os.getpid()})
    started = time.monotonic()
    while not ctx.abort_signal.aborted:
        if time.monotonic() - started > 60:
            return {"reason": None}
    return {"reason": ctx.abort_signal.reason}


@tool(isolation="process")
def ignore_everything(ctx: ToolContext) -> None:
    """Ignores the abort and SIGTERM, and so does its child, by inheritance."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ctx.emit_custom_event("ready", {"pid": os.getpid(), "grandchild": sleeper.pid})
    time.sleep(60)


@tool(isolation="process")
def leave_a_child_behind(ctx: ToolContext) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid


@tool(isolation="process")
def leave_an_escaped_child_behind(ctx: ToolContext) -> int:
    """A daemon as in the books: a fork, a session of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    return pid


@tool(isolation="process")
def never_exit() -> str:
    """Answers, and then does not go."""
    threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
    return "answered"


@tool(isolation="process")
def handle_sigterm(ctx: ToolContext) -> str:
    def stop(number: int, frame: object) -> None:
        ctx.emit_custom_event("stopping", {"signal": number})
        sys.exit("stopped by SIGTERM")

    signal.signal(signal.SIGTERM, stop)
    ctx.emit_custom_event("ready", {})
    while True:
        ctx.emit_custom_event("tick", {"text": "x" * 1000})


@tool(isolation="process")
def survive_alarms(ctx: ToolContext, alarms: int) -> int:
    """Emits all the time while a signal handler raises in the middle of it."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    rung = 0
    for _ in range(alarms):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            while True:
                ctx.emit_custom_event("tick", {"text": "y" * 5000})
        except TimeoutError:
            rung += 1
    return rung


@tool(isolation="process")
def exit_now(ctx: ToolContext, code: int) -> None:
    ctx.emit_custom_event("before", {"code": code})
    flush(ctx)
    os._exit(code)


@tool(isolation="process")
def kill_itself(ctx: ToolContext) -> None:
    ctx.emit_custom_event("before", {})
    flush(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tool(isolation="process")
def raise_it(kind: str) -> None:
    if kind == "system_exit":
        sys.exit("no more")
    if kind == "keyboard_interrupt":
        raise KeyboardInterrupt
    if kind == "group":
        raise ExceptionGroup("two things", [ValueError("first"), OSError("second")])
    if kind == "tool_error":
        raise ToolError("busy", "Try later.", retryable=True)
    raise ValueError("schlecht: \N{SNOWMAN}")


@tool(isolation="process")
def emit_many(ctx: ToolContext, count: int, flush_every: int = 0) -> int:
    for number in range(count):
        ctx.emit_custom_event("number", {"n": number})
        if flush_every and number % flush_every == 0:
            flush(ctx)
    return count


@tool(isolation="process")
def emit_from_threads(ctx: ToolContext, threads: int, count: int) -> None:
    def work(thread: int) -> None:
        for number in range(count):
            ctx.emit_custom_event("number", {"thread": thread, "n": number})

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@tool(isolation="process")
def measure(ctx: ToolContext, count: int) -> dict[str, float]:
    """What an emit costs the tool, with a value of about 175 bytes."""
    message = "processing record " + "m" * 120
    started = time.perf_counter()
    for step in range(count):
        ctx.emit_custom_event("import.row", {"step": step, "total": count, "message": message})
    return {"seconds": time.perf_counter() - started}


@tool(isolation="process")
def print_a_lot(text: str) -> str:
    print(text * 1000, flush=True)  # noqa: T201 - a tool may print
    os.write(1, b"straight to the descriptor\n")
    sys.stderr.write("and to stderr\n")
    return sys.stdin.read() + "done"


@tool(isolation="process")
def echo(value: str) -> str:
    return value


@tool(isolation="process")
def big(size: int) -> str:
    return "x" * size


@tool(isolation="process")
def odd_values(ctx: ToolContext) -> dict[str, Any]:
    ctx.emit_custom_event("odd", {"rate": math.nan, "toolCallId": "mine"})
    ctx.emit_custom_event("fine", {"rate": 1.5})
    return {"count": 2**60}


@tool(isolation="process")
def wrong_emits(ctx: ToolContext) -> list[str]:
    said = []
    for name, value in (("tool.result", {}), ("", {}), (3, {}), ("row", 3)):
        try:
            ctx.emit_custom_event(name, value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            said.append(type(error).__name__)
    return said


@tool(isolation="process")
def look_around(ctx: ToolContext) -> dict[str, Any]:
    missing = []
    for name in ("call_tool", "request_input", "interrupt", "trace", "verified_subject", "get"):
        try:
            getattr(ctx, name)
        except Exception as error:  # noqa: BLE001 - which one it is, is the result
            missing.append(f"{type(error).__name__}: {error}")
    return {
        "ids": [ctx.run_id, ctx.thread_id, ctx.tool_call_id, ctx.tool_name, ctx.request_id, ctx.session_id],
        "optional": [ctx.parent_run_id, ctx.client_request_id, ctx.task, ctx.detach],
        "auth": [ctx.auth.subject, sorted(ctx.auth.scopes)] if ctx.auth else None,
        "metadata": ctx.metadata,
        "missing": missing,
        "unknown": hasattr(ctx, "no_such_member"),
    }


@tool(isolation="process")
def report(ctx: ToolContext) -> str:
    ctx.report_progress(1, 4, "a quarter")
    ctx.report_progress(math.nan)
    ctx.logger.warning("watch %s", "out")
    ctx.logger.debug("a detail")
    logging.getLogger(f"gateway.tools.{ctx.tool_name}").info("not through the context")
    try:
        ctx.report_progress("half")  # type: ignore[arg-type]
    except TypeError as error:
        return str(error)
    return "accepted"


@tool(isolation="process")
def flush_in_a_callback(ctx: ToolContext) -> str:
    """A callback that waits for the gateway must not keep the gateway from being heard."""
    flushed = threading.Event()

    def callback(reason: str) -> None:
        ctx.emit_custom_event("aborting", {"reason": reason})
        flush(ctx)
        flushed.set()

    ctx.abort_signal.on_abort(callback)
    ctx.emit_custom_event("ready", {})
    return "flushed" if flushed.wait(60) else "never flushed"


@tool(isolation="process")
def fork_and_emit(ctx: ToolContext) -> int:
    """A fork that emits, and even returns, must not disturb the call."""
    ctx.emit_custom_event("parent", {})
    pid = os.fork()
    ctx.emit_custom_event("both", {})
    if pid:
        os.waitpid(pid, 0)
    return os.getpid()


@tool(isolation="process")
def strictly(ctx: ToolContext) -> str:
    try:
        ctx.emit_custom_event("row", {"rate": math.inf})
    except Exception as error:  # noqa: BLE001 - which one it is, is the result
        return f"{type(error).__name__}: {error}"
    return "accepted"


@tool(isolation="process")
def wait_for_the_end(ctx: ToolContext) -> None:
    """Tells its number to the gateway's stdout, then only looks at the signal."""
    os.write(1, b"pid %d\n" % os.getpid())
    while not ctx.abort_signal.aborted:
        pass
    os.write(1, b"heard %s\n" % str(ctx.abort_signal.reason).encode())
    time.sleep(60)


@tool(isolation="process")
def says(text: str = "hello") -> dict[str, str]:
    return {"text": text}


@tool(isolation="process")
def progresses(ctx: ToolContext) -> list[Any]:
    """Uses its task, which is there in a process too."""
    assert ctx.task is not None
    ctx.task.update_progress("begun")
    ctx.task.update_progress("half", 50)
    ctx.task.update_progress("still")
    ctx.task.throw_if_cancelled()
    return [ctx.task.task_id, ctx.task.cancelled]


@tool(isolation="process", task_support="forbidden")
def has_no_task(ctx: ToolContext) -> bool:
    return ctx.task is None


@tool(isolation="process", timeout=0)
def gives_up(ctx: ToolContext, how: str) -> str:
    """Ends its own call, and then waits, answers or raises."""
    assert ctx.task is not None
    ctx.task.cancel()
    if how == "raise":
        ctx.task.throw_if_cancelled()
    if how == "wait":
        threading.Event().wait()
    return ctx.abort_signal.reason or "nothing"
