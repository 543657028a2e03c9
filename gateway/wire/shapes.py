"""What objects on the wire look like, as tables, and how one that nearly looks so is mended.

A check of an object that is right costs a look at each of its fields and changes nothing: it is returned as it is.
Otherwise a copy comes back, and `repairs` has the name of each repair. Unknown fields are nobody's business here.
Source: the schemas of `@ag-ui/core` 1.0.0, which the official client enforces (reference/agui-protocol.md 1, 2.5).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "ANY",
    "BOOL",
    "COUNT",
    "ID",
    "JSON_TEXT",
    "MISSING",
    "OBJECT",
    "SOME",
    "STAMP",
    "TEXT",
    "Field",
    "Shape",
    "each",
    "json_text",
    "nested",
    "one_of",
    "union",
]

MISSING: Any = object()
MAX_INT = 2**53 - 1  # Number.MAX_SAFE_INTEGER
NOTHING: frozenset[type] = frozenset()

Json = dict[str, Any]
Repairs = list[str]
Look = Callable[[Any, Repairs], Any]


class Field(NamedTuple):
    """`types` of its value, exactly; `coerce` makes the best of another one, `look` into one of the right type.

    Both may return `MISSING`: the field is left out. One that is `needed` and missing is made by `fill` of the rest
    of the object, or the object is malformed.
    """

    types: frozenset[type]
    needed: bool = False
    coerce: Callable[[Any], Any] | None = None
    look: Look | None = None
    fill: Callable[[Json], Any] | None = None

    def fit(self, value: Any, repairs: Repairs) -> Any:
        if type(value) not in self.types:
            if value is None:
                repairs.append("null")
                return MISSING
            made = MISSING if self.coerce is None else self.coerce(value)
            if made is value:
                return value
            repairs.append("type")
            value = made
        return value if self.look is None or value is MISSING else self.look(value, repairs)


class Shape:
    """An object with these fields. Those of older backends in Python may be spelled `like_this`."""

    __slots__ = ("_aliases", "_deep", "_looks", "_needs", "_types", "fields")

    def __init__(self, aliases: Mapping[str, str] | None = None, /, **fields: Field) -> None:
        self.fields = fields
        self._types = {name: field.types for name, field in fields.items()}
        self._needs = frozenset(name for name, field in fields.items() if field.needed)
        self._looks = {name: field.look for name, field in fields.items() if field.look is not None}
        # What looks into objects and lists shall do it once, for a big one takes its time.
        self._deep = any(field.look is not None and field.types & {dict, list} for field in fields.values())
        self._aliases = {snake: name for name in fields if (snake := _snake(name)) != name} | dict(aliases or {})

    def fit(self, value: Json, repairs: Repairs) -> Json | None:
        """The object, a mended copy, or None when it is malformed beyond repair."""
        if self._deep or not self._needs <= value.keys():
            return self._mended(value, repairs)
        types, looks = self._types, self._looks
        for name, item in value.items():
            if type(item) not in types.get(name, NOTHING):
                return self._mended(value, repairs)
            if name in looks and looks[name](item, []) is not item:
                return self._mended(value, repairs)
        return value

    def _mended(self, value: Json, repairs: Repairs) -> Json | None:
        before = len(repairs)
        mended: Json = {}
        for given, item in value.items():
            name = self._aliases.get(given, given)
            if (field := self.fields.get(name)) is None or (name != given and name in value):
                mended[given] = item
                continue
            if name != given:
                repairs.append("renamed")
            item = field.fit(item, repairs)
            if item is not MISSING:
                mended[name] = item
        if self._needs <= mended.keys():
            return value if len(repairs) == before else mended
        missing = [name for name in self.fields if name in self._needs and name not in mended]
        fills = [self.fields[name].fill for name in missing]
        if None in fills:
            return None
        for name, fill in zip(missing, fills, strict=True):
            repairs.append("filled")
            mended[name] = fill(mended)  # type: ignore[misc]  # None is in none of them, as above
        return mended


ANYTHING = Shape()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda found: f"_{found[0].lower()}", name)


def one_of(*known: str) -> Look:
    def look(value: str, repairs: Repairs) -> Any:
        if value in known:
            return value
        repairs.append("type")
        return MISSING

    return look


def nested(shape: Shape) -> Look:
    """An object of this shape."""

    def look(value: Any, repairs: Repairs) -> Any:
        fitted = shape.fit(value, repairs) if type(value) is dict else None
        if fitted is not None:
            return fitted
        repairs.append("type")
        return MISSING

    return look


def union(tag: str, shapes: Mapping[str, Shape], rest: Shape | None = ANYTHING) -> Look:
    """An object whose field `tag` says which of the shapes it has; of another kind, it has that of the `rest`."""
    looks = {name: nested(shape) for name, shape in shapes.items()}
    otherwise = None if rest is None else nested(rest)

    def look(value: Any, repairs: Repairs) -> Any:
        kind = value.get(tag) if type(value) is dict else None
        known = looks.get(kind, otherwise) if type(kind) is str else otherwise
        if known is not None:
            return known(value, repairs)
        repairs.append("type")
        return MISSING

    return look


def each(look: Look, *, whole: bool = False, least: int = 0) -> Look:
    """A list of what `look` takes, without what it does not; with `whole` one of those spoils the list."""

    def look_at_all(items: list[Any], repairs: Repairs) -> Any:
        before = len(repairs)
        fitted = [made for item in items if (made := look(item, repairs)) is not MISSING]
        if (whole and len(fitted) < len(items)) or len(fitted) < least:
            repairs.append("type")
            return MISSING
        return items if len(repairs) == before else fitted

    return look_at_all


def _within(least: int) -> Look:
    def look(value: int, repairs: Repairs) -> Any:
        if least <= value <= MAX_INT:
            return value
        repairs.append("type")
        return MISSING

    return look


def _whole(value: Any) -> Any:
    """A float as an integer; one that is a whole number is one to JavaScript already."""
    if type(value) is not float or not -MAX_INT <= value <= MAX_INT:  # NaN is not, either
        return MISSING
    return value if value.is_integer() else int(value)


def _text(value: Any) -> Any:
    """Numbers as ids are texts without quotes, everywhere in a stream."""
    return str(value) if type(value) is int else MISSING


def json_text(value: Any) -> Any:
    """An object or list as the text that it should have been."""
    if type(value) in (dict, list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _text(value)


ANY = Field(frozenset({str, int, float, bool, dict, list, type(None)}))
SOME = Field(ANY.types - {type(None)})
BOOL = Field(frozenset({bool}))
OBJECT = Field(frozenset({dict}))
TEXT = Field(frozenset({str}), coerce=_text)
ID = TEXT._replace(needed=True)
#: Text that may come as the value whose JSON it should be.
JSON_TEXT = ID._replace(coerce=json_text)
#: Milliseconds.
STAMP = Field(frozenset({int}), coerce=_whole, look=_within(-MAX_INT))
COUNT = Field(frozenset({int}), coerce=_whole, look=_within(0))
