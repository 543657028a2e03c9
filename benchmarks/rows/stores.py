"""What a store costs that outlives the process: bursts, a tool that gives way, the way of one event, replay."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from harness import servers
from harness.measure import Report, interleave, median, paired
from harness.servers import Server

from rows.fanout import gateway as spread
from rows.replay import COLUMNS as REPLAY_COLUMNS
from rows.replay import long_run, replay
from rows.streams import COLUMNS, stream

N = 50_000
POLITE = 20_000
LATE = 200_000
GOALS = {"sqlite": (0.4, 0.3), "redis": (0.7, 0.5)}  # bursts against memory, milliseconds more an event
YIELDING = 0.4


@contextmanager
def redis(folder: str) -> Iterator[str]:
    """A Redis of our own that appends to a file each second, as most do."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise RuntimeError("the row `stores` needs redis-server or valkey-server")
    port = servers.free_port()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "yes"]
    process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def run(repeats: int) -> Iterator[Report]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = stack.enter_context(redis(folder))
        flags = {
            "memory": ["memory://"],
            "sqlite": [f"sqlite:///{folder}/runs.db"],
            "sqlite, write-behind": [f"sqlite:///{folder}/behind.db", "--write-behind"],
            "redis": [url],
            "redis, write-behind": [url, "--write-behind"],
        }
        ours = {name: stack.enter_context(servers.gateway("--store", *words)) for name, words in flags.items()}
        yield bursts(ours, repeats)
        yield polite(ours, repeats)
        yield delays(ours, repeats)
        yield late(ours, repeats)


def bursts(ours: dict[str, Server], repeats: int) -> Report:
    samples = interleave({name: stream(server, "/tools/burst", N, {"n": N}) for name, server in ours.items()}, repeats)
    report = Report("stores-burst", samples, COLUMNS)
    for name, (rate, _) in GOALS.items():
        report.goal(f"rate of {name} / memory", paired(samples, name, "memory", "events/s"), ">=", rate)
    return report


def polite(ours: dict[str, Server], repeats: int) -> Report:
    variants = {name: stream(server, "/tools/polite", POLITE, {"n": POLITE}) for name, server in ours.items()}
    samples = interleave(variants, repeats)
    report = Report("stores-polite", samples, COLUMNS)
    for name in GOALS:
        report.goal(f"rate of {name} / memory", paired(samples, name, "memory", "events/s"), ">=", YIELDING)
    return report


def delays(ours: dict[str, Server], repeats: int) -> Report:
    samples = interleave({name: partial(spread, server, 1) for name, server in ours.items()}, repeats)
    report = Report("stores-delay", samples, [("p50 ms", "{:.2f}"), ("p99 ms", "{:.2f}"), ("us/delivery", "{:.1f}")])
    for name, (_, more) in GOALS.items():
        added = median(samples, name, "p50 ms") - median(samples, "memory", "p50 ms")
        report.goal(f"ms that {name} adds", added, "<=", more)
    return report


def late(ours: dict[str, Server], repeats: int) -> Report:
    runs = {name: long_run(server, LATE) for name, server in ours.items()}
    samples = interleave({name: replay(server, runs[name], LATE) for name, server in ours.items()}, repeats)
    return Report("stores-replay", samples, [column for column in REPLAY_COLUMNS if "others" not in column[0]])
