"""What a docstring says about a function and its parameters, in Google style."""

from __future__ import annotations

import inspect
import re

__all__ = ["parse"]

_HEADER = re.compile(r"(?:Args|Arguments|Parameters):\s*\Z")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)\Z")


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the text of each entry of `Args:`, each on one line."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    header = next((at for at, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    paragraph = []
    for line in lines[:header]:
        if not line.strip():
            break
        paragraph.append(line.strip())
    return " ".join(paragraph), _entries(lines[header + 1 :])


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name, indent = "", 0
    for line in filter(str.strip, lines):
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = indent or depth
        found = _ENTRY.match(line.strip()) if depth <= indent else None
        if found:
            name = found[1]
            entries[name] = found[2].strip()
        elif name:
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
