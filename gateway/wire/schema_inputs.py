"""What the gateway takes, as it is published: the bodies of contract 3, by the models that validate them."""

from __future__ import annotations

from typing import Any

from ag_ui.core import RunAgentInput
from pydantic import BaseModel, Field

from gateway.wire.agent_input import GatewayProps
from gateway.wire.inputs import (
    MAX_ID,
    AnswerInput,
    ClaimInput,
    ResultInput,
    ResumeEntry,
    StopInput,
    TicketInput,
    ToolRunInput,
    WaitingInput,
)
from gateway.wire.schema_models import ID, Schema, accepted

__all__ = ["BODIES", "input_definitions"]


class ToolResumeEntry(ResumeEntry):
    """The answer to one question that ended a run; AG-UI's `ResumeEntry`, but closed as our bodies are."""


class ToolRunBody(ToolRunInput):
    """Body of `POST /tools/{name}`."""

    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="What the tool's `parameters` ask for; `422` where it does not fit. With `resume`: those that the "
        "call had, or absent.",
    )
    resume: list[ToolResumeEntry] | None = Field(  # type: ignore[assignment]  # a list of what is one of them
        None, description="The answers to all open questions of an interrupted run, each once."
    )


class AnswerBody(AnswerInput):
    """Body of `POST /runs/{runId}/input`: the answer to an open question."""

    payload: Any = Field(
        None, description="What the question's `responseSchema` asks for; `422` where it does not fit."
    )


class ResultBody(ResultInput):
    """Body of `POST …/result`: what the tool of a page came to."""

    output: dict[str, Any] | None = Field(
        description="What it came to, as a `ToolOutput`; null: the page navigated away, so nobody knows."
    )


BODIES: dict[str, type[BaseModel]] = {
    "AnswerInput": AnswerBody,
    "ClaimInput": ClaimInput,
    "ResultInput": ResultBody,
    "RunAgentInput": RunAgentInput,
    "StopInput": StopInput,
    "TicketInput": TicketInput,
    "ToolRunInput": ToolRunBody,
    "WaitingInput": WaitingInput,
}


def input_definitions() -> dict[str, Schema]:
    """The definitions of all bodies. `RunAgentInput` is AG-UI's, with our rules for ids and our options."""
    definitions = accepted([*BODIES.values(), GatewayProps])
    for name, model in BODIES.items():
        definitions[name] = definitions.pop(model.__name__)
    run = definitions["RunAgentInput"]["properties"]
    run["threadId"], run["runId"] = dict(ID), dict(ID)
    definitions["ResumeEntry"]["properties"]["interruptId"] |= {"minLength": 1, "maxLength": MAX_ID}
    run["parentRunId"]["anyOf"] = [dict(ID), {"type": "null"}]
    run["forwardedProps"] = {
        "description": "Passed on to the agent; what is under `gateway` is for the gateway itself.",
        "properties": {"gateway": {"anyOf": [{"$ref": "#/$defs/GatewayProps"}, {"type": "null"}]}},
    }
    return definitions
