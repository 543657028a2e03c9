"""JSON Schemas of answers: which ones a tool may ask with, and where an answer does not fit.

Pure. `jsonschema`, which takes a fifth as long to import as all the rest, is imported when somebody asks a question
and not before. Source: contract 5.6, JSON Schema Draft 2020-12; `format` is an annotation there and checked by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, SchemaValidator, core_schema
from pydantic_core import ValidationError as PydanticError

from gateway.errors import PayloadError
from gateway.wire.codec import as_mapping, decode, encode_strict
from gateway.wire.normalise import type_name

if TYPE_CHECKING:
    from jsonschema import ValidationError

__all__ = ["check_schema", "misfits", "warm_up"]

Detail = dict[str, str]
Path = tuple[str | int, ...]

MAX_DETAILS = 50  # an answer can be wrong in a million places; nobody reads more
MAX_TEXT = 200  # characters of what a message quotes, and of a field's name

_TYPES = {
    "array": "a list",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
# What a value that breaks the keyword should be; `{}` is the keyword's own value.
_SHOULD = {
    "const": "be {}",
    "contains": "have an item that fits {}",
    "exclusiveMaximum": "be less than {}",
    "exclusiveMinimum": "be greater than {}",
    "format": "be a valid {}",
    "items": "have no more items",
    "maxItems": "have at most {} items",
    "maxLength": "have at most {} characters",
    "maxProperties": "have at most {} fields",
    "maximum": "be at most {}",
    "minItems": "have at least {} items",
    "minLength": "have at least {} characters",
    "minProperties": "have at least {} fields",
    "minimum": "be at least {}",
    "multipleOf": "be a multiple of {}",
    "not": "not fit {}",
    "pattern": "match the pattern {}",
    "unevaluatedItems": "have no other items",
    "unevaluatedProperties": "have no other fields",
    "uniqueItems": "have no equal items",
}


def check_schema(schema: object) -> dict[str, Any] | None:
    """What a tool gives as the schema of an answer, as the plain JSON that goes over the wire; `None` for none.

    A mapping that is a JSON Schema of Draft 2020-12 (whatever its `$schema` says), or a pydantic model class, whose
    schema it then is. Raises `TypeError` for anything else and for a model that has no schema, `ValueError` for a
    mapping that is no schema, that JSON cannot hold, or that refers to what is not in it.
    """
    if schema is None:
        return None
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        schema = _schema_of(schema)
    if not isinstance(schema, Mapping):
        raise TypeError(f"A schema is a mapping or a pydantic model class, not {_shown_type(schema)}.")
    try:
        data = encode_strict(as_mapping(schema))
    except PayloadError as error:
        raise ValueError(f"The schema is not JSON: {error.kind} at {error.path}.") from None
    _check_text(data)
    plain: Any = decode(data)
    return dict(plain)


def misfits(schema: Mapping[str, Any] | None, payload: object) -> list[Detail]:
    """Where an answer's payload, parsed JSON, does not fit the schema: `[{"field": "payload.rows.0", "message"}]`.

    At most 50, sorted by field; empty when it fits, or when there is no schema. `schema` comes from `check_schema`.
    Never raises, never fetches anything, and shows nothing of the payload but the names of its fields. The time it
    takes grows with the payload: 1 MiB may take seconds, so large ones belong in a thread.
    """
    if not schema:
        return []
    return _check(_validator(schema), payload, "payload")


def warm_up() -> None:
    """Imports the library, which reads files for 0.1 s: in a thread, before somebody asks on the event loop."""
    _validator_class()
    check_schema({"$ref": "#/$defs/text", "$defs": {"text": {"type": "string"}}})


def _shown_type(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type_name(value)


def _summary(details: Iterable[Detail]) -> str:
    return "; ".join(f"{item['field']}: {item['message']}" for item in islice(details, 3))


# -- schemas --


@lru_cache(maxsize=256)  # a tool asks the same every time, and this takes 5 ms
def _check_text(data: bytes) -> None:
    plain: Any = decode(data)
    if found := _check(_meta_validator(), plain, "schema"):
        raise ValueError(f"This is not a JSON Schema: {_summary(found)}.")
    if found := list(_unusable(plain)):
        raise ValueError(f"The schema cannot be used: {_summary(found)}.")
    if _is_circular(plain):
        raise ValueError("The schema cannot be used: it refers to itself without end.")


class _JsonSchema(GenerateJsonSchema):
    # A default that JSON cannot hold is left out of the schema; the model still uses it.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # pydantic's own type


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema(schema_generator=_JsonSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).partition("\n")[0]
        raise TypeError(f"The model {model.__name__} has no JSON Schema: {reason}") from error


def _unusable(schema: dict[str, Any]) -> Iterator[Detail]:
    """What the dialect allows and we cannot follow: references to elsewhere, another dialect inside."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = DRAFT202012.create_resource(_without_dialect(schema))
    todo, seen = [(root, REGISTRY.resolver_with_root(root))], set()
    while todo:
        resource, resolver = todo.pop()
        contents: Any = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        for pattern in [contents.get("pattern"), *(contents.get("patternProperties") or ())]:
            if isinstance(pattern, str) and not _is_bounded(pattern):
                yield {"field": "pattern", "message": f"Cannot be checked in bounded time: {_quoted(pattern)}"}
        if "$schema" in contents:
            yield {"field": "$schema", "message": "Only the outermost schema may name its dialect"}
        for reference in (contents[key] for key in ("$ref", "$dynamicRef") if key in contents):
            try:
                target = resolver.lookup(reference)
            except Unresolvable:
                yield {"field": "$ref", "message": f"Nothing is at {_quoted(reference)}"}
                continue
            # It may lead to where no schema has to be, and so none was checked.
            yield from _check(_meta_validator(), target.contents, reference)
            todo.append((DRAFT202012.create_resource(target.contents), target.resolver))
        todo += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]


