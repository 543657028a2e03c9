"""Events as tests see them."""

from __future__ import annotations

from typing import Any, cast

from gateway.wire.codec import decode
from gateway.wire.sse import Message

__all__ = ["Event", "event_of"]

Event = dict[str, Any]
"""One event in wire names: `{"type": "CUSTOM", "timestamp": 1764450000000, "name": …, "value": {…}, …}`."""


def event_of(message: Message) -> Event:
    return cast("Event", decode(message.data))
