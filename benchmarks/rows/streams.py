"""What every row about one viewer of one run measures."""

from __future__ import annotations

from typing import Any

from harness.client import ssec
from harness.measure import Variant
from harness.servers import Server

COLUMNS = [("events/s", "{:,.0f}"), ("us/event", "{:.2f}"), ("first ms", "{:.1f}"), ("bytes/event", "{:.0f}")]


def stream(server: Server, path: str, n: int, body: dict[str, Any] | None = None) -> Variant:
    """One POST whose stream brings `n` events of the tool: rate from connect to the last event, CPU of the server."""

    def measure() -> dict[str, float]:
        cpu = server.cpu()
        found = ssec(server, path, body={} if body is None else {"arguments": body})
        cpu = server.cpu() - cpu
        if found["events"] != n:
            raise RuntimeError(f"{path} brought {found['events']} of {n} events:\n{server.log()}")
        return {
            "events/s": n / found["last"],
            "after first/s": n / max(found["last"] - found["first"], 1e-6),
            "us/event": cpu / n * 1e6,
            "first ms": found["first"] * 1e3,
            "bytes/event": found["bytes"] / n,
        }

    return measure
