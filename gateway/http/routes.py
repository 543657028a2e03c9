"""What each path answers. An endpoint reads the request, asks the engine, and makes a response; no rules live here."""

from __future__ import annotations

from urllib.parse import quote

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import NotFound, RequestError
from gateway.execution.agents import TOOLS_AGENT
from gateway.execution.outcomes import ToolOutput
from gateway.http.agent_runs import agent_spec
from gateway.http.answers import answer_call, answer_question, claim_call, pause_call
from gateway.http.background import detach_all, detach_one
from gateway.http.capabilities import agent_items, capabilities
from gateway.http.engine import Engine
from gateway.http.published import published_routes
from gateway.http.requests import (
    cursor_of,
    page_size,
    parameter,
    path_id,
    prefers_async,
    read_body,
    unknown,
    wants_json,
)
from gateway.http.responses import JSON, Endpoint
from gateway.http.run_start import checked_cursor, rejoin, started, stream_run
from gateway.http.sessions import identify
from gateway.http.threads import (
    known_thread,
    last_interrupts,
    messages_of,
    runs_of_thread,
    thread_view,
    ui_messages,
)
from gateway.http.tickets import TICKET
from gateway.http.tool_runs import tool_spec
from gateway.http.waiting import output_of, wait_until_over
from gateway.run.records import CallRecord, RunRecord
from gateway.run.state import State
from gateway.stores.base import StopRequest
from gateway.wire.inputs import (
    AnswerInput,
    ClaimInput,
    Input,
    ResultInput,
    StopInput,
    TicketInput,
    WaitingInput,
    parse_body,
)

__all__ = ["Routes"]

MAX_SMALL_BODY = 16 * 1024
MAX_WAIT = 25.0  # seconds: below the idle limit of every proxy that is in wide use
MAX_PAGE = 200
STATUSES = frozenset(state.value for state in State if state is not State.NEW)  # nobody ever sees a new one


class _CallId(PathConvertor):
    """The id of a call, which has a `/` where the call is inside another one. What cannot be one is an unknown one."""

    regex = "(?s:.*)"


register_url_convertor("call", _CallId())


