"""The HTTP API as OpenAPI 3.1, and the routes that serve it and the schemas: all made from the models, never read.

`OPERATIONS` is the one list of what a client may ask; a test holds it against the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import NotFound
from gateway.http.openapi_parts import COMMON_ERRORS, ERRORS, HEADERS, LINKS, PARAMETERS, STREAMED_EVENT
from gateway.http.responses import Endpoint
from gateway.wire.schema import all_definitions, json_text, schema_files
from gateway.wire.schema_models import DIALECT

__all__ = ["OPERATIONS", "Operation", "openapi_document", "openapi_routes", "openapi_text", "published_files"]

Json = dict[str, Any]

STREAM = "text/event-stream"
JSON_TYPE = "application/json"
_MEDIA_TYPES = {".json": "application/schema+json", ".ts": "application/typescript; charset=utf-8"}


class Answer(NamedTuple):
    """One successful answer: `content` is the name of a shape by media type, nothing for no body."""

    description: str
    content: Mapping[str, str] = {}
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """One method of one path. `errors` are the codes by status, beside those that every path may answer."""

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    parameters: tuple[str, ...] = ()
    body: str | None = None
    errors: Mapping[int, str] = {}
    session: bool = True  # whether it looks at who calls


def _json(shape: str, description: str, *headers: str) -> Answer:
    return Answer(description, {JSON_TYPE: shape}, headers)


_BODY = {413: ERRORS[413], 415: ERRORS[415]}
_START = {**_BODY, 409: "`run_conflict`, `cursor_ahead`", 410: ERRORS[410], 429: ERRORS[429], 503: ERRORS[503]}
_FOLLOW = {404: "`run_not_found`", 409: "`cursor_ahead`", 410: ERRORS[410], 429: "`too_many_viewers`"}
_EVENTS = Answer("The run's events, from the cursor to the end of the run.", {STREAM: "StreamedEvent"})
_CURSORS = ("Last-Event-ID", "lastEventId", "offset")

OPERATIONS: tuple[Operation, ...] = (
    Operation("get", "/agents", "listAgents", "The catalogue of agents.", {200: _json("AgentList", "All agents.")}),
    Operation(
        "post",
        "/agents/{agent}",
        "runAgent",
        "Start a run of an agent, or attach to the equal one that is there.",
        {200: _EVENTS},
        ("agent", "X-Run-Id", "Last-Event-ID"),
        "RunAgentInput",
        {404: "`agent_not_found`, `run_not_found`, `interrupt_not_found`", **_START},
    ),
    Operation(
        "get",
        "/agents/{agent}",
        "joinAgent",
        "Join a run of an agent (`runId`), or read what a thread holds (`threadId`); never starts anything.",
        {200: Answer(_EVENTS.description, {STREAM: "StreamedEvent", JSON_TYPE: "ThreadState"})},
        ("agent", "runId?", "threadId?", *_CURSORS),
        None,
        {**_FOLLOW, 404: "`agent_not_found`, `run_not_found`"},
    ),
    Operation(
        "get",
        "/agents/{agent}/capabilities",
        "agentCapabilities",
        "What an agent can do.",
        {200: _json("AgentCapabilities", "AG-UI's capabilities.")},
        ("agent",),
        None,
        {404: "`agent_not_found`"},
    ),
    Operation(
        "get",
        "/capabilities",
        "capabilities",
        "What the gateway can do.",
        {200: _json("AgentCapabilities", "AG-UI's capabilities.")},
    ),
    Operation(
        "get",
        "/tools",
        "listTools",
        "The catalogue of tools of this session.",
        {200: _json("ToolList", "All tools that this session may call.")},
    ),
    Operation(
        "post",
        "/tools/{name}",
        "runTool",
        "Run one tool call: as a stream; as one JSON answer (`Accept: application/json`); or in the background "
        "(`Prefer: respond-async`).",
        {
            200: Answer(
                "The run's events, or what the call ended in.", {STREAM: "StreamedEvent", JSON_TYPE: "ToolOutput"}
            ),
            202: _json("RunRecord", "The run has started; `Location` leads to it.", "Location"),
        },
        ("name", "Prefer", "X-Run-Id", "Last-Event-ID"),
        "ToolRunInput",
        {
            **_START,
            400: "`invalid_request`, `invalid_cursor`, `task_required`, `task_forbidden`",
            404: "`tool_not_found`, `run_not_found`",
            422: ERRORS[422],
        },
    ),
    Operation(
        "get",
        "/runs",
        "listRuns",
        "This session's runs, newest first.",
        {200: _json("RunList", "A page of runs.")},
        ("threadId?", "status", "limit", "after"),
    ),
    Operation(
        "get",
        "/runs/{runId}",
        "getRun",
        "What is known of a run; `wait` holds the answer until it is over.",
        {200: _json("RunRecord", "The run.")},
        ("runId", "wait", "ticket"),
        None,
        {404: "`run_not_found`"},
    ),
    Operation(
        "get",
        "/runs/{runId}/events",
        "followRun",
        "Follow a run from a cursor on.",
        {200: _EVENTS, 204: Answer("The run is over, and the cursor is its last id.")},
        ("runId", *_CURSORS, "ticket"),
        None,
        _FOLLOW,
    ),
    Operation(
        "post",
        "/runs/{runId}/ticket",
        "issueTicket",
        "A secret in a URL that reads one run: for `EventSource` (`follow`), or for somebody else (`share`).",
        {201: _json("IssuedTicket", "Use it as `?ticket=`, the first time within a minute.")},
        ("runId",),
        "TicketInput",
        {404: "`run_not_found`", **_BODY},
    ),
    Operation(
        "post",
        "/runs/{runId}/stop",
        "stopRun",
        "Stop a run; asking again changes nothing.",
        {200: _json("RunRecord", "It was over already."), 202: _json("RunRecord", "It is being stopped.")},
        ("runId",),
        "StopInput",
        {404: "`run_not_found`", **_BODY},
    ),
    Operation(
        "post",
        "/runs/{runId}/tool-calls/{toolCallId}/stop",
        "stopCall",
        "Stop one call; the run goes on.",
        {200: _json("RunRecord", "It was over already."), 202: _json("RunRecord", "It is being stopped.")},
        ("runId", "toolCallId"),
        "StopInput",
        {404: "`run_not_found`, `call_not_found`", **_BODY},
    ),
    Operation(
        "get",
        "/threads/{threadId}",
        "getThread",
        "A conversation as its runs left it.",
        {200: _json("ThreadView", "Messages, active runs, open questions.")},
        ("threadId",),
        None,
        {404: "`thread_not_found`"},
    ),
    Operation(
        "post",
        "/threads/{threadId}/stop",
        "stopThread",
        "Stop every active run of a thread.",
        {200: _json("StoppedRuns", "Nothing was active."), 202: _json("StoppedRuns", "They are being stopped.")},
        ("threadId",),
        "StopInput",
        {404: "`thread_not_found`", **_BODY},
    ),
    Operation(
        "get", "/healthz", "live", "Whether the process serves.", {200: _json("Health", "It does.")}, session=False
    ),
    Operation(
        "get",
        "/readyz",
        "ready",
        "Whether the gateway takes new runs.",
        {200: _json("Health", "It does."), 503: _json("Health", "It is shutting down.")},
        session=False,
    ),
    Operation("get", "/openapi.json", "openapi", "This document.", {200: _json("", "OpenAPI 3.1.")}, session=False),
    Operation(
        "get",
        "/schemas/{file}",
        "schema",
        "A published schema.",
        {
            200: Answer("The file.", {"application/schema+json": "", JSON_TYPE: "", "application/typescript": "text"}),
        },
        ("file",),
        None,
        {404: "`not_found`"},
        session=False,
    ),
)


@cache
def published_files() -> Mapping[str, str]:
    """The text of every published file by its path below `schemas/`."""
    return {**schema_files(), "openapi.json": openapi_text()}


@cache
def openapi_text() -> str:
    """`schemas/openapi.json`."""
    return json_text(openapi_document())


def openapi_document(server: str | None = None) -> Json:
    """The document; `server` is where the gateway is mounted, by default where the document lies."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    definitions = {name: _moved(schema) for name, schema in all_definitions().items()}
    definitions["StreamedEvent"] = STREAMED_EVENT
    made: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "AG-UI gateway",
            "version": "1.0",
            "description": "Runs tools and relays agents, and streams their AG-UI events.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "jsonSchemaDialect": DIALECT,
        "paths": paths,
        "components": {
            "schemas": definitions,
            "headers": HEADERS,
            "responses": {f"Error{status}": _refusal(status, codes) for status, codes in COMMON_ERRORS.items()},
        },
    }
    return made if server is None else {**made, "servers": [{"url": server}]}


