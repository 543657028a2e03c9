"""On which line of a TOML text a key stands, which `tomllib` does not tell.

No second parser: `tomllib` itself is asked about the first lines of the text, one more at a time. Beginnings that end
inside a statement do not parse, so the first one that knows the key ends with the key's statement. Quadratic, for texts
of a hundred lines that have an error.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

__all__ = ["line_of", "line_of_error"]

Path = tuple[str | int, ...]

_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)$")


def line_of(text: str, path: Path) -> int:
    """The line, from 1, on which the statement of this key starts; of an item in a list, its own line.

    `text` parses. Of a path that is not there, the line of its nearest parent; 1 when there is none.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    parsed = 0  # how many lines the longest beginning that parsed and did not know the key had
    for count in range(1, len(lines) + 1):
        try:
            known = tomllib.loads("\n".join(lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:
            continue
        if not _has(known, path):
            parsed = count
        elif path and isinstance(path[-1], int):
            return _line_of_item(lines[:count], parsed, path)
        else:
            return parsed + 1
    return line_of(text, path[:-1]) if path else 1


def line_of_error(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line of a syntax error, and what it says without its place."""
    message = str(error)
    found = _AT_LINE.search(message)
    if found is None:  # at the end of the document
        return len(text.rstrip().split("\n")), message.partition(" (at ")[0]
    return int(found[1]), message[: found.start()].rstrip()


def _line_of_item(lines: list[str], start: int, path: Path) -> int:
    """The item is somewhere in the statement after line `start`: the first line at which a `]` would close the list
    behind it."""
    for count in range(start + 1, len(lines)):
        try:
            known = tomllib.loads("\n".join(lines[:count]) + "\n]")
        except tomllib.TOMLDecodeError:
            continue
        if _has(known, path):
            return count
    return len(lines)


def _has(value: Any, path: Path) -> bool:
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return False
        elif not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return True
