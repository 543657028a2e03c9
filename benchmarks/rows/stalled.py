"""A viewer that stops reading while its run brings 45 MB."""

from __future__ import annotations

import time
from collections.abc import Iterator

from harness import servers
from harness.client import background, request
from harness.measure import Report, interleave, median
from harness.servers import Server

SIZE, N = 20_000, 2_250
COLUMNS = [("RSS MB", "{:.1f}")]


def grown(server: Server, viewers: int) -> dict[str, float]:
    """What the server has grown by when the run is over and all of its events are in the log."""
    body = {"arguments": {"n": N, "size": SIZE}}
    rss = server.rss()
    record = request(server, "POST", "/tools/bulky", body, Prefer="respond-async")
    path = f"/runs/{record['runId']}/events"
    client = background(server, path, "-n", viewers, "-s", 2000, "-T", 4) if viewers else None
    while request(server, "GET", f"/runs/{record['runId']}")["status"] == "running":
        time.sleep(0.05)
    time.sleep(1)
    rss = server.rss() - rss
    if client is not None:
        client.wait()
    return {"RSS MB": rss / 2**20}


def fresh(viewers: int) -> dict[str, float]:
    with servers.gateway() as server:
        return grown(server, viewers)


def run(repeats: int) -> Iterator[Report]:
    samples = interleave(
        {
            "nobody watches": lambda: fresh(0),
            "one viewer, stalled": lambda: fresh(1),
            "ten viewers, stalled": lambda: fresh(10),
        },
        min(repeats, 5),
        warm_up=False,
    )
    report = Report("stalled", samples, COLUMNS)
    alone = median(samples, "nobody watches", "RSS MB")
    report.goal("one stalled viewer, MB", median(samples, "one viewer, stalled", "RSS MB") - alone, "<=", 1)
    ten = (median(samples, "ten viewers, stalled", "RSS MB") - alone) / 10
    report.goal("each of ten, MB", ten, "<=", 1)
    yield report
