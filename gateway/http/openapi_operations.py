"""What a client may ask over HTTP: one list of all operations, from which the OpenAPI document is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.http.openapi_parts import ERRORS

__all__ = ["JSON_TYPE", "OPERATIONS", "Answer", "Operation"]

STREAM = "text/event-stream"
JSON_TYPE = "application/json"


class Answer(NamedTuple):
    """One answer that is no `ErrorAnswer`: `content` is the name of a shape by media type, nothing for no body.

    `A | B` is either of two shapes.
    """

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
_START = {
    **_BODY,
    409: "`run_conflict`, `cursor_ahead`, `interrupt_answered`, `interrupt_closed`",
    410: "`cursor_expired`, `interrupt_expired`",
    422: "`invalid_payload`, `invalid_arguments`",
    429: ERRORS[429],
    503: ERRORS[503],
}
_FOLLOW = {404: "`run_not_found`", 409: "`cursor_ahead`", 410: ERRORS[410], 429: "`too_many_viewers`"}
_EVENTS = Answer("The run's events, from the cursor to the end of the run.", {STREAM: "StreamedEvent"})
_CALL = ("runId", "toolCallId")
_NO_CALL = "`run_not_found`, `call_not_found`"
_REJECTED = _json("DetachRejected", "Nothing has moved: `not_running`, `not_detachable`.")
_PAGE = {404: _NO_CALL, 409: "`claim_lost`, `not_waiting`", **_BODY}  # of a page that runs a tool
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
        {**_START, 404: "`agent_not_found`, `run_not_found`, `interrupt_not_found`"},
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
                "The run's events, or what the call ended in: a result, or questions that a `resume` answers.",
                {STREAM: "StreamedEvent", JSON_TYPE: "ToolOutput | InterruptedOutput"},
            ),
            202: _json("RunRecord", "The run has started; `Location` leads to it.", "Location"),
        },
        ("name", "Prefer", "X-Run-Id", "Last-Event-ID"),
        "ToolRunInput",
        {
            **_START,
            400: "`invalid_request`, `invalid_cursor`, `task_required`, `task_forbidden`",
            404: "`tool_not_found`, `run_not_found`, `interrupt_not_found`",
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
        "post",
        "/runs/{runId}/detach",
        "detachRun",
        "Move all calls of a run to the background; the run goes on without them.",
        {202: _json("DetachedAll", "They go on as runs of their own."), 409: _REJECTED},
        ("runId",),
        None,
        {404: "`run_not_found`", **_BODY},
    ),
    Operation(
        "post",
        "/runs/{runId}/tool-calls/{toolCallId}/detach",
        "detachCall",
        "Move one call to the background; the run goes on without it.",
        {202: _json("Detached", "It goes on as a run of its own."), 409: _REJECTED},
        _CALL,
        None,
        {404: _NO_CALL, **_BODY},
    ),
    Operation(
        "post",
        "/runs/{runId}/input",
        "answerQuestion",
        "Answer a question that a run has asked and waits for.",
        {202: _json("RunRecord", "The call goes on with the answer.")},
        ("runId",),
        "AnswerInput",
        {
            404: "`run_not_found`, `interrupt_not_found`",
            409: "`interrupt_answered`, `interrupt_closed`",
            422: "`invalid_payload`, `invalid_arguments`",
            **_BODY,
        },
    ),
    Operation(
        "post",
        "/runs/{runId}/tool-calls/{toolCallId}/claim",
        "claimCall",
        "A page takes the call of one of its tools, or renews its claim; the first one has it.",
        {200: _json("Claimed", "It is this page's until then.")},
        _CALL,
        "ClaimInput",
        _PAGE,
    ),
    Operation(
        "post",
        "/runs/{runId}/tool-calls/{toolCallId}/waiting",
        "callWaits",
        "The page's tool waits for a person, so its clock stops.",
        {202: _json("RunRecord", "The run waits with it.")},
        _CALL,
        "WaitingInput",
        _PAGE,
    ),
    Operation(
        "post",
        "/runs/{runId}/tool-calls/{toolCallId}/result",
        "callResult",
        "What the page's tool came to; the run goes on with it.",
        {202: _json("RunRecord", "The call is over.")},
        _CALL,
        "ResultInput",
        _PAGE,
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
