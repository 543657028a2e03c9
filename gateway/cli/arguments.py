"""The arguments of `agui-gateway call`: JSON on the command line, in a file, or on stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gateway.cli.exits import UsageError
from gateway.wire.codec import decode

__all__ = ["read_arguments"]

BOM = b"\xef\xbb\xbf"


def read_arguments(given: str | None) -> dict[str, Any]:
    """A JSON object: `given` itself, `@file`, `-` for stdin; None is no arguments. `UsageError` says what is wrong."""
    if given is None:
        return {}
    where, raw = _read(given)
    try:
        value = decode(raw.removeprefix(BOM))
    except ValueError as error:
        raise UsageError(f"The arguments{where} are not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UsageError(f'The arguments{where} must be a JSON object, such as {{"name": "value"}}.')
    return value


def _read(given: str) -> tuple[str, bytes]:
    if given == "-":
        return " on stdin", sys.stdin.buffer.read()
    if not given.startswith("@"):
        return "", given.encode("utf-8", "surrogateescape")
    try:
        return f" in {given[1:]}", Path(given[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {given[1:] or 'a file without a name'}: {error.strerror}.") from None
