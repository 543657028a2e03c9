"""Every setting of the gateway, declared once: environment, flags, file and the docs table are derived from it.

A field `stop_grace` is the variable `AGUI_GATEWAY_STOP_GRACE`, the flag `--stop-grace` and the key `stop_grace` in
`[settings]` of a `gateway.toml`. A flag beats a constructor argument beats the environment beats the file beats the
default. Read at start-up, not at import.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

__all__ = ["ENV_PREFIX", "FILE", "Settings"]

ENV_PREFIX = "AGUI_GATEWAY_"
# `Settings(_file={...})`: values of a file, which the environment beats; no field can have this name.
FILE = "_file"
MEMORY = "memory://"
# Stores that several workers may use.
SHARED_SCHEMES = ("sqlite", "redis", "rediss", "unix")


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_truth)]
Bytes = Annotated[int, Field(gt=0), BeforeValidator(_no_truth)]
Count = Annotated[int, Field(gt=0), BeforeValidator(_no_truth)]
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_truth)]


def _split(value: Any) -> Any:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


# A list in a constructor or file, comma-separated in the environment and on the command line.
Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Settings(BaseSettings):
    """Limits and behaviour; times are seconds, sizes bytes. Source of the defaults: contract 5 to 8."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to bind.")
    port: Port = Field(8000, description="Port to bind; 0 takes a free one.")
    allow_anonymous: bool = Field(
        False, description="Serve callers without credentials beyond this machine; else they get 403."
    )
    page: bool | None = Field(None, description="Serve the page at `/`; by default on for `demo` and loopback `serve`.")
    store: str = Field(
        MEMORY, description="Where runs are kept: `memory://` (this process), `sqlite:///file.db`, `redis://host`."
    )
    workers: Count = Field(1, description="Processes that serve; `memory://` allows one.")

    allowed_hosts: Names = Field(
        [], description="Hosts to answer for, `*.example.com` for all below; else loopback must ask for loopback."
    )
    cors_origins: Names = Field([], description="Origins whose pages may call and read; `*`: all, without cookies.")

    parallel_tool_calls: bool = Field(True, description="Calls of one run at a time, or one after the other.")
    tool_timeout: Seconds = Field(30, description="Time limit of a tool that sets none; 0 waits forever.")
    max_tool_timeout: Seconds = Field(0, description="Most that a caller may ask for; 0: no cap.")
    stop_grace: Seconds = Field(5, description="Time a stopped tool has to unwind before it is given up.")
    run_timeout: Seconds = Field(86_400, description="Time limit of a run; 0: none.")
    max_agent_turns: Count = Field(
        20, description="How often a remote agent is called in one run, with its tool results."
    )
    on_disconnect: Literal["continue", "cancel"] = Field(
        "continue", description="What becomes of a run when its last viewer leaves."
    )
    disconnect_grace: Seconds = Field(10, description="With `on_disconnect=cancel`: how long a viewer may be away.")
    max_threads: Count = Field(64, description="Threads for plain functions.")
    page_claim: Seconds = Field(15, description="How long a page that took a page tool may be silent.")

    strict_payloads: bool = Field(False, description="Raise `PayloadError` instead of replacing what JSON cannot hold.")
    max_event_bytes: Bytes = Field(256 * KIB, description="Largest value of a custom event.")
    max_result_bytes: Bytes = Field(4 * MIB, description="Largest result of a tool.")
    max_body_bytes: Bytes = Field(MIB, description="Largest request body.")
    max_input_bytes: Bytes = Field(32 * MIB, description="Largest body of an agent run: it carries the history.")

    shown_headers: Names = Field(
        [], description="Request headers that tools see beside the usual ones; credentials never are."
    )
    session_ttl: Seconds = Field(
        604_800, description="How long a session's switching of tools is kept after its last use."
    )

    max_runs: Count = Field(10_000, description="Runs at a time in one worker.")
    max_runs_per_session: Count = Field(
        1_000, description="Runs at a time of one session (without one: of one client address)."
    )
    max_viewers_per_run: Count = Field(10_000, description="Open streams on one run.")
    keep_alive: Seconds = Field(15, description="Silence after which a comment goes out; 0: never.")
    send_timeout: Seconds = Field(30, description="How long a viewer may not read before it is cut; 0: ever.")

    run_ttl: Seconds = Field(3_600, description="How long a finished run is kept.")
    interrupt_ttl: Seconds = Field(
        604_800, description="How long a run that ended with a question can be answered, and an untold note is kept."
    )
    max_run_events: Count = Field(
        2_000_000, description="Events kept of one run; beyond it the oldest leave, some hundred at a time."
    )
    max_run_bytes: Bytes = Field(
        GIB, description="Bytes kept of one run; beyond it the oldest events leave, 64 KiB at a time."
    )
    max_store_bytes: Bytes = Field(4 * GIB, description="Bytes that `memory://` may hold.")

    max_pending_bytes: Bytes = Field(
        64 * MIB, description="Bytes of one run that may wait to be stored; beyond it an emit raises `Backpressure`."
    )
    write_behind: bool = Field(
        False, description="SQLite and Redis: show events before they are stored; the newest may die with their worker."
    )
    redis_prefix: str = Field("agui:", description="What the names of all keys in Redis begin with.")
    store_timeout: Seconds = Field(10, description="How long a store that fails is tried again before runs abort.")

    drain_timeout: Seconds = Field(30, description="Time that runs have to end after SIGTERM.")
    lease_seconds: Seconds = Field(
        15, description="How long a worker that shares the store may be silent before another closes its runs."
    )
    loop_dead_after: Seconds = Field(
        60, description="How long the event loop may stand still before the worker gives its runs up."
    )

    @field_validator("store")
    @classmethod
    def _known_store(cls, store: str) -> str:
        scheme, separator, rest = store.partition("://")
        known = scheme in SHARED_SCHEMES and (scheme != "sqlite" or (rest.startswith("/") and rest.strip("/")))
        if store != MEMORY and not known:
            # The rest of a store's URL may hold its password.
            raise PydanticCustomError(
                "unknown_store",
                "{kind} is no store; use memory://, sqlite:///relative.db, sqlite:////absolute.db or redis://host",
                {"kind": scheme + separator if separator else "what is no URL"},
            )
        return store

    @field_validator("workers")
    @classmethod
    def _one_worker(cls, workers: int, info: ValidationInfo) -> int:
        if workers > 1 and info.data.get("store") == MEMORY:
            raise PydanticCustomError(
                "one_worker",
                "memory:// holds runs in one process, and {workers} would each know only their own; use one worker",
                {"workers": workers},
            )
        return workers

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The precedence: constructor and flags (one mapping by now), environment, file."""
        given = dict(init_settings())
        file = InitSettingsSource(settings_cls, given.pop(FILE, {}))
        return InitSettingsSource(settings_cls, given), env_settings, file
