"""`gateway.toml`: a gateway as one file.

::

    [settings]              # any field of Settings; environment and flags beat it
    port = 8080

    [tools]                 # every tool of a module, or one: "module:function"; relative to the file's folder
    modules = ["shop.tools", "shop.mail:send"]

Every error names the file, the line and the key. Sections of later versions are refused, not ignored: a file that asks
for authentication must not be served without.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway import Gateway, Settings, Tool
from gateway.cli.exits import UsageError
from gateway.cli.load import NotThere, tools_of
from gateway.cli.toml_lines import line_of, line_of_error
from gateway.settings import FILE

__all__ = ["GatewayFile"]

SECTIONS = ("settings", "tools")
LATER = ("agents", "auth", "mcp_servers")
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

    def place(self, *path: str | int) -> str:
        """`gateway.toml:7: settings.stop_grace`, the beginning of a message about this key."""
        return f"{self.name}:{line_of(self._text, path)}: {_dotted(path)}"

    def gateway(self) -> Gateway:
        """The gateway that the file describes; `UsageError` when a tool is not there or there twice."""
        tools: dict[str, Tool] = {}
        for index, target in enumerate(self._data.get("tools", {}).get("modules", [])):
            place = self.place("tools", "modules", index)
            for item in self._tools(target, place):
                # Two modules may import the same tool; two tools of one name are a mistake.
                if tools.setdefault(item.name, item) is not item:
                    raise UsageError(f'{place}: there are two tools named "{item.name}".')
        gateway = Gateway(tools=tools.values())
        gateway.configure(**{FILE: self.settings})
        return gateway

    def _tools(self, target: str, place: str) -> list[Tool]:
        try:
            return tools_of(self._path.resolve().parent, target)
        except NotThere as error:
            raise UsageError(f"{place}: {error}") from None
        except Exception as error:  # foreign code; it only learns its place in the file
            error.add_note(f"{place}: this happened while {target!r} was imported.")
            raise

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
                yield f"{self.place(section)}: no such section{_did_you_mean(section, SECTIONS)}"
            elif not isinstance(value, dict):
                yield f"{self.place(section)}: must be a section: [{section}]"
            elif section == "settings":
                yield from self._faults_of_settings(value)
            else:
                yield from self._faults_of_tools(value)

    def _faults_of_settings(self, values: dict[str, Any]) -> Iterator[str]:
        known = {key: value for key, value in values.items() if key in Settings.model_fields}
        for key in [key for key in values if key not in known]:
            yield f"{self.place('settings', key)}: no such setting{_did_you_mean(key, Settings.model_fields)}"
        # As constructor arguments, so that those which the environment beats are looked at, too.
        try:
            Settings(**known)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                if item["loc"] and item["loc"][0] in known:
                    yield f"{self.place('settings', *item['loc'])}: {item['msg']}"

    def _faults_of_tools(self, values: dict[str, Any]) -> Iterator[str]:
        for key in [key for key in values if key not in TOOLS_KEYS]:
            yield f"{self.place('tools', key)}: no such key{_did_you_mean(key, TOOLS_KEYS)}"
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


def _did_you_mean(key: str, names: Iterable[str]) -> str:
    # `stop-grace` is the flag's spelling and `StopGrace` another file format's: compare without.
    plain = {name.replace("_", ""): name for name in names}
    close = get_close_matches(key.replace("-", "").replace("_", "").lower(), plain, n=1)
    return f"; did you mean {plain[close[0]]}?" if close else "."
