"""What a run's end means for the exit code of `call` (contract 1)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.exits import code_of_end, code_of_record

SUCCESS = {"type": "success"}


def finished(status: str) -> dict[str, Any]:
    return {"type": "RUN_FINISHED", "outcome": SUCCESS, "result": {"status": status}}


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (finished("completed"), 0),
        (finished("detached"), 0),
        (finished("failed"), 1),
        (finished("unknown"), 1),
        (finished("unavailable"), 75),
        (finished("interrupted"), 75),
        (finished("timeout"), 124),
        (finished("cancelled"), 130),
        ({"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}, "result": {"status": "cancelled"}}, 130),
        ({"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": []}}, 75),
        ({"type": "RUN_FINISHED", "outcome": SUCCESS}, 0),
        ({"type": "RUN_ERROR", "code": "interrupted"}, 75),
        ({"type": "RUN_ERROR", "code": "store_unavailable"}, 75),
        ({"type": "RUN_ERROR", "code": "run_timeout"}, 124),
        ({"type": "RUN_ERROR", "code": "internal"}, 1),
        ({"type": "RUN_ERROR"}, 1),
    ],
)
def test_a_run_ends_with(event: dict[str, Any], code: int) -> None:
    assert code_of_end(event) == code


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"status": "completed", "agent": "tools", "toolCalls": [{"status": "timeout"}]}, 124),
        ({"status": "completed", "agent": "tools", "toolCalls": [{"status": "completed"}, {"status": "failed"}]}, 0),
        ({"status": "completed", "agent": "support", "toolCalls": [{"status": "failed"}]}, 0),
        ({"status": "cancelled"}, 130),
        ({"status": "failed", "error": {"code": "interrupted"}}, 75),
        ({"status": "failed", "error": {"code": "internal"}}, 1),
    ],
)
def test_a_record_says_the_same(record: dict[str, Any], code: int) -> None:
    assert code_of_record(record) == code
