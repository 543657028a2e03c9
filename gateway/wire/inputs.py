"""Request bodies, validated: what a client may send, with every error naming its field.

Pure models; sizes and media types are the HTTP layer's concern. Source: contract 3.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gateway.errors import RequestError
from gateway.wire.codec import decode

__all__ = [
    "MAX_ID",
    "Input",
    "Seconds",
    "StopInput",
    "TicketInput",
    "ToolRunInput",
    "fingerprint",
    "parse_body",
    "refuse",
    "valid_id",
]

MAX_ID = 200
MAX_DETAILS = 50  # a body can be wrong in a million places; nobody reads more


def valid_id(value: str) -> str:
    """An id as clients choose them: 1 to 200 characters, no control characters, no `/`; else `ValueError`."""
    if not 1 <= len(value) <= MAX_ID:
        raise ValueError(f"must have 1 to {MAX_ID} characters")
    if "/" in value or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        raise ValueError("must not contain '/' or control characters")
    return value


Id = Annotated[str, AfterValidator(valid_id)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Input(BaseModel):
    """Base of all bodies: camelCase names, unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class ToolRunInput(Input):
    """Body of `POST /tools/{name}`; `arguments` stays as it is for the tool to validate."""

    arguments: Any = Field(default_factory=dict)
    thread_id: Id | None = None
    run_id: Id | None = None
    tool_call_id: Id | None = None
    timeout: Seconds | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None
    disconnect_grace: Seconds | None = None
    parent_run_id: Id | None = None


class TicketInput(Input):
    """Body of `POST /runs/{runId}/ticket`: empty or `{"use"?: "follow" | "share"}`."""

    use: Literal["follow", "share"] = "follow"


class StopInput(Input):
    """Body of the Stop routes: empty or `{"reason"?: text}`."""

    reason: str | None = Field(None, max_length=1_000)


Model = TypeVar("Model", bound=Input)


def parse_body(model: type[Model], body: bytes) -> tuple[Model, Any]:
    """The validated body and what was parsed; an empty body is `{}`.

    Raises `RequestError` (`invalid_request`) whose message and `details` (`[{"field", "message"}]`) name the fields.
    """
    try:
        parsed = decode(body) if body.strip() else {}
    except ValueError as error:
        raise RequestError(f"The body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise RequestError("The body must be a JSON object.")
    try:
        return model.model_validate(parsed), parsed
    except ValidationError as error:
        raise refuse(error) from None


def refuse(error: ValidationError, prefix: str = "") -> RequestError:
    """The refusal for a body that does not fit: its message and `details` name each field, `prefix` before it."""
    details = [
        {"field": prefix + ".".join(map(str, item["loc"])), "message": item["msg"]}
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:MAX_DETAILS]
    ]
    named = "; ".join(f"{item['field']}: {item['message']}" for item in details)
    return RequestError(f"The body does not fit: {named}", details=details)


def fingerprint(path: str, parsed: Any) -> bytes:
    """Equal for equal requests: the path and the parsed body, whatever its spacing or order of keys.

    `RequestError` for one that is nested too deeply.
    """
    try:
        text = json.dumps([path, parsed], sort_keys=True, separators=(",", ":"))
    except RecursionError:  # a little earlier than for `decode`
        raise RequestError("The body is not JSON that anybody reads: it is nested too deeply.") from None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
