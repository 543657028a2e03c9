"""`agui-gateway`: the list of its commands. Each is imported when it is asked for, so `call` loads no server."""

from __future__ import annotations

import importlib
from types import MappingProxyType

import click

from gateway import __version__

__all__ = ["main"]

COMMANDS = MappingProxyType(
    {
        "demo": "gateway.cli.serving:demo",
        "serve": "gateway.cli.serving:serve",
        "call": "gateway.cli.calling:call",
        "runs": "gateway.cli.runs:runs",
        "tail": "gateway.cli.calling:tail",
        "stop": "gateway.cli.runs:stop",
        "schemas": "gateway.cli.schemas:schemas_command",
    }
)


class Commands(click.Group):
    """A group whose commands are named, not imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="agui-gateway")
def main() -> None:
    """Run tools for browsers: stream what they emit as AG-UI events, and stop them when somebody presses Stop."""
