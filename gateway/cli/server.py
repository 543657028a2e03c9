"""uvicorn, set up for many long streams, with a drain before its shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
from types import FrameType

import uvicorn
from sse_starlette.sse import AppStatus

from gateway import Gateway, Settings
from gateway.cli.tasks import task_factory
from gateway.cli.workers import Workers, inherited_listener, is_worker, say_ready

__all__ = ["serve"]

logger = logging.getLogger("gateway")

# Thousands of streams are a million objects that never die: with the default thresholds their collection is the worst
# pause of all (p50 19 ms against 0.34 ms, reference/performance.md 6).
GC_THRESHOLDS = (50_000, 20, 50)
# A tool that computes in a thread holds the loop for one switch interval at a time; 5 ms is Python's default.
SWITCH_INTERVAL = 0.001
# A burst of viewers that come back together; the kernel has its own limit (somaxconn, mostly 4096).
BACKLOG = 4_096
# Longer than the 60 s of most proxies: who closes an idle connection first must not be the one that is not asked.
KEEP_ALIVE_SECONDS = 75
# After the drain only viewers that do not read are left.
LAST_RESPONSES = 1
# What a tool has left behind (a thread of `asyncio.to_thread`, say) would hold the interpreter for ever; the rest of
# the interpreter's own exit takes some milliseconds.
EXIT_SECONDS = 0.5
# After `drain_timeout`, in all: what the contract gives is 2.
LAST_SECONDS = 1.8


class DrainingServer(uvicorn.Server):
    """On the first signal the gateway drains while the listener stays open; then uvicorn shuts down, and the process
    exits with code 0: it did what it was asked to. A second signal exits at once, with 128 + its number."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, announcement: str | None) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._announcement = announcement
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(task_factory)
        await super().startup(sockets)
        self._loop = loop
        if self.started:
            say_ready()
        if self.started and self._announcement is not None:  # only now does a connection get an answer
            sys.stderr.write(self._announcement + "\n")
            sys.stderr.flush()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        _leave_after(EXIT_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + sig)
        self._signalled = True
        # Also when the loop is blocked by a tool that never gives way: nothing else would come to its turn.
        _leave_after(self._gateway.settings.drain_timeout + LAST_SECONDS)
        if self._loop is None:
            self.should_exit = True  # nothing runs yet: uvicorn ends when it has started
        else:
            self._loop.call_soon_threadsafe(self._start_drain)

    def _start_drain(self) -> None:
        self._draining = asyncio.create_task(self._drain(), name="drain")

    async def _drain(self) -> None:
        try:
            await self._gateway.drain()
        finally:
            self.should_exit = True


def _leave_after(seconds: float) -> None:
    watchdog = threading.Timer(seconds, _leave)
    watchdog.daemon = True
    watchdog.start()


def _leave() -> None:
    logger.warning("Tools are still at work; leaving without them.")
    logging.shutdown()
    os._exit(0)


def serve(gateway: Gateway, *, announce: str) -> None:
    """Serves until a signal; returns when everything has ended. `announce` is a line with `{url}` in it.

    Raises `OSError` when the address cannot be bound.
    """
    settings = gateway.settings
    # The library's own hook ends streams at once; here the drain does, and later.
    AppStatus.enable_automatic_graceful_drain = False
    sys.setswitchinterval(SWITCH_INTERVAL)
    config = uvicorn.Config(
        gateway,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=LAST_RESPONSES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=False,
    )
    if is_worker():
        listener, announces = inherited_listener()
    else:
        listener, announces = _listen(settings), True
        if settings.workers > 1:
            Workers(settings.workers, listener).run()
            return
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    announcement = announce.format(url=f"http://{shown}:{port}/") if announces else None
    DrainingServer(config, gateway, announcement).run([listener])


def _listen(settings: Settings) -> socket.socket:
    # Not by uvicorn, which would log the error and exit. Not inheritable, as theirs is: tools start processes.
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    # Inherited by every connection. asyncio sets it only on sockets that name TCP as their protocol, which these do
    # not; without it the second small write of an answer waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
