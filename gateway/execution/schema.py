"""The arguments of a callable: read from its signature, shown as JSON Schema, validated, and put into a call.

A pydantic model is built with one field a parameter. The fields have names of our own (`a0`, `a1`, …) and the
parameters are their aliases, so that parameters named `json`, `schema`, `copy` or `_x` clash with nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import SchemaError

from gateway.errors import InvalidArguments
from gateway.execution.context import ToolContext
from gateway.wire.codec import Change, decode, encode

__all__ = [
    "Parameters",
    "adapter_of",
    "details_of",
    "parameters_of",
    "resolve",
    "return_type_of",
    "schema_of",
    "summary_of",
]

# All that evaluating somebody's annotation, or making a validator of it, is known to raise.
_UNRESOLVED = (AttributeError, NameError, SyntaxError, TypeError, ValueError)
_UNUSABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError, ValueError)

# A list of 10 000 bad rows must not become a message of 10 000 parts.
MAX_DETAILS = 50

_JSON_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


class _JsonSchema(GenerateJsonSchema):
    # A default that JSON cannot hold is left out of the schema; the call still uses it.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # pydantic's own type


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one tool; `schema` is the JSON Schema of its arguments."""

    tool_name: str
    schema: dict[str, Any]
    model: type[BaseModel]
    fields: Mapping[str, str]  # parameter -> field of the model
    positional: tuple[str, ...]  # positional-only parameters, in order
    contexts: frozenset[str]  # parameters that get the ToolContext

    def validate(self, arguments: object) -> dict[str, Any]:
        """Arguments as the function takes them, defaults filled in (a copy for each call), by parameter.

        They are validated as JSON, so dates, UUIDs, enums, tuples, sets and models come from their JSON
        forms; models arrive as models. `InvalidArguments` names every field, in its message and in `details`.
        """
        if not isinstance(arguments, Mapping):
            found = _JSON_NAMES.get(type(arguments), type(arguments).__name__)
            raise self._invalid([{"field": "", "message": f"Input should be an object, not {found}"}])
        try:
            text = json.dumps(dict(arguments), allow_nan=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as exc:
            raise self._invalid([{"field": "", "message": f"Input is not JSON: {exc}"}]) from exc
        try:
            instance = self.model.model_validate_json(text)
        except ValidationError as exc:
            raise self._invalid(details_of(exc)) from None
        except BaseException as exc:  # the author's validators may raise anything
            raise self._invalid([{"field": "", "message": f"{type(exc).__name__}: {exc}"}]) from exc
        return {name: getattr(instance, field) for name, field in self.fields.items()}

    def bind(self, func: Callable[..., Any], validated: Mapping[str, Any], ctx: object) -> Callable[[], Any]:
        """The call of `func` with these validated arguments, ready to be made."""
        values = {**validated, **dict.fromkeys(self.contexts, ctx)}
        return functools.partial(func, *[values.pop(name) for name in self.positional], **values)

    def _invalid(self, details: list[dict[str, str]]) -> InvalidArguments:
        message = f'Arguments of "{self.tool_name}" do not fit: {summary_of(details)}'
        return InvalidArguments(message, details=details[:MAX_DETAILS])


def parameters_of(func: Callable[..., Any], tool_name: str, descriptions: Mapping[str, str]) -> Parameters:
    """Read a signature; `TypeError` names the parameter that cannot be used."""
    fields: dict[str, Any] = {}
    contexts, positional = set(), []
    names: dict[str, str] = {}
    for parameter in _signature(func, tool_name):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise TypeError(f'Tool "{tool_name}": {stars}{parameter.name} has no schema; name each parameter.')
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        annotation = _annotation_of(parameter, func, tool_name)
        if _is_context(annotation):
            contexts.add(parameter.name)
            continue
        names[parameter.name] = f"a{len(names)}"
        default = ... if parameter.default is parameter.empty else parameter.default
        base = Field(alias=parameter.name, description=descriptions.get(parameter.name))
        fields[parameter.name] = (_annotate(annotation, base), default)
    model, schema = _model_of(tool_name, names, fields)
    return Parameters(tool_name, schema, model, names, tuple(positional), frozenset(contexts))


def return_type_of(func: Callable[..., Any]) -> object:
    """The return annotation; `Any` without one, or if it cannot be evaluated: it only adds to the schema."""
    annotation = getattr(_annotated(func), "__annotations__", {}).get("return", Any)
    try:
        return resolve(annotation, func)
    except _UNRESOLVED:
        return Any


def resolve(annotation: object, func: Callable[..., Any]) -> object:
    """The annotation with its strings evaluated where `func` was defined; raises what evaluating raises."""

    def probe() -> None: ...

    probe.__annotations__ = {"value": annotation}
    scope = getattr(inspect.unwrap(_annotated(func)), "__globals__", {})
    # ToolContext is often imported under TYPE_CHECKING only.
    return typing.get_type_hints(probe, {"ToolContext": ToolContext, **scope}, include_extras=True)["value"]


def adapter_of(annotation: Any, what: str) -> TypeAdapter[Any]:
    """A validator for any type; `TypeError` says `what` it was for."""
    try:
        return TypeAdapter(annotation)
    except _UNUSABLE as exc:
        raise TypeError(f"{what} cannot be validated: {_first_line(exc)}") from exc


def schema_of(source: type[BaseModel] | TypeAdapter[Any], mode: JsonSchemaMode) -> dict[str, Any]:
    """JSON Schema without the titles that pydantic makes up from names."""
    if isinstance(source, TypeAdapter):
        return _untitled(source.json_schema(schema_generator=_JsonSchema, mode=mode))
    return _untitled(source.model_json_schema(schema_generator=_JsonSchema, mode=mode))


def details_of(error: ValidationError) -> list[dict[str, str]]:
    """`[{"field": "rows.0", "message": …}]`; `field` is empty for the value as a whole."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"field": ".".join(map(str, item["loc"])), "message": _message_of(item)} for item in found]


def summary_of(details: list[dict[str, str]]) -> str:
    """All details on one line: `rows: Field required; foo: Unexpected argument`."""
    parts = [": ".join(filter(None, (item["field"], item["message"]))) for item in details[:MAX_DETAILS]]
    if len(details) > MAX_DETAILS:
        parts.append(f"{len(details) - MAX_DETAILS} more")
    return "; ".join(parts)


def _signature(func: Callable[..., Any], tool_name: str) -> Iterator[inspect.Parameter]:
    """The parameters that a caller may give: not those that a `functools.partial` has already filled."""
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError, NameError) as exc:
        raise TypeError(f'Tool "{tool_name}" has no signature that can be read: {exc}') from exc
    filled: set[str] = set()
    inner: Any = func
    while isinstance(inner, functools.partial):
        filled.update(inner.keywords)
        inner = inner.func
    return (parameter for parameter in parameters if parameter.name not in filled)


def _annotated(func: Callable[..., Any]) -> Callable[..., Any]:
    """The object that carries the annotations: behind partials, and `__call__` of an instance."""
    inner: Any = func
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _annotation_of(parameter: inspect.Parameter, func: Callable[..., Any], tool_name: str) -> object:
    if parameter.annotation is parameter.empty:
        return Any
    try:
        return resolve(parameter.annotation, func)
    except _UNRESOLVED as exc:
        message = f'Tool "{tool_name}": the annotation of "{parameter.name}" cannot be resolved: {exc}'
        raise TypeError(message) from exc


def _is_context(annotation: object) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return all(map(_is_context, members))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _annotate(annotation: Any, base: Any) -> object:
    """The annotation with `base` as its first Field: of several the last one wins, which is the author's."""
    if get_origin(annotation) is Annotated:
        return Annotated[annotation.__origin__, base, *annotation.__metadata__]
    return Annotated[annotation, base]


def _model_of(
    tool_name: str, names: Mapping[str, str], fields: Mapping[str, Any]
) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        return _build(names, fields)
    except _UNUSABLE as exc:
        culprit = next((name for name, field in fields.items() if not _usable(field)), "")
        message = f'Tool "{tool_name}": parameter "{culprit}" cannot be used: {_first_line(exc)}'
        raise TypeError(message) from exc


def _usable(field: object) -> bool:
    try:
        _build({"it": "a0"}, {"it": field})
    except _UNUSABLE:
        return False
    return True


def _build(names: Mapping[str, str], fields: Mapping[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    config = ConfigDict(extra="forbid", protected_namespaces=())
    definitions: Any = {names[name]: field for name, field in fields.items()}
    model = create_model("ToolArguments", __config__=config, **definitions)
    schema = schema_of(model, "validation")
    schema.setdefault("properties", {})
    return model, schema


def _plain(value: object) -> object:
    """For Python callers: values that have a JSON form take it; anything else is refused."""
    changes: list[Change] = []
    plain = decode(encode(value, changes))
    if changes:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return plain


def _message_of(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return "Unexpected argument" if len(item["loc"]) == 1 else "Unexpected field"
    return str(item["msg"])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without `title`, but with what is merely named so: properties, definitions, defaults."""
    clean: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            clean[key] = {name: _untitled(item) if isinstance(item, dict) else item for name, item in value.items()}
        elif key in ("default", "const", "enum", "examples", "example"):
            clean[key] = value
        elif isinstance(value, dict):
            clean[key] = _untitled(value)
        elif isinstance(value, list):
            clean[key] = [_untitled(item) if isinstance(item, dict) else item for item in value]
        else:
            clean[key] = value
    return clean
