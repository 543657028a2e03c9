"""The practical limit of one Python process: no HTTP framework, no log, no runs. `bare.py PORT`

`/burst?n=` encodes each event with orjson and writes 64 KiB at a time. `/wire?n=` does the same with every field that
a CUSTOM event of the gateway has (timestamp, id of the call, name of the tool).
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable

import orjson
import uvloop
from payload import value

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
REQUEST = re.compile(rb"(?:GET|POST) /(burst|wire)\?n=(\d+)")
WRITE = 64 * 1024
CALL = "call_" + "0" * 32


def plain(step: int, total: int) -> bytes:
    event = {"type": "CUSTOM", "name": "progress", "value": value(step, total)}
    return b"id: %d\ndata: %b\n\n" % (step, orjson.dumps(event))


def complete(step: int, total: int) -> bytes:
    event = {
        "type": "CUSTOM",
        "timestamp": int(time.time() * 1000),
        "name": "progress",
        "value": {**value(step, total), "toolCallId": CALL},
        "metadata": {"toolName": "burst"},
    }
    return b"id: %d\ndata: %b\n\n" % (step, orjson.dumps(event))


class Stream(asyncio.Protocol):
    """One connection, one request."""

    def __init__(self) -> None:
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if (request := REQUEST.match(data)) is None:
            self._transport.close()
            return
        frame = plain if request[1] == b"burst" else complete
        self._task = asyncio.get_running_loop().create_task(self._send(frame, int(request[2])))

    async def _send(self, frame: Callable[[int, int], bytes], total: int) -> None:
        transport = self._transport
        transport.write(HEAD)
        frames: list[bytes] = []
        size = 0
        for step in range(total):
            data = frame(step, total)
            frames.append(data)
            size += len(data)
            if size >= WRITE:
                transport.write(b"".join(frames))
                frames, size = [], 0
                await self._writable.wait()
        transport.write(b"".join(frames))
        transport.close()


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Stream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
