"""50 000 small events to one viewer, from a tool that never gives way, and from one that does after each event."""

from __future__ import annotations

from collections.abc import Iterator

from harness import servers
from harness.measure import Report, interleave, median, paired

from rows.streams import COLUMNS, stream

N = 50_000


def run(repeats: int) -> Iterator[Report]:
    with servers.gateway() as ours, servers.peers() as peers, servers.bare() as bare:
        samples = interleave(
            {
                "gateway": stream(ours, "/tools/burst", N, {"n": N}),
                "gateway, flush every 100": stream(ours, "/tools/flushed", N, {"n": N, "every": 100}),
                "official + StreamingResponse": stream(peers, f"/official?n={N}", N),
                "bare uvloop, orjson, 64 KiB": stream(bare, f"/burst?n={N}", N),
                "bare, the gateway's fields": stream(bare, f"/wire?n={N}", N),
            },
            repeats,
        )
        report = Report("burst", samples, COLUMNS)
        official, bound = "official + StreamingResponse", "bare uvloop, orjson, 64 KiB"
        report.goal("rate / official", paired(samples, "gateway", official, "events/s"), ">=", 12)
        report.goal("CPU of official / gateway", paired(samples, official, "gateway", "us/event"), ">=", 10)
        report.goal("rate / bare", paired(samples, "gateway", bound, "events/s"), ">=", 0.7)
        report.goal(
            "rate / bare with the gateway's fields",
            paired(samples, "gateway", "bare, the gateway's fields", "events/s"),
            ">=",
            0.7,
        )
        first = median(samples, "gateway", "first ms") - median(samples, official, "first ms")
        report.goal("first event, ms after official's", first, "<=", 0)
        yield report

        samples = interleave(
            {
                "gateway": stream(ours, "/tools/polite", N, {"n": N}),
                "official + queue": stream(peers, f"/official_queue?n={N}", N),
            },
            repeats,
        )
        report = Report("polite", samples, COLUMNS)
        report.goal("rate / official", paired(samples, "gateway", "official + queue", "events/s"), ">=", 5)
        report.goal("CPU of official / gateway", paired(samples, "official + queue", "gateway", "us/event"), ">=", 5)
        yield report
