"""What has to be true of every run that is over, seen from two workers (contract 4.2, 5.3, 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ag_ui_validate import ValidatorOptions, create_validator

from tests.soak.fleet import Fleet, Life
from tests.soak.tally import Tally
from tests.soak.views import TERMINALS, Frames, Run, event_of, number_of

__all__ = ["CLOSED_WITHIN", "check_run", "unix"]

CLOSED_WITHIN = 30.0  # seconds after the death of its worker: contract 7
#: `parentMessageId` names a message of the request, which the validator does not see.
OFF = {"AGUI208": "off"}


def unix(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def check_run(run: Run, log: bytes, record: dict[str, Any], fleet: Fleet, tally: Tally, lease: float) -> None:
    """Looks at the whole log of a run and at its record; tells the tally what is wrong."""
    frames = list(Frames().feed(log))
    found = [*_numbers(frames)]
    if not found:
        events = [event_of(frame) for frame in frames]
        found = [*_order(events), *_record(run, events, record)]
        if not found:
            found = [*_marks(run, events, record), *_ending(run, record, fleet, tally, lease)]
    for kind, what in found:
        tally.bad(kind, f"{run.run_id} ({run.kind}): {what}", frames, run.run_id)


Found = Iterator[tuple[str, str]]


def _numbers(frames: list[bytes]) -> Found:
    numbers = [number_of(frame) for frame in frames]
    if not numbers:
        yield "lost runs", "its log is empty"
    elif len(set(numbers)) < len(numbers):
        yield "duplicates", f"in the log: {numbers}"
    elif numbers != list(range(1, len(numbers) + 1)):
        yield "gaps", f"in the log: {numbers}"


def _order(events: list[dict[str, Any]]) -> Found:
    kinds = [event["type"] for event in events]
    if kinds[0] != "RUN_STARTED" or kinds.count("RUN_STARTED") != 1:
        yield "wrong terminals", f"it begins with {kinds[0]}, RUN_STARTED {kinds.count('RUN_STARTED')} times"
    ends = [index for index, kind in enumerate(kinds) if kind in TERMINALS]
    if ends != [len(kinds) - 1]:
        yield "wrong terminals", f"terminals at {ends} of {len(kinds)} events"
    validator = create_validator(ValidatorOptions(severity_overrides=OFF))
    for event in events:
        validator.feed(event)
    validator.finalize()
    report = validator.report()
    wrong = [f"{found.rule} {found.message}" for found in report.diagnostics if found.severity == "error"]
    if wrong:
        yield "invalid streams", "; ".join(wrong[:3])
    yield from _calls(events)


def _calls(events: list[dict[str, Any]]) -> Found:
    started = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    results = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    if sorted(started) != sorted(results):
        yield "open brackets", f"calls {started}, results {results}"
    ours = [event["value"]["toolCallId"] for event in events if event.get("name") == "tool.result"]
    if len(set(ours)) < len(ours):
        yield "duplicates", f"tool.result of {ours}"


def _record(run: Run, events: list[dict[str, Any]], record: dict[str, Any]) -> Found:
    last = events[-1]
    outcome = (last.get("outcome") or {}).get("type")
    ends = {"success": "completed", "cancelled": "cancelled", "interrupt": "interrupted"}
    told = ends.get(str(outcome), "failed")
    if record["lastEventId"] != len(events) or record["status"] != told or "endedAt" not in record:
        yield "records that disagree", f"{len(events)} events, the end says {told}: {json.dumps(record)}"
    if told == "failed" and record.get("error", {}).get("code") != last.get("code"):
        yield "records that disagree", f"{last}: {json.dumps(record)}"
    if pending := [call for call in record["toolCalls"] if "endedAt" not in call]:
        yield "records that disagree", f"calls without an end: {pending}"


def _marks(run: Run, events: list[dict[str, Any]], record: dict[str, Any]) -> Found:
    """The markers of each call: in order, none twice, none left out; all of them when it has completed."""
    by_call: dict[str, list[int]] = {}
    for event in events:
        if event.get("name") == "mark":
            by_call.setdefault(event["value"]["toolCallId"], []).append(event["value"]["number"])
    results = {e["value"]["toolCallId"]: e["value"] for e in events if e.get("name") == "tool.result"}
    for call_id, numbers in by_call.items():
        first = numbers[0] if run.parent is not None else 0
        if numbers != list(range(first, first + len(numbers))):
            yield "wrong markers", f"call {call_id}: {numbers}"
        result = results.get(call_id)
        if result is not None and result["status"] == "completed":
            said = result["structuredContent"]
            due = said.get("marks", said.get("result"))
            if first + len(numbers) != due:
                yield "wrong markers", f"call {call_id}: {first + len(numbers)} markers of {due}"
    if run.parent is not None:
        yield from _moved(run, by_call)
    answered = [event["value"]["payload"] for event in events if event.get("name") == "answered"]
    if len(answered) > 1 or not set(answered) <= set(run.answers):
        yield "wrong answers to tools", f"{answered} of {run.answers}"


def _moved(run: Run, by_call: dict[str, list[int]]) -> Found:
    """What a call emitted before it moved and after is one row."""
    assert run.parent is not None
    before = [event["value"]["number"] for event in run.parent.named("mark")]
    for numbers in by_call.values():
        # An end of the parent that its worker did not live to store is missing there.
        if numbers and before and numbers[0] != before[-1] + 1:
            yield "wrong markers", f"before it moved {before[-3:]}, after {numbers[:3]}"


def _ending(run: Run, record: dict[str, Any], fleet: Fleet, tally: Tally, lease: float) -> Found:
    status, code = record["status"], record.get("error", {}).get("code")
    ended = unix(record["endedAt"])
    tally.counts[f"ended {status}{f' ({code})' if code else ''}"] += 1
    silent = [life for life in _lives(run, fleet) if life.silent_between(unix(record["createdAt"]), ended, lease)]
    if status == "cancelled" and not (run.stop_accepted or run.stop_maybe):
        yield "wrong ends", "cancelled, and nobody has stopped it"
    elif run.stop_accepted and status != "cancelled" and run.kind == "endless":
        yield "wrong ends", f"Stop was accepted, and it is {status} {code}"
    elif status == "failed" and code != "interrupted":
        yield "wrong ends", f"{code}: {record['error']}"
    elif status == "failed" and not silent:
        yield "interrupted without cause", f"no worker of it was killed or paused: {record}"
    elif status == "completed" and run.kind == "endless":
        yield "wrong ends", "it has completed and could not"
    paused = [since for life in silent for since, until in life.pauses if since < ended < until]
    if status == "failed" and paused:
        tally.times["paused worker's run closed after"].append(ended - max(paused))
    killed = [life.killed_at for life in silent if life.killed_at is not None and life.killed_at < ended]
    if killed and status != "completed":
        tally.times["killed worker's run closed after"].append(ended - max(killed))
        if ended - max(killed) > CLOSED_WITHIN:
            yield "closed late", f"{ended - max(killed):.1f} s after its worker's death"


def _lives(run: Run, fleet: Fleet) -> list[Life]:
    """The process that executed it; if it never said so, those that may have."""
    life = None if run.pid is None else fleet.life(run.pid)
    return [life] if life is not None else [life for worker in run.asked for life in worker.lives]
