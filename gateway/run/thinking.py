"""Thinking of protocol 0.x, which had no ids, as the reasoning that it became. Pure.

Source: `CompatibilityBoundary` of `@ag-ui/client` 1.0.0, which makes the same of it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Thinking"]

_KINDS = {
    "THINKING_START": "REASONING_START",
    "THINKING_END": "REASONING_END",
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
}
_SPANS = frozenset({"REASONING_START", "REASONING_END"})
_ENDS = frozenset({"REASONING_END", "REASONING_MESSAGE_END"})


class Thinking:
    """Feed it a stream's events in order. Its ids are made of the time at which they are needed, and counted."""

    __slots__ = ("_count", "_open")

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[bool, str] = {}  # by whether it is a span: spans hold messages

    def feed(self, event: dict[str, Any], now: int) -> dict[str, Any]:
        """The event itself, or the one in its place; `now` in milliseconds."""
        if (kind := _KINDS.get(event["type"])) is None:
            return event
        is_span = kind in _SPANS
        name = self._open.get(is_span)
        if name is None:
            self._count += 1
            name = self._open[is_span] = f"thinking-{now}-{self._count}"
        if kind in _ENDS:
            del self._open[is_span]
        return {**event, "type": kind, "messageId": name}
