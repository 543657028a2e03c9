"""Names of the keys in Redis.

Whatever belongs to one run carries one hash tag, so that a script may touch all of it in a cluster, too; so do the two
indexes of an owner, and what belongs to a worker. Ids are hashed: they come from clients and may hold anything, and the
id of a run that is nobody's is a capability, which `MONITOR` and slow logs must not show.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from gateway.run.records import RunKey

__all__ = ["Keys", "RunKeys", "raw"]


def raw(text: str) -> bytes:
    """Text as bytes, also where it holds half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def _digest(*parts: str | None) -> str:
    # A length before each part, so that no two lists of parts look the same.
    data = b"".join(b"-" if part is None else b"%d:%b" % (len(raw(part)), raw(part)) for part in parts)
    return sha256(data).hexdigest()[:32]


class RunKeys(NamedTuple):
    """The keys of one run: a hash, the stream of its events, the list of its Stop requests, the hash of questions,
    where the stream is put aside for a moment, and the hash of workers that have viewers of it."""

    run: bytes
    log: bytes
    stops: bytes
    questions: bytes
    aside: bytes
    watching: bytes


class Keys:
    """All names under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.workers = self._name("{workers}")

    def run(self, key: RunKey) -> RunKeys:
        tag = f"{{run:{_digest(*key)}}}"
        return RunKeys(*(self._name(f"{tag}:{part}") for part in RunKeys._fields))

    def owner(self, owner: str) -> bytes:
        """Index of an owner's runs."""
        return self._name(f"{{owner:{_digest(owner)}}}:runs")

    def thread(self, owner: str, thread_id: str) -> bytes:
        """Index of the runs of one thread."""
        return self._name(f"{{owner:{_digest(owner)}}}:thread:{_digest(thread_id)}")

    def held(self, worker: str) -> bytes:
        """The runs that a worker holds."""
        return self._name(f"{{worker:{_digest(worker)}}}:runs")

    def messages(self, worker: str) -> bytes:
        return self._name(f"{{worker:{_digest(worker)}}}:messages")

    def wakeup(self, process: str) -> bytes:
        """The stream by which a process interrupts its own blocking read."""
        return self._name(f"{{process:{process}}}:wakeup")

    def question(self, interrupt_id: str) -> bytes:
        """Says which run a question belongs to."""
        return self._name(f"{{question:{_digest(interrupt_id)}}}")

    def notes(self, owner: str, thread_id: str) -> bytes:
        return self._name(f"{{notes:{_digest(owner, thread_id)}}}")

    def visibility(self, session: str) -> bytes:
        return self._name(f"{{session:{_digest(session)}}}")

    def ticket(self, digest: str) -> bytes:
        return self._name(f"{{ticket:{_digest(digest)}}}")

    def _name(self, rest: str) -> bytes:
        return raw(self._prefix + rest)
