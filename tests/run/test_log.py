"""The block log: reading is slicing, whatever the sizes; trimming takes from the front and changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.run.log import BLOCK_BYTES, BlockLog
from gateway.wire import sse

# Around the size of a block, because there is where a log can go wrong.
SIZES = st.one_of(
    st.integers(1, 400), st.sampled_from([BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
)
# Pieces of one or more frames, as they are appended.
PIECES = st.lists(st.lists(SIZES, min_size=1, max_size=5), max_size=25)

Piece = list[bytes]


def frame(number: int, size: int) -> bytes:
    """A frame of so many bytes, if it can be that small; full of what looks like the beginning of others."""
    room = size - len(sse.frame(number, b""))
    return sse.frame(number, (b"id: %d\\n" % (number + 1) * (room // 8 + 1))[: max(room, 1)])


def numbered(pieces: list[list[int]], first: int = 1) -> list[Piece]:
    made = []
    for sizes in pieces:
        made.append([frame(first + index, size) for index, size in enumerate(sizes)])
        first += len(sizes)
    return made


def append(log: BlockLog, piece: Piece) -> bool:
    return log.append(b"".join(piece), len(piece))


def filled(pieces: list[Piece]) -> BlockLog:
    log = BlockLog()
    for piece in pieces:
        append(log, piece)
    return log


def read_all(log: BlockLog, cursor: int) -> tuple[bytes, list[int]]:
    chunks, cursors = [], [cursor]
    while (chunk := log.read(cursors[-1])).data:
        chunks.append(chunk.data)
        cursors.append(chunk.last)
    return b"".join(chunks), cursors


@given(PIECES, st.data())
def test_reading_from_any_cursor_is_a_slice_of_what_was_appended(sizes: list[list[int]], data: st.DataObject) -> None:
    pieces = numbered(sizes)
    log = filled(pieces)
    frames = [item for piece in pieces for item in piece]
    cursor = data.draw(st.integers(0, len(frames)))
    read, cursors = read_all(log, cursor)
    assert read == b"".join(frames[cursor:])
    assert cursors == sorted(set(cursors))
    assert cursors[-1] == len(frames)
    assert (log.first, log.last, log.size) == (1, len(frames), sum(map(len, frames)))


@given(PIECES, st.integers(1, 6))
def test_a_reader_that_reads_while_the_log_grows_sees_every_frame_once(sizes: list[list[int]], every: int) -> None:
    log, pieces = BlockLog(), numbered(sizes)
    seen, cursor = b"", 0
    for number, piece in enumerate(pieces, 1):
        append(log, piece)
        if number % every == 0:
            chunk = log.read(cursor)
            seen, cursor = seen + chunk.data, chunk.last
    rest, _ = read_all(log, cursor)
    assert seen + rest == b"".join(item for piece in pieces for item in piece)


@given(PIECES)
def test_what_is_read_at_a_time_is_a_block_unless_one_piece_alone_is_larger(sizes: list[list[int]]) -> None:
    pieces = numbered(sizes)
    log = filled(pieces)
    cursor = 0
    while (chunk := log.read(cursor)).data:
        assert len(chunk.data) <= BLOCK_BYTES or chunk.data in map(b"".join, pieces)
        cursor = chunk.last


@given(PIECES)
def test_append_says_when_a_block_was_sealed(sizes: list[list[int]]) -> None:
    log = BlockLog()
    for piece in numbered(sizes):
        before = len(log._blocks)
        assert append(log, piece) is (len(log._blocks) > before)


@given(PIECES, st.integers(0, 4 * BLOCK_BYTES), st.integers(0, 60))
def test_trimming_keeps_a_suffix_within_both_bounds_or_the_tail(sizes: list[list[int]], keep: int, count: int) -> None:
    pieces = numbered(sizes)
    log = filled(pieces)
    frames = [item for piece in pieces for item in piece]
    left = log.trim(keep, count)
    kept = frames[left:]
    assert log.first == left + 1
    assert log.last == len(frames)
    assert log.size == sum(map(len, kept))
    assert read_all(log, left)[0] == b"".join(kept)
    assert (log.size <= keep and len(kept) <= count) or not log._blocks
    assert log.trim(keep, count) == 0


def test_trimming_takes_no_more_than_it_must() -> None:
    log = filled(numbered([[BLOCK_BYTES]] * 10))
    assert log.trim(4 * BLOCK_BYTES, 100) == 6
    assert log.trim(100 * BLOCK_BYTES, 3) == 1
    assert [log.first, log.last] == [8, 10]


@pytest.mark.parametrize("last", [0, 41])
def test_a_log_without_frames_has_nothing_to_read(last: int) -> None:
    log = BlockLog(last)
    assert log.read(last) == (b"", last)
    assert (log.first, log.last) == (last + 1, last)
    assert log.trim(0, 0) == 0


class LogAndList(RuleBasedStateMachine):
    """A log beside a list: append, trim and read in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.log = BlockLog()
        self.frames: list[bytes] = []
        self.gone = 0

    @rule(sizes=PIECES)
    def append(self, sizes: list[list[int]]) -> None:
        for piece in numbered(sizes, len(self.frames) + 1):
            self.frames += piece
            append(self.log, piece)

    @rule(keep_bytes=st.integers(0, 5 * BLOCK_BYTES), keep_frames=st.integers(0, 80))
    def trim(self, keep_bytes: int, keep_frames: int) -> None:
        self.gone += self.log.trim(keep_bytes, keep_frames)

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        cursor = data.draw(st.integers(self.gone, len(self.frames)))
        assert read_all(self.log, cursor)[0] == b"".join(self.frames[cursor:])

    @invariant()
    def bounds_and_size_agree(self) -> None:
        assert self.log.first == self.gone + 1
        assert self.log.last == len(self.frames)
        assert self.log.size == sum(map(len, self.frames[self.gone :]))


TestLogAndList = LogAndList.TestCase
