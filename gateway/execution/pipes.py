"""The frames a tool process sends to the gateway: how they are built there and cut out here. No I/O.

A frame is a kind (one byte), the length of a name, the length of a body, the name and the body, big-endian.
Length prefixes, because they cost the reading side less than any search, and the names and bodies may hold
every byte. The other direction is a few JSON lines (`processes`, `child`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

HEADER = Struct(">BII")

EMIT = 1  # name; body: the value, encoded
CHANGES = 2  # body: what encoding had to change in the next EMIT or RESULT, JSON [[kind, path], …]
PROGRESS = 3  # body: JSON [progress, total, message]
LOG = 4  # body: JSON [level, message]
FLUSH = 5  # body: a number, to be acknowledged
TRACEBACK = 6  # body: text, before the RESULT of a call that raised
CANCEL = 8  # body: `time.monotonic_ns()` at the moment at which the tool ended its own call
RESULT = 7  # name: `time.monotonic_ns()` at the moment of return; body: a ToolOutput, encoded


def pack(kind: int, body: bytes, name: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(name), len(body)) + name + body


class FrameReader:
    """Cuts frames out of any chunking and hands each to `handle(kind, name, body)`."""

    def __init__(self, handle: Callable[[int, bytes, bytes], None]) -> None:
        self._handle = handle
        self._rest = bytearray()
        self._missing = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes. An incomplete frame is copied once when its end arrives, not once a chunk."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._missing:
                return
            data = bytes(self._rest)
            self._rest.clear()
        done = self._cut(data)
        self._rest += data[done:]

    def _cut(self, data: bytes) -> int:
        """Handle all whole frames of `data`; returns how many bytes they were."""
        unpack, header, handle = HEADER.unpack_from, HEADER.size, self._handle
        start, end = 0, len(data)
        while end - start >= header:
            kind, name_length, body_length = unpack(data, start)
            name = start + header
            body = name + name_length
            stop = body + body_length
            if stop > end:
                self._missing = stop - start
                return start
            start = stop
            handle(kind, data[name:body], data[body:stop])
        self._missing = header
        return start
