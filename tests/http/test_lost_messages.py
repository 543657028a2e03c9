"""Stop is state: it works, from another worker too, when the message about it gets lost (contract 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway import ToolContext, tool
from tests.http.asking import Gates, Reader, agent_body, ask, waits
from tests.http.site import ME, Site, serving
from tests.stores.sqlite_stores import change, rows
from tests.support.redis import new_prefix, shared_redis

LOSES = "CREATE TRIGGER lose BEFORE INSERT ON messages BEGIN SELECT RAISE(IGNORE); END"
# All that a worker writes, but for the messages to others.
WRITES = ("run:*", "workers}", "owner:*", "worker:*}:runs", "process:*", "question:*", "notes:*", "session:*")


@tool(timeout=0)
async def lingers(ctx: ToolContext) -> None:
    """Takes its time to unwind."""
    ctx.emit_custom_event("came", {})
    try:
        await asyncio.Event().wait()
    finally:
        ctx.context["told to leave"].set()
        await ctx.context["go"].wait()


class Deaf(NamedTuple):
    """`one` runs, `other` is asked, and no message comes through."""

    one: Site
    other: Site
    gates: Gates


@contextmanager
def mute(prefix: str) -> Iterator[str]:
    """The URL of a Redis user that may write no message."""
    name, url = f"mute-{prefix}", shared_redis().url
    keys = [f"~{prefix}{{{part}" for part in WRITES]
    with shared_redis().client() as client:
        client.execute_command("ACL", "SETUSER", name, "on", ">secret", "+@all", "%R~*", *keys)
        yield url.replace("redis://", f"redis://{name.replace(':', '%3A')}:secret@")
        client.acl_deluser(name)


@pytest.fixture(params=["sqlite", "redis"])
async def deaf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deaf]:
    gates, path = Gates(), tmp_path / "runs.db"
    options: dict[str, Any] = {"context": gates, "beside_others": True}
    if request.param == "sqlite":
        options["store"] = f"sqlite:///{path}"
        async with serving(waits, lingers, **options) as one, serving(waits, lingers, **options) as other:
            change(path, LOSES)
            yield Deaf(one, other, gates)
            assert rows(path, "SELECT * FROM messages") == []
        return
    options["redis_prefix"] = prefix = new_prefix()
    with mute(prefix) as url:
        options["store"] = shared_redis().url
        async with (
            serving(waits, lingers, **options) as one,
            serving(waits, lingers, **{**options, "store": url}) as other,
        ):
            yield Deaf(one, other, gates)
            with shared_redis().client() as client:
                assert list(client.scan_iter(f"{prefix}*:messages")) == []


async def test_stop_of_a_run_and_of_a_call_works_from_the_other_worker_although_nobody_is_told(deaf: Deaf) -> None:
    body = agent_body(ask(("c1", "waits", {"name": "one"}), ("c2", "waits", {"name": "two"})), runId="a")
    reader = Reader(await deaf.one.open("/agents/tools", body, ME))
    await reader.until("came")
    await reader.until("came")
    stopped = await deaf.other.client.post("/runs/a/tool-calls/c1/stop", headers=ME)
    assert stopped.status_code == 202
    result = (await reader.until("tool.result"))["value"]
    assert (result["toolCallId"], result["status"]) == ("c1", "cancelled")
    assert (await deaf.other.client.post("/runs/a/stop", headers=ME)).status_code == 202
    assert (await reader.until("run.stopping"))["value"]["reason"] == "user"
    events = await reader.rest()
    assert events[-1]["outcome"] == {"type": "cancelled"}
    record = (await deaf.other.client.get("/runs/a?wait=20", headers=ME)).json()
    assert record["status"] == "cancelled"


async def test_a_stop_that_its_worker_has_not_heard_of_counts_when_it_leaves(deaf: Deaf) -> None:
    reader = Reader(await deaf.one.open("/tools/waits", {"runId": "a", "threadId": "t"}, ME))
    await reader.until("came")
    assert (await deaf.other.client.post("/runs/a/stop", headers=ME)).status_code == 202
    await deaf.one.gateway.drain()
    record = (await deaf.other.client.get("/runs/a?wait=20", headers=ME)).json()
    assert (record["status"], record["toolCalls"][0]["status"]) == ("cancelled", "cancelled")


async def test_a_stop_while_a_shutdown_is_ending_the_run_counts(deaf: Deaf) -> None:
    reader = Reader(await deaf.one.open("/tools/lingers", {"runId": "a", "threadId": "t"}, ME))
    await reader.until("came")
    draining = asyncio.create_task(deaf.one.gateway.drain())
    await deaf.gates["told to leave"].wait()
    stopped = (await deaf.other.client.post("/runs/a/stop", headers=ME)).json()
    deaf.gates["go"].set()
    await draining
    record = (await deaf.other.client.get("/runs/a?wait=20", headers=ME)).json()
    if "endedAt" in stopped:  # a machine that is very busy
        assert record["status"] == "failed"
    else:
        assert (record["status"], record["reason"], record["outcome"]) == ("cancelled", "user", {"type": "cancelled"})
        assert record["toolCalls"][0]["status"] == "interrupted"
