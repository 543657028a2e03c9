"""Thousands of random lives of a run, on the real executor with a virtual clock: what a call ends in is never luck.

Each schedule is made from its own number: answers, failures, timers, Stop of the run and of a call, tools that swallow
their cancellation, late emits, nested calls, and middleware that does nothing, refuses or takes its time. From the
same number the rules of contract 5.1 to 5.3 say what each call has to end in, and when.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from gateway.errors import AccessDenied
from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.context import ToolContext
from gateway.execution.executor import AT_ONCE, Executor
from gateway.execution.live import LiveRun
from gateway.execution.middleware import ToolCall
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.supervisor import RunSpec, Supervisor, no_context
from gateway.execution.tools import Tool, tool
from gateway.run.order import TERMINALS, OrderMachine
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import StopRequest
from gateway.stores.memory import MemoryStore
from tests.execution.running import parse
from tests.execution.virtual import VirtualLoop
from tests.support.effort import Schedules

SCHEDULES = Schedules(3_000, parts=3)
GRACE = 2.5
FOR_EVER = 1_000.0


@dataclass
class Part:
    """What one call does, in this order. Times are seconds."""

    kind: str = "acts"
    naps: list[float] = field(default_factory=list)
    nested: list[tuple[Part, float | None]] = field(default_factory=list)
    end: str = "return"
    swallows: int = 0
    late: bool = False
    limit: float = 0.0

    def lasts(self, around: Around) -> float:
        """How long it takes when nobody ends it."""
        return sum(self.naps) + sum(part.ended(limit, around)[0] for part, limit in self.nested)

    def ended(self, limit: float | None, around: Around) -> tuple[float, str]:
        """The same for a nested call with its own clock: when and in what it ends."""
        if around.kind == "deny":
            return 0.0, "failed"
        inside = around.before + self.lasts(around)
        # What middleware gets for its own part, when the call inside it was ended.
        if limit and limit < inside:
            return limit + min(around.after, AT_ONCE / 2), "timeout"
        if self.end == "give up":
            return inside + min(around.after, GRACE / 2), "interrupted"
        if limit and limit + AT_ONCE / 2 < inside + around.after:
            return limit + AT_ONCE / 2, "timeout"
        return inside + around.after, ENDS[self.end]

    def all(self) -> Iterator[Part]:
        yield self
        for part, _ in self.nested:
            yield from part.all()


ENDS = {
    "return": "completed",
    "error": "failed",
    "raise": "failed",
    "exit": "failed",
    "cancel itself": "failed",
    "give up": "interrupted",
}


@dataclass
class Around:
    """The middleware of a schedule; `before` and `after` are how long it takes on its way in and out."""

    kind: str | None = None
    before: float = 0.0
    after: float = 0.0


@dataclass
class Schedule:
    number: int
    around: Around
    parts: list[Part]
    stop_run: float | None
    stop_calls: dict[int, float]
    made: list[str] = field(default_factory=list)

    def find(self, index: int) -> Part:
        return [found for part in self.parts for found in part.all()][index]

    def index(self, part: Part) -> int:
        return next(i for i, found in enumerate(f for p in self.parts for f in p.all()) if found is part)


def schedule_of(number: int) -> Schedule:
    """The schedule of a number. Times are random, so that no two are equal unless that is meant."""
    luck = random.Random(number)
    kind = luck.choice([None, None, "pass", "pass", "deny", "before", "after", "tag"])
    around = Around(kind)
    if kind in ("before", "after"):
        setattr(around, kind, luck.uniform(0.2, 3))
    parts = [_part(luck, depth=0) for _ in range(luck.choice([1, 1, 1, 2, 3]))]
    longest = max(part.lasts(around) for part in parts) + around.before + around.after
    for part in parts:
        chance = luck.random()
        if chance < 0.4:
            part.limit = luck.uniform(0.1, 1.3) * max(part.lasts(around), 0.5)
        elif chance < 0.45:
            part.limit = part.lasts(around)  # answer and timer at the same moment
    stop_run = luck.uniform(0.01, 1.2 * longest + 0.1) if luck.random() < 0.4 else None
    stop_calls = {i: luck.uniform(0.01, 1.2 * longest + 0.1) for i in range(len(parts)) if luck.random() < 0.2}
    return Schedule(number, around, parts, stop_run, stop_calls)


def _part(luck: random.Random, depth: int) -> Part:
    part = Part(
        kind=luck.choice(["acts", "acts", "acts", "yields", "gentle"]) if depth == 0 else "acts",
        naps=[luck.uniform(0.01, 2) for _ in range(luck.choice([0, 1, 1, 2, 3]))],
        end=luck.choice(["return", "return", "return", *ENDS]),
        swallows=luck.choice([0, 0, 0, 1, 2, 5]),
        late=luck.random() < 0.3,
    )
    if depth < 2 and part.kind == "acts" and luck.random() < 0.25:
        for _ in range(luck.choice([1, 2])):
            part.nested.append((_part(luck, depth + 1), luck.choice([None, 0, luck.uniform(0.1, 3)])))
    if part.kind != "acts":
        part.swallows = luck.choice([0, 5])
    if part.end == "give up":
        part.swallows = 0
    return part


# -- the tools --


async def act(part: int, ctx: ToolContext) -> Any:
    """Does what its part says."""
    schedule: Schedule = ctx.context
    schedule.made.append(ctx.tool_call_id)
    mine = schedule.find(part)
    left = mine.swallows
    try:
        for nap in mine.naps:
            ctx.emit_custom_event("nap", {"seconds": nap}, batch=nap > 1)
            await asyncio.sleep(nap)
        for inner, limit in mine.nested:
            output = await ctx.call_tool("acts", {"part": schedule.index(inner)}, 0 if limit is None else limit)
            ctx.emit_custom_event("nested", {"status": output.status})
        return await finish(mine, ctx)
    except asyncio.CancelledError:
        if not ctx.abort_signal.aborted and mine.end == "cancel itself":
            raise
        while left:
            left -= 1
            try:
                ctx.emit_custom_event("swallowed", {"left": left})
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue
        ctx.emit_custom_event("unwound", {})
        raise


async def finish(mine: Part, ctx: ToolContext) -> Any:
    """The last thing that a tool does."""
    if mine.late:
        asyncio.get_running_loop().call_later(0.3, ctx.emit_custom_event, "late", {})
    if mine.end == "raise":
        raise ValueError("as planned")
    if mine.end == "exit":
        raise SystemExit(3)
    if mine.end == "cancel itself":
        raise asyncio.CancelledError
    if mine.end == "give up":
        assert ctx.task is not None
        await ctx.task.cancel()
        await asyncio.sleep(FOR_EVER)
    return "Error: as planned" if mine.end == "error" else {"text": "done"}


@tool(timeout=0)
async def acts(part: int, ctx: ToolContext) -> Any:
    """An async function."""
    return await act(part, ctx)


@tool(timeout=0)
async def yields(part: int, ctx: ToolContext) -> AsyncIterator[Any]:
    """An async generator."""
    yield "first"
    yield await act(part, ctx)


@tool(timeout=0, cooperative=True)
async def gentle(part: int, ctx: ToolContext) -> Any:
    """Is told first, and cancelled after half of the grace."""
    return await act(part, ctx)


TOOLS: dict[str, Tool] = {item.name: item for item in (acts, yields, gentle)}


async def around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
    """The middleware, which does what the schedule says."""
    what: Around = ctx.context.around
    if what.kind == "deny":
        raise AccessDenied("as planned")
    if what.before:
        await asyncio.sleep(what.before)
    output: ToolOutput = await call_next(call)
    if what.after:
        await asyncio.sleep(what.after)
    return {"tagged": output.text} if what.kind == "tag" and output.status == "completed" else output


# -- what the rules say --


def expected(schedule: Schedule, index: int, stop_run: float | None) -> set[str]:
    """The statuses that a call may have; more than one only where answer and timer come at the same moment."""
    part, way = schedule.parts[index], schedule.around
    if way.kind == "deny":
        return {"failed"}
    inside = way.before + part.lasts(way)
    whole = inside + way.after
    aborts = [(at, "cancelled", GRACE / 2) for at in (stop_run, schedule.stop_calls.get(index)) if at is not None]
    if part.limit:
        aborts.append((part.limit, "timeout", AT_ONCE / 2))
    if not aborts:
        return {ENDS[part.end]}
    at, status, window = min(aborts)
    if part.end == "give up":
        # Ends itself: an abort, like the others.
        return {"interrupted"} if inside < at else {status} if at < inside else {"interrupted", status}
    if abs(inside - at) < 1e-9 or abs(whole - at) < 1e-9:
        return {ENDS[part.end], status}
    if whole < at:
        return {ENDS[part.end]}
    if at < inside:
        return {status}
    # The tool had answered, and the middleware is still at it.
    return {ENDS[part.end]} if whole - at < window else {status}


# -- running one --


@dataclass
class Bench:
    """Two supervisors on one store: without middleware, and with it."""

    store: MemoryStore
    plain: Supervisor
    around: Supervisor


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    settings = Settings(stop_grace=GRACE, run_timeout=0, run_ttl=1)
    async with MemoryStore(settings) as store:
        made = Bench(store, Supervisor(settings, store), Supervisor(settings, store, [around]))
        await made.plain.open()
        await made.around.open()
        yield made
        await made.plain.close()
        await made.around.close()


async def live(at: Bench, schedule: Schedule) -> None:
    """Runs a schedule and checks everything that must hold."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    began = loop.time()
    run = await start(at.plain if schedule.around.kind is None else at.around, schedule)
    supervisor = at.plain if schedule.around.kind is None else at.around
    seen: list[tuple[float, dict[str, Any]]] = []
    watching = asyncio.create_task(watch(at.store, run.key, seen))

    def press(call_id: str | None) -> None:
        request = StopRequest(run.key, "user", None, call_id)
        supervisor.spawn(supervisor.stop(request), name="stop")

    if schedule.stop_run is not None:
        loop.call_later(schedule.stop_run, press, None)
    for index, when in schedule.stop_calls.items():
        loop.call_later(when, press, f"call-{index}")
    await run.done.wait()
    await watching
    record = await at.store.get(run.key)
    assert record is not None
    check(schedule, record, [(when - began, event) for when, event in seen])
    # Whatever would not stop has a minute to obey; then nothing of the run is left.
    await asyncio.sleep(60)
    assert asyncio.all_tasks() == before
    assert not run.signal._callbacks


