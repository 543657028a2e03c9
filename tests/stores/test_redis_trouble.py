"""The Redis store while its server restarts, hangs, refuses, forgets: nothing is lost or doubled, or it is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import StoreError
from gateway.run.questions import Answer, Note, Question
from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import RunWriter, StopRequest, Ticket
from gateway.stores.redis_scripts import (
    APPEND,
    ASK,
    CREATE,
    DISCARD,
    NOTES,
    SOURCES,
    STOP,
    SWAP,
    SWAP_TICKET,
    TAKE_OVER,
)
from gateway.stores.redis_store import RedisStore
from tests.conformance.stores import LONG, frame, frames, new_run, read, record, rest
from tests.support.redis import LossyRedis, RedisServer, lossy, new_prefix, redis_server, shared_redis

__all__ = ["redis_server"]  # a fixture

KEY = RunKey("anon:ada", "run-1")
NOW = 1_700_000_000.0
QUESTION = Question("i-1", "call-1", "tool", NOW, message="Which?")


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    # It looks after its runs so seldom that only what a test does makes it look.
    async with RedisStore(redis_server.url, Settings(lease_seconds=600)) as opened:
        yield opened


@pytest.fixture
async def proxy() -> AsyncIterator[LossyRedis]:
    with shared_redis().client() as client:
        for source in SOURCES.values():
            client.script_load(source)  # one that is not known is not run, and losing that answer would test nothing
    async with lossy(shared_redis()) as opened:
        yield opened


@pytest.fixture
async def hasty(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    """A store that soon gives up."""
    async with RedisStore(redis_server.url, Settings(store_timeout=0.5)) as opened:
        yield opened


def losing(writer: RunWriter) -> asyncio.Future[str]:
    """What the writer says when nothing more will be stored; saying it twice is an error."""
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer.on_lost(lost.set_result)
    return lost


async def end(writer: RunWriter) -> None:
    writer.save(replace(record(), status="completed", ended_at=NOW))
    async with asyncio.timeout(LONG):
        await writer.flush()


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_restart_loses_and_doubles_nothing(store: RedisStore, redis_server: RedisServer, how: str) -> None:
    lease = await new_run(store)
    await store.ask(lease, QUESTION)
    writer = store.writer(lease)
    viewer = store.follow(KEY, 0)
    writer.write(b"".join(frames(1, 100)), 100)
    await writer.flush()
    assert await read(viewer) == b"".join(frames(1, 100))
    await asyncio.to_thread(getattr(redis_server, how))
    for number in range(101, 201):
        writer.write(frame(number))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(redis_server.start)
    await end(writer)
    assert await rest(viewer) == b"".join(frames(101, 200))
    assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 200))
    assert await store.questions(KEY) == [QUESTION]


async def test_connections_that_break_all_the_time_lose_and_double_nothing(
    store: RedisStore, redis_server: RedisServer
) -> None:
    """Appends, creations, Stops and answers, each counted once although it is sent again."""
    async with RedisStore(redis_server.url, Settings()) as other:
        lease = await new_run(store)
        writer = store.writer(lease)
        viewers = [asyncio.create_task(rest(reader.follow(KEY, 0))) for reader in (store, other)]
        made: list[Any] = []
        for number in range(1, 301):
            writer.write(frame(number, 100))
            if number % 10 == 0:
                breaking = asyncio.to_thread(redis_server.drop_connections)
                created, _, *_ = await asyncio.gather(
                    other.create(record(f"new-{number}"), b"f", "worker-2"),
                    other.request_stop(StopRequest(KEY, "user", str(number))),
                    breaking,
                )
                made.append(created.lease)
        await end(writer)
        assert all(lease is not None for lease in made)
        assert [stop.message for stop in await store.stop_requests(KEY)] == [str(n) for n in range(10, 301, 10)]
        for viewer in viewers:
            assert await viewer == b"".join(frames(1, 300, 100))
        assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 300, 100))


async def test_an_answer_that_is_lost_does_not_count_twice(proxy: LossyRedis) -> None:
    """Everything that is done again when nobody knows whether it was done."""
    async with RedisStore(proxy.url, Settings(redis_prefix=new_prefix())) as store:
        proxy.lose(CREATE.sha)
        lease = await new_run(store)
        writer = store.writer(lease)
        for number in range(1, 4):
            proxy.lose(APPEND.sha)
            writer.write(frame(number))
            await writer.flush()
        proxy.lose(STOP.sha)
        await store.request_stop(StopRequest(KEY, "user"))
        assert len(await store.stop_requests(KEY)) == 1
        proxy.lose(ASK.sha)
        await store.ask(lease, QUESTION)
        proxy.lose(SWAP.sha)
        answered = replace(QUESTION, answer=Answer("resolved", 1))
        assert await store.replace_questions(KEY, [(QUESTION, answered)])
        assert not await store.replace_questions(KEY, [(QUESTION, answered)])
        ticket = Ticket("digest", KEY, "follow", None)
        await store.put_ticket(ticket)
        proxy.lose(SWAP_TICKET.sha)
        assert await store.replace_ticket(ticket, replace(ticket, last_event_id=1))
        assert not await store.replace_ticket(ticket, replace(ticket, last_event_id=1))
        proxy.lose(NOTES.sha)
        await store.add_note("ada", "t", Note("job-1", "call-1", "Done.", 2e9))
        proxy.lose(NOTES.sha)
        assert len(await store.take_notes("ada", "t", "run-1")) == 1
        proxy.lose(TAKE_OVER.sha)
        assert (await store.take_over(KEY, "worker-2")) == (KEY, "worker-2", 2)
        proxy.lose(DISCARD.sha)
        await store.discard(await new_run(store, "run-2"))
        assert len(proxy.lost) == 12
        await store.append(lease._replace(worker="worker-2", epoch=2), 4, [], replace(record(), ended_at=NOW))
        assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 3))


async def test_large_batches_whose_answers_are_lost_are_stored_once(proxy: LossyRedis) -> None:
    async with RedisStore(proxy.url, Settings(redis_prefix=new_prefix())) as store:
        writer = store.writer(await new_run(store))
        viewer = asyncio.create_task(rest(store.follow(KEY, 0)))
        writer.write(frame(1))
        await writer.flush()
        for first in range(2, 1_002, 200):
            proxy.lose("EXEC\r\n")
            writer.write(b"".join(frames(first, first + 199, 1_000)), 200)
            async with asyncio.timeout(LONG):
                await writer.flush()
        assert len(proxy.lost) == 5
        await end(writer)
        expected = frame(1) + b"".join(frames(2, 1_001, 1_000))
        assert await viewer == expected
        assert await rest(store.follow(KEY, 0)) == expected


async def test_a_copy_that_comes_late_changes_nothing(proxy: LossyRedis) -> None:
    async with RedisStore(proxy.url, Settings(redis_prefix=new_prefix())) as store:
        writer = store.writer(await new_run(store))
        for status in ("running", "waiting", "stopping"):
            proxy.lose(APPEND.sha)
            writer.write(frame(1 + len(proxy.lost)))
            writer.save(replace(record(), status=status))
            await writer.flush()
        for request in proxy.lost[:2]:
            await proxy.repeat(request)
        found = await store.get(KEY)
        assert found is not None
        assert (found.status, found.last_event_id) == ("stopping", 3)
        await end(writer)
        assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 3))


async def test_nobody_sees_what_is_not_stored(store: RedisStore, redis_server: RedisServer) -> None:
    writer = store.writer(await new_run(store))
    viewer = store.follow(KEY, 0)
    writer.write(frame(1))
    assert await read(viewer) == frame(1)
    await asyncio.to_thread(redis_server.pause)
    writer.write(frame(2))
    reading = asyncio.create_task(read(viewer))
    await asyncio.sleep(0.2)
    assert not reading.done()
    assert writer.pending_bytes == len(frame(2))
    await asyncio.to_thread(redis_server.resume)
    assert await reading == frame(2)
    assert writer.pending_bytes == 0


@pytest.mark.parametrize("trouble", ["pause", "kill"])
async def test_after_store_timeout_the_writer_is_told_once(
    hasty: RedisStore, redis_server: RedisServer, trouble: str
) -> None:
    writer = hasty.writer(await new_run(hasty))
    lost = losing(writer)
    await asyncio.to_thread(getattr(redis_server, trouble))
    writer.write(frame(1))
    writer.write(frame(2))
    with pytest.raises(StoreError):
        async with asyncio.timeout(LONG):
            await writer.flush()
    assert await lost == "store"
    writer.write(frame(3))  # dropped
    assert writer.pending_bytes == 0
    with pytest.raises(StoreError):
        await writer.flush()
    with pytest.raises(StoreError):
        await hasty.get(KEY)


@pytest.mark.allow_blocking
@pytest.mark.parametrize("meanwhile", ["resume", "restart"])
async def test_a_process_that_stood_still_tries_again_before_it_gives_up(
    hasty: RedisStore, redis_server: RedisServer, meanwhile: str
) -> None:
    writer = hasty.writer(await new_run(hasty))
    writer.write(frame(1))
    await writer.flush()
    redis_server.pause()
    writer.write(frame(2))
    await asyncio.sleep(0.05)  # it has asked
    if meanwhile == "resume":
        redis_server.resume()
    else:
        redis_server.kill()
        redis_server.start()
    time.sleep(2)  # noqa: ASYNC251 - the loop stands still, as a process that was stopped
    await end(writer)
    assert await rest(hasty.follow(KEY, 0)) == b"".join(frames(1, 2))


async def test_viewers_of_another_workers_run_are_told_when_nothing_can_be_read(
    store: RedisStore, hasty: RedisStore, redis_server: RedisServer
) -> None:
    await store.append(await new_run(store), 1, frames(1, 1))
    viewer = hasty.follow(KEY, 0)
    assert await read(viewer) == frame(1)
    await asyncio.to_thread(redis_server.kill)
    with pytest.raises(StoreError):
        await read(viewer)
    await asyncio.to_thread(redis_server.start)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_redis_that_came_back_empty_has_lost_the_run(
    store: RedisStore, redis_server: RedisServer, silent: bool
) -> None:
    writer = store.writer(await new_run(store))
    lost = losing(writer)
    writer.write(frame(1))
    await writer.flush()
    await asyncio.to_thread(redis_server.kill)
    redis_server.forget()
    await asyncio.to_thread(redis_server.start)
    if silent:
        assert await store.get(KEY) is None  # whatever is asked: the connection is a new one
    else:
        writer.write(frame(2))
    async with asyncio.timeout(LONG):
        assert await lost == "store_lost"
    with pytest.raises(StoreError):
        await writer.flush()


async def test_scripts_that_the_server_has_forgotten_are_sent_again(
    store: RedisStore, redis_server: RedisServer
) -> None:
    lease = await new_run(store)
    with redis_server.client() as client:
        for number in range(1, 6):
            client.script_flush()
            await store.append(lease, number, [frame(number)])
        client.script_flush()
        await asyncio.to_thread(store.renew_blocking, "worker-1")
    assert await store.workers() == ["worker-1"]
    await end(store.writer(lease))
    assert await rest(store.follow(KEY, 0)) == b"".join(frames(1, 5))


@pytest.mark.parametrize(
    ("trouble", "cure"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),  # OOM
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),  # READONLY
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    ],
)
async def test_a_server_that_takes_no_writes_for_a_while_is_waited_for(
    store: RedisStore, redis_server: RedisServer, trouble: tuple[str, ...], cure: tuple[str, ...]
) -> None:
    lease = await new_run(store)
    await store.append(lease, 1, frames(1, 2))
    with redis_server.client() as client:
        client.execute_command(*trouble)
        writer = store.writer(lease)
        writer.write(b"".join(frames(3, 102, 1_000)), 100)
        creating = asyncio.create_task(store.create(record("run-2"), b"f", "worker-1"))
        await asyncio.sleep(0.3)
        assert writer.pending_bytes
        assert (await store.get(RunKey("anon:ada", "run-2"))) is None  # reading goes on
        client.execute_command(*cure)
    await end(writer)
    async with asyncio.timeout(LONG):
        assert (await creating).lease is not None
    assert await rest(store.follow(KEY, 0)) == b"".join([*frames(1, 2), *frames(3, 102, 1_000)])


async def test_a_thread_that_cannot_renew_is_told(hasty: RedisStore, redis_server: RedisServer) -> None:
    await asyncio.to_thread(hasty.renew_blocking, "worker-1")
    await asyncio.to_thread(redis_server.pause)
    with pytest.raises(StoreError):
        await asyncio.to_thread(hasty.renew_blocking, "worker-1")
    await asyncio.to_thread(redis_server.resume)
    await asyncio.to_thread(hasty.renew_blocking, "worker-1")


async def test_a_thread_that_renews_after_the_end_of_the_store_is_told(redis_server: RedisServer) -> None:
    async with RedisStore(redis_server.url, Settings()) as store:
        pass
    with pytest.raises(StoreError):
        await asyncio.to_thread(store.renew_blocking, "worker-1")
