"""What the backends have in common: they listen on a port of loopback, and tell what they were asked.

The first line on stdout is the address. `GET /seen` gives `{"requests": [{"headers", "body", "ended"}], "notes": […]}`
with an `ended` that is `complete`, `left` by the caller, or null while the answer goes on.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import uvicorn

_NOTES: list[str] = []


def note(what: str) -> None:
    """Something that a test wants to know of."""
    _NOTES.append(what)


class Watched:
    """An ASGI application around another that looks on."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._requests: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == "/seen":
            body = json.dumps({"requests": self._requests, "notes": _NOTES}).encode()
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await self._watch(scope, receive, send)

    async def _watch(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        seen: dict[str, Any] = {"headers": headers, "body": None, "ended": None}
        self._requests.append(seen)
        body = bytearray()

        async def receiving() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                seen["ended"] = seen["ended"] or "left"
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    seen["body"] = json.loads(body)
            return message

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                seen["ended"] = seen["ended"] or "complete"
            await send(message)

        await self._app(scope, receiving, sending)


def serve(app: Any) -> None:
    """Until it is told to end."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(Watched(app), log_level="warning")).run([listener])
