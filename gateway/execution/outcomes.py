"""What a tool call ends in: always a `ToolOutput`, never an exception (contract 5.1).

Turns returned values and raised exceptions into outputs and holds the exact texts of every other ending.
Not concerned with when a call ends (that is the executor) nor with how an output travels (that is the run).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from pydantic import BaseModel

from gateway.errors import ToolError
from gateway.wire.codec import Change, decode, encode

__all__ = [
    "CANCELLED",
    "NAVIGATED",
    "TOOL_TIMEOUT",
    "WHAT_ENDED",
    "ToolOutput",
    "cancelled",
    "coded",
    "denied",
    "detached",
    "error_of",
    "failed",
    "interrupted",
    "invalid_arguments",
    "is_cancelled",
    "message_of",
    "navigated",
    "output_of",
    "passed_on",
    "recode",
    "reports_error",
    "timed_out",
    "too_large",
    "unavailable",
]

TOOL_TIMEOUT = 30.0
"""Seconds that a call may take when neither tool, caller nor gateway says otherwise."""

CANCELLED = "Error [cancelled]: Cancelled by the user."
"""The text of a call that the person stopped."""

NAVIGATED = "The page navigated away while this tool ran, so its result is unknown. Check the page before retrying."
"""The text of a page tool whose page went away; not an error, for nobody knows whether it worked."""

WHAT_ENDED: Mapping[str, str] = {
    "disconnect": "the disconnect of its last viewer",
    "run_timeout": "the run's time limit",
    "shutdown": "the gateway's shutdown",
    "store": "a failure of the store",
    "superseded": "another worker that took over its run",
    "timeout": "the time limit of the call it belongs to",
    "tool": "its own request",
    "user": "the stop of the call it belongs to",
}
"""The `what` of `interrupted()` for each reason of an `AbortSignal`."""

_CODED = re.compile(r"Error \[([^\[\]\r\n]+)\]:")
_UNCODED = re.compile(r"Error:(?:\s+|\Z)")
_NO_MESSAGE = "The tool reported an error."
_CHECK = "It may have done its work: check before retrying."

# A mapping is a content block only with the key its type needs, so that a result that merely has a "type"
# stays data.
_BLOCK_KEYS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "source"),
    "audio": ("data", "source"),
    "resource": ("resource",),
    "resource_link": ("uri",),
}
_SUCCESSES = frozenset({"completed", "unknown", "detached"})
_ERROR_STATUSES = frozenset({"failed", "cancelled", "timeout", "interrupted", "unavailable"})


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call ended in, in the shape of an MCP result plus `status`. A tool may return one itself.

    `content` holds content blocks (`{"type": "text", "text": …}` and MCP's others); `structured_content` is a
    JSON object. `status` is `completed`, `failed`, `cancelled`, `timeout`, `interrupted`, `unavailable`,
    `unknown` or `detached`; the one a tool sets is ignored: its own errors are `failed`. Source: contract
    5.1.
    """

    content: Sequence[Mapping[str, Any]] = ()
    is_error: bool = False
    structured_content: Mapping[str, Any] | None = None
    status: str = "completed"

    @property
    def text(self) -> str:
        """What the model reads: the text blocks, one a line; without any, the structured content as JSON."""
        texts = [text for text in map(_text_in, self.content) if text is not None]
        if texts or self.structured_content is None:
            return "\n".join(texts)
        return encode(self.structured_content).decode()

    def to_wire(self) -> dict[str, Any]:
        """`{content, isError, structuredContent?, status}`."""
        wire: dict[str, Any] = {"content": [dict(block) for block in self.content], "isError": self.is_error}
        if self.structured_content is not None:
            wire["structuredContent"] = dict(self.structured_content)
        wire["status"] = self.status
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ToolOutput:
        """The inverse of `to_wire`, for JSON of any origin; `ValueError` names the wrong field."""
        content, structured = wire.get("content", []), wire.get("structuredContent")
        is_error, status = wire.get("isError", False), wire.get("status", "completed")
        if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
            raise ValueError("content must be a list of objects")
        if not isinstance(is_error, bool):
            raise ValueError("isError must be true or false")
        if structured is not None and not isinstance(structured, Mapping):
            raise ValueError("structuredContent must be an object")
        if not isinstance(status, str):
            raise ValueError("status must be a string")
        return cls(content, is_error, structured, status)


def is_cancelled(text: str) -> bool:
    """Whether the text says that the person stopped the call, also in the form used before codes existed."""
    return text.startswith(("Error [cancelled]", "Cancelled by the user"))


def reports_error(text: str) -> bool:
    """Whether a tool that answers with this text reports an error: `Error: …` or `Error [code]: …`."""
    return bool(_CODED.match(text) or _UNCODED.match(text))


