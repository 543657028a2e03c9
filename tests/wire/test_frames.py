"""The payloads of an agent's answer are the same however it is framed and cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import Frames, MessageTooLarge

SSE = "text/event-stream; charset=utf-8"
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


def payloads(chunks: list[bytes], content_type: str = SSE) -> list[bytes]:
    frames = Frames(content_type)
    found = [payload for chunk in chunks for payload in frames.feed(chunk)]
    return [*found, *frames.close()]


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"a":1}\n\ndata: {"b":2}\n\n',
        b'data: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\n',
        b'data:{"a":1}\r\rdata:{"b":2}\r\r',
        b': hello\n\nid: 1\nevent: e\ndata: {"a":1}\n\n\n\n: ping\r\n\r\ndata: {"b":2}\n\ndata: [DONE]\n\n',
        b'\xef\xbb\xbfdata: {"a":1}\n\ndata: {"b":2}',
        b'{"a":1}\n{"b":2}\n',
    ],
)
def test_events_are_found_in_every_framing(body: bytes) -> None:
    assert payloads([body]) == [b'{"a":1}', b'{"b":2}']


def test_lines_of_json_are_events_where_the_type_says_so() -> None:
    assert payloads([b'{"a":1}\n\n{"b"', b":2}\r\n", b'{"c":3}'], "application/x-ndjson") == [
        b'{"a":1}',
        b'{"b":2}',
        b'{"c":3}',
    ]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(0, 120), max_size=6))
def test_the_payloads_are_the_same_however_the_body_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    bounds = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    byte_by_byte = payloads([body[index : index + 1] for index in range(len(body))])
    assert payloads([body[start:end] for start, end in pairwise(bounds)]) == byte_by_byte
    assert payloads([body]) == byte_by_byte


@pytest.mark.parametrize(
    "large", [b"data: " + b"x" * 20 + b"\n\n", b"data: x\ndata: " + b"x" * 20 + b"\n\n", b"x" * 40]
)
def test_payloads_before_one_that_is_too_large_are_returned_first(large: bytes) -> None:
    frames = Frames(SSE, max_bytes=16)
    assert frames.feed(b"data: 1\n\ndata: 2\n\n" + large + b"data: 3\n\n") == [b"1", b"2"]
    with pytest.raises(MessageTooLarge):
        frames.feed(b"data: 4\n\n")


def test_one_that_is_too_large_alone_is_told_at_once() -> None:
    with pytest.raises(MessageTooLarge):
        Frames(SSE, max_bytes=16).feed(b"data: " + b"x" * 20 + b"\n\n")
