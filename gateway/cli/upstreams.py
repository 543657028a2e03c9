"""The entries of `[agents]` and `[mcp_servers]` in a `gateway.toml`: each is a URL, or a table of what its class takes.

What fits, the classes say themselves. Each key is asked about alone, so that a fault is told with its own line.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from gateway import RemoteAgent
from gateway.cli.load import NotThere, import_from, imported_for
from gateway.cli.suggestions import did_you_mean
from gateway.cli.variables import expanded, missing
from gateway.upstream.agents import AgentLike, Agents
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_servers import MCPServers

__all__ = ["AgentEntry", "Entry", "ServerEntry"]

Table = dict[str, Any]

# What stands for the rest when one key is looked at alone.
ANY_URL = "http://localhost"
ANY_COMMAND = "command"
MODULE = "module"


class Entry(ABC):
    """One key of a section. `place(*path)` is the beginning of a message about a key of the file."""

    section: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, value: Any, place: Callable[..., str]) -> None:
        self.name = name
        self._short = isinstance(value, str)
        self._given: Any = {"url": value} if self._short else value
        self._place = place

    def place(self, *path: str | int) -> str:
        """The same for a key of this entry; what is no table is one line."""
        return self._place(self.section, self.name, *(() if self._short else path))

    def faults(self) -> Iterator[str]:
        """What is wrong with it, each with its place."""
        if not isinstance(self._given, dict):
            yield f"{self.place()}: must be a URL, or a section: [{self.section}.{self.name}]"
            return
        unknown = [key for key in self._given if key not in self.keys]
        unset = list(missing(self._given))
        yield from (f"{self.place(key)}: no such key{did_you_mean(key, self.keys)}" for key in unknown)
        yield from (f"{self.place(*path)}: {text}" for path, text in unset)
        if not unknown and not unset:
            yield from self._misfits()

    @property
    def table(self) -> Table:
        """Its keys, with what the environment has in the place of variables."""
        table: Table = expanded(self._given)
        return table

    def _misfits(self) -> Iterator[str]:
        table = self.table
        wrong = False
        for key, value in table.items():
            try:
                self.check(key, value)
            except (TypeError, ValueError) as error:
                wrong = True
                # What the environment has may be a secret, and the message may hold it.
                told = error if value == self._given[key] else "does not fit, with what the environment has for it."
                yield f"{self.place(key)}: {told}"
        if not wrong:
            try:
                self.check_together(table)
            except (TypeError, ValueError, ImportError) as error:
                yield f"{self.place()}: {error}"

    @abstractmethod
    def check(self, key: str, value: Any) -> None:
        """Raises `TypeError` or `ValueError` when the value does not fit."""

    @abstractmethod
    def check_together(self, table: Table) -> None:
        """The same for keys that do not go together, and for the name; each fits alone. `ImportError`: for an extra."""


class AgentEntry(Entry):
    """One of `[agents]`: what `RemoteAgent` takes, or a `module`."""

    section = "agents"
    keys = (*inspect.signature(RemoteAgent).parameters, MODULE)

    def check(self, key: str, value: Any) -> None:
        if key == MODULE:
            _check(isinstance(value, str), 'must be text: "module:function"')
        elif key == "url":
            RemoteAgent(value)
        else:
            _check(key != "headers" or isinstance(value, dict), 'must be a table: { name = "value" }')
            RemoteAgent(ANY_URL, **{key: value})

    def check_together(self, table: Table) -> None:
        _check(MODULE in table or "url" in table, 'needs a url, or a module: "module:function"')
        _check(MODULE not in table or len(table) == 1, "beside module there is nothing else.")
        Agents({self.name: ANY_URL})

    def agent(self, folder: Path) -> AgentLike:
        """What it describes; `UsageError` when a module does not have it."""
        table = self.table
        if MODULE not in table:
            return RemoteAgent(**table)
        with imported_for(self.place(MODULE), table[MODULE]):
            found: AgentLike = import_from(folder, table[MODULE])
            try:
                Agents({self.name: found})
            except (TypeError, ValueError) as error:
                raise NotThere(str(error)) from None
        return found


class ServerEntry(Entry):
    """One of `[mcp_servers]`: what `MCPServer` takes; its `server` is a `url`, or a `command` and perhaps `args`."""

    section = "mcp_servers"
    keys = ("url", "command", "args", *(name for name in inspect.signature(MCPServer).parameters if name != "server"))

    def check(self, key: str, value: Any) -> None:
        if key in ("headers", "env"):
            _check(isinstance(value, dict), 'must be a table: { name = "value" }')
        if key == "needs_approval":
            _check(isinstance(value, bool), "must be true or false")
        if key == "url":
            _check(isinstance(value, str), "must be text: a URL")
            _check(MCPServer(value).url is not None, "must be a URL: http://… or https://…; a program is a command.")
        elif key == "command":
            _check(MCPServer(value).url is None, "must be a program; a URL is a url.")
        elif key == "args":
            _check(isinstance(value, list), "must be a list of texts")
            MCPServer([ANY_COMMAND, *value])
        elif key in ("env", "cwd"):
            MCPServer(ANY_COMMAND, **{key: value})
        else:
            MCPServer(ANY_URL, **{key: value})

    def check_together(self, table: Table) -> None:
        _check(("url" in table) != ("command" in table), "needs a url or a command, one of them.")
        _check("args" not in table or isinstance(table.get("command"), str), "args belong to a command that is text.")
        MCPServers({self.name: self.server(Path())})

    def server(self, folder: Path) -> MCPServer:
        """What it describes; a `cwd` is relative to the file's folder."""
        table = self.table
        where = table.pop("url", None) or table.pop("command")
        if (args := table.pop("args", None)) is not None:
            where = [where, *args]
        if "cwd" in table:
            table["cwd"] = str(folder / table["cwd"])
        return MCPServer(where, **table)


def _check(fits: bool, message: str) -> None:
    if not fits:
        raise ValueError(message)
