"""What people do in tests: they read what is asked, answer it, and resume what has ended with a question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from gateway import ToolContext, tool
from tests.http.asking import Reader, agent_body, ask, events_of
from tests.http.site import ME, Site, serving

__all__ = [
    "DAY",
    "END",
    "HELD",
    "NAME",
    "START",
    "a_question",
    "answer",
    "answered",
    "approve",
    "asked",
    "asks",
    "asks_freely",
    "asks_in_a_thread",
    "asks_several",
    "body_of",
    "books",
    "calls",
    "decides",
    "check_published",
    "gave",
    "interrupts_of",
    "names_of",
    "post",
    "record_of",
    "resolve",
    "result_of",
    "results_of",
    "text_of",
]

SCHEMAS = Path(__file__).parents[2] / "schemas" / "custom"

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}},
    "required": ["name"],
    "additionalProperties": False,
}
"""The schema of a question after a name."""

START = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
HELD = ["TOOL_CALL_START", "TOOL_CALL_END"]
END = ["tool.result", "TOOL_CALL_RESULT"]
"""The events of a call that the model has just made, of one that the client has already, and of every end."""


# -- what is asked in an open run --


async def asked(stream: Reader) -> dict[str, Any]:
    """The value of the next `tool.waiting`, which is as it is published."""
    value: dict[str, Any] = (await stream.until("tool.waiting"))["value"]
    check_published("tool.waiting", value)
    return value


async def answer(
    site: Site,
    interrupt_id: str,
    payload: Any = None,
    status: str = "resolved",
    *,
    run: str = "r",
    headers: Mapping[str, str] = ME,
) -> httpx.Response:
    """Posts an answer."""
    body = {"interruptId": interrupt_id, "status": status, "payload": payload}
    return await site.client.post(f"/runs/{run}/input", json=body, headers=dict(headers))


async def answered(
    site: Site, value: Mapping[str, Any], payload: Any = None, status: str = "resolved", **more: Any
) -> None:
    """Answers what a `tool.waiting` asks, which is accepted."""
    given = await answer(site, value["interruptId"], payload, status, **more)
    assert given.status_code == 202, given.text


def check_published(name: str, value: object) -> None:
    """The value of a CUSTOM event is one of the published schema."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


# -- interrupts --


async def post(site: Site, path: str, body: Any, headers: Mapping[str, str] = ME) -> list[dict[str, Any]]:
    """The events of a whole run."""
    done = await site.client.post(path, json=body, headers=dict(headers))
    assert done.status_code == 200, done.text
    return events_of(done.content)


