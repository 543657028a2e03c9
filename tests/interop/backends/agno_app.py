"""An agent of Agno behind its AG-UI interface; `POST /agui`.

Its sessions, one a thread, are in its own database: of a request it reads what the person said last and the results of
its calls.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.os.interfaces.agui import AGUI
from agno.run import RunContext
from agno.run.agent import CustomEvent
from agno.tools import tool
from fastapi import FastAPI
from script import next_turn
from watched import serve


class Script(Model):
    """Speaks by the script. It streams, and nothing else."""

    async def ainvoke_stream(self, messages: list[Message], *args: Any, **options: Any) -> AsyncIterator[ModelResponse]:
        said: list[str] = []
        results: list[str] = []
        for message in messages:
            if message.role == "user":
                said.append(str(message.content))
                results = []
            elif message.role == "tool":
                results.append(str(message.content))
        turn = next_turn(said, results)
        async for piece in turn.pieces():
            yield ModelResponse(content=piece)
        for name, arguments in turn.calls:
            function = {"name": name, "arguments": json.dumps(arguments)}
            yield ModelResponse(tool_calls=[{"id": f"call-{uuid4()}", "type": "function", "function": function}])

    def invoke(self, *args: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    async def ainvoke(self, *args: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


@dataclass
class Looked(CustomEvent):
    at: str = ""

    def __str__(self) -> str:
        return ""  # Agno would make it part of the result


@tool
async def look(run_context: RunContext) -> AsyncIterator[Any]:
    """Looks around."""
    yield Looked(at="the room")
    run_context.session_state["looked"] = True
    yield "a room"


@tool(requires_confirmation=True)
async def delete(path: str) -> str:
    """Somebody has to say yes."""
    return f"deleted {path}"


agent = Agent(
    model=Script(id="script"),
    tools=[look, delete],
    db=InMemoryDb(),
    add_history_to_context=True,
    num_history_runs=20,
    telemetry=False,
)
app = FastAPI()
app.include_router(AGUI(agent=agent).get_router())
serve(app)
