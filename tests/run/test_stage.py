"""The stage: whatever threads add while the loop takes, every event comes out once, in its thread's order, numbered."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from gateway.run.stage import END, Stage
from gateway.wire import sse

calls = st.sampled_from(["a", "b", "c"])


def tail(call: str) -> bytes:
    return call.encode() + END


def add(stage: Stage, call: str, number: int) -> None:
    stage.add((None, b"\ndata: %d" % number, b"", tail(call)))


def frame(seq: int, call: str, number: int) -> bytes:
    return sse.frame(seq, b"%d%b" % (number, call.encode()))


@given(st.lists(st.lists(calls)), st.sets(calls), st.integers(1, 10**12))
def test_what_is_taken_is_numbered_without_gaps_and_without_what_came_too_late(
    batches: list[list[str]], closed: set[str], first: int
) -> None:
    stage = Stage()
    number = 0
    for batch in batches:
        for call in batch:
            number += 1
            add(stage, call, number)
        assert len(stage) == len(batch)
        taken = stage.take(first, {tail(call) for call in closed})
        kept = [(number - len(batch) + index, call) for index, call in enumerate(batch, 1) if call not in closed]
        assert taken.data == b"".join(frame(first + index, call, n) for index, (n, call) in enumerate(kept))
        assert (taken.frames, taken.dropped) == (len(kept), len(batch) - len(kept))
        assert len(stage) == 0
        first += taken.frames


def test_threads_that_add_while_the_loop_takes_lose_and_double_nothing() -> None:
    stage, each, names = Stage(), 5_000, ["a", "b", "c"]
    begin = threading.Barrier(len(names) + 1)

    def emit(call: str) -> None:
        begin.wait()
        for number in range(each):
            add(stage, call, number)

    threads = [threading.Thread(target=emit, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    begin.wait()
    data, count = b"", 0
    while count < each * len(names):
        batch = stage.take(count + 1, ())
        assert not batch.dropped
        data += batch.data
        count += batch.frames
    for thread in threads:
        thread.join()
    messages = sse.Decoder().feed(data)
    assert [message.id for message in messages] == [str(number) for number in range(1, count + 1)]
    for name in names:
        own = [message.data for message in messages if message.data.endswith(name.encode())]
        assert own == [b"%d%b" % (number, name.encode()) for number in range(each)]
