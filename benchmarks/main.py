"""Runs rows of the performance table: `benchmarks/run [row ...]`, all of them without a name."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from harness.measure import save, show
from harness.servers import SERVERS

ROWS = ("burst", "sizes", "emit", "stop", "fanout", "idle", "replay", "stalled", "startup", "stores", "proxy")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], help=", ".join(ROWS))
    parser.add_argument("--repeats", type=int, default=5, help="runs of each variant, without the warm-up [5]")
    chosen = parser.parse_args()
    sys.path.append(str(SERVERS))  # `payload`, for what Python publishes itself
    for name in chosen.rows or ROWS:
        for report in import_module(f"rows.{name}").run(chosen.repeats):
            report.load = os.getloadavg()[0]
            show(report)
            save(report)


if __name__ == "__main__":
    main()
