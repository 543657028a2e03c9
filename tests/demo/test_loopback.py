"""The file server of one download: what it sends, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import hashlib
import ssl

import httpx
import pytest

from gateway.demo.loopback import BLOCK_BYTES, FileServer


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def connect(server: FileServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7])
async def test_a_reader_gets_every_byte(size: int) -> None:
    async with FileServer(size) as server, client() as reader:
        body = (await reader.get(server.url)).content
    assert len(body) == size
    assert server.sha256 == hashlib.sha256(body).hexdigest()


async def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with asyncio.timeout(10), FileServer(50_000_000) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readexactly(BLOCK_BYTES)
        writer.close()
        await writer.wait_closed()
    assert server.sha256 == ""
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        await connect(server)


async def test_a_connection_without_a_request_does_not_keep_it_open() -> None:
    async with asyncio.timeout(10), FileServer(1) as server:
        _, writer = await connect(server)
        writer.close()
        await writer.wait_closed()
    assert server.sha256 == ""
