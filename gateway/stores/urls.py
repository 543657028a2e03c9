"""Which store a URL means: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://…` (contract 7)."""

from __future__ import annotations

import logging
from pathlib import Path

from gateway.errors import StoreError
from gateway.settings import Settings
from gateway.stores.base import Store
from gateway.stores.memory import MemoryStore

__all__ = ["open_store"]

logger = logging.getLogger("gateway")


def open_store(settings: Settings) -> Store:
    """The store that the settings name, not entered yet; `StoreError` when what it needs is not installed."""
    scheme, _, rest = settings.store.partition("://")
    if scheme == "memory":
        return MemoryStore(settings)
    if settings.write_behind:
        logger.warning("write_behind: events are shown before they are stored, and the newest may die with this worker")
    if scheme == "sqlite":
        from gateway.stores.sqlite import SqliteStore

        return SqliteStore(Path(rest[1:]), settings)
    try:
        from gateway.stores.redis_store import RedisStore
    except ImportError as error:
        raise StoreError("redis:// needs the extra [redis]: pip install 'agui-gateway[redis]'") from error
    return RedisStore(settings.store, settings)
