"""The lives of runs: started, watched, stopped, answered and moved at any worker, which may die of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import count
from typing import Any

from tests.soak.chaos import Chaos
from tests.soak.checks import check_run
from tests.soak.client import Answer, Away, ask, opened
from tests.soak.fleet import Fleet, Worker
from tests.soak.tally import Tally
from tests.soak.views import Frames, Run, Viewer, event_of, number_of, whole

__all__ = ["Lives"]

KINDS = {"fast": 2, "slow": 2, "endless": 4, "asks": 3, "movable": 3, "plain": 2, "several": 1}
VIEWERS = 2
OVER_SECONDS = 120.0  # the longest that a life may take when all goes well is about 30
ANSWERED_SECONDS = 60.0
ASYNC = {"prefer": "respond-async"}
STARTED = (200, 202)


class Lives:
    """`digests` are those of the logs of runs that are over, as two workers told them."""

    def __init__(self, fleet: Fleet, chaos: Chaos, tally: Tally, rng: random.Random, lease: float) -> None:
        self._fleet = fleet
        self._chaos = chaos
        self._tally = tally
        self._rng = rng
        self._lease = lease
        self._ids = count(1)
        self._sessions = [f"soak-session-{rng.getrandbits(64):016x}" for _ in range(8)]
        self.digests: dict[str, tuple[Run, bytes]] = {}

    @property
    def sessions(self) -> list[str]:
        return self._sessions

    async def one_after_the_other(self, until: float) -> None:
        """Keeps one run going until then (monotonic seconds)."""
        await asyncio.sleep(self._rng.uniform(0, 3))
        while time.monotonic() < until:
            kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
            number = next(self._ids)
            run = Run(f"{kind}-{number}", f"t-{number}", self._rng.choice(self._sessions), kind)
            try:
                await self._live(run)
            except LookupError as error:
                self._tally.bad("lost runs", f"{run.run_id}: {error}")

    async def _live(self, run: Run) -> None:
        self._tally.counts["runs"] += 1
        await self._start(run)
        acts: Mapping[str, Callable[[Run], Any]] = {"endless": self._stop, "asks": self._answer, "movable": self._move}
        await asyncio.gather(self._watched(run), acts.get(run.kind, self._nothing)(run))
        if run.kind == "movable":
            await self._job(run)

    async def _nothing(self, run: Run) -> None:
        return

    # -- asking --

    async def anywhere(
        self, run: Run, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Answer, bool]:
        """The answer of some worker, and whether others were asked in vain before: they may have done it all the same.

        `LookupError` when no worker has answered for a minute.
        """
        end, vain, why = time.monotonic() + ANSWERED_SECONDS, False, "nobody was asked"
        while time.monotonic() < end:
            worker = self._any()
            try:
                answer = await ask(worker.port, method, path, body, {**run.headers, **(headers or {})})
            except Away as error:
                vain, why = True, f"{worker.name}: {error}"
            else:
                if answer.status < 500:
                    return answer, vain
                vain, why = True, f"{worker.name}: {answer.status} {answer.code}"
                self._tally.counts[f"answers {answer.status} {answer.code}"] += 1
                if answer.status != 503:
                    self._tally.bad("wrong answers", f"{run.run_id}: {method} {path}: {answer}")
            await asyncio.sleep(self._rng.uniform(0.1, 0.4))
        raise LookupError(f"{method} {path} is not answered: {why}")

    def _any(self, but: Worker | None = None) -> Worker:
        workers = [worker for worker in self._fleet.well if worker is not but]
        return self._rng.choice(workers or self._fleet.workers)

    def _wrong(self, run: Run, what: str, answer: Answer) -> None:
        self._tally.bad("wrong answers", f"{run.run_id}: {what}: {answer.status} {answer.data}")

    # -- starting --

    async def _start(self, run: Run) -> None:
        """At one worker; now and then at two at once, of which one executes it."""
        if run.kind in ("several", "teller"):
            await self._start_agent(run)
            return
        body = {"runId": run.run_id, "threadId": run.thread_id, "toolCallId": run.call_id}
        twice = 2 if self._rng.random() < 0.1 else 1
        run.asked = list(self._fleet.workers)
        path = f"/tools/{run.kind}"
        answers = await asyncio.gather(*(self.anywhere(run, "POST", path, body, ASYNC) for _ in range(twice)))
        for answer, _ in answers:
            if answer.status not in STARTED:
                self._wrong(run, "start", answer)

    async def _start_agent(self, run: Run) -> None:
        agent, messages = "teller", [{"id": "u", "role": "user", "content": "Go on."}]
        if run.kind == "several":
            agent = "tools"
            calls = [("a", "slow", '{"count": 20}'), ("b", "fast", '{"count": 80}'), ("c", "plain", '{"count": 20}')]
            asked = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": given}}
                for id_, name, given in calls
            ]
            messages = [{"id": "m", "role": "assistant", "toolCalls": asked}]  # type: ignore[dict-item]
        body = {"threadId": run.thread_id, "runId": run.run_id, "state": {}, "messages": messages, "tools": []}
        body |= {"context": [], "forwardedProps": {}}
        run.asked = list(self._fleet.workers)
        end = time.monotonic() + ANSWERED_SECONDS
        while time.monotonic() < end:
            try:
                async with opened(self._any().port, "POST", f"/agents/{agent}", body, run.headers) as stream:
                    if stream.status == 200:
                        return
                    if stream.status != 503:
                        self._wrong(run, "start", Answer(stream.status, await stream.body()))
            except Away:
                pass
            await asyncio.sleep(self._rng.uniform(0.1, 0.4))
        raise LookupError("it could not be started")

    # -- watching and checking --

    async def _watched(self, run: Run) -> None:
        viewers = [Viewer(run, self._fleet, self._tally, self._rng) for _ in range(VIEWERS)]
        try:
            async with asyncio.timeout(OVER_SECONDS):
                await asyncio.gather(*(viewer.watch() for viewer in viewers))
        except TimeoutError:
            seen = [len(viewer.frames) for viewer in viewers]
            last = run.events[-1] if run.events else None
            what = f"{run.run_id}: not over for its viewers after {OVER_SECONDS:g} s, they have {seen}, last {last}"
            self._tally.bad("lost runs", what, viewers[0].frames, run.run_id)
            run.give_up()
            return
        await self._check(run, [b"".join(viewer.frames) for viewer in viewers])

    async def _check(self, run: Run, views: list[bytes]) -> None:
        """Compares what the viewers have with what two workers say, and looks at that."""
        logs = await self.from_two(run)
        record, _ = await self.anywhere(run, "GET", f"/runs/{run.run_id}")
        if any(view != logs[0] for view in [*views, *logs]):
            for index, view in enumerate([*views, *logs]):
                self._tally.bad("views that differ", f"{run.run_id} view {index}", [view], f"{run.run_id}.{index}")
            return
        check_run(run, logs[0], record.data, self._fleet, self._tally, self._lease)
        self._tally.counts["events"] += len(run.events)
        self.digests[run.run_id] = (run, digest(logs[0]))
        after, _ = await self.anywhere(run, "GET", f"/runs/{run.run_id}/events?offset={len(run.events)}")
        if after.status != 204:
            self._wrong(run, "reading on from its last id", after)

    async def from_two(self, run: Run) -> list[bytes]:
        """Its whole log by two different workers, if two live."""
        end = time.monotonic() + ANSWERED_SECONDS
        told: dict[str, bytes] = {}
        while len(told) < 2 and time.monotonic() < end:
            worker = self._any()
            if worker.name in told:
                await asyncio.sleep(0.1)
                continue
            try:
                told[worker.name] = await whole(worker, run)
            except Away:
                await asyncio.sleep(0.3)
        if not told:
            raise LookupError("no worker tells its log")
        return list(told.values())

    # -- what is done to them --

    async def _stop(self, run: Run) -> None:
        """From a worker that does not run it, seen at one that does not run it either."""
        wanted = self._rng.randint(1, 30) if run.kind == "endless" else 1
        if not await run.until(lambda: len(run.events) > wanted):
            return
        owner = self._fleet.worker_of(run.pid)
        seen = asyncio.create_task(self._sees_stopping(run, self._any(owner)))
        await asyncio.sleep(0.3)  # it looks on before that
        since = time.time()
        path, stopper = f"/runs/{run.run_id}/stop", self._any(owner)
        run.stop_maybe = True
        try:
            answer = await ask(stopper.port, "POST", path, headers=run.headers)
        except Away:
            answer = Answer(503, None)
        direct = answer.status == 202
        if answer.status >= 500:
            answer, _ = await self.anywhere(run, "POST", path)
        if answer.status == 202 and "endedAt" not in answer.data:
            run.stop_accepted = True
        elif answer.status not in STARTED:
            self._wrong(run, "stop", answer)
        await self._note_stop_times(run, since, await seen, direct=direct and stopper is not owner)

    async def _sees_stopping(self, run: Run, worker: Worker) -> float | None:
        headers = {**run.headers, "last-event-id": str(len(run.events))}
        frames = Frames()
        try:
            async with (
                asyncio.timeout(30),
                opened(worker.port, "GET", f"/runs/{run.run_id}/events", headers=headers) as stream,
            ):
                while data := await stream.chunk():
                    for frame in frames.feed(data):
                        if number_of(frame) is not None and event_of(frame).get("name") == "run.stopping":
                            return time.time()
        except (Away, TimeoutError):
            pass
        return None

    async def _note_stop_times(self, run: Run, since: float, seen: float | None, *, direct: bool) -> None:
        await run.until(lambda: False)  # its end
        if seen is None or not direct:
            return
        calm = self._chaos.calm(since, seen)
        self._tally.times["Stop seen at another worker, in trouble too"].append(seen - since)
        tool = next((event["value"]["at"] for event in run.named("saw_stop")), None)
        if calm:
            self._tally.times["Stop seen at another worker"].append(seen - since)
        if calm and tool is not None:
            self._tally.times["Stop seen by the tool"].append(max(tool - since, 0))

    async def _answer(self, run: Run) -> None:
        """One answer counts, also when two come at once; one in five is stopped instead."""
        if not await run.until(lambda: any(run.named("tool.waiting"))):
            return
        await asyncio.sleep(self._rng.uniform(0, 4))
        question = next(run.named("tool.waiting"))["value"]["interruptId"]
        if self._rng.random() < 0.2:
            await self._stop(run)
        else:
            await self._answer_it(run, question)
        await run.until(lambda: False)
        if not run.over:
            return
        late, _ = await self._say(run, question, 0)
        if late.status != 409:
            self._wrong(run, "an answer after its end", late)

    async def _answer_it(self, run: Run, question: str) -> None:
        many = self._rng.choice([1, 1, 2])
        run.answers = [self._rng.randrange(10**6) for _ in range(many)]
        said = await asyncio.gather(*(self._say(run, question, payload) for payload in run.answers))
        taken = sum(answer.status == 202 for answer, _ in said)
        if any(answer.status not in (202, 409) for answer, _ in said) or taken > 1:
            self._wrong(run, f"answers: {[answer.status for answer, _ in said]}", said[0][0])

    async def _say(self, run: Run, question: str, payload: int) -> tuple[Answer, bool]:
        body = {"interruptId": question, "status": "resolved", "payload": payload}
        return await self.anywhere(run, "POST", f"/runs/{run.run_id}/input", body)

    async def _move(self, run: Run) -> None:
        wanted = self._rng.randint(4, 40)
        if not await run.until(lambda: len(run.events) > wanted):
            return
        answer, _ = await self.anywhere(run, "POST", f"/runs/{run.run_id}/tool-calls/{run.call_id}/detach")
        if answer.status not in (202, 409):
            self._wrong(run, "detach", answer)
        self._tally.counts[f"detach {answer.status} {(answer.data or {}).get('reason', '')}".strip()] += 1

    # -- jobs and their notes --

    async def _job(self, run: Run) -> None:
        """The background run of a call that was moved, also when nobody heard of it; then its note."""
        listed, _ = await self.anywhere(run, "GET", f"/runs?threadId={run.thread_id}")
        jobs = [item["runId"] for item in listed.data["items"] if item["runId"] != run.run_id]
        if len(jobs) > 1:
            self._wrong(run, "one call moved twice", listed)
        for job_id in jobs:
            self._tally.counts["jobs"] += 1
            job = Run(job_id, run.thread_id, run.session, "job", run.call_id, parent=run, asked=run.asked)
            stopped = self._rng.random() < 0.25
            await asyncio.gather(self._watched(job), self._stop(job) if stopped else self._nothing(job))
            await self._note(run)

    async def _note(self, run: Run) -> None:
        """Shown once by every worker, and told by one of two agent runs that come together."""
        note = f"{run.call_id}:note"
        for _ in range(2):
            thread, _ = await self.anywhere(run, "GET", f"/threads/{run.thread_id}")
            shown = [message["id"] for message in thread.data["messages"]].count(note)
            if shown != 1:
                self._tally.bad("wrong notes", f"{run.run_id}: its note is in the thread {shown} times")
        tellers: list[Run] = []
        while not any(teller.completed for teller in tellers):  # those that died may have come to tell nothing
            both = [Run(f"teller-{next(self._ids)}", run.thread_id, run.session, "teller") for _ in range(2)]
            await asyncio.gather(*(self._start(teller) for teller in both))
            await asyncio.gather(*(self._watched(teller) for teller in both))
            tellers += both
        told = sum(
            event["type"] == "TEXT_MESSAGE_START" and event["messageId"] == note
            for teller in tellers
            for event in teller.events
        )
        if told != 1:
            self._tally.bad(
                "wrong notes", f"{run.run_id}: its note was told {told} times by {tellers[0].run_id} and those after it"
            )


def digest(log: bytes) -> bytes:
    return blake2b(log, digest_size=16).digest()
