"""Larger values: rows of a table, 2 KB and 20 KB a time."""

from __future__ import annotations

from collections.abc import Iterator

from harness import servers
from harness.measure import Report, interleave, paired

from rows.streams import COLUMNS, stream

SIZES = {2_000: 10_000, 20_000: 2_000}


def run(repeats: int) -> Iterator[Report]:
    with servers.gateway() as ours, servers.peers() as peers:
        for size, n in SIZES.items():
            samples = interleave(
                {
                    "gateway": stream(ours, "/tools/bulky", n, {"n": n, "size": size}),
                    "official": stream(peers, f"/official_bulky?n={n}&size={size}", n),
                },
                repeats,
            )
            report = Report(f"sizes-{size}", samples, COLUMNS)
            report.goal("rate / official", paired(samples, "gateway", "official", "events/s"), ">=", 5)
            report.goal("CPU of official / gateway", paired(samples, "official", "gateway", "us/event"), ">=", 5)
            yield report
