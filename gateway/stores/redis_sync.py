"""A connection to Redis for a plain thread: a worker must be able to say that it lives while its loop is busy."""

from __future__ import annotations

import threading

from gateway.errors import StoreError
from gateway.settings import Settings
from gateway.stores.redis_client import NoScriptError, Redis, RedisError, make_client
from gateway.stores.redis_line import whole
from gateway.stores.redis_scripts import Command

__all__ = ["Renewer"]


class Renewer:
    """One connection, made at the first call."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self._client: Redis | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(self, command: Command) -> None:
        """Runs a script; raises `StoreError` when Redis does not do it in time."""
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed.")
            if self._client is None:
                self._client = make_client(self._url, self._settings)
            try:
                _run(self._client, command)
            except (RedisError, OSError) as error:
                raise StoreError(f"Redis was not told that this worker lives: {error}") from error

    def close(self) -> None:
        """*Any thread.* Closes the connection; there will be no other."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()
                self._client = None


def _run(client: Redis, command: Command) -> None:
    try:
        client.execute_command(*command)  # type: ignore[no-untyped-call]
    except NoScriptError:
        client.execute_command(*whole(command))  # type: ignore[no-untyped-call]