def _operation(operation: Operation) -> Json:
    names = (*operation.parameters, "X-Session-Id") if operation.session else operation.parameters
    made: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(operation, name) for name in names],
        "responses": {str(status): _answer(answer) for status, answer in operation.answers.items()},
    }
    if operation.body is not None:
        required = operation.body == "RunAgentInput"
        made["requestBody"] = {"required": required, "content": {JSON_TYPE: {"schema": _ref(operation.body)}}}
    for status, codes in operation.errors.items():
        made["responses"].setdefault(str(status), _refusal(status, codes))
    for status in COMMON_ERRORS:
        made["responses"].setdefault(str(status), {"$ref": f"#/components/responses/Error{status}"})
    return made


def _parameter(operation: Operation, name: str) -> Json:
    place, schema, description = PARAMETERS[name]
    made = {"name": name.rstrip("?"), "in": place, "description": description, "schema": schema}
    if name == "file":
        made["schema"] = {"enum": [*schema_files(), "openapi.json"], "type": "string"}
    return {**made, "required": True} if place == "path" else made


def _answer(answer: Answer) -> Json:
    names = ("X-Request-Id", *answer.headers)
    made: Json = {"description": answer.description, "headers": {name: _header(name) for name in names}}
    if answer.content:
        made["content"] = {media_type: _content(shape) for media_type, shape in answer.content.items()}
    if links := LINKS.get(answer.content.get(JSON_TYPE, "")):
        made["links"] = links
    return made


