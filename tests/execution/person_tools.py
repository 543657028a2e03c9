"""Random runs for `test_person_schedules`: what their calls do, the tools that do it, and what these write down."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import Interrupt, NotAvailable
from gateway.execution.asking import InputResponse
from gateway.execution.context import ToolContext
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import ToolOutput
from gateway.execution.tools import Tool, tool

__all__ = ["Asked", "CallPlan", "Ledger", "Life", "Mark", "RunPlan", "Schedule", "Script", "TOOLS", "around"]
__all__ += ["moment", "schedule_of"]

FOR_EVER = 1_000.0
PAGES = ("page_form", "page_map")
ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# -- schedules --


@dataclass
class Step:
    """One thing that a tool does; `inner` are scripts that are parts of it."""

    kind: str
    seconds: float = 0.0
    many: int = 1
    key: str = ""
    strict: bool = False
    batch: bool = False
    tool: str = "acts"
    limit: float | None = None
    inner: list[Script] = field(default_factory=list)


@dataclass
class Script:
    number: int
    steps: list[Step]
    end: str = "return"
    swallows: int = 0

    def lines(self, indent: str = "") -> Iterator[str]:
        """An outline of it."""
        yield f"{indent}script {self.number}: end={self.end} swallows={self.swallows}"
        for step in self.steps:
            shown = " ".join(f"{name}={value}" for name, value in vars(step).items() if name not in ("kind", "inner"))
            yield f"{indent}  {step.kind}: {shown}"
            for part in step.inner:
                yield from part.lines(f"{indent}    ")


@dataclass
class CallPlan:
    tool: str
    script: int
    limit: float


@dataclass
class RunPlan:
    at: float
    channel: str
    calls: list[CallPlan]
    parallel: bool
    on_disconnect: str
    grace: float
    watched: bool


@dataclass
class Schedule:
    number: int
    owner: str | None
    #: How the middleware treats a call, and how long it takes; None: there is none.
    around: str | None
    delay: float
    run_timeout: float
    #: The store lets others run while it works, as those that are no dictionaries do.
    gives_way: bool
    runs: list[RunPlan]
    scripts: list[Script]
    people: int
    #: Seconds that the context of a run takes to be entered and to be left.
    context: float
    horizon: float
    habits: dict[str, float]
    drain: float | None

    def outline(self) -> str:
        """What is planned, for people."""
        shown = {name: value for name, value in vars(self).items() if name not in ("runs", "scripts")}
        inner = {part.number for script in self.scripts for step in script.steps for part in step.inner}
        outer = [line for script in self.scripts if script.number not in inner for line in script.lines()]
        return "\n".join([str(shown), *map(str, self.runs), *outer])


def moment(luck: random.Random, most: float) -> float:
    """Seconds, more often than not such that others choose the same ones."""
    return luck.randint(1, max(int(most * 4), 1)) / 4 if luck.random() < 0.6 else luck.uniform(0.01, most)


class Author:
    """Writes the schedule of a number."""

    def __init__(self, number: int) -> None:
        self.luck = random.Random(number)
        self.number = number
        self.scripts: list[Script] = []
        self.keys = itertools.count(1)

    def schedule(self) -> Schedule:
        luck = self.luck
        runs = [self.run() for _ in range(luck.choice([1, 1, 2, 2, 3]))]
        kind = luck.choice([None, None, "pass", "tag", "slow"])
        return Schedule(
            number=self.number,
            owner=luck.choice(["somebody", "somebody", "somebody", None]),
            around=kind,
            delay=moment(luck, 1) if kind == "slow" else 0.0,
            run_timeout=luck.choice([0, 0, 0, 2.5, 6.5]),
            gives_way=luck.random() < 0.5,
            runs=runs,
            scripts=self.scripts,
            people=luck.choice([1, 2, 2, 3, 4]),
            context=luck.choice([0, 0, 0, 0.25]),
            horizon=luck.choice([6.0, 10.0, 10.0, 16.0]),
            habits={name: most * luck.random() for name, most in HABITS.items() if luck.random() < 0.7},
            drain=moment(luck, 3) if luck.random() < 0.1 else None,
        )

    def run(self) -> RunPlan:
        luck = self.luck
        channel = luck.choice(["open", "open", "interrupt", "interrupt", "json"])
        count = 1 if channel == "json" else luck.choice([1, 1, 2, 3])
        return RunPlan(
            at=0 if luck.random() < 0.5 else moment(luck, 4),
            channel=channel,
            calls=[self.call(channel) for _ in range(count)],
            parallel=luck.random() < 0.85,
            on_disconnect=luck.choice(["continue", "continue", "cancel"]),
            grace=luck.choice([0, 1, moment(luck, 3)]),
            watched=luck.random() < 0.6,
        )

    def call(self, channel: str) -> CallPlan:
        luck = self.luck
        names = ["acts"] * 4 + ["yields", "gentle", "asks_first", "may_ask"]
        if channel == "interrupt":
            names += ["page_form", "page_map"]
        limit = 0 if luck.random() < 0.6 else moment(luck, 6)
        return CallPlan(luck.choice(names), self.script(0).number, limit)

    def script(self, depth: int) -> Script:
        luck = self.luck
        script = Script(len(self.scripts), [])
        self.scripts.append(script)
        count = luck.choice([1, 2, 2, 3, 4] if depth == 0 else [1, 1, 2, 2])
        script.steps = [self.step(depth) for _ in range(count)]
        if depth == 0 and luck.random() < 0.1:
            # Something goes on when the call is over, or has asked, and then wants something.
            left = self.step(1, "loose")
            left.inner[0].steps = [self.step(1, "nap"), self.step(1, luck.choice(["nested", "ask", "work", "waits"]))]
            script.steps += [left, *[self.step(0, "interrupt")] * (luck.random() < 0.5)]
        script.end = luck.choice(["return"] * 5 + ["raise", "error"])
        script.swallows = luck.choice([0, 0, 0, 0, 1, 2, 5])
        return script

    def step(self, depth: int, wanted: str | None = None) -> Step:
        luck = self.luck
        kinds = ["nap", "nap", "emit", "emit", "progress", "ask", "ask", "asks", "patience", "waits", "interrupt"]
        if depth < 2:
            kinds += ["work", "work", "by hand", "nested", "both", "loose", "own task"]
        kind = wanted or ("give up" if luck.random() < 0.01 else luck.choice(kinds))
        step = Step(
            kind,
            moment(luck, 3),
            luck.choice([1, 2, 3]),
            key=f"key-{next(self.keys)}",
            strict=luck.random() < 0.5,
            batch=luck.random() < 0.3,
            tool=luck.choice(["acts", "acts", "yields", "asks_first"]),
            limit=luck.choice([None, 0, moment(luck, 3)]),
        )
        if kind == "work" and luck.random() < 0.3:
            kind = step.kind = "work and stay"
        if kind in PARTS:
            step.inner = [self.script(depth + 1) for _ in range(PARTS[kind])]
        return step


PARTS = {"work": 1, "work and stay": 1, "by hand": 1, "nested": 1, "both": 2, "loose": 1, "own task": 1}

# What people do, and how likely at most.
HABITS = {
    "answer": 12.0,
    "stop run": 0.5,
    "stop call": 0.8,
    "detach": 2.0,
    "detach all": 0.7,
    "resume": 4.0,
    "page": 5.0,
    "view": 3.0,
    "look": 1.5,
}


def schedule_of(number: int) -> Schedule:
    return Author(number).schedule()


# -- what the tools write down --


@dataclass
class Mark:
    """Something that a tool has emitted: where, and what was the last event of the run at that moment."""

    number: int
    run_id: str
    call_id: str
    last: int
    at: float
    body_ended: bool


@dataclass
class Asked:
    """A question; `ended` is what became of it."""

    number: int
    call_id: str
    began: float
    ended: str | None = None
    at: float = 0.0
    got: InputResponse | None = None


@dataclass
class Life:
    """One execution of a tool's code."""

    number: int
    run_id: str
    call_id: str
    script: int
    note: str
    began: float
    heard: dict[str, InputResponse]
    newest: InputResponse | None
    ended: str | None = None
    value: Any = None
    at: float = 0.0
    answers: list[tuple[str, InputResponse]] = field(default_factory=list)
    works: dict[int, tuple[str, float]] = field(default_factory=dict)
    #: How much of its work could move to the background now.
    offered: int = 0
    #: From when to when it waited for such work, or for the note of its move.
    listened: list[tuple[float, float]] = field(default_factory=list)
    gave_up: bool = False


