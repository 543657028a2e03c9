"""What others use for the same work: the official encoder with `StreamingResponse`, and sse-starlette with queues."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import httpx
from ag_ui.core import CustomEvent, Event
from ag_ui.encoder import EventEncoder
from payload import large, rows, timed, value
from pydantic import TypeAdapter
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def number(request: Request, name: str, default: float) -> int:
    return int(request.query_params.get(name, default))


async def official(request: Request) -> Response:
    """A generator that yields what its tool makes: the shortest way there is."""
    n, encoder = number(request, "n", 0), EventEncoder()

    async def stream() -> AsyncIterator[str]:
        for step in range(n):
            yield encoder.encode(CustomEvent(name="progress", value=value(step, n)))

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


async def official_queue(request: Request) -> Response:
    """A tool of its own, a queue to the response, and the tool gives way after each event."""
    n, encoder = number(request, "n", 0), EventEncoder()
    queue: asyncio.Queue[CustomEvent | None] = asyncio.Queue()

    async def work() -> None:
        for step in range(n):
            await queue.put(CustomEvent(name="progress", value=value(step, n)))
            await asyncio.sleep(0)
        await queue.put(None)

    async def stream() -> AsyncIterator[str]:
        task = asyncio.create_task(work())
        while (event := await queue.get()) is not None:
            yield encoder.encode(event)
        await task

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


async def official_bulky(request: Request) -> Response:
    """Values of about `size` bytes."""
    n, encoder, content = number(request, "n", 0), EventEncoder(), rows(number(request, "size", 2000))

    async def stream() -> AsyncIterator[str]:
        for step in range(n):
            yield encoder.encode(CustomEvent(name="progress", value=large(step, n, content)))

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


# -- many viewers: a queue each, and each encodes for itself --

VIEWERS: set[asyncio.Queue[tuple[int, CustomEvent | None]]] = set()
TASKS: set[asyncio.Task[None]] = set()


async def follow(request: Request) -> Response:
    queue: asyncio.Queue[tuple[int, CustomEvent | None]] = asyncio.Queue()
    VIEWERS.add(queue)

    async def stream() -> AsyncIterator[dict[str, str]]:
        try:
            while (item := await queue.get())[1] is not None:
                yield {"id": str(item[0]), "data": item[1].model_dump_json(by_alias=True, exclude_none=True)}
        finally:
            VIEWERS.discard(queue)

    return EventSourceResponse(stream())


async def publish(request: Request) -> Response:
    n, rate = number(request, "n", 0), float(request.query_params.get("rate", 100))

    async def work() -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for step in range(n):
            await asyncio.sleep(max(start + step / rate - loop.time(), 0))
            event = CustomEvent(name="progress", value=timed(step, n))
            for queue in VIEWERS:
                queue.put_nowait((step, event))
        for queue in VIEWERS:
            queue.put_nowait((n, None))

    task = asyncio.create_task(work())
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)
    return JSONResponse({"status": "started"})


async def proxy(request: Request) -> Response:
    """An agent's stream, checked and encoded again by the official models: the proxy that one writes first."""
    url, body, encoder = os.environ["AGENT_URL"] + request.query_params["path"], await request.body(), EventEncoder()

    async def stream() -> AsyncIterator[str]:
        async with httpx.AsyncClient(timeout=60) as client, client.stream("POST", url, content=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield encoder.encode(EVENT.validate_json(line[5:]))

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


async def echo(request: Request) -> Response:
    """A plain POST round trip."""
    return JSONResponse({"size": len(await request.body())})


app = Starlette(
    routes=[
        Route("/official", official, methods=["POST"]),
        Route("/official_queue", official_queue, methods=["POST"]),
        Route("/official_bulky", official_bulky, methods=["POST"]),
        Route("/follow", follow),
        Route("/publish", publish, methods=["POST"]),
        Route("/proxy", proxy, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
    ]
)
