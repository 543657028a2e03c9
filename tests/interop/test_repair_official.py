"""Whatever a backend sends, the official client takes it once it is repaired; what it takes anyway is not touched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.run.repair import Repair, Repaired
from gateway.wire.codec import encode
from gateway.wire.events import run_error, run_finished, run_started
from tests.support.effort import times
from tests.support.node import INTEROP, run_node
from tests.support.streams import RUN, Event, Streams

BATCHES = times(8)
STREAMS = 2_500  # a batch
AGENTS = 10  # one of so many goes through a whole agent, which is slower by far
NOW = 1_700_000_000_000
#: The same ones in CI, others each time elsewhere.
SEED = int(os.environ.get("REPAIR_SEED") or (0 if os.environ.get("CI") else Random().randrange(2**32)))


def encoded(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


def repaired(payloads: list[bytes], turns: int = 1) -> tuple[Repair, list[Repaired]]:
    """What passes of a stream, or of several that are the answers of one run."""
    repair = Repair()
    passed: list[Repaired] = []
    for turn in range(turns):
        repair.begin()
        for payload in payloads[turn * len(payloads) // turns : (turn + 1) * len(payloads) // turns]:
            passed += repair.feed(payload, NOW)
        passed += repair.close(NOW)
    return repair, passed


def framed(repair: Repair, passed: list[Repaired]) -> list[bytes]:
    """What the browser gets: the run's own beginning and end around it."""
    if repair.failed is None and (finished := repair.finished) is not None:
        end = run_finished(NOW, "t", "r", finished.get("outcome") or {"type": "success"}, finished.get("result"))
    else:
        end = run_error(NOW, "t", "r", "upstream_disconnected", "The agent was cut off.")
    start = encode(run_started(NOW, "t", "r"))
    return [start, *(item.payload or encode(item.event) for item in passed), encode(end)]


def verdicts(tmp_path: Path, streams: Iterable[tuple[list[bytes], bool]]) -> list[str | None]:
    file = tmp_path / "streams.ndjson"
    with file.open("wb") as lines:
        for events, agent in streams:
            lines.write(b'{"agent":%b,"events":[%b]}\n' % (b"true" if agent else b"false", b",".join(events)))
    found: list[str | None] = run_node(INTEROP / "repaired.mjs", file=str(file))["verdicts"]
    return found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_official_client_takes_whatever_was_repaired(tmp_path: Path, batch: int) -> None:
    print(f"REPAIR_SEED={SEED}")  # noqa: T201 - shown when it fails: how to see this corpus again
    streams = Streams(SEED + batch)
    makes = (streams.right, streams.bent, streams.wild)
    sent = [makes[number % 3]() for number in range(STREAMS)]
    done = [framed(*repaired(list(map(encoded, events)), 1 + number % 2)) for number, events in enumerate(sent)]
    found = verdicts(tmp_path, ((events, number % AGENTS == 0) for number, events in enumerate(done)))
    assert len(found) == STREAMS
    refused = [(sent[number], why) for number, why in enumerate(found) if why is not None]
    assert refused == []


def test_what_the_official_client_takes_anyway_passes_as_its_own_bytes(tmp_path: Path) -> None:
    streams = Streams(SEED + BATCHES)
    makes = (streams.right, streams.bent, streams.wild)
    sent = [[encoded(event) for event in makes[number % 3]()] for number in range(STREAMS)]
    found = verdicts(tmp_path, ((events, False) for events in sent))
    assert [why for number, why in enumerate(found) if number % 3 == 0 and why is not None] == []
    taken = [events for events, why in zip(sent, found, strict=True) if why is None and is_one_run(events)]
    assert len(taken) > STREAMS // 3  # the right ones, and more
    for events in taken:
        repair = Repair()
        assert [item.payload for payload in events[:-1] for item in repair.feed(payload, NOW)] == events[1:-1]
        assert repair.counts == {}


# What is brought up to date in any case: chunks, the thinking and the spelling of older backends.
OLD = re.compile(rb'"type":"(\w+_CHUNK|THINKING_\w+)"|"[a-z]+_[a-z_]+":')


def is_one_run(events: list[bytes]) -> bool:
    """One run from its beginning to its end, of protocol 1.0."""
    kinds = [json.loads(payload)["type"] for payload in events]
    if kinds[:1] != [RUN[0]] or kinds[-1] not in RUN[1:] or {*RUN} & {*kinds[1:-1]}:
        return False
    if not all(has_messages(payload) and not OLD.search(payload) for payload in events):
        return False
    return has_new_calls([json.loads(payload) for payload in events])


def has_new_calls(events: list[dict[str, Any]]) -> bool:
    """Each call begins once, before anything else tells of it: another one of its id gets another id."""
    told: set[str] = set()
    for event in events:
        messages = event.get("messages") or ()
        of_messages = [call["id"] for message in messages for call in message.get("toolCalls") or ()]
        begins = event["type"] == "TOOL_CALL_START" and event["toolCallId"] in told
        if begins or len(set(of_messages)) < len(of_messages):
            return False
        told.update(of_messages, [event["toolCallId"]] if event["type"].startswith("TOOL_CALL_") else ())
    return True


def has_messages(payload: bytes) -> bool:
    """A message without an id or a role is one that the client drops silently, and the gateway before it."""
    messages = json.loads(payload).get("messages") or ()
    return all(isinstance(item.get(key), str) for item in messages for key in ("id", "role"))
