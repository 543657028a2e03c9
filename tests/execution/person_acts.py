"""Random people for `test_person_schedules`: they answer, stop, detach, resume, watch, and are the pages of page tools.

Everything goes the way that HTTP goes: the same functions, with a stand-in for the engine.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from gateway.errors import GatewayError, InvalidArguments, RequestError
from gateway.execution.background import Detached
from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.jobs import CallsJob
from gateway.execution.live import Channel, LiveRun
from gateway.execution.page_tools import PageTool
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.supervisor import RunSpec, Supervisor
from gateway.http.agent_runs import _Calls
from gateway.http.answers import answer_call, answer_question, claim_call, pause_call
from gateway.http.background import detach_all
from gateway.http.engine import Engine
from gateway.http.resume import resumed
from gateway.run.questions import APPROVAL_KEY, Note, Question
from gateway.run.records import CallRecord, RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import Created, Lease, StopRequest
from gateway.stores.memory import MemoryStore
from gateway.wire.inputs import AnswerInput, ClaimInput, ResultInput, ResumeEntry, WaitingInput
from tests.execution.person_tools import PAGES, TOOLS, Ledger, RunPlan, Schedule, moment
from tests.execution.running import parse

__all__ = ["Given", "Person", "Resumption", "Seen", "Viewer", "WayGivingStore", "World", "waits_in"]

T = TypeVar("T")

THREAD = "thread"
OUTPUTS: tuple[dict[str, Any] | None, ...] = (
    {"content": [{"type": "text", "text": "done"}], "isError": False, "status": "completed"},
    {"content": [{"type": "text", "text": "no"}], "isError": True, "status": "failed"},
    None,
)

Seen = list[tuple[float, int, dict[str, Any]]]


class WayGivingStore(MemoryStore):
    """Lets others run while it works, as a store does that is no dictionary."""

    def __init__(self, settings: Settings, clock: Callable[[], float], luck: random.Random) -> None:
        super().__init__(settings, clock=clock)
        self._luck = luck

    async def _turns(self) -> None:
        for _ in range(self._luck.choice([0, 0, 1, 1, 2, 4])):
            await asyncio.sleep(0)

    async def create(self, record: RunRecord, fingerprint: bytes, worker: str) -> Created:
        await self._turns()
        created = await super().create(record, fingerprint, worker)
        await self._turns()
        return created

    async def discard(self, lease: Lease) -> None:
        await self._turns()
        await super().discard(lease)

    async def get(self, key: RunKey) -> RunRecord | None:
        await self._turns()
        found = await super().get(key)
        await self._turns()
        return found

    async def ask(self, lease: Lease, question: Question) -> None:
        await self._turns()
        await super().ask(lease, question)
        await self._turns()

    async def questions(self, key: RunKey) -> list[Question]:
        await self._turns()
        found = await super().questions(key)
        await self._turns()
        return found

    async def find_question(self, interrupt_id: str) -> tuple[RunKey, Question] | None:
        await self._turns()
        return await super().find_question(interrupt_id)

    async def replace_questions(self, key: RunKey, changes: Sequence[tuple[Question, Question]]) -> bool:
        await self._turns()
        done = await super().replace_questions(key, changes)
        await self._turns()
        return done

    async def cancel_interrupted(self, key: RunKey) -> RunRecord | None:
        await self._turns()
        return await super().cancel_interrupted(key)

    async def request_stop(self, request: StopRequest) -> RunRecord | None:
        await self._turns()
        record = await super().request_stop(request)
        await self._turns()
        return record

    async def add_note(self, owner: str, thread_id: str, note: Note) -> None:
        await self._turns()
        await super().add_note(owner, thread_id, note)
        await self._turns()


@dataclass
class Given:
    """An answer that was accepted, to a question or an approval inside an open run."""

    interrupt_id: str
    question: Question
    status: str
    payload: Any
    at: float
    key: RunKey


@dataclass
class Resumption:
    """A resume that started a run."""

    key: RunKey
    of: RunKey
    at: float
    given: dict[str, ResumeEntry]
    asked: dict[str, Question]


@dataclass
class Output:
    """What a page answered."""

    call_id: str
    output: dict[str, Any] | None
    at: float


@dataclass
class Viewer:
    key: RunKey
    cursor: int
    joined: float
    left: float | None = None
    numbers: list[int] = field(default_factory=list)
    close: Callable[[], None] | None = None


class World(Ledger):
    """The runs of one schedule, everybody who has to do with them, and all that happened."""

    def __init__(self, schedule: Schedule, settings: Settings, store: MemoryStore, supervisor: Supervisor) -> None:
        super().__init__(schedule)
        self.settings = settings
        self.store = store
        self.supervisor = supervisor
        self.engine = cast(Engine, SimpleNamespace(store=store, supervisor=supervisor, settings=settings))
        self.tools = SessionTools(Registry(TOOLS.values()))
        self.caller = Caller("request-1", "anon:somebody", owner=schedule.owner)
        self.keys: list[RunKey] = []
        self.plans: dict[RunKey, RunPlan] = {}
        self.lives_of: dict[RunKey, LiveRun] = {}
        self.logs: dict[RunKey, Seen] = {}
        self.watching: dict[RunKey, asyncio.Task[None]] = {}
        self.given: list[Given] = []
        self.stops: list[tuple[float, RunKey, str | None]] = []
        self.detached: dict[tuple[RunKey, str], tuple[RunKey, float]] = {}
        self.resumptions: list[Resumption] = []
        self.outputs: dict[tuple[RunKey, str], Output] = {}
        self.renewed: dict[tuple[RunKey, str], float] = {}
        self.viewers: list[Viewer] = []
        self.tasks: list[asyncio.Task[None]] = []
        #: What there was when the run was over, for whoever sees that may begin the next one at once.
        self.notes: dict[RunKey, list[Note]] = {}

    def last(self, run_id: str) -> int:
        return self.store._entry(RunKey(self.schedule.owner, run_id)).feed.log.last

    def fault(self, what: str) -> None:
        self.faults.append(what)

    # -- runs --

    async def begin(self, plan: RunPlan) -> None:
        """Starts a run, when its time has come, as a request does."""
        await asyncio.sleep(plan.at)
        key = RunKey(self.schedule.owner, f"run-{next(self.numbers)}")

        def prepare(run: LiveRun) -> None:
            for number, call in enumerate(plan.calls):
                tool = PageTool(call.tool) if call.tool in PAGES else TOOLS[call.tool]
                made = Call(run, f"call-{number}", call.tool, tool, {"script": call.script}, call.limit)
                run.machine.set_call(CallRecord(made.call_id, made.tool_name))

        single = len(plan.calls) == 1 and plan.channel != "interrupt"
        job = CallsJob(self.caller, parallel=plan.parallel, single=single)
        await self._start(key, plan, prepare, job, None)
        if plan.watched:
            self.view(key, 0)

    async def _start(
        self, key: RunKey, plan: RunPlan, prepare: Callable[[LiveRun], None], job: CallsJob, answers: Any
    ) -> bool:
        def prepared(run: LiveRun) -> None:
            prepare(run)
            self.know(key, run)

        spec = RunSpec(
            key=key,
            thread_id=THREAD,
            agent="tools",
            fingerprint=b"",
            caller=self.caller,
            prepare=prepared,
            job=job,
            context=partial(self.context_of, key),
            on_disconnect=plan.on_disconnect,
            disconnect_grace=plan.grace,
            tools=self.tools,
            channel=cast(Channel, plan.channel),
            answers=answers,
        )
        self.plans.setdefault(key, plan)
        _, created = await self.supervisor.start(spec)
        return created

    @asynccontextmanager
    async def context_of(self, key: RunKey) -> AsyncIterator[World]:
        """What tools of the run see: it takes its time, and is left when nothing that uses it goes on."""
        await asyncio.sleep(self.schedule.context)
        yield self
        jobs = [job for (parent, _), (job, _) in self.detached.items() if parent == key]
        if going := [job for job in (key, *jobs) if not self.settled(job)]:
            self.fault(f"the context of {key} was left before the calls of {going} were over")
        await asyncio.sleep(self.schedule.context)

    def settled(self, key: RunKey) -> bool:
        """Whether all calls of a run that it has begun are over."""
        return all(call.ended_at is not None or call.started_at is None for call in self.store._entry(key).record.calls)

    def know(self, key: RunKey, run: LiveRun | None) -> None:
        if run is not None:
            self.lives_of[key] = run
        if key not in self.logs:
            self.keys.append(key)
            self.logs[key] = []
            asyncio.get_running_loop().call_soon(self.follow, key)

    def follow(self, key: RunKey) -> None:
        if key not in self.watching:
            self.watching[key] = asyncio.create_task(self.watch(key), name="watch")

    async def watch(self, key: RunKey) -> None:
        async for data in self.store.follow(key, 0):
            for number, event in parse(data):
                self.logs[key].append((self.now(), number, event))
                if event.get("name") == "tool.detached":
                    job = RunKey(key.owner, event["value"]["runId"])
                    self.know(job, self.supervisor.live(job))
        notes = self.store._notes.get((key.owner or "", THREAD), {})
        self.notes[key] = [note for note in notes.values() if note.run_id == key.run_id]
        if strange := [note for note in notes.values() if RunKey(key.owner, note.run_id) not in self.keys]:
            self.fault(f"there are notes of no job: {strange}")

    @property
    def idle(self) -> bool:
        """Whether all runs are over, and nothing can be resumed."""
        asked = (question for of_run in self.store._questions.values() for question in of_run.values())
        begun = sum(key.run_id.startswith("run-") for key in self.keys)
        return not self.supervisor.active and begun == len(self.schedule.runs) and not any(q.open for q in asked)

    def compare(self) -> None:
        """Records, questions and streams say the same; for a moment in which nobody does anything."""
        for key, log in self.logs.items():
            record = self.store._entry(key).record
            asked = self.store._questions.get(key, {}).values()
            left = {question.interrupt_id for question in asked if question.open and question.kind != "interrupt"}
            if record.over:
                if left:
                    self.fault(f"{key} is over, and open are {left}")
                continue
            if record.status == "stopping":
                continue
            waits = waits_in(log)
            if (record.status == "waiting") is not bool(waits):
                self.fault(f"{key} is {record.status}, and its stream says that it waits for {waits}")
            told = {interrupt_id for _, interrupt_id in waits if interrupt_id is not None}
            open_here = {question.interrupt_id for question in asked if question.open and question.kind == "open"}
            if told != open_here:
                self.fault(f"{key} has asked {told} in its stream, and {open_here} in the store")
            for call in record.calls:
                if (call.status == "waiting") is not any(call_id == call.call_id for call_id, _ in waits):
                    self.fault(f"{call} in the record of {key}, whose stream says that it waits for {waits}")

    # -- viewers --

    def view(self, key: RunKey, cursor: int) -> None:
        self.tasks.append(asyncio.create_task(self._view(key, cursor), name="viewer"))

    async def _view(self, key: RunKey, cursor: int) -> None:
        live = self.supervisor.live(key)
        follower = self.store.follow(key, cursor)
        viewer = Viewer(key, cursor, self.now(), close=follower.close)
        if live is not None:
            live.presence.joined()
            self.viewers.append(viewer)
        try:
            async for data in follower:
                viewer.numbers += [number for number, _ in parse(data)]
        finally:
            follower.close()
            viewer.left = self.now()
            if live is not None:
                live.presence.left()

    # -- Stop --

    async def stop(self, key: RunKey, call_id: str | None = None) -> None:
        """As the routes do it."""
        record = await self.store.get(key)
        if record is None or (record.over and record.status != "interrupted"):
            return
        call = None if call_id is None else record.call(call_id)
        if call_id is not None and (record.over or call is None):
            return
        if call is not None and call.ended_at is not None and call.status != "interrupted":
            return
        self.stops.append((self.now(), key, call_id))
        self.happened["stop" if call_id is None else "stop of a call"] += 1
        after = await self.supervisor.stop(StopRequest(key, "user", None, call_id))
        if record.status == "interrupted" and after is not None and after.status == "cancelled":
            self.happened["stop of an interrupted run"] += 1

    # -- answers --

    async def give(self, key: RunKey, question: Question, status: str, payload: Any, *, fits: bool = True) -> None:
        """Answers a question; what is accepted is written down."""
        given = AnswerInput.model_validate({"interruptId": question.interrupt_id, "status": status, "payload": payload})
        record = await self.store.get(key)
        assert record is not None
        try:
            await answer_question(self.engine, record, given, self.tools)
        except InvalidArguments:
            self.happened["misfit"] += 1
            if fits:
                self.fault(f"{payload} was refused for {question}")
            return
        except GatewayError as error:
            self.happened[f"answer refused: {error.code}"] += 1
            return
        if not fits and status == "resolved":
            self.fault(f"{payload} was accepted for {question}")
        if not self.schedule.gives_way and self.store._entry(key).record.stop_requested is not None:
            self.fault(f"an answer to {question} was accepted after Stop")
        self.happened["answer"] += 1
        self.given.append(Given(question.interrupt_id, question, status, payload, self.now(), key))

    # -- detach --

    async def detach(self, key: RunKey, call_id: str) -> None:
        can = self.can_move(key, call_id)
        moved = await self.supervisor.detach(key, call_id)
        if not self.schedule.gives_way and can is not isinstance(moved, Detached):
            self.fault(f"a detach of {call_id} of {key} came to {moved}")
        if isinstance(moved, Detached):
            self.moved(key, call_id, moved.run_id)
        else:
            self.happened[f"detach refused: {moved.reason}"] += 1

    def can_move(self, key: RunKey, call_id: str) -> bool:
        """Whether a call is at work that it has offered to the background."""
        entry, plan = self.store._entry(key), self.plans.get(key)
        call = entry.record.call(call_id)
        if call is None or call.ended_at is not None or call.detached_run_id is not None or plan is None:
            return False
        stopped = entry.record.status == "stopping" or any(s[1:] == (key, call_id) for s in self.stops)
        here = [life for life in self.lives if (life.run_id, life.call_id) == (key.run_id, call_id)]
        return plan.channel != "json" and not stopped and any(life.offered and not life.gave_up for life in here)

    async def detach_all(self, key: RunKey) -> None:
        record = await self.store.get(key)
        assert record is not None
        response = await detach_all(self.engine, record)
        for job in json.loads(bytes(response.body)).get("jobs", []):
            self.moved(key, job["toolCallId"], job["runId"])

    def moved(self, key: RunKey, call_id: str, run_id: str) -> None:
        self.happened["detach"] += 1
        if (key, call_id) in self.detached:
            self.fault(f"{call_id} of {key} was moved twice")
        job = RunKey(key.owner, run_id)
        self.detached[key, call_id] = job, self.now()
        self.know(job, self.supervisor.live(job))

    # -- resume --

    async def resume(self, key: RunKey, entries: Sequence[ResumeEntry], again: str, plan: RunPlan) -> str:
        """Starts the run `again` that goes on from `key`; what became of that."""
        new = RunKey(key.owner, again)
        asked = {question.interrupt_id: question for question in await self.store.questions(key)}
        stopped = not self.schedule.gives_way and self.store._entry(key).record.status == "cancelled"
        try:
            if await self.store.get(new) is not None:
                return "there"
            found = await resumed(self.engine, key.owner, again, THREAD, entries, self.tools)
            calls = _Calls([], frozenset(), [], found, list(found.answered.values()))
            created = await self._start(new, plan, calls.prepare, CallsJob(self.caller), found.answers)
        except RequestError as error:
            self.happened[f"resume refused: {error.code}"] += 1
            return error.code
        if created:
            self.happened["resume"] += 1
            made = {q.interrupt_id for q in found.answered.values() if q.call_id not in found.refused}
            given = {entry.interrupt_id: entry for entry in entries if entry.interrupt_id in made}
            if stopped and given:
                self.fault(f"{key} was resumed after Stop")
            for entry in given.values():
                expires_at = asked[entry.interrupt_id].expires_at
                if entry.status == "resolved" and (expires_at is None or expires_at < self.store._clock()):
                    self.fault(f"{entry} came too late")
            self.resumptions.append(Resumption(new, key, self.now(), given, asked))
            if plan.watched:
                self.view(new, 0)
        return "started" if created else "there"


def waits_in(log: Seen) -> list[tuple[str, str | None]]:
    """What the calls of a run wait for, as its stream tells it: the call and the id of the question, if it is one."""
    waits: list[tuple[str, str | None]] = []
    for _, _, event in log:
        name = event.get("name")
        if name == "tool.waiting":
            waits.append((event["value"]["toolCallId"], event["value"].get("interruptId")))
        elif name == "tool.resumed":
            wait = (event["value"]["toolCallId"], event["value"].get("interruptId"))
            if wait in waits:
                waits.remove(wait)
        elif name == "tool.result":
            waits = [wait for wait in waits if wait[0] != event["value"]["toolCallId"]]
        elif name == "tool.detached":
            over = event["value"]["toolCallId"]
            waits = [wait for wait in waits if wait[0].split("/")[0] != over]
    return waits


class NothingToDo(Exception):
    """Nothing is there to answer, say."""


class Person:
    """Does random things at random times until the schedule's horizon."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.luck = random.Random(f"{world.schedule.number}/{number}")
        self.claims: list[tuple[RunKey, str, str]] = []

    async def live(self) -> None:
        world, luck = self.world, self.luck
        habits = world.schedule.habits
        while habits:
            await asyncio.sleep(moment(luck, luck.choice([0.5, 1, 2])))
            if world.now() >= world.schedule.horizon or (world.idle and luck.random() < 0.5):
                return
            await self.together(*(self.act() for _ in range(luck.choice([1, 1, 1, 1, 2, 3]))))

    async def act(self) -> None:
        habits = self.world.schedule.habits
        for _ in range(3):  # not everything can be done at every moment
            (name,) = self.luck.choices(list(habits), list(habits.values()))
            with suppress(NothingToDo):
                await getattr(self, name.replace(" ", "_"))()
                break

    async def together(self, *acts: Awaitable[Any]) -> list[Any]:
        """All at once, but for a few turns of the loop."""

        async def after(turns: int, act: Awaitable[Any]) -> Any:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await act

        return await asyncio.gather(*(after(self.luck.choice([0, 0, 1, 2, 3, 5, 8]), act) for act in acts))

    # -- choosing --

    def rather(self, these: Sequence[T], those: Sequence[T]) -> T:
        """One of these, seldom one of those."""
        found = these if self.luck.random() < 0.9 else those
        if not found:
            raise NothingToDo
        return self.luck.choice(found)

    def some_key(self) -> RunKey:
        """A run, rather one that is at work."""
        world = self.world
        return self.rather([key for key in world.keys if world.supervisor.live(key) is not None], world.keys)

    def some_call(self) -> tuple[RunKey, str]:
        key = self.some_key()
        calls = self.world.store._entry(key).record.calls
        return key, self.rather([call for call in calls if call.ended_at is None], calls).call_id

    def some_question(self, kind: str) -> tuple[RunKey, Question]:
        store = self.world.store
        found = [
            (key, question)
            for key in self.world.keys
            for question in store._questions.get(key, {}).values()
            if question.kind == kind
        ]
        return self.rather([(key, question) for key, question in found if question.open], found)

    def payload(self, question: Question) -> tuple[str, Any]:
        """An answer that fits."""
        luck = self.luck
        if luck.random() < 0.15:
            return "cancelled", luck.choice([None, {"n": 0}])
        if question.key != APPROVAL_KEY:
            return "resolved", {"n": next(self.world.numbers)}
        approved: dict[str, Any] = {"approved": luck.random() < 0.7}
        if luck.random() < 0.3:
            approved["arguments"] = {**question.arguments, "note": f"edited {next(self.world.numbers)}"}
        return "resolved", approved

    def misfit(self, question: Question) -> Any:
        if question.key == APPROVAL_KEY:
            return self.luck.choice([{}, "yes", {"approved": 1}, {"approved": True, "arguments": {"nope": 1}}])
        return {"n": "x"}

    # -- acting --

    async def answer(self) -> None:
        world, luck = self.world, self.luck
        key, question = self.some_question("open")
        mode = luck.choice(["right"] * 6 + ["wrong", "nowhere", "twice", "together", "together", "stop", "detach"])

        def give() -> Awaitable[None]:
            return world.give(key, question, *self.payload(question))

        if mode == "right":
            await give()
        elif mode == "wrong" and question.response_schema is not None:
            await world.give(key, question, "resolved", self.misfit(question), fits=False)
        elif mode == "nowhere":
            await world.give(luck.choice(world.keys), question, *self.payload(question))
        elif mode == "twice":
            await give()
            await give()
        elif mode == "together":
            await self.together(*(give() for _ in range(luck.choice([2, 3]))))
        elif mode == "stop":
            call_id = luck.choice([None, question.call_id.split("/", maxsplit=1)[0]])
            await self.together(give(), world.stop(key, call_id))
        elif mode == "detach":
            await self.together(
                give(), world.detach(key, question.call_id.split("/", maxsplit=1)[0]), self.elsewhere(key, question)
            )

    async def elsewhere(self, key: RunKey, question: Question) -> None:
        """Answers a question where it may have gone to."""
        for _ in range(self.luck.choice([0, 2, 5, 9])):
            await asyncio.sleep(0)
        now = self.world.store._asked_by.get(question.interrupt_id, key)
        await self.world.give(now, question, *self.payload(question))

    async def stop_run(self) -> None:
        await self.world.stop(self.some_key())

    async def stop_call(self) -> None:
        await self.world.stop(*self.some_call())

    async def detach(self) -> None:
        world, found = self.world, self.some_call()
        mode = self.luck.choice(["one"] * 4 + ["together", "stop", "stop call"])
        if mode == "one":
            await world.detach(*found)
            await self.look()
        elif mode == "together":
            await self.together(world.detach(*found), world.detach(*found))
        else:
            await self.together(world.detach(*found), world.stop(found[0], found[1] if mode == "stop call" else None))

    async def detach_all(self) -> None:
        await self.world.detach_all(self.some_key())

    async def resume(self) -> None:
        world, luck = self.world, self.luck
        parked = {
            key: asked
            for key in world.keys
            if (asked := [q for q in world.store._questions.get(key, {}).values() if q.kind == "interrupt"])
            if world.store._entry(key).record.over
        }
        key = self.rather([key for key, asked in parked.items() if any(q.open for q in asked)], list(parked))
        asked = parked[key]
        plan = RunPlan(
            world.now(),
            luck.choice(["interrupt", "interrupt", "open"]),
            [],
            luck.random() < 0.85,
            luck.choice(["continue", "cancel"]),
            moment(luck, 3),
            luck.random() < 0.6,
        )

        def again() -> str:
            return f"again-{next(world.numbers)}"

        def entries() -> list[ResumeEntry]:
            return [self.entry(question) for question in asked]

        mode = luck.choice(["right"] * 4 + ["missing", "wrong", "foreign", "twice", "same", "together", "stop"])
        if mode == "right":
            await world.resume(key, entries(), again(), plan)
        elif mode == "missing" and len(asked) > 1:
            missing = luck.choice(asked)
            came_to = await world.resume(key, [self.entry(q) for q in asked if q is not missing], again(), plan)
            if missing.open and came_to == "started" and not world.schedule.gives_way:
                world.fault(f"{key} was resumed without an answer to {missing}")
        elif mode == "wrong":
            wrong = [q for q in asked if q.response_schema is not None and q.open]
            if wrong:
                entry = ResumeEntry.model_validate(
                    {"interruptId": wrong[0].interrupt_id, "status": "resolved", "payload": self.misfit(wrong[0])}
                )
                given = [entry if q is wrong[0] else self.entry(q) for q in asked]
                if await world.resume(key, given, again(), plan) == "started":
                    world.fault(f"{entry} was accepted")
        elif mode == "foreign":
            stranger = RunKey("stranger", "again")
            try:
                await resumed(world.engine, stranger.owner, "again", THREAD, entries(), world.tools)
            except RequestError as error:
                if error.code != "interrupt_not_found":
                    world.fault(f"a stranger heard {error.code}")
            else:
                world.fault(f"a stranger resumed {key}")
        elif mode == "twice":
            first = await world.resume(key, entries(), again(), plan)
            second = await world.resume(key, entries(), again(), plan)
            if first == second == "started" and world.resumptions[-1].given:
                world.fault(f"{key} was resumed twice")
        elif mode == "same":
            name, same = again(), entries()
            said = await self.together(*(world.resume(key, same, name, plan) for _ in range(2)))
            went_on = any(resumption.key.run_id == name and resumption.given for resumption in world.resumptions)
            if went_on and sorted(said) != ["started", "there"]:
                world.fault(f"the same resume, sent twice, came to {said}")
        elif mode == "together":
            await self.together(*(world.resume(key, entries(), again(), plan) for _ in range(2)))
        elif mode == "stop":
            await self.together(world.resume(key, entries(), again(), plan), world.stop(key))

    def entry(self, question: Question) -> ResumeEntry:
        status, payload = self.payload(question)
        return ResumeEntry.model_validate({"interruptId": question.interrupt_id, "status": status, "payload": payload})

    # -- as a page --

    async def page(self) -> None:
        """Claims, renews, pauses or answers a page tool's call."""
        luck = self.luck
        key, question = self.some_question("page")
        mine = [claim for claim in self.claims if claim[:2] == (key, question.call_id)]
        if not mine or luck.random() < 0.1:
            await self.together(*(self.claim(key, question.call_id) for _ in range(luck.choice([1, 1, 2]))))
            return
        claim_id = mine[-1][2] if luck.random() < 0.9 else "not-mine"
        mode = luck.choice(["renew", "pause", "result", "result", "results", "stop"])
        if mode == "renew":
            await self.claim(key, question.call_id, claim_id)
        elif mode == "pause":
            await self.pause(key, question.call_id, claim_id)
        elif mode == "result":
            await self.result(key, question.call_id, claim_id)
        elif mode == "results":
            await self.together(*(self.result(key, question.call_id, claim_id) for _ in range(2)))
        else:
            await self.together(self.result(key, question.call_id, claim_id), self.world.stop(key))

    async def claim(self, key: RunKey, call_id: str, claim_id: str | None = None) -> None:
        world = self.world
        record = await world.store.get(key)
        assert record is not None
        try:
            made = await claim_call(world.engine, record, call_id, ClaimInput.model_validate({"claimId": claim_id}))
        except RequestError as error:
            world.happened[f"claim refused: {error.code}"] += 1
            return
        if claim_id is None:
            if (key, call_id) in world.renewed:
                world.fault(f"{call_id} of {key} was claimed twice")
            self.claims.append((key, call_id, str(made["claimId"])))
        world.happened["claim" if claim_id is None else "renewal"] += 1
        world.renewed[key, call_id] = world.now()
        if self.luck.random() < 0.2:  # at the last moment
            await asyncio.sleep(world.settings.page_claim)
            await self.claim(key, call_id, str(made["claimId"]))

    async def pause(self, key: RunKey, call_id: str, claim_id: str) -> None:
        world = self.world
        record = await world.store.get(key)
        assert record is not None
        given = WaitingInput.model_validate({"claimId": claim_id, "message": "Fill it in."})
        try:
            await pause_call(world.engine, record, call_id, given)
        except RequestError as error:
            world.happened[f"pause refused: {error.code}"] += 1
            return
        world.happened["pause"] += 1
        world.renewed[key, call_id] = world.now()

    async def result(self, key: RunKey, call_id: str, claim_id: str) -> None:
        world = self.world
        record = await world.store.get(key)
        assert record is not None
        output = self.luck.choice(OUTPUTS)
        given = ResultInput.model_validate({"claimId": claim_id, "output": output})
        try:
            await answer_call(world.engine, record, call_id, given)
        except RequestError as error:
            world.happened[f"result refused: {error.code}"] += 1
            return
        if (key, call_id) in world.outputs:
            world.fault(f"{call_id} of {key} was answered twice")
        world.happened["page result"] += 1
        world.outputs[key, call_id] = Output(call_id, output, world.now())

    # -- watching --

    async def view(self) -> None:
        world, luck = self.world, self.luck
        here = [viewer for viewer in world.viewers if viewer.left is None]
        if here and luck.random() < 0.5:
            viewer = luck.choice(here)
            if viewer.close is not None:
                viewer.close()
        else:
            key = self.some_key()
            world.view(key, luck.randint(0, world.last(key.run_id)))

    async def look(self) -> None:
        """Compares records, questions and streams at a moment in which nobody does anything."""
        await asyncio.sleep(self.luck.uniform(0.001, 0.01))
        if self.world.now() < self.world.schedule.horizon:
            self.world.compare()
