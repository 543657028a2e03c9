"""The names of a server's tools in the catalogue: `files__read` for the tool `read` of the server `files`.

MCP lets a tool be called anything; a tool here matches `[A-Za-z0-9_.-]{1,128}`. The same list gives the same names in
every worker and after every restart, in whatever order it comes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["MAX_SERVER", "prefix_of", "tool_names"]

MAX_SERVER = 64
MAX_NAME = 128
DIGEST = 8

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


def prefix_of(server: str) -> str:
    return f"{server}__"


def tool_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """The catalogue's name of each tool, by the server's.

    Characters that do not fit become `_`. Where two would be called the same, or a name is too long, the one that had
    to be changed ends with a digest of what it was.
    """
    wanted = {name: prefix_of(server) + _UNFIT.sub("_", name) for name in dict.fromkeys(names)}
    times = Counter(wanted.values())
    exact = {prefix_of(server) + name for name in wanted}
    return {
        name: called if _is_free(name, called, times, exact) else _with_digest(called, name)
        for name, called in wanted.items()
    }


def _is_free(name: str, called: str, times: Counter[str], exact: set[str]) -> bool:
    if not name or len(called) > MAX_NAME:
        return False
    return called.endswith(name) or (times[called] == 1 and called not in exact)


def _with_digest(called: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    return f"{called[: MAX_NAME - DIGEST - 1]}_{digest}"
