"""One call of a tool of an MCP server: the request, its progress, the questions in it, its answer.

The library's errors and its cancellations stay in a task of their own: a server that dies would otherwise look like a
Stop. That task also says goodbye to the server, for which nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

from mcp import ClientSession, MCPError, types
from pydantic import TypeAdapter

from gateway.errors import ToolError
from gateway.execution.context import ToolContext
from gateway.execution.outcomes import ToolOutput
from gateway.upstream.mcp_faults import fault_of, reason_of
from gateway.upstream.mcp_link import Link
from gateway.upstream.mcp_list import all_tools
from gateway.upstream.mcp_questions import Questions

__all__ = ["RemoteCall"]

logger = logging.getLogger("gateway")

GOODBYE = 1.0  # seconds; afterwards it is cut short, again each second
MAX_ROUNDS = 50  # of questions of one call
WAIT_ROUND = 0.1  # seconds, doubled up to
LONGEST_ROUND = 2.0

_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

# A loop has only weak references to its tasks.
_working: set[asyncio.Task[None]] = set()


class RemoteCall:
    """See the module. For one `make`."""

    def __init__(self, link: Link, name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> None:
        self._link = link
        self._name = name
        self._arguments = dict(arguments)
        self._ctx = ctx
        self._questions = Questions(ctx)
        self._answer: asyncio.Future[types.CallToolResult] = asyncio.get_running_loop().create_future()
        self._opened = False

    async def make(self) -> ToolOutput:
        """What the server answers. Raises `Interrupt`, `ServerDown`, `ServerLost`, `ToolError`."""
        work = asyncio.create_task(self._work(), name=f"{self._ctx.tool_name} on its server")
        _working.add(work)
        work.add_done_callback(_working.discard)
        ends: set[asyncio.Future[Any]] = {work, self._answer, self._questions.interrupt}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._answer.done():
                return _output(self._answer.result())
            if self._questions.interrupt.done():
                raise self._questions.interrupt.result()
            error = _error_of(work)
            logger.info("%s has got no answer from its MCP server: %s", self._ctx.tool_name, reason_of(error))
            raise fault_of(error, opened=self._opened)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work}, timeout=GOODBYE)  # so that the server has heard of it
            raise
        finally:
            self._part_from(work)

    def _part_from(self, work: asyncio.Task[None]) -> None:
        """It still has to say goodbye, unless there is nothing to say any more."""
        work.add_done_callback(_error_of)
        self._questions.leave()
        # One that has ended with its question gets its answer still: the server shall be done with it.
        if not self._answer.done() and not self._questions.interrupt.done():
            work.cancel()
        asyncio.get_running_loop().call_later(GOODBYE, _press, work)

    async def _work(self) -> None:
        async with self._link.session(self._questions) as session:
            self._opened = True
            result = await self._rounds(session)
            # What it reported before its answer is on its way in tasks of its own.
            await asyncio.sleep(0)
            self._answer.set_result(result)

    async def _rounds(self, session: ClientSession) -> types.CallToolResult:
        """Of the protocol from 2026 on: the server answers with questions, and is asked again with their answers."""
        result = await self._send(session, None)
        rounds, pause = 0, WAIT_ROUND
        while isinstance(result, types.InputRequiredResult):
            if result.input_requests:
                rounds += 1
            else:  # it only wants to be asked again
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_ROUND)
            if rounds > MAX_ROUNDS:
                raise ToolError("failed", f"The server has asked {MAX_ROUNDS} times.")
            result = await self._send(session, result)
        return result

    async def _send(
        self, session: ClientSession, asked: types.InputRequiredResult | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        answers = None if asked is None else await self._answers(asked.input_requests or {})
        params = types.CallToolRequestParams(
            name=self._name,
            arguments=self._arguments,
            input_responses=answers,
            request_state=None if asked is None else asked.request_state,
        )
        params.meta = self._meta()
        request = types.CallToolRequest(params=params)
        try:
            return await session.send_request(request, _RESULT, progress_callback=self._progress)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
        # The server wants arguments as headers, too; the library learns which ones from the list.
        await all_tools(session)
        return await session.send_request(request, _RESULT, progress_callback=self._progress)

    async def _answers(self, requests: types.InputRequests) -> types.InputResponses | None:
        if not requests:
            return None
        async with asyncio.TaskGroup() as group:
            tasks = {key: group.create_task(self._input(request)) for key, request in requests.items()}
        if self._questions.is_left:  # so there is no answer that anybody has given
            raise ToolError("failed", "The call has ended.")
        return {key: task.result() for key, task in tasks.items()}

    async def _input(self, request: types.InputRequest) -> types.ElicitResult:
        if not isinstance(request, types.ElicitRequest):
            raise ToolError("failed", f"The server asks for {request.method}, which is not supported.")
        answer = await self._questions.elicit(request.params)
        if isinstance(answer, types.ErrorData):
            raise ToolError("failed", answer.message)
        return answer

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._ctx.report_progress(progress, total, message)

    def _meta(self) -> types.RequestParamsMeta | None:
        """The trace goes on there; nothing else of the caller does."""
        trace = self._ctx.trace
        if trace is None:
            return None
        meta: Any = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
        return cast("types.RequestParamsMeta", {key: value for key, value in meta.items() if value is not None})


def _output(result: types.CallToolResult) -> ToolOutput:
    structured = result.structured_content
    if structured is not None and not isinstance(structured, dict):
        structured = {"result": structured}
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return ToolOutput(content, result.is_error, structured)


def _error_of(work: asyncio.Task[None]) -> BaseException | None:
    """What it has ended with; looked at, so that nobody complains that nobody did."""
    return None if work.cancelled() else work.exception()


def _press(work: asyncio.Task[None]) -> None:
    if not work.done():
        work.cancel()
        work.get_loop().call_later(GOODBYE, _press, work)
