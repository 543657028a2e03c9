"""Every error of the package, one tree; each knows its HTTP status and its wire code.

::

    GatewayError                    500 internal
    ├── RequestError                400 invalid_request: refused before a run starts
    │   ├── InvalidArguments        422 invalid_arguments
    │   ├── Unauthenticated         401 unauthenticated
    │   ├── Forbidden               403 anonymous_not_allowed, bad_origin
    │   ├── NotFound                404 run_not_found, tool_not_found, agent_not_found, not_found
    │   ├── Conflict                409 run_conflict, cursor_ahead, interrupt_answered, interrupt_closed, …
    │   ├── CursorExpired           410 cursor_expired
    │   ├── InterruptExpired        410 interrupt_expired
    │   ├── TooLarge                413 body_too_large
    │   ├── UnsupportedMediaType    415 unsupported_media_type
    │   ├── Misdirected             421 bad_host
    │   ├── TooMany                 429 too_many_runs, too_many_viewers (with Retry-After)
    │   └── Unavailable             503 draining, store_full
    ├── ToolError                   a tool says how it failed: any code, retryable or not
    │   └── AccessDenied            denied
    ├── AbortError                  `throw_if_aborted()` of an aborted signal
    ├── PayloadError                a value that JSON cannot hold, under `strict_payloads`
    ├── NotAvailable                a context member that this kind of call does not have
    ├── CapabilityError             a capability that no middleware provided
    ├── Backpressure                more emitted than the store could take
    ├── OrderError                  an event that AG-UI does not allow at this point
    ├── UpstreamError               502 upstream_unavailable, upstream_timeout, …: a remote agent
    └── StoreError                  503 store_unavailable
        └── Fenced                  another worker has taken the run over

`Interrupt` is none of them, nor an `Exception`: it carries a tool's question out of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

__all__ = [
    "AbortError",
    "AccessDenied",
    "Backpressure",
    "CapabilityError",
    "Conflict",
    "CursorExpired",
    "Fenced",
    "Forbidden",
    "GatewayError",
    "Interrupt",
    "InterruptExpired",
    "InvalidArguments",
    "Misdirected",
    "NotAvailable",
    "NotFound",
    "OrderError",
    "PayloadError",
    "RequestError",
    "StoreError",
    "ToolError",
    "TooLarge",
    "TooMany",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMediaType",
    "UpstreamError",
]


RETRY_AFTER: Mapping[str, str] = MappingProxyType({"retry-after": "1"})


class GatewayError(Exception):
    """Base of all errors of this package. `status` is HTTP, `code` is what goes over the wire."""

    status: ClassVar[int] = 500
    code: str = "internal"

    def __init__(self, message: str = "", *, code: str | None = None, details: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if code is not None:
            self.code = code


class RequestError(GatewayError):
    """A request that is refused before a run starts; `details` says what is wrong with which field."""

    status = 400
    code = "invalid_request"
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})


class InvalidArguments(RequestError):
    """Arguments that do not fit a tool; `details` is a list of `{"field", "message"}`."""

    status = 422
    code = "invalid_arguments"


class Unauthenticated(RequestError):
    """No credential, or one that the authenticator did not accept."""

    status = 401
    code = "unauthenticated"
    headers = MappingProxyType({"www-authenticate": "Bearer"})


class Forbidden(RequestError):
    """A caller that may not do this: `anonymous_not_allowed`, `bad_origin`."""

    status = 403
    code = "forbidden"


class NotFound(RequestError):
    """No such thing for this caller; the same answer for what exists but belongs to somebody else."""

    status = 404
    code = "not_found"


class Conflict(RequestError):
    """The request contradicts what is there: `run_conflict`, `cursor_ahead`."""

    status = 409
    code = "run_conflict"


class CursorExpired(RequestError):
    """The events after the cursor have left the store; `details` has `{firstEventId, lastEventId, status}`."""

    status = 410
    code = "cursor_expired"


class InterruptExpired(RequestError):
    """An answer that comes after its question has expired."""

    status = 410
    code = "interrupt_expired"


class TooLarge(RequestError):
    """A body beyond its limit."""

    status = 413
    code = "body_too_large"


class UnsupportedMediaType(RequestError):
    """A body that is not `application/json`."""

    status = 415
    code = "unsupported_media_type"


class Misdirected(RequestError):
    """A loopback connection that carries a foreign Host: somebody is rebinding DNS names."""

    status = 421
    code = "bad_host"


class TooMany(RequestError):
    """A limit is reached: `too_many_runs`, `too_many_viewers`. Sent with `Retry-After`."""

    status = 429
    code = "too_many_runs"
    headers = RETRY_AFTER


class Unavailable(RequestError):
    """The gateway takes nothing new: `draining`, `store_full`. Sent with `Retry-After`."""

    status = 503
    code = "draining"
    headers = RETRY_AFTER


class ToolError(GatewayError):
    """Raise it in a tool to choose the code the model sees.

    `ToolError("rate_limited", "Try again in a minute.", retryable=True)` becomes the result
    `Error [rate_limited]: Try again in a minute.` with `structuredContent.error = {code, retryable}`;
    `data` (a mapping) is added to the structured content. Source: contract 5.1.
    """

    code = "failed"

    def __init__(
        self, code: str, message: str, *, retryable: bool = False, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retryable = retryable
        self.data = data


class AccessDenied(ToolError):
    """Raise it in a middleware or a tool to refuse the call: `Error [denied]: <message>`; in an authenticator: 403."""

    status = 403

    def __init__(self, message: str = "Access denied.") -> None:
        super().__init__("denied", message)


class AbortError(GatewayError):
    """Raised by `abort_signal.throw_if_aborted()`; `reason` is the signal's (`user`, `timeout`, …)."""

    code = "aborted"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The call was aborted: {reason}.")
        self.reason = reason


