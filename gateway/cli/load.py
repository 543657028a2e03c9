"""Finding what a command line or a file names: a Gateway at `module:name`, the tools of a module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gateway import Gateway, Tool, tool
from gateway.cli.exits import UsageError

__all__ = ["NotThere", "import_from", "imported_for", "load_gateway", "tools_of"]


class NotThere(ValueError):
    """What was named is not there, or is not what it should be; the message is a sentence for the user."""


def load_gateway(target: str) -> Gateway:
    """The Gateway at `module:name`, looked for in the current folder first; `UsageError` says what is not there."""
    try:
        found = import_from(Path.cwd(), target)
        if isinstance(found, ModuleType):
            raise NotThere(f"{target!r} does not name an object: write it as module:name, or name a .toml file.")
        if not isinstance(found, Gateway):
            raise NotThere(f"{target!r} is not a Gateway but {type(found).__name__}.")
    except NotThere as error:
        raise UsageError(str(error)) from None
    return found


def tools_of(folder: Path, target: str) -> list[Tool]:
    """Every `Tool` at the top of a module, or the one that `module:name` names; `NotThere` when there is none."""
    found = import_from(folder, target)
    if not isinstance(found, ModuleType):
        if isinstance(found, Tool):
            return [found]
        if not callable(found):
            raise NotThere(f"{target!r} is neither a tool nor a function but {type(found).__name__}.")
        return [tool(found)]
    tools = [value for value in vars(found).values() if isinstance(value, Tool)]
    if not tools:
        raise NotThere(f"Module {target!r} has no tools: functions become tools by @tool, or by naming them.")
    return tools


@contextmanager
def imported_for(place: str, target: str) -> Iterator[None]:
    """What goes wrong while a file's `target` is imported is told with its place: `NotThere` as a `UsageError`."""
    try:
        yield
    except NotThere as error:
        raise UsageError(f"{place}: {error}") from None
    except Exception as error:  # foreign code; it only learns its place in the file
        error.add_note(f"{place}: this happened while {target!r} was imported.")
        raise


def import_from(folder: Path, target: str) -> Any:
    """The module, or with `module:name` the object in it; `NotThere` when there is no such thing.

    What goes wrong inside of the module is not ours to explain: it passes as it is.
    """
    module_name, separator, name = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or (separator and not name):
        raise NotThere(f"{target!r} is not of the form module:name.")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, but one that it imports is not
        raise NotThere(f"There is no module {module_name!r} here or installed.") from None
    for part in name.split(".") if separator else ():
        if not hasattr(found, part):
            raise NotThere(f"Module {module_name!r} has no {name!r}.")
        found = getattr(found, part)
    return found
