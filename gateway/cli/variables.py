"""`${NAME}` in the texts of a `gateway.toml`: what the environment has for it, so that no secret stands in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MissingVariable", "expanded", "missing"]

Path = tuple[str | int, ...]

# A dollar sign before a dollar sign stands for one; a lone one before anything else, for itself.
_MARK = re.compile(r"\$(?:\$|\{([^{}]*)\}?)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class MissingVariable(ValueError):
    """The environment has no such variable, or this is no name of one; the message never has a value."""


def expanded(value: Any) -> Any:
    """`value` with the texts in its lists and tables expanded; raises `MissingVariable`."""
    if isinstance(value, str):
        return _MARK.sub(_replaced, value)
    if isinstance(value, list):
        return [expanded(item) for item in value]
    if isinstance(value, dict):
        return {name: expanded(item) for name, item in value.items()}
    return value


def missing(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Where something is missing, as paths into `value`, and what."""
    if isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from missing(item, (*path, key))
        return
    try:
        expanded(value)
    except MissingVariable as error:
        yield path, str(error)


def _replaced(found: re.Match[str]) -> str:
    name = found[1]
    if name is None:
        return "$"
    if not _NAME.fullmatch(name) or not found[0].endswith("}"):
        raise MissingVariable(f'"{found[0]}" is no variable: write ${{NAME}}, and $$ for a dollar sign.')
    if name not in os.environ:
        raise MissingVariable(f"the environment has no variable {name}.")
    return os.environ[name]
