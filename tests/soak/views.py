"""Runs as viewers see them: each viewer hops from worker to worker, and what it has got must be one gapless log."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.soak.client import Away, Stream, opened
from tests.soak.fleet import Fleet, Worker
from tests.soak.tally import Tally

__all__ = ["TERMINALS", "Frames", "Run", "Viewer", "number_of", "whole"]

TERMINALS = ("RUN_FINISHED", "RUN_ERROR")
WHOLE_SECONDS = 30.0


class Frames:
    """Takes the bytes of a stream apart; what has no number is not part of the log."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        yield from (frame + b"\n\n" for frame in frames)


def number_of(frame: bytes) -> int | None:
    return int(frame[4 : frame.index(b"\n")]) if frame.startswith(b"id: ") else None


def event_of(frame: bytes) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(frame[frame.index(b"data: ") + 6 :])
    return event


@dataclass
class Run:
    """One run and what is known of it. `events` are those that any viewer has seen, in order."""

    run_id: str
    thread_id: str
    session: str
    kind: str
    call_id: str = "c"
    events: list[dict[str, Any]] = field(default_factory=list)
    stop_accepted: bool = False
    stop_maybe: bool = False
    #: Where its start was asked for: who executes a run that never said so.
    asked: list[Worker] = field(default_factory=list)
    #: A background run goes on where its parent was.
    parent: Run | None = None
    answers: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    given_up: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {"x-session-id": self.session}

    @property
    def over(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in TERMINALS

    @property
    def completed(self) -> bool:
        return self.over and self.events[-1]["type"] == "RUN_FINISHED"

    @property
    def pid(self) -> int | None:
        """The process that executes it, once that is known."""
        found = next(self.named("began"), None)
        if found is not None:
            return int(found["value"]["pid"])
        return None if self.parent is None else self.parent.pid

    def named(self, name: str) -> Iterator[dict[str, Any]]:
        return (event for event in self.events if event.get("name") == name)

    def saw(self, number: int, event: dict[str, Any]) -> None:
        if number == len(self.events) + 1:
            self.events.append(event)
            self.changed.set()
            self.changed = asyncio.Event()

    def give_up(self) -> None:
        """Nobody watches it any more."""
        self.given_up = True
        self.changed.set()

    async def until(self, look: Callable[[], Any], seconds: float = 90.0) -> bool:
        """Waits until that is true; False when the run is over first, or nothing comes."""
        try:
            async with asyncio.timeout(seconds):
                while not look():
                    if self.over or self.given_up:
                        return False
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True


class Viewer:
    """Reads one run, wherever it gets it, from where it has come to. `frames` is what it has got."""

    def __init__(self, run: Run, fleet: Fleet, tally: Tally, rng: random.Random) -> None:
        self.run = run
        self.frames: list[bytes] = []
        self.over = False
        self._fleet = fleet
        self._tally = tally
        self._rng = rng
        self._slow = rng.random() < 0.15

    async def watch(self) -> None:
        """Returns when it has seen the end."""
        while not self.over:
            self._tally.counts["hops"] += 1
            # Now and then also one that is dead or stands still, as a load balancer would.
            workers = self._fleet.well if self._rng.random() < 0.9 else self._fleet.workers
            worker = self._rng.choice(workers or self._fleet.workers)
            try:
                async with asyncio.timeout(self._rng.uniform(0.5, 6)):
                    await self._visit(worker)
            except TimeoutError:  # it is time to hop
                pass
            except Away:
                await asyncio.sleep(self._rng.uniform(0.05, 0.4))

    async def _visit(self, worker: Worker) -> None:
        headers = {**self.run.headers, "last-event-id": str(len(self.frames))}
        path = f"/runs/{self.run.run_id}/events"
        async with opened(worker.port, "GET", path, headers=headers, limit=2048 if self._slow else 1 << 16) as stream:
            if stream.status == 200:
                await self._read(stream)
            elif stream.status == 204 and self._complete:  # it was cut between the terminal and the end of the body
                self.over = True
            elif stream.status == 503:
                self._tally.counts["viewers sent away (503)"] += 1
                await asyncio.sleep(0.3)
            else:
                self._odd(f"{stream.status} {(await stream.body())[:200]!r} at {worker.name}")
                await asyncio.sleep(1)

    async def _read(self, stream: Stream) -> None:
        frames = Frames()
        while data := await stream.chunk():
            for frame in frames.feed(data):
                self._take(frame)
            if self._slow:
                await asyncio.sleep(self._rng.uniform(0, 0.5))
        self.over = self._complete
        if not self.over:
            self._odd("a stream ended regularly without a terminal event")

    @property
    def _complete(self) -> bool:
        return bool(self.frames) and event_of(self.frames[-1])["type"] in TERMINALS

    def _take(self, frame: bytes) -> None:
        number = number_of(frame)
        if number is None:
            if b"data: " in frame:
                self._tally.counts["local ends (events without id)"] += 1
            return
        due = len(self.frames) + 1
        if self.frames and due - 1 <= len(self.run.events) and self.run.events[due - 2]["type"] in TERMINALS:
            self._bad("wrong terminals", f"event {number} comes after the terminal")
        if number != due:
            self._bad("gaps" if number > due else "duplicates", f"event {number} came where {due} was due")
            return
        self.frames.append(frame)
        self._tally.counts["events to viewers"] += 1
        self.run.saw(number, event_of(frame))

    def _odd(self, what: str) -> None:
        self._bad("wrong answers to viewers", f"after event {len(self.frames)}: {what}")

    def _bad(self, kind: str, what: str) -> None:
        self._tally.bad(kind, f"{self.run.run_id} ({self.run.kind}): {what}", self.frames, self.run.run_id)


async def whole(worker: Worker, run: Run) -> bytes:
    """The log of a run that is over, from its beginning, as one worker tells it; `Away` when it does not."""
    frames, got = Frames(), []
    try:
        async with (
            asyncio.timeout(WHOLE_SECONDS),
            opened(worker.port, "GET", f"/runs/{run.run_id}/events", headers=run.headers) as stream,
        ):
            if stream.status == 503:
                raise Away("503")
            if stream.status != 200:
                return b"status %d: %s" % (stream.status, await stream.body())
            while data := await stream.chunk():
                got += [frame for frame in frames.feed(data) if number_of(frame) is not None]
    except TimeoutError:
        raise Away("the log has no end") from None
    return b"".join(got)