class Ledger:
    """What tools did; `last` tells the number of the last event of a run."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.numbers = itertools.count(1)
        self.lives: list[Life] = []
        self.marks: list[Mark] = []
        self.reports: list[Mark] = []
        self.asked: dict[int, Asked] = {}
        self.loose: list[asyncio.Task[Any]] = []
        self.faults: list[str] = []
        self.happened: Counter[str] = Counter()

    def last(self, run_id: str) -> int:
        raise NotImplementedError

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class Player:
    """Does what scripts say, for one life."""

    def __init__(self, ctx: ToolContext, script: int, note: str) -> None:
        self.ctx = ctx
        self.ledger: Ledger = ctx.context
        ledger = self.ledger
        self.script = ledger.schedule.scripts[script]
        self.life = Life(
            next(ledger.numbers),
            ctx.run_id or "",
            ctx.tool_call_id,
            script,
            note,
            ledger.now(),
            dict(ctx.input_responses),
            ctx.input_response,
        )
        ledger.lives.append(self.life)

    # -- a whole life --

    async def live(self) -> Any:
        try:
            value = await self.play(self.script)
        except BaseException as error:
            await self.end_with(error)
            raise
        self.ended("returned", value)
        return value

    async def end_with(self, error: BaseException) -> None:
        try:
            if isinstance(error, asyncio.CancelledError):
                await self.unwind()
        finally:
            self.ended(type(error).__name__, None)

    async def unwind(self) -> None:
        for _ in range(self.script.swallows):
            self.mark("swallowed")
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue
        self.mark("unwound")

    def ended(self, how: str, value: Any) -> None:
        self.life.ended, self.life.value, self.life.at = how, value, self.ledger.now()

    async def play(self, script: Script) -> Any:
        for step in script.steps:
            await self.take(step)
        if script.end == "raise":
            raise ValueError("as planned")
        return "Error: as planned" if script.end == "error" else {"of": self.life.number, "script": script.number}

    async def take(self, step: Step) -> None:
        self.ledger.happened[f"step {step.kind}"] += 1
        await getattr(self, step.kind.replace(" ", "_"))(step)

    # -- what goes out --

    def note_mark(self, marks: list[Mark]) -> int:
        ledger, run_id = self.ledger, self.ctx.run_id or ""
        number = next(ledger.numbers)
        ended = self.life.ended is not None
        last = ledger.last(run_id)
        marks.append(Mark(number, run_id, self.life.call_id, last, ledger.now(), ended))
        return number

    def mark(self, what: str, *, batch: bool = False) -> None:
        number = self.note_mark(self.ledger.marks)
        self.ctx.emit_custom_event("mark", {"n": number, "what": what}, batch=batch)

    async def nap(self, step: Step) -> None:
        self.mark("nap")
        await asyncio.sleep(step.seconds)
        self.mark("woke")

    async def emit(self, step: Step) -> None:
        for _ in range(step.many):
            self.mark("emit", batch=step.batch)

    async def progress(self, step: Step) -> None:
        for _ in range(step.many):
            self.ctx.report_progress(self.note_mark(self.ledger.reports))
            await asyncio.sleep(0.02)

    # -- people --

    async def ask(self, step: Step) -> None:
        asked = Asked(next(self.ledger.numbers), self.life.call_id, self.ledger.now())
        self.ledger.asked[asked.number] = asked
        ended = "lost"
        try:
            asked.got = await self.ctx.request_input(f"q{asked.number}", ANSWER if step.strict else None)
            ended = "answered"
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            asked.ended, asked.at = ended, self.ledger.now()
            self.mark(f"asked {ended}")

    async def asks(self, step: Step) -> None:
        await asyncio.gather(*(self.ask(step) for _ in range(step.many + 1)))

    async def patience(self, step: Step) -> None:
        try:
            async with asyncio.timeout(step.seconds):
                await self.ask(step)
        except TimeoutError:
            self.mark("no answer")

    async def waits(self, step: Step) -> None:
        async with self.ctx.waiting_for_user("Look." if step.strict else None):
            self.mark("waits")
            await asyncio.sleep(step.seconds)

    async def interrupt(self, step: Step) -> None:
        if step.many == 3 and step.key not in self.ctx.input_responses:  # by hand, wherever it is
            raise Interrupt(f"i{step.key}", ANSWER if step.strict else None, "input_required", step.key)
        try:
            response = self.ctx.interrupt(f"i{step.key}", ANSWER if step.strict else None, key=step.key)
        except NotAvailable:
            if self.script.number % 2:
                raise
            self.mark("no interrupt")
        else:
            self.life.answers.append((step.key, response))

    # -- others --

    def left(self, script: Script) -> Coroutine[Any, Any, Any]:
        """The part of a tool that may move to the background."""
        number = next(self.ledger.numbers)
        self.life.offered += 1

        async def work() -> Any:
            how = "lost"
            try:
                await self.play(script)
                how = "returned"
            except BaseException as error:
                how = type(error).__name__
                raise
            finally:
                self.mark(f"work {how}")
                self.life.works[number] = how, self.ledger.now()
                self.life.offered -= 1
            return {"work": number}

        return work()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Around a wait for work, or for its move; what ends it otherwise is not written down."""
        began, movable = self.ledger.now(), self.ctx.detach is not None
        yield
        if movable:
            self.life.listened.append((began, self.ledger.now()))

    async def work(self, step: Step) -> None:
        with self.listening():
            await self.ctx.run_detachable(self.left(step.inner[0]))

    async def work_and_stay(self, step: Step) -> None:
        """The frame does not return before its work has, as in a task group."""
        task = asyncio.ensure_future(self.left(step.inner[0]))
        with self.listening():
            await self.ctx.run_detachable(task)
        self.mark("stays")
        await task

    async def by_hand(self, step: Step) -> None:
        if self.ctx.detach is None:
            await self.left(step.inner[0])
            return
        work = asyncio.ensure_future(self.left(step.inner[0]))
        note = self.ctx.detach(work)
        with self.listening():
            await asyncio.wait({work, note}, return_when=asyncio.FIRST_COMPLETED)
        if not note.done() or note.cancelled():
            await work

    async def nested(self, step: Step) -> None:
        output = await self.ctx.call_tool(step.tool, {"script": step.inner[0].number}, step.limit)
        self.mark(f"nested {output.status}")

    async def give_up(self, step: Step) -> None:
        assert self.ctx.task is not None
        self.life.gave_up = True
        await self.ctx.task.cancel()
        await asyncio.sleep(20)  # nobody ends it when it was left behind

    async def both(self, step: Step) -> None:
        await asyncio.gather(*(self.play(script) for script in step.inner))

    async def own_task(self, step: Step) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.play(step.inner[0]))

    async def loose(self, step: Step) -> None:
        """A task that the tool forgets."""
        task = asyncio.create_task(self.play(step.inner[0]), name="loose")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.ledger.loose.append(task)


