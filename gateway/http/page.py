"""The page at `/`: static files, and the cookie that makes runs the visitor's own."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from gateway.http.responses import Endpoint
from gateway.http.sessions import COOKIE, identify, new_session

__all__ = ["page_routes"]

# Nothing but our own files and our own API: a tool's output can never run as script.
CSP = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"


def page_folder() -> Path:
    """`gateway/_web` in a wheel, `web-demo` in a checkout."""
    package = Path(__file__).parent.parent
    built = package / "_web"
    return built if built.is_dir() else package.parent / "web-demo"


def page_routes() -> list[Route]:
    """`/` and the files beside it. Looks at the disk: not for the loop."""
    folder = page_folder()
    mimetypes.init()  # reads files, which the first response would otherwise do on the loop

    async def index(request: Request) -> Response:
        response = FileResponse(
            folder / "index.html", headers={"content-security-policy": CSP, "cache-control": "no-cache"}
        )
        if identify(request).owner is None:
            response.set_cookie(
                COOKIE,
                new_session(),
                path=request.scope.get("root_path") or "/",
                httponly=True,
                samesite="lax",
                secure=request.url.scheme == "https",
            )
        return response

    files = StaticFiles(directory=folder)

    async def asset(request: Request) -> Response:
        response = await files.get_response(request.url.path.rpartition("/")[2], request.scope)
        response.headers["cache-control"] = "no-cache"  # modules of two versions do not go together
        return response

    # A route a file, and not one for all: else every unknown path were a file, and a wrong method an unknown one.
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != "index.html")
    return [
        Route("/", Endpoint(index), methods=["GET"]),
        *(Route(f"/{name}", Endpoint(asset), methods=["GET"]) for name in names),
    ]
