"""What the gateway takes, as it is published: the bodies of contract 3, by the models that validate them."""

from __future__ import annotations

from typing import Any

from ag_ui.core import RunAgentInput
from pydantic import BaseModel, Field

from gateway.wire.agent_input import GatewayProps
from gateway.wire.inputs import StopInput, TicketInput, ToolRunInput
from gateway.wire.schema_models import ID, Schema, accepted

__all__ = ["BODIES", "input_definitions"]


class ToolRunBody(ToolRunInput):
    """Body of `POST /tools/{name}`."""

    arguments: dict[str, Any] = Field(
        default_factory=dict, description="What the tool's `parameters` ask for; `422` where it does not fit."
    )


BODIES: dict[str, type[BaseModel]] = {
    "RunAgentInput": RunAgentInput,
    "StopInput": StopInput,
    "TicketInput": TicketInput,
    "ToolRunInput": ToolRunBody,
}


def input_definitions() -> dict[str, Schema]:
    """The definitions of all bodies. `RunAgentInput` is AG-UI's, with our rules for ids and our options."""
    definitions = accepted([*BODIES.values(), GatewayProps])
    definitions["ToolRunInput"] = definitions.pop("ToolRunBody")
    run = definitions["RunAgentInput"]["properties"]
    run["threadId"], run["runId"] = dict(ID), dict(ID)
    run["parentRunId"]["anyOf"] = [dict(ID), {"type": "null"}]
    run["forwardedProps"] = {
        "description": "Passed on to the agent; what is under `gateway` is for the gateway itself.",
        "properties": {"gateway": {"anyOf": [{"$ref": "#/$defs/GatewayProps"}, {"type": "null"}]}},
    }
    return definitions
