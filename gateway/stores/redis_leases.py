"""Who lives and who holds what, in Redis.

The workers are a sorted set by the server's time at which they are dead; what each of them holds is a set. Both only
lead to runs: a run's own hash says who holds it. A worker's set is written before the run and cleaned after it, so it
may name a run too many and never one too few; what is too many is taken out by whoever looks for orphans.
"""

from __future__ import annotations

from abc import ABC
from time import monotonic
from typing import Any, NamedTuple

from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import Lease, Message, ViewersChanged
from gateway.stores.redis_keys import Keys, raw
from gateway.stores.redis_line import Line
from gateway.stores.redis_scripts import DROP_WORKER, LIVES, RENEW, TAKE_OVER, WATCH, Command
from gateway.stores.redis_state import nonce
from gateway.stores.redis_sync import Renewer
from gateway.stores.values import dump, load

__all__ = ["RedisLeases"]

MOST = 500  # keys asked about in one request


class Held(NamedTuple):
    """Who holds a run that is not over."""

    worker: str
    epoch: int


class RedisLeases(ABC):
    """The part of `RedisStore` that knows workers."""

    _settings: Settings
    _keys: Keys
    _line: Line
    _renewer: Renewer
    #: What seemed too many, by worker, and since when.
    _stale: dict[str, dict[bytes, float]]

    def _now(self) -> str:
        raise NotImplementedError

    def _granted(self, lease: Lease, last: int) -> None:
        """A lease of this process; the log has come to `last`."""
        raise NotImplementedError

    def _superseded(self, worker: str, key: RunKey) -> None:
        """Tells a worker that it holds this run no more."""
        raise NotImplementedError

    def _notify(self, worker: str, message: Message) -> None:
        """Tells a worker."""
        raise NotImplementedError

    async def renew(self, worker: str) -> None:
        await self._line.ask(self._renewal(worker))

    def renew_blocking(self, worker: str) -> None:
        """*Any thread but the loop's.* The same, over a connection of its own: for when the loop is busy."""
        self._renewer.call(self._renewal(worker))

    async def retire(self, worker: str) -> None:
        held, _ = await self._line.submit(
            ("SCARD", self._keys.held(worker)), ("ZADD", self._keys.workers, 0, raw(worker))
        )
        if not held:
            await self._line.ask(DROP_WORKER([self._keys.workers], self._now(), raw(worker)))

    async def workers(self) -> list[str]:
        living, _ = await self._lives()
        return living

    async def orphans(self) -> list[RunKey]:
        _, dead = await self._lives()
        self._stale = {worker: since for worker, since in self._stale.items() if worker in dead}
        found: list[RunKey] = []
        for worker in dead:
            members, mine = await self._held_by(worker)
            found += mine
            if not members:
                self._line.tell(DROP_WORKER([self._keys.workers], self._now(), raw(worker)))
        return found

    async def take_over(self, key: RunKey, worker: str, *, orphaned: bool = False) -> Lease | None:
        keys = self._keys.run(key)
        expected: tuple[bytes, int] | tuple[()] = ()
        if orphaned:
            held = await self._holder(key)
            # Of several that find it dead one gets it: the script looks whether it is still as it was.
            if held is None or held.worker in (await self._lives())[0]:
                return None
            expected = (raw(held.worker), held.epoch)
        member = dump(key)
        take = TAKE_OVER([keys.run], self._now(), raw(worker), nonce(), *expected)
        *_, answer = await self._line.submit(*self._holds(key, worker), take)
        if answer is None:
            self._line.tell(("SREM", self._keys.held(worker), member))
            return None
        epoch, last, before = int(answer[0]), int(answer[1]), answer[2].decode("utf-8", "surrogatepass")
        if before != worker:
            self._line.tell(("SREM", self._keys.held(before), member))
        self._superseded(before, key)
        lease = Lease(key, worker, epoch)
        self._granted(lease, last)
        return lease

    async def set_watching(self, key: RunKey, worker: str, watching: bool) -> None:
        keys = self._keys.run(key)
        told = await self._line.ask(WATCH([keys.run, keys.watching], self._now(), raw(worker), int(watching)))
        if told is not None:
            self._notify(_text(told), ViewersChanged(key))

    async def watched(self, key: RunKey) -> bool | None:
        said = await self._line.ask(("HGETALL", self._keys.run(key).watching))
        if not said:
            return None
        watching = {_text(worker) for worker, there in zip(said[::2], said[1::2], strict=True) if there == b"1"}
        return bool(watching) and not watching.isdisjoint((await self._lives())[0])

    def _renewal(self, worker: str) -> Command:
        return RENEW([self._keys.workers], self._now(), raw(worker), str(self._settings.lease_seconds))

    def _holds(self, key: RunKey, worker: str) -> tuple[Command, Command]:
        """What leads from a worker to a run. One that has not renewed yet counts as dead."""
        return (
            ("ZADD", self._keys.workers, "NX", 0, raw(worker)),
            ("SADD", self._keys.held(worker), dump(key)),
        )

    async def _lives(self) -> tuple[list[str], list[str]]:
        """The workers that live, and those that do not."""
        living, dead = await self._line.ask(LIVES([self._keys.workers], self._now()))
        return [_text(name) for name in living], [_text(name) for name in dead]

    async def _holder(self, key: RunKey) -> Held | None:
        (held,) = await self._holders([key])
        return held

    async def _holders(self, keys: list[RunKey]) -> list[Held | None]:
        found: list[Held | None] = []
        for start in range(0, len(keys), MOST):
            commands = [
                ("HMGET", self._keys.run(key).run, "worker", "epoch", "over") for key in keys[start : start + MOST]
            ]
            replies: list[Any] = await self._line.submit(*commands)
            found += [_held(reply) for reply in replies]
        return found

    async def _held_by(self, worker: str) -> tuple[list[bytes], list[RunKey]]:
        """What leads from a dead worker to runs, and those that it holds and that are not over."""
        members: list[bytes] = await self._line.ask(("SMEMBERS", self._keys.held(worker)))
        keys = [load(RunKey, member.decode()) for member in members]
        holders = await self._holders(keys)
        mine = [key for key, held in zip(keys, holders, strict=True) if held is not None and held.worker == worker]
        stale = [member for member, key in zip(members, keys, strict=True) if key not in mine]
        if gone := self._long_stale(worker, stale):
            self._line.tell(("SREM", self._keys.held(worker), *gone))
        return members, mine

    def _long_stale(self, worker: str, stale: list[bytes]) -> list[bytes]:
        """A run that is not there may be about to be made, by a worker that was only kept from renewing: it has
        `store_timeout` for that."""
        now, before = monotonic(), self._stale.get(worker, {})
        seen = self._stale[worker] = {member: before.get(member, now) for member in stale}
        return [member for member, since in seen.items() if now - since > self._settings.store_timeout]


def _held(reply: list[bytes | None]) -> Held | None:
    worker, epoch, over = reply
    if worker is None or epoch is None or over is not None:
        return None
    return Held(_text(worker), int(epoch))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
