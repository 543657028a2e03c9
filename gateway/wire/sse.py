"""Server-sent events as bytes: frames to write, and a decoder for what others write. No I/O.

The decoder follows the WHATWG algorithm ("Interpreting an event stream") on bytes: only CR, LF and CRLF end a
line, never the U+0085, U+2028 and U+2029 on which text-based readers split.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KEEP_ALIVE", "Decoder", "Message", "MessageTooLarge", "frame", "retry"]

KEEP_ALIVE = b": keep-alive\n\n"

# The official client gives up at 10 MiB of unterminated text, so nobody sends more than this on purpose.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_RETRY_DIGITS = 15  # 30 000 years in milliseconds; longer numbers are nonsense and cost time to parse

BOM = b"\xef\xbb\xbf"


def frame(seq: int, payload: bytes) -> bytes:
    """One event; `payload` is one line, as `codec.encode` makes it."""
    return b"id: %d\ndata: %b\n\n" % (seq, payload)


def retry(milliseconds: int) -> bytes:
    """How long a client waits before it connects again."""
    return b"retry: %d\n\n" % milliseconds


class MessageTooLarge(ValueError):
    """A message, or a line without an end, beyond the decoder's `max_message_bytes`."""


class Message(NamedTuple):
    """`data`: the lines joined by LF, not decoded; `id`: the last one sent so far; `event`: None if not named."""

    data: bytes
    id: str | None
    event: str | None


class Decoder:
    """Feed it chunks cut anywhere; it returns the messages that they complete.

    `retry_ms` and `last_event_id` are those to reconnect with. They outlive `close()`, after which the
    decoder stands at the start of another stream. The only error is `MessageTooLarge`, for good until
    `close()`; messages before the one that is too large are returned first.
    """

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.retry_ms: int | None = None
        self.last_event_id: str | None = None
        self._limit = max_message_bytes
        self._restart()

    def _restart(self) -> None:
        self._start: bytes | None = b""  # what may still become a BOM; None once the stream has begun
        self._line = bytearray()  # the line without an end so far: bytearray grows in place, chunk by chunk
        self._after_cr = False
        self._too_large = False
        self._id = self.last_event_id  # of the message being read: one that is cut off must not move the cursor
        self._clear_message()

    def _clear_message(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._event = b""

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that this chunk completes, in order. Raises `MessageTooLarge`."""
        self._check()
        messages: list[Message] = []
        chunk = self._without_bom(chunk)
        if chunk:
            self._feed_lines(chunk, messages)
        if not messages:
            self._check()
        return messages

    def close(self, *, flush_partial: bool = False) -> list[Message]:
        """The stream has ended. A message without its blank line is dropped, as the standard has it.

        With `flush_partial` it is returned, as by the official AG-UI client. Raises `MessageTooLarge` if the
        last `feed` still had messages to return.
        """
        messages: list[Message] = []
        try:
            if flush_partial:
                self._check()
                start = b"" if self._start is None else self._start
                self._feed_lines(start + b"\n\n" if start else b"\n\n", messages)
            self._check()
        finally:
            self._restart()
        return messages

    def _check(self) -> None:
        if self._too_large:
            raise MessageTooLarge(f"a message of more than {self._limit} bytes")

    def _without_bom(self, chunk: bytes) -> bytes:
        if self._start is None:
            return chunk
        start = self._start + chunk
        if len(start) < len(BOM) and BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(BOM)

    def _feed_lines(self, chunk: bytes, messages: list[Message]) -> None:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF whose CR has ended the line already
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            if not self._take(line, messages):
                return
        self._line += rest
        self._too_large = self._size + len(self._line) > self._limit

    def _take(self, line: bytes, messages: list[Message]) -> bool:
        """One whole line; False if the message is now too large."""
        if not line:
            self._dispatch(messages)
            return True
        if self._size + len(line) > self._limit:
            self._too_large = True
            return False
        name, _, value = line.partition(b":")
        self._field(name, value.removeprefix(b" "))
        return True

    def _field(self, name: bytes, value: bytes) -> None:
        """A comment is a field without a name; unknown fields are ignored."""
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
            self.retry_ms = int(value)

    def _dispatch(self, messages: list[Message]) -> None:
        self.last_event_id = self._id
        if self._data:
            event = self._event.decode("utf-8", "replace") or None
            messages.append(Message(b"\n".join(self._data), self.last_event_id, event))
        self._clear_message()
