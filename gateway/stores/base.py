"""What a store promises. One conformance suite (`tests/conformance`) holds every store to it.

The promises, in the words that tests use:

- **Keys.** A run is named by its owner and its id; the index by thread belongs to the owner too.
- **Creation is atomic.** Of any number of `create` calls with one key exactly one gets a lease; the others get the
  record, or `Conflict` when their fingerprint differs.
- **Appending is idempotent by number.** The run numbers its frames; the store takes `last + 1` and skips what it has,
  so a caller peeks, appends, and only then forgets: a cancel at any await loses and doubles nothing.
- **Fencing.** Only the newest lease of a run may append; an older one gets `Fenced`.
- **Readers are cursors.** Every follower, early or late, sees every frame after its cursor once, in order, and then the
  end. A cursor whose frames are gone gets `CursorExpired`; read on in spite of it, it goes on with what is left.
- **Stop is state.** A Stop request is kept with the run until it is over; the message to the owning worker only saves
  time, and may be lost.
- **Questions change by compare and swap,** several of one run together or not at all: of two answers, or an answer and
  a Stop, exactly one counts. The owning worker gets a message, which only saves time.
- **A note is told once.** `take_notes` gives a note to one run only, and to that one again if it asks again. One
  whose worker seems dead takes no more.

Times are the store's own (Unix seconds), so that workers need not agree on a clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from gateway.run.questions import Note, Question
from gateway.run.records import RunKey, RunRecord

__all__ = [
    "Bounds",
    "Created",
    "Follower",
    "Lease",
    "Message",
    "Page",
    "QuestionChanged",
    "RunWriter",
    "StopRequest",
    "Store",
    "Ticket",
    "ViewersChanged",
    "Visibility",
]


class Lease(NamedTuple):
    """The right to append to a run; a higher epoch fences all lower ones."""

    key: RunKey
    worker: str
    epoch: int


class Created(NamedTuple):
    """Answer of `create`: the run's record, and a lease iff this call created it."""

    record: RunRecord
    lease: Lease | None


class Bounds(NamedTuple):
    """Numbers of the first and last frame that can be read (`first > last`: none), and whether more can come."""

    first: int
    last: int
    over: bool


class Page(NamedTuple):
    """A page of a list, newest first; `next` is the `after` of the following page, `None` on the last."""

    items: list[RunRecord]
    next: str | None


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody asked to stop a run (`call_id` is None) or one of its calls."""

    key: RunKey
    reason: str
    message: str | None = None
    call_id: str | None = None


class QuestionChanged(NamedTuple):
    """A question of a run was answered, closed, or claimed by a page."""

    key: RunKey
    interrupt_id: str


class ViewersChanged(NamedTuple):
    """Another worker has viewers of this run now, or none any more."""

    key: RunKey


# What a worker hears about its runs.
Message = StopRequest | QuestionChanged | ViewersChanged


@dataclass(frozen=True, slots=True)
class Visibility:
    """Tools that a session switched on or off against their declared visibility."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ticket:
    """A secret that lets an `EventSource` read one run; bound at first use, then good for one connection at a time."""

    digest: str
    key: RunKey
    use: str
    expires_at: float | None
    first_used_at: float | None = None
    last_event_id: int | None = None


class Follower(Protocol):
    """A reader of one run: `async for data in follower` yields frames joined to pieces, and ends with the run.

    `cursor` is the number of the last frame it yielded; `wake()` makes a waiting iteration yield `b""`; `close()` ends
    it. Both are for the loop's thread. `sink`, when set, may be called with the next piece while an iteration waits; it
    returns whether it took it. A store need not use it.
    """

    cursor: int
    sink: Callable[[bytes], bool] | None

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def __anext__(self) -> bytes: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class RunWriter(Protocol):
    """The one writer of a run, held by its lease, used on the loop.

    `write` takes `count` frames as one piece of bytes, numbered after those before. What is written is stored in this
    order, together with the record that was saved last; `flush` returns when all of it is. The callback of `on_trim` is
    called once, soon after the oldest frames have left the log. That of `on_lost` is called once, on the loop, when
    nothing more will be stored: with `superseded` (fenced), `store` (it failed for `store_timeout`), or `store_lost`
    (it came back without the run). From then on `write` drops, and `flush` raises `StoreError`.
    """

    @property
    def pending_bytes(self) -> int: ...
    def write(self, data: bytes, count: int = 1) -> None: ...
    def save(self, record: RunRecord) -> None: ...
    async def flush(self) -> None: ...
    def on_trim(self, callback: Callable[[], None]) -> None: ...
    def on_lost(self, callback: Callable[[str], None]) -> None: ...


