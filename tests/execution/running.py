"""Runs tools as the gateway does, without HTTP: a real supervisor, a real store, and what every run must look like."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.middleware import Middleware
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.supervisor import RunSpec, Supervisor, no_context
from gateway.execution.tools import Tool
from gateway.run.order import TERMINALS, OrderMachine
from gateway.run.records import RunKey, RunRecord
from gateway.settings import Settings
from gateway.stores.base import StopRequest
from gateway.stores.memory import MemoryStore
from gateway.wire.sse import Decoder

__all__ = ["Desk", "Numbered", "Stage", "check_stream", "desk", "events_of", "parse", "quiet"]

LONG = 20  # seconds; reached only by a test that fails
EVENT: TypeAdapter[Any] = TypeAdapter(Event)

Numbered = tuple[int, dict[str, Any]]


@dataclass
class Stage:
    """What tools of a test get as `ctx.context`: doors that the test opens, and a place to leave things."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    thread_go: threading.Event = field(default_factory=threading.Event)
    notes: list[Any] = field(default_factory=list)

    def open(self) -> None:
        self.go.set()
        self.thread_go.set()


@dataclass
class Desk:
    """A supervisor at work. `stage` is the context of the runs that are given no other."""

    supervisor: Supervisor
    store: MemoryStore
    stage: Stage

    async def start(
        self,
        *tools: Tool | str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float = 10,
        context: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        on_disconnect: str | None = None,
        disconnect_grace: float | None = None,
        owner: str | None = None,
        run_id: str | None = None,
        others: Sequence[Tool] = (),
    ) -> LiveRun:
        """Starts a run of one call a tool, side by side; a str is the name of a tool that is not there.

        `others` are there for nested calls.
        """
        names = [(f"call-{number}", item) for number, item in enumerate(tools, 1)]
        caller = Caller("request-1", "anon:somebody", owner=owner)

        def prepare(run: LiveRun) -> None:
            for call_id, item in names:
                known = None if isinstance(item, str) else item
                limit = timeout if known is None or known.timeout is None else known.timeout
                Call(run, call_id, item if isinstance(item, str) else item.name, known, arguments or {}, limit)

        async def job(run: LiveRun, executor: Executor, value: Any) -> Any:
            outputs = await asyncio.gather(
                *(executor.execute(run.calls[call_id], caller, value) for call_id, _ in names)
            )
            return None if outputs[0] is None else outputs[0].to_wire()

        spec = RunSpec(
            key=RunKey(owner, run_id or uuid.uuid4().hex),
            thread_id="thread-1",
            agent="tools",
            fingerprint=b"",
            caller=caller,
            prepare=prepare,
            job=job,
            context=context or partial(no_context, self.stage),
            tools=SessionTools(Registry(others)),
            on_disconnect=on_disconnect,
            disconnect_grace=disconnect_grace,
        )
        await self.supervisor.start(spec)
        run = self.supervisor.live(spec.key)
        assert run is not None
        return run

    async def saw(self, run: LiveRun, name: str) -> dict[str, Any]:
        """Waits until the run has a CUSTOM event of this name (or an event of this type), and returns it."""
        return await self._first(run, lambda event: name in (event.get("name"), event["type"]), name)

    async def ended(self, run: LiveRun, call_id: str) -> dict[str, Any]:
        """Waits until a call, perhaps a nested one, has its result, and returns that event."""

        def is_it(event: Mapping[str, Any]) -> bool:
            return event.get("name") == "tool.result" and event["value"]["toolCallId"] == call_id

        return await self._first(run, is_it, f"the result of {call_id}")

    async def _first(self, run: LiveRun, wanted: Callable[[Mapping[str, Any]], bool], what: str) -> dict[str, Any]:
        decoder = Decoder()
        async with asyncio.timeout(LONG):
            async for data in self.store.follow(run.key, 0):
                for message in decoder.feed(data):
                    event: dict[str, Any] = json.loads(message.data)
                    if wanted(event):
                        return event
        raise AssertionError(f"The run ended without {what}")

    async def stop(self, run: LiveRun, call_id: str | None = None) -> RunRecord | None:
        """Presses Stop."""
        return await self.supervisor.stop(StopRequest(run.key, "user", None, call_id))

    async def finish(self, run: LiveRun) -> tuple[RunRecord, list[dict[str, Any]]]:
        """Waits for the end of the run; checks that its stream is what every stream must be."""
        async with asyncio.timeout(LONG):
            await run.done.wait()
        numbered = await events_of(self.store, run.key)
        record = await self.store.get(run.key)
        assert record is not None
        check_stream(numbered, record)
        return record, [event for _, event in numbered]

    async def outcome(self, tool: Tool | str, **options: Any) -> tuple[RunRecord, list[dict[str, Any]]]:
        """Runs a tool to its end."""
        return await self.finish(await self.start(tool, **options))


