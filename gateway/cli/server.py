"""uvicorn, set up for many long streams, with a drain before its shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from types import FrameType

import uvicorn
from sse_starlette.sse import AppStatus

from gateway import Gateway
from gateway.cli.tasks import task_factory

__all__ = ["serve"]

logger = logging.getLogger("gateway")

# Thousands of streams are a million objects that never die: with the default thresholds their collection is the worst
# pause of all (p50 19 ms against 0.34 ms, reference/performance.md 6).
GC_THRESHOLDS = (50_000, 20, 50)
# A tool that computes in a thread holds the loop for one switch interval at a time; 5 ms is Python's default.
SWITCH_INTERVAL = 0.001
# After the drain only viewers that do not read are left.
LAST_RESPONSES = 1


class DrainingServer(uvicorn.Server):
    """On the first signal the gateway drains while the listener stays open; then uvicorn shuts down. A second exits."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_task_factory(task_factory)
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None or self._loop is None:
            os._exit(128 + sig)
        self._loop.call_soon_threadsafe(self._start_drain)

    def _start_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(), name="drain")

    async def _drain(self) -> None:
        try:
            await self._gateway.drain()
        finally:
            self.should_exit = True


def serve(gateway: Gateway, *, announce: str) -> None:
    """Serves until a signal; returns when everything has ended. `announce` is a line with `{url}` in it."""
    settings = gateway.settings
    # The library's own hook ends streams at once; here the drain does, and later.
    AppStatus.enable_automatic_graceful_drain = False
    sys.setswitchinterval(SWITCH_INTERVAL)
    config = uvicorn.Config(
        gateway,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        backlog=4_096,
        timeout_graceful_shutdown=LAST_RESPONSES,
        server_header=False,
        date_header=False,
    )
    server = DrainingServer(config, gateway)
    listener = config.bind_socket()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(announce.format(url=f"http://{shown}:{port}/") + "\n")
    sys.stderr.flush()
    server.run([listener])
