"""The demo tools that need a person, with a person who answers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.person import delete_log, guess_number, plan_trip
from gateway.demo.tools import hash_folder
from tests.http.asking import Reader, events_of
from tests.http.site import ME, Site, serving


async def answer(site: Site, stream: Reader, payload: object, status: str = "resolved") -> dict[str, Any]:
    """Waits for the next question and answers it; returns the question."""
    asked = (await stream.until("tool.waiting"))["value"]
    body = {"interruptId": asked["interruptId"], "status": status, "payload": payload}
    response = await site.client.post("/runs/r/input", json=body, headers=ME)
    assert response.status_code == 202, response.text
    found: dict[str, Any] = asked
    return found


async def result_of(stream: Reader) -> dict[str, Any]:
    found: dict[str, Any] = (await stream.until("tool.result"))["value"]
    return found


async def test_guess_number_says_where_the_number_is_until_it_is_found() -> None:
    async with serving(guess_number) as site:
        stream = Reader(await site.open("/tools/guess_number", {"runId": "r", "arguments": {"highest": 1000}}, ME))
        low, high, tries = 1, 1000, 0
        result: dict[str, Any] | None = None
        while result is None:
            middle = (low + high) // 2
            await answer(site, stream, {"guess": middle})
            tries += 1
            event = await next_of(stream, "demo.guess", "tool.result")
            if event["name"] == "tool.result":
                result = event["value"]["structuredContent"]
            elif "low" in event["value"]["hint"]:
                low = middle + 1
            else:
                high = middle - 1
        assert result == {"guessed": True, "number": middle, "tries": tries}


async def next_of(stream: Reader, *names: str) -> dict[str, Any]:
    while True:
        event = await stream.until("CUSTOM")
        if event["name"] in names:
            return event


async def test_guess_number_ends_when_the_person_would_not_guess() -> None:
    async with serving(guess_number) as site:
        stream = Reader(await site.open("/tools/guess_number", {"runId": "r"}, ME))
        asked = await answer(site, stream, None, "cancelled")
        assert asked["responseSchema"]["properties"]["guess"]["title"] == "Your guess"
        result = await result_of(stream)
        assert (result["structuredContent"]["guessed"], result["structuredContent"]["tries"]) == (False, 0)


async def test_plan_trip_asks_twice_and_keeps_the_first_answer() -> None:
    async with serving(plan_trip) as site:
        body: dict[str, Any] = {"runId": "r1", "threadId": "t", "arguments": {"place": "Oslo"}}
        for run_id, payload in (("r2", 2), ("r3", True)):
            events = events_of((await site.client.post("/tools/plan_trip", json=body, headers=ME)).content)
            (asked,) = events[-1]["outcome"]["interrupts"]
            entry = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
            body = {"runId": run_id, "threadId": "t", "resume": [entry]}
        events = events_of((await site.client.post("/tools/plan_trip", json=body, headers=ME)).content)
        assert events[-1]["result"]["structuredContent"] == {
            "planned": True,
            "plan": ["Day 1: arrive in Oslo", "Day 2: see more of Oslo"],
        }


async def test_delete_log_deletes_the_file_that_the_person_has_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept, gone = tmp_path / "kept.log", tmp_path / "gone.log"
    for file in (kept, gone):
        file.write_text("a line\n", "utf-8")
    async with serving(delete_log) as site:
        stream = Reader(await site.open("/tools/delete_log", {"runId": "r", "arguments": {"path": str(kept)}}, ME))
        await answer(site, stream, {"approved": True, "arguments": {"path": str(gone)}})
        assert (await result_of(stream))["structuredContent"] == {"deleted": str(gone), "bytes": 7}
    assert (kept.exists(), gone.exists()) == (True, False)


async def test_delete_log_deletes_nothing_without_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "mine.log"
    file.write_text("a line\n", "utf-8")
    async with serving(delete_log) as site:
        stream = Reader(await site.open("/tools/delete_log", {"runId": "r", "arguments": {"path": str(file)}}, ME))
        await answer(site, stream, {"approved": False, "message": "not that one"})
        assert (await result_of(stream))["error"]["code"] == "denied"
    assert file.exists()


async def test_hash_folder_goes_on_in_the_background_to_the_same_digest() -> None:
    async with serving(hash_folder) as site:
        body = {"runId": "r", "toolCallId": "c", "arguments": {"delay_ms": 1}}
        stream = Reader(await site.open("/tools/hash_folder", body, ME))
        await stream.until("demo.file")
        moved = await site.client.post("/runs/r/tool-calls/c/detach", headers=ME)
        assert moved.status_code == 202, moved.text
        job = moved.json()["runId"]
        assert (await result_of(stream))["status"] == "detached"
        events = events_of((await site.client.get(f"/runs/{job}/events", headers=ME)).content)
        plain = await site.client.post(
            "/tools/hash_folder", json={"arguments": {"delay_ms": 0}}, headers={"accept": "application/json"}
        )
        assert events[-1]["result"]["structuredContent"] == plain.json()["structuredContent"]
