"""The limit that only the memory store has: `max_store_bytes`."""

from __future__ import annotations

from gateway.errors import Unavailable
from gateway.settings import Settings
from gateway.stores.base import Lease, Store
from gateway.stores.memory import MemoryStore
from tests.conformance.stores import frames, new_run, record

KIB = 1024


async def finish(store: Store, lease: Lease) -> None:
    over = record(lease.key.run_id, lease.key.owner, status="completed", ended_at=1_700_000_000.0)
    await store.append(lease, 1, [], over)


async def kept(store: Store) -> list[str]:
    return [item.key.run_id for item in (await store.list_runs("anon:ada")).items]


def store_of(size: int) -> MemoryStore:
    return MemoryStore(Settings(max_store_bytes=size), clock=lambda: 1_700_000_000.0)


async def test_a_full_store_forgets_finished_runs_first() -> None:
    async with store_of(300 * KIB) as store:
        for number in range(5):
            lease = await new_run(store, f"run-{number}")
            await store.append(lease, 1, frames(1, 100, KIB))
            await finish(store, lease)
        before = await kept(store)
        await new_run(store, "next")
        assert "run-0" not in await kept(store)
        assert before[0] == "run-4"


async def test_a_store_full_of_living_runs_takes_no_new_one() -> None:
    async with store_of(200 * KIB) as store:
        leases: list[Lease] = []
        while await takes_more(store, len(leases)):
            # Each too small to lose anything: what is not sealed yet always stays.
            lease = await new_run(store, f"run-{len(leases)}")
            await store.append(lease, 1, frames(1, 70, KIB))
            leases.append(lease)
            assert len(leases) < 40, "the store took everything"
        for lease in leases[:4]:
            await finish(store, lease)
        await new_run(store, "again")


async def takes_more(store: Store, number: int) -> bool:
    try:
        await new_run(store, f"probe-{number}", "anon:probe")
    except Unavailable as error:
        if error.code != "store_full":
            raise
        return False
    return True