async def watch(store: MemoryStore, key: RunKey, seen: list[tuple[float, dict[str, Any]]]) -> None:
    loop = asyncio.get_running_loop()
    async for data in store.follow(key, 0):
        seen += [(loop.time(), event) for _, event in parse(data)]


async def start(supervisor: Supervisor, schedule: Schedule) -> LiveRun:
    caller = Caller("request-1", "anon:somebody")

    def prepare(run: LiveRun) -> None:
        for index, part in enumerate(schedule.parts):
            arguments = {"part": schedule.index(part)}
            Call(run, f"call-{index}", part.kind, TOOLS[part.kind], arguments, part.limit)

    async def job(run: LiveRun, executor: Executor, value: Any) -> None:
        await asyncio.gather(*(executor.execute(call, caller, value) for call in run.calls.values()))

    spec = RunSpec(
        key=RunKey(None, f"run-{schedule.number}"),
        thread_id="thread",
        agent="tools",
        fingerprint=b"",
        caller=caller,
        prepare=prepare,
        job=job,
        context=partial(no_context, schedule),
        tools=SessionTools(Registry(TOOLS.values())),
    )
    await supervisor.start(spec)
    run = supervisor.live(spec.key)
    assert run is not None
    return run


# -- checking one --


def check(schedule: Schedule, record: RunRecord, seen: list[tuple[float, dict[str, Any]]]) -> None:
    events = [event for _, event in seen]
    types = [event["type"] for event in events]
    machine = OrderMachine()
    for event in events:
        machine.feed(event["type"], event)
    assert types[0] == "RUN_STARTED"
    assert [kind for kind in types if kind in TERMINALS] == ["RUN_FINISHED"] == types[-1:]
    results = check_results(schedule, seen)
    stopping = [when for when, event in seen if event.get("name") == "run.stopping"]
    effective = None
    if schedule.stop_run is not None:
        last = max(results.values())
        # Equal: an answer of the very moment of the Stop, as the calls' own check decides.
        assert bool(stopping) is (schedule.stop_run < last) or abs(schedule.stop_run - last) < 1e-9
        effective = schedule.stop_run if stopping else None
    assert record.status == ("cancelled" if stopping else "completed")
    assert events[-1]["outcome"]["type"] == ("cancelled" if stopping else "success")
    for index, part in enumerate(schedule.parts):
        value = value_of(events, f"call-{index}")
        assert value["status"] in expected(schedule, index, effective), (index, value)
        assert value["isError"] is (value["status"] != "completed")
        check_time(schedule, index, value, results[f"call-{index}"], effective)
        if value["status"] == "completed" and schedule.around.kind == "tag":
            assert "tagged" in value["structuredContent"]
        assert part.swallows == 5 or "stillRunning" not in value
    assert {call.call_id: call.status for call in record.calls} == {
        call_id: value_of(events, call_id)["status"] for call_id in results
    }