class PayloadError(GatewayError):
    """A value that JSON cannot hold as it is, under `strict_payloads=True`.

    `path` is where, as a JSON path (`$.rows[3].x`); `kind` is what: `nan`, `int`, `surrogate`, `key`,
    `unserializable`, `too_large`.
    """

    code = "invalid_payload"

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"The value at {path} cannot be sent as it is: {kind}.")
        self.path = path
        self.kind = kind


class NotAvailable(GatewayError):
    """This member of the context does not exist for this kind of call; the message names it."""

    code = "not_available"


class CapabilityError(GatewayError):
    """`ctx.get(capability)` of a capability that no middleware provided."""

    code = "capability_missing"


class Backpressure(GatewayError):
    """More bytes emitted than the store has taken (`max_pending_bytes`); await `ctx.flush()` and go on."""

    code = "backpressure"


class OrderError(GatewayError):
    """An event that the AG-UI verifier would refuse at this point of the run."""

    code = "invalid_order"


class UpstreamError(GatewayError):
    """What became of a remote agent: `upstream_unavailable`, `upstream_http_<n>`, `upstream_invalid`,
    `upstream_timeout`, `upstream_disconnected`. The message is a fixed sentence; `reason` is for the log only."""

    status = 502
    _SENTENCES: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "upstream_unavailable": "The agent cannot be reached.",
            "upstream_invalid": "What the agent answered is not a stream of AG-UI events.",
            "upstream_timeout": "The agent was silent for too long.",
            "upstream_disconnected": "The agent's stream broke off before its end.",
        }
    )

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(self._SENTENCES.get(code, "The agent refused the request."), code=code)
        self.reason = reason


class StoreError(GatewayError):
    """The store did not do it."""

    status = 503
    code = "store_unavailable"


class Fenced(StoreError):
    """Another worker holds this run now; this one may append no more."""

    code = "superseded"


class Interrupt(BaseException):
    """Ends the run with a question to the person; the tool is run again from its start with the answer.

    `ctx.interrupt` raises it. Like `CancelledError` it passes a tool's own `except Exception`. `schema` is the JSON
    Schema of the answer, `reason` AG-UI's, `key` the tool's name for the question. Source: contract 2.2.
    """

    def __init__(
        self,
        message: str,
        schema: Mapping[str, Any] | None = None,
        reason: str = "input_required",
        key: str = "input",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.schema = schema
        self.reason = reason
        self.key = key
