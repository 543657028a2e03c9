"""A person who talks to an agent behind the gateway: the demo's own, and agents of this test, all by real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gateway.demo.backend import Backend
from tests.browser.pages import STOP_BUTTON, choose, noted_by_the_browser, record_of
from tests.browser.tools_app import MARKUP
from tests.support.browser import Browser, Page, by_id
from tests.support.servers import Serve, Server, eventually

TEXT, SEND, TALK_STOP, NEW = by_id("talk-text"), by_id("talk-send"), by_id("talk-stop"), by_id("talk-new")
TALK = by_id("talk")
SAID = "[...document.querySelectorAll('#talk-log .said:not(:empty)')].map((line) => line.textContent)"
ANSWER = f"document.querySelector('#talk-run {by_id('said')}')?.textContent ?? ''"
STATE = f"JSON.parse(document.querySelector('{by_id('agent-state')}').textContent || 'null')"
QUESTION = by_id("question")


class Speaker:
    """An agent that counts for ever, and knows whether somebody still listens."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.closed = 0

    async def answer(self, request: Request) -> Response:
        given = await request.json()
        self.asked.append(given)
        return StreamingResponse(self._events(given), media_type="text/event-stream")

    async def _events(self, given: dict[str, Any]) -> AsyncIterator[str]:
        ids = {"threadId": given["threadId"], "runId": given["runId"]}
        message = {"messageId": f"m-{given['runId']}"}
        try:
            yield frame("RUN_STARTED", **ids)
            yield frame("TEXT_MESSAGE_START", **message, role="assistant")
            yield frame("TEXT_MESSAGE_CONTENT", **message, delta=MARKUP)
            for number in range(1_000_000):
                yield frame("TEXT_MESSAGE_CONTENT", **message, delta=f" {number}")
                await asyncio.sleep(0.02)
        finally:
            self.closed += 1


async def snapshot(request: Request) -> Response:
    """An agent that tells what it says in a snapshot only."""
    given = await request.json()
    ids = {"threadId": given["threadId"], "runId": given["runId"]}
    said = {"id": "m1", "role": "assistant", "content": "Here you are."}
    frames = [
        frame("RUN_STARTED", **ids),
        frame("MESSAGES_SNAPSHOT", messages=[*given["messages"], said]),
        frame("RUN_FINISHED", **ids),
    ]
    return Response("".join(frames), media_type="text/event-stream")


def frame(kind: str, **fields: Any) -> str:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n"


@pytest.fixture(scope="module")
def demo(serve: Serve) -> Server:
    return serve("demo")


@pytest.fixture(scope="module")
def speaker() -> Iterator[tuple[Speaker, str]]:
    heard = Speaker()
    routes = [Route("/", heard.answer, methods=["POST"]), Route("/snapshot", snapshot, methods=["POST"])]
    with Backend(Starlette(routes=routes)) as backend:
        yield heard, backend.url


@pytest.fixture(scope="module")
def front(serve: Serve, speaker: tuple[Speaker, str]) -> Server:
    """Nothing but agents, one of which is not there."""
    with Backend(Starlette()) as gone:
        pass
    agents = {"speaker": speaker[1], "snapshot": f"{speaker[1]}/snapshot", "gone": gone.url}
    return serve("serve", *(word for name, url in agents.items() for word in ("--agent", f"{name}={url}")))


def say(page: Page, text: str) -> str:
    """Sends a message; returns the id of the run that answers."""
    before = page.text(by_id("run-id"))
    page.fill(TEXT, text)
    page.click(SEND)
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent !== {json.dumps(before)}")
    return page.text(by_id("run-id"))


