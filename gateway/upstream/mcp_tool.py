"""A tool of an MCP server as one of the catalogue: the server says its schema, and runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gateway.errors import InvalidArguments
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import ToolOutput
from gateway.execution.schema import summary_of
from gateway.execution.tools import Approval, Tool
from gateway.wire.codec import encode
from gateway.wire.json_schema import check_schema, misfits

__all__ = ["Definition", "MCPTool", "Remote"]

# Beyond it arguments are looked at by their server only: here it would hold everybody up.
MAX_CHECKED_BYTES = 65536


@dataclass(frozen=True)
class Definition:
    """What a server says of a tool. `name` is the server's own; `annotations` are ours, of what it has said."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, bool]


class Remote(Protocol):
    """Where its tools are run."""

    async def call(self, name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutput | str: ...


class MCPTool(Tool[..., Awaitable[ToolOutput | str]]):
    """See the module. Its options are those of its server."""

    def __init__(
        self,
        name: str,
        definition: Definition,
        remote: Remote,
        *,
        timeout: float | None,
        requires: frozenset[str],
        needs_approval: Approval,
    ) -> None:
        super().__init__(
            remote.call,
            name=name,
            description=definition.description,
            timeout=timeout,
            requires=requires,
            needs_approval=needs_approval,
            annotations=definition.annotations,
        )
        self.definition = definition
        self.parameters = dict(definition.parameters)
        self.output_schema = None if definition.output_schema is None else dict(definition.output_schema)

    def validate(self, arguments: object) -> dict[str, Any]:
        """The arguments as they are. `InvalidArguments` names each field that breaks the server's schema."""
        if not isinstance(arguments, Mapping):
            raise self._invalid([{"field": "", "message": "Input should be an object"}])
        plain = dict(arguments)
        small = len(encode(plain)) <= MAX_CHECKED_BYTES
        if small and (found := misfits(self._checkable(), plain)):
            raise self._invalid([{**item, "field": _inner(item["field"])} for item in found])
        return plain

    def bind(self, validated: Mapping[str, Any], ctx: Any) -> Callable[[], Any]:
        return partial(self.func, self.definition.name, validated, ctx)

    def _checkable(self) -> dict[str, Any] | None:
        """The schema, if it is one that can be followed here; what cannot be is left to the server."""
        try:
            return check_schema(self.parameters)
        except (TypeError, ValueError):
            return None

    def _invalid(self, details: list[dict[str, str]]) -> InvalidArguments:
        return InvalidArguments(f'Arguments of "{self.name}" do not fit: {summary_of(details)}', details=details)


def _inner(field: str) -> str:
    return field.removeprefix("payload").removeprefix(".")
