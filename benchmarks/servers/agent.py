"""An AG-UI agent that costs next to nothing: its answer is made before it is asked. `agent.py PORT N RATE`

`POST /clean`, `/mended` and `/piecewise` bring N events, half of them pieces of text and half CUSTOM. Of `/mended`
all need a repair (`*_CHUNK`, `null` for an absent field), those of `/piecewise` are written one by one. `/paced` brings
CUSTOM events with the moment they were written, RATE a second for four seconds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import orjson
import uvloop
from payload import timed, value

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WRITE = 64 * 1024
WHEN = 1_800_000_000_000
MESSAGE = "msg-7f1b4b2e-3a4c-4f0e-9d55-1c7c1f0a9f10"
RUN = {"threadId": "t", "runId": "r"}


def frame(event: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({"type": event["type"], "timestamp": WHEN, **event})


def framed(events: Iterator[Mapping[str, Any]]) -> list[bytes]:
    started, message = {"type": "RUN_STARTED", **RUN}, {"messageId": MESSAGE}
    opened = {"type": "TEXT_MESSAGE_START", **message, "role": "assistant"}
    closed, finished = {"type": "TEXT_MESSAGE_END", **message}, {"type": "RUN_FINISHED", **RUN}
    return [frame(event) for event in (started, opened, *events, closed, finished)]


def clean(n: int) -> Iterator[dict[str, Any]]:
    for step in range(n // 2):
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": MESSAGE, "delta": f"some words of an answer, {step}"}
        yield {"type": "CUSTOM", "name": "progress", "value": value(step, n)}


def mended(n: int) -> Iterator[dict[str, Any]]:
    for event in clean(n):
        text = event["type"] == "TEXT_MESSAGE_CONTENT"
        yield {**event, "type": "TEXT_MESSAGE_CHUNK"} if text else {**event, "rawEvent": None}


class Answers:
    """What there is to say, by path."""

    def __init__(self, n: int, rate: float) -> None:
        self._n, self._rate = n, rate
        self._pieces = framed(clean(n))
        self._blocks = {b"/clean": blocks(self._pieces), b"/mended": blocks(framed(mended(n)))}

    async def of(self, path: bytes) -> AsyncIterator[bytes]:
        for block in self._blocks.get(path, ()):
            yield block
        if path == b"/piecewise":
            for piece in self._pieces:
                yield piece
                await asyncio.sleep(0)
        if path == b"/paced":
            async for piece in self._paced():
                yield piece

    async def _paced(self) -> AsyncIterator[bytes]:
        first, *_, last = self._pieces
        yield first
        loop = asyncio.get_running_loop()
        start, n = loop.time(), int(self._rate * 4)
        for step in range(n):
            await asyncio.sleep(max(start + step / self._rate - loop.time(), 0))
            yield frame({"type": "CUSTOM", "name": "progress", "value": timed(step, n)})
        yield last


def blocks(frames: list[bytes]) -> list[bytes]:
    everything = b"".join(frames)
    return [everything[start : start + WRITE] for start in range(0, len(everything), WRITE)]


async def main(port: int, answers: Answers) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            async for data in answers.of(head.split(b" ", 2)[1]):
                writer.write(data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # somebody only looked whether the port is open
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    port, n, rate = sys.argv[1:]
    uvloop.run(main(int(port), Answers(int(n), float(rate))))
