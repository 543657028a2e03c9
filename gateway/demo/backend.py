"""A server for one ASGI application: real HTTP on a free port of 127.0.0.1, from a thread, gone when its block ends."""

import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

__all__ = ["Backend"]

EXIT_SECONDS = 2


class Backend:
    """`with Backend(app) as backend` serves `app` at `backend.url`, which has no slash at its end."""

    def __init__(self, app: ASGIApp) -> None:
        # Not uvicorn's own: what connects before the server has begun waits in the backlog.
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(app, lifespan="off", log_config=None, log_level="warning", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="agui-demo-backend", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.force_exit = True  # whoever is still answered has nobody left who reads
        self._server.should_exit = True
        self._thread.join(EXIT_SECONDS)
        self._listener.close()