def _is_bounded(pattern: str) -> bool:
    """Whether the pattern has nothing that needs backtracking: no look-around, no reference to a group."""
    try:
        _matcher(pattern)
    except SchemaError:
        return False
    return True


def _is_circular(schema: dict[str, Any]) -> bool:
    """Whether the schema asks first of all whether it is fulfilled."""
    try:
        for _ in _validator(schema).iter_errors(None):
            pass
    except RecursionError:
        return True
    return False


def _without_dialect(schema: Mapping[str, Any]) -> dict[str, Any]:
    # The library would change to that dialect's validator, halfway through.
    return {key: value for key, value in schema.items() if key != "$schema"}


# -- validators --


# `Any`: the library's types know no way to replace a keyword.
def _validator(schema: Mapping[str, Any]) -> Any:
    from referencing import Registry

    empty: Registry[Any] = Registry()  # the library's own one fetches what it does not know
    return _validator_class()(_without_dialect(schema), registry=empty)


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    own = {
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "required": _required,
        "uniqueItems": _unique_items,
    }
    return extend(Draft202012Validator, own)  # type: ignore[no-untyped-call]


@cache
def _meta_validator() -> Any:
    from jsonschema import Draft202012Validator

    # With formats: a pattern that Python cannot compile must be found here, not by the first answer.
    return Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


def _additional_properties(validator: Any, wanted: Any, instance: object, schema: Any) -> Iterator[ValidationError]:
    """One error a field, in the order of the payload; the library's order changes from process to process."""
    from jsonschema import ValidationError

    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if wanted is False:
            yield ValidationError("", path=[name])
        else:
            yield from validator.descend(value, wanted, path=name)


def _pattern(validator: object, pattern: str, instance: object, schema: object) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError("")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: object, schema: object
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, wanted in patterns.items():
            for name, value in instance.items():
                if _found(pattern, name):
                    yield from validator.descend(value, wanted, path=name, schema_path=pattern)


def _found(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text, in a time that grows with the text and no faster.

    Python's own engine backtracks: thirty letters of an answer could hold up the whole process for a minute.
    """
    try:
        _matcher(pattern).validate_python(text)
    except (PydanticError, UnicodeEncodeError):
        return False
    return True


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True))


def _required(validator: object, names: list[str], instance: object, schema: object) -> Iterator[ValidationError]:
    """The library's errors do not say which field they are about, but in words."""
    from jsonschema import ValidationError

    if isinstance(instance, dict):
        yield from (ValidationError("", path=[name]) for name in names if name not in instance)


def _unique_items(validator: object, unique: bool, instance: object, schema: object) -> Iterator[ValidationError]:
    """The library compares objects each with each: 1 MiB of them would take an hour."""
    from jsonschema import ValidationError

    if unique and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("")


def _hashable(value: Any) -> object:
    """Equal for equal JSON: numbers are equal by value, and no boolean is a number."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return (bool, value) if isinstance(value, bool) else value


def _check(validator: Any, value: object, root: str) -> list[Detail]:
    try:
        found = list(islice(_details(validator.iter_errors(value)), MAX_DETAILS))
    except RecursionError:
        return [{"field": root, "message": "Input is nested too deeply, or its schema is"}]
    found.sort(key=lambda item: ([_order(part) for part in item[0]], item[1]))
    return [{"field": _field(root, path), "message": message} for path, message in found]


def _order(part: str | int) -> tuple[bool, int, str]:
    return (True, 0, part) if isinstance(part, str) else (False, part, "")


def _field(root: str, path: Path) -> str:
    return _clipped(".".join([root, *map(str, path)]))


# -- messages --


def _details(errors: Iterable[ValidationError]) -> Iterator[tuple[Path, str]]:
    """Where and what, each once; of alternatives what is wrong in the one that was meant, if that can be guessed."""
    from jsonschema.exceptions import best_match

    told: set[tuple[Path, str]] = set()
    for error in errors:
        cause = best_match([error]) or error
        detail = tuple(cause.absolute_path), _message(cause)
        if detail not in told:
            told.add(detail)
            yield detail


def _message(error: ValidationError) -> str:
    """In our words: those of the library quote the whole value, as Python writes it."""
    if error.validator in (None, "additionalProperties"):  # None: of the schema `false`
        return "Unexpected field"
    return "Field required" if error.validator == "required" else f"Input should {_should(error)}"


def _should(error: ValidationError) -> str:
    keyword, wanted = str(error.validator), cast(Any, error.validator_value)
    if keyword == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        return f"be {' or '.join(_TYPES[kind] for kind in kinds)}"
    if keyword == "enum":
        return f"be one of {_clipped(', '.join(map(_quoted, wanted[:MAX_TEXT])))}"
    if keyword in ("anyOf", "oneOf"):
        return _alternatives(error)
    return _SHOULD.get(keyword, f"fit the rule {keyword}").replace("{}", _quoted(wanted))


def _alternatives(error: ValidationError) -> str:
    inner = error.context or []
    if not inner:
        return "fit one of the alternatives only"
    if any(item.path or item.validator is None for item in inner):
        return "fit one of the alternatives"
    return _clipped(" or ".join(dict.fromkeys(map(_should, inner))))


def _quoted(value: object) -> str:
    return _clipped(json.dumps(value, ensure_ascii=False))


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
