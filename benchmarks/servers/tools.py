"""The gateway under test: its own tools, served as anybody would serve them (`agui-gateway serve tools:gateway`)."""

from __future__ import annotations

import asyncio
import threading
import time

from payload import large, rows, timed, value

from gateway import Gateway, ToolContext, tool


@tool(timeout=0)
async def burst(n: int, ctx: ToolContext) -> int:
    """Emits as fast as it can and never gives way."""
    for step in range(n):
        ctx.emit_custom_event("progress", value(step, n))
    return n


@tool(timeout=0)
async def polite(n: int, ctx: ToolContext) -> int:
    """Gives way to the loop after each event."""
    for step in range(n):
        ctx.emit_custom_event("progress", value(step, n))
        await asyncio.sleep(0)
    return n


@tool(timeout=0)
async def flushed(n: int, every: int, ctx: ToolContext) -> int:
    """Gives way now and then, in the gateway's own way."""
    for step in range(n):
        ctx.emit_custom_event("progress", value(step, n))
        if step % every == every - 1:
            await ctx.flush()
    return n


@tool(timeout=0)
async def bulky(n: int, size: int, ctx: ToolContext) -> int:
    """Values of about `size` bytes."""
    content = rows(size)
    for step in range(n):
        ctx.emit_custom_event("progress", large(step, n, content))
        if step % 100 == 99:
            await asyncio.sleep(0)
    return n


@tool(timeout=0)
async def paced(n: int, rate: float, ctx: ToolContext, wait: float = 0) -> int:
    """`rate` events a second, after `wait` seconds."""
    loop = asyncio.get_running_loop()
    start = loop.time() + wait
    for step in range(n):
        await asyncio.sleep(max(start + step / rate - loop.time(), 0))
        ctx.emit_custom_event("progress", timed(step, n))
    return n


def emit_all(n: int, ctx: ToolContext) -> list[float]:
    """Microseconds that one emit costs the tool, and of its thread's CPU; the making of its value taken out."""
    start, cpu = time.perf_counter(), time.thread_time()
    for step in range(n):
        value(step, n)
    empty, empty_cpu = time.perf_counter() - start, time.thread_time() - cpu
    start, cpu = time.perf_counter(), time.thread_time()
    for step in range(n):
        ctx.emit_custom_event("progress", value(step, n))
    passed = time.perf_counter() - start - empty, time.thread_time() - cpu - empty_cpu
    return [seconds / n * 1e6 for seconds in passed]


@tool(timeout=0)
def threaded(n: int, ctx: ToolContext) -> list[float]:
    """Emits from a worker thread."""
    return emit_all(n, ctx)


@tool(timeout=0, isolation="process")
def isolated(n: int, ctx: ToolContext) -> list[float]:
    """Emits from a process of its own."""
    return emit_all(n, ctx)


# -- Stop: each says "ready", and "seen" with the moment at which it saw the signal --


def seen(ctx: ToolContext) -> None:
    ctx.emit_custom_event("seen", {"at": time.monotonic_ns()})


@tool(timeout=0)
async def stop_wait(ctx: ToolContext) -> None:
    """Waits for the signal."""
    ctx.emit_custom_event("ready", {})
    await ctx.abort_signal.wait()
    seen(ctx)


@tool(timeout=0)
async def stop_sleep(ctx: ToolContext) -> None:
    """An await that the gateway cancels."""
    ctx.emit_custom_event("ready", {})
    try:
        await asyncio.sleep(60)
    finally:
        seen(ctx)


@tool(timeout=0)
async def stop_swallow(ctx: ToolContext) -> None:
    """Swallows the first cancellation and goes on a little."""
    ctx.emit_custom_event("ready", {})
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen(ctx)
    await asyncio.sleep(60)


@tool(timeout=0)
def stop_thread_event(ctx: ToolContext) -> None:
    """A thread that is woken by the signal."""
    stopped = threading.Event()
    ctx.abort_signal.on_abort(lambda _: stopped.set())
    ctx.emit_custom_event("ready", {})
    stopped.wait(60)
    seen(ctx)


@tool(timeout=0)
def stop_thread_poll(ctx: ToolContext) -> None:
    """A thread that looks every millisecond."""
    ctx.emit_custom_event("ready", {})
    while not ctx.abort_signal.aborted:
        time.sleep(0.001)
    seen(ctx)


@tool(timeout=0)
def stop_thread_busy(ctx: ToolContext) -> None:
    """A thread that computes and looks in between."""
    ctx.emit_custom_event("ready", {})
    while not ctx.abort_signal.aborted:
        sum(range(1000))
    seen(ctx)


@tool(timeout=0)
def stop_thread_ignore(ctx: ToolContext, seconds: float = 7) -> None:
    """A thread that computes and never looks."""
    ctx.emit_custom_event("ready", {})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@tool(timeout=0, isolation="process")
def stop_process(ctx: ToolContext) -> None:
    """A process that computes and looks in between."""
    ctx.emit_custom_event("ready", {})
    while not ctx.abort_signal.aborted:
        sum(range(1000))
    seen(ctx)


@tool(timeout=0, isolation="process")
def stop_process_ignore(ctx: ToolContext) -> None:
    """A process that computes and never looks."""
    ctx.emit_custom_event("ready", {})
    while True:
        sum(range(1000))


gateway = Gateway(
    tools=[
        burst,
        polite,
        flushed,
        bulky,
        paced,
        threaded,
        isolated,
        stop_wait,
        stop_sleep,
        stop_swallow,
        stop_thread_event,
        stop_thread_poll,
        stop_thread_busy,
        stop_thread_ignore,
        stop_process,
        stop_process_ignore,
    ]
)
