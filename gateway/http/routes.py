"""What each path answers. An endpoint reads the request, asks the engine, and makes a response; no rules live here."""

from __future__ import annotations


from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import Conflict, CursorExpired, NotFound, RequestError
from gateway.http.engine import Engine
from gateway.http.requests import (
    cursor_of,
    expired_details,
    path_id,
    prefers_async,
    read_body,
    wants_json,
)
from gateway.http.responses import JSON, Endpoint
from gateway.http.sessions import identify
from gateway.http.tool_runs import ToolRun, output_of
from gateway.run.records import RunRecord
from gateway.stores.base import Bounds, StopRequest
from gateway.wire.inputs import StopInput, parse_body

__all__ = ["Routes"]

MAX_STOP_BODY = 16 * 1024


class Routes:
    """The endpoints over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def table(self) -> list[Route]:
        """Every path with its methods; paths are relative to where the gateway is mounted."""
        return [
            Route("/tools", Endpoint(self.list_tools), methods=["GET"]),
            Route("/tools/{tool}", Endpoint(self.run_tool), methods=["POST"]),
            Route("/runs", Endpoint(self.list_runs), methods=["GET"]),
            Route("/runs/{run_id}", Endpoint(self.get_run), methods=["GET"]),
            Route("/runs/{run_id}/events", Endpoint(self.follow), methods=["GET"]),
            Route("/runs/{run_id}/stop", Endpoint(self.stop_run), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id}/stop", Endpoint(self.stop_call), methods=["POST"]),
            Route("/healthz", Endpoint(self.healthz), methods=["GET"]),
            Route("/readyz", Endpoint(self.readyz), methods=["GET"]),
        ]

    # -- tools --

    async def list_tools(self, request: Request) -> Response:
        identify(request)
        default = self._engine.settings.tool_timeout
        return JSON({"items": [tool.descriptor(default) for tool in self._engine.tools.visible()]})

    async def run_tool(self, request: Request) -> Response:
        engine = self._engine
        run = await ToolRun.read(engine, request)
        if request.headers.get("last-event-id"):
            return await self._read_again(request, run.key.run_id)
        background = prefers_async(request)
        run.check(background=background)
        if not background and not wants_json(request):
            engine.viewers.admit(run.key)
        record, _ = await engine.supervisor.start(run.spec())
        if background:
            headers = {"location": f"{request.scope.get('root_path', '')}/runs/{record.key.run_id}"}
            return JSON(record.to_wire(), status_code=202, headers=headers)
        if wants_json(request):
            return await output_of(engine, request, record.key)
        return engine.stream(record.key, 0)

    async def _read_again(self, request: Request, run_id: str) -> Response:
        """A POST with `Last-Event-ID` comes from a client that lost its connection: it only reads."""
        record = await self._engine.find(request, run_id)
        cursor, bounds = await self._cursor(request, record)
        if bounds.over and cursor == bounds.last:
            return Response(media_type="text/event-stream")
        return self._engine.stream(record.key, cursor)

    # -- runs --

    async def list_runs(self, request: Request) -> Response:
        identity = identify(request)
        limit = request.query_params.get("limit", "50")
        if not limit.isdecimal() or not 1 <= int(limit) <= 200:
            raise RequestError("limit must be 1 to 200.", details=[{"field": "limit", "message": "1 to 200"}])
        if identity.owner is None:
            return JSON({"items": [], "next": None})
        page = await self._engine.store.list_runs(
            identity.owner,
            thread_id=request.query_params.get("threadId"),
            status=request.query_params.get("status"),
            limit=int(limit),
            after=request.query_params.get("after"),
        )
        return JSON({"items": [record.to_wire() for record in page.items], "next": page.next})

    async def get_run(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run_id"))
        return JSON(record.to_wire())

    async def follow(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run_id"))
        cursor, bounds = await self._cursor(request, record)
        if bounds.over and cursor == bounds.last:
            return Response(status_code=204)
        self._engine.viewers.admit(record.key)
        return self._engine.stream(record.key, cursor)

    async def _cursor(self, request: Request, record: RunRecord) -> tuple[int, Bounds]:
        """The cursor of a request on a run, checked against what the store still has."""
        cursor = cursor_of(request)
        bounds = await self._engine.store.bounds(record.key)
        if bounds is None:
            raise NotFound("No such run.", code="run_not_found")
        if cursor > bounds.last:
            if not bounds.over:
                raise Conflict(f"The run has no event {cursor} yet.", code="cursor_ahead")
            return bounds.last - 1, bounds
        if cursor < bounds.first - 1:
            details = expired_details(bounds.first, bounds.last, record)
            raise CursorExpired("The events after this cursor are gone.", details=details)
        return cursor, bounds

    # -- Stop --

    async def stop_run(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run_id"))
        stop, _ = parse_body(StopInput, await read_body(request, MAX_STOP_BODY))
        if not record.over:
            stopped = StopRequest(record.key, "user", stop.reason)
            record = await self._engine.supervisor.stop(stopped) or record
            return JSON(record.to_wire(), status_code=202)
        return JSON(record.to_wire())

    async def stop_call(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run_id"))
        call = record.call(path_id(request, "call_id"))
        if call is None:
            raise NotFound("No such call in this run.", code="call_not_found")
        stop, _ = parse_body(StopInput, await read_body(request, MAX_STOP_BODY))
        if record.over or call.ended_at is not None:
            return JSON(record.to_wire())
        stopped = StopRequest(record.key, "user", stop.reason, call.call_id)
        record = await self._engine.supervisor.stop(stopped) or record
        return JSON(record.to_wire(), status_code=202)

    # -- operation --

    async def healthz(self, request: Request) -> Response:
        return JSON({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        if self._engine.supervisor.draining:
            return JSON({"status": "draining"}, status_code=503)
        return JSON({"status": "ready"})


