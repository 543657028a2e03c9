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
    "AnswerInput",
    "ClaimInput",
    "Input",
    "ResultInput",
    "ResumeEntry",
    "ResumeInput",
    "Seconds",
    "StopInput",
    "TicketInput",
    "ToolRunInput",
    "WaitingInput",
    "fingerprint",
    "parse_body",
    "refuse",
    "valid_id",
]

MAX_ID = 200
MAX_DETAILS = 50  # a body can be wrong in a million places; nobody reads more
MAX_MESSAGE = 1_000  # characters of what a client says to people


def valid_id(value: str) -> str:
    """An id as clients choose them: 1 to 200 characters, no control characters, no `/`; else `ValueError`."""
    if not 1 <= len(value) <= MAX_ID:
        raise ValueError(f"must have 1 to {MAX_ID} characters")
    if "/" in value or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        raise ValueError("must not contain '/' or control characters")
    return value


Id = Annotated[str, AfterValidator(valid_id)]
# An id that somebody else has made, and that stands in no path: of an agent's interrupt, or of a claim.
Token = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Input(BaseModel):
    """Base of all bodies: camelCase names, unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class ResumeEntry(Input):
    """The answer to one question that ended a run, as AG-UI has it; `metadata` is accepted and means nothing here."""

    interrupt_id: Token
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: dict[str, Any] | None = None


def distinct(entries: list[ResumeEntry]) -> list[ResumeEntry]:
    """The same entries; `ValueError` for a question that is answered twice."""
    seen: set[str] = set()
    for entry in entries:
        if entry.interrupt_id in seen:
            raise ValueError(f"must not name the interrupt {entry.interrupt_id!r} twice")
        seen.add(entry.interrupt_id)
    return entries


class ResumeInput(Input):
    """What bodies that start a run share: the answers it goes on with."""

    resume: Annotated[list[ResumeEntry], AfterValidator(distinct)] | None = None


class ToolRunInput(ResumeInput):
    """Body of `POST /tools/{name}`; `arguments` stays as it is for the tool to validate.

    `"arguments" in body.model_fields_set` tells `{}` from arguments that were not sent: a resume without them makes
    the call again with those it had.
    """

    arguments: Any = Field(default_factory=dict)
    thread_id: Id | None = None
    run_id: Id | None = None
    tool_call_id: Id | None = None
    timeout: Seconds | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None
    disconnect_grace: Seconds | None = None
    parent_run_id: Id | None = None


class AnswerInput(Input):
    """Body of `POST /runs/{runId}/input`: the answer to a question of a run that is open."""

    interrupt_id: Token
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ClaimInput(Input):
    """Body of `POST …/claim`: empty, or the claim to renew."""

    claim_id: Token | None = None


class WaitingInput(Input):
    """Body of `POST …/waiting`: the page that runs the tool waits for a person."""

    claim_id: Token
    message: str | None = Field(None, max_length=MAX_MESSAGE)


class ResultInput(Input):
    """Body of `POST …/result`: what the page's tool came to; `null`: the page navigated away, nobody knows."""

    claim_id: Token
    output: dict[str, Any] | None


class TicketInput(Input):
    """Body of `POST /runs/{runId}/ticket`: empty or `{"use"?: "follow" | "share"}`."""

    use: Literal["follow", "share"] = "follow"


class StopInput(Input):
    """Body of the Stop routes: empty or `{"reason"?: text}`."""

    reason: str | None = Field(None, max_length=MAX_MESSAGE)


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
