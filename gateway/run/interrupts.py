"""Questions as AG-UI interrupts, bound so that TanStack's client can answer them, too.

Pure. Source: contract 4.2 and 5.6, AG-UI's `Interrupt`, `InterruptBinding` of `@tanstack/ai` 0.58.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.run.questions import APPROVAL_KEY, Question
from gateway.run.records import iso
from gateway.wire.canonical import sha256_of
from gateway.wire.codec import decode, encode

__all__ = ["approval_schema", "bound", "interrupt_wire", "shown_arguments"]

BINDING = "tanstack:interruptBinding"


def interrupt_wire(question: Question, run_id: str) -> dict[str, Any]:
    """`{id, reason, message?, toolCallId, responseSchema?, expiresAt?, metadata}`, where `run_id` asks.

    `metadata` has the `toolName`, the tool's own `key` for the question or, of an approval, the call's `input`, and
    the binding without which TanStack's client would only show it.
    """
    wire: dict[str, Any] = {"id": question.interrupt_id, "reason": question.reason}
    if question.message is not None:
        wire["message"] = question.message
    wire["toolCallId"] = question.call_id
    if question.response_schema is not None:
        wire["responseSchema"] = question.response_schema
    if question.expires_at is not None:
        wire["expiresAt"] = iso(question.expires_at)
    own = {"input": shown_arguments(question)} if question.key == APPROVAL_KEY else {"key": question.key}
    return bound({**wire, "metadata": {"toolName": question.tool_name, **own}}, run_id)


def bound(wire: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """An interrupt of run `run_id` with its binding."""
    binding = {"v": 1, "kind": "generic", "interruptId": wire["id"], "interruptedRunId": run_id, "generation": 0}
    shown = dict(wire)
    if "responseSchema" in wire:
        # As the client will have it, for it computes the hash anew and answers nothing where the two differ.
        shown["responseSchema"] = decode(encode(wire["responseSchema"]))
        binding["responseSchemaHash"] = sha256_of(shown["responseSchema"])
    shown["metadata"] = {**(wire.get("metadata") or {}), BINDING: binding}
    return shown


def shown_arguments(question: Question) -> dict[str, Any]:
    """What the person is asked to approve: the call as all that is around it has made it, which is what will run."""
    schema = question.response_schema or {}
    shown: dict[str, Any] = schema.get("properties", {}).get("arguments", {}).get("default", question.arguments)
    return dict(shown)


def approval_schema(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of the answer to an approval; `arguments` are those that the model asked for.

    `{"approved": bool, "arguments"?: {…}, "message"?: text}`: other arguments replace the model's as a whole.
    """
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean", "description": "Whether the call may run."},
            "arguments": {
                "type": "object",
                "description": "What to run the call with instead of what the model asked for.",
                "default": dict(arguments),
            },
            "message": {"type": "string", "description": "Said to the model when the call may not run."},
        },
        "required": ["approved"],
        "additionalProperties": False,
    }
