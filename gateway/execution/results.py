"""What a call's result looks like on the stream: the value of `tool.result` (contract 4.4)."""

from __future__ import annotations

from typing import Any

from gateway.execution.outcomes import ToolOutput

__all__ = ["result_fields"]


def result_fields(output: ToolOutput, seconds: float, *, still_running: bool = False) -> dict[str, Any]:
    """The value of `tool.result` of a call that took `seconds`, but for the fields that every event of it has."""
    wire = output.to_wire()
    value: dict[str, Any] = {"status": output.status}
    value.update({key: item for key, item in wire.items() if key != "status"})
    if error := (output.structured_content or {}).get("error") if output.is_error else None:
        value["error"] = {"code": error["code"], "message": output.text, "retryable": error["retryable"]}
    value["durationMs"] = round(seconds * 1000)
    if still_running:
        value["stillRunning"] = True
    return value