class Routes:
    """The endpoints over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def table(self) -> list[Route]:
        """Every path with its methods; paths are relative to where the gateway is mounted."""
        return [
            Route("/agents", Endpoint(self.list_agents), methods=["GET"]),
            Route("/agents/{agent}", Endpoint(self.agent), methods=["GET", "POST"]),
            Route("/agents/{agent}/capabilities", Endpoint(self.agent_capabilities), methods=["GET"]),
            Route("/capabilities", Endpoint(self.capabilities), methods=["GET"]),
            Route("/tools", Endpoint(self.list_tools), methods=["GET"]),
            Route("/tools/{tool}", Endpoint(self.run_tool), methods=["POST"]),
            Route("/runs", Endpoint(self.list_runs), methods=["GET"]),
            Route("/runs/{run_id}", Endpoint(self.get_run), methods=["GET"]),
            Route("/runs/{run_id}/events", Endpoint(self.follow), methods=["GET"]),
            Route("/runs/{run_id}/ticket", Endpoint(self.ticket), methods=["POST"]),
            Route("/runs/{run_id}/stop", Endpoint(self.stop_run), methods=["POST"]),
            Route("/runs/{run_id}/detach", Endpoint(self.detach_run), methods=["POST"]),
            Route("/runs/{run_id}/input", Endpoint(self.input), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id:call}/stop", Endpoint(self.stop_call), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id:call}/detach", Endpoint(self.detach_call), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id:call}/claim", Endpoint(self.claim_call), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id:call}/waiting", Endpoint(self.pause_call), methods=["POST"]),
            Route("/runs/{run_id}/tool-calls/{call_id:call}/result", Endpoint(self.answer_call), methods=["POST"]),
            Route("/threads/{thread_id}", Endpoint(self.get_thread), methods=["GET"]),
            Route("/threads/{thread_id}/stop", Endpoint(self.stop_thread), methods=["POST"]),
            *published_routes(),
            Route("/healthz", Endpoint(self.healthz), methods=["GET"]),
            Route("/readyz", Endpoint(self.readyz), methods=["GET"]),
        ]

    # -- agents --

    async def list_agents(self, request: Request) -> Response:
        identify(request)
        return JSON({"items": agent_items(self._engine.agents.all())})

    async def agent(self, request: Request) -> Response:
        # One route for both: of two, a 405 would name only the first one's methods in `Allow`.
        return await (self.run_agent(request) if request.method == "POST" else self.join_agent(request))

    async def run_agent(self, request: Request) -> Response:
        return await stream_run(self._engine, request, await agent_spec(self._engine, request))

    async def join_agent(self, request: Request) -> Response:
        """Joins a run of the agent (`runId`), or shows what a thread holds (`threadId`); never starts anything."""
        engine, agent, query = self._engine, self._agent(request), request.query_params
        cursor_of(request)  # one that is none is refused whatever else is asked for
        if run_id := query.get("runId"):
            return await rejoin(engine, request, await engine.find(request, run_id), agent)
        thread_id = query.get("threadId")
        if not thread_id:
            raise RequestError("runId or threadId is needed.", details=[{"field": "runId", "message": "missing"}])
        runs = await runs_of_thread(engine, request, thread_id)
        # Whoever joins takes part in the conversation; a background run is beside it.
        active = [run.key.run_id for run in runs if not run.over and run.agent == agent and not run.background]
        messages = ui_messages(await messages_of(engine, runs))
        asked = await last_interrupts(engine, [run for run in runs if run.agent == agent])
        shown = {"runId": active[-1]} if active else None
        return JSON({"messages": messages, "activeRun": shown, "interrupts": asked})

    async def agent_capabilities(self, request: Request) -> Response:
        return await self._capabilities(request, self._agent(request))

    async def capabilities(self, request: Request) -> Response:
        return await self._capabilities(request, TOOLS_AGENT)

    async def _capabilities(self, request: Request, agent: str) -> Response:
        tools = await self._engine.session_tools(identify(request))
        return JSON(capabilities(self._engine.settings, tools, agent))

    def _agent(self, request: Request) -> str:
        agent: str = request.path_params["agent"]
        if agent != TOOLS_AGENT and self._engine.agents.get(agent) is None:
            raise NotFound(f"No agent {agent!r}.", code="agent_not_found")
        return agent

    # -- tools --

    async def list_tools(self, request: Request) -> Response:
        tools = await self._engine.session_tools(identify(request))
        default = self._engine.settings.tool_timeout
        return JSON({"items": [tool.descriptor(default) for tool in tools.all()]})

    async def run_tool(self, request: Request) -> Response:
        engine = self._engine
        background = prefers_async(request)
        as_json = wants_json(request) and not background
        spec = await tool_spec(engine, request, background=background, as_json=as_json)
        if not background and not as_json:
            return await stream_run(engine, request, spec)
        record = await started(engine, request, spec)
        if not background:
            return await output_of(engine, request, record)
        location = quote(f"{request.scope.get('root_path', '')}/runs/") + quote(record.key.run_id, safe="")
        return JSON(record.to_wire(), status_code=202, headers={"location": location})

    # -- runs --

    async def list_runs(self, request: Request) -> Response:
        identity, query = identify(request), request.query_params
        limit = page_size(query, 50, MAX_PAGE)
        status = query.get("status")
        if status is not None and status not in STATUSES:
            raise RequestError("status is not one.", details=[{"field": "status", "message": f"not one: {status!r}"}])
        if identity.owner is None:
            return JSON({"items": [], "next": None})
        after = query.get("after") or None
        page = await self._engine.store.list_runs(
            identity.owner, thread_id=query.get("threadId"), status=status, limit=limit, after=after
        )
        return JSON({"items": [record.to_wire() for record in page.items], "next": page.next})

    async def get_run(self, request: Request) -> Response:
        run_id = path_id(request, "run")
        if (token := request.scope.get(TICKET)) is not None:
            _, record = await self._engine.tickets.run_of(token, run_id, share_only=True)
        else:
            record = await self._engine.find(request, run_id)
        wait = parameter(request.query_params, "wait", 0, 0, MAX_WAIT)
        if wait and not record.over:
            await wait_until_over(self._engine, record.key, wait)
            record = await self._engine.store.get(record.key) or record
        return JSON(record.to_wire())

    async def ticket(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run"))
        wanted, _ = parse_body(TicketInput, await read_body(request, MAX_SMALL_BODY))
        return JSON(await self._engine.tickets.issue(record, wanted.use), status_code=201)

    async def follow(self, request: Request) -> Response:
        run_id = path_id(request, "run")
        if (token := request.scope.get(TICKET)) is not None:
            return await self._follow_by_ticket(request, token, run_id)
        record = await self._engine.find(request, run_id)
        cursor, bounds = await checked_cursor(self._engine, request, record)
        if bounds.over and cursor == bounds.last:
            return Response(status_code=204)
        self._engine.viewers.admit(record.key)
        return self._engine.stream(record, cursor)

    async def _follow_by_ticket(self, request: Request, token: str, run_id: str) -> Response:
        engine = self._engine
        ticket, record = await engine.tickets.run_of(token, run_id, share_only=False)
        cursor, bounds = await checked_cursor(engine, request, record)
        ticket = await engine.tickets.use(ticket, cursor)
        if bounds.over and cursor == bounds.last:
            return Response(status_code=204)
        engine.viewers.admit(record.key)
        stream = engine.stream(record, cursor, counts=ticket.use != "share")
        engine.tickets.bind(ticket, stream)
        return stream

    # -- threads --

    async def get_thread(self, request: Request) -> Response:
        thread_id = path_id(request, "thread")
        runs = await known_thread(self._engine, request, thread_id)
        return JSON(await thread_view(self._engine, thread_id, runs))

    async def stop_thread(self, request: Request) -> Response:
        runs = await known_thread(self._engine, request, path_id(request, "thread"))
        stop, _ = parse_body(StopInput, await read_body(request, MAX_SMALL_BODY))
        active = [run for run in runs if not run.over]
        for run in active:
            await self._engine.supervisor.stop(StopRequest(run.key, "user", stop.reason))
        ids = [run.key.run_id for run in active]
        return JSON({"runIds": ids}, status_code=202 if ids else 200)

    # -- Stop --

    async def stop_run(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run"))
        stop, _ = parse_body(StopInput, await read_body(request, MAX_SMALL_BODY))
        status = 200 if record.over else 202
        if not record.over or record.status == "interrupted":
            stopped = StopRequest(record.key, "user", stop.reason)
            record = await self._engine.supervisor.stop(stopped) or record
        return JSON(record.to_wire(), status_code=status)

    async def stop_call(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run"))
        call_id = request.path_params["call_id"]
        call = record.call(call_id) or _call_around(record, call_id)
        if call is None:
            raise unknown("call")
        stop, _ = parse_body(StopInput, await read_body(request, MAX_SMALL_BODY))
        if record.over or (call.ended_at is not None and not self._parks(record, call)):
            return JSON(record.to_wire())
        live = self._engine.supervisor.live(record.key)
        inside = record.call(call_id) is None
        if inside and live is not None and live.find_call(call_id) is None:  # that one is over
            return JSON(record.to_wire())
        stopped = StopRequest(record.key, "user", stop.reason, call_id)
        record = await self._engine.supervisor.stop(stopped) or record
        return JSON(record.to_wire(), status_code=202)

    def _parks(self, record: RunRecord, call: CallRecord) -> bool:
        """Whether a call has asked by an interrupt and can be stopped alone, as its worker knows for sure.

        An agent that has made it waits for ever, until the run ends with the question, or is stopped as a whole.
        """
        run = self._engine.supervisor.live(record.key)
        known = None if run is None else run.calls.get(call.call_id)
        if run is None or known is None:
            return call.status == "interrupted"
        return known.parked and not run.streaming

    # -- detach --

    async def detach_run(self, request: Request) -> Response:
        record = await self._engine.find(request, path_id(request, "run"))
        parse_body(Input, await read_body(request, MAX_SMALL_BODY))
        return await detach_all(self._engine, record)

    async def detach_call(self, request: Request) -> Response:
        record, call_id = await self._call_of(request)
        parse_body(Input, await read_body(request, MAX_SMALL_BODY))
        return await detach_one(self._engine, record, call_id)

    async def _call_of(self, request: Request) -> tuple[RunRecord, str]:
        record = await self._engine.find(request, path_id(request, "run"))
        call = record.call(request.path_params["call_id"])
        if call is None:
            raise unknown("call")
        return record, call.call_id

    # -- answers --

    async def input(self, request: Request) -> Response:
        engine = self._engine
        record = await engine.find(request, path_id(request, "run"))
        given, _ = parse_body(AnswerInput, await read_body(request, engine.settings.max_body_bytes))
        await answer_question(engine, record, given, await engine.session_tools(identify(request)))
        return await self._accepted(record)

    async def claim_call(self, request: Request) -> Response:
        record, call_id = await self._call_of(request)
        given, _ = parse_body(ClaimInput, await read_body(request, MAX_SMALL_BODY))
        return JSON(await claim_call(self._engine, record, call_id, given))

    async def pause_call(self, request: Request) -> Response:
        record, call_id = await self._call_of(request)
        given, _ = parse_body(WaitingInput, await read_body(request, MAX_SMALL_BODY))
        await pause_call(self._engine, record, call_id, given)
        return await self._accepted(record)

    async def answer_call(self, request: Request) -> Response:
        record, call_id = await self._call_of(request)
        body = await read_body(request, self._engine.settings.max_result_bytes + MAX_SMALL_BODY)
        given, _ = parse_body(ResultInput, body)
        _check_output(given)
        await answer_call(self._engine, record, call_id, given)
        return await self._accepted(record)

    async def _accepted(self, record: RunRecord) -> Response:
        return JSON((await self._engine.store.get(record.key) or record).to_wire(), status_code=202)

    # -- operation --

    async def healthz(self, request: Request) -> Response:
        return JSON({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        if self._engine.supervisor.draining:
            return JSON({"status": "draining"}, status_code=503)
        if not await self._engine.is_up():
            return JSON({"status": "store_unavailable"}, status_code=503)
        return JSON({"status": "ready"})


def _call_around(record: RunRecord, call_id: str) -> CallRecord | None:
    """The call of the record that made `<its id>/<n>`, itself or through others: those inside are in no record."""
    while "/" in call_id:
        call_id, _, _ = call_id.rpartition("/")
        if (call := record.call(call_id)) is not None:
            return call
    return None


def _check_output(given: ResultInput) -> None:
    if given.output is not None:
        try:
            ToolOutput.from_wire(given.output)
        except ValueError as error:
            message = f"output: {error}"
            raise RequestError(message, details=[{"field": "output", "message": str(error)}]) from None