class Store(Protocol):
    """Runs and what belongs to them. Methods raise `StoreError` when the store does not do it.

    `shared`: other workers may use it too; only then do leases matter.
    """

    shared: bool

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    # runs
    async def create(self, record: RunRecord, fingerprint: bytes, worker: str) -> Created: ...
    async def discard(self, lease: Lease) -> None:
        """Forgets a run that was created and has no event yet."""

    async def get(self, key: RunKey) -> RunRecord | None: ...
    async def append(
        self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord | None = None
    ) -> None: ...
    async def close_run(self, lease: Lease, first: int, frames: Sequence[bytes], record: RunRecord) -> bool:
        """The last frames and the record of a run whose worker has died, all or nothing.

        False, and nothing changes, when a Stop was asked for that the record does not know.
        """

    async def bounds(self, key: RunKey) -> Bounds | None: ...
    async def list_runs(
        self,
        owner: str,
        *,
        thread_id: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page: ...
    def writer(self, lease: Lease) -> RunWriter: ...
    def follow(self, key: RunKey, cursor: int) -> Follower: ...

    # Stop
    async def request_stop(self, request: StopRequest) -> RunRecord | None: ...
    async def stop_requests(self, key: RunKey) -> list[StopRequest]: ...
    def messages(self, worker: str) -> AsyncIterator[Message]: ...

    # leases
    async def renew(self, worker: str) -> None:
        """The worker lives: its runs are no orphans for another `lease_seconds` of the store's time."""

    def renew_blocking(self, worker: str) -> None:
        """The same for a plain thread."""

    async def retire(self, worker: str) -> None:
        """The worker has ended in good order; whatever it still holds is an orphan at once."""

    async def workers(self) -> list[str]:
        """The workers that live, by their renewals."""

    async def orphans(self) -> list[RunKey]:
        """Runs that are not over and whose worker has not renewed in time."""

    async def take_over(self, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        """A lease of a higher epoch, which fences the old one; None when the run is over or unknown.

        `orphaned`: also None unless the run is an orphan at this very moment.
        """

    # viewers at other workers
    async def set_watching(self, key: RunKey, worker: str, watching: bool) -> None:
        """Whether this worker has viewers of the run, which is another one's; that one gets a message."""

    async def watched(self, key: RunKey) -> bool | None:
        """Whether a living worker has said that it has viewers of the run; None: nobody ever has."""

    # questions
    async def ask(self, lease: Lease, question: Question) -> None:
        """Keeps a question of the run; one with this id that is there already stays as it is."""

    async def questions(self, key: RunKey) -> list[Question]: ...
    async def find_question(self, interrupt_id: str) -> tuple[RunKey, Question] | None:
        """The question and the run it belongs to, whoever owns it."""

    async def replace_questions(self, key: RunKey, changes: Sequence[tuple[Question, Question]]) -> bool:
        """Compare and swap, `(old, new)` each: all of them, or none when one is not as it was."""

    async def cancel_interrupted(self, key: RunKey) -> RunRecord | None:
        """Stop of an interrupted run that nobody has resumed: its questions are closed, the record is cancelled.

        Any other run stays as it is. Returns the record as it is now.
        """

    # notes of background jobs, by owner and thread
    async def add_note(self, owner: str, thread_id: str, note: Note) -> None:
        """Keeps a note; a second one of the same job changes nothing."""

    async def notes(self, owner: str, thread_id: str) -> list[Note]:
        """All notes of the thread, told or not, oldest first."""

    async def take_notes(self, owner: str, thread_id: str, run_id: str) -> list[Note]:
        """The notes for this run to tell: those that no other run has taken."""

    async def close_notes(self, key: RunKey, thread_id: str) -> list[Note]:
        """The notes that this run has taken; it takes no more, also when its worker was only asleep."""

    # visibility and tickets
    async def visibility(self, session: str) -> Visibility: ...
    async def set_visibility(self, session: str, visibility: Visibility) -> None: ...
    async def put_ticket(self, ticket: Ticket) -> None: ...
    async def ticket(self, digest: str) -> Ticket | None: ...
    async def replace_ticket(self, old: Ticket, new: Ticket) -> bool: ...
