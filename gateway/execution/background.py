"""Background runs: how a call gets one of its own when a person detaches it, and the note at its end (contract 5.4)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import time
from typing import Any, Literal, NamedTuple

from gateway.execution.bodies import Body
from gateway.execution.call import Call
from gateway.execution.detaching import detached_note, ended_note, move, pending_offers, waits_of
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.question_desk import QuestionDesk
from gateway.execution.spec import RunSpec, no_context
from gateway.execution.waiting import retell_wait
from gateway.run.questions import Note
from gateway.run.records import RunKey, RunRecord
from gateway.stores.base import Lease, Store

__all__ = ["Detached", "Detacher", "Rejected", "new_job_id"]


class Detached(NamedTuple):
    """The call goes on as run `run_id`."""

    call_id: str
    run_id: str


class Rejected(NamedTuple):
    """The call stays where it is; `error` is for people."""

    reason: Literal["not_running", "not_detachable"]
    error: str


class BackgroundJob:
    """The job of a background run: waits for what the tool has left to it, and leaves a note."""

    def __init__(self, frame: Body, store: Store) -> None:
        self._frame = frame
        self._store = store
        self.call: Call | None = None

    async def __call__(self, run: LiveRun, executor: Executor, context: Any) -> dict[str, Any]:
        if self.call is None:
            raise RuntimeError("A background run without a call.")
        output = await executor.go_on(self.call, self._frame)
        if run.key.owner is not None:
            # Before the end of the run: who sees the end may begin the thread's next run at once.
            text = ended_note(self.call.call_id, output.text)
            note = Note(run.key.run_id, self.call.call_id, text, time())
            await self._store.add_note(run.key.owner, run.record.thread_id, note)
        return output.to_wire()


Launch = Callable[[RunSpec, RunRecord, Lease], LiveRun]


class Detacher:
    """Moves calls of this worker's runs. `launch` starts a run that is in the store, in one turn of the loop."""

    def __init__(self, store: Store, desk: QuestionDesk, worker: str, launch: Launch) -> None:
        self._store = store
        self._desk = desk
        self._worker = worker
        self._launch = launch

    async def detach(self, run: LiveRun, call: Call, run_id: str | None = None) -> Detached | Rejected:
        """Moves one call to the background, to a run of this id or a fresh one. Never refused for a limit."""
        if (refusal := _refusal(call)) is not None:
            return refusal
        record = _record_of(run, call, run_id or new_job_id())
        created = await self._store.create(record, secrets.token_bytes(16), self._worker)
        if created.lease is None:
            raise RuntimeError("A run with a fresh random id is there already.")
        if (refusal := _refusal(call)) is not None:  # in the meantime
            await self._store.discard(created.lease)
            return refusal
        # Those that are not told yet move by themselves.
        told = [(of, wait, wait.question) for of, wait in waits_of(call) if wait.told and wait.question is not None]
        self._move(run, call, record, created.lease)
        for of, wait, question in told:
            await self._desk.move(created.lease, run.key, question)
            retell_wait(of, wait)
        return Detached(call.call_id, record.key.run_id)

    def _move(self, run: LiveRun, call: Call, record: RunRecord, lease: Lease) -> None:
        if run.spec is None or call.body is None:
            raise RuntimeError("A call that can move has a run, and code.")
        offers = pending_offers(call)
        call.offers = [offer for offer in call.offers if offer not in offers]
        work = BackgroundJob(call.body, self._store)
        context = None if call.ctx is None else call.ctx.context
        spec = RunSpec(
            key=record.key,
            thread_id=record.thread_id,
            agent=record.agent,
            fingerprint=b"",
            caller=run.spec.caller,
            prepare=_nothing,
            job=work,
            context=partial(no_context, context),
            parent_run_id=record.parent_run_id,
            on_disconnect="continue",
            tools=run.tools,
        )
        job = self._launch(spec, record, lease)
        run.jobs.append(job)
        call.tell("tool.detached", {"runId": record.key.run_id})
        call.show_detached(record.key.run_id)
        work.call = moved = move(call, job)
        moved.work_left = [offer.work for offer in offers]
        moved.around, call.around = call.around, None
        for offer in offers:
            offer.note.set_result(detached_note(call.call_id))
        for woken in call.woken:
            woken.set_result(None)
        call.woken.clear()


def _nothing(run: LiveRun) -> None:
    """A background run has no calls to begin."""


def _refusal(call: Call) -> Rejected | None:
    if call.closed or call.moved is not None or call.signal.aborted:
        return Rejected("not_running", f'"{call.tool_name}" is not running any more.')
    if not pending_offers(call):
        return Rejected("not_detachable", f'"{call.tool_name}" cannot be moved to the background now.')
    return None


def new_job_id() -> str:
    """An id for a background run."""
    return f"job_{secrets.token_urlsafe(18)}"


def _record_of(run: LiveRun, call: Call, run_id: str) -> RunRecord:
    """With its call from the start: whoever finds it orphaned a moment later leaves the note for that."""
    parent = run.record
    key = RunKey(parent.key.owner, run_id)
    known = parent.call(call.call_id)
    return RunRecord(
        key,
        parent.thread_id,
        parent.agent,
        created_at=time(),
        parent_run_id=parent.key.run_id,
        calls=() if known is None else (replace(known, open=False),),
        background=True,
    )
