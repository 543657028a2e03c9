"""An agent of Pydantic AI behind its own AG-UI adapter; `POST /agent`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ag_ui.core import StateSnapshotEvent
from pydantic_ai import Agent, CustomEvent, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from script import next_turn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from watched import serve


@dataclass(kw_only=True)
class Looked(CustomEvent, name="backend.looked"):
    at: str


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    said: list[str] = []
    results: list[str] = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            said.append(str(part.content))
            results = []
        elif isinstance(part, ToolReturnPart):
            results.append(part.model_response_str())
    turn = next_turn(said, results)
    async for piece in turn.pieces():
        yield piece
    for index, (name, arguments) in enumerate(turn.calls):
        text = json.dumps(arguments)
        pieces = [text] if turn.whole else ["", text[:4], text[4:]]
        yield {index: DeltaToolCall(name, pieces[0])}
        for piece in pieces[1:]:
            yield {index: DeltaToolCall(json_args=piece)}


agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])


@agent.tool
async def look(ctx: RunContext[None]) -> ToolReturn[str]:
    """Looks around."""
    await ctx.emit(Looked(at="the room"))
    return ToolReturn("a room", metadata=[StateSnapshotEvent(snapshot={"looked": True})])


@agent.tool_plain(requires_approval=True)
async def delete(path: str) -> str:
    """Somebody has to say yes."""
    return f"deleted {path}"


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


serve(Starlette(routes=[Route("/agent", run, methods=["POST"])]))
