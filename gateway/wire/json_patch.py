"""JSON Patch: a state with the changes that an agent sends for it. Pure. Source: RFC 6902, RFC 6901.

Only the containers on an operation's path are copied, all others are shared with the state before: a patch costs what
it changes. But a `copy`, which may double the state, costs nothing at all, so what it comes to is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from gateway.wire.normalise import MAX_DEPTH

__all__ = ["MAX_BYTES", "patched"]

MAX_BYTES = 32 * 2**20
MAX_NESTING = MAX_DEPTH - 4  # room for what the state is a part of when it is encoded
# A copy of such a text is no longer than the operation that asks for it.
SHORT = 32
NUMBER = 8  # characters of a number, `true` or `null`, about
BAD_ESCAPE = re.compile("~(?![01])")

Container = dict[str, Any] | list[Any]
Key = Any  # of an object: a str; of a list: an int
Operation = Mapping[str, Any]


def patched(state: Any, operations: Sequence[Any], limit: int = MAX_BYTES) -> Any:
    """The state after all operations, in their order; what was given stays as it is, and is shared.

    Raises `ValueError` when an operation is none, or does not fit, so that nothing of the patch counts: so it is in the
    official client. Also when the state would nest beyond `MAX_NESTING`, or a copy would make it larger than `limit`,
    in about bytes of JSON. To remove the whole leaves None.
    """
    patch = _Patch(state, limit)
    for operation in operations:
        patch.apply(operation)
    return patch.state


class _Patch:
    """`owned` are the ids of the containers that this patch has made: each is in one place, so it may be changed.

    What contains an owned container is owned itself. No id is used again: nothing else is made meanwhile.
    """

    def __init__(self, state: Any, limit: int) -> None:
        self._top = [state]
        self._owned: set[int] = set()
        self._measures = _Measures(limit)
        self._limit = limit

    @property
    def state(self) -> Any:
        return self._top[0]

    def apply(self, operation: Any) -> None:
        """Raises `ValueError`; then this patch is of no more use."""
        name = operation.get("op") if isinstance(operation, Mapping) else None
        if not isinstance(name, str) or name not in _OPERATIONS:
            raise ValueError("no operation")
        _OPERATIONS[name](self, operation, _parts(operation, "path"))

    def _add(self, operation: Operation, path: list[str]) -> None:
        self._put(path, _value(operation))

    def _remove(self, operation: Operation, path: list[str]) -> None:
        self._take(path)

    def _replace(self, operation: Operation, path: list[str]) -> None:
        value = _value(operation)
        self._check_nesting(path, value)
        holder, key = self._opened(path)
        _item(holder, key)
        holder[key] = value

    def _move(self, operation: Operation, path: list[str]) -> None:
        source = _parts(operation, "from")
        if source == path[: len(source)] and source != path:
            raise ValueError("nothing can be moved into itself")
        self._put(path, self._take(source))

    def _copy(self, operation: Operation, path: list[str]) -> None:
        value = self._found(_parts(operation, "from"))
        self._owned.clear()  # it will be in two places
        self._put(path, value)
        if is_container(value) or (isinstance(value, str) and len(value) > SHORT):
            self._owned.clear()  # what is measured stays as it is
            if self._measures.of(self.state)[0] > self._limit:
                raise ValueError(f"larger than {self._limit} bytes")

    def _test(self, operation: Operation, path: list[str]) -> None:
        if not _equal(self._found(path), _value(operation)):
            raise ValueError("a test failed")

    def _put(self, path: list[str], value: Any) -> None:
        self._check_nesting(path, value)
        holder, key = self._opened(path)
        if isinstance(holder, dict) or holder is self._top:
            holder[key] = value
        elif key <= len(holder):
            holder.insert(key, value)
        else:
            raise ValueError("beyond the end of a list")

    def _take(self, path: list[str]) -> Any:
        holder, key = self._opened(path)
        value = _item(holder, key)
        if holder is self._top:
            holder[0] = None
        else:
            del holder[key]
        return value

    def _check_nesting(self, path: list[str], value: Any) -> None:
        if id(value) in self._owned:
            self._owned.clear()
        if len(path) + self._measures.of(value)[1] > MAX_NESTING:
            raise ValueError(f"nested beyond {MAX_NESTING}")

    def _found(self, path: list[str]) -> Any:
        value = self.state
        for part in path:
            value = _item(value, _key(value, part))
        return value

    def _opened(self, path: list[str]) -> tuple[Any, Key]:
        """The container that the path ends in, and the key of its last part; to be changed."""
        holder: Container = self._top
        key: Key = 0
        for part in path:
            child = _item(holder, key)
            if id(child) not in self._owned:
                _check_container(child)
                self._measures.forget(child)
                holder[key] = child = child.copy()
                self._owned.add(id(child))
            holder, key = child, _key(child, part)
        return holder, key


class _Measures:
    """How long and how deep values are. A container is measured once, in however many places it is.

    `most` items of them are remembered: a state holds less, so the others have been left.
    """

    def __init__(self, most: int) -> None:
        self._known: dict[int, tuple[Container, int, int]] = {}
        self._most = most
        self._items = 0

    def of(self, value: Any) -> tuple[int, int]:
        """Characters of JSON, about, and containers within containers; nothing in the value may change afterwards."""
        if self._items > self._most:
            self._known.clear()
            self._items = 0
        open_ = [value] if is_container(value) else []
        while open_:
            if id(container := open_[-1]) in self._known:
                open_.pop()
                continue
            inner = [item for item in _items(container) if is_container(item) and id(item) not in self._known]
            if inner:
                open_ += inner
            else:
                self._learn(open_.pop())
        return self._measure(value)

    def forget(self, container: Container) -> None:
        """It has been left for a copy. Or not, if it is elsewhere, too: then it is measured again."""
        self._known.pop(id(container), None)

    def _learn(self, container: Container) -> None:
        inside = [self._measure(item) for item in _items(container)]
        size = 2 + sum(length + 1 for length, _ in inside)
        if isinstance(container, dict):
            size += sum(len(key) + 3 for key in container)
        self._items += len(container)
        self._known[id(container)] = container, size, 1 + max((depth for _, depth in inside), default=0)

    def _measure(self, value: Any) -> tuple[int, int]:
        if is_container(value):
            _, size, depth = self._known[id(value)]
            return size, depth
        return (len(value) + 2 if isinstance(value, str) else NUMBER), 0


def is_container(value: Any) -> TypeGuard[Container]:
    return isinstance(value, dict | list)


def _check_container(value: Any) -> None:
    if not is_container(value):
        raise ValueError("a path goes through what is no container")


def _items(container: Container) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _item(holder: Any, key: Key) -> Any:
    """What is there; `key` is one of `_key`."""
    if (key in holder) if isinstance(holder, dict) else (key < len(holder)):
        return holder[key]
    raise ValueError("nothing is there")


def _key(holder: Any, part: str) -> Key:
    """`-` is the place behind the last item of a list."""
    _check_container(holder)
    if isinstance(holder, dict):
        return part
    if part == "-":
        return len(holder)
    if not (part.isascii() and part.isdecimal()) or (part[0] == "0" and part != "0"):
        raise ValueError("no index of a list")
    return int(part)


def _parts(operation: Operation, name: str) -> list[str]:
    """The parts of a JSON Pointer; none are the whole."""
    pointer = operation.get(name)
    if not isinstance(pointer, str) or (pointer and pointer[0] != "/") or BAD_ESCAPE.search(pointer):
        raise ValueError(f"{name!r} is no JSON Pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _value(operation: Operation) -> Any:
    if "value" not in operation:
        raise ValueError("no value")
    return operation["value"]


def _equal(one: Any, other: Any) -> bool:
    """As JSON: 1 is 1.0, and `true` is not 1."""
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pairs += zip(one, other, strict=True)
        elif isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


_OPERATIONS: Mapping[str, Callable[[_Patch, Operation, list[str]], None]] = {
    "add": _Patch._add,
    "remove": _Patch._remove,
    "replace": _Patch._replace,
    "move": _Patch._move,
    "copy": _Patch._copy,
    "test": _Patch._test,
}
