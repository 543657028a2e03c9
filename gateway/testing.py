"""Helpers to test tools and clients of a gateway; nothing in here is needed to run one.

`run_tool` runs one tool through the real executor, without HTTP. `EventCollector` reads the stream of a running
gateway and survives lost connections; `disconnect_after` loses one on purpose.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Self, TypedDict, Unpack, cast

import httpx

from gateway.execution.call import Call
from gateway.execution.caller import AuthContext, Caller
from gateway.execution.jobs import CallsJob
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import ToolOutput
from gateway.execution.registry import Registry
from gateway.execution.session_tools import SessionTools
from gateway.execution.supervisor import RunSpec, Supervisor, no_context
from gateway.execution.tools import Tool, tool
from gateway.run.order import TERMINALS
from gateway.run.records import RunKey
from gateway.settings import Settings
from gateway.stores.base import StopRequest
from gateway.stores.memory import MemoryStore
from gateway.wire.codec import decode
from gateway.wire.sse import Decoder, Message

__all__ = ["ContextOptions", "Event", "EventCollector", "disconnect_after", "run_tool"]

Event = dict[str, Any]
"""One event in wire names: `{"type": "CUSTOM", "timestamp": 1764450000000, "name": …, "value": {…}, …}`."""


class ContextOptions(TypedDict, total=False):
    """What a test may say about the call that `run_tool` makes; every default is what a plain request would give.

    - `run_id`, `thread_id`, `tool_call_id`, `parent_run_id`, `request_id`, `client_request_id`: str.
    - `session_id`: as `ctx.session_id`, `anon:…` or `user:…`.
    - `auth`: who calls, an `AuthContext`.
    - `context`: what the tool sees as `ctx.context`.
    - `metadata`: keys that are added to `ctx.metadata`, `{"headers": {"mcp-x": "1"}}` for example.
    - `timeout`: seconds, 0 for ever; the default is the tool's own, else the gateway's.
    - `stop_when`: a function of each event; once it is true, Stop is pressed as a person does.
    - `settings`: fields of `Settings` by name, `{"stop_grace": 0.2, "strict_payloads": True}` for example.
    """

    run_id: str
    thread_id: str
    tool_call_id: str
    parent_run_id: str
    request_id: str
    client_request_id: str
    session_id: str
    auth: AuthContext
    context: Any
    metadata: Mapping[str, Any]
    timeout: float
    stop_when: Callable[[Event], object]
    settings: Mapping[str, Any]


async def run_tool(
    tool: Tool | Callable[..., Any], arguments: Mapping[str, Any], **ctx: Unpack[ContextOptions]
) -> tuple[ToolOutput, list[Event]]:
    """Runs a tool as the gateway does: a run of its own, the real executor, a store in memory, no HTTP.

    Returns what the call ended in and all events of the run in order, `RUN_STARTED` to the terminal one, as dicts.
    `tool` is what `@tool` made, or a plain function. The call is made whatever `visibility`, `requires` and
    `needs_approval` say: to keep callers away is the gateway's work. See `ContextOptions` for `ctx`.

    Never raises for an outcome: a tool that raises, arguments that do not fit, a time limit and Stop are outputs
    (`output.status`, `output.text`). Raises `TypeError` for an unknown keyword or what is no tool, and
    `pydantic.ValidationError` for settings that do not fit. Source: contract 2 and 5.1.

    ::

        output, events = await run_tool(import_rows, {"rows": ["a", "b"]})
        assert output.structured_content == {"imported": 2}
        assert [e["value"]["row"] for e in events if e.get("name") == "import.row"] == ["a", "b"]
    """
    unknown = sorted(set(ctx) - set(ContextOptions.__annotations__))
    if unknown:
        raise TypeError(f"run_tool has no option {', '.join(unknown)}.")
    made = tool if isinstance(tool, Tool) else _as_tool(tool)
    settings = Settings(**ctx.get("settings", {}))
    async with MemoryStore(settings) as store:
        supervisor = Supervisor(settings, store)
        await supervisor.open()
        try:
            spec = _spec(made, arguments, settings, ctx)
            await supervisor.start(spec)
            events = await _follow(supervisor, spec.key, ctx.get("stop_when"))
            record = await store.get(spec.key)
        finally:
            await supervisor.close()
    if record is None or record.result is None:
        raise RuntimeError(f"The run ended without an output: {events[-1]}")
    return ToolOutput.from_wire(cast("dict[str, Any]", decode(record.result))), events


def _as_tool(function: Callable[..., Any]) -> Tool:
    return tool(function)


def _spec(made: Tool, arguments: Mapping[str, Any], settings: Settings, ctx: ContextOptions) -> RunSpec:
    caller = Caller(
        request_id=ctx.get("request_id", uuid.uuid4().hex),
        session_id=ctx.get("session_id", f"anon:{uuid.uuid4().hex}"),
        client_request_id=ctx.get("client_request_id"),
        auth=ctx.get("auth"),
        metadata={
            "headers": {},
            "forwarded_props": {},
            "context": [],
            "client_tools": [],
            "client_request_id": ctx.get("client_request_id"),
            **ctx.get("metadata", {}),
        },
    )
    limit = ctx.get("timeout", settings.tool_timeout if made.timeout is None else made.timeout)
    call_id = ctx.get("tool_call_id", f"call_{uuid.uuid4().hex}")

    def prepare(run: LiveRun) -> None:
        Call(run, call_id, made.name, made, dict(arguments), limit)

    return RunSpec(
        key=RunKey(None, ctx.get("run_id", str(uuid.uuid4()))),
        thread_id=ctx.get("thread_id", str(uuid.uuid4())),
        agent="tools",
        fingerprint=b"",
        caller=caller,
        prepare=prepare,
        job=CallsJob(caller, single=True),
        context=partial(no_context, ctx.get("context")),
        parent_run_id=ctx.get("parent_run_id"),
        tools=SessionTools(Registry([made])),
    )


async def _follow(supervisor: Supervisor, key: RunKey, stop_when: Callable[[Event], object] | None) -> list[Event]:
    decoder, events = Decoder(), list[Event]()
    async for data in supervisor.store.follow(key, 0):
        for message in decoder.feed(data):
            events.append(_event(message))
            if stop_when is not None and stop_when(events[-1]):
                stop_when = None
                await supervisor.stop(StopRequest(key, "user"))
    return events


def _event(message: Message) -> Event:
    return cast("Event", decode(message.data))


class EventCollector:
    """Reads the stream of one run of a running gateway, and goes on where it was when the connection is lost.

    Make one with `start` (begins a run) or `follow` (joins one), then `await collector.collect()`, or
    `await collector.until(test)` for the first event that fits, or iterate over it. `client` is an `httpx.AsyncClient`
    whose `base_url` is where the gateway is; it may also be one with an `ASGITransport`.

    `events` are all events so far, as dicts, each exactly once; `last_event_id` is the number of the last of them;
    `reconnects` counts the connections that were lost. Raises `httpx.HTTPStatusError` for a refusal (its message has
    the body), `AssertionError` when an event is missing or comes twice, the transport's own error when the connection
    was lost more than `max_reconnects` times in a row without a new event, and `httpx.ReadTimeout` counts as lost.
    Source: contract 3 and 4.1.

    ::

        async with httpx.AsyncClient(base_url="http://127.0.0.1:8000") as client:
            collector = EventCollector.start(client, "/tools/import_rows", {"arguments": {"rows": ["a"]}})
            await collector.until(lambda event: event.get("name") == "import.row")
            events = await collector.collect()
        assert events[-1]["type"] == "RUN_FINISHED"
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        run_id: str,
        *,
        start: tuple[str, Mapping[str, Any]] | None = None,
        after: int = 0,
        headers: Mapping[str, str] | None = None,
        max_reconnects: int = 5,
        pause: float = 0.1,
        read_timeout: float = 60,
    ) -> None:
        self.run_id = run_id
        self.events: list[Event] = []
        self.last_event_id = after
        self.reconnects = 0
        self._client = client
        self._start = start
        self._headers = dict(headers or {})
        self._max_reconnects = max_reconnects
        self._pause = pause
        self._timeout = httpx.Timeout(client.timeout.connect, read=read_timeout)
        self._lost = 0
        self._read_to_end = False
        self._stream = self._read()

    @classmethod
    def start(cls, client: httpx.AsyncClient, path: str, body: Mapping[str, Any], **options: Any) -> Self:
        """Begins a run: `path` is `/tools/{name}` or `/agents/{agent}`; a `runId` is added where `body` has none.

        That id makes it safe to send the request again when nothing was received. `options`: `headers`,
        `max_reconnects` (5), `pause` (0.1 s before each), `read_timeout` (60 s; a gateway says something every 15 s).
        """
        run_id = str(body.get("runId") or uuid.uuid4())
        return cls(client, run_id, start=(path, {**body, "runId": run_id}), **options)

    @classmethod
    def follow(cls, client: httpx.AsyncClient, run_id: str, *, after: int = 0, **options: Any) -> Self:
        """Joins a run after the event with number `after`; 0 is the start. `options` as for `start`."""
        return cls(client, run_id, after=after, **options)

    @property
    def over(self) -> bool:
        """Whether the terminal event is among `events`."""
        return bool(self.events) and self.events[-1]["type"] in TERMINALS

    async def collect(self) -> list[Event]:
        """Reads to the end of the run; all events since this collector was made."""
        async for _ in self:
            pass
        return self.events

    async def until(self, test: Callable[[Event], object]) -> Event:
        """Reads up to the next event that fits; `AssertionError` when the run ends without one."""
        async for event in self:
            if test(event):
                return event
        raise AssertionError(f"The run {self.run_id!r} ended without such an event.")

    async def aclose(self) -> None:
        """Closes the connection; the events so far stay."""
        await self._stream.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._stream)

    async def _read(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                async with aclosing(self._one_connection()) as events:
                    async for event in events:
                        yield event
                if self.over or self._read_to_end:
                    return
                error: httpx.TransportError = httpx.RemoteProtocolError("The stream ended without its terminal event.")
            except httpx.TransportError as lost:
                error = lost
            self.reconnects += 1
            self._lost += 1
            if self._lost > self._max_reconnects:
                raise error
            await asyncio.sleep(self._pause)

    async def _one_connection(self) -> AsyncGenerator[Event, None]:
        decoder = Decoder()
        async with self._client.stream(**self._request(), timeout=self._timeout) as response:
            if response.status_code == httpx.codes.NO_CONTENT:  # it is over, and all of it was read before
                self._read_to_end = True
                return
            if response.is_error:
                body = (await response.aread()).decode("utf-8", "replace")
                reason = f"{response.status_code} for {response.request.url}: {body}"
                raise httpx.HTTPStatusError(reason, request=response.request, response=response)
            async for chunk in response.aiter_bytes():
                for message in decoder.feed(chunk):
                    yield self._take(message)

    def _request(self) -> dict[str, Any]:
        headers = {**self._headers, "accept": "text/event-stream"}
        if self._start is not None and not self.last_event_id:
            path, body = self._start
            return {"method": "POST", "url": path, "json": body, "headers": headers}
        if self.last_event_id:
            headers["last-event-id"] = str(self.last_event_id)
        return {"method": "GET", "url": f"/runs/{self.run_id}/events", "headers": headers}

    def _take(self, message: Message) -> Event:
        number = int(message.id or 0)
        if number != self.last_event_id + 1:
            raise AssertionError(f"Event {number} of run {self.run_id!r} came after event {self.last_event_id}.")
        self.last_event_id = number
        self._lost = 0
        self.events.append(_event(message))
        return self.events[-1]


async def disconnect_after(
    count: int,
    url: str,
    body: Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    reset: bool = True,
    timeout: float = 30,
) -> list[Event]:
    """A client that is lost: opens a stream over a real socket, reads `count` events, drops the connection.

    `url` is absolute; with a `body` it is a POST, else a GET. Returns the events as dicts; the last one is number
    `count` of the stream. `reset=True` resets the connection, as a crash or a lost network does; `False` closes it
    politely, as a closed tab does. What the server had sent beyond those events is lost with the connection.

    Raises `httpx.HTTPStatusError` for a refusal, `AssertionError` when the stream ends before `count` events, and
    `httpx.ReadTimeout` after `timeout` seconds of silence.

    ::

        events = await disconnect_after(3, "http://127.0.0.1:8000/tools/import_rows", {"runId": "r1", "arguments": {}})
        rest = await EventCollector.follow(client, "r1", after=3).collect()
    """
    async with httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
        method = "GET" if body is None else "POST"
        sent = {**(headers or {}), "accept": "text/event-stream"}
        async with client.stream(method, url, json=body, headers=sent) as response:
            if response.is_error:
                await response.aread()
            response.raise_for_status()
            events = await _first_events(response, count)
            if reset:
                _linger_not(response)
            return events


async def _first_events(response: httpx.Response, count: int) -> list[Event]:
    decoder, events = Decoder(), list[Event]()
    if count > 0:
        async for chunk in response.aiter_bytes():
            events += map(_event, decoder.feed(chunk))
            if len(events) >= count:
                return events[:count]
        raise AssertionError(f"The stream ended after {len(events)} events of {count}.")
    return events


def _linger_not(response: httpx.Response) -> None:
    """Makes the coming close a reset: nothing that is still on its way matters any more."""
    connection = response.extensions["network_stream"].get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))
