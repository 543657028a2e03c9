"""Clients for tests: one that never loses an event, and one that loses its connection on purpose."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Self

import httpx

from gateway.run.order import TERMINALS
from gateway.testing.events import Event, event_of
from gateway.wire.sse import Decoder, Message

__all__ = ["EventCollector", "disconnect_after"]


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
        self.events.append(event_of(message))
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
            events += map(event_of, decoder.feed(chunk))
            if len(events) >= count:
                return events[:count]
        raise AssertionError(f"The stream ended after {len(events)} events of {count}.")
    return events


def _linger_not(response: httpx.Response) -> None:
    """Makes the coming close a reset: nothing that is still on its way matters any more."""
    connection = response.extensions["network_stream"].get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))
