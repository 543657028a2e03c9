"""`MCPServer`: where a server of tools is, how it is reached, and what its tools may do here."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from gateway.execution.tools import Approval, tool

__all__ = ["MCPServer"]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A header value as RFC 9110 has it, so nothing that could begin another header.
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The protocol says these itself, or HTTP does.
_OURS = re.compile(
    r"accept|connection|content-(encoding|length|type)|host|last-event-id|mcp-.*|transfer-encoding", re.I
)


@dataclass(frozen=True, slots=True)
class MCPServer:
    """A server of the Model Context Protocol, whose tools join the catalogue; `mcp_servers={"files": MCPServer(…)}`.

    - `server` is a URL (Streamable HTTP), or a command that is started once and spoken to over its stdin and stdout:
      a list of its words, or one line that is split as a shell would.
    - `headers` go with every request to a URL. Nothing else of a caller's does: no header, no credential.
    - `env` is added to the environment of a command, which is otherwise `HOME LOGNAME PATH SHELL TERM USER` only;
      `cwd` is the folder it is started in.
    - `connect_timeout`: seconds that a connection, with its handshake and its list of tools, may take.
    - `timeout`, `requires` and `needs_approval` are those of each of its tools, as `tool()` has them.
    - `tools` are the names, as the server has them, of those that join; `None` is all.

    `TypeError` or `ValueError` says what does not fit. Source: contract 6.
    """

    server: str | Sequence[str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    env: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    cwd: str | None = field(default=None, kw_only=True)
    connect_timeout: float = field(default=10, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    requires: str | Iterable[str] = field(default=(), kw_only=True)
    needs_approval: Approval = field(default=False, kw_only=True)
    tools: Collection[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # Frozen, so that what was checked stays what is used.
        if not is_url(self.server):
            object.__setattr__(self, "server", _words(self.server))
        _check_texts("headers", self.headers)
        _check_texts("env", self.env)
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        if self.url is None:
            self._check_command()
        else:
            self._check_url(self.url)
        _check_seconds(self.connect_timeout)
        options = tool(_nothing, timeout=self.timeout, requires=self.requires, needs_approval=self.needs_approval)
        object.__setattr__(self, "requires", options.requires)
        if self.tools is not None:
            object.__setattr__(self, "tools", _names(self.tools))

    @property
    def url(self) -> str | None:
        """Where it is, or None for one that is started here."""
        return self.server if isinstance(self.server, str) else None

    @property
    def command(self) -> Sequence[str]:
        """What starts it; nothing for one that is behind a URL."""
        return () if isinstance(self.server, str) else self.server

    def offers(self, name: str) -> bool:
        """Whether its tool of this name joins the catalogue."""
        return self.tools is None or name in self.tools

    def _check_url(self, url: str) -> None:
        if self.env or self.cwd is not None:
            raise ValueError("env and cwd are of a command; a URL has headers.")
        try:
            parts = urlsplit(url)
            valid = bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or any(character.isspace() for character in url):
            raise ValueError(f"The URL of an MCP server is http://… or https://…, not {url!r}.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("The URL of an MCP server holds no credentials: give them in `headers`.")
        if parts.fragment:
            raise ValueError(f"The URL of an MCP server has no #fragment: {url!r}.")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name):
                raise ValueError(f"headers: {name!r} is not the name of a header.")
            if _OURS.fullmatch(name):
                raise ValueError(f"headers: {name!r} is said by the protocol itself.")
            if not _VALUE.fullmatch(value):
                raise ValueError(f"The value of header {name!r} must be one line of text.")  # it may be a secret

    def _check_command(self) -> None:
        if self.headers:
            raise ValueError("headers are of a URL; a command has env.")
        if self.cwd is not None and not isinstance(self.cwd, str | os.PathLike):
            raise TypeError(f"cwd is the path of a folder, not {type(self.cwd).__name__}.")


def _nothing() -> None:
    """A tool of its own, to see whether the options are those of a tool."""


def is_url(server: object) -> bool:
    return isinstance(server, str) and re.match(r"https?:", server, re.IGNORECASE) is not None


def _words(command: object) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"The command of an MCP server cannot be read: {error}.") from None
    if not isinstance(command, Sequence) or not all(isinstance(word, str) for word in command):
        raise TypeError(f"An MCP server is a URL or a command, text or a list of texts, not {command!r}.")
    if not command or not command[0]:
        raise ValueError("The command of an MCP server is empty.")
    if any("\0" in word for word in command):
        raise ValueError("The command of an MCP server holds no NUL.")
    return tuple(command)


def _check_texts(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is a mapping of texts, not {type(given).__name__}.")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{what} holds texts, not {name!r} with {type(value).__name__}.")


def _check_seconds(given: object) -> None:
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(f"connect_timeout is a number of seconds, not {given!r}.")
    if not 0 < given < math.inf:
        raise ValueError(f"connect_timeout is a number of seconds above 0, not {given!r}.")


def _names(names: object) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"tools is a collection of names, not {names!r}.")
    return frozenset(names)
