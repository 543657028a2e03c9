"""The way to an MCP server that is a command: started once, and all calls are made over its stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Self

from mcp import Client, ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.session import ClientRequestContext, MessageHandlerFnT

from gateway.execution.servers import ServerDown
from gateway.upstream.mcp_link import log_of
from gateway.upstream.mcp_questions import Answer, Questions
from gateway.upstream.mcp_server import MCPServer

__all__ = ["StdioLink"]

LINGER = 0.2  # seconds

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
    """See the module. `retry` waits for another start of one that is down; `on_end` hears that it has ended."""

    def __init__(
        self, name: str, config: MCPServer, retry: Callable[[], Awaitable[None]], on_end: Callable[[], None]
    ) -> None:
        self._config = config
        self._retry = retry
        self._on_end = on_end
        self._client: Client | None = None
        self._asking: list[Questions] = []
        self._log = log_of(name)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def client(self, on_message: MessageHandlerFnT) -> Client:
        return Client(
            _observed(stdio_client(_started_with(self._config), errlog=sys.__stderr__ or sys.stderr), self._ended),
            cache=None,
            logging_callback=self._log,
            message_handler=on_message,
            elicitation_callback=self._elicit,
        )

    def _ended(self) -> None:
        self._client = None
        self._on_end()

    def connected(self, client: Client | None) -> None:
        self._client = client

    @asynccontextmanager
    async def session(self, questions: Questions) -> AsyncIterator[ClientSession]:
        if self._client is None:
            await self._retry()
        if self._client is None:
            raise ServerDown("The command does not run.")
        with self._taking(questions):
            yield self._client.session

    @contextmanager
    def _taking(self, questions: Questions) -> Iterator[None]:
        self._asking.append(questions)
        forget = partial(self._asking.remove, questions)
        try:
            yield
        except BaseException:
            # The server may still ask for a call that was stopped: that must reach nobody else.
            linger = 0 if questions.interrupt.done() else LINGER
            asyncio.get_running_loop().call_later(linger, forget)
            raise
        forget()

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> Answer:
        """Of the protocol before 2026: the request does not say for which call it is, so it must be the only one."""
        if len(self._asking) == 1:
            return await self._asking[0].elicit(params)
        message = "Several calls are at work, and it cannot be told which of them asks."
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)


class Observed:
    """What a command says. The library tells those who wait for an answer that it has ended, and nobody else."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        left: bool | None = await self._stream.__aexit__(*error)
        return left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def _observed(transport: AbstractAsyncContextManager[Any], on_end: Callable[[], None]) -> AsyncIterator[Any]:
    async with transport as (said, told):
        yield Observed(said, on_end), told


def _started_with(config: MCPServer) -> StdioServerParameters:
    words = list(config.command)
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *words]
    return StdioServerParameters(command=words[0], args=words[1:], env=dict(config.env), cwd=config.cwd)
