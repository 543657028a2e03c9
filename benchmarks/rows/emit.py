"""What an emit costs a tool in a worker thread, and how fast a tool in a process of its own can emit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from harness import servers
from harness.client import request
from harness.measure import Report, interleave, median
from harness.servers import Server

from rows.streams import COLUMNS, stream

N = 50_000


def seen_by_tool(server: Server, tool: str) -> dict[str, float]:
    """The tool's own measure, with no viewer on the stream: the answer is JSON."""
    cpu = server.cpu()
    body = {"arguments": {"n": N}}
    output: dict[str, Any] = request(server, "POST", f"/tools/{tool}", body, Accept="application/json")
    wall, thread = json.loads(output["content"][0]["text"])["result"]
    return {"us/emit": wall, "CPU us/emit": thread, "us/event": (server.cpu() - cpu) / N * 1e6}


def run(repeats: int) -> Iterator[Report]:
    with servers.gateway() as ours:
        samples = interleave(
            {
                "thread, seen by the tool": lambda: seen_by_tool(ours, "threaded"),
                "process, seen by the tool": lambda: seen_by_tool(ours, "isolated"),
                "thread, one viewer": stream(ours, "/tools/threaded", N, {"n": N}),
                "process, one viewer": stream(ours, "/tools/isolated", N, {"n": N}),
            },
            repeats,
        )
    report = Report(
        "emit", samples, [("us/emit", "{:.2f}"), ("CPU us/emit", "{:.2f}"), *COLUMNS, ("after first/s", "{:,.0f}")]
    )
    thread = median(samples, "thread, seen by the tool", "us/emit")
    report.goal("emit from a thread, us", thread, "<=", 2)
    report.goal("emit from a thread, per second", 1e6 / thread, ">=", 500_000)
    isolated = median(samples, "process, seen by the tool", "us/emit")
    report.goal("emit from a process, per second", 1e6 / isolated, ">=", 150_000)
    arrived = median(samples, "process, one viewer", "after first/s")
    report.goal("process to viewer, per second after the first", arrived, ">=", 150_000)
    yield report
