"""What HTTP shows of a run is what contract 3 lists, and nothing else."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from gateway.run.records import CallRecord, RunKey, RunRecord, iso

NOW = 1_700_000_000.1234


def test_a_new_run_shows_only_what_is_known() -> None:
    record = RunRecord(RunKey("anon:secret-session", "run-1"), "thread-1", "tools", NOW)
    assert record.to_wire() == {
        "runId": "run-1",
        "threadId": "thread-1",
        "agent": "tools",
        "status": "running",
        "createdAt": "2023-11-14T22:13:20.123Z",
        "lastEventId": 0,
        "toolCalls": [],
    }


def test_a_finished_run_shows_everything_but_owner_and_result() -> None:
    call = CallRecord("call-1", "tool", "completed", NOW, NOW + 1, detached_run_id="run-2")
    record = RunRecord(
        RunKey("anon:secret-session", "run-1"),
        "thread-1",
        "tools",
        NOW,
        parent_run_id="run-0",
        status="failed",
        reason="run_timeout",
        started_at=NOW,
        ended_at=NOW + 1,
        last_event_id=9,
        outcome={"type": "success"},
        error={"code": "run_timeout", "message": "Too long."},
        calls=(call,),
        result=b"{}",
        stop_requested="user",
    )
    wire = record.to_wire()
    assert list(wire) == [
        "runId", "threadId", "agent", "parentRunId", "status", "reason", "createdAt", "startedAt", "endedAt",
        "lastEventId", "outcome", "error", "toolCalls",
    ]  # fmt: skip
    assert "secret" not in str(wire)
    assert wire["toolCalls"] == [
        {
            "toolCallId": "call-1",
            "toolName": "tool",
            "status": "completed",
            "startedAt": "2023-11-14T22:13:20.123Z",
            "endedAt": "2023-11-14T22:13:21.123Z",
            "detachedRunId": "run-2",
        }
    ]


@given(st.floats(0, 4e9))
def test_times_are_iso_8601_utc_in_milliseconds(seconds: float) -> None:
    text = iso(seconds)
    assert text.endswith("Z")
    assert len(text) == len("2023-11-14T22:13:20.123Z")
    assert abs(datetime.fromisoformat(text).timestamp() - seconds) <= 0.001


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["running", "completed"])), max_size=12))
def test_a_call_is_kept_once_in_the_order_of_first_appearance(updates: list[tuple[str, str]]) -> None:
    record = RunRecord(RunKey(None, "run-1"), "thread-1", "tools", NOW)
    for call_id, status in updates:
        record = record.with_call(CallRecord(call_id, "tool", status))
    newest = dict(updates)
    assert [call.call_id for call in record.calls] == list(dict.fromkeys(call_id for call_id, _ in updates))
    for call_id, status in newest.items():
        found = record.call(call_id)
        assert found is not None
        assert found.status == status
    assert record.call("nobody") is None
