"""Answers that are not streams: JSON, the error body of every refusal, and the header that all of them carry."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError, RequestError
from gateway.wire.codec import encode

__all__ = ["Endpoint", "endpoint_of", "JSON", "error_response"]

logger = logging.getLogger("gateway")

REQUEST_ID = "gateway.request_id"
HEADERS = "gateway.headers"  # what every answer to a request must carry
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


class JSON(Response):
    """A JSON answer, encoded as all payloads are."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def error_response(error: Exception) -> Response:
    """`{"error": {"code", "message", "details"?}}` with the error's status; unknown errors are 500 and say nothing."""
    headers: Mapping[str, str] = {}
    if isinstance(error, HTTPException):
        status, code, message, details = (
            error.status_code,
            _HTTP_CODES.get(error.status_code, "http_error"),
            error.detail,
            None,
        )
        headers = error.headers or {}
    elif isinstance(error, GatewayError):
        status, code, message, details = error.status, error.code, error.message, error.details
        if isinstance(error, RequestError):
            headers = error.headers
    else:
        logger.error("A request failed inside the gateway", exc_info=error)
        status, code, message, details = 500, "internal", "The gateway failed; its log says why.", None
    body: dict[str, Any] = {"code": code, "message": message}
    if details is not None:
        body["details"] = details
    return JSON({"error": body}, status_code=status, headers=dict(headers))


class Endpoint:
    """An endpoint function whose errors are answers, too."""

    def __init__(self, function: Callable[[Request], Awaitable[Response]]) -> None:
        self._function = function

    async def respond(self, scope: Scope, receive: Receive) -> Response:
        """The answer; it is sent by the caller, so that nothing of a request is kept while a stream lives."""
        try:
            return await self._function(Request(scope, receive))
        except ClientDisconnect:
            raise  # nobody is there to be answered
        except Exception as error:  # noqa: BLE001 - the boundary of HTTP: every error is an answer
            return error_response(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self.respond(scope, receive))(scope, receive, send)


def endpoint_of(routes: Sequence[Route], scope: Scope) -> Endpoint:
    """The endpoint for a request, whose path parameters go into the scope; `HTTPException` 404 or 405 when none is."""
    allowed: set[str] = set()
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            return cast("Endpoint", route.endpoint)
        if match is Match.PARTIAL:
            allowed |= route.methods or set()
    if allowed:
        raise HTTPException(405, headers={"allow": ", ".join(sorted(allowed))})
    raise HTTPException(404)
