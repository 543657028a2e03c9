"""Progress of one call, conflated: at most one report in 50 ms, and the last one always goes out.

Pure: the caller brings the time and fetches what is due. A report is what `ctx.report_progress` said; what leaves is
the value of a `tool.progress` event without its identifiers. Source: contract 4.4.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["INTERVAL", "ProgressPacer", "as_number"]

MAX_SAFE_INTEGER = 2**53 - 1
INTERVAL = 0.05  # seconds; 20 reports a second are as smooth as a progress bar can look


def as_number(what: str, value: object) -> float:
    """Any real number as int or float, numpy's and Decimal's too; beyond a double's range it is infinite.

    `TypeError` says that `what` of a report is none.
    """
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"The {what} of a progress report is a number, not {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    # An integer that JavaScript cannot hold would leave as a string; a bar does not mind the rounding.
    return value if isinstance(value, int) and abs(value) <= MAX_SAFE_INTEGER else number


class ProgressPacer:
    """Feed it with `report()`; it returns what to send now, or keeps it until `due`."""

    __slots__ = ("_next", "_pending", "_progress")

    def __init__(self) -> None:
        self._progress: float | int | None = None
        self._pending: dict[str, Any] | None = None
        self._next = -math.inf

    @property
    def due(self) -> float | None:
        """When the kept report may leave, in the caller's clock; `None` when nothing is kept."""
        return None if self._pending is None else self._next

    def report(
        self, now: float, progress: float, total: float | None = None, message: str | None = None
    ) -> dict[str, Any] | None:
        """Takes a report; returns the value to send at once, or `None` when it waits for `due`."""
        self._pending = self._value(progress, total, message)
        return self.take(now) if now >= self._next else None

    def take(self, now: float, *, force: bool = False) -> dict[str, Any] | None:
        """The kept report if it is due (or if forced: before the call's result), else `None`."""
        if self._pending is None or (now < self._next and not force):
            return None
        value, self._pending = self._pending, None
        self._next = now + INTERVAL
        return value

    def _value(self, progress: float, total: float | None, message: str | None) -> dict[str, Any]:
        if not math.isfinite(progress):  # JSON has no word for it, and a bar no place
            progress = 0 if self._progress is None else self._progress
        if self._progress is None or progress > self._progress:
            self._progress = progress
        value: dict[str, Any] = {"progress": self._progress}
        if total is not None and math.isfinite(total):
            value["total"] = total
            if total > 0:
                value["percent"] = min(max(100 * self._progress / total, 0), 100)
        if message is not None:
            value["message"] = message
        return value
