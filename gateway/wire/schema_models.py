"""How our models become JSON Schema: what they share, whatever they describe.

Two readings of a model: what the gateway *writes* (an optional field is absent, never null; readers must let unknown
fields pass) and what it *accepts* (exactly what its validation does, nulls and refusals included).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from gateway.wire.inputs import MAX_ID, valid_id

__all__ = ["DIALECT", "ID", "Milliseconds", "Schema", "Time", "Wire", "accepted", "document", "written"]

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERSION = "1.0"  # of the published vocabulary, in every `$id`; its major part changes when a reader would break

ID: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_ID,
    "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]*$",
}

Milliseconds = Annotated[int, Field(ge=0, description="Unix milliseconds.")]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time", "description": "ISO 8601, UTC."})]


class Wire(BaseModel):
    """Base of what the gateway writes: camelCase names. Closed here, so that tests find a field nobody published."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class _Accepted(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> Schema:
        return dict(ID) if schema["function"]["function"] is valid_id else super().function_after_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


class _Written(_Accepted):
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        inner = schema["schema"]
        if schema.get("default", ...) is None and inner["type"] == "nullable":
            return self.generate_inner(inner["schema"])
        return super().default_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        made = super().model_schema(schema)
        if made.get("additionalProperties") is False:
            del made["additionalProperties"]
        return made


def written(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The definitions, by name, of what the gateway writes; `$ref`s are `#/$defs/<name>`."""
    return _definitions(models, _Written)


def accepted(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The definitions of what the gateway accepts."""
    return _definitions(models, _Accepted)


def _definitions(models: Iterable[type[BaseModel]], generator: type[GenerateJsonSchema]) -> dict[str, Schema]:
    _, found = models_json_schema([(model, "validation") for model in models], schema_generator=generator)
    definitions: dict[str, Schema] = found.get("$defs", {})
    for union in list(_unions(definitions)):
        _require_tag(union, definitions)
    return definitions


def _unions(schema: object) -> Iterator[Schema]:
    """The unions that are told apart by a field."""
    if isinstance(schema, dict):
        if "discriminator" in schema and "oneOf" in schema:
            yield schema
        for item in schema.values():
            yield from _unions(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _unions(item)


def _require_tag(union: Schema, definitions: Mapping[str, Schema]) -> None:
    """Says in plain JSON Schema what the discriminator means: each member must have the field."""
    tag = union.pop("discriminator")["propertyName"]
    for member in union["oneOf"]:
        target = definitions[_target(member)]
        target["required"] = sorted({*target.get("required", ()), tag})


def _target(reference: Mapping[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def document(kind: str, title: str, root: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """A schema that stands alone: `kind` is the last part of its `$id`, `root` what it says of the whole value.

    Only the definitions that `root` leads to come along.
    """
    made: Schema = {"$schema": DIALECT, "$id": f"urn:agui-gateway:{VERSION}:{kind}", "title": title, **root}
    if used := _reachable(root, definitions):
        made["$defs"] = {name: definitions[name] for name in sorted(used)}
    return made


def _reachable(root: object, definitions: Mapping[str, Schema]) -> set[str]:
    found: set[str] = set()
    todo = [root]
    while todo:
        for name in _names(todo.pop()) - found:
            found.add(name)
            todo.append(definitions[name])
    return found


def _names(schema: object) -> set[str]:
    """The definitions that a schema names."""
    if isinstance(schema, Mapping):
        own = {_target(schema)} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*map(_names, schema.values()))
    return set().union(*map(_names, schema)) if isinstance(schema, list) else set()