def test_a_person_talks_to_the_demos_agent_and_it_knows_what_was_said_before(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    say(page, "Hello?")
    page.wait_for_status("completed")
    first, answer = page.evaluate(SAID)
    assert first == "Hello?"
    assert answer.startswith("I go by words")

    run_id = say(page, "Hello again")
    page.wait_for_status("completed")
    page.wait(f"{SAID}.length === 4")
    assert page.evaluate(SAID) == ["Hello?", answer, "Hello again", answer]
    thread_id = record_of(demo, page, run_id)["threadId"]
    with demo.client(cookies=page.cookies()) as client:
        roles = [message["role"] for message in client.get(f"/threads/{thread_id}").json()["messages"]]
    assert roles == ["user", "assistant"] * 2

    page.click(NEW)
    page.wait(f"{SAID}.length === 0")
    again = say(page, "Hello?")
    page.wait_for_status("completed")
    assert record_of(demo, page, again)["threadId"] != thread_id
    assert page.complaints() == []


def test_the_progress_of_a_tool_stands_inside_the_answer_and_the_state_beside_it(
    browser: Browser, demo: Server
) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    run_id = say(page, "Please import the orders")

    bar = f"document.querySelector('#talk-run {by_id('progress')}')"
    first = page.wait(f"{bar}?.value")
    assert page.evaluate(STATE) == {"stage": "importing"}
    page.wait(f"{bar}.value > {first}")
    page.wait_for_status("completed")
    assert page.evaluate(STATE) == {"stage": "imported", "imported": 21, "rejected": 3}
    parts = "[...document.querySelector('#calls').children].map((part) => part.dataset.testid)"
    call_id = record_of(demo, page, run_id)["toolCalls"][0]["toolCallId"]
    assert page.evaluate(parts) == ["thought", "said", f"call-{call_id}", "said"]
    assert page.evaluate(SAID)[-1] == "Done: 21 orders are in, and 3 lines did not fit."
    assert page.evaluate("document.querySelector('#event-log li').dataset.name") == "import.row"
    assert page.complaints() == []


def test_a_call_of_the_agents_is_stopped_alone_and_the_agent_goes_on(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    say(page, "import")
    page.click(f"#talk-run {by_id('call-stop')}")
    page.wait_for_status("completed")
    assert page.evaluate(SAID)[-1] == "The tool says: Error [cancelled]: Cancelled by the user."
    assert page.evaluate(STATE)["stage"] == "not imported"
    assert page.complaints() == []


def test_a_call_that_moves_to_the_background_is_told_of_in_a_later_answer(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    say(page, "import")
    page.click(f"#talk-run {by_id('call-detach')}")
    page.wait_for_status("completed")
    assert "moved to the background" in page.evaluate(SAID)[-1]

    page.wait(f"document.querySelector('{by_id('job')}')?.dataset.status === 'completed'")
    page.click(by_id("job-open"))
    page.wait(f"document.querySelector('#run-parts {by_id('result')}')")  # it is no part of the conversation
    page.click(by_id("run-before"))
    page.wait(f"document.querySelector('#talk-run {by_id('call-job')}')")
    say(page, "hello")
    page.wait_for_status("completed")
    page.wait(f"{SAID}.some((line) => line.startsWith('Background job '))")
    assert page.complaints() == []


def test_a_question_of_the_agent_is_answered_in_place_also_after_a_reload(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    asked = say(page, "book a table")
    page.wait_for_status("interrupted")
    page.reload()
    page.wait(f"document.querySelector('#talk-run {QUESTION}')")
    assert page.text(f"{QUESTION} {by_id('question-text')}") == "A table for how many, and when?"

    page.fill(f"{QUESTION} [name=people]", "3")
    page.click(f"{QUESTION} {by_id('question-yes')}")
    page.wait(f"document.querySelector('{by_id('run-id')}').textContent !== '{asked}'")
    page.wait_for_status("completed")
    page.wait(f"{SAID}.length === 3")
    assert page.evaluate(SAID) == ["book a table", "With pleasure.", "I have booked a table for 3 at 20:00."]
    assert page.evaluate(STATE) == {"stage": "booked", "table": {"people": 3, "time": "20:00"}}
    assert record_of(demo, page, page.text(by_id("run-id")))["parentRunId"] == asked
    assert page.complaints() == []


def test_an_answer_goes_on_after_a_reload_and_beside_a_tool_that_is_looked_at(browser: Browser, demo: Server) -> None:
    page = browser.open(demo.url)
    page.click(by_id("agent-demo"))
    say(page, "read to me")
    before = page.wait(ANSWER)
    page.reload()
    page.wait(f"({ANSWER}).length > {len(before)}")
    assert page.evaluate(ANSWER).startswith(before)
    assert page.evaluate(SAID)[0] == "read to me"

    choose(page, "hash_folder")
    assert not page.visible(TALK)
    assert page.text(f"#run-parts {by_id('said')}").startswith(before)
    page.click(by_id("agent-demo"))
    page.wait(ANSWER)
    page.click(TALK_STOP)
    page.wait_for_status("cancelled")
    assert page.text(by_id("gaps")) == "0"
    assert page.complaints() == []


def test_stop_in_the_middle_of_the_text_closes_the_agents_connection(
    browser: Browser, front: Server, speaker: tuple[Speaker, str]
) -> None:
    page = browser.open(front.url)
    page.wait(f"document.querySelector('{TEXT}').checkVisibility()")  # with nothing but agents one is chosen
    page.click(by_id("agent-speaker"))
    closed = speaker[0].closed
    say(page, "count")
    page.wait(f"({ANSWER}).endsWith('3')")
    assert speaker[0].closed == closed
    page.click(STOP_BUTTON)
    page.wait_for_status("cancelled")
    eventually(lambda: speaker[0].closed == closed + 1, what="the agent sees that nobody listens")
    assert page.evaluate(ANSWER).startswith(MARKUP), "what an agent says is text"
    assert page.evaluate("document.title") != "taken over"

    say(page, "again")
    page.wait(f"({ANSWER}).endsWith('3')")
    messages = speaker[0].asked[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    page.click(TALK_STOP)
    page.wait_for_status("cancelled")
    assert page.complaints() == []


def test_somebody_who_watches_by_a_link_reads_the_answer_and_can_say_nothing(browser: Browser, front: Server) -> None:
    page = browser.open(front.url)
    page.click(by_id("agent-speaker"))
    say(page, "count")
    page.click(by_id("share-button"))
    link = page.wait(f"document.querySelector('{by_id('share-link')}').value")

    second = browser.open_beside(link)
    second.wait(f"document.querySelector('#run-parts {by_id('said')}')?.textContent.endsWith('3')")
    assert second.evaluate(SAID) == []
    assert not second.visible(TALK_STOP)
    page.click(STOP_BUTTON)
    second.wait_for_status("cancelled")
    assert page.complaints() == second.complaints() == []


def test_what_an_agent_says_in_a_snapshot_is_shown_too(browser: Browser, front: Server) -> None:
    page = browser.open(front.url)
    page.click(by_id("agent-snapshot"))
    say(page, "hello?")
    page.wait_for_status("completed")
    page.wait(f"{SAID}.length === 2")
    assert page.evaluate(SAID) == ["hello?", "Here you are."]
    assert page.complaints() == []


def test_an_agent_that_is_not_there_is_said_so(browser: Browser, front: Server) -> None:
    page = browser.open(front.url)
    page.click(by_id("agent-gone"))
    say(page, "hello?")
    page.wait_for_status("failed")
    assert "(upstream_unavailable)" in page.text(by_id("run-problem"))
    page.fill(TEXT, "again")
    assert page.evaluate(f"document.querySelector('{SEND}').disabled") is False
    assert noted_by_the_browser(page) == []
