"""What many operations of the OpenAPI document share: parameters, headers, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from gateway.wire.schema_answers import RunStatus
from gateway.wire.schema_models import ID

__all__ = ["COMMON_ERRORS", "ERRORS", "HEADERS", "LINKS", "PARAMETERS", "STREAMED_EVENT", "Parameter"]

Json = dict[str, Any]

_ID: Json = dict(ID)
_CURSOR: Json = {"type": "string", "pattern": "^(-1|[0-9]{1,18})?$"}


class Parameter(NamedTuple):
    """Where it is sent, what it may be, what it means."""

    place: str
    schema: Json
    description: str


PARAMETERS: Mapping[str, Parameter] = {
    "agent": Parameter("path", {"type": "string", "minLength": 1}, "Name of an agent; `tools` is built in."),
    "name": Parameter("path", {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}, "Name of a tool."),
    "runId": Parameter("path", _ID, "Id of a run."),
    "toolCallId": Parameter("path", _ID, "Id of a call of the run."),
    "threadId": Parameter("path", _ID, "Id of a thread."),
    "file": Parameter("path", {"type": "string"}, "Path below `schemas/`."),
    "runId?": Parameter("query", {"type": "string"}, "The run to join."),
    "threadId?": Parameter("query", {"type": "string"}, "Only what belongs to this thread."),
    "status": Parameter("query", {"enum": list(get_args(RunStatus)), "type": "string"}, "Only runs in this state."),
    "limit": Parameter("query", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "Most runs a page."),
    "after": Parameter("query", {"type": "string"}, "`next` of the page before."),
    "wait": Parameter("query", {"type": "number", "minimum": 0, "maximum": 25, "default": 0}, "Seconds."),
    "ticket": Parameter("query", {"type": "string"}, "Instead of credentials: what `issueTicket` answered."),
    "offset": Parameter("query", _CURSOR, "As `Last-Event-ID`, which beats it."),
    "lastEventId": Parameter("query", _CURSOR, "As `Last-Event-ID`, which beats it."),
    "Last-Event-ID": Parameter("header", _CURSOR, "Id of the last event that the client has; `-1`: none."),
    "Prefer": Parameter("header", {"type": "string"}, "`respond-async`: answer at once, run in the background."),
    "X-Run-Id": Parameter("header", _ID, "Must be the body's `runId`."),
    "X-Session-Id": Parameter(
        "header",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,128}$"},
        "The session, a secret of the client's choice; without it the page's cookie `agui_session`, else none.",
    ),
}

HEADERS: Mapping[str, Json] = {
    "Location": {"description": "Where the run is.", "required": True, "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}},
    "X-Request-Id": {"description": "The gateway's id of the request.", "required": True, "schema": {"type": "string"}},
}

ERRORS: Mapping[int, str] = {
    400: "`invalid_request`, `invalid_cursor`",
    401: "`unauthenticated`",
    403: "`anonymous_not_allowed`, `bad_origin`",
    410: "`cursor_expired`",
    413: "`body_too_large`",
    415: "`unsupported_media_type`",
    421: "`bad_host`",
    422: "`invalid_arguments`",
    429: "`too_many_runs`, `too_many_viewers`",
    500: "`internal`",
    503: "`draining`, `store_full`, `store_unavailable`",
}
COMMON_ERRORS: Mapping[int, str] = {status: ERRORS[status] for status in (400, 401, 403, 421, 500)}

# OpenAPI 3.1 has no word for the items of a stream, and tools take its schema for that of each item, as 3.2 spells it.
STREAMED_EVENT: Json = {
    "description": "One frame of a stream: `id` is the event's number in its run, `data` the event.",
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/Event"},
        },
    },
    "required": ["data"],
}


def _link(operation: str, **parameters: str) -> Json:
    return {"operationId": operation, "parameters": {f"path.{name}": where for name, where in parameters.items()}}


_RUN = "$response.body#/runId"
_FIRST_CALL = "$response.body#/toolCalls/0/toolCallId"
_RUN_LINKS: Json = {
    "answer": _link("answerQuestion", runId=_RUN),
    "claim": _link("claimCall", runId=_RUN, toolCallId=_FIRST_CALL),
    "detach": _link("detachRun", runId=_RUN),
    "detachCall": _link("detachCall", runId=_RUN, toolCallId=_FIRST_CALL),
    "events": _link("followRun", runId=_RUN),
    "run": _link("getRun", runId=_RUN),
    "stop": _link("stopRun", runId=_RUN),
    "stopCall": _link("stopCall", runId=_RUN, toolCallId=_FIRST_CALL),
    "stopThread": _link("stopThread", threadId="$response.body#/threadId"),
    "ticket": _link("issueTicket", runId=_RUN),
    "thread": _link("getThread", threadId="$response.body#/threadId"),
}
LINKS: Mapping[str, Json] = {
    "AgentList": {
        "capabilities": _link("agentCapabilities", agent="$response.body#/items/0/name"),
        "run": _link("runAgent", agent="$response.body#/items/0/name"),
    },
    "Claimed": {
        # The answer has no ids: they are those of the request.
        "waiting": _link("callWaits", runId="$request.path.runId", toolCallId="$request.path.toolCallId"),
        "result": _link("callResult", runId="$request.path.runId", toolCallId="$request.path.toolCallId"),
    },
    "Detached": {"run": _link("getRun", runId=_RUN), "stop": _link("stopRun", runId=_RUN)},
    "DetachedAll": {"run": _link("getRun", runId="$response.body#/jobs/0/runId")},
    "RunRecord": _RUN_LINKS,
    "ToolList": {"run": _link("runTool", name="$response.body#/items/0/name")},
}
"""Where an answer of a shape leads."""
