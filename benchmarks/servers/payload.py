"""The work that every server does: the same events from the same loop."""

from __future__ import annotations

import time
from typing import Any

ROW = {"id": 4711, "name": "Straight & Co.", "state": "imported", "amount": 129.5, "tags": ["new", "eu"]}


def value(step: int, total: int) -> dict[str, Any]:
    """The value of one event; about 175 bytes on the wire as the official encoder writes it."""
    return {
        "step": step,
        "total": total,
        "message": f"processing record {step} of {total}: normalising fields and checking references",
    }


def timed(step: int, total: int) -> dict[str, Any]:
    """The same with the moment of the emit, for latencies; one clock for all processes of a machine."""
    return {**value(step, total), "t": time.monotonic_ns()}


def rows(size: int) -> list[dict[str, Any]]:
    """Rows that make a value of about `size` bytes of JSON."""
    return [{**ROW, "id": index} for index in range(size // 90)]


def large(step: int, total: int, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"step": step, "total": total, "rows": content}
