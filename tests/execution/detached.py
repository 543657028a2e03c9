"""Tools that leave their work to the background, and what tests of that ask for and look at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from gateway.execution.background import Detached, Rejected
from gateway.execution.context import ToolContext
from gateway.execution.live import LiveRun
from gateway.execution.tools import Tool, tool
from gateway.run.questions import Answer, Question
from gateway.run.records import RunKey, RunRecord
from tests.execution.running import Desk
from tests.execution.virtual import VirtualLoop

__all__ = [
    "ADA",
    "BEYOND",
    "FORMS",
    "NOTE",
    "NOT_NOW",
    "answer",
    "custom",
    "detach",
    "detachable",
    "first_of",
    "in_virtual_time",
    "job_of",
    "names_of",
    "notes",
    "refused",
    "result_of",
    "rows",
    "sibling",
    "text_of",
    "waits",
]

ADA = "anon:ada"
NOTE = "The job moved to the background. Its id is call-1. You get a note when it ends."
BEYOND = "It may have done its work: check before retrying."

Work = Callable[[ToolContext], Awaitable[Any]]


async def by_hand(ctx: ToolContext, work: Awaitable[Any]) -> Any:
    """What a tool writes that waits on its own."""
    task = asyncio.ensure_future(work)
    assert ctx.detach is not None
    note = ctx.detach(task)
    await asyncio.wait({task, note}, return_when=asyncio.FIRST_COMPLETED)
    return task.result() if task.done() else note.result()


async def in_short(ctx: ToolContext, work: Awaitable[Any]) -> Any:
    """What a tool usually writes."""
    return await ctx.run_detachable(work)


FORMS: dict[str, Callable[[ToolContext, Awaitable[Any]], Awaitable[Any]]] = {"by hand": by_hand, "in short": in_short}


def detachable(work: Work, form: str = "in short", **options: Any) -> Tool:
    """A tool that can leave this work to the background."""

    @tool(**{"name": "works", "timeout": 0, **options})
    async def works(ctx: ToolContext) -> Any:
        """Does its work, here or in the background."""
        return await FORMS[form](ctx, work(ctx))

    return works


async def waits(ctx: ToolContext) -> dict[str, Any]:
    """Work that says where it is, before and after the stage opens."""
    ctx.emit_custom_event("begun", {"run": ctx.run_id})
    await ctx.context.go.wait()
    ctx.emit_custom_event("done", {"run": ctx.run_id})
    return {"run": ctx.run_id}


@tool(timeout=0)
async def sibling(ctx: ToolContext) -> str:
    """Another call of the same run."""
    await ctx.context.go.wait()
    return "here"


async def detach(at: Desk, run: LiveRun, call_id: str = "call-1") -> LiveRun:
    """The job that a call becomes."""
    answer = await at.supervisor.detach(run.key, call_id)
    assert isinstance(answer, Detached), answer
    assert answer.call_id == call_id
    job = at.supervisor.live(RunKey(run.key.owner, answer.run_id))
    assert job is not None
    return job


async def refused(at: Desk, run: LiveRun, call_id: str = "call-1") -> Rejected:
    answer = await at.supervisor.detach(run.key, call_id)
    assert isinstance(answer, Rejected), answer
    return answer


def custom(events: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """The values of the CUSTOM events with these names."""
    return [event["value"] for event in events if event.get("name") in names]


def names_of(events: list[dict[str, Any]]) -> list[str]:
    """What a stream consists of, in order: types, and names of CUSTOM events."""
    return [str(event.get("name", event["type"])) for event in events]


def result_of(events: list[dict[str, Any]], call_id: str = "call-1") -> dict[str, Any]:
    (found,) = [value for value in custom(events, "tool.result") if value["toolCallId"] == call_id]
    return found


def text_of(value: dict[str, Any]) -> str:
    return str(value["content"][0]["text"])


async def notes(at: Desk, owner: str = ADA) -> list[str]:
    return [note.text for note in await at.store.notes(owner, "thread-1")]


async def job_of(at: Desk, job: LiveRun) -> tuple[RunRecord, list[dict[str, Any]]]:
    """A background run at its end: its stream is what every stream is, and has no call of the model's."""
    record, events = await at.finish(job)
    assert not [event["type"] for event in events if event["type"].startswith("TOOL_CALL")]
    assert names_of(events)[-2] == "tool.result"
    return record, events


async def answer(at: Desk, key: RunKey, interrupt_id: str, payload: Any) -> bool:
    """Answers a question of the run, as the route does; false when it is not open there."""
    question: Question | None = await at.supervisor.questions.find(key, interrupt_id)
    if question is None or not question.open:
        return False
    new = replace(question, answer=Answer("resolved", payload))
    done = await at.store.replace_questions(key, [(question, new)])
    at.supervisor.questions.changed(new)
    return done


def rows(events: list[dict[str, Any]]) -> list[int]:
    """The numbers of the rows that were emitted."""
    return [value["n"] for value in custom(events, "row")]


def in_virtual_time(life: Callable[[], Any]) -> None:
    """Runs it on a loop of its own, on which nothing waits for real."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(life())


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits for the first of them."""
    await asyncio.wait(set(futures), return_when=asyncio.FIRST_COMPLETED)


NOT_NOW = Rejected("not_detachable", '"works" cannot be moved to the background now.')
