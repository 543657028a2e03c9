"""An AG-UI agent without a model: an ASGI application that knows nothing of the gateway in front of it.

What it does goes by a word in the last message of the user. It keeps nothing: all that it has to know comes with each
request, as the protocol has it, so that any copy of it goes on with any conversation.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal
from uuid import uuid4

from ag_ui.core import (
    BaseEvent,
    Interrupt,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolMessage,
)
from ag_ui.encoder import EventEncoder
from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.demo.samples import ALICE

__all__ = ["PATH", "agent_app"]

PATH = "/agent"
WORD_SECONDS = 0.03
IMPORT_TOOL = "import_csv"
HELP = (
    'I go by words, since I have no model. Say "import" and I let a tool of the gateway import some orders; "book" and'
    ' I ask you about a table; "read" and I read to you, until you press Stop.'
)

Events = AsyncIterator[BaseEvent]


class Table(BaseModel):
    """What the person answers when a table is booked."""

    people: Annotated[int, Field(ge=1, le=12, title="People")] = 2
    time: Annotated[Literal["18:00", "20:00"], Field(title="Time")] = "20:00"


async def answer(request: Request) -> Response:
    """One run: a `RunAgentInput` in, its events out."""
    try:
        given = RunAgentInput.model_validate_json(await request.body())
    except ValidationError as error:
        return JSONResponse(
            {"error": error.errors(include_url=False, include_context=False, include_input=False)}, status_code=422
        )
    encoder = EventEncoder()
    return StreamingResponse(
        (encoder.encode(event) async for event in run(given)), media_type=encoder.get_content_type()
    )


async def run(given: RunAgentInput) -> Events:
    """The events of a run, from its start to its end."""
    yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
    event: BaseEvent | None = None
    async for event in act(given):
        yield event
    if not isinstance(event, RunFinishedEvent | RunErrorEvent):
        yield _finished(given, RunFinishedSuccessOutcome())


def act(given: RunAgentInput) -> Events:
    """What this request asks for."""
    if given.resume:
        return book(given, given.resume[0])
    last = given.messages[-1] if given.messages else None
    if isinstance(last, ToolMessage):
        return report(_text_of(last))
    for word, script in SCRIPTS.items():
        if re.search(rf"\b{word}", _text_of(last), re.IGNORECASE):
            return script(given)
    return say(HELP)


def import_orders(given: RunAgentInput) -> Events:
    """Calls a tool that whoever asks must have: the run that brings its result ends with a report."""
    thought = think(f"They want their orders in. For that I need {IMPORT_TOOL}.")
    if IMPORT_TOOL not in [tool.name for tool in given.tools or ()]:
        return in_order(thought, say(f"I would need a tool called {IMPORT_TOOL} for that, and nobody gave me one."))
    call_id = _new_id("call")
    return in_order(
        thought,
        _snapshot(given, stage="importing"),
        say("I import the orders, row by row."),
        ToolCallStartEvent(tool_call_id=call_id, tool_call_name=IMPORT_TOOL),
        ToolCallArgsEvent(tool_call_id=call_id, delta='{"delay_ms":'),
        ToolCallArgsEvent(tool_call_id=call_id, delta=" 80}"),
        ToolCallEndEvent(tool_call_id=call_id),
    )


def report(result: str) -> Events:
    """Says what the tool has done, or why not."""
    try:
        found: Any = json.loads(result)
        imported, rejected = int(found["imported"]), int(found["rejected"])
    except (ValueError, TypeError, KeyError):  # stopped, failed, or moved to the background: the text says it
        return in_order(_delta(stage="not imported"), say(f"The tool says: {result}"))
    return in_order(
        _delta(stage="imported", imported=imported, rejected=rejected),
        say(f"Done: {imported} orders are in, and {rejected} lines did not fit."),
    )


def ask_for_table(given: RunAgentInput) -> Events:
    """Ends the run with a question: an AG-UI interrupt."""
    question = Interrupt(
        id=_new_id("table"),
        reason="input_required",
        message="A table for how many, and when?",
        response_schema=Table.model_json_schema(),
        metadata={"key": "table"},
    )
    return in_order(
        _snapshot(given, stage="asking"),
        say("With pleasure."),
        _finished(given, RunFinishedInterruptOutcome(interrupts=[question])),
    )


def book(given: RunAgentInput, entry: ResumeEntry) -> Events:
    """Goes on behind the answer."""
    if entry.status == "cancelled":
        return in_order(_snapshot(given, stage="not booked"), say("Then I book nothing."))
    try:
        table = Table.model_validate(entry.payload)
    except ValidationError:
        return in_order(RunErrorEvent(message="This is no answer to my question.", code="invalid_answer"))
    return in_order(
        _snapshot(given, stage="booked", table=table.model_dump()),
        say(f"I have booked a table for {table.people} at {table.time}."),
    )


def read(_: RunAgentInput) -> Events:
    """A long text, to be stopped in its middle."""
    return say(ALICE)


SCRIPTS: dict[str, Callable[[RunAgentInput], Events]] = {
    "import": import_orders,
    "book": ask_for_table,
    "read": read,
}


async def in_order(*parts: BaseEvent | Events) -> Events:
    """One part after the other."""
    for part in parts:
        if isinstance(part, BaseEvent):
            yield part
        else:
            async for event in part:
                yield event


async def say(text: str) -> Events:
    """A message, word by word."""
    message_id = _new_id("message")
    yield TextMessageStartEvent(message_id=message_id)
    for word in _words(text):
        yield TextMessageContentEvent(message_id=message_id, delta=word)
        await asyncio.sleep(WORD_SECONDS)
    yield TextMessageEndEvent(message_id=message_id)


async def think(text: str) -> Events:
    """A thought, word by word."""
    message_id = _new_id("thought")
    yield ReasoningStartEvent(message_id=message_id)
    yield ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
    for word in _words(text):
        yield ReasoningMessageContentEvent(message_id=message_id, delta=word)
        await asyncio.sleep(WORD_SECONDS)
    yield ReasoningMessageEndEvent(message_id=message_id)
    yield ReasoningEndEvent(message_id=message_id)


def _finished(
    given: RunAgentInput, outcome: RunFinishedSuccessOutcome | RunFinishedInterruptOutcome
) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome)


def _snapshot(given: RunAgentInput, **values: Any) -> StateSnapshotEvent:
    """The state that was given, with new values."""
    return StateSnapshotEvent(snapshot={**(given.state if isinstance(given.state, dict) else {}), **values})


def _delta(**values: Any) -> StateDeltaEvent:
    """New values for a state that this run has shown before."""
    return StateDeltaEvent(delta=[{"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()])


def _text_of(message: Any) -> str:
    content = getattr(message, "content", None)
    parts = content if isinstance(content, list) else []
    return content if isinstance(content, str) else " ".join(getattr(part, "text", "") for part in parts)


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def _new_id(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:12]}"


agent_app = Starlette(routes=[Route(PATH, answer, methods=["POST"])])
