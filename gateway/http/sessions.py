"""Who calls: the session of a request, the owner of what it starts, and the identity that tools see."""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import HTTPConnection

from gateway.errors import RequestError
from gateway.execution.caller import AuthContext, Caller, TraceContext

__all__ = ["AUTH", "COOKIE", "SHOWN_HEADERS", "Identity", "caller", "identify", "new_session"]

COOKIE = "agui_session"
_SESSION = re.compile(r"[A-Za-z0-9_-]{16,128}")

# What tools may see of a request: nothing that could be a credential (contract 2.2).
_HEADERS = frozenset({"accept-language", "user-agent", "x-request-id", "traceparent"})
# Whatever is configured: a name like this carries a secret, and tools write what they see to logs.
_CREDENTIAL = re.compile(r"auth(?!ors?(-|$))|cookie|token|secret|password|api-?key|x-session-id|credential")
SHOWN_HEADERS = "gateway.shown_headers"  # the configured ones, lower-case

# No version ff, and neither id all zeros: W3C Trace Context, 3.2.2.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

AUTH = "gateway.auth"


class Identity(NamedTuple):
    """`owner` is None for a caller without subject and session: what it starts is a capability."""

    owner: str | None
    session_id: str
    auth: AuthContext | None = None


def new_session() -> str:
    """A session secret, 192 bits."""
    return secrets.token_urlsafe(24)


def identify(connection: HTTPConnection) -> Identity:
    """Who a request comes from; `RequestError` for a malformed `X-Session-Id`.

    The owner is the authenticated subject when there is one, then the session only scopes what it sees; else the
    session of the header, else of the page's cookie.
    """
    session = _session(connection)
    auth: AuthContext | None = connection.scope.get(AUTH)
    if auth is not None:
        subject = quote(auth.subject, safe="")
        return Identity(f"user:{subject}", f"user:{subject}:{session or 'default'}", auth)
    if session is None:
        return Identity(None, f"anon:{secrets.token_urlsafe(16)}")
    return Identity(f"anon:{session}", f"anon:{session}")


def _session(connection: HTTPConnection) -> str | None:
    session = connection.headers.get("x-session-id")
    if session is None:
        session = connection.cookies.get(COOKIE)
        return session if session is not None and _SESSION.fullmatch(session) else None
    if not _SESSION.fullmatch(session):
        raise RequestError(
            "X-Session-Id must be 16 to 128 of A-Z a-z 0-9 _ -",
            details=[{"field": "X-Session-Id", "message": "malformed"}],
        )
    return session


def caller(connection: HTTPConnection, identity: Identity, request_id: str, **metadata: Any) -> Caller:
    """What a run keeps of the request that starts it; `metadata` is what an agent's body adds for its tools."""
    client_request_id = connection.headers.get("x-request-id")
    allowed = _HEADERS | connection.scope.get(SHOWN_HEADERS, frozenset())
    headers = {
        name: value
        for name, value in connection.headers.items()
        if (name in allowed or name.startswith("mcp-")) and not _CREDENTIAL.search(name)
    }
    shown: dict[str, Any] = {
        "headers": headers,
        "forwarded_props": {},
        "context": [],
        "client_tools": [],
        "client_request_id": client_request_id,
        **metadata,
    }
    return Caller(
        request_id=request_id,
        session_id=identity.session_id,
        owner=identity.owner,
        client_request_id=client_request_id,
        address=connection.client.host if connection.client else None,
        auth=identity.auth,
        metadata=shown,
        trace=_trace(connection),
    )


def _trace(connection: HTTPConnection) -> TraceContext | None:
    headers = connection.headers
    parents = headers.getlist("traceparent")
    parent = parents[0].strip() if len(parents) == 1 else ""
    if not _TRACEPARENT.fullmatch(parent):
        return None
    # A list that came in several headers is one list (RFC 9110).
    state, baggage = (",".join(headers.getlist(name)) for name in ("tracestate", "baggage"))
    return TraceContext(parent, state or None, baggage or None)
