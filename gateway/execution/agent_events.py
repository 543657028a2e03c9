"""What an agent yields, as events that every official client takes."""

from __future__ import annotations

from typing import Any

from ag_ui.core import Event, EventType
from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.wire.codec import Change, encode
from gateway.wire.sse import MAX_MESSAGE_BYTES

__all__ = ["event_of"]

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_KINDS = frozenset(kind.value for kind in EventType)
# With these a page would go and do what only the gateway may ask for (contract 6).
_OURS = frozenset({"tool.requested", "tool.waiting"})
_MAX_FAULTS = 3


def event_of(item: object, now: int, changes: list[Change]) -> dict[str, Any]:
    """One event in wire names, of a model of `ag_ui.core` or a dict; `now` in milliseconds, where it says no time.

    Raises `TypeError` or `ValueError` for what the official models refuse. `changes` receives what JSON cannot hold.
    """
    if isinstance(item, BaseModel):
        item = item.model_dump(by_alias=True, warnings=False)
    if not isinstance(item, dict):
        raise TypeError(f"An agent yields events, not {type(item).__name__}.")
    kind = item.get("type")
    kind = kind.value if isinstance(kind, EventType) else kind
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a type of AG-UI events.")
    try:
        event: dict[str, Any] = _EVENT.validate_python(item).model_dump(by_alias=True)
    except ValidationError as error:
        raise ValueError(f"{kind}: {_faults(error)}") from error
    event["type"] = kind
    event.setdefault("timestamp", now)
    if kind == "CUSTOM" and event["name"] in _OURS:
        event["name"] = f"upstream.{event['name']}"
    if (size := len(encode(event, changes))) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{kind} of {size} bytes: no client takes one of more than {MAX_MESSAGE_BYTES}.")
    return event


def _faults(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:_MAX_FAULTS]
    # The first part of each place is the type, by which the models are told apart.
    return "; ".join(f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in found)
