"""JSON Schema to TypeScript: declarations of the same shapes, for clients that are written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["typescript"]

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SIMPLE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
INDENT = "  "


def typescript(definitions: Mapping[str, Any], header: str = "") -> str:
    """One exported declaration for each definition, sorted by name; `header` is the text of the first comment."""
    parts = [_comment(header, "")] if header else []
    parts += [_declaration(name, definitions[name]) for name in sorted(definitions)]
    return "\n".join(parts)


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    comment = _comment(schema.get("description", ""), "")
    if _is_object(schema) and not {"allOf", "anyOf", "oneOf", "$ref"} & schema.keys():
        return f"{comment}export interface {name} {_object(schema, '')}\n"
    return f"{comment}export type {name} = {_type(schema, '')};\n"


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines)
    return f"{indent}/**\n{body}{indent} */\n"


def _type(schema: object, indent: str) -> str:
    """The type of a schema; `unknown` for what TypeScript cannot say."""
    if not isinstance(schema, Mapping):
        return "never" if schema is False else "unknown"
    parts = list(_parts(schema, indent))
    if len(parts) > 1:
        parts = [f"({part})" if " | " in part else part for part in parts]
    return " & ".join(parts) or "unknown"


def _parts(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    """What a value must be, all at once."""
    if "$ref" in schema:
        yield str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        yield json.dumps(schema["const"], ensure_ascii=False)
    elif "enum" in schema:
        yield _union(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    elif _is_object(schema):
        yield _object(schema, indent)
    elif schema.get("type") == "array":
        yield _array(schema, indent)
    elif isinstance(schema.get("type"), list):
        yield _union(_type({**schema, "type": kind}, indent) for kind in schema["type"])
    elif schema.get("type") in _SIMPLE:
        yield _SIMPLE[schema["type"]]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            yield _union(_type(item, indent) for item in schema[key])
    for item in schema.get("allOf", ()):
        yield _type(item, indent)


def _union(members: Iterator[str]) -> str:
    found = list(dict.fromkeys(members))
    return "unknown" if "unknown" in found else " | ".join(found)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or ("properties" in schema and "type" not in schema)


def _array(schema: Mapping[str, Any], indent: str) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(item, indent) for item in schema['prefixItems'])}]"
    item = _type(schema.get("items", {}), indent)
    return f"({item})[]" if re.search(r" [|&] ", item) and not item.startswith("{") else f"{item}[]"


def _object(schema: Mapping[str, Any], indent: str) -> str:
    inner = indent + INDENT
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    lines = []
    for name, item in properties.items():
        description = item.get("description", "") if isinstance(item, Mapping) else ""
        key = name if _IDENTIFIER.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        mark = "" if name in required else "?"
        lines.append(f"{_comment(description, inner)}{inner}{key}{mark}: {_type(item, inner)};\n")
    others = schema.get("additionalProperties", not properties)
    if others is not False:
        # Beside named fields an index signature must admit their types, too.
        kind = "unknown" if properties else _type(others, inner)
        lines.append(f"{inner}[key: string]: {kind};\n")
    return "{\n" + "".join(lines) + indent + "}" if lines else "Record<string, never>"
