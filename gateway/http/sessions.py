"""Who calls: the session of a request, the owner of what it starts, and the identity that tools see."""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection

from gateway.errors import RequestError
from gateway.execution.context import Caller

__all__ = ["COOKIE", "Identity", "identify", "new_session"]

COOKIE = "agui_session"
_SESSION = re.compile(r"[A-Za-z0-9_-]{16,128}")

# What tools may see of a request: nothing that could be a credential (contract 2.2).
_HEADERS = frozenset({"accept-language", "user-agent", "x-request-id", "traceparent"})


class Identity(NamedTuple):
    """`owner` is None for a caller without session: what it starts is a capability."""

    owner: str | None
    session_id: str


def new_session() -> str:
    """A session secret, 192 bits."""
    return secrets.token_urlsafe(24)


def identify(connection: HTTPConnection) -> Identity:
    """The session of a request: `X-Session-Id`, else the page's cookie; `RequestError` for a malformed header."""
    session = connection.headers.get("x-session-id")
    if session is not None:
        if not _SESSION.fullmatch(session):
            raise RequestError(
                "X-Session-Id must be 16 to 128 of A-Z a-z 0-9 _ -",
                details=[{"field": "X-Session-Id", "message": "malformed"}],
            )
    else:
        session = connection.cookies.get(COOKIE)
        if session is None or not _SESSION.fullmatch(session):
            return Identity(None, f"anon:{secrets.token_urlsafe(16)}")
    return Identity(f"anon:{session}", f"anon:{session}")


def caller(connection: HTTPConnection, identity: Identity, request_id: str) -> Caller:
    """What a run keeps of the request that starts it."""
    client_request_id = connection.headers.get("x-request-id")
    headers = {
        name: value
        for name, value in connection.headers.items()
        if name in _HEADERS or name.startswith("mcp-")
    }
    metadata: dict[str, Any] = {
        "headers": headers,
        "forwarded_props": {},
        "context": [],
        "client_tools": [],
        "client_request_id": client_request_id,
    }
    return Caller(
        request_id=request_id,
        session_id=identity.session_id,
        owner=identity.owner,
        client_request_id=client_request_id,
        address=connection.client.host if connection.client else None,
        metadata=metadata,
    )
