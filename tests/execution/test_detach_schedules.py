"""Random lives of runs whose calls are detached, on the real executor with a virtual clock: nothing is ever lost.

Each schedule is made from its own number: how long the work of each call lasts and what it comes to, how the tool waits
for it, when somebody detaches it, and when somebody stops the run, the call or the job. From the same number the rules
of contract 5.3 and 5.4 say what every call and job has to end in.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.execution.background import Detached
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.middleware import ToolCall
from gateway.execution.tools import Tool, tool
from gateway.run.records import RunKey
from gateway.stores.base import StopRequest
from tests.execution.running import Desk, desk
from tests.execution.virtual import VirtualLoop
from tests.support.effort import Schedules

SCHEDULES = Schedules(1_000, parts=2)
GRACE = 2.5
FOR_EVER = 1_000.0
ADA = "anon:ada"

# What the work ends in: status and text of its result.
ENDS = {
    "return": ("completed", "done"),
    "error": ("failed", "Error [failed]: as planned"),
    "raise": ("failed", "Error [failed]: as planned"),
    "exit": ("failed", "Error [failed]: 3"),
    "cancel itself": ("failed", "Error [failed]: The tool cancelled itself."),
}
CANCELLED = ("cancelled", "Error [cancelled]: Cancelled by the user.")


@dataclass
class Part:
    """What one call does, and what is done to it. Times are seconds; `stop_job` counts from the move."""

    form: str
    naps: list[float]
    nested: list[float]
    end: str
    swallows: int
    detach: list[float] = field(default_factory=list)
    stop_call: float | None = None
    stop_job: float | None = None

    @property
    def lasts(self) -> float:
        return sum(self.naps) + sum(self.nested)


@dataclass
class Schedule:
    number: int
    after: float | None
    parts: list[Part]
    stop_run: float | None


def schedule_of(number: int) -> Schedule:
    luck = random.Random(number)
    parts = [_part(luck) for _ in range(luck.choice([1, 1, 2, 3]))]
    longest = max(part.lasts for part in parts)
    stop_run = luck.uniform(0.01, 1.2 * longest) if luck.random() < 0.4 else None
    # Middleware that is not there, passes on, or takes its time over what a job has come to.
    return Schedule(number, luck.choice([None, 0, luck.uniform(0.1, 5)]), parts, stop_run)


def _part(luck: random.Random) -> Part:
    form = luck.choice(list(FORMS))
    part = Part(
        form,
        naps=[luck.uniform(0.01, 2) for _ in range(luck.choice([1, 2, 3]))],
        nested=[luck.uniform(0.01, 2) for _ in range(luck.choice([0, 0, 1, 2]))],
        # In a task of the tool's own it would end the loop.
        end=luck.choice([end for end in ENDS if end != "exit" or form == "in short"]),
        swallows=luck.choice([0, 0, 1, 5]),
    )
    if luck.random() < 0.8:
        part.detach = sorted(luck.uniform(0.01, 1.1 * part.lasts) for _ in range(luck.choice([1, 1, 2])))
    if luck.random() < 0.3:
        part.stop_call = luck.uniform(0.01, 1.2 * part.lasts)
    if luck.random() < 0.4:
        part.stop_job = luck.uniform(0.01, part.lasts)
    return part


# -- the tools --


async def in_short(ctx: ToolContext, work: Awaitable[Any]) -> Any:
    return await ctx.run_detachable(work)


async def by_hand(ctx: ToolContext, work: Awaitable[Any]) -> Any:
    task = asyncio.ensure_future(work)
    assert ctx.detach is not None
    note = ctx.detach(task)
    await asyncio.wait({task, note}, return_when=asyncio.FIRST_COMPLETED)
    return task.result() if task.done() else note.result()


async def in_a_group(ctx: ToolContext, work: Any) -> Any:
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            assert ctx.detach is not None
            either: set[asyncio.Future[Any]] = {task, ctx.detach(task)}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except* ValueError as failures:
        raise failures.exceptions[0] from None
    return task.result()


FORMS: dict[str, Callable[[ToolContext, Any], Awaitable[Any]]] = {
    "in short": in_short,
    "by hand": by_hand,
    "in a group": in_a_group,
}


@tool(timeout=0)
async def inner(ctx: ToolContext, seconds: float) -> str:
    """Says something, sleeps, says something."""
    ctx.emit_custom_event("inside", {"n": 0})
    await asyncio.sleep(seconds)
    ctx.emit_custom_event("inside", {"n": 1})
    return "slept"


async def act(part: Part, ctx: ToolContext) -> Any:
    """The work of a part: rows, progress, nested calls, and its end."""
    left, number = part.swallows, 0

    def row() -> None:
        nonlocal number
        ctx.emit_custom_event("row", {"n": number}, batch=number % 3 == 0)
        ctx.report_progress(number)
        number += 1

    try:
        row()
        for nap in part.naps:
            await asyncio.sleep(nap)
            row()
        for seconds in part.nested:
            await ctx.call_tool("inner", {"seconds": seconds})
            row()
        return _end(part.end)
    except asyncio.CancelledError:
        if not ctx.abort_signal.aborted:
            raise
        while left:
            left -= 1
            try:
                row()
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue
        row()
        raise


def _end(end: str) -> str:
    if end == "raise":
        raise ValueError("as planned")
    if end == "exit":
        raise SystemExit(3)
    if end == "cancel itself":
        raise asyncio.CancelledError
    return "Error: as planned" if end == "error" else "done"


def tool_of(part: Part, index: int) -> Tool:
    @tool(name=f"works{index}", timeout=0)
    async def works(ctx: ToolContext) -> Any:
        """Does what its part says, here or in the background."""
        return await FORMS[part.form](ctx, act(part, ctx))

    return works


# -- running one --


async def live(at: Desk, schedule: Schedule) -> None:
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    made = [tool_of(part, index) for index, part in enumerate(schedule.parts)]
    run = await at.start(*made, others=[inner], owner=ADA, timeout=0, run_id=f"run-{schedule.number}")
    answers: dict[int, list[tuple[float, Any]]] = {index: [] for index in range(len(made))}
    jobs: dict[int, LiveRun] = {}

    def press(key: RunKey, call_id: str | None) -> None:
        at.supervisor.spawn(at.supervisor.stop(StopRequest(key, "user", None, call_id)), name="stop")

    async def move(index: int) -> None:
        moment = loop.time() - began
        answer = await at.supervisor.detach(run.key, f"call-{index + 1}")
        answers[index].append((moment, answer))
        if isinstance(answer, Detached):
            job = at.supervisor.live(RunKey(ADA, answer.run_id))
            assert job is not None
            jobs[index] = job
            if (delay := schedule.parts[index].stop_job) is not None:
                loop.call_later(delay, press, job.key, None)

    def detach(index: int) -> None:
        at.supervisor.spawn(move(index), name="detach")

    began = loop.time()
    if schedule.stop_run is not None:
        loop.call_later(schedule.stop_run, press, run.key, None)
    for index, part in enumerate(schedule.parts):
        if part.stop_call is not None:
            loop.call_later(part.stop_call, press, run.key, f"call-{index + 1}")
        for when in part.detach:
            loop.call_later(when, detach, index)
    _, here = await at.finish(run)
    await asyncio.sleep(60)  # whatever would not stop has that long to obey, and then nothing is left
    assert asyncio.all_tasks() == before
    for index, part in enumerate(schedule.parts):
        moved = check_answers(schedule, part, answers[index])
        assert (moved is not None) is (index in jobs)
        job = jobs.get(index)
        there = [] if job is None else (await at.finish(job))[1]
        check_call(part, f"call-{index + 1}", here, there)
        check_end(schedule, part, f"call-{index + 1}", moved, here, there)
        if job is not None:
            assert not job.signal._callbacks
            notes = [note.text for note in await at.store.notes(ADA, "thread-1") if note.run_id == job.key.run_id]
            text = result_of(there, f"call-{index + 1}")["content"][0]["text"]
            assert notes == [f"Background job call-{index + 1} ended.\n{text}"]
    assert not run.signal._callbacks
    stopping = any(event.get("name") == "run.stopping" for event in here)
    assert here[-1]["outcome"]["type"] == ("cancelled" if stopping else "success")


def check_answers(schedule: Schedule, part: Part, answers: list[tuple[float, Any]]) -> float | None:
    """The moment of the move: that of the first detach, if that came before any Stop and the end of the work."""
    over = min(at for at in (part.lasts, schedule.stop_run, part.stop_call) if at is not None)
    assert len(answers) == len(part.detach)
    for number, (moment, answer) in enumerate(answers):
        assert isinstance(answer, Detached) is (number == 0 and moment < over), (moment, over, answer)
    return answers[0][0] if answers and isinstance(answers[0][1], Detached) else None


def check_call(part: Part, call_id: str, here: list[dict[str, Any]], there: list[dict[str, Any]]) -> None:
    """What the work said is all there, once, in order, wherever it said it."""
    both = [*here, *there]
    mine = [event for event in both if event.get("value", {}).get("toolCallId") == call_id]
    rows = [event["value"]["n"] for event in mine if event["name"] == "row"]
    assert rows == list(range(len(rows)))
    assert rows
    progress = [event["value"]["progress"] for event in mine if event["name"] == "tool.progress"]
    assert progress == sorted(progress)
    for number in range(1, len(part.nested) + 1):
        inside = [event for event in both if event.get("value", {}).get("toolCallId") == f"{call_id}/{number}"]
        said = [event["value"].get("n", event["name"]) for event in inside]
        assert said in ([], [0], [0, 1, "tool.result"], [0, "tool.result"])


def result_of(events: list[dict[str, Any]], call_id: str) -> dict[str, Any]:
    (found,) = [
        event["value"]
        for event in events
        if event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id
    ]
    return dict(found)


def check_end(
    schedule: Schedule,
    part: Part,
    call_id: str,
    moved: float | None,
    here: list[dict[str, Any]],
    there: list[dict[str, Any]],
) -> None:
    """Status and text of the call, and of the job that it became."""
    result = result_of(here, call_id)
    found = (result["status"], result["content"][0]["text"])
    stops = [at for at in (schedule.stop_run, part.stop_call) if at is not None]
    if moved is None:
        assert found == (CANCELLED if stops and min(stops) < part.lasts else ENDS[part.end])
        return
    assert found == (
        "detached",
        f"The job moved to the background. Its id is {call_id}. You get a note when it ends.",
    )
    assert [event["value"]["toolCallId"] for event in here if event.get("name") == "tool.detached"].count(call_id) == 1
    result = result_of(there, call_id)
    after = schedule.after or 0
    at = FOR_EVER if part.stop_job is None else moved + part.stop_job
    stopped = at < part.lasts
    # What the work has answered before a Stop counts, if what is around it lets it pass soon enough.
    too_late = part.lasts < at < part.lasts + after - GRACE / 2
    found = (result["status"], result["content"][0]["text"])
    if stopped or too_late:
        assert found == CANCELLED
    else:
        status, text = ENDS[part.end]
        assert found == (status, '{"checked":"done"}' if after and status == "completed" else text)
    assert there[-1]["outcome"]["type"] == ("cancelled" if at < part.lasts + after else "success")
    whole = 1 + len(part.naps) + len(part.nested)
    rows = [
        event for event in [*here, *there] if event.get("name") == "row" and event["value"]["toolCallId"] == call_id
    ]
    assert stopped or len(rows) == whole
    assert ("stillRunning" in result) is (stopped and part.swallows == 5)


@asynccontextmanager
async def benches() -> Any:
    """A supervisor without middleware, and one with it."""
    after: list[float] = [0]

    async def around(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        output = await call_next(call)
        if after[0] and ctx.detach is None and "/" not in ctx.tool_call_id:  # it has moved along
            await asyncio.sleep(after[0])
            return {"checked": output.text} if output.status == "completed" else output
        return output

    options: dict[str, Any] = {"stop_grace": GRACE, "run_timeout": 0, "run_ttl": 100}
    async with desk(**options) as plain, desk([around], **options) as guarded:
        yield plain, guarded, after


async def lives(numbers: range) -> None:
    async with benches() as (plain, guarded, after):
        for number in numbers:
            schedule = schedule_of(number)
            after[0] = schedule.after or 0
            try:
                await live(plain if schedule.after is None else guarded, schedule)
            except AssertionError as error:
                raise AssertionError(f"AGUI_SCHEDULE={number}: {error}\n{schedule}") from error


@pytest.mark.parametrize("part", range(SCHEDULES.parts))
def test_of_a_thousand_schedules_none_loses_what_a_job_says_or_comes_to(
    part: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # failures are planned
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(lives(SCHEDULES.part(part)))
