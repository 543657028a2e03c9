"""What proxied events hold: messages, parts of their content, patches, outcomes, token counts."""

from __future__ import annotations

import re
from typing import Any

from gateway.wire.shapes import (
    ANY,
    COUNT,
    ID,
    JSON_TEXT,
    MISSING,
    OBJECT,
    SOME,
    TEXT,
    Field,
    Repairs,
    Shape,
    each,
    json_text,
    nested,
    one_of,
    union,
)

__all__ = ["CONTENT", "MESSAGES", "PATCH", "RUN_OUTCOME", "SUBAGENT_OUTCOME", "USAGE"]

TEXTS = frozenset({str})
LISTS = frozenset({list})
OBJECTS = frozenset({dict})
MEDIA = ("image", "audio", "video", "document")
TAG = Field(TEXTS)
POINTER = re.compile(r"(/([^/~]|~[01])*)*")


def _empty(_: Any) -> str:
    return ""


# --- content ---------------------------------------------------------------------------------------------------------

_SOURCES = {
    "data": Shape(type=TAG, value=ID, mimeType=ID),
    "url": Shape(type=TAG, value=ID, mimeType=TEXT),
    "file": Shape(type=TAG, value=ID, provider=TEXT, mimeType=TEXT),
}
_MEDIUM = Shape(type=TAG, id=TEXT, source=Field(OBJECTS, needed=True, look=union("type", _SOURCES)), metadata=SOME)
_TEXT_PART = Shape(type=TAG, id=TEXT, text=ID, metadata=SOME)
_PARTS = each(union("type", {"text": _TEXT_PART, **dict.fromkeys(MEDIA, _MEDIUM)}))


def _content(value: Any, repairs: Repairs) -> Any:
    if type(value) is str:
        return value
    if all(type(part) is dict for part in value):
        return _PARTS(value, repairs)
    repairs.append("type")  # a tool's answer that is a list, not a list of parts
    return json_text(value)


#: Text or parts, of a person or a tool.
CONTENT = JSON_TEXT._replace(types=TEXTS | LISTS, look=_content, fill=_empty)


def _joined(value: Any) -> Any:
    """The text in a list of parts."""
    if type(value) is not list:
        return MISSING
    return "".join(part["text"] for part in value if type(part) is dict and type(part.get("text")) is str)


# --- messages --------------------------------------------------------------------------------------------------------

_CALL = Shape(
    id=ID,
    type=Field(TEXTS, needed=True, look=one_of("function"), fill=lambda _: "function"),
    function=Field(
        OBJECTS, needed=True, look=nested(Shape(name=ID, arguments=JSON_TEXT._replace(fill=lambda _: "{}")))
    ),
    encryptedValue=TEXT,
    metadata=OBJECT,
)
_SAID = TEXT._replace(coerce=_joined)
# Only an assistant has calls and only a tool an answer, but whoever reads messages looks for both in all of them.
_ALL = {
    "subagentRunId": TEXT,
    "id": ID,
    "role": ID,
    "metadata": OBJECT,
    "toolCalls": Field(LISTS, look=each(nested(_CALL))),
    "toolCallId": TEXT,
}
_NAMED = {**_ALL, "name": TEXT, "encryptedValue": TEXT}
_INSTRUCTIONS = Shape(**_NAMED, content=_SAID._replace(needed=True, fill=_empty))
_MESSAGES = {
    "developer": _INSTRUCTIONS,
    "system": _INSTRUCTIONS,
    "assistant": Shape(**_NAMED, content=_SAID),
    "user": Shape(**_NAMED, content=CONTENT),
    "tool": Shape(**_ALL | {"toolCallId": ID}, content=CONTENT, error=TEXT, encryptedValue=TEXT),
    "activity": Shape(**_ALL, activityType=ID, content=OBJECT._replace(needed=True)),
    "reasoning": Shape(**_ALL, content=_SAID._replace(needed=True, fill=_empty), encryptedValue=TEXT),
}
MESSAGES = Field(LISTS, needed=True, look=each(union("role", _MESSAGES, Shape(**_ALL))))


# --- patches ---------------------------------------------------------------------------------------------------------


def _pointer(value: str, repairs: Repairs) -> Any:
    if POINTER.fullmatch(value):
        return value
    repairs.append("type")
    rooted = f"/{value}"
    return rooted if POINTER.fullmatch(rooted) else MISSING


_PATH = Field(TEXTS, needed=True, look=_pointer)
_PUT = Shape(op=TAG, path=_PATH, value=ANY._replace(needed=True, fill=lambda _: None))
_TAKE = Shape(**{"op": TAG, "path": _PATH, "from": _PATH})
_OPERATIONS = {
    "add": _PUT,
    "replace": _PUT,
    "test": _PUT,
    "remove": Shape(op=TAG, path=_PATH),
    "move": _TAKE,
    "copy": _TAKE,
}
_OPERATION = union("op", _OPERATIONS)


def _operation(value: Any, repairs: Repairs) -> Any:
    fitted = _OPERATION(value, repairs)
    if fitted is MISSING or fitted.get("op") != "move" or not fitted["path"].startswith(f"{fitted['from']}/"):
        return fitted
    repairs.append("type")  # into itself: the official client makes a cycle of it, and dies of that
    return MISSING


#: RFC 6902: one operation that is malformed spoils the patch, for a part of one would be another one.
PATCH = Field(LISTS, needed=True, look=each(_operation, whole=True))


# --- ends ------------------------------------------------------------------------------------------------------------

_INTERRUPT = Shape(
    subagentRunId=TEXT,
    id=ID,
    reason=ID._replace(fill=lambda _: "interrupt"),
    message=TEXT,
    toolCallId=TEXT,
    responseSchema=OBJECT,
    expiresAt=TEXT,
    metadata=OBJECT,
)
_IDS = Field(LISTS, look=each(TEXT.fit))
_RUN_OUTCOMES = {
    "success": Shape(type=TAG, pendingToolCallIds=_IDS),
    "interrupt": Shape(type=TAG, interrupts=Field(LISTS, needed=True, look=each(nested(_INTERRUPT), least=1))),
    "cancelled": Shape(type=TAG),
}
#: The official client reads an outcome that it does not know as success, and so does one who asks this.
RUN_OUTCOME = Field(OBJECTS, look=union("type", _RUN_OUTCOMES, None))
SUBAGENT_OUTCOME = Field(
    OBJECTS,
    look=union("type", {"success": Shape(type=TAG), "suspended": Shape(type=TAG, interruptIds=_IDS)}),
)
_TOKENS = dict.fromkeys(
    ("inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens", "cacheWriteInputTokens"),
    COUNT,
)
USAGE = Field(LISTS, look=each(nested(Shape(provider=TEXT, model=TEXT, **_TOKENS))))
