"""Which names a tool may give to its custom events. Shared by the contexts of all kinds of tools."""

from __future__ import annotations

import re

from gateway.wire.events import OWN_PREFIXES

TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def check_event_name(name: object) -> None:
    """Refuse what is not a name: `TypeError` unless it is a str, `ValueError` if it is empty or ours."""
    if not isinstance(name, str):
        raise TypeError(f"The name of a custom event is a str, not {type(name).__name__}.")
    if not name:
        raise ValueError("The name of a custom event must not be empty.")
    if name.startswith(OWN_PREFIXES):
        prefix = name[: name.index(".") + 1]
        raise ValueError(f"Names that start with {prefix!r} are the gateway's own: {name!r}.")
