"""Interleaved runs, medians, ratios, and tables of them."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.servers import ROOT

Variant = Callable[[], Mapping[str, float]]
Samples = dict[str, dict[str, list[float]]]

CPU_COUNT = os.cpu_count() or 1


@dataclass
class Report:
    """What one row measured, and whether it reached its goals."""

    name: str
    samples: Samples
    columns: Sequence[tuple[str, str]]
    goals: list[tuple[str, float, str, float]] = field(default_factory=list)
    load: float = 0.0

    def goal(self, what: str, measured: float, sign: str, bound: float) -> None:
        self.goals.append((what, measured, sign, bound))


def interleave(variants: Mapping[str, Variant], repeats: int, *, warm_up: bool = True) -> Samples:
    """Every variant `repeats` times, each round in another order, after one round that does not count."""
    names = list(variants)
    samples: Samples = {name: {} for name in names}
    for turn in range(-1 if warm_up else 0, repeats):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            found = variants[name]()
            for metric, number in found.items() if turn >= 0 else ():
                samples[name].setdefault(metric, []).append(number)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return samples


def median(samples: Samples, variant: str, metric: str) -> float:
    return statistics.median(samples[variant][metric])


def paired(samples: Samples, one: str, other: str, metric: str) -> float:
    """Median of the ratios within a round: what moves both variants of a round cancels out."""
    pairs = zip(samples[one][metric], samples[other][metric], strict=True)
    return statistics.median(a / b for a, b in pairs)


def show(report: Report) -> None:
    width = max(len(name) for name in report.samples) + 2
    print(f"\n## {report.name}   (load average {report.load:.1f} on {CPU_COUNT} cores)\n")
    print("".ljust(width) + "".join(title.rjust(16) for title, _ in report.columns))
    for name, metrics in report.samples.items():
        cells = []
        for title, form in report.columns:
            values = metrics.get(title)
            cells.append((form.format(statistics.median(values)) if values else "-").rjust(16))
        print(name.ljust(width) + "".join(cells))
    for what, measured, sign, bound in report.goals:
        reached = measured >= bound if sign == ">=" else measured <= bound
        print(f"  {'ok  ' if reached else 'MISS'} {what}: {measured:.4g} (goal {sign} {bound:g})")
    sys.stdout.flush()


def save(report: Report) -> None:
    folder = ROOT / "results"
    folder.mkdir(exist_ok=True)
    content: dict[str, Any] = {
        "row": report.name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": report.load,
        "samples": report.samples,
        "goals": [dict(zip(("what", "measured", "sign", "bound"), goal, strict=True)) for goal in report.goals],
    }
    (folder / f"{report.name}.json").write_text(json.dumps(content, indent=1) + "\n")
