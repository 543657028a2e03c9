"""The questions that an MCP server asks while it runs a tool, taken to the person of that call (elicitation).

By the switch of contract 5.6: inside the open run, or by an interrupt that ends the run. In the second case the tool is
run again from its start once it is answered, and the server, asking the same again, gets the answer at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import Any

from mcp import types

from gateway.errors import AbortError, Interrupt, NotAvailable
from gateway.execution.asking import InputResponse
from gateway.execution.context import ToolContext
from gateway.wire.codec import encode

__all__ = ["Answer", "Questions"]

Answer = types.ElicitResult | types.ErrorData


class Questions:
    """Those of one call. `interrupt` is set once the run shall end with one."""

    def __init__(self, ctx: ToolContext) -> None:
        self.interrupt: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self._ctx = ctx
        self._left = asyncio.Event()
        self._asked: Counter[str] = Counter()

    @property
    def can_ask(self) -> bool:
        """Whether there is anybody to ask."""
        return self._ctx._can_ask()

    @property
    def tool(self) -> str:
        """The name of the tool that may ask."""
        return self._ctx.tool_name

    @property
    def is_left(self) -> bool:
        """Whether nobody waits for this call any more."""
        return self._left.is_set()

    def leave(self) -> None:
        """The call has ended here, if not there."""
        self._left.set()

    async def elicit(self, params: types.ElicitRequestParams) -> Answer:
        """What the person answers; an error for the server when nobody can be asked."""
        message, schema = params.message, None
        if isinstance(params, types.ElicitRequestURLParams):
            message = f"{message}\n{params.url}"
        else:
            schema = params.requested_schema
        try:
            response = await self._ctx._ask(message, schema, self._key(message, schema))
        except Interrupt as asked:
            return await self._later(asked)
        except (AbortError, NotAvailable, TypeError, ValueError) as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        return _result(response, schema)

    def _key(self, message: str, schema: dict[str, Any] | None) -> str:
        """The same for the same question when the tool is run again: an answer never goes to another one."""
        digest = hashlib.sha256(encode([message, schema])).hexdigest()[:32]
        self._asked[digest] += 1
        return f"elicitation:{digest}:{self._asked[digest]}"

    async def _later(self, asked: Interrupt) -> types.ElicitResult:
        """The call ends with the question. For the server it is dismissed, once nobody waits for the call any more."""
        if not self.interrupt.done():
            self.interrupt.set_result(asked)
        await self._left.wait()
        return types.ElicitResult(action="cancel")


def _result(response: InputResponse, schema: dict[str, Any] | None) -> types.ElicitResult:
    if not response.resolved:
        return types.ElicitResult(action="cancel")
    content = response.payload if schema is not None and isinstance(response.payload, dict) else None
    return types.ElicitResult(action="accept", content=content)
