"""The body of an agent's answer, cut anywhere, as the JSON texts that it holds: server-sent events or JSON lines.

Backends frame as they like: CR, LF or CRLF, comments, `data` over several lines, `[DONE]` at the end, JSON without
any frame. Source: contract 6, reference/agui-protocol.md 2.3.
"""

from __future__ import annotations

from gateway.wire.sse import MAX_MESSAGE_BYTES, Decoder, Message, MessageTooLarge

__all__ = ["Frames", "MessageTooLarge"]

DONE = b"[DONE]"  # how providers of models say that a stream is over


class _Events(Decoder):
    """Server-sent events, and lines of JSON between them, which the standard would ignore."""

    def payloads(self, chunk: bytes) -> list[bytes]:
        if b"\r" in chunk:
            return _payloads(self.feed(chunk))
        found: list[bytes] = []
        if not self._between_messages:
            end = chunk.find(b"\n\n") + 2
            head, chunk = (chunk[:end], chunk[end:]) if end > 1 else (chunk, b"")
            found = _payloads(self.feed(head))
        try:
            self._whole(chunk, found)
        except MessageTooLarge:
            if not found:
                raise
        return found

    def _whole(self, chunk: bytes, found: list[bytes]) -> None:
        """Nearly all messages are one line of data; each of those costs a fifth of one that goes line by line."""
        *messages, rest = chunk.split(b"\n\n")
        for message in messages:
            if message.startswith(b"data: ") and b"\n" not in message and len(message) <= self._limit:
                if (payload := message[6:].strip()) and payload != DONE:
                    found.append(payload)
            else:
                found += _payloads(self.feed(message + b"\n\n"))
        if rest:
            found += _payloads(self.feed(rest))

    @property
    def _between_messages(self) -> bool:
        partial = self._line or self._data or self._event or self._after_cr or self._too_large
        return self._start is None and not partial

    def _take(self, line: bytes, messages: list[Message]) -> bool:
        if not line.lstrip().startswith(b"{"):  # no field of an event does
            return super()._take(line, messages)
        self._dispatch(messages)
        self._too_large = len(line) > self._limit
        if not self._too_large:
            messages.append(Message(line, None, None))
        return not self._too_large


class Frames:
    """Feed it the chunks of one body; it returns the payloads that they complete, each one line of text.

    Not even the media type has to be right, as for the official client. Raises `MessageTooLarge`, after the payloads
    before it were returned, for a payload beyond `max_bytes`.
    """

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._decoder = _Events(max_bytes)

    def feed(self, chunk: bytes) -> list[bytes]:
        return self._decoder.payloads(chunk)

    def close(self) -> list[bytes]:
        """The body has ended; a last payload counts without its blank line, as in the official client."""
        return _payloads(self._decoder.close(flush_partial=True))


def _payloads(messages: list[Message]) -> list[bytes]:
    # A line end within JSON is white space, so that a space says the same.
    found = (message.data.replace(b"\n", b" ").strip() for message in messages)
    return [payload for payload in found if payload and payload != DONE]
