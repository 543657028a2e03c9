"""Turns any Python value into plain JSON data, and says what it had to replace (contract 4.3).

The slow half of the codec: `codec.encode` comes here with what is not plain JSON data already. Nothing that a
value does gets out of here: if its own code raises, it becomes `{"$unserializable": "<type name>"}`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from math import isfinite
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from pydantic import AnyUrl, BaseModel, SecretBytes, SecretStr

__all__ = ["MAX_DEPTH", "Change", "fields_of", "normalise", "type_name"]

MAX_DEPTH = 100  # containers within containers, the outermost is 1; orjson itself ends at 254
MAX_INT = 2**53 - 1  # what a JavaScript number holds exactly: Number.MAX_SAFE_INTEGER
MAX_STEPS = 16  # conversions of one value (an Enum of a path takes two); beyond it, they would never end

# Types of pydantic fields are here because a dumped model is full of them; a secret prints as asterisks.
TEXTS = (UUID, AnyUrl, SecretStr, SecretBytes, IPv4Address, IPv6Address)

# Where a value is: (where its container is, its key or index), the root is (). Made a string when reported.
Where = tuple[Any, ...]

NAME: Any = type.__dict__["__name__"]  # read past the metaclass, which may define a `__name__` of its own
NOTHING = object()

T = TypeVar("T")


class Change(NamedTuple):
    """One replacement. `kind`: `nan`, `int`, `surrogate`, `key` or `unserializable`; `path`: `$.rows[3].x`.

    Keys that are not identifiers are quoted in the path: `$["a b"]`.
    """

    kind: str
    path: str


def normalise(value: object) -> tuple[object, list[Change]]:
    """Plain JSON data with exact types only, which `orjson` takes as it is, and what was replaced in it."""
    walk = _Walk()
    try:
        return walk.value(value, (), 1), walk.changes
    except RecursionError:  # the caller stands so deep that the value does not fit on the rest of the stack
        return {"$unserializable": type_name(value)}, [Change("unserializable", "$")]


def type_name(value: object) -> str:
    return _without_surrogates(NAME.__get__(type(value)))


def fields_of(value: object) -> dict[Any, Any] | None:
    """A mapping, dataclass or pydantic model as a dict, None for anything else; raises what its code raises.

    Subclasses of dict are read by what they hold, past methods that they override.
    """
    if isinstance(value, OrderedDict):
        return dict(OrderedDict.items(value))  # its order is not that of the dict underneath
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, BaseModel):
        # Not mode="json": the rules for bytes, NaN, large integers are ours. A RootModel dumps to any type.
        dumped: object = value.model_dump(warnings=False)
        return dumped if isinstance(dumped, dict) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value) if isinstance(value, Mapping) else None


class _Walk:
    """One walk through one value. `_open` holds the ids of the containers around the current place."""

    __slots__ = ("_open", "changes")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._open: set[int] = set()

    def value(self, value: object, where: Where, level: int) -> object:
        plain = value
        for _ in range(MAX_STEPS):
            kind = type(plain)
            if kind is str:
                return self._text(plain, where)  # type: ignore[arg-type]
            if kind is int:
                return self._integer(plain, where)  # type: ignore[arg-type]
            if kind is float:
                return plain if isfinite(plain) else self._change("nan", where, None)  # type: ignore[arg-type]
            if kind is bool or plain is None:
                return plain
            if kind is dict or kind is list or kind is tuple:
                return self._container(value, plain, where, level)
            plain = _attempt(_converted, plain)
            if plain is NOTHING:
                break
        return self._unserializable(value, where)

    def _container(self, value: object, plain: Any, where: Where, level: int) -> object:
        """`plain` is what `value` was converted to; a cycle is one of values, not of their conversions."""
        if level > MAX_DEPTH or id(value) in self._open:
            return self._unserializable(value, where)
        self._open.add(id(value))
        if type(plain) is dict:
            result: object = self._object(plain, where, level + 1)
        else:
            # A copy, in one step of the interpreter: another thread may be changing the list.
            result = [self.value(item, (where, index), level + 1) for index, item in enumerate(list(plain))]
        self._open.discard(id(value))
        return result

    def _object(self, plain: dict[Any, Any], where: Where, level: int) -> dict[str, object]:
        result = {}
        for key, item in list(plain.items()):
            name = self._key(key, where)
            result[name] = self.value(item, (where, name), level)  # of two keys with one text the last wins
        return result

    def _key(self, key: object, where: Where) -> str:
        text = key if type(key) is str else _attempt(_key_text, key)
        if not isinstance(text, str):
            name = f"$unserializable {type_name(key)}"
            return self._change("unserializable", (where, name), name)
        name = _without_surrogates(text)
        if not issubclass(type(key), str):  # not isinstance, which asks the key for its `__class__`
            self._change("key", (where, name), None)
        if "\ufffd" in name and name.count("\ufffd") != text.count("\ufffd"):
            self._change("surrogate", (where, name), None)
        return name

    def _text(self, value: str, where: Where) -> str:
        text = _without_surrogates(value)
        if text.count("\ufffd") != value.count("\ufffd"):
            self._change("surrogate", where, None)
        return text

    def _integer(self, value: int, where: Where) -> int | str:
        return value if -MAX_INT <= value <= MAX_INT else self._change("int", where, _digits(value))

    def _unserializable(self, value: object, where: Where) -> dict[str, str]:
        return self._change("unserializable", where, {"$unserializable": type_name(value)})

    def _change(self, kind: str, where: Where, result: T) -> T:
        self.changes.append(Change(kind, _path(where)))
        return result


def _path(where: Where) -> str:
    steps = []
    while where:
        where, step = where
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append(f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]")
    return "$" + "".join(reversed(steps))


def _attempt(convert: Any, value: object) -> Any:
    """`convert(value)`, or NOTHING if the value's own code raises: here, and only here, that is caught.

    SystemExit or CancelledError out of a `__str__` would end the stream just as ValueError would.
    """
    try:
        return convert(value)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 - foreign code, see above
        return NOTHING


def _converted(value: object) -> object:
    """One step towards plain data, or NOTHING. Subclasses of built-ins are read by what they hold."""
    if isinstance(value, _numpy_types()):  # first: numpy.float64 is a float, numpy.str_ a str
        return _from_numpy(value)
    if isinstance(value, Enum):
        return value.value
    for base, read in READERS:
        if isinstance(value, base):
            return read(value)
    if isinstance(value, BaseModel):
        return value.model_dump(warnings=False)
    fields = fields_of(value)
    return NOTHING if fields is None else fields


def _decimal(value: Decimal) -> str | float:
    return Decimal.__str__(value) if Decimal.is_finite(value) else float("nan")


def _base64(value: bytes | bytearray | memoryview) -> str:
    return b64encode(value).decode("ascii")


# Unbound methods of the built-in, because a subclass may override its own.
READERS: tuple[tuple[type | tuple[type, ...], Any], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (list, list.copy),
    (tuple, lambda value: list(tuple.__iter__(value))),
    (set, lambda value: list(set.__iter__(value))),
    (frozenset, lambda value: list(frozenset.__iter__(value))),
    ((bytes, bytearray, memoryview), _base64),
    ((date, time), lambda value: value.isoformat()),  # a datetime is a date
    (Decimal, _decimal),
    (PurePath, PurePath.__str__),
    (TEXTS, str),
)


def _numpy_types() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")  # nobody has an array before somebody has imported it
    return () if numpy is None else (numpy.ndarray, numpy.generic)


def _from_numpy(value: Any) -> object:
    kind = value.dtype.kind
    if kind == "M":
        # As text, for nanoseconds come out of tolist() as bare integers. NaT, equal to nothing, is a NaN.
        times = sys.modules["numpy"].asarray(value)
        texts = times.astype(str).astype(object)
        texts[times != times] = float("nan")
        return texts.tolist()
    if kind == "m":
        return NOTHING  # a number without its unit would be a lie
    plain = value.tolist()
    return float(value) if type(plain) is type(value) else plain  # a longdouble's is a longdouble


def _key_text(key: object) -> str:
    for _ in range(MAX_STEPS):
        if not isinstance(key, Enum):
            break
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    return _digits(key) if type(key) is int else str.__str__(str(key))


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # beyond sys.get_int_max_str_digits(), which Decimal does not have
        return str(Decimal(value))


def _without_surrogates(text: str) -> str:
    """Lone surrogates become U+FFFD; two that make a pair become the character they stand for, as in JSON."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
