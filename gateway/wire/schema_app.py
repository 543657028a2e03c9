"""The shapes of one application's tools and declared events, put beside those of the gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.wire.schema_models import Schema

__all__ = ["AppTool", "add_app"]

_TOO_LARGE: Schema = {
    "description": "Stands for a value beyond `max_event_bytes`.",
    "properties": {"$too_large": {"type": "integer"}, "toolCallId": {"type": "string"}},
    "required": ["$too_large", "toolCallId"],
    "type": "object",
}


class AppTool(NamedTuple):
    """The JSON Schemas of a tool: of its arguments, of its structured content if known, and of each declared event."""

    arguments: Schema
    output: Schema | None = None
    events: Mapping[str, Schema] = {}


def add_app(definitions: dict[str, Schema], tools: Mapping[str, AppTool]) -> None:
    """Adds `Tools` and `ToolEvents`, and makes declared events members of `CustomEvent` that `ToolEvent` is not."""
    catalogue: dict[str, Schema] = {}
    declared: dict[str, list[Schema]] = {}
    for name, tool in tools.items():
        shapes = {"arguments": _hoist(definitions, _pascal(name) + "Arguments", tool.arguments)}
        if tool.output is not None:
            shapes["output"] = _hoist(definitions, _pascal(name) + "Output", tool.output)
        catalogue[name] = _closed(shapes)
        for event, schema in tool.events.items():
            if schema not in declared.setdefault(event, []):
                declared[event].append(schema)
    definitions["Tools"] = {"description": "Arguments and structured content of each tool.", **_closed(catalogue)}
    values = {name: _value(definitions, name, schemas) for name, schemas in declared.items()}
    definitions["ToolEvents"] = {"description": "The value of each declared event.", **_closed(values)}
    if values:
        _add_events(definitions, values)


def _add_events(definitions: dict[str, Schema], values: Mapping[str, Schema]) -> None:
    general = definitions["ToolEvent"]
    properties = general["properties"]
    members = []
    for name, value in values.items():
        schema = {
            **general,
            "description": f"What a tool emits as `{name}`.",
            "properties": {
                **properties,
                "name": {"const": name},
                "value": {"anyOf": [value, {"$ref": _ref("TooLarge")}]},
            },
        }
        members.append(_define(definitions, _pascal(name) + "Event", schema))
    _define(definitions, "TooLarge", _TOO_LARGE)
    others = {**properties, "name": {**properties["name"], "not": {"enum": sorted(values)}}}
    definitions["ToolEvent"] = {**general, "properties": others}
    definitions["CustomEvent"]["oneOf"] += members


def _value(definitions: dict[str, Schema], name: str, schemas: list[Schema]) -> Schema:
    """The value as it goes over the wire, with the call that emitted it."""
    shapes = [_hoist(definitions, _pascal(name) + "Value", _with_call_id(schema)) for schema in schemas]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _with_call_id(schema: Schema) -> Schema:
    own = schema.get("$defs", {})
    body = own.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    made = {**body, "properties": {**body.get("properties", {}), "toolCallId": {"type": "string"}}}
    made["required"] = sorted({*body.get("required", ()), "toolCallId"})
    return {**made, "type": "object", "$defs": own} if own else {**made, "type": "object"}


def _hoist(definitions: dict[str, Schema], name: str, schema: Schema) -> Schema:
    """A reference to the schema as a definition; its own definitions move along under names that are free."""
    own = schema.get("$defs", {})
    free = name
    renamed: dict[str, str] = {}
    for inner in sorted(own):
        renamed[inner] = _free(definitions, f"{free}{_pascal(inner)}")
        definitions[renamed[inner]] = {}
    for inner, target in renamed.items():
        definitions[target] = _renamed(own[inner], renamed)
    body = {key: value for key, value in schema.items() if key != "$defs"}
    return _define(definitions, name, _renamed(body, renamed))


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _renamed(value, names) for key, value in schema.items() if key != "discriminator"}
    reference = made.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        made["$ref"] = _ref(names[reference.removeprefix("#/$defs/")])
    return made


def _define(definitions: dict[str, Schema], name: str, schema: Schema) -> Schema:
    free = _free(definitions, name)
    definitions[free] = schema
    return {"$ref": _ref(free)}


def _free(definitions: Mapping[str, Schema], name: str) -> str:
    number, free = 1, name
    while free in definitions:
        number += 1
        free = f"{name}{number}"
    return free


def _closed(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _ref(name: str) -> str:
    return f"#/$defs/{name}"


def _pascal(name: str) -> str:
    """A name of TypeScript: `ImportRows` of `import_rows`."""
    made = "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", name))
    return made if made[:1].isalpha() else f"T{made}"