def value_of(events: list[dict[str, Any]], call_id: str) -> dict[str, Any]:
    (value,) = [
        event["value"]
        for event in events
        if event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id
    ]
    return dict(value)


def check_results(schedule: Schedule, seen: list[tuple[float, dict[str, Any]]]) -> dict[str, float]:
    """Exactly one result a call, the last that is heard of it; when it came, by call."""
    results: dict[str, float] = {}
    ended: set[str] = set()
    for when, event in seen:
        call_id = event["value"].get("toolCallId") if event["type"] == "CUSTOM" else event.get("toolCallId")
        if call_id is None:
            continue
        if event["type"] == "TOOL_CALL_RESULT":
            assert call_id in results
            continue
        assert call_id not in ended, f"{event} after the result of {call_id}"
        if event.get("name") == "tool.result":
            ended.add(call_id)
            if "/" not in call_id:
                results[call_id] = when
    over = {f"call-{index}" for index in range(len(schedule.parts))}
    assert set(results) == over
    assert [e["toolCallId"] for _, e in seen if e["type"] == "TOOL_CALL_RESULT"] == list(results)
    nested = {call_id for call_id in schedule.made if "/" in call_id}
    # A nested call may outlive its run when that ends at once; nobody is there to hear of it.
    missing = nested - ended
    assert not missing or all(results[call_id.split("/")[0]] <= seen[-1][0] for call_id in missing)
    return results


