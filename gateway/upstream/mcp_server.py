"""`MCPServer`: where a server of tools is, how it is reached, and what its tools may do here."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gateway.execution.tools import Approval, tool
from gateway.upstream.checks import check_headers, check_mapping, check_seconds, check_texts, check_url

__all__ = ["MCPServer"]


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
    cwd: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    connect_timeout: float = field(default=10, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    requires: str | Iterable[str] = field(default=(), kw_only=True)
    needs_approval: Approval = field(default=False, kw_only=True)
    tools: Collection[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # Frozen, so that what was checked stays what is used.
        if not is_url(self.server):
            object.__setattr__(self, "server", _words(self.server))
        check_headers(self.headers, also_ours="mcp-")
        check_mapping("env", self.env)
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        if self.url is None:
            self._check_command()
        else:
            self._check_url(self.url)
        check_seconds("connect_timeout", self.connect_timeout)
        options = tool(_nothing, timeout=self.timeout, requires=self.requires, needs_approval=self.needs_approval)
        object.__setattr__(self, "requires", options.requires)
        if self.tools is not None:
            check_texts("tools", self.tools)
            object.__setattr__(self, "tools", frozenset(self.tools))

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
        check_url(url, "of an MCP server")

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
        raise TypeError("An MCP server is a URL or a command, text or a list of texts.")
    if not command or not command[0]:
        raise ValueError("The command of an MCP server is empty.")
    if any("\0" in word for word in command):
        raise ValueError("The command of an MCP server holds no NUL.")
    return tuple(command)
