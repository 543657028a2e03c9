"""`scripts/soak`: some minutes of everything at once, with trouble, and a count of what must never happen."""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from gateway import Settings
from gateway.run.records import RunKey
from gateway.stores.urls import open_store
from tests.soak.chaos import DRAIN, Chaos
from tests.soak.client import Away, ask
from tests.soak.fleet import Fleet
from tests.soak.lives import Lives, digest
from tests.soak.tally import Tally
from tests.soak.views import Run, whole
from tests.support.redis import RedisServer

LEASE = 4.0
AT_ONCE = 16
CALM = 6  # a part of the time without trouble, in which Stop is measured
NOT_OVER = ("running", "waiting", "stopping")
FLAGS = ["--lease-seconds", f"{LEASE:g}", "--stop-grace", "2", "--keep-alive", "2", "--drain-timeout", f"{DRAIN:g}"]
# More than it takes to start Redis again where every core is busy with the workers.
FLAGS += ["--store-timeout", "30"]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Soak:
    """One round: a store, its workers, and their runs."""

    def __init__(self, store: str, workers: int, runs: int, seconds: float, seed: int, folder: Path) -> None:
        self._title = f"{store}, {workers} workers, {runs} runs at a time, {seconds:g} s, seed {seed}"
        self._runs = runs
        self._seconds = seconds
        folder.mkdir()
        self._place: RedisServer | Path = folder / "runs.db"
        if store == "redis":
            self._place = RedisServer()
        self._url = self._place.url if isinstance(self._place, RedisServer) else f"sqlite:///{self._place}"
        self._folder = folder
        self._tally = Tally(folder)
        rng = random.Random(seed)
        self._fleet = Fleet(workers, ["--store", self._url, *FLAGS], folder)
        self._chaos = Chaos(self._fleet, self._place, self._tally, random.Random(rng.random()), LEASE)
        self._lives = Lives(self._fleet, self._chaos, self._tally, random.Random(rng.random()), LEASE)

    async def go(self) -> bool:
        """Whether all was as it must be."""
        say(f"\n{self._title}")
        try:
            await self._fleet.start()
            await self._go_on()
            await self._look_back()
        finally:
            self._fleet.close()
            self._keep_log()
        self._count_fenced()
        say(self._tally.table({}))
        if self._tally.failed:
            say(f"{self._tally.details()}\n  kept in {self._folder}")
        return not self._tally.failed

    async def _go_on(self) -> None:
        until = time.monotonic() + self._seconds
        async with asyncio.TaskGroup() as group:
            chaos = group.create_task(self._chaos.go_on(self._seconds / CALM))
            for _ in range(self._runs):
                group.create_task(self._lives.one_after_the_other(until))
            group.create_task(self._watch_workers(until))
            await asyncio.sleep(self._seconds)
            chaos.cancel()
            with suppress(asyncio.CancelledError):
                await chaos
            await self._chaos.end()

    async def _watch_workers(self, until: float) -> None:
        """One that ends without being told to is worse than any gap."""
        while time.monotonic() < until:
            for worker in self._fleet.workers:
                if worker.died_by_itself():
                    self._tally.bad("workers that died by themselves", f"{worker.name}: see its log")
                    await worker.start()
            await asyncio.sleep(1)

    # -- afterwards --

    async def _look_back(self) -> None:
        """Everything once more, now that all is well: nothing may have changed since, and nothing be left."""
        gate = asyncio.Semaphore(AT_ONCE)
        runs = list(self._lives.digests.values())
        await asyncio.gather(*(self._unchanged(gate, run, before) for run, before in runs))
        for worker in self._fleet.workers:
            for run_id in worker.at_work():
                self._tally.bad("still at work", f"{worker.name} has not ended {run_id}, which is over")
            for session in self._lives.sessions:
                for status in NOT_OVER:
                    await self._none_listed(worker.port, worker.name, session, status)
        await self._nothing_left([run for run, _ in runs])
        executed = Counter((run_id, call_id) for run_id, call_id, _ in self._fleet.executions())
        self._tally.counts["executions"] = sum(executed.values())
        for (run_id, call_id), times in executed.items():
            if times > 1:
                self._tally.bad("executed again", f"{run_id} {call_id}: {times} times")

    async def _unchanged(self, gate: asyncio.Semaphore, run: Run, before: bytes) -> None:
        async with gate:
            for worker in random.sample(self._fleet.workers, 2):
                try:
                    log = await whole(worker, run)
                except Away as error:
                    self._tally.bad("lost runs", f"{run.run_id}: afterwards {worker.name} does not tell it: {error}")
                    continue
                if digest(log) != before:
                    self._tally.bad("changed after their end", f"{run.run_id} at {worker.name}", [log], run.run_id)

    async def _none_listed(self, port: int, name: str, session: str, status: str) -> None:
        try:
            listed = await ask(port, "GET", f"/runs?status={status}", headers={"x-session-id": session})
        except Away as error:
            self._tally.bad("wrong answers", f"afterwards {name} does not list its runs: {error}")
            return
        for item in listed.data["items"]:
            self._tally.bad("orphans left", f"{name} lists {item['runId']} as {status}: {item}")

    async def _nothing_left(self, runs: list[Run]) -> None:
        """In the store itself."""
        async with open_store(Settings(store=self._url)) as store:
            for key in await store.orphans():
                self._tally.bad("orphans left", f"the store has {key}")
            for run in runs:
                for question in await store.questions(RunKey(f"anon:{run.session}", run.run_id)):
                    if question.open and question.kind != "detach":
                        # Its worker died between the end of the run and this: whoever answers finds the run over.
                        self._tally.counts["questions that nobody closed"] += 1

    def _count_fenced(self) -> None:
        self._tally.counts["fenced appends refused"] = len(self._fleet.log_lines("is lost to this worker: superseded"))
        self._tally.counts["tracebacks in the logs"] = len(self._fleet.log_lines("Traceback"))
        for line in self._fleet.log_lines("is lost to this worker: store"):
            self._tally.bad("runs lost to the store", line)

    def _keep_log(self) -> None:
        lines = [f"{since:.3f} {until:.3f} {what}\n" for since, until, what in self._chaos.done]
        (self._folder / "chaos.log").write_text("".join(lines))
        if isinstance(self._place, RedisServer):
            (self._folder / "redis.log").write_text(self._place.log)
            self._place.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis", "both"], default="both")
    parser.add_argument("--workers", type=int, action="append", help="how many; may be repeated (2 and 4)")
    parser.add_argument("--runs", type=int, default=200, help="at a time (200)")
    parser.add_argument("--seconds", type=float, default=120, help="for each round (120)")
    parser.add_argument("--seed", type=int, help="of what is done when; printed (random)")
    parser.add_argument("--keep", action="store_true", help="keep the logs also when all is well")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    stores = ["sqlite", "redis"] if given.store == "both" else [given.store]
    rounds = [(store, workers) for store in stores for workers in given.workers or [2, 4]]
    well = [
        asyncio.run(Soak(store, workers, given.runs, given.seconds, seed, folder / f"{store}-{workers}").go())
        for store, workers in rounds
    ]
    if all(well) and not given.keep:
        shutil.rmtree(folder)
    else:
        say(f"\nLogs: {folder}")
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