def check_time(schedule: Schedule, index: int, value: dict[str, Any], when: float, stop_run: float | None) -> None:
    """An answer comes when it is given, a timeout at once, a Stop within the grace."""
    part, slack = schedule.parts[index], 1e-6
    if value["status"] == "timeout":
        assert part.limit - slack <= when <= part.limit + AT_ONCE + slack
    elif value["status"] == "cancelled":
        at = min(stop for stop in (stop_run, schedule.stop_calls.get(index)) if stop is not None)
        assert at - slack <= when <= at + GRACE + slack
        alone = not part.nested and part.kind != "gentle"
        if alone and schedule.around.kind in (None, "pass", "tag"):
            assert value.get("stillRunning", False) is (part.swallows == 5), part
    elif schedule.around.kind != "deny":
        whole = schedule.around.before + part.lasts(schedule.around) + schedule.around.after
        spare = GRACE if part.end == "give up" else 0
        assert when <= whole + spare + slack


async def lives(numbers: range) -> None:
    async with bench() as at:
        for number in numbers:
            schedule = schedule_of(number)
            try:
                await live(at, schedule)
            except AssertionError as error:
                raise AssertionError(f"AGUI_SCHEDULE={number}: {error}\n{schedule}") from error


@pytest.mark.parametrize("part", range(SCHEDULES.parts))
def test_of_thousands_of_schedules_each_ends_as_the_rules_say(part: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gateway")  # failures are planned, and their tracebacks cost more than they do
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(lives(SCHEDULES.part(part)))
