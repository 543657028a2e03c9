"""100 events a second to 100 and to 1 000 viewers of one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import nchan, servers
from harness.client import background, request, result
from harness.measure import Report, interleave, paired
from harness.servers import Server

RATE, SECONDS = 100, 4
N = RATE * SECONDS
COLUMNS = [
    ("p50 ms", "{:.2f}"),
    ("p99 ms", "{:.2f}"),
    ("us/delivery", "{:.1f}"),
    ("CPU %", "{:.0f}"),
    ("reads/delivery", "{:.2f}"),
]


def spread(server: Server, path: str, viewers: int, start: Callable[[], None]) -> dict[str, float]:
    """All viewers connected first, then `start()`; delay from the emit to the viewer's read, CPU of the server."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        client = background(server, path, "-n", viewers, "-e", N, "-l", "-T", 40, "-w", ready)
        while not ready.exists():
            if client.poll() is not None:
                raise RuntimeError(f"the client ended early: {client.communicate()}")
            time.sleep(0.02)
        time.sleep(0.3)
        cpu, begun = server.cpu(), time.monotonic()
        start()
        found = result(*client.communicate())
        cpu, passed = server.cpu() - cpu, time.monotonic() - begun
    if found["min_events"] != N:
        raise RuntimeError(f"a viewer of {path} got {found['min_events']} of {N} events")
    return {
        "p50 ms": found["p50_us"] / 1e3,
        "p99 ms": found["p99_us"] / 1e3,
        "us/delivery": cpu / viewers / N * 1e6,
        "CPU %": cpu / passed * 100,
        "reads/delivery": found["reads"] / found["events"],
    }


def gateway(server: Server, viewers: int) -> dict[str, float]:
    """The run waits for its viewers, so `start` has nothing to do but to wait with it."""
    wait = 1.0 + viewers / 400
    body = {"arguments": {"n": N, "rate": RATE, "wait": wait}}
    record = request(server, "POST", "/tools/paced", body, Prefer="respond-async")
    begin = time.monotonic() + wait
    path = f"/runs/{record['runId']}/events"
    return spread(server, path, viewers, lambda: time.sleep(max(begin - time.monotonic(), 0)))


def queues(server: Server, viewers: int) -> dict[str, float]:
    def start() -> None:
        request(server, "POST", f"/publish?n={N}&rate={RATE}")

    return spread(server, "/follow", viewers, start)


def pushed(server: Server, viewers: int) -> dict[str, float]:
    channel = f"c{time.monotonic_ns()}"
    return spread(server, f"/sub/{channel}", viewers, lambda: nchan.publish(server, channel, N, RATE))


def run(repeats: int) -> Iterator[Report]:
    with servers.gateway() as ours, servers.peers() as peers, nchan.server() as nginx:
        for viewers in (100, 1000):
            variants = {"gateway": lambda v=viewers: gateway(ours, v)}
            if viewers <= 100:  # beyond, its queues grow without bound: seconds of delay
                variants["sse-starlette, queues"] = lambda v=viewers: queues(peers, v)
            if nginx is not None:
                variants["nchan"] = lambda v=viewers, s=nginx: pushed(s, v)
            samples = interleave(variants, repeats)
            report = Report(f"fanout-{viewers}", samples, COLUMNS)
            if nginx is not None:
                cost = paired(samples, "gateway", "nchan", "us/delivery")
                report.goal("CPU per delivery / nchan", cost, "<=", 1.2 if viewers == 100 else 1.0)
                report.goal("p99 / nchan", paired(samples, "gateway", "nchan", "p99 ms"), "<=", 1.0)
            if "sse-starlette, queues" in variants:
                cost = paired(samples, "gateway", "sse-starlette, queues", "us/delivery")
                report.goal("CPU per delivery / sse-starlette", cost, "<=", 0.55)
            yield report
