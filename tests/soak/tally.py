"""What has been counted, and what must not have happened, with the details that one needs to look into it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Tally", "percentile"]

#: Printed also when nothing of the kind was seen: each has to be 0.
MUST_BE_ZERO = ("gaps", "duplicates", "wrong terminals", "lost runs")
SHOWN = 20  # violations of one kind


class Tally:
    """Counts, times by name (seconds), and violations by kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.violations: defaultdict[str, list[str]] = defaultdict(list)

    def bad(self, kind: str, what: str, frames: Iterable[bytes] = (), run_id: str = "") -> None:
        """Notes a violation; `frames` of the run that it is about are kept in a file."""
        self.violations[kind].append(what)
        if run_id:
            path = self.folder / "runs" / f"{run_id}.sse"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"".join(frames))

    @property
    def failed(self) -> bool:
        return any(self.violations.values())

    def table(self, more: Mapping[str, Any]) -> str:
        """All of it, for people."""
        rows: list[tuple[str, str]] = [(name, str(value)) for name, value in more.items()]
        rows += [(name, str(count)) for name, count in sorted(self.counts.items())]
        names = dict.fromkeys([*MUST_BE_ZERO, *self.violations])
        rows += [(f"! {name}", str(len(self.violations.get(name, ())))) for name in names]
        for name, values in sorted(self.times.items()):
            shown = " ".join(f"p{share}={percentile(values, share):.3f}" for share in (50, 99, 100))
            rows.append((f"{name}, s", f"{shown} n={len(values)}"))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def details(self) -> str:
        """The violations in words."""
        lines = []
        for kind, found in self.violations.items():
            lines += [f"  {kind}: {what}" for what in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"  {kind}: … and {len(found) - SHOWN} more")
        return "\n".join(lines)


def percentile(values: list[float], share: int) -> float:
    """The smallest value that `share` percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]
