"""Runs of agents: of the built-in one, which runs calls that the last assistant message left unanswered, and others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ag_ui.core import AssistantMessage, ResumeEntry, RunAgentInput
from starlette.requests import Request

from gateway.errors import NotFound, RequestError
from gateway.execution.agent_job import AgentJob, Player
from gateway.execution.agents import TOOLS_AGENT, LocalAgent
from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.coming_to import model_arguments
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.local_player import LocalPlayer
from gateway.execution.page_tools import PageTool
from gateway.execution.resuming import answer_kept
from gateway.execution.session_tools import SessionTools
from gateway.execution.spec import Job, RunSpec
from gateway.http.engine import Engine
from gateway.http.requests import read_body
from gateway.http.responses import REQUEST_ID
from gateway.http.resume import Resumed, resumed
from gateway.http.run_start import run_key
from gateway.http.sessions import caller, identify
from gateway.run.questions import Question
from gateway.run.records import CallRecord
from gateway.upstream.agents import Agent
from gateway.upstream.player import RemotePlayer
from gateway.upstream.requests import forwarded
from gateway.wire.agent_input import AgentInput, PendingCall, parse_agent_input
from gateway.wire.codec import encode
from gateway.wire.inputs import fingerprint

__all__ = ["agent_spec"]


async def agent_spec(engine: Engine, request: Request) -> RunSpec:
    """The run that a `POST /agents/{agent}` asks for; refusals come before anything has started."""
    identity = identify(request)
    agent = request.path_params["agent"]
    found = engine.agents.get(agent)
    if found is None and agent != TOOLS_AGENT:
        raise NotFound(f"No agent {agent!r}.", code="agent_not_found")
    agent_input = parse_agent_input(await read_body(request, engine.settings.max_input_bytes))
    key = run_key(request, identity, agent_input.input.run_id)
    tools = await engine.session_tools(identity)
    resume = None
    if agent_input.resume and await engine.store.get(key) is None:  # a run that is kept has its answers
        thread_id = agent_input.input.thread_id
        resume = await resumed(engine, key.owner, key.run_id, thread_id, agent_input.resume, tools, agent=agent)
    calls = _calls_of(agent_input, tools, resume) if found is None else _calls_again(agent_input, resume)
    if found is None and not calls.anything and not agent_input.resume:
        message = "messages: the last assistant message has no unanswered tool call for agent `tools` to run."
        raise RequestError(message, details=[{"field": "messages", "message": "no unanswered tool call"}])
    who = caller(request, identity, request.scope[REQUEST_ID], **_metadata(agent_input))
    job: Job = CallsJob(who, parallel=engine.settings.parallel_tool_calls)
    if found is not None:
        player = _player(engine, request, agent, found, agent_input, who)
        job = AgentJob(player, _sent(agent_input, resume), who, engine.store)
    return RunSpec(
        key=key,
        thread_id=agent_input.input.thread_id,
        agent=agent,
        fingerprint=fingerprint(f"agents/{agent}", agent_input.parsed),
        caller=who,
        prepare=calls.prepare,
        job=job,
        context=partial(engine.context_for, request),
        parent_run_id=agent_input.input.parent_run_id,
        on_disconnect=agent_input.props.on_disconnect,
        disconnect_grace=agent_input.props.disconnect_grace,
        tools=tools,
        messages=encode(agent_input.wire["messages"]),
        channel="open" if agent_input.props.input == "open" else "interrupt",
        answers=None if resume is None else resume.answers,
    )


def _player(engine: Engine, request: Request, name: str, agent: Agent, agent_input: AgentInput, who: Caller) -> Player:
    if isinstance(agent, LocalAgent):
        return LocalPlayer(agent, who)
    on_page = agent_input.props.page_tools
    headers = forwarded(agent, request.headers.items())
    return RemotePlayer(name, agent, who, engine.connections, headers=headers, on_page=on_page)


@dataclass(slots=True)
class _Calls:
    """What a request asks for: calls to run, calls of a page, calls that stay the frontend's; perhaps an agent."""

    pending: list[PendingCall]
    on_page: frozenset[str]
    passed: list[str]
    resume: Resumed | None
    again: list[Question]
    streaming: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.pending or self.passed or self.again)

    def prepare(self, run: LiveRun) -> None:
        """Registers the calls: known before they start, so that each can be stopped while it waits for others."""
        for pending in self.pending:
            arguments, refused = model_arguments(pending.tool_name, pending.arguments)
            call = Call(
                run,
                pending.call_id,
                pending.tool_name,
                # Looked up when it starts: a call before it may switch tools on and off.
                PageTool(pending.tool_name) if pending.tool_name in self.on_page else None,
                arguments,
                refused=refused,
                parent_message_id=pending.message_id,
                held=pending.held,
            )
            self._register(run, call)
        for question in self.again:
            # The request does not have it, but who follows the conversation does.
            self._register(run, Call(run, question.call_id, question.tool_name, None, {}, held=True))
        run.pending_call_ids = self.passed
        run.streaming = self.streaming

    def _register(self, run: LiveRun, call: Call) -> None:
        run.machine.set_call(CallRecord(call.call_id, call.tool_name))
        if self.resume is not None and call.call_id in self.resume.answered:
            self.resume.apply(call)


