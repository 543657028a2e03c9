"""The client library, which is an extra, and what is asked of a server before it is used."""

from __future__ import annotations

import logging
import re
from typing import Any

from gateway.errors import StoreError
from gateway.settings import Settings

try:
    from redis import Redis
    from redis.asyncio import ConnectionPool
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        ClusterDownError,
        MasterDownError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TryAgainError,
    )
    from redis.retry import Retry
except ImportError as error:
    raise ImportError("The store redis:// needs an extra: pip install 'agui-gateway[redis]'") from error

__all__ = [
    "AuthenticationError",
    "ClusterDownError",
    "ConnectionPool",
    "MasterDownError",
    "NoScriptError",
    "OutOfMemoryError",
    "ReadOnlyError",
    "Redis",
    "RedisError",
    "ResponseError",
    "TryAgainError",
    "check_server",
    "make_client",
    "make_pool",
]

logger = logging.getLogger(__name__)

OLDEST = (6, 2)
POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)
VERSION = re.compile(rb"^redis_version:(\d+)\.(\d+)", re.MULTILINE)


def make_pool(url: str, settings: Settings) -> ConnectionPool:
    """Makes connections; raises `StoreError` for a URL that is none, without showing it: it may hold a password."""
    try:
        pool = ConnectionPool.from_url(url)
    except (ValueError, TypeError) as error:
        raise StoreError("The URL of the Redis store cannot be used; it is like redis://host:6379/0") from error
    # Whoever asks minds the time, and tries again; a URL may not change what answers look like.
    pool.connection_kwargs.update(
        protocol=2,
        decode_responses=False,
        health_check_interval=0,
        driver_info=None,  # or each connection looks its library's version up, in files, on the loop
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=_patience(settings),
    )
    return pool


def make_client(url: str, settings: Settings) -> Redis:
    """A client for a plain thread; a call ends within `store_timeout`."""
    seconds = _patience(settings)
    client = Redis.from_url(url, retry=Retry(NoBackoff(), 1))
    client.connection_pool.connection_kwargs.update(
        protocol=2,
        decode_responses=False,
        driver_info=None,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
    )
    return client


def _patience(settings: Settings) -> float:
    return max(settings.store_timeout / 4, 0.05)


def check_server(info: Any) -> None:
    """`info` is what `INFO` answered, or the error that it was. Raises `StoreError` for a server that loses runs."""
    if not isinstance(info, bytes):
        logger.warning("Redis does not tell its settings (%s); maxmemory-policy must be noeviction", info)
        return
    version, policy = VERSION.search(info), POLICY.search(info)
    if version is not None and tuple(map(int, version.groups())) < OLDEST:
        raise StoreError(f"Redis {b'.'.join(version.groups()).decode()} is too old: 6.2 or later is needed.")
    if policy is None:
        logger.warning("Redis does not tell its maxmemory-policy; it must be noeviction")
    elif policy[1] != b"noeviction":
        raise StoreError(
            f"Redis would drop runs when its memory is full: maxmemory-policy is {policy[1].decode()}; "
            "set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)."
        )