def interrupts_of(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the run has ended with, which is an interrupt."""
    assert events[-1]["type"] == "RUN_FINISHED"
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt", outcome
    assert set(outcome) == {"type", "interrupts"}
    found: list[dict[str, Any]] = outcome["interrupts"]
    assert found
    return found


def resolve(interrupt: Mapping[str, Any] | str, payload: Any = None, status: str = "resolved") -> dict[str, Any]:
    """An entry of `resume`."""
    interrupt_id = interrupt if isinstance(interrupt, str) else interrupt["id"]
    entry = {"interruptId": interrupt_id, "status": status}
    return entry if payload is None else {**entry, "payload": payload}


def approve(interrupt: Mapping[str, Any] | str, *, approved: bool = True, **more: Any) -> dict[str, Any]:
    """An entry of `resume` that answers an approval."""
    return resolve(interrupt, {"approved": approved, **more})


# -- what came of it --


async def record_of(site: Site, run: str = "r", headers: Mapping[str, str] = ME, *, over: bool = False) -> Any:
    """The record of a run; `over`: once it has ended."""
    answer_ = await site.client.get(f"/runs/{run}{'?wait=20' if over else ''}", headers=dict(headers))
    assert answer_.status_code == 200, answer_.text
    return answer_.json()


def results_of(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The values of all `tool.result`, by call."""
    found = [event["value"] for event in events if event.get("name") == "tool.result"]
    by_call = {value["toolCallId"]: value for value in found}
    assert len(by_call) == len(found), "a call has one result"
    return by_call


def result_of(events: Sequence[Mapping[str, Any]], call_id: str = "c") -> dict[str, Any]:
    return results_of(events)[call_id]


def gave(events: Sequence[Mapping[str, Any]], call_id: str = "c") -> Any:
    """The structured content of a call that completed."""
    value = result_of(events, call_id)
    assert value["status"] == "completed", value
    return value["structuredContent"]


def text_of(value: Mapping[str, Any]) -> str:
    """The text of a `tool.result`, or of a JSON answer."""
    return "\n".join(block["text"] for block in value["content"])


def names_of(events: Sequence[Mapping[str, Any]], call_id: str | None = None) -> list[str]:
    """The names (of CUSTOM events) or types, of all events or of those of a call."""
    chosen = [
        event
        for event in events
        if call_id is None or call_id in (event.get("toolCallId"), (event.get("value") or {}).get("toolCallId"))
    ]
    return [event.get("name") or event["type"] for event in chosen]


# -- tools that ask --


@tool
async def asks(ctx: ToolContext, question: str = "Who are you?") -> dict[str, Any]:
    """Asks for a name."""
    given = await ctx.request_input(question, NAME)
    return {"status": given.status, "resolved": given.resolved, "payload": given.payload}


@tool(name="asks")
def asks_in_a_thread(ctx: ToolContext, question: str = "Who are you?") -> dict[str, Any]:
    """Asks for a name, from a thread."""
    given = ctx.request_input_sync(question, NAME)
    return {"status": given.status, "resolved": given.resolved, "payload": given.payload}


@tool
async def asks_freely(ctx: ToolContext) -> dict[str, Any]:
    """Takes whatever it is told."""
    given = await ctx.request_input("Anything?")
    return {"status": given.status, "payload": given.payload}


@tool
async def asks_several(ctx: ToolContext, names: list[str]) -> dict[str, Any]:
    """Asks several things at once."""
    given = await asyncio.gather(*(ctx.request_input(name) for name in names))
    return {name: one.payload for name, one in zip(names, given, strict=True)}


@tool
async def calls(ctx: ToolContext, name: str, arguments: dict[str, Any], timeout: float | None = None) -> Any:
    """Calls another tool."""
    output = await ctx.call_tool(name, arguments, timeout)
    return {"status": output.status, "text": output.text, "content": output.structured_content}


@asynccontextmanager
async def a_question(
    *tools: Any, body: Any = None, **options: Any
) -> AsyncIterator[tuple[Site, Reader, dict[str, Any]]]:
    """A served gateway, a run of the first tool, and the first thing that it asks."""
    async with serving(*tools, **options) as site:
        stream = Reader(await site.open(f"/tools/{tools[0].name}", body or {"runId": "r", "toolCallId": "c"}, ME))
        yield site, stream, await asked(stream)


# -- tools that interrupt --

DAY = {"type": "string", "minLength": 1}


@tool
async def books(ctx: ToolContext, place: str = "Oslo") -> dict[str, Any]:
    """Asks for a day, then for how many, one run after the other."""
    ctx.context.trail.append(",".join(sorted(ctx.input_responses)))
    day = ctx.interrupt("Which day?", DAY, key="day")
    many = ctx.interrupt("How many?", {"type": "integer"}, "people", "many")
    newest = ctx.input_response
    return {
        "place": place,
        "day": [day.status, day.payload],
        "many": [many.status, many.payload],
        "newest": None if newest is None else newest.payload,
        "all": {key: given.payload for key, given in ctx.input_responses.items()},
    }


@tool
async def decides(ctx: ToolContext, question: str = "Yes?") -> dict[str, Any]:
    """Asks once, without a schema."""
    ctx.context.executions["decides"] += 1
    given = ctx.interrupt(question)
    return {"status": given.status, "payload": given.payload}


def body_of(path: str, run: str = "r", resume: Any = None, **more: Any) -> dict[str, Any]:
    """The request for a run of one call `c` in thread `t`, or for one that resumes it."""
    body: dict[str, Any] = {} if resume is None else {"resume": resume}
    if path == "/agents/tools":
        return agent_body(ask(("c", "books", more.pop("arguments", {}))), runId=run, **body, **more)
    own = {"toolCallId": "c"} if resume is None else {}
    return {"runId": run, "threadId": "t", **own, **body, **more}