def output_of(value: object, changes: list[Change] | None = None) -> ToolOutput:
    """The output for a value that a tool returned; never raises, and the output is plain JSON.

    Mappings, dataclasses and models become structured content plus their JSON text, other values `{"result":
    value}`; `None` is empty text and str is text; content blocks (one, or a list of nothing else) and
    `ToolOutput` pass. Errors are recoded (see `recode`). `changes` receives what JSON could not hold.
    """
    kind = type(value)
    if issubclass(kind, ToolOutput):
        return recode(_plain_output(value, changes))  # type: ignore[arg-type]  # the type, not __class__, decides
    if value is None:
        return ToolOutput([_text_block("")])
    if issubclass(kind, str):
        return recode(ToolOutput([_text_block(_clean(value, changes))]))  # type: ignore[arg-type]  # as above
    payload = encode(value if _is_structured(kind) else {"result": value}, changes)
    structured = decode(payload)
    if not isinstance(structured, dict):  # a model of a list, say
        payload = encode({"result": structured})
        structured = {"result": structured}
    blocks = _blocks_in(structured if _is_structured(kind) else structured["result"])
    if blocks:
        return recode(ToolOutput(blocks))
    return ToolOutput([_text_block(payload.decode())], structured_content=structured)


def passed_on(output: ToolOutput, changes: list[Change] | None = None) -> ToolOutput:
    """An output that a middleware made: plain JSON, errors recoded, and the `status` it had where that fits."""
    plain = recode(replace(_plain_output(output, changes), status=str(output.status)))
    return plain if plain.is_error or plain.status in _SUCCESSES else replace(plain, status="completed")


def recode(output: ToolOutput) -> ToolOutput:
    """Give an error its code; anything else is returned as it is. Recoding twice changes nothing.

    `Error [code]: …` keeps its text and is an error whatever the tool said. `Error: …`, or `is_error` without
    a code in the text, gets the code of the tool's own `structured_content["error"]["code"]`, else `failed`;
    without a text block one is added. `structured_content` is kept and gets `error = {code, retryable}`:
    retryable only where the tool said so beside its own code.
    """
    index, text = _first_text(output.content)
    own = (output.structured_content or {}).get("error")
    own_error = own if isinstance(own, Mapping) else {}
    coded_text = _CODED.match(text)
    if coded_text:
        code, content = coded_text[1], output.content
    elif output.is_error or _UNCODED.match(text):
        code = _code_in(own_error) or "failed"
        content = _with_text(output.content, index, f"Error [{code}]: {_message_in(text)}")
    else:
        return output
    retryable = own_error.get("retryable") is True and bool(coded_text or _code_in(own_error))
    error = {**own_error, "code": code, "retryable": retryable}
    structured = {**(output.structured_content or {}), "error": error}
    status = output.status if output.status in _ERROR_STATUSES else "failed"
    return ToolOutput(content, True, structured, status)


def coded(
    code: str,
    message: str,
    *,
    retryable: bool = False,
    status: str = "failed",
    data: Mapping[str, Any] | None = None,
) -> ToolOutput:
    """`Error [code]: message` with `structured_content.error`; `data` is plain JSON to put beside it."""
    code = re.sub(r"[\[\]\r\n]", "_", code) or "failed"
    structured = {**(data or {}), "error": {"code": code, "retryable": retryable}}
    return ToolOutput([_text_block(f"Error [{code}]: {message}")], True, structured, status)


def failed(message: str) -> ToolOutput:
    return coded("failed", message)


def denied(message: str) -> ToolOutput:
    """Refused by a guard or a person."""
    return coded("denied", message)


def invalid_arguments(message: str, details: object = None) -> ToolOutput:
    """Arguments that do not fit; `details` (`[{"field", "message"}]`) go into the structured content."""
    return coded("invalid_arguments", message, data={"details": details} if details else None)


def too_large(limit: int) -> ToolOutput:
    """A result whose JSON has more than `limit` bytes."""
    return coded("too_large", f"The result is larger than {limit} bytes.")


def cancelled() -> ToolOutput:
    """The person pressed Stop."""
    return coded("cancelled", CANCELLED.partition(": ")[2], status="cancelled")


def timed_out(tool_name: str, seconds: float, retryable: bool) -> ToolOutput:
    message = f'"{tool_name}" didn\'t answer within {seconds:g} s, so it was stopped. {_CHECK}'
    return coded("timeout", message, retryable=retryable, status="timeout")


def interrupted(tool_name: str, what: str, retryable: bool, *, on_page: bool = False) -> ToolOutput:
    """Something other than the person ended the call: `what` (see `WHAT_ENDED`), or the tool's page."""
    message = f'"{tool_name}" was ended by {what} before it finished. {_CHECK}'
    if on_page:
        message = "The page cancelled this call before it finished. Check the page before retrying."
    return coded("interrupted", message, retryable=retryable, status="interrupted")


