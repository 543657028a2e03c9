"""deploy/agui-gateway.service, read, and started the way that systemd would."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.deploy.programs import DEPLOY, KEY, Program, gateway_environment
from tests.docs.shells import environment

__all__ = ["FOLDER", "SECRETS", "STATE", "UNIT", "Unit"]

UNIT = DEPLOY / "agui-gateway.service"
FOLDER, STATE, SECRETS = "/opt/agui-gateway", "/var/lib/agui-gateway", "/etc/agui-gateway.env"


class Unit:
    """Its keys; one that is given several times has all its values."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        for line in UNIT.read_text("utf-8").splitlines():
            if line and not line.startswith(("#", "[")):
                key, _, value = line.partition("=")
                self._values.setdefault(key, []).append(value)

    def all(self, key: str) -> list[str]:
        return self._values.get(key, [])

    def one(self, key: str) -> str:
        (value,) = self._values[key]
        return value

    def start(self, folder: Path, port: int, **secrets: str) -> Program:
        """Its command with its environment, user mask; `folder` has what would be in /var/lib and /etc."""
        file = folder / "agui-gateway.env"
        given = {"API_KEYS": f"alice:{KEY}", "AGUI_GATEWAY_PORT": str(port), **secrets}
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()), "utf-8")
        assert self.one("EnvironmentFile") == SECRETS
        assert f"/var/lib/{self.one('StateDirectory')}" == STATE
        plain = {name: value for name, value in gateway_environment().items() if name != "API_KEYS"}
        env = plain | dict(line.replace(STATE, str(folder)).split("=", 1) for line in self.all("Environment"))
        env |= dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())
        bin_folder = environment()["PATH"].partition(":")[0]
        command = self.one("ExecStart").replace(f"{FOLDER}/venv/bin", shlex.quote(bin_folder))
        assert self.one("WorkingDirectory") == f"{FOLDER}/app"
        command = f"umask {self.one('UMask')} && exec {command}"
        return Program(f"bash -c {shlex.quote(command)}", DEPLOY, env)
