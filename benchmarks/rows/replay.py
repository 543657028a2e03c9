"""A viewer who comes late to a long run: everything from its start, and what that costs the others."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator

from harness import servers
from harness.client import background, request, result, ssec
from harness.measure import Report, interleave, median
from harness.servers import Server

from rows.stop import Poster

COLUMNS = [
    ("million/s", "{:.2f}"),
    ("us/event", "{:.3f}"),
    ("first ms", "{:.1f}"),
    ("others max ms", "{:.1f}"),
]


def long_run(server: Server, n: int) -> str:
    """The id of a finished run of `n` events."""
    body = {"arguments": {"n": n, "every": 1000}}
    record = request(server, "POST", "/tools/flushed", body, Prefer="respond-async")
    run_id = str(record["runId"])
    while request(server, "GET", f"/runs/{run_id}")["status"] == "running":
        time.sleep(0.2)
    return run_id


def replay(server: Server, run_id: str, n: int) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        cpu = server.cpu()
        found = ssec(server, f"/runs/{run_id}/events")
        cpu = server.cpu() - cpu
        if found["events"] != n:
            raise RuntimeError(f"{found['events']} of {n} events were replayed")
        return {
            "million/s": n / found["last"] / 1e6,
            "us/event": cpu / n * 1e6,
            "first ms": found["first"] * 1e3,
            "client us": found["client_cpu"] / n * 1e6,
        }

    return measure


def disturbed(server: Server, run_id: str) -> Callable[[], dict[str, float]]:
    """How long another client waits for an answer while the run is replayed."""

    def measure() -> dict[str, float]:
        poster = Poster(server)
        poster.send("/healthz", "GET")
        client = background(server, f"/runs/{run_id}/events")
        waits = []
        while client.poll() is None:
            try:
                waits.append(poster.send("/healthz", "GET")[1])
            except (http.client.HTTPException, OSError):
                poster = Poster(server)
            time.sleep(0.002)
        result(*client.communicate())
        return {"others max ms": max(waits, default=0) * 1e3}

    return measure


def run(repeats: int) -> Iterator[Report]:
    short, long = 100_000, 1_000_000
    with servers.gateway() as ours:
        one, other = long_run(ours, short), long_run(ours, long)
        samples = interleave(
            {
                "100 000 events": replay(ours, one, short),
                "1 000 000 events": replay(ours, other, long),
                "another request meanwhile": disturbed(ours, other),
            },
            repeats,
        )
    report = Report("replay", samples, [*COLUMNS, ("client us", "{:.3f}")])
    report.goal("10^6 events, million/s", median(samples, "1 000 000 events", "million/s"), ">=", 5)
    growth = median(samples, "1 000 000 events", "us/event") / median(samples, "100 000 events", "us/event")
    report.goal("CPU an event at 10^6 / at 10^5", growth, "<=", 1.2)
    pause = median(samples, "another request meanwhile", "others max ms")
    report.goal("slowest other request, ms", pause, "<=", 20)
    yield report
