"""The values that stores keep, as JSON text and back: exactly, whatever their fields hold.

One rule for all of them, read off their annotations: dataclasses are objects by field name, so that a field may be
added later; named tuples and tuples are lists, frozen sets sorted lists, bytes base64. Text is ASCII, which also
carries the surrogates that UTF-8 cannot.
"""

from __future__ import annotations

import json
import types
from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["dump", "load"]

T = TypeVar("T")
Reader = Callable[[Any], Any]


def dump(value: Any) -> str:
    """The value as JSON."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def load(kind: type[T], text: str) -> T:
    """The value of this class that `dump` made the text of."""
    value: T = _reader(cast(Hashable, kind))(json.loads(text))
    return value


def _plain(value: Any) -> Any:
    """What `json` does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, frozenset):
        return sorted(value)
    plain = {name: getattr(value, name) for name, _ in _fields(cast(Hashable, type(value)))}
    return {name: item for name, item in plain.items() if item is not None}


@cache
def _fields(kind: Hashable) -> tuple[tuple[str, bool], ...]:
    """Names, and whether one that is not there has to be given as None."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind} is no value that stores keep.")
    return tuple((item.name, item.default is MISSING and item.default_factory is MISSING) for item in fields(kind))


@cache
def _reader(kind: Hashable) -> Reader:
    """What turns JSON into a value of this annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (only,) = (item for item in inner if item is not types.NoneType)
        return partial(_optional, _reader(only))
    if origin is tuple:
        return partial(_tuple, _reader(inner[0]))
    if origin is frozenset:
        return frozenset
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _same if inner[1] in (Any, str) else partial(_mapping, _reader(inner[1]))
    if kind is bytes:
        return b64decode
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(_dataclass, kind, _readers(kind))
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return partial(_named_tuple, kind, tuple(_readers(kind).values()))
    return _same


def _readers(kind: type) -> dict[str, Reader]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _same(plain: Any) -> Any:
    return plain


def _optional(read: Reader, plain: Any) -> Any:
    return None if plain is None else read(plain)


def _tuple(read: Reader, plain: list[Any]) -> tuple[Any, ...]:
    return tuple(map(read, plain))


def _mapping(read: Reader, plain: dict[str, Any]) -> dict[str, Any]:
    return {name: read(item) for name, item in plain.items()}


def _named_tuple(kind: type, readers: tuple[Reader, ...], plain: list[Any]) -> Any:
    return kind(*(read(item) for read, item in zip(readers, plain, strict=False)))


def _dataclass(kind: type, readers: dict[str, Reader], plain: dict[str, Any]) -> Any:
    given = {name: read(plain[name]) for name, read in readers.items() if name in plain}
    given.update((name, None) for name, needed in _fields(kind) if needed and name not in plain)
    return kind(**given)