# -- the tools --


@tool(timeout=0)
async def acts(script: int, ctx: ToolContext, note: str = "") -> Any:
    """An async function."""
    return await Player(ctx, script, note).live()


@tool(timeout=0)
async def yields(script: int, ctx: ToolContext, note: str = "") -> AsyncIterator[Any]:
    """An async generator."""
    player = Player(ctx, script, note)
    try:
        for step in player.script.steps:
            yield {"n": player.note_mark(player.ledger.marks)}
            await player.take(step)
        value = await player.play(Script(script, [], player.script.end))
    except BaseException as error:
        await player.end_with(error)
        raise
    player.ended("returned", value)
    yield value


@tool(timeout=0, cooperative=True)
async def gentle(script: int, ctx: ToolContext, note: str = "") -> Any:
    """Is told first, and cancelled after half of the grace."""
    return await Player(ctx, script, note).live()


@tool(timeout=0, needs_approval=True)
async def asks_first(script: int, ctx: ToolContext, note: str = "") -> Any:
    """Somebody has to say yes."""
    return await Player(ctx, script, note).live()


@tool(timeout=0, needs_approval=lambda arguments: arguments["script"] % 2 == 0)
async def may_ask(script: int, ctx: ToolContext, note: str = "") -> Any:
    """Somebody has to say yes to every second one."""
    return await Player(ctx, script, note).live()


TOOLS: dict[str, Tool] = {item.name: item for item in (acts, yields, gentle, asks_first, may_ask)}


async def around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
    """The middleware."""
    schedule: Schedule = ctx.context.schedule
    if schedule.around == "slow":
        await asyncio.sleep(schedule.delay)
    output: ToolOutput = await call_next(call)
    if schedule.around == "slow":
        await asyncio.sleep(schedule.delay)
    if schedule.around == "tag" and output.status == "completed":
        return {"tagged": output.text}
    return output
