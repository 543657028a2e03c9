"""Calls of the gateway's tools as some backends make them: in snapshots of the messages, and by interrupts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.asking import agent_body, echo, events_of
from tests.http.site import ME, serving
from tests.upstream.backend import Answer, Asked, Event, answering, call_events, finished, started, text
from tests.upstream.test_relay import USER, play
from tests.upstream.test_remote_tools import ECHO, results, shown


def snapshot(*messages: Event) -> Event:
    return {"type": "MESSAGES_SNAPSHOT", "messages": [*USER, *messages]}


def calling(call_id: str = "c1", message_id: str = "a") -> Event:
    call = {"id": call_id, "type": "function", "function": {"name": "echo", "arguments": ECHO}}
    return {"id": message_id, "role": "assistant", "toolCalls": [call]}


def answered(call_id: str = "c1") -> Event:
    return {"id": f"r-{call_id}", "role": "tool", "toolCallId": call_id, "content": "by the agent itself"}


async def turns(*said: Event) -> tuple[list[Event], list[Asked]]:
    """The events of a run whose agent says this, and its thanks when it is called again; the requests."""

    async def script(asked: Asked, answer: Answer) -> None:
        again = bool(results(asked))
        ends = [] if not again and said[-1]["type"] == "RUN_FINISHED" else [finished(asked)]
        await answer.events(started(asked), *(text("t", "Thanks.") if again else said), *ends)

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        return await play(site), backend.asked


@pytest.mark.parametrize(
    "said",
    [
        [*call_events("c1", "echo", "", "a"), snapshot(calling())],
        [snapshot(calling())],
        [*text("m", "See."), snapshot(calling("c0", "z"), answered("c0"), calling())],
    ],
    ids=["its arguments", "all of it", "beside one that is answered"],
)
async def test_a_call_that_is_told_of_in_a_snapshot_is_made(said: list[Event]) -> None:
    events, asked = await turns(*said)
    ours = [event for event in events if event.get("toolCallId", event.get("value", {}).get("toolCallId")) == "c1"]
    assert [kind for kind in shown(ours) if kind.startswith("TOOL_CALL")][-3:] == [
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert {event["parentMessageId"] for event in ours if event["type"] == "TOOL_CALL_START"} == {"a"}
    assert ours[-1]["content"] == json.dumps(json.loads(ECHO), separators=(",", ":"))
    _, second = asked
    assert results(second)["c1"] == ours[-1]["content"]
    assert shown(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


async def test_a_call_whose_result_is_only_in_a_snapshot_is_not_made_again() -> None:
    events, asked = await turns(*call_events("c1", "echo", ECHO, "a"), snapshot(calling(), answered()))
    assert "tool.result" not in shown(events)
    assert len(asked) == 1


async def test_a_call_of_an_earlier_turn_is_not_made_when_a_snapshot_has_it() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), snapshot(calling()), *text("m", "No."), finished(asked))

    async with answering(script) as backend, serving(echo, agents={"support": backend.url}) as site:
        body = agent_body([*USER, calling(), {"id": "u2", "role": "user", "content": "Don't."}])
        events = events_of((await site.client.post("/agents/support", json=body, headers=ME)).content)
    assert "tool.result" not in shown(events)
    assert len(backend.asked) == 1


def wanting(call_id: str, reason: str) -> Event:
    interrupt = {"id": f"client_tool_{call_id}", "reason": reason, "toolCallId": call_id}
    outcome = {"type": "interrupt", "interrupts": [interrupt]}
    return {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": outcome}


async def test_an_interrupt_that_wants_the_call_made_is_answered_by_its_result() -> None:
    wants = wanting("c1", "tanstack:client_tool_execution")
    events, (_, second) = await turns(*call_events("c1", "echo", ECHO, "a"), wants)
    assert events[-1]["outcome"] == {"type": "success"}
    assert results(second) == {"c1": '{"text":"hi"}'}
    (entry,) = second.body["resume"]
    assert entry == {"interruptId": "client_tool_c1", "status": "resolved", "payload": {"text": "hi"}}


@pytest.mark.parametrize(("call", "reason"), [("c1", "tool_call"), ("c2", "tanstack:client_tool_execution")])
async def test_other_interrupts_are_the_persons(call: str, reason: str) -> None:
    events, asked = await turns(*call_events("c1", "echo", ECHO, "a"), wanting(call, reason))
    assert [interrupt["id"] for interrupt in events[-1]["outcome"]["interrupts"]] == [f"client_tool_{call}"]
    assert len(asked) == 1


async def test_what_old_backends_cannot_do_without_is_in_every_request() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), finished(asked))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        body = {"threadId": "t", "runId": "r", "messages": USER}
        assert (await site.client.post("/agents/support", json=body, headers=ME)).status_code == 200
    (asked,) = backend.asked
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    assert asked.body == {**body, **empty}
