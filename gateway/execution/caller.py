"""Who calls, and from which request: what a run keeps of its beginning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

__all__ = ["AuthContext", "Caller", "TraceContext"]


@dataclass(frozen=True, slots=True)
class AuthContext:
    """Who calls, as an authenticator found it. `subject` is the person or service; times are Unix seconds.

    `scopes` may be given as any collection and is a frozenset; `audience` as str or sequence, and is a tuple.
    """

    subject: str
    scopes: Collection[str] = frozenset()
    client_id: str | None = None
    issuer: str | None = None
    audience: str | Sequence[str] = ()
    expires_at: float | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Tokens have lists; what is decided by scopes must not depend on which kind an authenticator handed on.
        object.__setattr__(self, "scopes", frozenset(self.scopes))
        object.__setattr__(
            self, "audience", (self.audience,) if isinstance(self.audience, str) else tuple(self.audience)
        )

    @property
    def aud(self) -> str | Sequence[str]:
        """Alias of `audience`."""
        return self.audience


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The W3C trace context of the starting request: `traceparent`, and the two that may come with it."""

    traceparent: str
    tracestate: str | None = None
    baggage: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """What a run knows of the request that started it; the same for all of its calls."""

    request_id: str
    session_id: str
    owner: str | None = None
    client_request_id: str | None = None
    auth: AuthContext | None = None
    address: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trace: TraceContext | None = None

    @property
    def session_label(self) -> str:
        """For logs: the subject in clear, a session (it is a secret) only as a hash."""
        subject = "-" if self.auth is None else repr(self.auth.subject)
        return f"subject={subject} session={sha256(self.session_id.encode()).hexdigest()[:12]}"
