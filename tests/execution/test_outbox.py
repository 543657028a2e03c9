"""The outbox of a tool process: order, batches, backpressure, loss. The sending side is a gate, not a clock."""

from __future__ import annotations

import threading
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.execution.outbox import FULL_BYTES, MAX_WAITING_BYTES, Outbox

LONG = 30  # seconds; reached only by a test that fails


class Wire:
    """What was sent, batch by batch. A closed wire holds the writer in its `send`."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.batches: list[bytes] = []
        self.opened = threading.Event()
        self.sending = threading.Semaphore(0)
        self.failure: OSError | None = None
        if is_open:
            self.opened.set()

    def send(self, batch: bytes) -> None:
        self.sending.release()
        assert self.opened.wait(LONG)
        if self.failure:
            raise self.failure
        self.batches.append(batch)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=50), st.booleans()), max_size=50))
@settings(max_examples=30)
def test_everything_goes_out_in_order_by_the_time_it_is_closed(frames: list[tuple[bytes, bool]]) -> None:
    wire = Wire()
    outbox = Outbox(wire.send)
    for frame, urgent in frames:
        outbox.put(frame, urgent=urgent)
    outbox.close()
    assert b"".join(wire.batches) == b"".join(frame for frame, _ in frames)


def test_the_first_frame_goes_out_by_itself_and_what_follows_meanwhile_goes_together() -> None:
    wire = Wire(is_open=False)
    outbox = Outbox(wire.send)
    outbox.put(b"first")
    assert wire.sending.acquire(timeout=LONG)
    for _ in range(100):
        outbox.put(b"x")
    wire.opened.set()
    outbox.close()
    assert wire.batches == [b"first", b"x" * 100]


def test_a_frame_needs_no_other_one_to_go_out() -> None:
    wire = Wire()
    outbox = Outbox(wire.send)
    for _ in range(3):
        outbox.put(b"alone")
        assert wire.sending.acquire(timeout=LONG)
    outbox.close()
    assert wire.batches == [b"alone"] * 3


def test_put_blocks_while_too_much_is_waiting_and_nothing_is_lost() -> None:
    wire = Wire(is_open=False)
    outbox = Outbox(wire.send)
    frame = b"f" * FULL_BYTES
    count = 3 * MAX_WAITING_BYTES // FULL_BYTES
    done: list[int] = []

    def fill() -> None:
        for number in range(count):
            outbox.put(frame)
            done.append(number)

    filling = threading.Thread(target=fill)
    filling.start()
    assert wire.sending.acquire(timeout=LONG)
    with outbox._lock:
        assert len(done) < count
    assert filling.is_alive()
    wire.opened.set()
    filling.join(LONG)
    outbox.close()
    assert sum(map(len, wire.batches)) == count * FULL_BYTES
    assert max(map(len, wire.batches)) <= MAX_WAITING_BYTES + FULL_BYTES


def test_a_wire_that_breaks_drops_the_rest_and_releases_who_waits() -> None:
    wire = Wire(is_open=False)
    wire.failure = BrokenPipeError()
    outbox = Outbox(wire.send)
    outbox.put(b"first")
    assert wire.sending.acquire(timeout=LONG)
    blocked = threading.Thread(target=partial(outbox.put, b"b" * (MAX_WAITING_BYTES + 1)))
    blocked.start()
    wire.opened.set()
    blocked.join(LONG)
    assert not blocked.is_alive()
    outbox._writer.join(LONG)
    assert outbox.lost
    outbox.put(b"late", urgent=True)
    outbox.close()
    assert wire.batches == []


def test_a_closed_outbox_drops_what_still_comes() -> None:
    wire = Wire()
    outbox = Outbox(wire.send)
    outbox.put(b"answer", urgent=True)
    outbox.close()
    outbox.put(b"late", urgent=True)
    assert wire.batches == [b"answer"]


def test_a_thread_that_emits_while_it_emits_keeps_its_order() -> None:
    """What a signal handler does to the thread that it interrupts."""
    wire = Wire()
    outbox = Outbox(wire.send)
    with outbox._lock:
        outbox.put(b"1")
        outbox.put(b"2", urgent=True)
    outbox.close()
    assert b"".join(wire.batches) == b"12"


def test_a_forgotten_outbox_needs_no_lock() -> None:
    wire = Wire()
    outbox = Outbox(wire.send)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with outbox._work:
            held.set()
            assert let_go.wait(LONG)

    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(LONG)
    outbox.forget()
    outbox.put(b"nowhere")
    outbox.close()
    assert outbox.lost
    let_go.set()
    holding.join(LONG)
    assert wire.batches == []
