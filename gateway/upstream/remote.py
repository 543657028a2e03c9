"""`RemoteAgent`: an AG-UI agent behind a URL, and what may go there."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

__all__ = ["RemoteAgent"]

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
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An AG-UI agent on another server, reached by `POST` at `url`; `agents={"support": RemoteAgent(url)}`.

    - `headers` go with every request; `forward_headers` are names of headers of the browser's that go on to the agent,
      `Authorization` only when it is named here. No other header of the browser's does.
    - `connect_timeout` in seconds. `idle_timeout`: seconds without a byte of the agent's, after which the run fails
      with `upstream_timeout`; 0 waits for ever.
    - `tools`: whether the agent is offered the tools of the gateway, all of them (`True`), none, or those of a list.
    - `description` for the catalogue.

    `TypeError` or `ValueError` says what does not fit. Source: contract 6.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, repr=False)
    forward_headers: Collection[str] = ()
    connect_timeout: float = 10
    idle_timeout: float = 300
    tools: bool | Collection[str] = True
    description: str = ""

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not isinstance(self.headers, Mapping):
            raise TypeError(f"headers is a mapping of texts, not {type(self.headers).__name__}.")
        _check_names("headers", self.headers)
        _check_texts("headers", tuple(self.headers.values()))
        _check_names("forward_headers", self.forward_headers)
        for name, value in self.headers.items():
            if not _VALUE.fullmatch(value):  # which may be a secret, so it is not shown
                raise ValueError(f"headers: the value of {name!r} is not one line of text.")
        # Frozen, so that what was checked stays what is used.
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        object.__setattr__(self, "forward_headers", tuple(name.lower() for name in self.forward_headers))
        _check_seconds("connect_timeout", self.connect_timeout)
        _check_seconds("idle_timeout", self.idle_timeout, may_be_zero=True)
        if not isinstance(self.tools, bool):
            _check_texts("tools", self.tools)
            object.__setattr__(self, "tools", frozenset(self.tools))
        if not isinstance(self.description, str):
            raise TypeError(f"description is a str, not {type(self.description).__name__}.")

    def offers(self, name: str) -> bool:
        """Whether the agent is offered the gateway's tool of this name."""
        return self.tools if isinstance(self.tools, bool) else name in self.tools


def _check_url(url: object) -> None:
    if not isinstance(url, str):
        raise TypeError(f"The URL of an agent is a str, not {type(url).__name__}.")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(character.isspace() for character in url):
        raise ValueError(f"The URL of an agent is http://… or https://…, not {url!r}.")
    if parts.username is not None or parts.password is not None:
        raise ValueError("The URL of an agent holds no credentials: give them in `headers`.")
    if parts.fragment:
        raise ValueError(f"The URL of an agent has no #fragment: {url!r}.")


def _check_names(what: str, names: Collection[str]) -> None:
    _check_texts(what, names)
    for name in names:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{what}: {name!r} is not the name of a header.")
        if name.lower() in OURS:
            raise ValueError(f"{what}: the gateway sets {name!r} itself.")


def _check_texts(what: str, texts: object) -> None:
    if isinstance(texts, str) or not isinstance(texts, Collection):
        raise TypeError(f"{what} is a collection of texts, not {type(texts).__name__}.")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{what} holds texts, not {type(text).__name__}.")


def _check_seconds(what: str, value: object, *, may_be_zero: bool = False) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}.")
    if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
        raise ValueError(f"{what} is a number of seconds above 0, not {value!r}.")
