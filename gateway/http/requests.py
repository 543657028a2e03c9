"""Reading a request: its body within limits, its cursor, and which kind of answer it asks for."""

from __future__ import annotations

import math
import re

from starlette.datastructures import QueryParams
from starlette.requests import Request

from gateway.errors import NotFound, RequestError, TooLarge, UnsupportedMediaType
from gateway.run.records import RunRecord
from gateway.wire.inputs import valid_id

__all__ = [
    "cursor_of",
    "expired_details",
    "page_size",
    "parameter",
    "path_id",
    "prefers_async",
    "read_body",
    "unknown",
    "wants_json",
]

_CURSOR = re.compile(r"-1|[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,4})?")


def parameter(query: QueryParams, name: str, default: float, low: float, high: float) -> float:
    """A number of the query; `RequestError` that names it when it is none or out of bounds."""
    given = query.get(name)
    if given is None:
        return default
    value = float(given) if _NUMBER.fullmatch(given) else math.nan
    if not low <= value <= high:
        message = f"{name} must be a number from {low:g} to {high:g}."
        raise RequestError(message, details=[{"field": name, "message": message}])
    return value


def page_size(query: QueryParams, default: int, most: int) -> int:
    """`?limit=`, a whole number."""
    given = int(parameter(query, "limit", default, 1, most))
    if not query.get("limit", "1").isdecimal():
        message = "limit must be a whole number."
        raise RequestError(message, details=[{"field": "limit", "message": message}])
    return given


async def read_body(request: Request, limit: int) -> bytes:
    """The body; `TooLarge` beyond `limit` bytes, `UnsupportedMediaType` for a non-empty one that is not JSON."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise TooLarge(f"The body has more than {limit} bytes.")
    body = b""
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(f"The body has more than {limit} bytes.")
        parts.append(part)
    body = b"".join(parts)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media_type != "application/json":
        raise UnsupportedMediaType("The body must be application/json.")
    return body


def path_id(request: Request, name: str) -> str:
    """The id of a `run` or `thread` in the path; one that none can have is as unknown as any other."""
    try:
        return valid_id(request.path_params[f"{name}_id"])
    except ValueError:
        raise unknown(name) from None


def unknown(what: str) -> NotFound:
    """The one answer for a `run`, `thread` or `call` that is not there, or not the caller's."""
    return NotFound("No such call in this run." if what == "call" else f"No such {what}.", code=f"{what}_not_found")


def cursor_of(request: Request) -> int:
    """Number of the last event the client has: `Last-Event-ID`, else `?lastEventId=`, else `?offset=`; 0 for none."""
    query = request.query_params
    given = request.headers.get("last-event-id") or query.get("lastEventId") or query.get("offset")
    if given is None or given == "":
        return 0
    if not _CURSOR.fullmatch(given):
        raise RequestError(
            "The cursor must be the id of an event, or -1 for the start.",
            code="invalid_cursor",
            details=[{"field": "Last-Event-ID", "message": f"not an event id: {given[:50]!r}"}],
        )
    return max(int(given), 0)


def wants_json(request: Request) -> bool:
    """Whether one JSON answer is asked for: `Accept` names it and not the stream."""
    accepted = _accepted(request)
    return "application/json" in accepted and "text/event-stream" not in accepted


def prefers_async(request: Request) -> bool:
    """`Prefer: respond-async` (RFC 7240)."""
    return any(
        part.partition(";")[0].strip().lower() == "respond-async"
        for header in request.headers.getlist("prefer")
        for part in header.split(",")
    )


def _accepted(request: Request) -> set[str]:
    return {
        part.partition(";")[0].strip().lower()
        for header in request.headers.getlist("accept")
        for part in header.split(",")
    }


def expired_details(first: int, last: int, record: RunRecord) -> dict[str, object]:
    """The `details` of `410 cursor_expired`."""
    return {"firstEventId": first, "lastEventId": last, "status": record.status}
