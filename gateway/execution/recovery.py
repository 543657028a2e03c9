"""Runs whose worker has died: taken over and brought to their end (contract 7).

Nothing of them is executed again. Their open calls get results, what their streams have open is closed, and each ends
with the one terminal event that is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import time
from typing import Any

from gateway.errors import Fenced, StoreError
from gateway.execution import outcomes
from gateway.execution.detaching import lost_note
from gateway.execution.ending import ENDINGS
from gateway.execution.outcomes import ToolOutput
from gateway.execution.results import result_fields
from gateway.run.questions import Note
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.run.state import RunMachine, State
from gateway.stores.base import Lease, Store
from gateway.wire import events
from gateway.wire.codec import decode, encode

__all__ = ["Owed", "recover", "recover_orphans"]

logger = logging.getLogger("gateway")
audit = logging.getLogger("gateway.runs")

WHAT_ENDED = {
    "lost": "the death of its worker",
    "store": "a failure of the store",
    "store_lost": "a failure of the store",
}
AT_ONCE = 32  # a worker may leave thousands, and a store answers many questions as fast as one

# Runs, and the ending (`ENDINGS`) that is due.
Owed = dict[RunKey, str]


async def recover_orphans(store: Store, worker: str, owed: Owed, sure: Callable[[], bool] = lambda: True) -> None:
    """Recovers every run whose worker has died, and those of `owed`; what the store does not do now is done later.

    Not `sure`: after trouble of the store, or of this worker, who seems dead may only have been kept from renewing.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(key: RunKey) -> None:
        async with gate:
            try:
                record = await recover(store, key, worker, owed)
            except StoreError as error:
                logger.warning("Run %s could not be recovered yet: %s", key.label, error)
            else:
                if record is not None:
                    audit.info("run %s recovered: status=%s", key.label, record.status)

    orphans = await store.orphans()
    await asyncio.gather(*map(one, dict.fromkeys([*owed, *(orphans if sure() else ())])))


async def recover(store: Store, key: RunKey, worker: str, owed: Owed | None = None) -> RunRecord | None:
    """Ends an orphaned run in the place of the worker that has died; returns its record.

    None when there is nothing to do: it is no orphan any more, or another worker is doing it. Raises `StoreError`;
    then, or when this worker dies on the way, it can be done again. `owed` are the runs that are this worker's to end
    although it lives, so that nobody finds them orphaned, and what they are to end in.
    """
    owed = {} if owed is None else owed
    lease = await store.take_over(key, worker, orphaned=key not in owed)
    if lease is not None:
        owed.setdefault(key, "lost")
    record = None if lease is None else await store.get(key)
    if lease is None or record is None or record.over:
        owed.pop(key, None)
        return None
    await _leave_note(store, record)
    await _close_questions(store, key)
    notes = await _untold(store, record)
    try:
        ended = await _close(store, lease, record, notes, owed[key])
    except Fenced:
        ended = None
    del owed[key]
    return ended


async def _close(store: Store, lease: Lease, record: RunRecord, notes: list[Note], why: str) -> RunRecord:
    """The end, in one piece: another worker that takes it over from this one finds all of it, or nothing.

    A Stop that is accepted at the last moment counts, so it is begun again then.
    """
    while True:
        now = await store.get(record.key) or record
        frames, ended = _end(now, notes, time(), why)
        if await store.close_run(lease, record.last_event_id + 1, frames, ended):
            return ended


async def _leave_note(store: Store, record: RunRecord) -> None:
    """Before the end of the run, as for one that ends by itself; there is one note of a job, whoever leaves it."""
    if record.background and record.key.owner is not None:
        for call in record.calls:
            note = Note(record.key.run_id, call.call_id, lost_note(call.call_id), time())
            await store.add_note(record.key.owner, record.thread_id, note)


async def _close_questions(store: Store, key: RunKey) -> None:
    """Before the end of the run: nobody waits for the answers any more. One that comes first stays what it is."""
    while asked := [question for question in await store.questions(key) if question.open]:
        if await store.replace_questions(key, [(question, replace(question, closed=True)) for question in asked]):
            return


async def _untold(store: Store, record: RunRecord) -> list[Note]:
    """The notes that were the run's to tell, if it died in between: no other run will."""
    taken = await store.close_notes(record.key, record.thread_id)
    if not taken:
        return []
    history: Any = [] if record.messages is None else decode(record.messages)
    held = {message["id"] for message in history}
    log = await _log_of(store, record)
    return [note for note in taken if note.message_id not in held and encode(note.message_id) not in log]


async def _log_of(store: Store, record: RunRecord) -> bytes:
    bounds = await store.bounds(record.key)
    if bounds is None or bounds.first > bounds.last:
        return b""
    follower = store.follow(record.key, bounds.first - 1)
    pieces = []
    async for data in follower:
        pieces.append(data)
        if follower.cursor >= bounds.last:
            break
    follower.close()
    return b"".join(pieces)


def _end(record: RunRecord, notes: list[Note], now: float, why: str) -> tuple[list[bytes], RunRecord]:
    """The events that are missing, and the record of the run that is over."""
    machine = RunMachine.resumed(record, record.last_event_id)
    frames = [machine.start(now)] if machine.state is State.NEW else []
    if record.stop_requested is not None and machine.state is not State.STOPPING:
        frames.append(machine.stop(now, record.stop_requested))
    for note in notes:
        frames += [machine.emit(event) for event in events.text_message(int(now * 1000), note.message_id, note.text)]
    for call in record.calls:
        if call.ended_at is None:
            output = outcomes.interrupted(call.tool_name, WHAT_ENDED[why], retryable=False)
            frames += [machine.emit(event) for event in _result(call, output, now)]
            machine.set_call(replace(call, status=output.status, ended_at=now, open=False))
            if record.messages is None and len(record.calls) == 1:  # the one call of `/tools`, or of a background run
                machine.record = replace(machine.record, result=encode(output.to_wire()))
    if record.stop_requested is not None:  # also when something else was stopping it before
        machine.record = replace(machine.record, reason=record.stop_requested)
    stopped = machine.record.reason == "user"
    frames += machine.cancel(now) if stopped else machine.fail(now, *ENDINGS[why])
    return frames, machine.record


def _result(call: CallRecord, output: ToolOutput, now: float) -> Iterator[dict[str, Any]]:
    """What goes out for a call that was at work, or that an agent had told of; no other is known to anybody."""
    if call.started_at is None and not call.open:
        return
    ms = int(now * 1000)
    fields = result_fields(output, 0 if call.started_at is None else max(now - call.started_at, 0))
    yield events.custom(ms, "tool.result", {"toolCallId": call.call_id, "toolName": call.tool_name, **fields})
    if call.open:
        yield events.tool_call_result(ms, call.call_id, output.text, is_error=True)
