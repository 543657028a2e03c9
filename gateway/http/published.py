"""The routes of the OpenAPI document and the schemas.

What makes them is imported with the first question: a quarter of what importing the package would take, and each tool
in a process of its own waits for that.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import NotFound
from gateway.http.responses import Endpoint

__all__ = ["published_routes"]

_JSON_TYPE = "application/json"
_MEDIA_TYPES = {".json": "application/schema+json", ".ts": "application/typescript; charset=utf-8"}


def published_routes() -> list[Route]:
    """`GET /openapi.json` and `GET /schemas/{file}`; they need nothing of the engine."""
    return [
        Route("/openapi.json", Endpoint(_serve_openapi), methods=["GET"]),
        Route("/schemas/{file:path}", Endpoint(_serve_schema), methods=["GET"]),
    ]


async def _serve_openapi(request: Request) -> Response:
    # In a thread: the first time it takes half a second, and the loop has streams to serve.
    text = await asyncio.to_thread(_document, str(request.scope.get("root_path", "")) or "/")
    return Response(text, media_type=_JSON_TYPE)


async def _serve_schema(request: Request) -> Response:
    name = request.path_params["file"]
    text = await asyncio.to_thread(_file, name)
    if text is None:
        raise NotFound(f"No published schema {name!r}.")
    media_type = _JSON_TYPE if name == "openapi.json" else _MEDIA_TYPES[name[name.rindex(".") :]]
    return Response(text, media_type=media_type)


def _document(server: str) -> str:
    from gateway.http.openapi import document_at

    return document_at(server)


def _file(name: str) -> str | None:
    from gateway.http.openapi import published_files

    return published_files().get(name)
