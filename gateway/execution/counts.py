"""What happened how often."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Counts"]


class Counts(Counter[str]):
    """What happened how often; `add` may be called from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self[name] += number
