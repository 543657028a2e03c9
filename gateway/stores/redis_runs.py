"""What is kept of a run in Redis, as it is read: its record, and the indexes by owner and thread.

An index leads to runs and is written before the run is. Redis forgets runs by itself and tells no index, so who reads
one skips what is not there, and takes it out; and whoever adds a run looks after two others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Page
from gateway.stores.redis_keys import Keys, raw
from gateway.stores.redis_line import Line
from gateway.stores.redis_scripts import FIELDS, INDEX, UNINDEX, Command
from gateway.stores.values import load

__all__ = ["Index", "RunFields", "fields_command", "read_run"]

FEWEST = 100  # runs looked at together when a list is filtered
KEPT = 90 * 24 * 3600  # an index that nobody adds to is forgotten after so long


class RunFields:
    """The fields of a run that make its record."""

    __slots__ = ("epoch", "gone", "record", "worker")

    def __init__(self, reply: Sequence[Any]) -> None:
        record, messages, result, last, stop, gone, worker, epoch = reply[: len(FIELDS)]
        known = load(RunRecord, record.decode())
        self.gone = None if gone is None else float(gone)
        self.worker = worker.decode("utf-8", "surrogatepass")
        self.epoch = int(epoch)
        # The worker may not have heard of a Stop that the run knows.
        asked = known.stop_requested if stop is None else stop.decode("utf-8", "surrogatepass")
        self.record = replace(known, messages=messages, result=result, last_event_id=int(last), stop_requested=asked)


def fields_command(key: bytes) -> Command:
    return ("HMGET", key, *FIELDS)


def read_run(reply: Sequence[Any], now: float | None) -> RunFields | None:
    """None when there is no such run (any more). `now` is given when the time is not the server's."""
    if reply[0] is None:
        return None
    fields = RunFields(reply)
    return None if now is not None and fields.gone is not None and fields.gone <= now else fields


class Index:
    """The indexes of all owners."""

    def __init__(self, settings: Settings, keys: Keys, line: Line) -> None:
        self._keys = keys
        self._line = line
        self._kept = int(KEPT + settings.run_ttl + settings.interrupt_ttl)

    def add(self, owner: str, record: RunRecord, now: str, *, again: bool = False) -> Command:
        """Puts a run into the indexes of its owner; `again`: in front, although it is there."""
        return INDEX(self._names(owner, record.thread_id), now, raw(record.key.run_id), self._kept, int(again))

    def added(self, owner: str, record: RunRecord, answer: list[Any], now: str, *, created: bool) -> None:
        """Does what is left to do after `add`."""
        was, some = answer
        if created and was:
            self._line.tell(self.add(owner, record, now, again=True))  # an earlier run of this name has been forgotten
        if some:
            self._look_after(owner, record.thread_id, some, now)

    def remove(self, key: RunKey, thread_id: str) -> None:
        """The run was never there."""
        if key.owner is not None:
            for name in self._names(key.owner, thread_id):
                self._line.tell(("ZREM", name, raw(key.run_id)))

    async def page(
        self, owner: str, thread_id: str | None, status: str | None, limit: int, after: str | None, now: float | None
    ) -> Page:
        name = self._keys.owner(owner) if thread_id is None else self._keys.thread(owner, thread_id)
        bound = "+inf"
        if after is not None:
            score = await self._line.ask(("ZSCORE", name, raw(after)))
            if score is None:
                return Page([], None)
            bound = f"({int(float(score))}"
        found: list[RunRecord] = []
        size = limit + 1 if status is None else max(limit + 1, FEWEST)
        while len(found) <= limit:
            reply = await self._line.ask(("ZREVRANGEBYSCORE", name, bound, "-inf", "WITHSCORES", "LIMIT", 0, size))
            ids: list[bytes] = reply[::2]
            records = await self._records(owner, ids, name, now)
            found += [record for record in records if status in (None, record.status)]
            if len(ids) < size:
                break
            bound = f"({int(float(reply[-1]))}"
        return Page(found[:limit], found[limit - 1].key.run_id if len(found) > limit else None)

    async def _records(self, owner: str, ids: list[bytes], name: bytes, now: float | None) -> list[RunRecord]:
        if not ids:
            return []
        keys = [self._keys.run(RunKey(owner, _text(run_id))).run for run_id in ids]
        runs = [read_run(reply, now) for reply in await self._line.submit(*map(fields_command, keys))]
        gone = [run_id for run_id, run in zip(ids, runs, strict=True) if run is None]
        if gone:
            self._line.tell(UNINDEX([name], "" if now is None else str(now), *gone))
        return [run.record for run in runs if run is not None]

    def _look_after(self, owner: str, thread_id: str, ids: list[bytes], now: str) -> None:
        """Takes out of the indexes what is not there any more."""
        asked = self._line.submit(*(("EXISTS", self._keys.run(RunKey(owner, _text(run_id))).run) for run_id in ids))

        def told(answer: Any) -> None:
            if answer.cancelled() or answer.exception() is not None:
                return
            gone = [run_id for run_id, there in zip(ids, answer.result(), strict=True) if not there]
            if gone:
                self._line.tell(UNINDEX(self._names(owner, thread_id), now, *gone))

        asked.add_done_callback(told)

    def _names(self, owner: str, thread_id: str) -> list[bytes]:
        return [self._keys.owner(owner), self._keys.thread(owner, thread_id)]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