def _content(shape: str) -> Json:
    if not shape:
        return {"schema": {"type": "object"}}
    return {"schema": {"type": "string"} if shape == "text" else _ref(shape)}


def _refusal(status: int, codes: str) -> Json:
    names = ["X-Request-Id"] + (["Retry-After"] if status in (429, 503) else [])
    return {
        "description": f"{codes}.",
        "headers": {name: _header(name) for name in names},
        "content": {JSON_TYPE: {"schema": _ref("ErrorAnswer")}},
    }


def _header(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


def _ref(shape: str) -> Json:
    return {"$ref": f"#/components/schemas/{shape}"}


def _moved(schema: Any) -> Any:
    """The same schema below `components`."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(value)
            for key, value in schema.items()
        }
    return [_moved(item) for item in schema] if isinstance(schema, list) else schema


# -- serving --


def openapi_routes() -> list[Route]:
    """`GET /openapi.json` and `GET /schemas/{file}`; they need nothing of the engine."""
    return [
        Route("/openapi.json", Endpoint(_serve_openapi), methods=["GET"]),
        Route("/schemas/{file:path}", Endpoint(_serve_schema), methods=["GET"]),
    ]


@lru_cache(maxsize=8)
def _document_at(server: str) -> str:
    return json_text(openapi_document(server))


async def _serve_openapi(request: Request) -> Response:
    # In a thread: the first time it takes half a second, and the loop has streams to serve.
    text = await asyncio.to_thread(_document_at, str(request.scope.get("root_path", "")) or "/")
    return Response(text, media_type=JSON_TYPE)


async def _serve_schema(request: Request) -> Response:
    name = request.path_params["file"]
    text = (await asyncio.to_thread(published_files)).get(name)
    if text is None:
        raise NotFound(f"No published schema {name!r}.")
    media_type = JSON_TYPE if name == "openapi.json" else _MEDIA_TYPES[name[name.rindex(".") :]]
    return Response(text, media_type=media_type)
