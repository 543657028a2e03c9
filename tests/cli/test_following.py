"""A run is followed over broken connections, against a server of bytes that breaks them where the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.cli.client import Target
from gateway.cli.exits import Refused, Unreachable
from gateway.cli.following import Event, Following, Retries, Start
from gateway.wire.sse import KEEP_ALIVE, frame, retry
from tests.cli.answers import END, answering, event, refusal, stream

QUICK = Retries(most=3, first=0.001, longest=0.002)
START = Start("/tools/x", b"{}")
SECONDS = 10


async def followed(
    url: str, *, note: Callable[[str], object] = lambda text: None, **options: Any
) -> tuple[Event | None, list[int]]:
    """The terminal event and the numbers of all that were shown."""
    target, shown = Target(url), []
    async with target.client() as client, asyncio.timeout(SECONDS):
        following = Following(target, client, "r 1", note=note, retries=QUICK, **options)
        terminal = await following.follow(lambda item: shown.append(item.value["seq"]))
    return terminal, shown


def asked(heads: list[str]) -> list[tuple[str, str | None]]:
    """Of each request its first line and its cursor."""
    found = []
    for head in heads:
        first, *others = head.split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in others if line)
        found.append((first.removesuffix(" HTTP/1.1"), fields.get("last-event-id")))
    return found


async def test_a_broken_stream_goes_on_after_the_last_event_that_arrived() -> None:
    answers = (
        stream(retry(1), event(1), event(2), event(3)[:-1]),
        stream(retry(1), KEEP_ALIVE, event(3), end=END),
        stream(event(4, "RUN_FINISHED"), end=END),
    )
    notes: list[str] = []
    async with answering(*answers) as (url, heads):
        terminal, shown = await followed(url, start=START, note=notes.append)
    assert shown == [1, 2, 3, 4]
    assert terminal is not None
    assert terminal.value["type"] == "RUN_FINISHED"
    assert asked(heads) == [("POST /tools/x", None), ("GET /runs/r%201/events", "2"), ("GET /runs/r%201/events", "3")]
    assert len(notes) == 2


async def test_the_request_that_starts_a_run_is_never_sent_twice() -> None:
    async with answering(b"", stream(event(1, "RUN_FINISHED"), end=END)) as (url, heads):
        _, shown = await followed(url, start=START)
    assert shown == [1]
    assert asked(heads) == [("POST /tools/x", None), ("GET /runs/r%201/events", None)]


async def test_it_never_gives_up_while_events_arrive() -> None:
    answers = [stream(retry(1), event(seq)) for seq in range(1, 4 * QUICK.most)]
    async with answering(*answers, stream(event(4 * QUICK.most, "RUN_ERROR"), end=END)) as (url, _):
        _, shown = await followed(url, start=START)
    assert shown == list(range(1, 4 * QUICK.most + 1))


async def test_without_events_it_gives_up_and_says_how_to_go_on() -> None:
    async with answering(stream(event(1)), *[stream(retry(1), KEEP_ALIVE)] * 10) as (url, heads):
        with pytest.raises(Unreachable, match="agui-gateway tail r 1"):
            await followed(url, start=START)
    assert len(heads) == QUICK.most + 1


async def test_a_gateway_that_is_not_there_is_said_so_at_once() -> None:
    async with answering() as (url, _):
        pass
    with pytest.raises(Unreachable, match=r"Cannot reach http://127\.0\.0\.1.*Is the gateway running\?"):
        await followed(url, start=START)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_gateway_that_cannot_serve_a_reader_now_is_asked_again(status: int) -> None:
    answers = (stream(event(1)), refusal(status, "busy"), stream(event(2, "RUN_FINISHED"), end=END))
    async with answering(*answers) as (url, _):
        _, shown = await followed(url, start=START)
    assert shown == [1, 2]


@pytest.mark.parametrize(
    ("status", "error"), [(400, Refused), (422, Refused), (429, Refused), (503, Unreachable), (308, Unreachable)]
)
async def test_a_refusal_to_start_is_final(status: int, error: type[Exception]) -> None:
    async with answering(refusal(status, "why")) as (url, heads):
        with pytest.raises(error, match=rf"why: No\. \({status}\)"):
            await followed(url, start=START)
    assert len(heads) == 1


async def test_a_run_that_is_lost_in_between_is_unreachable() -> None:
    async with answering(stream(event(1)), refusal(404, "run_not_found")) as (url, _):
        with pytest.raises(Unreachable, match="does not know the run any more"):
            await followed(url, start=START)


async def test_events_that_are_no_longer_kept_are_skipped_and_said_so() -> None:
    notes: list[str] = []
    answers = (refusal(410, "cursor_expired", {"firstEventId": 7}), stream(event(7, "RUN_FINISHED"), end=END))
    async with answering(*answers) as (url, heads):
        _, shown = await followed(url, cursor=2, note=notes.append)
    assert shown == [7]
    assert notes == ["The events before 7 are no longer kept."]
    assert [cursor for _, cursor in asked(heads)] == ["2", "6"]


@pytest.mark.parametrize("details", [None, {"firstEventId": 3}, {"firstEventId": "x"}])
async def test_a_410_that_leads_nowhere_is_a_refusal(details: object) -> None:
    async with answering(refusal(410, "cursor_expired", details)) as (url, _):
        with pytest.raises(Refused, match="cursor_expired"):
            await followed(url, cursor=2)


async def test_a_run_that_is_over_and_read_has_nothing_to_show() -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, _):
        assert await followed(url, cursor=9) == (None, [])


async def test_a_page_is_no_gateway() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi") as (url, _):
        with pytest.raises(Unreachable, match="does not answer as a gateway does"):
            await followed(url, start=START)


async def test_an_event_that_is_not_json_is_left_out() -> None:
    notes: list[str] = []
    async with answering(stream(frame(1, b"{nonsense"), event(2, "RUN_FINISHED"), end=END)) as (url, _):
        _, shown = await followed(url, start=START, note=notes.append)
    assert shown == [2]
    assert notes == ["An event that is not JSON was left out."]


async def test_line_separators_within_an_event_do_not_break_it() -> None:
    seen: list[bytes] = []
    text = '{"type":"RUN_ERROR","message":"a\u2028b\u0085c"}'.encode()
    async with answering(stream(frame(1, text), end=END)) as (url, _):
        target = Target(url)
        async with target.client() as client:
            await Following(target, client, "r").follow(lambda item: seen.append(item.data))
    assert seen == [text]


@pytest.mark.parametrize("asked", [None, 100, 60_000])
def test_waits_grow_to_a_limit_and_differ(asked: int | None) -> None:
    retries = Retries()
    first = retries.first if asked is None else asked / 1000
    for attempt in range(1, retries.most + 1):
        longest = min(first * 2 ** (attempt - 1), retries.longest)
        delays = {retries.delay(attempt, asked) for _ in range(20)}
        assert len(delays) > 1
        assert all(longest / 2 <= delay <= longest for delay in delays)
