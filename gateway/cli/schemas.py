"""`agui-gateway schemas`: the wire as JSON Schema or TypeScript, with the shapes of one application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from gateway.cli.load import load_gateway
from gateway.execution.schema import adapter_of, schema_of
from gateway.execution.tools import Tool
from gateway.wire.schema import AppTool, json_text, wire_schema, wire_typescript

__all__ = ["app_tools", "schemas_command"]


@click.command("schemas")
@click.argument("app", required=False)
@click.option("--typescript", is_flag=True, help="TypeScript declarations instead of JSON Schema.")
def schemas_command(app: str | None, typescript: bool) -> None:
    """Print the shapes of the wire; with APP, a Gateway object as `module:name`, also those of its tools and events."""
    tools = None if app is None else app_tools(load_gateway(app).tools.all())
    text = wire_typescript(tools) if typescript else json_text(wire_schema(tools))
    click.echo(text, nl=False)


def app_tools(tools: Iterable[Tool]) -> dict[str, AppTool]:
    """The schemas of tools, by name: arguments, structured content, declared events."""
    return {tool.name: AppTool(tool.parameters, tool.output_schema, _events(tool)) for tool in tools}


def _events(tool: Tool) -> dict[str, dict[str, Any]]:
    return {
        name: schema_of(adapter_of(model, f'events["{name}"]'), "serialization") for name, model in tool.events.items()
    }
