"""What an agent sees of its run: one object per run, its second argument."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gateway.execution import payloads
from gateway.execution.agent_calls import AgentCalls
from gateway.execution.call import now_ms
from gateway.execution.caller import AuthContext, Caller
from gateway.execution.context import CallLogger
from gateway.execution.live import LiveRun
from gateway.execution.middleware import checked_timeout
from gateway.execution.names import check_event_name
from gateway.execution.outcomes import ToolOutput
from gateway.execution.signals import AbortSignal
from gateway.run.stage import END
from gateway.wire.codec import Change, as_mapping, encode
from gateway.wire.events import CustomWriter

__all__ = ["AgentContext"]

TAIL = b"}}" + END


class AgentContext:
    """What an agent sees of its run. Members may be used from any thread unless they are `async`.

    They are those of `ToolContext` that mean something without a call. Source: contract 2.2 and 6.
    """

    __slots__ = ("_agent", "_caller", "_calls", "_logger", "_run", "_signal", "context")

    def __init__(self, agent: str, run: LiveRun, caller: Caller, calls: AgentCalls, context: Any = None) -> None:
        self._agent = agent
        self._run = run
        self._caller = caller
        self._calls = calls
        self._signal = run.signal.child()  # one of its own: nothing that it does to it reaches the run
        self._logger: CallLogger | None = None
        #: What `Gateway(context=...)` gave this run.
        self.context = context

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._run.key.run_id

    @property
    def thread_id(self) -> str:
        """Id of the conversation."""
        return self._run.record.thread_id

    @property
    def parent_run_id(self) -> str | None:
        """The run this one continues, if the caller named one."""
        return self._run.record.parent_run_id

    @property
    def request_id(self) -> str:
        """The gateway's own id of the starting request, the one in `X-Request-Id`."""
        return self._caller.request_id

    @property
    def session_id(self) -> str:
        """`anon:<session>` or `user:<subject>:<session>`; without a session a fresh one per run."""
        return self._caller.session_id

    @property
    def auth(self) -> AuthContext | None:
        """Who calls, or None."""
        return self._caller.auth

    @property
    def verified_subject(self) -> str | None:
        """`auth.subject` when an authenticator verified it, else None."""
        return None if self._caller.auth is None else self._caller.auth.subject

    @property
    def metadata(self) -> Mapping[str, Any]:
        """`{"headers", "forwarded_props", "context", "client_tools", "client_request_id"}`, never credentials."""
        return self._caller.metadata

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger bound to request, run and agent."""
        if self._logger is None:
            extra = {"request_id": self.request_id, "run_id": self.run_id, "agent": self._agent}
            self._logger = CallLogger(logging.getLogger(f"gateway.agents.{self._agent}"), extra)
        return self._logger

    @property
    def abort_signal(self) -> AbortSignal:
        """Tells that the run shall end, and why."""
        return self._signal

    def emit_custom_event(self, name: str, value: object) -> None:
        """Sends a CUSTOM event to everybody who watches the run; synchronous, in order with what the agent yields.

        `value` is a mapping, dataclass or pydantic model. What JSON cannot hold is replaced and counted, never an error
        (`strict_payloads` raises `PayloadError`). Raises `TypeError` or `ValueError` for a name or value that is none.
        Source: contract 4.3.
        """
        check_event_name(name)
        changes: list[Change] = []
        fields = payloads.within_limits(self._run, self._agent, encode(as_mapping(value), changes), changes)
        self._run.stage.add((None, CustomWriter.own_head(now_ms(), name), fields[1:-1], TAIL))
        self._run.staged()

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], tool_call_id: str | None = None, timeout: float | None = None
    ) -> ToolOutput:
        """Calls a tool of the gateway as one of this run's calls: it is in the stream, and in the conversation.

        Never raises for an outcome: a tool that is unknown, fails, is too slow or stopped is an output. `tool_call_id`
        is the model's id for the call; one that the agent has streamed itself, or that the request's messages have, is
        not announced a second time, and one that is taken gets a suffix, `~2`. `timeout` is seconds, 0 for ever, None
        the tool's own; `ValueError` for another one, or for what is no id.

        A tool that asks by an interrupt, or needs an approval, ends the run with the question, unless the request says
        `forwardedProps.gateway.input = "open"`: then this never returns, and the agent is closed (it sees
        `CancelledError`). The run that resumes it makes the call first and has its result in `input.messages`. For the
        loop's own thread. Source: contract 5.6 and 6.
        """
        return await self._calls.make(name, arguments, tool_call_id, checked_timeout(timeout))