def unavailable(tool_name: str, *, on_page: bool = False) -> ToolOutput:
    """No such tool, hidden, or its server is down."""
    where = "on this page" if on_page else "available"
    message = f'Tool "{tool_name}" is not {where} right now. Use another tool or try again later.'
    return coded("unavailable", message, retryable=True, status="unavailable")


def navigated() -> ToolOutput:
    """The page of a page tool went away before it answered."""
    return ToolOutput([_text_block(NAVIGATED)], status="unknown")


def detached(note: str) -> ToolOutput:
    """The call moved to the background."""
    return ToolOutput([_text_block(note)], status="detached")


def error_of(exc: BaseException, changes: list[Change] | None = None) -> ToolOutput:
    """The output for what a tool raised; never raises. The message reaches the model, the traceback does not.

    A `ToolError` keeps its code, `retryable` and `data`. All else is `failed`; a message that already has the
    form `Error [code]: …` (an output's text raised again) is taken as the tool's answer.
    """
    if isinstance(exc, asyncio.CancelledError):
        return failed("The tool cancelled itself.")
    message = _clean(message_of(exc), changes)
    if not isinstance(exc, ToolError):
        return recode(ToolOutput([_text_block(message)], is_error=True))
    data = None if exc.data is None else _plain_object(exc.data, changes)
    code = _clean(str(exc.code), changes)
    return coded(code, _message_in(message), retryable=exc.retryable is True, data=data)


def message_of(exc: BaseException) -> str:
    """What an exception says, or its name when it says nothing; never raises."""
    try:
        text = exc.message if isinstance(exc, BaseExceptionGroup) else str(exc)
    except Exception:  # noqa: BLE001  # foreign exceptions may fail at anything, even at saying what they are
        text = ""
    return text if text.strip() else type(exc).__name__


def _message_in(text: str) -> str:
    """The text without its `Error: ` or `Error [code]: `."""
    found = _CODED.match(text) or _UNCODED.match(text)
    return (text[found.end() :].lstrip() if found else text) or _NO_MESSAGE


def _code_in(error: Mapping[str, Any]) -> str | None:
    code = error.get("code")
    return code if isinstance(code, str) and _CODED.fullmatch(f"Error [{code}]:") else None


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _text_in(block: object) -> str | None:
    if not isinstance(block, Mapping) or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def _first_text(content: Sequence[Mapping[str, Any]]) -> tuple[int | None, str]:
    for index, block in enumerate(content):
        text = _text_in(block)
        if text is not None:
            return index, text
    return None, ""


def _with_text(content: Sequence[Mapping[str, Any]], index: int | None, text: str) -> list[Mapping[str, Any]]:
    if index is None:
        return [_text_block(text), *content]
    return [*content[:index], {**content[index], "text": text}, *content[index + 1 :]]


def _clean(text: str, changes: list[Change] | None) -> str:
    """The text without lone surrogates, which UTF-8 cannot carry, as a true `str`."""
    text = str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(decode(encode(text, changes)))
    return text


def _is_structured(kind: type) -> bool:
    return issubclass(kind, (Mapping, BaseModel)) or is_dataclass(kind)


def _blocks_in(plain: object) -> list[dict[str, Any]]:
    """The content blocks that a plain value consists of, else nothing."""
    items: list[Any] = plain if isinstance(plain, list) else [plain]
    if not all(map(_is_block, items)):
        return []
    # Models of blocks have fields for what they do not have; MCP's schema does not allow `null` there.
    return [{key: item for key, item in block.items() if item is not None} for block in items]


def _is_block(item: object) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return False
    if item["type"] == "text":
        return isinstance(item.get("text"), str)
    return any(item.get(key) is not None for key in _BLOCK_KEYS.get(item["type"], ()))


def _plain_object(value: object, changes: list[Change] | None) -> dict[str, Any]:
    plain = decode(encode(value, changes))
    return plain if isinstance(plain, dict) else {"result": plain}


def _plain_output(output: ToolOutput, changes: list[Change] | None) -> ToolOutput:
    """The same output as plain JSON. What is not a block becomes text, so that an author sees the mistake."""
    plain = decode(encode(output.content, changes))
    blocks = []
    for item in plain if isinstance(plain, list) else [plain]:
        # Blocks of kinds that we do not know pass; one of a kind that we know must be what its kind needs.
        unknown = isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] not in _BLOCK_KEYS
        if isinstance(item, dict) and (unknown or _is_block(item)):
            blocks.append({key: value for key, value in item.items() if value is not None})
        else:
            blocks.append(_text_block(item if isinstance(item, str) else encode(item).decode()))
    structured = output.structured_content
    plain_structured = None if structured is None else _plain_object(structured, changes)
    return replace(
        output,
        content=blocks,
        structured_content=plain_structured,
        is_error=bool(output.is_error),
        status="completed",
    )
