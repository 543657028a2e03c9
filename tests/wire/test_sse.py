"""Frames come back as they went out, however they are cut; what others write is read by the WHATWG rules."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import sse
from gateway.wire.codec import encode
from gateway.wire.sse import KEEP_ALIVE, Decoder, Message, MessageTooLarge, frame, retry
from tests.support.effort import times

LINE_ENDS = ("\n", "\r", "\r\n")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def decode(*chunks: bytes, limit: int = sse.MAX_MESSAGE_BYTES, flush: bool = False) -> list[Message]:
    decoder = Decoder(limit)
    messages = [message for chunk in chunks for message in decoder.feed(chunk)]
    return messages + decoder.close(flush_partial=flush)


def outcome(chunks: list[bytes], limit: int, flush: bool = False) -> tuple[list[Message], bool, int | None, str | None]:
    """All there is to see of a decoder that was fed these chunks: messages, too large or not, its state."""
    decoder = Decoder(limit)
    messages: list[Message] = []
    too_large = False
    try:
        for chunk in chunks:
            messages += decoder.feed(chunk)
    except MessageTooLarge:
        too_large = True
    try:
        messages += decoder.close(flush_partial=flush)
    except MessageTooLarge:
        too_large = True
    return messages, too_large, decoder.retry_ms, decoder.last_event_id


def reference(stream: bytes) -> list[Message]:
    """The WHATWG algorithm in its own words, on text, for a whole stream."""
    text = stream.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    *lines, _ = re.split("\r\n|\n|\r", text)
    messages = []
    data, event, last_id = "", "", None
    for line in lines:
        if line == "":
            if data:
                body = data.removesuffix("\n").encode("utf-8", "surrogateescape")
                messages.append(Message(body, last_id, event or None))
            data, event = "", ""
            continue
        if line.startswith(":"):
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        readable = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if field == "data":
            data += value + "\n"
        elif field == "event":
            event = readable
        elif field == "id" and "\0" not in value:
            last_id = readable
    return messages


payloads = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(["\u2028", "\u2029", "\x85", "\r\n", "\0"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
).map(encode)

# Streams made of what matters to the parser, far more often than chance would have it.
pieces = st.sampled_from(
    [
        *(b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"data", b"data:", b"data: ", b"id:", b"event: ", b"retry: "),
        *(b"id: a\0b", b"id: 7", b"retry: 3000", b"retry: x", b":", b": ping", b" ", b"x", b"foo: bar", b"\0"),
        *("\ufeff\u2028\u2029\x85é😀".encode(), b"\xef\xbb\xbf", b"\xef\xbb", b"\xff", b"[DONE]", b'{"a":1}'),
    ]
)
garbage = st.lists(pieces | st.binary(max_size=4), max_size=40).map(b"".join)
places = st.lists(st.integers(min_value=0), max_size=30)


@settings(max_examples=times(150))
@given(st.lists(payloads), places, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.booleans())
def test_any_payloads_in_any_chunks_come_back(
    payloads: list[bytes], places: list[int], start: bytes, keep_alive: bool
) -> None:
    between = KEEP_ALIVE if keep_alive else b""
    stream = start + retry(2000) + b"".join(between + frame(n, p) for n, p in enumerate(payloads, 1))
    expected = [Message(payload, str(seq), None) for seq, payload in enumerate(payloads, 1)]
    assert decode(*cut(stream, places)) == expected


@settings(max_examples=times(150))
@given(garbage, places, st.booleans())
def test_garbage_decodes_the_same_whole_or_cut(stream: bytes, places: list[int], flush: bool) -> None:
    whole = outcome([stream], 1000, flush)
    assert outcome(cut(stream, places), 1000, flush) == whole
    assert outcome([bytes([byte]) for byte in stream], 1000, flush) == whole


@settings(max_examples=times(150))
@given(garbage, places, st.integers(0, 30), st.booleans())
def test_beyond_the_limit_it_is_the_same_too(stream: bytes, places: list[int], limit: int, flush: bool) -> None:
    whole = outcome([stream], limit, flush)
    assert outcome(cut(stream, places), limit, flush) == whole
    assert outcome([bytes([byte]) for byte in stream], limit, flush) == whole
    assert all(len(message.data) <= limit for message in whole[0])


@settings(max_examples=times(150))
@given(garbage)
def test_it_agrees_with_the_algorithm_of_the_standard(stream: bytes) -> None:
    assert decode(stream) == reference(stream)


@settings(max_examples=times(150))
@given(
    st.lists(st.tuples(st.lists(st.text("ab: \u2028\u2029\x85\x0b\x0c\x1c"), min_size=1), st.sampled_from(LINE_ENDS))),
    places,
)
def test_data_of_many_lines_with_any_line_end_is_joined_by_lf(
    messages: list[tuple[list[str], str]], places: list[int]
) -> None:
    stream = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines, end in messages).encode()
    assert [m.data for m in decode(*cut(stream, places))] == ["\n".join(lines).encode() for lines, _ in messages]


@settings(max_examples=times(150))
@given(st.lists(st.tuples(st.text("xy", min_size=1), st.lists(st.sampled_from(LINE_ENDS), min_size=2, max_size=2))))
def test_line_ends_may_be_mixed(messages: list[tuple[str, list[str]]]) -> None:
    # "\r" and then "\n" would be one line end, not two.
    ends = [("\r", "\r\n") if first + second == "\r\n" else (first, second) for _, (first, second) in messages]
    stream = "".join(f"data:{text}{a}{b}" for (text, _), (a, b) in zip(messages, ends, strict=True)).encode()
    chunks = [bytes([byte]) for byte in stream]
    assert [m.data.decode() for m in decode(*chunks)] == [text for text, _ in messages]


def test_the_frame_is_an_id_line_and_a_data_line() -> None:
    assert frame(17, b'{"type":"CUSTOM"}') == b'id: 17\ndata: {"type":"CUSTOM"}\n\n'
    assert retry(2500) == b"retry: 2500\n\n"
    assert decode(KEEP_ALIVE) == []


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: x\n\n", [(b"x", None, None)], id="one space after the colon is dropped"),
        pytest.param(b"data:  x\n\n", [(b" x", None, None)], id="a second one is not"),
        pytest.param(b"data:x\n\n", [(b"x", None, None)], id="none is needed"),
        pytest.param(b"data\n\n", [(b"", None, None)], id="a line without a colon is a field without a value"),
        pytest.param(b"data\ndata\n\n", [(b"\n", None, None)], id="empty data lines count"),
        pytest.param(b"data:\n\n", [(b"", None, None)], id="empty data is a message"),
        pytest.param(b"event: e\n\ndata: x\n\n", [(b"x", None, None)], id="no data, no message, no event name"),
        pytest.param(b"event: e\ndata: x\n\ndata: y\n\n", [(b"x", None, "e"), (b"y", None, None)], id="event"),
        pytest.param(b"id: 1\ndata: x\n\ndata: y\n\n", [(b"x", "1", None), (b"y", "1", None)], id="id stays"),
        pytest.param(b"id: 1\n\ndata: y\n\n", [(b"y", "1", None)], id="an id needs no data"),
        pytest.param(b"id: 1\nid: 2\0\ndata: y\n\n", [(b"y", "1", None)], id="an id with NUL is ignored"),
        pytest.param(b"id: 1\nid\ndata: y\n\n", [(b"y", "", None)], id="an empty id takes it back"),
        pytest.param(b"id: \xff\nevent: \xff\ndata: \xff\n\n", [(b"\xff", "\ufffd", "\ufffd")], id="no UTF-8"),
        pytest.param(b":data: x\n: y\ndata: z\n\n", [(b"z", None, None)], id="comments"),
        pytest.param(b"Data: x\ndata : x\n data: x\n\n", [], id="field names are exact"),
        pytest.param(b"data: x\n", [], id="a message without its blank line is dropped"),
        pytest.param(b"data: x", [], id="and so is a line without its end"),
        pytest.param(b"\xef\xbb\xbfdata: x\n\n", [(b"x", None, None)], id="one BOM is dropped"),
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", [], id="a second one is not"),
        pytest.param(b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [(b"x", None, None)], id="nor one within"),
        pytest.param(
            "data: a\u2028b\u2029c\x85d\n\n".encode(), [("a\u2028b\u2029c\x85d".encode(), None, None)], id="U+2028"
        ),
    ],
)
def test_it_reads_like_an_event_source(stream: bytes, expected: list[tuple[bytes, str | None, str | None]]) -> None:
    assert decode(stream) == expected
    assert decode(*(bytes([byte]) for byte in stream)) == expected


def test_a_line_that_ends_in_cr_is_complete_at_once() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: x\r\n\r") == [Message(b"x", None, None)]
    assert decoder.feed(b"\ndata: y\r\r") == [Message(b"y", None, None)]


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [(b"3000", 3000), (b"0", 0), (b"-1", None), (b"1.5", None), (b"", None), (b"\xd9\xa3", None), (b"9" * 5000, None)],
)
def test_retry_is_kept_if_it_is_digits(value: bytes, milliseconds: int | None) -> None:
    decoder = Decoder()
    assert decoder.feed(b"retry: " + value + b"\n") == []
    assert decoder.retry_ms == milliseconds


def test_a_cut_off_message_does_not_move_the_cursor() -> None:
    decoder = Decoder()
    decoder.feed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n")
    assert decoder.last_event_id == "1"
    assert decoder.close() == []
    assert decoder.last_event_id == "1"


def test_after_close_another_stream_begins_with_the_same_cursor() -> None:
    decoder = Decoder()
    decoder.feed(b"retry: 5\nid: 1\ndata: x\n\nid: 2\nevent: e\ndata: y\r")
    decoder.close()
    assert decoder.feed(b"\n\xef\xbb\xbf\n") == []
    decoder.close()
    assert decoder.feed(b"\xef\xbb\xbfdata: z\n\n") == [Message(b"z", "1", None)]
    assert decoder.retry_ms == 5


@pytest.mark.parametrize("tail", [b"data: x", b"data: x\n", b"data: x\r", b"data: x\r\n", b"data: x\n\n"])
def test_a_partial_last_message_is_returned_when_asked_for(tail: bytes) -> None:
    assert decode(b"data: w\n\n" + tail, flush=True) == [Message(b"w", None, None), Message(b"x", None, None)]


def test_nothing_at_all_flushes_to_nothing() -> None:
    assert decode(flush=True) == []
    assert decode(b"\xef\xbb", flush=True) == []


@pytest.mark.parametrize("filler", [b"data: x\n", b"x", b":", b"data: xxxxxxxxxxxxxxxxxxxxxxx\r\n", b"id: 1"])
def test_a_message_that_never_ends_is_too_large_soon(filler: bytes) -> None:
    messages, too_large, *_ = outcome([filler] * 101, 100)
    assert (messages, too_large) == ([], True)


def test_too_large_is_for_good_until_close() -> None:
    decoder = Decoder(max_message_bytes=10)
    with pytest.raises(MessageTooLarge):
        decoder.feed(b"data: 12345678\n\n")
    with pytest.raises(MessageTooLarge):
        decoder.feed(b"\n\ndata: x\n\n")
    with pytest.raises(MessageTooLarge):
        decoder.close()
    assert decoder.feed(b"data: x\n\n") == [Message(b"x", None, None)]


def test_messages_before_the_one_that_is_too_large_are_returned_first() -> None:
    decoder = Decoder(max_message_bytes=10)
    assert decoder.feed(b"data: x\n\ndata: 12345678\n\ndata: y\n\n") == [Message(b"x", None, None)]
    with pytest.raises(MessageTooLarge):
        decoder.feed(b"")


def test_comments_do_not_add_up() -> None:
    decoder = Decoder(max_message_bytes=20)
    assert [decoder.feed(b": keep-alive\n") for _ in range(10)] == [[]] * 10
    assert decoder.feed(b"data: x\n\n") == [Message(b"x", None, None)]


def test_a_large_message_in_small_chunks_costs_linear_time() -> None:
    # 4 MiB in 64-byte chunks: copying the whole line for each chunk would take minutes.
    payload = b"x" * (4 * 1024 * 1024)
    chunks = cut(frame(1, payload), list(range(0, len(payload), 64)))
    assert decode(*chunks) == [Message(payload, "1", None)]
