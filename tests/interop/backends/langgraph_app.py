"""A graph of LangGraph behind ag-ui-langgraph; `POST /agent`.

Its state is in its own checkpoints, by thread. A call of a frontend's tool, and so of one of the
gateway's, ends the run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from uuid import uuid4

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.callbacks import adispatch_custom_event
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, MessagesState, StateGraph
from langgraph.types import interrupt
from script import Turn, next_turn
from watched import serve


class Model(BaseChatModel):
    """Speaks by the script."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, messages: Sequence[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError("It streams.")

    async def _astream(
        self, messages: Sequence[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        said: list[str] = []
        results: list[str] = []
        for message in messages:
            if isinstance(message, HumanMessage):
                said.append(str(message.content))
                results = []
            elif isinstance(message, ToolMessage):
                results.append(str(message.content))
        turn = next_turn(said, results)
        async for piece in turn.pieces():
            yield ChatGenerationChunk(message=AIMessageChunk(piece))
        for chunk in tool_chunks(turn):
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[chunk]))


def tool_chunks(turn: Turn) -> Iterator[dict[str, Any]]:
    """Calls as a model streams them: the name, then the arguments."""
    for index, (name, arguments) in enumerate(turn.calls):
        text = json.dumps(arguments)
        pieces = [text] if turn.whole else ["", text[:4], text[4:]]
        yield {"name": name, "args": pieces[0], "id": f"call-{uuid4()}", "index": index}
        for piece in pieces[1:]:
            yield {"name": None, "args": piece, "id": None, "index": index}


@tool
async def look(config: RunnableConfig) -> str:
    """Looks around."""
    await adispatch_custom_event("backend.looked", {"at": "the room"}, config=config)
    return "a room"


@tool
async def delete(path: str) -> str:
    """Somebody has to say yes."""
    answer = interrupt({"reason": "confirmation", "message": "Delete it?"})
    return f"deleted {path}" if answer == {"approved": True} else "nothing was deleted"


OWN_TOOLS = {"look": look, "delete": delete}


class State(MessagesState):
    tools: list[Any]
    looked: bool


async def think(state: State, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await Model().ainvoke(state["messages"], config)]}


async def act(state: State, config: RunnableConfig) -> dict[str, Any]:
    """The calls of the graph's own tools."""
    results = [await OWN_TOOLS[call["name"]].ainvoke(call, config) for call in own_calls(state)]
    return {"messages": results, "looked": True}


def own_calls(state: State) -> list[Any]:
    return [call for call in last_calls(state) if call["name"] in OWN_TOOLS]


def last_calls(state: State) -> list[Any]:
    last = next(message for message in reversed(state["messages"]) if isinstance(message, AIMessage))
    return last.tool_calls


def after_thought(state: State) -> str:
    return "act" if own_calls(state) else END


def after_act(state: State) -> str:
    """Calls of the frontend's tools beside its own ones are left to it."""
    return "think" if len(own_calls(state)) == len(last_calls(state)) else END


builder = StateGraph(State)
builder.add_node("think", think)
builder.add_node("act", act)
builder.set_entry_point("think")
builder.add_conditional_edges("think", after_thought, ["act", END])
builder.add_conditional_edges("act", after_act, ["think", END])

app = FastAPI()
agent = LangGraphAgent(
    name="graph",
    graph=builder.compile(checkpointer=InMemorySaver()),
    emit_interrupt_outcome=True,
    emit_raw_events=False,
)
add_langgraph_fastapi_endpoint(app, agent, "/agent")
serve(app)
