"""Connections to Redis: what is asked while one round trip runs goes out together with the next.

Every command may be sent twice (see `redis_scripts`), so whatever was not answered, because the connection broke or the
server is loading, full, paused or a replica just now, is asked again until `store_timeout` is over.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from gateway.errors import StoreError
from gateway.stores.redis_client import (
    AuthenticationError,
    ClusterDownError,
    ConnectionPool,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from gateway.stores.redis_scripts import SOURCES, Command

__all__ = ["Again", "Line", "Pump", "Request", "Wire", "whole"]

logger = logging.getLogger(__name__)

MOST = 256  # requests in one round trip
UNASKED = object()
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
FEWEST_SECONDS = 0.05  # a round trip is given no less, however near the deadline is

PASSING = (ReadOnlyError, OutOfMemoryError, MasterDownError, TryAgainError, ClusterDownError, NoScriptError)
# Those without a class of their own; and a server older than 7 wraps what a script met.
PASSING_TEXT = re.compile(r"(^|-)(LOADING|READONLY|OOM|MASTERDOWN|MISCONF|BUSY|NOREPLICAS) ")


class Again:
    """Instead of an answer: it may work later."""

    __slots__ = ("cause",)

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Wire:
    """One connection, made when it is needed. `connected` is called each time it is made anew."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._connection = pool.make_connection()  # type: ignore[no-untyped-call]
        self.connected: Callable[[], None] | None = None
        self._was_connected = False

    async def round(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """An answer for each command: what Redis said, a `ResponseError`, or `Again`."""
        replies: list[Any] = []
        try:
            async with asyncio.timeout(seconds):
                await self._connect()
                await self._exchange(commands, replies)
                unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
                if unknown:
                    found: list[Any] = []
                    await self._exchange([whole(commands[index]) for index in unknown], found)
                    for index, reply in zip(unknown, found, strict=True):
                        replies[index] = reply
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            replies += [Again(error)] * (len(commands) - len(replies))
        answers = [self._judged(reply) for reply in replies]
        if any(isinstance(reply, ReadOnlyError) for reply in replies):
            await self.drop()  # the name may lead to the new primary
        return answers

    async def drop(self) -> None:
        """Closes the connection; the next round trip makes a new one."""
        await self._connection.disconnect(nowait=True)

    async def _connect(self) -> None:
        if self._connection.is_connected:
            return
        await self._connection.connect()
        if self._was_connected and self.connected is not None:
            self.connected()
        self._was_connected = True

    async def _exchange(self, commands: Sequence[Command], replies: list[Any]) -> None:
        await self._connection.send_packed_command(packed(commands), check_health=False)
        for _ in commands:
            try:
                replies.append(await self._connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)

    @staticmethod
    def _judged(reply: Any) -> Any:
        if isinstance(reply, PASSING):
            return Again(reply)
        if isinstance(reply, ResponseError) and PASSING_TEXT.search(str(reply)):
            return Again(reply)
        if isinstance(reply, list) and reply and isinstance(reply[0], ResponseError):
            return Wire._judged(reply[0])  # of a transaction: what its guard met
        return reply


def packed(commands: Sequence[Command]) -> list[bytes]:
    """Commands as Redis reads them; large arguments are passed on and not copied."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for command in commands:
        small.append(b"*%d\r\n" % len(command))
        for argument in command:
            data = argument if isinstance(argument, bytes) else str(argument).encode()
            small.append(b"$%d\r\n" % len(data))
            if len(data) > 8192:
                pieces += [b"".join(small), data]
                small = [b"\r\n"]
            else:
                small += [data, b"\r\n"]
    pieces.append(b"".join(small))
    return pieces


def whole(command: Command) -> Command:
    """The command with the text of its script: for a server that does not know it (any more)."""
    return ("EVAL", SOURCES[str(command[1])], *command[2:])


class Request:
    """Some commands that belong together, and what becomes of them."""

    __slots__ = ("commands", "deadline", "replies")

    #: Whether they are a transaction, of which all is sent again or nothing.
    whole = False

    def __init__(self, commands: Sequence[Command], deadline: float) -> None:
        self.commands = commands
        self.deadline = deadline
        self.replies: list[Any] = [UNASKED] * len(commands)

    @property
    def wanted(self) -> bool:
        return True

    def answered(self, replies: list[Any]) -> None:
        """All of it was answered: values, or a `ResponseError`."""

    def failed(self, error: StoreError) -> None:
        """It was not, in time."""


class Asked(Request):
    """A request whose answer is a future; one that was cancelled before it went out does not go out."""

    __slots__ = ("future",)

    def __init__(self, commands: Sequence[Command], deadline: float, future: asyncio.Future[list[Any]]) -> None:
        super().__init__(commands, deadline)
        self.future = future

    @property
    def wanted(self) -> bool:
        return not self.future.done()

    def answered(self, replies: list[Any]) -> None:
        if self.future.done():
            return
        refused = next((reply for reply in replies if isinstance(reply, ResponseError)), None)
        if refused is None:
            self.future.set_result(replies)
        else:
            self.future.set_exception(StoreError(f"Redis refused a command: {refused}"))

    def failed(self, error: StoreError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Pump(ABC):
    """Round trips over one wire, one after the other, as long as there is something to ask."""

    def __init__(self, wire: Wire, store_timeout: float) -> None:
        self.wire = wire
        self.store_timeout = store_timeout
        # Twice at least within `store_timeout`: a connection may be dead although nobody has said so.
        self._patience = max(store_timeout / 4, FEWEST_SECONDS)
        self._again: list[Request] = []
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed: StoreError | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Whatever is not answered by now fails."""
        self._closed = StoreError("The store is closed.")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        left = self._again or self.gather(MOST)
        while left:
            for request in left:
                request.failed(self._closed)
            left = self.gather(MOST)
        await self.wire.drop()

    def deadline(self) -> float:
        return self._loop.time() + self.store_timeout

    def wake(self) -> None:
        """There is something to ask."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    @abstractmethod
    def gather(self, most: int) -> list[Request]:
        """What is to be asked now; it is not handed out again."""

    async def _run(self) -> None:
        pause = 0.0
        while True:
            again, self._again = self._again, []
            batch = [*again, *self.gather(MOST - len(again))]
            if not batch:
                self._idle = self._loop.create_future()
                await self._idle
                continue
            try:
                await self._round(batch)
            except Exception as error:
                logger.exception("A round trip to Redis failed")
                self._fail(batch, error)
            pause = min(max(2 * pause, SHORTEST_PAUSE), LONGEST_PAUSE) if self._again else 0.0
            if pause:
                since = self._loop.time()
                await asyncio.sleep(pause)
                self._excuse(self._again, since + pause)

    async def _round(self, batch: list[Request]) -> None:
        asked = [(request, index) for request in batch if request.wanted for index in _open(request)]
        if not asked:
            return
        nearest = min(request.deadline for request, _ in asked) - self._loop.time()
        seconds = max(min(self._patience, nearest), FEWEST_SECONDS)
        due = self._loop.time() + seconds
        try:
            replies = await self.wire.round([request.commands[index] for request, index in asked], seconds)
        except asyncio.CancelledError:
            self._again = batch  # the store is being closed
            raise
        self._excuse(batch, due)
        causes: dict[int, BaseException] = {}
        for (request, index), reply in zip(asked, replies, strict=True):
            request.replies[index] = reply
            if isinstance(reply, Again):
                causes[id(request)] = reply.cause
        for request in batch:
            self._settle(request, causes.get(id(request)))

    def _excuse(self, batch: Sequence[Request], due: float) -> None:
        """A process that stood still, or its loop, has not tried: what came late by that has as much longer."""
        late = self._loop.time() - due
        if late > 0:
            for request in batch:
                request.deadline += late

    def _settle(self, request: Request, cause: BaseException | None) -> None:
        if cause is None:
            if request.wanted:
                request.answered(request.replies)
        elif self._loop.time() < request.deadline:
            if request.whole:
                request.replies = [UNASKED] * len(request.commands)
            self._again.append(request)
        else:
            self._fail([request], cause)

    def _fail(self, batch: Sequence[Request], cause: BaseException) -> None:
        for request in batch:
            error = StoreError(f"Redis did not do it within {self.store_timeout:g} s: {_text(cause)}")
            error.__cause__ = cause
            request.failed(error)


def _open(request: Request) -> list[int]:
    """The commands that have no answer yet."""
    return [index for index, reply in enumerate(request.replies) if reply is UNASKED or isinstance(reply, Again)]


def _text(cause: BaseException) -> str:
    if isinstance(cause, AuthenticationError):
        return "it does not accept the user name or password"
    return str(cause) or type(cause).__name__


class Line(Pump):
    """Requests of anybody, in the order in which they came."""

    def __init__(self, wire: Wire, store_timeout: float, most: int = MOST) -> None:
        super().__init__(wire, store_timeout)
        self._queue: list[Request] = []
        self._most = most

    def gather(self, most: int) -> list[Request]:
        most = max(min(most, self._most), 0)
        batch, self._queue = self._queue[:most], self._queue[most:]
        return batch

    def submit(self, *commands: Command) -> asyncio.Future[list[Any]]:
        """All answers, or `StoreError`; cancelling the future takes back what has not gone out yet."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self._closed is not None:
            future.set_exception(self._closed)
        else:
            self._queue.append(Asked(commands, self.deadline(), future))
            self.wake()
        return future

    async def ask(self, command: Command) -> Any:
        return (await self.submit(command))[0]

    def tell(self, *commands: Command) -> None:
        """Nobody waits for the answer: upkeep, and messages that only save time."""
        self.submit(*commands).add_done_callback(_told)


def _told(future: asyncio.Future[list[Any]]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.debug("Redis was not told: %s", error)
