"""What somebody may have meant who wrote a name that is none."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(key: str, names: Iterable[str]) -> str:
    """The end of a message: `; did you mean stop_grace?`, or a full stop."""
    # `stop-grace` is the flag's spelling and `StopGrace` another file format's: compare without.
    plain = {name.replace("_", ""): name for name in names}
    close = get_close_matches(key.replace("-", "").replace("_", "").lower(), plain, n=1)
    return f"; did you mean {plain[close[0]]}?" if close else "."
