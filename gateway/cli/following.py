"""The events of one run, over as many connections as it takes.

Read as bytes by our own decoder, not by lines of text. A connection that breaks is opened again after the last event
that arrived, for as long as events arrive; without any, a bounded number of times. The request that starts a run is
never sent twice: what it started is then followed by its id.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from gateway.cli.client import Target, check, describe, path
from gateway.cli.exits import Unreachable
from gateway.wire.codec import decode
from gateway.wire.sse import Decoder, MessageTooLarge

__all__ = ["Event", "Following", "Retries", "Start"]

TERMINAL = frozenset({"RUN_FINISHED", "RUN_ERROR"})
# A result of `max_result_bytes` goes out as text and as structure, escaped; and a gateway may allow more.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Silence for so long is a broken connection: comments come every 15 s. Where they are switched off, it costs a request.
SILENCE_SECONDS = 60.0
TOO_MANY = 429
GONE = 410
NO_CONTENT = 204
TRANSIENT = frozenset({TOO_MANY, 500, 502, 503, 504})


class Event(NamedTuple):
    """One event: the JSON as it came, on one line, and what it says."""

    data: bytes
    value: Mapping[str, Any]


class Start(NamedTuple):
    """The request that starts a run and answers with its events."""

    path: str
    body: bytes


@dataclass(frozen=True)
class Retries:
    """How often to connect again without a new event, and how long to wait: doubled each time, from what the gateway
    asked for or `first` seconds, to `longest`; and less by chance, so that many do not come back together."""

    most: int = 8
    first: float = 0.5
    longest: float = 10.0

    def delay(self, attempt: int, asked: int | None) -> float:
        """Seconds before attempt 1, 2, …; `asked` is the stream's `retry:` in milliseconds."""
        first = self.first if asked is None else asked / 1000
        return min(first * 2.0 ** (attempt - 1), self.longest) * random.uniform(0.5, 1)  # noqa: S311 - jitter


class _Broken(Exception):
    """The connection broke; `alive` says that it was there and only silent."""

    def __init__(self, why: str, *, alive: bool = False) -> None:
        super().__init__(why)
        self.alive = alive


class Following:
    """One run. `started` is set when its first event arrived; `note` is called with what a person should know."""

    def __init__(
        self,
        target: Target,
        client: httpx.AsyncClient,
        run_id: str,
        *,
        start: Start | None = None,
        cursor: int = 0,
        retries: Retries | None = None,
        note: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.run_id = run_id
        self.started = asyncio.Event()
        self._target = target
        self._client = client
        self._start = start
        self._retries = retries or Retries()
        self._note = note
        self._decoder = Decoder(MAX_MESSAGE_BYTES)
        self._resume_after(cursor)
        self._connected = False
        self._failures = 0
        self._terminal: Event | None = None

    async def follow(self, show: Callable[[Event], object]) -> Event | None:
        """Shows every event, the terminal one last, and returns that; None when the run was over and read before.

        Raises `Refused` for a 4xx, `Unreachable` when the gateway or the run is lost.
        """
        while True:
            try:
                if not await self._read(show):
                    return None
                if self._terminal is not None:
                    return self._terminal
                broken = _Broken("the stream ended before the run")
            except _Broken as error:
                broken = error
            except httpx.RequestError as error:
                if not self._connected and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise self._target.unreachable(error) from None
                # Of a stream that is up, a read that times out is silence.
                broken = _Broken(describe(error), alive=self._connected and isinstance(error, httpx.ReadTimeout))
            with self._size_checked():
                self._decoder.close()
            await self._wait(broken)

    async def _wait(self, broken: _Broken) -> None:
        self._connected = True  # or it may be: whatever was sent must not be sent again
        if broken.alive:
            return
        self._failures += 1
        if self._failures > self._retries.most:
            raise Unreachable(f"The connection is lost: {broken}. The run may go on: agui-gateway tail {self.run_id}")
        if self._failures == 1:
            self._note(f"The connection broke ({broken}); connecting again…")
        await asyncio.sleep(self._retries.delay(self._failures, self._decoder.retry_ms))

    async def _read(self, show: Callable[[Event], object]) -> bool:
        """One connection, to its end; False when there is nothing to read any more."""
        request = self._request()
        response = await self._client.send(request, stream=True)
        try:
            if response.status_code == NO_CONTENT:
                return False
            if not response.is_success:
                await response.aread()
                self._refused(response, starting=request.method == "POST")
                return True
            if response.headers.get("content-type", "").partition(";")[0] != "text/event-stream":
                raise Unreachable(f"{self._target.url} does not answer as a gateway does.")
            self._connected = True
            async for chunk in response.aiter_bytes():
                self._take(chunk, show)
                if self._terminal is not None:
                    return True
        finally:
            await response.aclose()
        return True

    def _request(self) -> httpx.Request:
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=10)
        headers = {"accept": "text/event-stream"}
        if self._start is not None and not self._connected:
            headers["content-type"] = "application/json"
            return self._client.build_request(
                "POST", self._start.path, content=self._start.body, headers=headers, timeout=timeout
            )
        if self._decoder.last_event_id:
            headers["last-event-id"] = self._decoder.last_event_id
        return self._client.build_request("GET", path("runs", self.run_id, "events"), headers=headers, timeout=timeout)

    def _take(self, chunk: bytes, show: Callable[[Event], object]) -> None:
        with self._size_checked():
            messages = self._decoder.feed(chunk)
        for message in messages:
            self._failures = 0
            self.started.set()
            try:
                event = _event(message.data)
            except ValueError:
                self._note("An event that is not JSON was left out.")
                continue
            if event.value.get("type") in TERMINAL:
                self._terminal = event
            show(event)
            if self._terminal is not None:
                return

    def _refused(self, response: httpx.Response, *, starting: bool) -> None:
        """Returns when the next connection may do better; raises otherwise."""
        first = _first_event(response) if response.status_code == GONE else 0
        if first - 1 > int(self._decoder.last_event_id or 0):
            self._note(f"The events before {first} are no longer kept.")
            self._resume_after(first - 1)
            raise _Broken("the events are gone", alive=True)
        if self._connected and response.status_code in TRANSIENT:
            raise _Broken(f"the gateway answered {response.status_code}")
        if self._connected and not starting and response.status_code in (404, 409):
            raise Unreachable("The gateway does not know the run any more, so how it ended is not known.")
        check(response)

    def _resume_after(self, cursor: int) -> None:
        self._decoder.last_event_id = str(cursor) if cursor else None
        self._decoder.close()  # for it takes the id over from there

    @contextmanager
    def _size_checked(self) -> Iterator[None]:
        try:
            yield
        except MessageTooLarge as error:
            raise Unreachable(f"The stream has {error}.") from None


def _first_event(response: httpx.Response) -> int:
    """The first event that is still kept, by a `410`; 0 when it does not say."""
    try:
        first = json.loads(response.content)["error"]["details"]["firstEventId"]
    except (ValueError, TypeError, KeyError):
        return 0
    return first if isinstance(first, int) else 0


def _event(data: bytes) -> Event:
    value = decode(data)
    # A gateway sends one line; what stands between may have wrapped it.
    return Event(data.replace(b"\n", b" "), value if isinstance(value, dict) else {})
