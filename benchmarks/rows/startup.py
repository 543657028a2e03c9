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

COLUMNS = [("seconds", "{:.3f}")]


def imported(module: str) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": servers.TREE} if servers.TREE else None
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, cwd=servers.SERVERS, env=env)
    return {"seconds": time.perf_counter() - start}


def demo() -> dict[str, float]:
    with servers.demo() as server:
        request(server, "GET", "/healthz")
        return {"seconds": time.monotonic() - server.started}


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