@asynccontextmanager
async def desk(middleware: Sequence[Middleware] = (), **options: Any) -> AsyncIterator[Desk]:
    """A supervisor; afterwards nothing of it is left: no task, and only threads that nobody can end."""
    before = asyncio.all_tasks()
    settings = Settings(**{"stop_grace": 0.3, **options})
    stage = Stage()
    async with MemoryStore(settings) as store:
        supervisor = Supervisor(settings, store, middleware)
        await supervisor.open()
        try:
            yield Desk(supervisor, store, stage)
        finally:
            stage.open()
            await supervisor.close()
            assert supervisor.threads.threads <= settings.max_threads
            assert not supervisor._per_session
            assert not supervisor.active
    await quiet(lambda: asyncio.all_tasks() <= before)


async def quiet(condition: Callable[[], bool]) -> None:
    """Lets tasks that were ended take their last steps."""
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110 - other tasks' last steps set no event
            await asyncio.sleep(0)


def parse(data: bytes) -> list[Numbered]:
    """Events with their numbers from the bytes of a stream."""
    decoder = Decoder()
    return [(int(message.id or 0), json.loads(message.data)) for message in (*decoder.feed(data), *decoder.close())]


async def events_of(store: MemoryStore, key: RunKey, cursor: int = 0) -> list[Numbered]:
    """Everything that a viewer sees who comes now and stays to the end."""
    async with asyncio.timeout(LONG):
        return parse(b"".join([data async for data in store.follow(key, cursor)]))


def check_stream(numbered: Sequence[Numbered], record: RunRecord | None = None) -> None:
    """The contract of every run's stream (4.1, 4.2): numbers, brackets, one terminal, last; and the record agrees."""
    events = check_order(numbered)
    assert events[0]["protocolVersion"] == "1.0"
    for call_id in {event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"}:
        _check_call([event for event in events if _call_of(event) == call_id])
    if record is not None:
        _check_record(record, events)


def check_order(numbered: Sequence[Numbered], *, typed: bool = True) -> list[dict[str, Any]]:
    """The events, which no number is missing from, and which the official verifier accepts.

    `typed`: they are also events of the official models, which takes most of the time.
    """
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    events = [event for _, event in numbered]
    machine = OrderMachine()
    for event in events:
        if typed:
            EVENT.validate_python(event)
        machine.feed(event["type"], event)
    types = [event["type"] for event in events]
    assert types[0] == "RUN_STARTED"
    assert [kind for kind in types if kind in TERMINALS] == [types[-1]]
    return events


def _call_of(event: Mapping[str, Any]) -> Any:
    return event["value"].get("toolCallId") if event["type"] == "CUSTOM" else event.get("toolCallId")


def _check_call(events: Sequence[Mapping[str, Any]]) -> None:
    """START → ARGS → END → CUSTOM * → CUSTOM tool.result → TOOL_CALL_RESULT."""
    types = [event["type"] for event in events]
    middle = len(events) - 4
    assert types == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", *["CUSTOM"] * middle, "TOOL_CALL_RESULT"]
    names = [event["name"] for event in events if event["type"] == "CUSTOM"]
    assert [name for name in names if name == "tool.result"] == [names[-1]]
    value, result = events[-2]["value"], events[-1]
    json.loads(events[1]["delta"])
    assert result["messageId"] == f"{result['toolCallId']}:result"
    assert result["role"] == "tool"
    assert (result.get("metadata") == {"tanstack": {"state": "output-error"}}) is value["isError"]
    assert ("error" in value) is value["isError"]
    if value["isError"]:
        code = value["error"]["code"]
        assert result["content"].startswith(f"Error [{code}]: ")
        assert value["structuredContent"]["error"]["code"] == code
        assert value["error"]["message"] == result["content"]


def _check_record(record: RunRecord, events: Sequence[Mapping[str, Any]]) -> None:
    terminal = events[-1]
    assert record.last_event_id == len(events)
    assert record.over
    if terminal["type"] == "RUN_ERROR":
        assert record.status == "failed"
        assert record.error is not None
        assert terminal["code"] == record.error["code"]
        assert terminal["message"] == record.error["message"]
        assert terminal["metadata"]["tanstack"] == {"runId": record.key.run_id, "threadId": record.thread_id}
    else:
        by_outcome = {"success": "completed", "cancelled": "cancelled", "interrupt": "interrupted"}
        assert record.outcome == terminal["outcome"]
        assert record.status == by_outcome[terminal["outcome"]["type"]]
        assert terminal["metadata"]["tanstack"]["finishReason"] == "stop"
    # Nested calls are not in the record.
    told = [e for e in events if e.get("name") == "tool.result" and "parentToolCallId" not in e.get("metadata", {})]
    results = {e["value"]["toolCallId"]: e["value"] for e in told}
    for call in record.calls:
        assert not call.open
        assert call.ended_at is not None
        assert call.status == results[call.call_id]["status"]
    assert {call.call_id for call in record.calls} == set(results)


Drive = Callable[[Desk, LiveRun], Awaitable[object]]
