"""The lines that an MCP server writes to its stdout, with a bound: the library reads a line however long it is.

It lets one choose the encoding, and this is one: UTF-8 that gives whole lines, and an error of JSON-RPC in the place of
one that is too long. Names the request that the line answers, if it says so at its beginning or its end, as all servers
do; else nothing can be told, and the connection ends there (`is_unknown`).
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING

from mcp import types

from gateway.wire.sse import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["LINES", "TOO_LARGE", "is_unknown"]

LINES = "agui_gateway_lines"
TOO_LARGE = 413  # as in HTTP; what JSON-RPC keeps for itself is below -32000
ENDS = 256  # bytes that are kept of both ends of a line

# Members of the outermost object: nothing is before these, or only the brace that closes it after them.
_ID = rb'"id"\s*:\s*"?(\d{1,15})"?'
_JSONRPC = rb'"jsonrpc"\s*:\s*"2\.0"'
_ANSWER = rb'"(?:result|error)"\s*:'
_FIRST = re.compile(rb"\s*\{\s*" + _JSONRPC + rb"\s*,\s*" + _ID + rb"\s*,\s*" + _ANSWER)
_LAST = re.compile(
    rb"\s*\{\s*" + _ANSWER + rb".*,\s*(?:" + _JSONRPC + rb"\s*,\s*" + _ID + rb"|" + _ID + rb"\s*,\s*" + _JSONRPC
    + rb")\s*\}\s*\Z",
    re.DOTALL,
)  # fmt: skip


def is_unknown(error: types.JSONRPCError) -> bool:
    """Whether it stands for a line of which nobody knows what it was."""
    return error.id is None and error.error.code == TOO_LARGE


class Lines(codecs.IncrementalDecoder):
    """See the module. Bytes that are no UTF-8 are replaced: they are one message's fault, not the connection's."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self.reset()

    def reset(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        *ends, rest = bytes(input).split(b"\n")
        lines = [self._line(end) for end in ends]
        self._add(rest)
        return "".join(lines)

    def _line(self, end: bytes) -> str:
        self._add(end)
        line, size = b"".join(self._parts), self._size
        self.reset()
        return f"{line.decode('utf-8', 'replace') if size <= MAX_MESSAGE_BYTES else _instead_of(line)}\n"

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_MESSAGE_BYTES:
            line = b"".join(self._parts)
            self._parts = [line[:ENDS], line[ENDS:][-ENDS:]]


def _instead_of(line: bytes) -> str:
    found = _FIRST.match(line) or _LAST.match(line)
    request_id = next((int(group) for group in found.groups() if group), None) if found else None
    error = {"code": TOO_LARGE, "message": f"A message of more than {MAX_MESSAGE_BYTES} bytes."}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != LINES:
        return None
    plain = codecs.lookup("utf-8")
    return codecs.CodecInfo(plain.encode, plain.decode, name=LINES, incrementaldecoder=Lines)


codecs.register(_codec)
