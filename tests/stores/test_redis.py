"""What only the Redis store promises: several workers, its keys, and what it says of a server it cannot use."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import Fenced, NotFound, StoreError
from gateway.run.questions import Question
from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import QuestionChanged, StopRequest, Ticket
from gateway.stores.redis_keys import Keys
from gateway.stores.redis_store import RedisStore
from gateway.stores.redis_tail import RunFeed
from gateway.stores.values import dump
from tests.conformance.stores import LONG, Clock, frame, frames, new_run, read, record, rest
from tests.support.redis import RedisServer, new_prefix, redis_server, shared_redis

__all__ = ["redis_server"]  # a fixture

OpenRedis = Callable[..., Awaitable[RedisStore]]
KEY = RunKey("anon:ada", "run-1")
QUESTION = Question("i-1", "call-1", "tool", 1_700_000_000.0, message="Which?")
NOW = 1_700_000_000.0
TAG = re.compile(r"\{(.+?)\}")


@pytest.fixture
def prefix() -> str:
    return new_prefix()


@pytest.fixture
async def open_redis(prefix: str) -> AsyncIterator[OpenRedis]:
    """Opens stores that share runs, as the workers of one gateway do."""
    async with AsyncExitStack() as stack:

        async def opens(url: str | None = None, clock: Clock | None = None, **settings: Any) -> RedisStore:
            chosen = Settings(**{"redis_prefix": prefix, **settings})
            return await stack.enter_async_context(RedisStore(url or shared_redis().url, chosen, clock))

        yield opens


def names(prefix: str) -> list[str]:
    with shared_redis().client() as client:
        found: Any = client.keys(f"{prefix}*")
        return sorted(name.decode() for name in found)


# -- several workers --


async def test_a_viewer_of_another_worker_sees_every_event_as_it_comes_and_the_end(open_redis: OpenRedis) -> None:
    one, two = await open_redis(), await open_redis()
    lease = await new_run(one)
    writer = one.writer(lease)
    early = two.follow(KEY, 0)
    for number in range(1, 6):
        reading = asyncio.create_task(read(early))
        await asyncio.sleep(0)
        writer.write(frame(number))
        assert await reading == frame(number)
    writer.write(b"".join(frames(6, 2_000, 200)), 1_995)
    writer.save(replace(record(), status="completed", ended_at=NOW))
    late = two.follow(KEY, 1_000)
    assert await rest(early) == b"".join(frames(6, 2_000, 200))
    assert await rest(late) == b"".join(frames(1_001, 2_000, 200))
    assert (await two.get(KEY)) == replace(record(), status="completed", ended_at=NOW, last_event_id=2_000)


async def test_many_runs_of_another_worker_are_followed_over_few_connections(
    open_redis: OpenRedis, redis_server: RedisServer
) -> None:
    one, two = await open_redis(redis_server.url), await open_redis(redis_server.url)
    leases = [await new_run(one, f"run-{number}") for number in range(60)]
    readings = [asyncio.create_task(read(two.follow(lease.key, 0))) for lease in leases for _ in range(3)]
    await asyncio.sleep(0.1)
    with redis_server.client() as client:
        listed: Any = client.client_list()
    assert len(listed) <= 2 * 4 + 1
    for lease in leases:
        one.writer(lease).write(frame(1))
    async with asyncio.timeout(LONG):
        assert set(await asyncio.gather(*readings)) == {frame(1)}


async def test_a_viewer_goes_on_when_another_worker_takes_the_run_over(open_redis: OpenRedis) -> None:
    one, two = await open_redis(), await open_redis()
    old = await new_run(one)
    await one.append(old, 1, frames(1, 3))
    viewers = [one.follow(KEY, 0), two.follow(KEY, 0)]
    for viewer in viewers:
        assert await read(viewer) == b"".join(frames(1, 3))
    new = await two.take_over(KEY, "worker-2")
    assert new is not None
    await two.append(new, 4, frames(4, 5), replace(record(), status="failed", ended_at=NOW))
    one.writer(old).write(frame(4))
    with pytest.raises(Fenced):
        await one.writer(old).flush()
    for viewer in viewers:
        assert await rest(viewer) == b"".join(frames(4, 5))


async def test_a_silent_writer_hears_that_it_was_superseded(open_redis: OpenRedis) -> None:
    one, two = await open_redis(), await open_redis()
    writer = one.writer(await new_run(one))
    hearing = asyncio.ensure_future(anext(one.messages("worker-1")))
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer.on_lost(lost.set_result)
    await asyncio.sleep(0)
    await two.take_over(KEY, "worker-2")
    async with asyncio.timeout(LONG):
        assert await lost == "superseded"
    with pytest.raises(Fenced):
        await writer.flush()
    hearing.cancel()


async def test_a_silent_writer_learns_that_its_run_was_taken_over_and_ended(open_redis: OpenRedis) -> None:
    one, two = await open_redis(lease_seconds=0.2), await open_redis()
    writer = one.writer(await new_run(one))
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    viewer = one.follow(KEY, 0)
    lease = await two.take_over(KEY, "worker-2")
    assert lease is not None
    await two.append(lease, 1, frames(1, 3), replace(record(), status="failed", ended_at=NOW))
    writer.on_lost(lost.set_result)
    async with asyncio.timeout(LONG):
        assert await lost == "superseded"
        assert await rest(viewer) == b"".join(frames(1, 3))


async def test_stop_and_answers_reach_the_worker_that_has_the_run(open_redis: OpenRedis) -> None:
    one, two = await open_redis(), await open_redis()
    await one.ask(await new_run(one), QUESTION)
    messages = one.messages("worker-1")
    hearing = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    stop = StopRequest(KEY, "user", "enough")
    await two.request_stop(stop)
    async with asyncio.timeout(LONG):
        assert await hearing == stop
        assert await two.replace_questions(KEY, [(QUESTION, replace(QUESTION, closed=True))])
        assert await anext(messages) == QuestionChanged(KEY, "i-1")
    found = await one.get(KEY)
    assert found is not None
    assert found.stop_requested == "user"


async def test_of_two_workers_that_find_an_orphan_one_gets_it(open_redis: OpenRedis) -> None:
    clock = Clock()
    one, two = await open_redis(clock=clock), await open_redis(clock=clock)
    for worker in ("worker-1", "worker-2", "worker-3"):
        await one.renew(worker)
    for number in range(4):
        await new_run(one, f"run-{number}")
    over = await new_run(one, "over")
    await one.append(over, 1, frames(1, 1), replace(record("over"), status="completed", ended_at=NOW))
    assert await two.take_over(KEY, "worker-2", orphaned=True) is None
    clock.now += 14
    await one.renew("worker-2")
    await asyncio.to_thread(one.renew_blocking, "worker-3")
    assert await two.orphans() == []
    clock.now += 2
    assert sorted(await two.workers()) == ["worker-2", "worker-3"]
    keys = [RunKey("anon:ada", f"run-{number}") for number in range(4)]
    assert sorted(await two.orphans()) == keys
    for key in keys:
        leases = await asyncio.gather(
            one.take_over(key, "worker-2", orphaned=True), two.take_over(key, "worker-3", orphaned=True)
        )
        assert len([lease for lease in leases if lease is not None]) == 1
    assert await one.orphans() == []


async def test_a_run_that_a_worker_makes_while_it_seems_dead_is_found_when_it_is(
    open_redis: OpenRedis, prefix: str
) -> None:
    one, two = await open_redis(store_timeout=0.3), await open_redis(store_timeout=0.3)
    await one.renew("worker-2")
    with shared_redis().client() as client:  # as far as `create` has come when the other one looks
        client.zadd(Keys(prefix).workers, {"worker-1": 0})
        client.sadd(Keys(prefix).held("worker-1"), dump(KEY))
    assert await two.orphans() == []
    await new_run(one)
    assert await two.orphans() == [KEY]
    assert await two.take_over(KEY, "worker-2", orphaned=True) is not None


async def test_what_leads_to_no_run_is_taken_out_in_time(open_redis: OpenRedis, prefix: str) -> None:
    store = await open_redis(store_timeout=0.3)
    with shared_redis().client() as client:
        client.zadd(Keys(prefix).workers, {"worker-1": 0})
        client.sadd(Keys(prefix).held("worker-1"), dump(KEY))
        assert await store.orphans() == []
        assert client.exists(Keys(prefix).held("worker-1"))
        await asyncio.sleep(0.4)
        for _ in range(3):
            assert await store.orphans() == []
        assert names(prefix) == []


async def test_what_a_retired_worker_holds_is_an_orphan_at_once(open_redis: OpenRedis) -> None:
    store = await open_redis()
    await store.renew("worker-1")
    await new_run(store)
    assert (await store.workers(), await store.orphans()) == (["worker-1"], [])
    await store.retire("worker-1")
    assert (await store.workers(), await store.orphans()) == ([], [KEY])
    assert await store.take_over(KEY, "worker-2", orphaned=True) is not None


# -- a cancel --


async def test_a_run_whose_creation_was_cancelled_is_not_left_behind(open_redis: OpenRedis) -> None:
    store = await open_redis()
    for turns in range(12):
        creating = asyncio.create_task(store.create(record(), b"f", "worker-1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        if creating.cancelled():
            async with asyncio.timeout(LONG):
                while await store.get(KEY) is not None:
                    pass  # it is being forgotten
        else:
            lease = creating.result().lease
            assert lease is not None
            await store.discard(lease)
        assert (await store.list_runs("anon:ada")).items == []


# -- keys --


async def test_the_keys_of_a_run_are_in_one_slot_and_different_runs_are_spread(open_redis: OpenRedis) -> None:
    store, keys = await open_redis(), Keys("any:")
    lease = await new_run(store)
    await store.ask(lease, QUESTION)
    await store.request_stop(StopRequest(KEY, "user"))
    await store.append(lease, 1, frames(1, 2))
    assert len({slot(name.decode()) for name in keys.run(KEY)}) == 1
    assert slot(keys.owner("ada").decode()) == slot(keys.thread("ada", "t").decode())
    assert slot(keys.held("w").decode()) == slot(keys.messages("w").decode())
    runs = [RunKey(owner, f"run-{number}") for owner in (None, "a}b", "{", "") for number in range(10)]
    assert len({slot(keys.run(key).run.decode()) for key in runs}) > 30


async def test_every_key_has_one_hash_tag_and_no_id(open_redis: OpenRedis, prefix: str) -> None:
    store = await open_redis()
    lease = await new_run(store, "secret-id", None)
    await store.append(lease, 1, frames(1, 2))
    await store.ask(lease, QUESTION)
    await store.put_ticket(Ticket("secret-digest", lease.key, "share", None))
    found = names(prefix)
    assert len(found) >= 5
    for name in found:
        assert len(TAG.findall(name)) == 1
        assert "secret" not in name


def slot(name: str) -> int:
    """As a cluster computes it: CRC16 of what stands in the first braces."""
    match = TAG.search(name)
    assert match is not None
    crc = 0
    for byte in match[1].encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ (0x1021 if crc & 0x8000 else 0)
        crc &= 0xFFFF
    return crc % 16384


def test_the_slot_is_computed_as_redis_does() -> None:
    # The check value of CRC16/XMODEM, which Redis's specification names for its slots.
    assert slot("{123456789}") == 0x31C3 % 16384


async def test_prefixes_keep_gateways_apart(open_redis: OpenRedis) -> None:
    one, two = await open_redis(), await open_redis(redis_prefix=new_prefix())
    await one.ask(await new_run(one), QUESTION)
    await one.renew("worker-1")
    assert await two.get(KEY) is None
    assert await two.find_question("i-1") is None
    assert await two.workers() == []
    assert (await two.list_runs("anon:ada")).items == []
    assert (await two.create(record(), b"another", "worker-2")).lease is not None


async def test_what_belongs_to_a_finished_run_expires_and_nothing_of_a_live_one(
    open_redis: OpenRedis, prefix: str
) -> None:
    store = await open_redis(run_ttl=60, interrupt_ttl=600)
    for run_id in ("completed", "interrupted", "running"):
        lease = await new_run(store, run_id)
        await store.append(lease, 1, frames(1, 2))
        await store.ask(lease, replace(QUESTION, interrupt_id=run_id))
        await store.request_stop(StopRequest(lease.key, "user"))
        await store.set_watching(lease.key, "worker-2", watching=True)
        if run_id != "running":
            await store.append(lease, 3, [], replace(record(run_id), status=run_id, ended_at=NOW))
    with shared_redis().client() as client:
        for run_id, low, high in (("completed", 30, 60), ("interrupted", 600, 660), ("running", -1, -1)):
            keys = Keys(prefix).run(RunKey("anon:ada", run_id))
            for name in set(keys) - {keys.aside}:
                left: Any = client.ttl(name)
                assert low <= left <= high


async def test_a_list_skips_what_redis_has_forgotten_and_takes_it_out(open_redis: OpenRedis, prefix: str) -> None:
    clock = Clock()
    store = await open_redis(clock=clock)
    for number in range(5):
        await new_run(store, f"run-{number}", thread_id=f"thread-{number % 2}")
    keys = Keys(prefix)
    with shared_redis().client() as client:
        client.delete(*keys.run(RunKey("anon:ada", "run-2")))
        ids = [item.key.run_id for item in (await store.list_runs("anon:ada")).items]
        assert ids == ["run-4", "run-3", "run-1", "run-0"]
        assert client.zcard(keys.owner("anon:ada")) == 5  # it may be about to be made
        clock.now += 120
        await store.list_runs("anon:ada")
        await store.list_runs("anon:ada", thread_id="thread-0")
        await store.get(KEY)
        assert client.zcard(keys.owner("anon:ada")) == 4
        assert client.zcard(keys.thread("anon:ada", "thread-0")) == 2


async def test_the_index_of_a_busy_owner_does_not_grow_with_what_is_forgotten(
    open_redis: OpenRedis, prefix: str
) -> None:
    clock = Clock()
    store = await open_redis(clock=clock)
    keys = Keys(prefix)
    with shared_redis().client() as client:
        for number in range(600):
            clock.now += 61
            await new_run(store, f"run-{number}")
            client.delete(*keys.run(RunKey("anon:ada", f"run-{number}")))
        await store.get(KEY)
        left: Any = client.zcard(keys.owner("anon:ada"))
    assert left < 300


async def test_a_ticket_is_for_its_run_and_not_for_a_later_one_of_its_name(open_redis: OpenRedis) -> None:
    store = await open_redis()
    lease = await new_run(store)
    ticket = Ticket("digest", KEY, "share", None)
    await store.put_ticket(ticket)
    assert await store.ticket("digest") == ticket
    await store.discard(lease)
    assert await store.ticket("digest") is None
    await new_run(store)
    assert await store.ticket("digest") is None


async def test_large_events_and_pages_arrive_whole(open_redis: OpenRedis) -> None:
    """Larger than a block, than a page, and many small ones between."""
    one, two = await open_redis(), await open_redis()
    lease = await new_run(one)
    sizes = [0, 300_000, 5, 70_000, 900_000, *([40] * 3_000), 65_536, 1]
    items = [frame(number, size) for number, size in enumerate(sizes, 1)]
    writer = one.writer(lease)
    for number, item in enumerate(items):
        writer.write(item)
        if number % 100 == 0:
            await writer.flush()
    writer.save(replace(record(), status="completed", ended_at=NOW))
    await writer.flush()
    for cursor in (0, 1, 2, 3, 6, 1_000, len(items) - 1, len(items), len(items) + 5):
        assert await rest(two.follow(KEY, cursor)) == b"".join(items[cursor:])


async def test_a_large_batch_is_fenced_and_leaves_the_log_as_it_was(open_redis: OpenRedis, prefix: str) -> None:
    """Its frames do not go through the script that checks the lease."""
    one, two = await open_redis(), await open_redis()
    old = await new_run(one)
    await one.append(old, 1, frames(1, 300, 1_000))
    new = await two.take_over(KEY, "worker-2")
    assert new is not None
    with pytest.raises(Fenced):
        await one.append(old, 301, frames(301, 600, 2_000))
    await two.append(new, 301, frames(301, 600, 1_000), replace(record(), status="failed", ended_at=NOW))
    assert await rest(one.follow(KEY, 0)) == b"".join(frames(1, 600, 1_000))
    with shared_redis().client() as client:
        assert not client.exists(Keys(prefix).run(KEY).aside)


async def test_a_large_batch_of_a_run_that_is_gone_leaves_nothing_behind(open_redis: OpenRedis, prefix: str) -> None:
    store = await open_redis()
    lease = await new_run(store)
    await store.append(lease, 1, frames(1, 3))
    keys = Keys(prefix).run(KEY)
    with shared_redis().client() as client:
        client.delete(*keys)
        with pytest.raises(StoreError):
            await store.append(lease, 4, frames(4, 300, 1_000))
        assert client.exists(*keys) == 0


async def test_a_feed_that_missed_something_is_read_in_pages_up_to_what_it_has() -> None:
    feed = RunFeed(KEY, Keys("any:").run(KEY))
    feed.open(3, False)
    feed.take([(4, 5, b"".join(frames(4, 5)))])
    feed.take([(4, 5, b"".join(frames(4, 5)))])
    assert (feed.log.first, feed.log.last) == (4, 5)
    feed.take([(8, 9, b"".join(frames(8, 9)))])
    assert (feed.log.first, feed.log.last) == (8, 9)
    assert feed.log.read(8).data == frame(9)


# -- servers that cannot be used --


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_drops_keys_is_refused(redis_server: RedisServer, policy: str) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory-policy", policy)
    with pytest.raises(StoreError, match=f"{policy}; set it to noeviction"):
        async with RedisStore(redis_server.url, Settings()):
            pass


async def test_a_redis_that_does_not_tell_its_policy_is_warned_about(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "ada", "on", ">hush", "~*", "+@all", "-info", "-config")
    url = redis_server.url.replace("redis://", "redis://ada:hush@")
    with caplog.at_level(logging.WARNING, "gateway"):
        async with RedisStore(url, Settings()) as store:
            await new_run(store)
    assert "noeviction" in caplog.text
    assert "hush" not in caplog.text


async def test_no_password_is_told(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    with redis_server.client() as client:
        client.config_set("requirepass", "open-sesame")
    url = redis_server.url.replace("redis://", "redis://:hush@")
    with pytest.raises(StoreError, match="Redis cannot be used") as refused:
        async with RedisStore(url, Settings()):
            pass
    assert "hush" not in repr(refused.value) + str(refused.value) + caplog.text
    for wrong in ("redis://:hush@host:port/0", "http://:hush@host"):
        with pytest.raises(StoreError) as useless:
            RedisStore(wrong, Settings())
        assert "hush" not in str(useless.value)


async def test_no_redis_at_all(redis_server: RedisServer) -> None:
    redis_server.kill()
    with pytest.raises(StoreError):
        async with RedisStore(redis_server.url, Settings(store_timeout=0.2)):
            pass


async def test_a_run_that_is_nowhere_cannot_be_followed(open_redis: OpenRedis) -> None:
    store = await open_redis()
    follower = store.follow(KEY, 0)
    for _ in range(2):
        with pytest.raises(NotFound):
            await read(follower)
    lease = await new_run(store)
    store.writer(lease).write(frame(1))
    assert await read(follower) == frame(1)


def test_without_the_library_the_extra_is_named() -> None:
    code = "import sys; sys.modules['redis'] = None; import gateway.stores.redis_store"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "agui-gateway[redis]" in done.stderr
