"""Viewers that only wait: memory each, CPU of all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import servers
from harness.client import background, request, result
from harness.measure import Report, interleave, median, paired
from harness.servers import Server

HOLD = 4.0  # seconds of idleness that are measured
COLUMNS = [("KB/viewer", "{:.1f}"), ("connect us", "{:.0f}"), ("idle CPU %", "{:.2f}")]


def waiting(server: Server, path: str, viewers: int) -> dict[str, float]:
    """`viewers` streams that bring nothing."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        rss, cpu = server.rss(), server.cpu()
        rate = 1_000
        hold = viewers / rate + 4 + HOLD
        client = background(server, path, "-n", viewers, "-r", rate, "-m", hold, "-T", 60, "-w", ready)
        while not ready.exists():
            time.sleep(0.05)
        connected = server.cpu() - cpu
        time.sleep(1)
        memory = server.rss() - rss
        cpu, begun = server.cpu(), time.monotonic()
        time.sleep(HOLD)
        busy = (server.cpu() - cpu) / (time.monotonic() - begun)
        client.terminate()
        client.communicate()
    return {"KB/viewer": memory / viewers / 1024, "connect us": connected / viewers * 1e6, "idle CPU %": busy * 100}


def fresh_gateway(viewers: int) -> dict[str, float]:
    """A server of its own each time: memory that was used once would not grow again."""
    with servers.gateway() as server:
        record = request(server, "POST", "/tools/stop_wait", {}, Prefer="respond-async")
        path = f"/runs/{record['runId']}/events"
        result(*background(server, path, "-n", 20, "-m", 0.5).communicate())  # what is made once is made
        return waiting(server, path, viewers)


def fresh_peer(viewers: int) -> dict[str, float]:
    with servers.peers() as server:
        result(*background(server, "/follow", "-n", 20, "-m", 0.5).communicate())
        return waiting(server, "/follow", viewers)


def run(repeats: int) -> Iterator[Report]:
    for viewers, times in ((1000, min(repeats, 3)), (5000, 1)):
        samples = interleave(
            {
                "gateway": lambda v=viewers: fresh_gateway(v),
                "sse-starlette, queues": lambda v=viewers: fresh_peer(v),
            },
            times,
            warm_up=False,
        )
        report = Report(f"idle-{viewers}", samples, COLUMNS)
        report.goal("KB a viewer", median(samples, "gateway", "KB/viewer"), "<=", 16)
        ratio = paired(samples, "gateway", "sse-starlette, queues", "KB/viewer")
        report.goal("memory / sse-starlette", ratio, "<=", 0.4)
        report.goal("idle CPU, %", median(samples, "gateway", "idle CPU %"), "<=", 1)
        yield report
