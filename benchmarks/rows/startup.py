"""From nothing to an imported package, and to a demo that answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from harness import servers
from harness.client import request
from harness.measure import Report, interleave, median

COLUMNS = [("seconds", "{:.3f}"), ("CPU seconds", "{:.3f}")]


def imported(module: str) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": servers.TREE} if servers.TREE else None
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, cwd=servers.SERVERS, env=env)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - start, "CPU seconds": cpu}


def demo() -> dict[str, float]:
    with servers.demo() as server:
        request(server, "GET", "/healthz")
        return {"seconds": time.monotonic() - server.started, "CPU seconds": server.cpu()}


def run(repeats: int) -> Iterator[Report]:
    samples = interleave(
        {
            "python": lambda: imported("sys"),
            "import gateway": lambda: imported("gateway"),
            "import starlette, pydantic": lambda: imported("starlette.applications, pydantic"),
            "agui-gateway demo": demo,
        },
        repeats,
    )
    report = Report("startup", samples, COLUMNS)
    alone = median(samples, "import gateway", "seconds") - median(samples, "python", "seconds")
    report.goal("import, s above an empty Python", alone, "<=", 0.5)
    report.goal("demo ready, s", median(samples, "agui-gateway demo", "seconds"), "<=", 1.5)
    yield report
