"""A conversation: its messages folded from its runs, what is at work, and one Stop for all of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ag_ui.core import Message
from pydantic import TypeAdapter

from gateway.execution.context import ToolContext
from gateway.execution.tools import tool
from tests.http.asking import ASYNC, Gates, Reader, agent_body, ask, echo, error_of, events_of, waits
from tests.http.site import LONG, ME, SOMEBODY_ELSE, serving

MESSAGES: TypeAdapter[Any] = TypeAdapter(list[Message])


@tool
async def fails() -> None:
    """Fails."""
    raise RuntimeError("the disk is full")


@tool
async def chatty(ctx: ToolContext, count: int) -> int:
    """Emits a lot that belongs into no message."""
    for number in range(count):
        ctx.emit_custom_event("row", {"n": number, "data": '\n{"type":"TEXT_MESSAGE_START","messageId":"fake"}\n'})
    return count


async def test_a_thread_is_the_messages_that_its_runs_were_sent_and_made() -> None:
    async with serving(echo, fails) as site:
        first = agent_body(ask(("c1", "echo", {"text": "1"}), ("c2", "fails", {})))
        await site.client.post("/agents/tools", json=first, headers=ME)
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["threadId"] == "t"
        assert (thread["activeRuns"], thread["interrupts"]) == ([], [])
        messages = thread["messages"]
        MESSAGES.validate_python(messages)
        assert messages[:2] == first["messages"]
        assert {message["toolCallId"]: message["content"] for message in messages[2:]} == {
            "c1": '{"text":"1"}',
            "c2": "Error [failed]: the disk is full",
        }
        failed = next(message for message in messages if message.get("toolCallId") == "c2")
        assert failed["error"] == "Error [failed]: the disk is full"

        # The next turn of the same conversation, as a client sends it: its history, the model's answer, a new call.
        asked = ask(("c3", "echo", {"text": "3"}))[1]
        more = [
            *messages,
            {"id": "b", "role": "assistant", "content": "well"},
            {"id": "v", "role": "user", "content": "?"},
        ]
        second = agent_body([*more, {**asked, "id": "d"}], runId="r2")
        assert events_of((await site.client.post("/agents/tools", json=second, headers=ME)).content)
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert messages[:-1] == second["messages"]
        assert (messages[-1]["toolCallId"], messages[-1]["content"]) == ("c3", '{"text":"3"}')


async def test_a_result_stands_behind_its_call_whatever_the_user_said_meanwhile() -> None:
    async with serving(echo) as site:
        impatient = [*ask(("c1", "echo", {}), ("c2", "echo", {})), {"id": "w", "role": "user", "content": "hello?"}]
        await site.client.post("/agents/tools", json=agent_body(impatient), headers=ME)
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]


async def test_an_answer_that_the_client_keeps_under_its_own_id_is_there_once() -> None:
    async with serving(echo) as site:
        history = ask(("c1", "echo", {"text": "1"}))
        await site.client.post("/agents/tools", json=agent_body(history), headers=ME)
        kept = [*history, {"id": "own-id", "role": "tool", "toolCallId": "c1", "content": '{"text":"1"}'}]
        again = agent_body([*kept, {**ask(("c2", "echo", {}))[1], "id": "b"}], runId="r2")
        await site.client.post("/agents/tools", json=again, headers=ME)
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [message.get("toolCallId") for message in messages if message["role"] == "tool"] == ["c1", "c2"]
        assert messages[2]["id"] == "own-id"


async def test_a_tool_run_of_its_own_is_a_call_and_its_result_in_its_thread() -> None:
    async with serving(echo) as site:
        body = {"runId": "r", "threadId": "t", "toolCallId": "c", "arguments": {"text": "x"}}
        await site.client.post("/tools/echo", json=body, headers=ME)
        asked, answered = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert asked["toolCalls"] == [
            {"id": "c", "type": "function", "function": {"name": "echo", "arguments": '{"text":"x"}'}}
        ]
        assert (answered["role"], answered["toolCallId"], answered["content"]) == ("tool", "c", '{"text":"x"}')


async def test_what_a_tool_emits_is_no_message_and_cannot_become_one() -> None:
    async with serving(chatty) as site:
        await site.client.post("/tools/chatty", json={"threadId": "t", "arguments": {"count": 5_000}}, headers=ME)
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [message["role"] for message in messages] == ["assistant", "tool"]


async def test_a_thread_knows_what_is_at_work_and_what_it_has_said_so_far() -> None:
    gates = Gates()
    async with serving(echo, waits, context=gates) as site:
        body = agent_body(ask(("c1", "echo", {"text": "1"}), ("c2", "waits", {})))
        reader = Reader(await site.open("/agents/tools", body, ME))
        await reader.until("TOOL_CALL_RESULT")
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["activeRuns"] == [(await site.client.get("/runs/r", headers=ME)).json()]
        assert thread["activeRuns"][0]["status"] == "running"
        assert [message.get("toolCallId") for message in thread["messages"]] == [None, None, "c1"]
        gates["go"].set()
        await reader.rest()
        thread = (await site.client.get("/threads/t", headers=ME)).json()
        assert thread["activeRuns"] == []
        assert len(thread["messages"]) == 4


async def test_hydration_has_tanstacks_form_and_the_run_to_join() -> None:
    gates = Gates()
    async with serving(echo, fails, waits, context=gates) as site:
        first = agent_body(ask(("c1", "echo", {"text": "1"}), ("c2", "fails", {})))
        first["messages"][0]["content"] = [
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "url", "value": "https://app.example/i.png"}},
        ]
        await site.client.post("/agents/tools", json=first, headers=ME)
        second = agent_body([{**ask(("c3", "waits", {}))[1], "id": "b", "content": "now"}], runId="r2")
        reader = Reader(await site.open("/agents/tools", second, ME))
        await reader.until("came")
        hydrated = (await site.client.get("/agents/tools?threadId=t", headers=ME)).json()
        assert set(hydrated) == {"messages", "activeRun", "interrupts"}
        assert hydrated["activeRun"] == {"runId": "r2"}
        assert hydrated["interrupts"] is None
        user, asked, now = hydrated["messages"]
        assert (user["role"], user["parts"][0]) == ("user", {"type": "text", "content": "look"})
        assert user["parts"][1] == first["messages"][0]["content"][1]
        parts = {part.get("id") or part["toolCallId"] + " result": part for part in asked["parts"]}
        assert parts["c1"] == {
            "type": "tool-call",
            "id": "c1",
            "name": "echo",
            "arguments": '{"text": "1"}',
            "state": "input-complete",
        }
        assert parts["c1 result"] == {
            "type": "tool-result",
            "toolCallId": "c1",
            "content": '{"text":"1"}',
            "state": "complete",
        }
        assert parts["c2 result"]["state"] == "error"
        assert parts["c2 result"]["error"] == "Error [failed]: the disk is full"
        assert [part["type"] for part in now["parts"]] == ["text", "tool-call"]
        joined = Reader(await site.open("/agents/tools?offset=-1&runId=r2", None, ME))
        gates["go"].set()
        assert await joined.rest() == await reader.rest()
        assert (await site.client.get("/agents/tools?threadId=t", headers=ME)).json()["activeRun"] is None


async def test_a_thread_of_nothing_is_unknown_and_hydrates_empty() -> None:
    async with serving(echo) as site:
        await site.client.post("/tools/echo", json={"threadId": "t"}, headers=ME)
        error_of(await site.client.get("/threads/other", headers=ME), 404, "thread_not_found")
        error_of(await site.client.post("/threads/other/stop", headers=ME), 404, "thread_not_found")
        hydrated = (await site.client.get("/agents/tools?threadId=other", headers=ME)).json()
        assert hydrated == {"messages": [], "activeRun": None, "interrupts": None}


async def test_stop_of_a_thread_stops_its_active_runs_and_no_other() -> None:
    gates = Gates()
    async with serving(waits, echo, context=gates) as site:
        await site.client.post("/tools/echo", json={"runId": "over", "threadId": "t"}, headers=ME)
        streams = []
        for run_id, thread_id, who in (
            ("mine1", "t", ME),
            ("mine2", "t", ME),
            ("elsewhere", "t2", ME),
            ("theirs", "t", SOMEBODY_ELSE),
            ("nobodys", "t", {}),
        ):
            stream = Reader(await site.open("/tools/waits", {"runId": run_id, "threadId": thread_id}, who))
            await stream.until("came")
            streams.append(stream)
        stopped = await site.client.post("/threads/t/stop", json={"reason": "enough"}, headers=ME)
        assert stopped.status_code == 202
        assert sorted(stopped.json()["runIds"]) == ["mine1", "mine2"]
        for stream in streams[:2]:
            events = await stream.rest()
            assert events[-1]["outcome"] == {"type": "cancelled"}
            stopping = next(event["value"] for event in events if event.get("name") == "run.stopping")
            assert stopping == {"reason": "user", "message": "enough"}
        for run_id, who in (("elsewhere", ME), ("theirs", SOMEBODY_ELSE), ("nobodys", {})):
            assert (await site.client.get(f"/runs/{run_id}", headers=who)).json()["status"] == "running"
        again = await site.client.post("/threads/t/stop", headers=ME)
        assert (again.status_code, again.json()) == (200, {"runIds": []})
        gates["go"].set()


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_request"),
        (b'{"reason": 1}', "application/json", 400, "invalid_request"),
        (b'{"runId": "r"}', "application/json", 400, "invalid_request"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b" " * 20_000, "application/json", 413, "body_too_large"),
    ],
)
async def test_a_stop_of_a_thread_with_a_bad_body_stops_nothing(
    content: bytes, kind: str, status: int, code: str
) -> None:
    gates = Gates()
    async with serving(waits, context=gates) as site:
        await site.client.post("/tools/waits", json={"runId": "r", "threadId": "t"}, headers={**ME, **ASYNC})
        answer = await site.client.post("/threads/t/stop", content=content, headers={**ME, "content-type": kind})
        error_of(answer, status, code)
        assert (await site.client.get("/runs/r", headers=ME)).json()["status"] == "running"
        gates["go"].set()


async def test_a_long_thread_is_read_to_its_last_page_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.threads.PAGE", 3)
    async with serving(echo) as site:
        async with asyncio.timeout(LONG):
            for number in range(10):
                body = {"runId": f"r{number}", "threadId": "t", "toolCallId": f"c{number}"}
                await site.client.post("/tools/echo", json=body, headers={**ME, "accept": "application/json"})
        messages = (await site.client.get("/threads/t", headers=ME)).json()["messages"]
        assert [message["toolCallId"] for message in messages[1::2]] == [f"c{number}" for number in range(10)]
