"""What may be said of another server: its URL, the headers that go there, texts and seconds.

`TypeError` or `ValueError` says what does not fit, and never shows a value that may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

__all__ = ["check_header_names", "check_headers", "check_mapping", "check_seconds", "check_texts", "check_url"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A header value as RFC 9110 has it, so nothing that could begin another header.
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The gateway says these itself, or HTTP does.
OURS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def check_url(url: object, whose: str) -> None:
    """`whose`: of an agent, say."""
    if not isinstance(url, str):
        raise TypeError(f"The URL {whose} is a str, not {type(url).__name__}.")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(character.isspace() for character in url):
        raise ValueError(f"The URL {whose} is http://… or https://…, not {url!r}.")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"The URL {whose} holds no credentials: give them in `headers`.")
    if parts.fragment:
        raise ValueError(f"The URL {whose} has no #fragment: {url!r}.")


def check_headers(headers: Mapping[str, str], also_ours: str = "") -> None:
    """Names and values; `also_ours` is how names begin that the protocol has for itself."""
    check_mapping("headers", headers)
    check_header_names("headers", headers, also_ours)
    for name, value in headers.items():
        if not _VALUE.fullmatch(value):  # which may be a secret, so it is not shown
            raise ValueError(f"headers: the value of {name!r} is not one line of text.")


def check_header_names(what: str, names: Collection[str], also_ours: str = "") -> None:
    check_texts(what, names)
    for name in names:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{what}: {name!r} is not the name of a header.")
        if name.lower() in OURS or (also_ours and name.lower().startswith(also_ours)):
            raise ValueError(f"{what}: the gateway sets {name!r} itself.")


def check_mapping(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is a mapping of texts, not {type(given).__name__}.")
    check_texts(what, tuple(given))
    check_texts(what, tuple(given.values()))


def check_texts(what: str, texts: object) -> None:
    if isinstance(texts, str) or not isinstance(texts, Collection):
        raise TypeError(f"{what} is a collection of texts, not {type(texts).__name__}.")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{what} holds texts, not {type(text).__name__}.")


def check_seconds(what: str, value: object, *, may_be_zero: bool = False) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}.")
    if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
        raise ValueError(f"{what} is a number of seconds above 0, not {value!r}.")
