"""A file server for one download: real sockets on 127.0.0.1, gone when its block ends."""

import asyncio
import hashlib
import random
from types import TracebackType
from typing import Self

BLOCK_BYTES = 64 * 1024


class FileServer:
    """Serve `size` pseudo-random bytes over HTTP to whoever asks, as fast as they are read.

    Use it as `async with FileServer(size) as server`, then read `server.url`; afterwards `server.sha256` is
    the digest of what was written for the latest request. It holds one block of memory, whatever the size.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.url = ""
        self.sha256 = ""
        self._answers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/sample.bin"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        # The reader has closed its end by now, so an answer that is still written gets a reset and returns.
        if self._answers:
            await asyncio.wait(self._answers)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await self._write_file(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the reader left: that is how Stop looks from here
        finally:
            writer.close()

    async def _write_file(self, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {self.size}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        block = random.Random(self.size).randbytes(BLOCK_BYTES)  # noqa: S311 (any bytes do)
        digest = hashlib.sha256()
        for sent in range(0, self.size, BLOCK_BYTES):
            part = block[: self.size - sent]
            digest.update(part)
            writer.write(part)
            await writer.drain()
        self.sha256 = digest.hexdigest()
