"""The HTTP API as OpenAPI 3.1 beside the schemas: all made from the models, never read. `published` serves them.

`OPERATIONS` is the one list of what a client may ask; a test holds it against the routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from gateway.http.openapi_operations import JSON_TYPE, OPERATIONS, Answer, Operation
from gateway.http.openapi_parts import COMMON_ERRORS, HEADERS, LINKS, PARAMETERS, STREAMED_EVENT
from gateway.wire.schema import all_definitions, json_text, schema_files
from gateway.wire.schema_inputs import BODIES
from gateway.wire.schema_models import DIALECT

__all__ = ["OPERATIONS", "Operation", "document_at", "openapi_document", "openapi_text", "published_files"]

Json = dict[str, Any]


@cache
def published_files() -> Mapping[str, str]:
    """The text of every published file by its path below `schemas/`."""
    return {**schema_files(), "openapi.json": openapi_text()}


@cache
def openapi_text() -> str:
    """`schemas/openapi.json`."""
    return json_text(openapi_document())


@lru_cache(maxsize=8)
def document_at(server: str) -> str:
    """The same for a gateway that is mounted at this path."""
    return json_text(openapi_document(server))


def openapi_document(server: str | None = None) -> Json:
    """The document; `server` is where the gateway is mounted, by default where the document lies."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    definitions = {name: _moved(schema) for name, schema in all_definitions().items()}
    definitions["StreamedEvent"] = STREAMED_EVENT
    made: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "AG-UI gateway",
            "version": "1.0",
            "description": "Runs tools and relays agents, and streams their AG-UI events.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "jsonSchemaDialect": DIALECT,
        "paths": paths,
        "components": {
            "schemas": definitions,
            "headers": HEADERS,
            "responses": {f"Error{status}": _refusal(status, codes) for status, codes in COMMON_ERRORS.items()},
        },
    }
    return made if server is None else {**made, "servers": [{"url": server}]}


def _operation(operation: Operation) -> Json:
    names = (*operation.parameters, "X-Session-Id") if operation.session else operation.parameters
    made: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(operation, name) for name in names],
        "responses": {str(status): _answer(answer) for status, answer in operation.answers.items()},
    }
    if operation.body is not None:
        required = any(field.is_required() for field in BODIES[operation.body].model_fields.values())
        made["requestBody"] = {"required": required, "content": {JSON_TYPE: {"schema": _ref(operation.body)}}}
    for status, codes in operation.errors.items():
        made["responses"].setdefault(str(status), _refusal(status, codes))
    for status in COMMON_ERRORS:
        made["responses"].setdefault(str(status), {"$ref": f"#/components/responses/Error{status}"})
    return made


def _parameter(operation: Operation, name: str) -> Json:
    place, schema, description = PARAMETERS[name]
    made = {"name": name.rstrip("?"), "in": place, "description": description, "schema": schema}
    if name == "file":
        made["schema"] = {"enum": [*schema_files(), "openapi.json"], "type": "string"}
    return {**made, "required": True} if place == "path" else made


def _answer(answer: Answer) -> Json:
    names = ("X-Request-Id", *answer.headers)
    made: Json = {"description": answer.description, "headers": {name: _header(name) for name in names}}
    if answer.content:
        made["content"] = {media_type: _content(shape) for media_type, shape in answer.content.items()}
    if links := LINKS.get(answer.content.get(JSON_TYPE, "")):
        made["links"] = links
    return made


def _content(shape: str) -> Json:
    if not shape:
        return {"schema": {"type": "object"}}
    if shape == "text":
        return {"schema": {"type": "string"}}
    refs = [_ref(name) for name in shape.split(" | ")]
    return {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}


def _refusal(status: int, codes: str) -> Json:
    names = ["X-Request-Id"] + (["Retry-After"] if status in (429, 503) else [])
    return {
        "description": f"{codes}.",
        "headers": {name: _header(name) for name in names},
        "content": {JSON_TYPE: {"schema": _ref("ErrorAnswer")}},
    }


def _header(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


def _ref(shape: str) -> Json:
    return {"$ref": f"#/components/schemas/{shape}"}


def _moved(schema: Any) -> Any:
    """The same schema below `components`."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(value)
            for key, value in schema.items()
        }
    return [_moved(item) for item in schema] if isinstance(schema, list) else schema
