"""The frames between a tool process and the gateway."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.execution.pipes import FrameReader, pack

Frame = tuple[int, bytes, bytes]

frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40), st.binary(max_size=200)), max_size=20)


def written(sent: list[Frame]) -> bytes:
    return b"".join(pack(kind, body, name) for kind, name, body in sent)


@given(frames, st.data())
def test_frames_come_out_as_they_went_in_whatever_the_chunks(sent: list[Frame], data: st.DataObject) -> None:
    stream = written(sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30).map(sorted))
    got: list[Frame] = []
    reader = FrameReader(lambda *frame: got.append(frame))
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:stop])
    assert got == sent


@given(frames)
def test_frames_come_out_as_soon_as_their_last_byte_is_there(sent: list[Frame]) -> None:
    got: list[Frame] = []
    reader = FrameReader(lambda *frame: got.append(frame))
    for count, frame in enumerate(sent, 1):
        *all_but_one, last = written([frame])
        for byte in all_but_one:
            reader.feed(bytes([byte]))
        assert len(got) == count - 1
        reader.feed(bytes([last]))
        assert len(got) == count
