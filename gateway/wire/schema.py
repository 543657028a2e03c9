"""The published contract as files: JSON Schema and TypeScript, made from the models that the code uses.

Texts are deterministic: sorted keys, LF, one newline at the end. `schemas/` holds what these functions return; nothing
reads it at run time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.wire.schema_answers import answer_definitions
from gateway.wire.schema_app import AppTool, add_app
from gateway.wire.schema_custom import CUSTOM_VALUES
from gateway.wire.schema_events import event_definitions
from gateway.wire.schema_inputs import BODIES, input_definitions
from gateway.wire.schema_models import Schema, document, written
from gateway.wire.schema_typescript import typescript

__all__ = ["AppTool", "all_definitions", "json_text", "schema_files", "wire_schema", "wire_typescript"]

HEADER = """What goes over the wire between the AG-UI gateway and its clients. Generated; see schemas/README.md.

Readers must let unknown fields and unknown CUSTOM names pass."""


def all_definitions() -> dict[str, Schema]:
    """Every published shape by name: events, values of CUSTOM events, bodies, answers."""
    definitions = {**event_definitions(), **answer_definitions(), **input_definitions()}
    definitions["CustomValues"] = {
        "description": "The value of each of the gateway's own CUSTOM events, by its name.",
        "properties": {name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in sorted(CUSTOM_VALUES.items())},
        "required": sorted(CUSTOM_VALUES),
        "type": "object",
    }
    return definitions


def schema_files() -> dict[str, str]:
    """The text of each published file but `openapi.json`, by its path below `schemas/`."""
    events, inputs = event_definitions(), input_definitions()
    files = {
        "events.schema.json": json_text(
            document("events", "An event of the AG-UI gateway", {"$ref": "#/$defs/Event"}, events)
        ),
        "inputs.schema.json": json_text(
            document(
                "inputs",
                "A request body of the AG-UI gateway",
                {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in sorted(BODIES)]},
                inputs,
            )
        ),
        "gateway.d.ts": wire_typescript(),
    }
    for name, model in CUSTOM_VALUES.items():
        definitions = written([model])
        root = definitions.pop(model.__name__)
        value = document(f"custom:{name}", f"The value of a CUSTOM event named {name}", root, definitions)
        files[f"custom/{name}.schema.json"] = json_text(value)
    return dict(sorted(files.items()))


def wire_schema(app: Mapping[str, AppTool] | None = None) -> Schema:
    """All shapes in one document, whose root is an event; with those of an app's tools and of what they emit.

    `$defs.Tools` then leads from a tool's name to its `arguments` and `output`, `$defs.ToolEvents` from the name of a
    declared event to its value.
    """
    definitions = all_definitions()
    if app is not None:
        add_app(definitions, app)
    made = document("wire", "The wire of an AG-UI gateway", {"$ref": "#/$defs/Event"}, definitions)
    made["$defs"] = definitions
    return made


def wire_typescript(app: Mapping[str, AppTool] | None = None) -> str:
    """The same as TypeScript declarations."""
    return typescript(wire_schema(app)["$defs"], HEADER)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
