"""What each command of the pages about asking, the background and page tools must do."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docs.checks import Check, assert_page, assert_tools, events_in, get, shown
from tests.docs.pages import page
from tests.docs.shells import Shell

__all__ = ["PERSON_CHECKS", "STANDING", "fits"]

ASK, BACKGROUND, PAGE_TOOLS = (f"docs/how-to/{name}.md" for name in ("ask", "background", "page-tools"))
POST = "-H 'content-type: application/json'"
JSON_POST = f"-H 'accept: application/json' {POST}"
GREET = f'curl -N http://127.0.0.1:8000/tools/greet {POST} -d \'{{"runId": "greeting"}}\''
DELETE = (
    f"curl -N http://127.0.0.1:8000/tools/delete {POST} "
    '-d \'{"runId": "deletion", "arguments": {"path": "letters.txt"}}\''
)
RESUME = f'curl http://127.0.0.1:8000/tools/book {JSON_POST} -d \'{{"resume": [{{"interruptId": "INTERRUPT_ID"'
ASKED = r'"interruptId":"([\w-]+)"'


def fits(found: Any, pattern: Any) -> bool:
    """Whether a value is as a page shows it; `…` stands for any text."""
    if isinstance(pattern, dict):
        same = isinstance(found, dict) and list(found) == list(pattern)
        return same and all(fits(found[name], pattern[name]) for name in pattern)
    if isinstance(pattern, list):
        return isinstance(found, list) and len(found) == len(pattern) and all(map(fits, found, pattern))
    return isinstance(found, str) if pattern == "…" else bool(found == pattern)


def shown_frames(where: str, *containing: str) -> str:
    """A pattern for the lines of the page's stream with these words in it."""
    found = page(where)
    return shown(next(block for block in found.of("") if all(text in block.text for text in containing)).text)


def value_of(name: str, output: str) -> dict[str, Any]:
    (found,) = (event["value"] for event in events_in(output) if event.get("name") == name)
    value: dict[str, Any] = found
    return value


def asks(shell: Shell, _: str) -> None:
    assert_page(shell)
    assert_tools(shell, "greet", "paint", "pay", "book", "delete")


def greets_as_shown(shell: Shell, output: str) -> None:
    for name in ("tool.waiting", "tool.resumed"):
        assert re.search(f"^{shown_frames(ASK, name)}$", output, re.MULTILINE), name
    assert value_of("tool.resumed", output)["interruptId"] == shell.values["INTERRUPT_ID"]
    assert events_in(output)[-1]["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]


def is_accepted(run_id: str) -> Check:
    """The run record of a `202`."""

    def check(shell: Shell, output: str) -> None:
        assert json.loads(output)["runId"] == run_id

    return check


def interrupts_as_shown(shell: Shell, output: str) -> None:
    found = json.loads(output)
    assert fits(found, json.loads(page(ASK).block("json", '"interrupted"').text))
    shell.values["INTERRUPT_ID"] = found["interrupts"][0]["id"]
    assert get(shell, f"/runs/{found['runId']}").json()["status"] == "interrupted"


def asks_again(shell: Shell, output: str) -> None:
    (asked,) = json.loads(output)["interrupts"]
    assert (asked["message"], asked["metadata"]["key"]) == ("3 days in Rome?", "sure")
    shell.values["INTERRUPT_ID"] = asked["id"]


def books_as_shown(_: Shell, output: str) -> None:
    assert json.loads(output) == json.loads(page(ASK).block("json", '"booked": true').text)


def deletes_another_one(_: Shell, output: str) -> None:
    asked = value_of("tool.waiting", output)
    assert asked["responseSchema"]["properties"].keys() == {"approved", "arguments", "message"}
    assert events_in(output)[-1]["result"]["structuredContent"] == {"deleted": "old.txt"}


def offers_two(shell: Shell, _: str) -> None:
    assert_tools(shell, "report", "mirror")


def session_of(shell: Shell) -> str:
    return shell.run('printf %s "$SESSION"')


def runs_in_the_background(shell: Shell, output: str) -> None:
    assert json.loads(output)["status"] == "running"


def moves_as_shown(shell: Shell, output: str) -> None:
    found = json.loads(output)
    assert fits(found, json.loads(page(BACKGROUND).block("json", '"accepted"').text))
    shell.values["JOB_ID"] = found["runId"]
    headers = {"x-session-id": session_of(shell)}
    told = get(shell, "/runs/run-1/events", **headers).text
    for line in page(BACKGROUND).block("", "tool.detached").text.strip().splitlines():
        assert re.search(f"^{shown(line)}$", told, re.MULTILINE), line
    assert value_of("tool.detached", told)["runId"] == found["runId"]
    record = get(shell, "/runs/run-1", **headers).json()
    assert record["toolCalls"][0]["detachedRunId"] == found["runId"]


def is_the_job(shell: Shell, output: str) -> None:
    events = events_in(output)
    assert events[0] == {**events[0], "type": "RUN_STARTED", "parentRunId": "run-1", "threadId": "thread-1"}
    assert [event for event in events if event["type"].startswith("TOOL_CALL")] == []
    assert {event["value"]["toolCallId"] for event in events if event["type"] == "CUSTOM"} == {"call-1"}
    assert value_of("tool.result", output)["structuredContent"] == {"pages": 20}
    assert events[-1]["type"] == "RUN_FINISHED"


def has_the_note(_: Shell, output: str) -> None:
    assert json.loads(output)["messages"][-1] == json.loads(page(BACKGROUND).block("json", "call-1:note").text)


def serves_the_page_and_its_module(shell: Shell, _: str) -> None:
    assert "./ai/page-tools.js" in get(shell, "/").text
    assert get(shell, "/ai/page-tools.js").headers["content-type"].startswith("text/javascript")


# Commands that stand still, what they wait for, and the pattern by which it is found.
STANDING: dict[tuple[str, str], tuple[str, str]] = {
    (ASK, GREET): ("INTERRUPT_ID", ASKED),
    (ASK, DELETE): ("INTERRUPT_ID", ASKED),
}

PERSON_CHECKS: dict[tuple[str, str], Check] = {
    (ASK, "agui-gateway serve"): asks,
    (ASK, GREET): greets_as_shown,
    (ASK, "curl http://127.0.0.1:8000/runs/greeting/input"): is_accepted("greeting"),
    (ASK, f'curl http://127.0.0.1:8000/tools/book {JSON_POST} -d \'{{"arguments"'): interrupts_as_shown,
    (ASK, f'{RESUME}, "status": "resolved", "payload": 3'): asks_again,
    (ASK, f'{RESUME}, "status": "resolved", "payload": true'): books_as_shown,
    (ASK, DELETE): deletes_another_one,
    (ASK, "curl http://127.0.0.1:8000/runs/deletion/input"): is_accepted("deletion"),
    (BACKGROUND, "agui-gateway serve"): offers_two,
    (BACKGROUND, "curl http://127.0.0.1:8000/tools/report"): runs_in_the_background,
    (BACKGROUND, "curl -X POST http://127.0.0.1:8000/runs/run-1/tool-calls/call-1/detach"): moves_as_shown,
    (BACKGROUND, "curl -N http://127.0.0.1:8000/runs/JOB_ID/events"): is_the_job,
    (BACKGROUND, "curl http://127.0.0.1:8000/threads/thread-1"): has_the_note,
    (PAGE_TOOLS, "uvicorn app:app"): serves_the_page_and_its_module,
}