def _calls_of(agent_input: AgentInput, tools: SessionTools, resume: Resumed | None) -> _Calls:
    """Sorts the unanswered calls. A frontend's own tools are run by a page if it asks for that, else left to it."""
    pending = _pending_calls(agent_input, resume)
    theirs = {name for name in agent_input.client_tools if tools.get(name) is None}
    again: list[Question] = []
    if resume is not None:
        # What the interrupted run has finished is not run a second time, even if its result was lost on the way.
        done = {call.call_id for call in resume.record.calls if call.call_id not in resume.answered}
        pending = [call for call in pending if call.call_id not in done]
        known = {call.call_id for call in pending}
        again = [question for call_id, question in resume.answered.items() if call_id not in known]
    if agent_input.props.page_tools:
        return _Calls(pending, frozenset(theirs), [], resume, again)
    passed = [call.call_id for call in pending if call.tool_name in theirs]
    return _Calls([call for call in pending if call.call_id not in passed], frozenset(), passed, resume, again)


def _calls_again(agent_input: AgentInput, resume: Resumed | None) -> _Calls:
    """What comes before an agent: the calls of the run that it resumes, each with its answer."""
    answered = {} if resume is None else resume.answered
    known: dict[str, PendingCall] = {}
    for message in agent_input.input.messages if answered else ():
        for call in (message.tool_calls if isinstance(message, AssistantMessage) else None) or ():
            if (question := answered.get(call.id)) is not None:  # with the arguments that it was asked about
                known[call.id] = PendingCall(call.id, question.tool_name, "", message.id, held=True)
    again = [question for call_id, question in answered.items() if call_id not in known]
    return _Calls(list(known.values()), frozenset(), [], resume, again, streaming=True)


def _sent(agent_input: AgentInput, resume: Resumed | None) -> RunAgentInput:
    """What an agent is sent: the request without what was for the gateway."""
    given = agent_input.input
    answers: list[ResumeEntry] = []
    if resume is not None:
        answers = [entry for entry in given.resume or () if entry.interrupt_id in resume.own]
        answers += map(answer_kept, resume.kept)
    changes: dict[str, Any] = {"resume": answers or None}
    if isinstance(given.forwarded_props, dict):
        changes["forwarded_props"] = {name: value for name, value in given.forwarded_props.items() if name != "gateway"}
    return given.model_copy(update=changes)


def _pending_calls(agent_input: AgentInput, resume: Resumed | None) -> list[PendingCall]:
    """The unanswered calls; what was asked about is made again, whatever the request says of that call by now."""
    calls = list(agent_input.pending_calls())
    return calls if resume is None else [resume.as_asked(call) for call in calls]


def _metadata(agent_input: AgentInput) -> dict[str, Any]:
    wire = agent_input.wire
    return {
        "forwarded_props": agent_input.forwarded_props,
        "context": wire.get("context") or [],
        "client_tools": wire.get("tools") or [],
    }
