"""Python values to one line of JSON and back: the only encoder of the package (contract 4.3).

`encode` is total: whatever a tool hands over, bytes come out. Plain data, which is nearly all, goes to orjson
in one call; the rest takes the way through `normalise`. What orjson must never run is a value's own code: a
default hook that changes the list being written, or an Enum whose `value` raises, ends the whole process with
a segmentation fault (orjson 3.13). So types are looked at first, and there is no hook.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

import orjson

from gateway.errors import PayloadError
from gateway.wire.normalise import MAX_DEPTH, Change, fields_of, normalise, type_name

__all__ = ["FLAT", "FLAT_OPTIONS", "Change", "as_mapping", "decode", "dumps", "encode", "encode_strict", "one_line"]

_dumps = orjson.dumps
# Integers beyond 2**53-1 raise. No other option matters: only exact JSON types come as far as orjson.
_OPTIONS = orjson.OPT_STRICT_INTEGER
_NONE = type(None)
# A dict whose values are of these types alone may go straight to `dumps(value, None, FLAT_OPTIONS)`: if that does not
# raise, `one_line` of it is what `encode` would give. For the hot path of tools that emit by the thousand.
FLAT = frozenset({str, int, bool, _NONE})
FLAT_OPTIONS = _OPTIONS
dumps = _dumps

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG_FOR_ORJSON = b"0" * 19  # -2**63 has 19 digits; integers beyond 64 bits come out of orjson as floats
_LONG_INTEGER = re.compile(rb"(?<![.0-9])[0-9]{19,}(?![.0-9eE])")


def encode(value: object, changes: list[Change] | None = None) -> bytes:
    """One line of UTF-8 JSON; never raises (but MemoryError). Every replacement is appended to `changes`.

    Native conversions (a set to a list, a datetime to ISO 8601) are no changes. The bytes hold no CR, LF,
    U+0085, U+2028 or U+2029: legal in JSON, the last three are line ends to clients built on `str.splitlines`.
    """
    try:
        if type(value) is dict:
            # The usual event, a few strings and numbers, without one call more than needed.
            for item in value.values():
                kind = type(item)
                if kind is str or kind is int or kind is bool or kind is _NONE:
                    continue
                if kind is not float or item - item != 0.0:
                    break
            else:
                data = _dumps(value, None, _OPTIONS)
                return data if data.isascii() else one_line(data)
        if _is_plain(value):
            return one_line(_dumps(value, None, _OPTIONS))
    except (TypeError, RuntimeError):  # orjson refuses it, or another thread is changing it
        pass
    plain, found = normalise(value)
    if changes is not None:
        changes.extend(found)
    return one_line(_dumps(plain))


def encode_strict(value: object) -> bytes:
    """`encode`, but raises `PayloadError(path, kind)` for the first thing that it would replace."""
    changes: list[Change] = []
    data = encode(value, changes)
    if changes:
        raise PayloadError(changes[0].path, changes[0].kind)
    return data


def as_mapping(value: object) -> dict[Any, Any]:
    """A mapping, dataclass instance (its fields, not theirs) or pydantic model as a dict.

    Raises `TypeError`, naming the type, for anything else, also for one whose own code fails.
    """
    if type(value) is dict:
        return value
    try:
        fields = fields_of(value)
    except Exception as error:  # whatever the value's own code raises, it is the wrong type here
        raise TypeError(f"cannot read a {type_name(value)} as a mapping: {type_name(error)}") from error
    if fields is None:
        raise TypeError(f"expected a mapping, dataclass or pydantic model, not {type_name(value)}")
    return fields


def decode(data: bytes) -> object:
    """Strict JSON to Python, integers exact beyond 64 bits, too.

    Raises `json.JSONDecodeError`, a `ValueError` with the position, for what is not JSON (NaN, a lone
    surrogate, a second value), nests beyond 1024, or has a number beyond the range of a double (1e308).
    """
    value = orjson.loads(data)
    # The regular expression alone is exact, but a dozen times slower than the search for a run of digits.
    if _TOO_LONG_FOR_ORJSON in data.translate(_DIGITS_TO_ZERO) and _LONG_INTEGER.search(data):
        try:
            return json.loads(data)  # laxer than orjson, which has accepted this already
        except RecursionError:
            raise json.JSONDecodeError("nesting too deep", data.decode("utf-8"), 0) from None
    return value


def _is_plain(value: object) -> bool:
    """Whether orjson runs no code of it and drops nothing: exact JSON types, finite, not too deep.

    Not looked at, because orjson itself raises for them: keys, the size of integers, surrogates.
    """
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        return _holds_plain(value, MAX_DEPTH)
    return kind is str or kind is int or kind is bool or kind is _NONE or (kind is float and isfinite(value))  # type: ignore[arg-type]


def _holds_plain(value: Any, levels: int) -> bool:
    if not levels:
        return False
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is str or kind is int:
            continue
        if kind is float:
            if item - item != 0.0:  # NaN and the infinities; half the time of a call of isfinite
                return False
        elif kind is dict or kind is list or kind is tuple:
            if not _holds_plain(item, levels - 1):
                return False
        elif not (kind is bool or kind is _NONE):
            return False
    return True


def one_line(data: bytes) -> bytes:
    """JSON of orjson without U+0085, U+2028 and U+2029, which it leaves as they are."""
    if data.isascii():
        return data
    if 0xC2 in data:  # a search for one byte costs next to nothing, one for two does not
        data = data.replace(b"\xc2\x85", b"\\u0085")
    if 0xE2 in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data
