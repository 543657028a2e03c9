"""What a tool process has to say, on its way to the gateway: gathered, and written by a thread of its own.

Only that thread writes. A signal handler of the tool that raises (an alarm, `sys.exit()` at SIGTERM) can hit
the tool's thread anywhere, but never in the middle of a frame on the wire.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

# One write a batch: the gateway reads as much at a time.
FULL_BYTES = 64 * 1024
# How long a frame may wait for company when another was written just before. After a pause it goes at once.
GATHER_SECONDS = 0.001
# What may wait here while the gateway does not read; beyond it `put` blocks: the tool's backpressure.
MAX_WAITING_BYTES = 1024 * 1024


class Outbox:
    """Frames in order, from any thread and from signal handlers, to `send(bytes)`.

    When `send` raises `OSError` the gateway is gone, and everything from then on is dropped.
    """

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        # Reentrant, because a signal handler may emit while its own thread is in `put`.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._frames: list[bytes] = []
        self._size = 0
        self._urgent = False
        self._parked = False
        self._closing = False
        self._lost = False
        self._writer = threading.Thread(target=self._write, name="agui-outbox", daemon=True)
        self._writer.start()

    @property
    def lost(self) -> bool:
        """Whether nobody reads any more."""
        return self._lost

    def put(self, frame: bytes, *, urgent: bool = False) -> None:
        """Queue one frame; `urgent` does not wait for company. Blocks while too much is waiting."""
        with self._lock:
            if self._lost:
                return
            self._frames.append(frame)
            self._size += len(frame)
            if urgent:
                self._urgent = True
            if self._parked or urgent or self._size >= FULL_BYTES > self._size - len(frame):
                self._parked = False
                self._work.notify()
            while self._size > MAX_WAITING_BYTES and not self._lost:
                self._room.wait()

    def close(self) -> None:
        """Write what is waiting, then drop everything that still comes."""
        with self._lock:
            if self._lost:
                return
            self._closing = True
            self._work.notify()
        self._writer.join()

    def lose(self) -> None:
        """Nobody reads any more: drop everything, release those who wait."""
        with self._lock:
            self._lost = True
            self._frames.clear()
            self._room.notify_all()

    def forget(self) -> None:
        """In a fork of this process: lost, and without the lock, which may just have been held."""
        self._lock = threading.RLock()
        self._lost = True

    def _write(self) -> None:
        while batch := self._take():
            try:
                self._send(b"".join(batch))
            except OSError:
                break
        self.lose()

    def _take(self) -> list[bytes]:
        """Wait for a batch; empty at the end."""
        with self._lock:
            # Another batch has just been written, if this is not the first one: wait a moment for company.
            self._work.wait_for(self._due, GATHER_SECONDS)
            while not self._frames:
                if self._closing:
                    return []
                self._parked = True
                self._work.wait()
            self._parked = False
            batch, self._frames = self._frames, []
            self._size = 0
            self._urgent = False
            self._room.notify_all()
            return batch

    def _due(self) -> bool:
        return self._urgent or self._closing or self._size >= FULL_BYTES
