"""What becomes of the answer of an agent behind a URL: relayed, repaired, ended, whatever it is."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gateway import RemoteAgent
from gateway.upstream.relay import HOLD_SECONDS
from tests.http.asking import Reader, agent_body, events_of
from tests.http.site import ME, Site, serving
from tests.upstream.backend import Answer, Asked, Script, answering, finished, started, text

USER = [{"id": "u", "role": "user", "content": "Hello"}]


async def play(site: Site, agent: str = "support", **more: Any) -> list[dict[str, Any]]:
    """The events of one run."""
    done = await site.client.post(f"/agents/{agent}", json=agent_body(USER, **more), headers=ME)
    assert done.status_code == 200, done.text
    return events_of(done.content)


def payloads(content: bytes) -> list[bytes]:
    return [line[6:] for line in content.split(b"\n") if line.startswith(b"data: ")]


async def speaks(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), *text("m", "Hel", "lo"), finished(asked))


async def test_an_agent_behind_a_url_gets_the_request_and_its_events_reach_the_viewer() -> None:
    async with answering(speaks) as backend, serving(agents={"support": backend.url}) as site:
        body = agent_body(
            USER,
            state={"count": 1},
            context=[{"description": "where", "value": "here"}],
            forwardedProps={"mine": 1, "gateway": {"input": "open"}},
            unknown="kept",
        )
        done = await site.client.post("/agents/support", json=body, headers=ME)
        events = events_of(done.content)
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert (events[0]["runId"], events[0]["protocolVersion"]) == ("r", "1.0")
    (asked,) = backend.asked
    assert asked.body == {**body, "forwardedProps": {"mine": 1}}
    assert (asked.headers["accept"], asked.headers["content-type"]) == ("text/event-stream", "application/json")


async def test_a_frame_that_needs_no_repair_passes_as_its_own_bytes() -> None:
    frames = [
        b'{"type":"TEXT_MESSAGE_START", "messageId":"m","role":"assistant"}',
        b'{ "delta" : "a\\u0062c \xc3\xa9 1e2" ,"messageId":"m", "type":"TEXT_MESSAGE_CONTENT","unknown":[1.50, 1e3]}',
        b'{"type":"TEXT_MESSAGE_END","messageId":"m"}',
        b'{"value":{"a":12345678901234567890,"b":null},"type":"CUSTOM","name":"x.y"}',
        b'{"type":"NOT_YET_KNOWN","field":null}',
    ]

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked))
        await answer.send(b"".join(b"data: %b\n\n" % frame for frame in frames))
        await answer.events(finished(asked))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        done = await site.client.post("/agents/support", json=agent_body(USER), headers=ME)
    assert payloads(done.content)[1:-1] == frames


async def test_what_the_official_client_would_refuse_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway")

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(
            {"type": "CUSTOM", "name": "early", "value": {}},
            started(asked),
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a", "role": None},
            {"type": "CUSTOM", "name": "between", "value": 1},
            {"type": "TEXT_MESSAGE_CHUNK", "delta": "b", "timestamp": 1.5},
            {"type": "CUSTOM", "name": "tool.requested", "value": {"toolCallId": "x"}},
            {"type": "STEP_STARTED", "stepName": "s"},
            finished(asked),
            {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "theirs"},
            {"type": "TOOL_CALL_END", "toolCallId": "c"},
            {"type": "TOOL_CALL_RESULT", "messageId": "c:r", "toolCallId": "c", "content": "done"},
            finished(asked, result={"ok": True}),
        )

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        events = await play(site)
    assert [event.get("name", event["type"]) for event in events] == [
        "RUN_STARTED",
        "early",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "between",
        "TEXT_MESSAGE_CONTENT",
        "upstream.tool.requested",
        "STEP_STARTED",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]
    assert events[-1]["result"] == {"ok": True}
    assert "repaired {" in caplog.text


ENDS: dict[str, tuple[Script, str]] = {}


def ends_in(code: str) -> Callable[[Script], Script]:
    def register(script: Script) -> Script:
        ENDS[script.__name__] = (script, code)
        return script

    return register


@ends_in("upstream_http_503")
async def refuses(asked: Asked, answer: Answer) -> None:
    await answer.head(503, "application/json")
    await answer.send(b'{"secret": "of the backend"}')


@ends_in("upstream_http_422")
async def refuses_the_body(asked: Asked, answer: Answer) -> None:
    await answer.head(422, "text/plain")


@ends_in("upstream_invalid")
async def sends_a_page(asked: Asked, answer: Answer) -> None:
    await answer.head(200, "text/html")
    await answer.send(b"<html>secret</html>")


@ends_in("upstream_invalid")
async def redirects(asked: Asked, answer: Answer) -> None:
    await answer.head(307, "text/plain", "location: http://127.0.0.1:9/elsewhere")


@ends_in("upstream_invalid")
async def sends_garbage(asked: Asked, answer: Answer) -> None:
    await answer.send(b"data: {not json}\n\ndata: 7\n\n\xff\xfe\x00garbage\n\n")


@ends_in("upstream_invalid")
async def sends_nothing(asked: Asked, answer: Answer) -> None:
    await answer.head()


@ends_in("upstream_disconnected")
async def ends_without_an_end(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), *text("m", "half")[:2])


@ends_in("upstream_disconnected")
async def resets(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), *text("m", "half")[:2])
    answer.reset()
    raise ConnectionResetError


@ends_in("upstream_disconnected")
async def resets_before_its_answer(asked: Asked, answer: Answer) -> None:
    answer.reset()
    raise ConnectionResetError


@ends_in("upstream_timeout")
async def falls_silent(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked))
    await answer.left()


@ends_in("upstream_timeout")
async def never_answers(asked: Asked, answer: Answer) -> None:
    await answer.left()


@ends_in("upstream_invalid")
async def sends_an_event_without_an_end(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked))
    for _ in range(9):
        await answer.send(b"data: " + b"x" * 1024 * 1024 if not _ else b"x" * 1024 * 1024)
    await answer.left()


@ends_in("their_code")
async def fails(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), {"type": "RUN_ERROR", "message": "No.", "code": "their_code"})


@ends_in("agent_failed")
async def fails_without_a_code_after_a_success(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), finished(asked), {"type": "RUN_ERROR", "message": "No."})


@ends_in("interrupted")
async def was_stopped_on_its_own_server(asked: Asked, answer: Answer) -> None:
    await answer.events(started(asked), finished(asked, outcome={"type": "cancelled"}))


@pytest.mark.parametrize("name", sorted(ENDS))
async def test_an_agent_that_does_not_end_well_fails_its_run_once_and_says_how(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    script, code = ENDS[name]
    async with answering(script) as backend:
        agent = RemoteAgent(backend.url, idle_timeout=0.3 if code == "upstream_timeout" else 20)
        async with serving(agents={"support": agent}) as site:
            events = await play(site)
            record = (await site.client.get("/runs/r", headers=ME)).json()
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == record["error"]["code"] == code
    assert "secret" not in json.dumps(events)
    if name in ("refuses", "sends_a_page"):
        assert "secret" in caplog.text


async def test_an_agent_that_is_not_there_is_unavailable() -> None:
    async with serving(agents={"support": "http://127.0.0.1:1/agent"}) as site:
        events = await play(site)
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "upstream_unavailable")


async def test_an_end_is_released_when_the_agent_keeps_its_answer_open() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), finished(asked))
        await answer.left()  # the test would take its whole time if nobody left

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        events = await play(site)
    assert events[-1]["outcome"] == {"type": "success"}


async def test_stop_closes_the_connection_to_the_agent_and_what_it_has_open() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.events(started(asked), *text("m", "half")[:2], {"type": "STEP_STARTED", "stepName": "s"})
        await answer.left()

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        await stream.until("STEP_STARTED")
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = await stream.rest()
        assert len(backend.asked) == 1
    assert [event["type"] for event in events[-3:]] == ["STEP_FINISHED", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_stop_reaches_an_agent_that_has_not_answered_yet() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.left()

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        stream = Reader(await site.open("/agents/support", agent_body(USER), ME))
        await stream.until("RUN_STARTED")
        await site.client.post("/runs/r/stop", headers=ME)
        events = await stream.rest()
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_only_configured_headers_reach_the_agent() -> None:
    headers = {
        **ME,
        "authorization": "Bearer of-the-browser",
        "cookie": "agui_session=a",
        "x-tenant": "blue",
        "x-other": "no",
        "x-api-key": "from the browser",
    }
    async with answering(speaks) as backend:
        agent = RemoteAgent(
            backend.url, headers={"X-Api-Key": "of the gateway"}, forward_headers=["X-Tenant", "X-Api-Key"]
        )
        async with serving(agents={"support": agent, "open": backend.url}) as site:
            await site.client.post("/agents/support", json=agent_body(USER), headers=headers)
            await site.client.post("/agents/open", json=agent_body(USER, runId="r2"), headers=headers)
    first, second = backend.asked
    assert (first.headers["x-tenant"], first.headers["x-api-key"]) == ("blue", "of the gateway")
    for asked in (first, second):
        assert not {"authorization", "cookie", "x-other", "x-session-id"} & set(asked.headers)
    assert "x-tenant" not in second.headers


async def test_a_cookie_that_an_agent_sets_for_one_person_goes_with_nobody_else() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.head(more="set-cookie: sid=of-the-first; Path=/")
        await answer.events(started(asked), finished(asked))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        for number in range(2):
            await play(site, runId=f"r{number}")
    assert all("cookie" not in asked.headers for asked in backend.asked)


async def test_authorization_passes_where_it_is_named() -> None:
    async with answering(speaks) as backend:
        agent = RemoteAgent(backend.url, forward_headers=["authorization"])
        async with serving(agents={"support": agent}) as site:
            await site.client.post(
                "/agents/support", json=agent_body(USER), headers={**ME, "authorization": "Bearer mine"}
            )
    assert backend.asked[0].headers["authorization"] == "Bearer mine"


async def test_an_agents_interrupt_ends_the_run_and_its_answer_goes_back_to_the_agent() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if "resume" in asked.body:
            await answer.events(started(asked), *text("m2", "Thanks"), finished(asked))
            return
        interrupt = {"id": "i-1", "reason": "input_required", "message": "Which one?"}
        outcome = {"type": "interrupt", "interrupts": [interrupt]}
        await answer.events(started(asked), *text("m", "Well"), finished(asked, outcome=outcome))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        events = await play(site)
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"which": "this"}}]
        again = await play(site, runId="r2", resume=resume)
        assert again[-1]["outcome"] == {"type": "success"}
    assert (interrupt["id"], interrupt["message"]) == ("i-1", "Which one?")
    assert backend.asked[1].body["resume"] == resume


@pytest.mark.parametrize("interrupt_id", ["", "x" * 201])
async def test_a_question_that_nobody_could_answer_by_its_id_fails_the_run(interrupt_id: str) -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        outcome = {"type": "interrupt", "interrupts": [{"id": interrupt_id, "reason": "confirmation"}]}
        await answer.events(started(asked), finished(asked, outcome=outcome))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        events = await play(site)
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "upstream_invalid")


async def test_an_agent_that_says_it_goes_on_is_waited_for() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        metadata = {"tanstack": {"finishReason": "tool_calls"}}
        call = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "own"}
        await answer.events(started(asked), call, {"type": "TOOL_CALL_END", "toolCallId": "c"})
        await answer.events(finished(asked, metadata=metadata))
        await asyncio.sleep(3 * HOLD_SECONDS)  # what the tool takes; nothing else says how long that is
        result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "late"}
        await answer.events(result, finished(asked))

    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:
        events = await play(site)
    assert [event["type"] for event in events[-2:]] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]
