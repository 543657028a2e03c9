"""What JSON could not hold, and what was too large: counted, logged once a place, or refused (contract 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.errors import PayloadError
from gateway.wire.codec import Change

if TYPE_CHECKING:
    from gateway.execution.live import LiveRun

__all__ = ["replaced", "within_limits"]

logger = logging.getLogger("gateway.payloads")

MAX_LOGGED_PATHS = 1_000
_logged_paths: set[tuple[str, str]] = set()


def within_limits(run: LiveRun, source: str, value: bytes, changes: Sequence[Change]) -> bytes:
    """The JSON of a value that `source`, a tool or an agent, emits, or what stands for one that is too large."""
    if changes:
        replaced(run, source, changes)
    if len(value) <= run.settings.max_event_bytes:
        return value
    _count(run, source, [Change("too_large", "$")])
    return b'{"$too_large":%d}' % len(value)


def replaced(run: LiveRun, source: str, changes: Sequence[Change]) -> None:
    """Counts what JSON could not hold, and logs each place once a source; raises under `strict_payloads`."""
    if run.settings.strict_payloads:
        raise PayloadError(changes[0].path, changes[0].kind)
    _count(run, source, changes)


def _count(run: LiveRun, source: str, changes: Sequence[Change]) -> None:
    for change in changes:
        run.counts.add(f"payload_replaced.{change.kind}")
        place = (source, change.path)
        if place not in _logged_paths and len(_logged_paths) < MAX_LOGGED_PATHS:
            _logged_paths.add(place)
            logger.warning("%s: the value at %s was replaced (%s)", *place, change.kind)
