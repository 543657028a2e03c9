"""One text for equal JSON, whatever its spelling: what hashes that both sides compute are taken of.

Objects by sorted keys, no spaces, numbers and strings as JavaScript's `JSON.stringify` writes them. Pure. Source: RFC
8785, which is what `canonicalInterruptJson` of `@tanstack/ai` 0.58 writes, too.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from gateway.wire.codec import decode, encode

__all__ = ["canonical_json", "sha256_of"]

MAX_EXACT = 2**53 - 1  # a JavaScript number holds integers so far
MAX_PLAIN = 21  # JavaScript writes larger powers of ten with an exponent


def canonical_json(value: object) -> str:
    """The canonical text of a value as a client has it: what `encode` replaces is replaced here, too. Never raises."""
    return _text(decode(encode(value)))


def sha256_of(value: object) -> str:
    """`sha256:` and the hexadecimal digest of the canonical text."""
    return f"sha256:{hashlib.sha256(canonical_json(value).encode()).hexdigest()}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        # By UTF-16 code units, as JavaScript sorts: emoji come before U+E000 to U+FFFF.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return f"{{{','.join(f'{_string(key)}:{_text(value[key])}' for key in keys)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, str):
        return _string(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else _number(value)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """As ECMAScript's `Number::toString`: Python finds the same digits and places the point elsewhere."""
    if isinstance(value, int) and abs(value) <= MAX_EXACT:
        return str(value)
    if value == 0:
        return "0"  # also of -0.0
    sign, found, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    digits = "".join(map(str, found))
    point = len(digits) + int(exponent)  # where it stands, counted from the first digit
    return "-" * sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    if len(digits) <= point <= MAX_PLAIN:
        return digits.ljust(point, "0")
    if 0 < point <= MAX_PLAIN:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
