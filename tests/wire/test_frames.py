"""A body comes out as the payloads that are in it, however it is framed and wherever it is cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import Frames, MessageTooLarge

EVENTS: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "CUSTOM", "name": "é\u2028\u0085…", "value": "a\r\nb"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]
PAYLOADS = [json.dumps(event, ensure_ascii=False).encode() for event in EVENTS]


def read(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    frames = Frames(limit)
    return [*(payload for chunk in chunks for payload in frames.feed(chunk)), *frames.close()]


def body(end: bytes) -> bytes:
    """Server-sent events with all that may be around them."""
    first, second, third = PAYLOADS
    lines = [b": hello", b"retry: 5", b"", b"id: 1", b"data:" + first, b""]
    lines += [b"event: message", b"data: " + second, b"", b"data:", b"", b": ping", b""]
    lines += [b"data: " + third[:9], b"data: " + third[9:], b"", b"data: [DONE]", b"", b""]
    return end.join(lines)


def joined(payloads: list[bytes]) -> list[Any]:
    assert not any({0x0A, 0x0D} & {*payload} for payload in payloads), "a payload is one line"
    return [json.loads(payload) for payload in payloads]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=repr)
def test_events_come_out_whatever_ends_their_lines_and_wherever_they_are_cut(end: bytes) -> None:
    whole = body(end)
    assert joined(read(whole)) == EVENTS
    assert joined(read(*(bytes([byte]) for byte in whole))) == EVENTS
    for place in range(len(whole)):
        assert joined(read(whole[:place], whole[place:])) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=repr)
@pytest.mark.parametrize("last", [b"", b"\n"], ids=["cut", "ended"])
def test_lines_of_json_are_events(last: bytes, end: bytes) -> None:
    whole = end.join([*PAYLOADS[:2], b"", PAYLOADS[2]]) + last
    for place in range(len(whole)):
        assert read(whole[:place], whole[place:]) == PAYLOADS


def test_a_line_of_json_between_events_is_one_more() -> None:
    whole = b"data: %b\n\n%b\n: ping\n\ndata: %b\n%b\n" % (PAYLOADS[0], PAYLOADS[1], PAYLOADS[2], PAYLOADS[0])
    assert read(whole) == [*PAYLOADS, PAYLOADS[0]]


def test_a_payload_over_several_lines_becomes_one_that_says_the_same() -> None:
    lines = json.dumps(EVENTS[0], indent=2).splitlines()
    (payload,) = read("".join(f"data: {line}\n" for line in lines).encode() + b"\n")
    assert joined([payload]) == [EVENTS[0]]


def test_the_last_payload_counts_without_its_blank_line_and_without_its_line_end() -> None:
    assert read(b"data: " + PAYLOADS[0]) == PAYLOADS[:1]
    assert read(b"data: " + PAYLOADS[0] + b"\n") == PAYLOADS[:1]


def test_nothing_and_its_ends_are_no_payloads() -> None:
    assert read(b"\xef\xbb\xbfdata:\n\ndata: \n\ndata: [DONE]\n\n:\n\nid: 4\n\n") == []
    assert read(b"\n \n[DONE]\n\r\n") == []
    assert read() == []


@pytest.mark.parametrize("prefix", [b"data: ", b""], ids=["framed", "bare"])
def test_a_payload_that_is_too_large_is_an_error_and_those_before_it_are_not(prefix: bytes) -> None:
    frames = Frames(100)
    before = b'{"type":"A"}'
    assert frames.feed(before + b"\n" + prefix + b"{" + b"x" * 200)[:1] == [before]
    with pytest.raises(MessageTooLarge):
        frames.feed(b"\n\n")


def test_a_payload_of_eight_mebibytes_is_the_largest() -> None:
    limit = 8 * 1024 * 1024
    most = b'{"type":"' + b"x" * (limit - 11) + b'"}'
    assert len(most) == limit
    frames = Frames()
    assert frames.feed(most + b"\n") == [most]
    with pytest.raises(MessageTooLarge):
        frames.feed(b" " + most + b"\n")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_is_cut_anywhere_and_comes_out_the_same(garbage: bytes, places: list[int]) -> None:
    edges = [0, *sorted(min(place, len(garbage)) for place in places), len(garbage)]
    chunks = [garbage[start:end] for start, end in itertools.pairwise(edges)]
    assert read(*chunks) == read(garbage)


PIECES = [
    b'data: {"a":1}\n\n',
    b'data:{"b":2}\n\n',
    b"data: {\ndata: }\n\n",
    b'id: 7\nevent: x\ndata: {"c":3}\n\n',
    b'data: {"e":5}\r\n\r\n',
    b'data: {"f":6}\r\r',
    b'data: {"g":7}\n\r\n',
    b'data: {"h":"\xe2\x80\xa8"}\n\n',
    b'{"d":4}\n',
    b"data: [DONE]\n\n",
    b"data: \n\n",
    b"data:\n\n",
    b": ping\n\n",
    b"nonsense\n\n",
    b"retry: 5\n",
    b"\n\n",
    b"\n",
    b"\r",
]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(0, 120), max_size=6))
def test_the_payloads_are_the_same_however_the_body_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    bounds = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    byte_by_byte = read(*(bytes([byte]) for byte in body))
    assert read(*(body[start:end] for start, end in itertools.pairwise(bounds))) == byte_by_byte
    assert read(body) == byte_by_byte


@pytest.mark.parametrize(
    "large", [b"data: " + b"x" * 20 + b"\n\n", b"data: x\ndata: " + b"x" * 20 + b"\n\n", b"x" * 40]
)
def test_payloads_before_one_that_is_too_large_are_returned_first(large: bytes) -> None:
    frames = Frames(max_bytes=16)
    assert frames.feed(b"data: 1\n\ndata: 2\n\n" + large + b"data: 3\n\n") == [b"1", b"2"]
    with pytest.raises(MessageTooLarge):
        frames.feed(b"data: 4\n\n")


def test_one_that_is_too_large_alone_is_told_at_once() -> None:
    with pytest.raises(MessageTooLarge):
        Frames(max_bytes=16).feed(b"data: " + b"x" * 20 + b"\n\n")
