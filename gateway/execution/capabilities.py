"""Capabilities: what a middleware provides to the tools behind it, by identity and not by name."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from gateway.errors import CapabilityError

__all__ = ["Capabilities", "Capability"]

T = TypeVar("T")


class Capability(Generic[T]):
    """A key for `ctx.provide`, `ctx.get` and `ctx.get_optional`; `Capability[Database]("database")`.

    Two of one name are two capabilities: a key is known by being the same object. Source: contract 2.2.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<Capability {self.name}>"


class Capabilities:
    """What was provided to one call."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Capability[Any], Any] = {}

    def provide(self, capability: Capability[T], value: T) -> None:
        if not isinstance(capability, Capability):
            raise TypeError(f"A capability is provided under a Capability, not under {capability!r}.")
        self._values[capability] = value

    def get(self, capability: Capability[T]) -> T:
        if capability not in self._values:
            raise CapabilityError(
                f"The capability {capability.name!r} was not provided: a middleware must do so before this is called."
            )
        return cast("T", self._values[capability])

    def get_optional(self, capability: Capability[T]) -> T | None:
        return self._values.get(capability)
