"""The way to an MCP server that is a command: started once, and all calls are made over its stdin and stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from mcp import Client, ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.session import ClientRequestContext, MessageHandlerFnT

from gateway.execution.servers import ServerDown
from gateway.upstream.mcp_lines import LINES, is_unknown
from gateway.upstream.mcp_link import log_of
from gateway.upstream.mcp_list import Lists
from gateway.upstream.mcp_open_calls import CALLING, OpenCalls
from gateway.upstream.mcp_questions import Answer, Questions
from gateway.upstream.mcp_server import MCPServer
from gateway.upstream.mcp_wire import overheard

__all__ = ["StdioLink"]

logger = logging.getLogger("gateway")

PATIENCE = 1.0  # seconds in which a server may answer a call that was stopped, before another is made

# Runs in a new process before the command does, so that the kernel ends that one when this one is killed.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


class StdioLink:
    """See the module. Whose `watch` starts it, and starts it again."""

    def __init__(self, name: str, config: MCPServer, watch: Starter) -> None:
        self._name = name
        self._config = config
        self._watch = watch
        self._client: Client | None = None
        self._asking: set[str] = set()
        self._calls = OpenCalls(self._asking)
        self._named: set[str] = set()
        self._log = log_of(name)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def client(self, on_message: MessageHandlerFnT) -> Client:
        self._calls = OpenCalls(self._asking)
        process = stdio_client(_started_with(self._config), errlog=sys.__stderr__ or sys.stderr)
        return Client(
            overheard(process, _Ear(self._name, self._named, self._calls, self._ended)),
            cache=None,
            logging_callback=self._log,
            message_handler=on_message,
            elicitation_callback=self._elicit,
        )

    def _ended(self) -> None:
        self._client = None
        self._watch.ended()

    def connected(self, client: Client | None) -> None:
        self._client = client

    @asynccontextmanager
    async def session(self, questions: Questions) -> AsyncIterator[ClientSession]:
        if self._calls.are_in_the_way(questions):
            await self._clear(questions)
        if self._client is None:
            await self._watch.known()
        if self._client is None:
            raise ServerDown("The command does not run.")
        CALLING.set(questions)  # each call has a task of its own
        try:
            yield self._client.session
        finally:
            questions.leave()

    async def _clear(self, questions: Questions) -> None:
        """The calls that were stopped are answered soon, or end with their process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._calls.all_answered.wait()
        if self._calls.are_in_the_way(questions):
            logger.info("MCP server %s is started anew: a call that was stopped is not answered", self._name)
            self._calls = OpenCalls(self._asking)
            self._client = None
            self._watch.restart()

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> Answer:
        """Of the protocol before 2026."""
        questions = self._calls.asker(context.request_id)
        if questions is not None:
            return await questions.elicit(params)
        message = "Several calls are at work, or one that was stopped, and it cannot be told which of them asks."
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)


class Starter(Protocol):
    """Who starts the command."""

    async def known(self) -> None:
        """Returns when it runs, or could not be started."""

    def ended(self) -> None:
        """It has ended, or says nothing more."""

    def restart(self) -> None:
        """It shall end, and be started again."""


class _Ear(Lists):
    def __init__(self, name: str, named: set[str], calls: OpenCalls, on_end: Callable[[], None]) -> None:
        super().__init__(name, named)
        self._calls = calls
        self._on_end = on_end

    def sent(self, message: types.JSONRPCMessage) -> None:
        self._calls.sent(message)

    def heard(self, message: types.JSONRPCMessage) -> None:
        super().heard(message)
        self._calls.heard(message)
        if isinstance(message, types.JSONRPCError) and is_unknown(message):
            logger.warning(
                "MCP server %s is started again, for what it has written: %s", self._server, message.error.message
            )
            raise EOFError

    def ended(self) -> None:
        self._on_end()


def _started_with(config: MCPServer) -> StdioServerParameters:
    words = list(config.command)
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *words]
    return StdioServerParameters(command=words[0], args=words[1:], env=dict(config.env), cwd=config.cwd, encoding=LINES)
