"""`RemoteAgent`: an AG-UI agent behind a URL, and what may go there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gateway.upstream.checks import check_header_names, check_headers, check_seconds, check_texts, check_url

__all__ = ["RemoteAgent"]

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
        check_url(self.url, "of an agent")
        check_headers(self.headers)
        check_header_names("forward_headers", self.forward_headers)
        # Frozen, so that what was checked stays what is used.
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        object.__setattr__(self, "forward_headers", tuple(name.lower() for name in self.forward_headers))
        check_seconds("connect_timeout", self.connect_timeout)
        check_seconds("idle_timeout", self.idle_timeout, may_be_zero=True)
        if not isinstance(self.tools, bool):
            check_texts("tools", self.tools)
            object.__setattr__(self, "tools", frozenset(self.tools))
        if not isinstance(self.description, str):
            raise TypeError(f"description is a str, not {type(self.description).__name__}.")

    def offers(self, name: str) -> bool:
        """Whether the agent is offered the gateway's tool of this name."""
        return self.tools if isinstance(self.tools, bool) else name in self.tools
