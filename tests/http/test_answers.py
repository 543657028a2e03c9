"""What an answer to a question of an open run is refused for, and that the question stays open then."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http.asking import Reader, any_error_of, error_of
from tests.http.people import (
    END,
    START,
    a_question,
    answer,
    answered,
    asked,
    asks,
    asks_freely,
    asks_several,
    gave,
    names_of,
    record_of,
    result_of,
)
from tests.http.site import ME, SOMEBODY_ELSE

# -- what an answer may be refused for --


async def test_an_unknown_question_is_not_found_and_nothing_is_answered() -> None:
    async with a_question(asks) as (site, stream, waiting):
        for unknown in ("int_nothing", waiting["interruptId"].upper(), waiting["interruptId"] + "x", "c"):
            error_of(await answer(site, unknown, {"name": "Ada"}), 404, "interrupt_not_found")
        await answered(site, waiting, {"name": "Ada"})
        await stream.rest()


async def test_a_question_of_another_run_of_mine_is_not_found_in_this_one() -> None:
    async with a_question(asks) as (site, stream, waiting):
        other = Reader(await site.open("/tools/asks", {"runId": "other"}, ME))
        others = await asked(other)
        refused = await answer(site, others["interruptId"], {"name": "Ada"})
        error_of(refused, 404, "interrupt_not_found")
        await answered(site, others, {"name": "Eve"}, run="other")
        await answered(site, waiting, {"name": "Ada"})
        assert gave(await stream.rest())["payload"] == {"name": "Ada"}
        await other.rest()


BODIES: dict[str, tuple[Any, str]] = {
    "an answer": ({"status": "resolved", "payload": {"name": "Ada"}}, "application/json"),
    "no JSON": ("{", "application/json"),
    "nothing": ("", "application/json"),
    "a form": ("a=b", "application/x-www-form-urlencoded"),
    "too much": ("x" * 5_000, "application/json"),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("headers", [SOMEBODY_ELSE, {}], ids=["somebody else", "nobody"])
async def test_who_does_not_own_the_run_is_told_nothing_before_any_body_check(
    kind: str, headers: dict[str, str]
) -> None:
    body, media_type = BODIES[kind]
    async with a_question(asks, max_body_bytes=4_000) as (site, stream, waiting):
        content = json.dumps({"interruptId": waiting["interruptId"], **body}) if isinstance(body, dict) else body
        sent = headers | {"content-type": media_type}
        known = await site.client.post("/runs/r/input", content=content, headers=sent)
        unknown = await site.client.post("/runs/nothing/input", content=content, headers=sent)
        assert error_of(known, 404, "run_not_found") == error_of(unknown, 404, "run_not_found")
        await answered(site, waiting, {"name": "Ada"})
        assert gave(await stream.rest())["payload"] == {"name": "Ada"}


@pytest.mark.parametrize("use", ["follow", "share"])
async def test_a_ticket_lets_nobody_answer(use: str) -> None:
    async with a_question(asks) as (site, stream, waiting):
        ticket = (await site.client.post("/runs/r/ticket", json={"use": use}, headers=ME)).json()["ticket"]
        body = {"interruptId": waiting["interruptId"], "status": "resolved", "payload": {"name": "Eve"}}
        refused = await site.client.post("/runs/r/input", params={"ticket": ticket}, json=body)
        assert refused.status_code in (401, 403, 404), refused.text
        await answered(site, waiting, {"name": "Ada"})
        assert gave(await stream.rest())["payload"] == {"name": "Ada"}


async def test_a_question_is_answered_once() -> None:
    async with a_question(asks_several, body={"runId": "r", "arguments": {"names": ["a", "b"]}, "toolCallId": "c"}) as (
        site,
        stream,
        waiting,
    ):
        other = await asked(stream)
        await answered(site, waiting, "first")
        for payload, status in (("first", "resolved"), ("second", "resolved"), (None, "cancelled")):
            error_of(await answer(site, waiting["interruptId"], payload, status), 409, "interrupt_answered")
        await answered(site, other, "other")
        events = await stream.rest()
        late = await answer(site, waiting["interruptId"], "late")
        error_of(late, 409, "interrupt_answered")
    assert gave(events) == {"a": "first", "b": "other"}


@pytest.mark.parametrize("many", [2, 20])
async def test_of_answers_at_once_exactly_one_is_accepted_and_that_one_counts(many: int) -> None:
    async with a_question(asks_freely) as (site, stream, waiting):
        given = await asyncio.gather(*(answer(site, waiting["interruptId"], number) for number in range(many)))
        accepted = [number for number, one in enumerate(given) if one.status_code == 202]
        assert len(accepted) == 1
        for number, one in enumerate(given):
            if number not in accepted:
                error_of(one, 409, "interrupt_answered")
        events = await stream.rest()
    assert gave(events)["payload"] == accepted[0]
    assert names_of(events, "c").count("tool.resumed") == 1


MISFITS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "payload"),
    "a text": ("Ada", "payload"),
    "a field of another type": ({"name": 5}, "payload.name"),
    "an empty name": ({"name": ""}, "payload.name"),
    "a field that is missing": ({}, "payload.name"),
    "a field too many": ({"name": "Ada", "kept-secret": 1}, "payload.kept-secret"),
}


@pytest.mark.parametrize("kind", MISFITS)
async def test_an_answer_that_breaks_the_schema_is_refused_and_the_question_stays_open(kind: str) -> None:
    payload, field = MISFITS[kind]
    async with a_question(asks) as (site, stream, waiting):
        error = error_of(await answer(site, waiting["interruptId"], payload), 422, "invalid_payload")
        assert [item["field"] for item in error["details"]] == [field]
        assert (await record_of(site))["status"] == "waiting"
        await answered(site, waiting, {"name": "Ada"})
        events = await stream.rest()
    assert gave(events)["payload"] == {"name": "Ada"}
    assert names_of(events, "c") == [*START, "tool.waiting", "tool.resumed", *END], "a refusal is no event"


NOT_AN_ANSWER: dict[str, Any] = {
    "no JSON": "{",
    "a list": [],
    "a text": '"text"',
    "nothing at all": "",
    "no id": {"status": "resolved"},
    "no status": {"interruptId": "ID"},
    "an unknown status": {"interruptId": "ID", "status": "approved"},
    "a null status": {"interruptId": "ID", "status": None},
    "an empty id": {"interruptId": "", "status": "resolved"},
    "an id that is a number": {"interruptId": 5, "status": "resolved"},
    "an id that is endless": {"interruptId": "x" * 201, "status": "resolved"},
    "a field that there is not": {"interruptId": "ID", "status": "resolved", "answer": 5},
    "Python's names": {"interrupt_id": "ID", "status": "resolved"},
}


@pytest.mark.parametrize("kind", NOT_AN_ANSWER)
async def test_a_body_that_is_no_answer_is_a_bad_request_and_the_question_stays_open(kind: str) -> None:
    body = NOT_AN_ANSWER[kind]
    async with a_question(asks) as (site, stream, waiting):
        text = body if isinstance(body, str) else json.dumps(body)
        content = text.replace('"ID"', json.dumps(waiting["interruptId"]))
        sent = ME | {"content-type": "application/json"}
        error_of(await site.client.post("/runs/r/input", content=content, headers=sent), 400, "invalid_request")
        await answered(site, waiting, {"name": "Ada"})
        assert gave(await stream.rest())["payload"] == {"name": "Ada"}


async def test_an_answer_that_is_not_json_or_too_large_is_refused_by_its_head() -> None:
    async with a_question(asks, max_body_bytes=2_000) as (site, stream, waiting):
        content = json.dumps({"interruptId": waiting["interruptId"], "status": "resolved", "payload": {"name": "A"}})
        plain = ME | {"content-type": "text/plain"}
        refused = await site.client.post("/runs/r/input", content=content, headers=plain)
        error_of(refused, 415, "unsupported_media_type")
        error_of(await answer(site, waiting["interruptId"], {"name": "x" * 2_000}), 413, "body_too_large")
        await answered(site, waiting, {"name": "x" * 1_000})
        assert gave(await stream.rest())["payload"] == {"name": "x" * 1_000}


async def test_an_answer_nested_beyond_sense_is_refused_and_not_our_failure() -> None:
    async with a_question(asks_freely) as (site, stream, waiting):
        for depth in (500, 1_000, 100_000):
            content = json.dumps({"interruptId": waiting["interruptId"], "status": "resolved", "payload": "deep"})
            deep = content.replace('"deep"', "[" * depth + "]" * depth)
            sent = ME | {"content-type": "application/json"}
            given = await site.client.post("/runs/r/input", content=deep, headers=sent)
            if given.status_code == 202:
                break
            assert given.status_code in (400, 422), given.text
            any_error_of(given)
        else:
            await answered(site, waiting, "plain")
        assert result_of(await stream.rest())["status"] == "completed"
