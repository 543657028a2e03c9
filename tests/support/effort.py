"""How much the random tests try: `AGUI_EFFORT=10 scripts/test --timeout=0 tests/execution tests/wire` is ten times it.

What they can find at all, they find nearly always among the first hundreds; the rest is for a machine that has time.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

__all__ = ["Schedules", "times"]

EFFORT = float(os.environ.get("AGUI_EFFORT", "1"))


def times(count: int) -> int:
    """So many at the usual effort."""
    return max(round(count * EFFORT), 1)


def _first() -> int:
    """The same ones in CI, others each time elsewhere."""
    return 0 if os.environ.get("CI") else random.SystemRandom().randrange(1_000_000) * 10_000


@dataclass(frozen=True)
class Schedules:
    """The numbers of random schedules, in parts that are a test each.

    A failure names its number: AGUI_SCHEDULE=<number> runs that one.
    """

    count: int
    parts: int
    first: int = field(default_factory=_first)

    def part(self, index: int) -> range:
        if only := os.environ.get("AGUI_SCHEDULE"):
            return range(int(only), int(only) + 1)
        size = times(self.count) // self.parts
        start = self.first + index * size
        print(f"schedules {start} to {start + size - 1}")  # noqa: T201 - pytest shows it with a failure
        return range(start, start + size)
