"""Who may talk to the gateway at all: addresses, Host, Origin, CORS. Pure decisions over a connection.

They protect what runs without credentials on somebody's machine: a web page must reach it neither by a rebound DNS name
(Host) nor with the visitor's cookie from elsewhere (Origin). Source: contract 8.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from gateway.errors import Forbidden, Misdirected
from gateway.http.sessions import COOKIE
from gateway.settings import Settings

__all__ = ["check_address", "check_host", "check_origin", "cors_headers", "is_loopback", "preflight"]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# With one of these a request says itself who it is; a foreign page cannot make a browser send them unasked.
CREDENTIALS = ("authorization", "x-session-id", "x-api-key")

CORS_REQUEST_HEADERS = frozenset(
    {"accept", "accept-language", "authorization", "baggage", "cache-control", "content-language", "content-type"}
    | {"last-event-id", "prefer", "traceparent", "tracestate", "x-api-key", "x-request-id", "x-run-id", "x-session-id"}
)
CORS_EXPOSED = "location, retry-after, x-request-id"
CORS_METHODS = "GET, HEAD, POST, OPTIONS"
CORS_MAX_AGE = "600"


def is_loopback(host: str | None) -> bool:
    """Whether an address or name is this machine's own; `None` is a Unix socket, `testclient` Starlette's."""
    if host in (None, "testclient"):
        return True
    name = str(host).strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    # On a socket for both families an IPv4 client has an IPv6 address, which counts as loopback from Python 3.13 on.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_address(connection: HTTPConnection, settings: Settings, *, authenticates: bool) -> None:
    """Without an authenticator only this machine is served, unless the operator said otherwise."""
    address = connection.client.host if connection.client else None
    if not authenticates and not settings.allow_anonymous and not is_loopback(address):
        message = "This gateway serves callers without credentials on this machine only."
        raise Forbidden(message, code="anonymous_not_allowed")


def check_host(connection: HTTPConnection, settings: Settings) -> None:
    """Refuses a Host that is not allowed; without `allowed_hosts`: a foreign one on a loopback connection."""
    host = _name(connection.headers.get("host", ""))
    if settings.allowed_hosts:
        if not any(_matches(host, pattern) for pattern in settings.allowed_hosts):
            raise Misdirected(f"This gateway does not answer for the host {host!r}.")
        return
    local = connection.client is not None and is_loopback(connection.client.host)
    if local and host != "testserver" and not (host and is_loopback(host)):
        raise Misdirected(f"A connection on this machine must not carry the host {host!r}; see allowed_hosts.")


def check_origin(connection: HTTPConnection, settings: Settings) -> None:
    """Refuses what a foreign page sends with nothing but the visitor's cookie, or with no credential at all."""
    headers = connection.headers
    if connection.scope["method"] in SAFE_METHODS or any(name in headers for name in CREDENTIALS):
        return
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") == "cross-site":
            raise Forbidden("This request comes from another site.", code="bad_origin")
    elif not (_same_origin(connection, origin) or _trusted(connection, origin, settings) or _local(connection, origin)):
        raise Forbidden(f"The origin {origin!r} may not do this; see cors_origins.", code="bad_origin")


def preflight(connection: HTTPConnection, settings: Settings) -> Mapping[str, str] | None:
    """The headers that answer a CORS preflight; None when the request is none, or CORS is off for its origin."""
    headers = connection.headers
    if connection.scope["method"] != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    answer = dict(cors_headers(connection, settings))
    if "access-control-allow-origin" not in answer:
        return None
    wanted = {name.strip().lower() for name in headers.get("access-control-request-headers", "").split(",")}
    granted = sorted(name for name in wanted if name in CORS_REQUEST_HEADERS or name.startswith("mcp-"))
    answer["access-control-allow-methods"] = CORS_METHODS
    answer["access-control-allow-headers"] = ", ".join(granted)
    answer["access-control-max-age"] = CORS_MAX_AGE
    return answer


def cors_headers(connection: HTTPConnection, settings: Settings) -> Mapping[str, str]:
    """What an answer to this origin must say, nothing when CORS is off for it."""
    origin = connection.headers.get("origin")
    if origin is None or not _allowed(origin, settings):
        # A cache must not give this answer to an origin that may read it, nor the other way round.
        return {"vary": "Origin"} if settings.cors_origins else {}
    answer = {"access-control-expose-headers": CORS_EXPOSED, "vary": "Origin"}
    if origin in settings.cors_origins:
        return {**answer, "access-control-allow-origin": origin, "access-control-allow-credentials": "true"}
    # `*` never goes with credentials: any page could act in the visitor's name.
    return {**answer, "access-control-allow-origin": "*"}


def _allowed(origin: str, settings: Settings) -> bool:
    return origin in settings.cors_origins or "*" in settings.cors_origins


def _trusted(connection: HTTPConnection, origin: str, settings: Settings) -> bool:
    """Named by the operator. `*` is everybody, and nobody gets the visitor's cookie for being that."""
    return origin in settings.cors_origins or ("*" in settings.cors_origins and COOKIE not in connection.cookies)


def _same_origin(connection: HTTPConnection, origin: str) -> bool:
    """By the browser's own word, which no page can forge: behind a proxy that ends TLS the scheme is not known here."""
    if connection.headers.get("sec-fetch-site") == "same-origin":
        return True
    scheme = connection.scope.get("scheme", "http")
    return origin.lower() == f"{scheme}://{connection.headers.get('host', '')}".lower()


def _local(connection: HTTPConnection, origin: str) -> bool:
    """From this machine to this machine: a development server beside the gateway."""
    try:
        name = urlsplit(origin).hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name) and is_loopback(_name(connection.headers.get("host", "")))


def _name(host: str) -> str:
    """The name in a Host header: without its port."""
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::\d*)?", host.strip())
    return match[1].lower() if match else host.lower()


def _matches(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:].lower())
    return pattern == "*" or host == pattern.lower()
