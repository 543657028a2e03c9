"""One tool call as a run: `POST /tools/{name}` from its body to its answer."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.errors import GatewayError, InvalidArguments, NotFound, RequestError
from gateway.execution.call import Call
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.supervisor import RunSpec
from gateway.execution.tools import Tool
from gateway.http.engine import Engine
from gateway.http.requests import read_body
from gateway.http.responses import JSON, REQUEST_ID
from gateway.http.sessions import caller, identify
from gateway.run.records import RunKey
from gateway.wire.codec import decode
from gateway.wire.inputs import ToolRunInput, fingerprint, parse_body

__all__ = ["ToolRun", "output_of"]


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A request to run a tool, read and checked as far as its form goes."""

    engine: Engine
    request: Request
    tool: Tool
    body: ToolRunInput
    key: RunKey
    mark: bytes
    session_id: str

    @classmethod
    async def read(cls, engine: Engine, request: Request) -> ToolRun:
        """Raises `NotFound` (`tool_not_found`) or `RequestError`, before anything has started."""
        identity = identify(request)
        name = request.path_params["tool"]
        tool = engine.tools.get(name)
        if tool is None:
            raise NotFound(f"No tool {name!r}.", code="tool_not_found")
        body, parsed = parse_body(ToolRunInput, await read_body(request, engine.settings.max_body_bytes))
        header = request.headers.get("x-run-id")
        if header is not None and header != body.run_id:
            raise RequestError("X-Run-Id differs from the body's runId.", details=[{"field": "runId", "message": header}])
        key = RunKey(identity.owner, body.run_id or str(uuid.uuid4()))
        return cls(engine, request, tool, body, key, fingerprint(f"tools/{name}", parsed), identity.session_id)

    def check(self, *, background: bool) -> None:
        """Refuses what the tool does not do, and arguments that do not fit it."""
        tool = self.tool
        if background and tool.task_support == "forbidden":
            raise RequestError(f'"{tool.name}" does not run in the background.', code="task_forbidden")
        if not background and tool.task_support == "required":
            message = f'"{tool.name}" runs in the background only: send `Prefer: respond-async`.'
            raise RequestError(message, code="task_required")
        if not isinstance(self.body.arguments, dict):
            raise InvalidArguments(
                f'Arguments of "{tool.name}" must be a JSON object.',
                details=[{"field": "arguments", "message": "must be a JSON object"}],
            )
        tool.validate(self.body.arguments)

    def spec(self) -> RunSpec:
        """The run that the supervisor starts."""
        body = self.body
        identity = identify(self.request)._replace(session_id=self.session_id)
        who = caller(self.request, identity, self.request.scope[REQUEST_ID])
        call_id = body.tool_call_id or f"call_{uuid.uuid4().hex}"

        def prepare(run: LiveRun) -> None:
            Call(run, call_id, self.tool.name, self.tool, body.arguments, self._timeout())

        async def job(run: LiveRun, executor: Executor, context: Any) -> dict[str, Any]:
            output = await executor.execute(run.calls[call_id], who, context)
            return output.to_wire()

        return RunSpec(
            key=self.key,
            thread_id=body.thread_id or str(uuid.uuid4()),
            agent="tools",
            fingerprint=self.mark,
            caller=who,
            prepare=prepare,
            job=job,
            context=partial(self.engine.context_for, self.request),
            parent_run_id=body.parent_run_id,
            on_disconnect=body.on_disconnect,
            disconnect_grace=body.disconnect_grace,
        )

    def _timeout(self) -> float:
        """Seconds, 0 for ever: the caller's wish within the cap, else the tool's, else the gateway's."""
        settings = self.engine.settings
        wish = self.body.timeout
        if wish is None:
            return settings.tool_timeout if self.tool.timeout is None else self.tool.timeout
        cap = settings.max_tool_timeout
        return min(wish or cap, cap) if cap else wish


async def output_of(engine: Engine, request: Request, key: RunKey) -> Response:
    """Waits for the end of a run and answers its `ToolOutput`; the waiting caller counts as a viewer."""
    live = engine.supervisor.live(key)
    if live is not None:
        live.viewer_joined()
    try:
        if not await _ended_before_disconnect(engine, request, key):
            raise ClientDisconnect
    finally:
        if live is not None:
            live.viewer_left()
    record = await engine.store.get(key)
    if record is None or record.result is None:
        raise GatewayError("The run ended without a result; the gateway's log says why.")
    return JSON(decode(record.result))


async def _ended_before_disconnect(engine: Engine, request: Request, key: RunKey) -> bool:
    bounds = await engine.store.bounds(key)
    follower = engine.store.follow(key, bounds.last if bounds and not bounds.over else 0)

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        follower.close()

    watcher = asyncio.create_task(leave(), name="json watcher")
    try:
        async for _ in follower:
            pass
    finally:
        gone = watcher.done()
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    return not gone
