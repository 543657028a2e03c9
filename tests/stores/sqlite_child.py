"""A worker in a process of its own: `python -m tests.stores.sqlite_child FILE WORKER COMMAND`, one line a fact.

`race N`: creates the runs 0 to N-1 as soon as a line comes on stdin; says which it got.
`write`: writes a run for ever; says the number of the last event that is stored.
`hold`: writes three events, and one more for each line on stdin; says what it hears.
`follow`: reads a run to its end; says when it waits, and all it has read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.errors import StoreError
from gateway.stores.base import Store
from gateway.stores.sqlite import SqliteStore
from tests.conformance.stores import frame, new_run, record


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def line() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def race(store: Store, worker: str, count: str) -> None:
    say("ready")
    await line()
    tries = [store.create(record(f"run-{n}"), b"same", worker) for n in range(int(count))]
    created = await asyncio.gather(*tries)
    say(" ".join(item.record.key.run_id for item in created if item.lease is not None))


async def write(store: Store, worker: str) -> None:
    lease = await new_run(store)
    writer = store.writer(lease)
    number = 0
    while True:
        for _ in range(number % 50 + 1):
            number += 1
            writer.write(frame(number, number % 2_000))
        writer.save(record(reason=str(number)))
        await writer.flush()
        say(number)


async def hold(store: Store, worker: str) -> None:
    lease = await new_run(store)
    writer = store.writer(lease)
    writer.on_lost(say)
    number = 3
    for item in map(frame, range(1, number + 1)):
        writer.write(item)
    await writer.flush()
    say("holds")
    while await line():
        number += 1
        writer.write(frame(number))
        try:
            await writer.flush()
            say("stored")
        except StoreError as error:
            say(type(error).__name__)


async def follow(store: Store, worker: str) -> None:
    follower = store.follow(record().key, 0)
    data = b""
    async for piece in follower:
        data += piece
        say(follower.cursor)
    say(data.hex())


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {"race": race, "write": write, "hold": hold, "follow": follow}


async def main(path: str, worker: str, command: str, *values: str) -> None:
    async with SqliteStore(Path(path)) as store:
        await COMMANDS[command](store, worker, *values)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
