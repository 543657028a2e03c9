"""How a piece of foreign code came back: with a value, or with an exception.

Not an outcome yet: `outcomes` makes one of it. Threads and processes settle the same way, so that an
exception such as `SystemExit` travels as a value and never through asyncio's own machinery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """It returned `value`; `aborted_first` says whether its signal was aborted at that very moment."""

    value: T
    aborted_first: bool = False


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised `error` (any `BaseException`), or was ended; `aborted_first` as in `Returned`."""

    error: BaseException
    aborted_first: bool = False


Settled = Returned[T] | Raised
