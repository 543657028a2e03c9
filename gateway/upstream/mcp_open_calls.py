"""The calls that an MCP server which is a command has not answered yet, and which of them asks.

In the protocol before 2026 a question does not say for which call it is, and a server may go on with a call that was
stopped. So a call is open until its answer has come, whatever became of it here, and only one that is open alone can be
the one that asks.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from mcp import types

from gateway.upstream.mcp_questions import Questions

__all__ = ["CALLING", "OpenCalls"]

CALLING: ContextVar[Questions] = ContextVar("CALLING")
"""The questions of the call whose requests are sent here."""


class OpenCalls:
    """See the module; of one process. `all_answered` is set while none is open.

    `asking` are the names of the tools that may have asked, in whichever process.
    """

    def __init__(self, asking: set[str]) -> None:
        self.all_answered = asyncio.Event()
        self.all_answered.set()
        self._asking = asking
        self._open: dict[str, Questions] = {}
        self._askers: dict[str, Questions] = {}

    def sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest) and message.method == "tools/call":
            self._open[str(message.id)] = CALLING.get()
            self.all_answered.clear()

    def heard(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._open.pop(str(message.id), None)
            if not self._open:
                self.all_answered.set()
        elif isinstance(message, types.JSONRPCRequest) and message.method == "elicitation/create":
            self._asking.update(call.tool for call in self._open.values())
            # Now, not when the question is looked at: by then another call may be open.
            if (asker := self._only_one()) is not None:
                self._askers[str(message.id)] = asker

    def asker(self, request_id: types.RequestId) -> Questions | None:
        """Those of the call that has asked this, if it can be told; once."""
        return self._askers.pop(str(request_id), None)

    def are_in_the_way(self, questions: Questions) -> bool:
        """Whether this next call, of a tool that asks, could not: all that are open were left, and are not answered."""
        return questions.tool in self._asking and bool(self._open) and all(call.is_left for call in self._open.values())

    def _only_one(self) -> Questions | None:
        """The call that is open alone, if anybody still waits for it."""
        calls = list(self._open.values())
        return calls[0] if len(calls) == 1 and not calls[0].is_left else None
