"""From the POST that stops a run to the tool that sees it, and whether the server answers others meanwhile."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from harness import servers
from harness.client import SESSION
from harness.measure import Report, Samples, median
from harness.servers import Server

ROUNDS = 4  # of each kind, for one repeat of the others
COLUMNS = [
    ("seen ms", "{:.2f}"),
    ("seen p90 ms", "{:.2f}"),
    ("answer ms", "{:.2f}"),
    ("end ms", "{:.0f}"),
    ("others max ms", "{:.1f}"),
]
KINDS = ("wait", "sleep", "swallow", "thread_event", "thread_poll", "thread_busy", "process")
STUBBORN = ("thread_ignore", "process_ignore")
HEADERS = {"Content-Type": "application/json", "X-Session-Id": SESSION}


class Stream:
    """The events of one run, read as they come."""

    def __init__(self, server: Server, tool: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._connection.request("POST", f"/tools/{tool}", "{}", {**HEADERS, "Accept": "text/event-stream"})
        self._answer = self._connection.getresponse()

    def events(self) -> Iterator[dict[str, Any]]:
        for line in self._answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def until(self, name: str) -> dict[str, Any]:
        """The next event of this type or custom name."""
        return next(event for event in self.events() if name in (event["type"], event.get("name")))

    def close(self) -> None:
        self._connection.close()


class Poster:
    """POST requests on one kept connection."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def send(self, path: str, method: str = "POST") -> tuple[int, float]:
        """When it was sent (monotonic ns), and the seconds until the whole answer."""
        start = time.monotonic_ns()
        self._connection.request(method, path, "{}" if method == "POST" else None, HEADERS)
        self._connection.getresponse().read()
        return start, (time.monotonic_ns() - start) / 1e9


def stopped(server: Server, poster: Poster, tool: str) -> dict[str, float]:
    """One run, stopped: when its tool saw that, when the POST was answered, when the run was over."""
    stream = Stream(server, tool)
    run_id = stream.until("RUN_STARTED")["runId"]
    stream.until("ready")
    time.sleep(0.01)  # the server is idle again: that is the case that is measured
    sent, answered = poster.send(f"/runs/{run_id}/stop")
    found = {"answer ms": answered * 1e3}
    for event in stream.events():
        if event.get("name") == "seen":
            found["seen ms"] = (event["value"]["at"] - sent) / 1e6
        elif event["type"] in ("RUN_FINISHED", "RUN_ERROR"):
            found["end ms"] = (time.monotonic_ns() - sent) / 1e6
    stream.close()
    return found


def stubborn(server: Server, poster: Poster, tool: str) -> dict[str, float]:
    """The same for a tool that ignores the signal, while another client asks all the time."""
    stream = Stream(server, tool)
    run_id = stream.until("RUN_STARTED")["runId"]
    stream.until("ready")
    sent, answered = poster.send(f"/runs/{run_id}/stop")
    others = []
    while (time.monotonic_ns() - sent) / 1e9 < 4:
        others.append(poster.send("/healthz", "GET")[1])
        time.sleep(0.005)
    stream.until("RUN_FINISHED")
    end = (time.monotonic_ns() - sent) / 1e6
    stream.close()
    return {"answer ms": answered * 1e3, "end ms": end, "others max ms": max(others) * 1e3}


def p90(numbers: list[float]) -> float:
    return statistics.quantiles(numbers, n=10)[-1] if len(numbers) > 1 else numbers[0]


def add(samples: Samples, kind: str, found: Mapping[str, float]) -> None:
    for metric, number in found.items():
        samples.setdefault(kind, {}).setdefault(metric, []).append(number)


def run(repeats: int) -> Iterator[Report]:
    samples: Samples = {}
    with servers.gateway() as ours, servers.peers() as peers:
        poster, plain = Poster(ours), Poster(peers)
        for _ in range(repeats * ROUNDS):
            add(samples, "plain POST", {"answer ms": plain.send("/echo")[1] * 1e3})
            for kind in KINDS:
                add(samples, kind, stopped(ours, poster, f"stop_{kind}"))
        for _ in range(max(repeats // 2, 1)):
            for kind in STUBBORN:
                add(samples, kind, stubborn(ours, poster, f"stop_{kind}"))
    for metrics in samples.values():
        if "seen ms" in metrics:
            metrics["seen p90 ms"] = [p90(metrics["seen ms"])]
    report = Report("stop", samples, COLUMNS)
    trip = median(samples, "plain POST", "answer ms")
    report.goal("async: seen / plain POST", median(samples, "sleep", "seen ms") / trip, "<=", 1.4)
    report.goal("thread: seen / plain POST", median(samples, "thread_event", "seen ms") / trip, "<=", 1.4)
    for kind in STUBBORN:
        worst = max(samples[kind]["others max ms"])
        report.goal(f"{kind}: slowest other request, ms", worst, "<=", 100)
    yield report
