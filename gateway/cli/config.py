"""`gateway.toml`: a gateway as one file.

::

    [settings]              # any field of Settings; environment and flags beat it
    port = 8080

    [tools]                 # every tool of a module, or one: "module:function"; relative to the file's folder
    modules = ["shop.tools", "shop.mail:send"]

    [agents]                # an AG-UI agent's URL, a table of what RemoteAgent takes, or a function here
    support = "http://127.0.0.1:9000/agent"
    sales = { url = "https://sales.example.com/agent", headers = { Authorization = "Bearer ${SALES_TOKEN}" } }
    clerk = { module = "shop.agents:clerk" }

    [mcp_servers]           # an MCP server's URL, or a table of what MCPServer takes
    files = { command = "files-server", args = ["--root", "/srv"], env = { TOKEN = "${FILES_TOKEN}" } }

Every error names the file, the line and the key, and never what a variable holds. Sections of later versions are
refused, not ignored: a file that asks for authentication must not be served without.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway import Gateway, Settings, Tool
from gateway.cli.exits import UsageError
from gateway.cli.load import imported_for, tools_of
from gateway.cli.suggestions import did_you_mean
from gateway.cli.toml_lines import line_of, line_of_error
from gateway.cli.upstreams import AgentEntry, ServerEntry
from gateway.settings import FILE

__all__ = ["GatewayFile"]

SECTIONS = ("settings", "tools", "agents", "mcp_servers")
LATER = ("auth",)
TOOLS_KEYS = ("modules",)


class GatewayFile:
    """A file that was read and checked. `name` is how messages call it; raises `UsageError` with every fault."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._path = Path(name)
        self._text, self._data = self._read()
        faults = list(self._faults())
        if faults:
            raise UsageError("\n".join(faults))

    @property
    def settings(self) -> dict[str, Any]:
        """What `[settings]` says."""
        return dict(self._data.get("settings", {}))

    @property
    def agents(self) -> list[AgentEntry]:
        """What `[agents]` names."""
        return [AgentEntry(name, value, self.place) for name, value in self._data.get("agents", {}).items()]

    @property
    def servers(self) -> list[ServerEntry]:
        """What `[mcp_servers]` names."""
        return [ServerEntry(name, value, self.place) for name, value in self._data.get("mcp_servers", {}).items()]

    def place(self, *path: str | int) -> str:
        """`gateway.toml:7: settings.stop_grace`, the beginning of a message about this key."""
        return f"{self.name}:{line_of(self._text, path)}: {_dotted(path)}"

    def gateway(self) -> Gateway:
        """The gateway that the file describes; `UsageError` when what it names is not there, or there twice."""
        tools: dict[str, Tool] = {}
        for index, target in enumerate(self._data.get("tools", {}).get("modules", [])):
            place = self.place("tools", "modules", index)
            for item in self._tools(target, place):
                # Two modules may import the same tool; two tools of one name are a mistake.
                if tools.setdefault(item.name, item) is not item:
                    raise UsageError(f'{place}: there are two tools named "{item.name}".')
        agents = {entry.name: entry.agent(self._folder) for entry in self.agents}
        servers = {entry.name: entry.server(self._folder) for entry in self.servers}
        gateway = Gateway(tools=tools.values(), agents=agents, mcp_servers=servers)
        gateway.configure(**{FILE: self.settings})
        return gateway

    def _tools(self, target: str, place: str) -> list[Tool]:
        with imported_for(place, target):
            return tools_of(self._folder, target)

    @property
    def _folder(self) -> Path:
        return self._path.resolve().parent

    def _read(self) -> tuple[str, dict[str, Any]]:
        try:
            raw = self._path.read_bytes()
        except OSError as error:
            raise UsageError(f"Cannot read {self.name}: {error.strerror}.") from None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            raise UsageError(f"{self.name}:{line}: not UTF-8.") from None
        try:
            return text, tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line, message = line_of_error(error, text)
            raise UsageError(f"{self.name}:{line}: {message}") from None

    def _faults(self) -> Iterator[str]:
        for section, value in self._data.items():
            if section in LATER:
                yield f"{self.place(section)}: not supported yet."
            elif section not in SECTIONS:
                yield f"{self.place(section)}: no such section{did_you_mean(section, SECTIONS)}"
            elif not isinstance(value, dict):
                yield f"{self.place(section)}: must be a section: [{section}]"
            elif section == "settings":
                yield from self._faults_of_settings(value)
            elif section == "tools":
                yield from self._faults_of_tools(value)
            else:
                for entry in self.agents if section == "agents" else self.servers:
                    yield from entry.faults()

    def _faults_of_settings(self, values: dict[str, Any]) -> Iterator[str]:
        known = {key: value for key, value in values.items() if key in Settings.model_fields}
        for key in [key for key in values if key not in known]:
            yield f"{self.place('settings', key)}: no such setting{did_you_mean(key, Settings.model_fields)}"
        # As constructor arguments, so that those which the environment beats are looked at, too.
        try:
            Settings(**known)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                if item["loc"] and item["loc"][0] in known:
                    yield f"{self.place('settings', *item['loc'])}: {item['msg']}"

    def _faults_of_tools(self, values: dict[str, Any]) -> Iterator[str]:
        for key in [key for key in values if key not in TOOLS_KEYS]:
            yield f"{self.place('tools', key)}: no such key{did_you_mean(key, TOOLS_KEYS)}"
        modules = values.get("modules", [])
        if not isinstance(modules, list):
            yield f'{self.place("tools", "modules")}: must be a list: ["module", "module:function"]'
            return
        for index, item in enumerate(modules):
            if not isinstance(item, str):
                yield f'{self.place("tools", "modules", index)}: must be text: "module" or "module:function"'


def _dotted(path: tuple[str | int, ...]) -> str:
    first, *others = path
    return str(first) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in others)
