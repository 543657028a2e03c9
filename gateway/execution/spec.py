"""What it takes to start a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.execution.caller import Caller
from gateway.execution.executor import Executor
from gateway.execution.live import Channel, LiveRun
from gateway.execution.session_tools import SessionTools
from gateway.run.questions import Question
from gateway.run.records import RunKey

__all__ = ["Job", "Resumption", "RunSpec", "no_context"]

Job = Callable[[LiveRun, Executor, Any], Awaitable[Any]]


class Resumption(NamedTuple):
    """The questions of an interrupted run as they are, each with how it is once this run has answered it."""

    key: RunKey
    changes: tuple[tuple[Question, Question], ...]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run to start.

    `prepare` registers its calls, before anybody can stop it; `job` runs them and returns the result. `context` makes
    what tools see as `ctx.context`, entered for the run's life. `fingerprint` tells equal requests;
    `messages` is the JSON of the history that an agent's request brought; `tools` are those of the session.
    `channel` is how its calls may ask the person; `answers` are those that resume an interrupted run.
    """

    key: RunKey
    thread_id: str
    agent: str
    fingerprint: bytes
    caller: Caller
    prepare: Callable[[LiveRun], None]
    job: Job
    context: Callable[[], AbstractAsyncContextManager[Any]]
    parent_run_id: str | None = None
    on_disconnect: str | None = None
    disconnect_grace: float | None = None
    messages: bytes | None = None
    tools: SessionTools | None = None
    channel: Channel = "open"
    answers: Resumption | None = None


@asynccontextmanager
async def no_context(value: Any = None) -> AsyncIterator[Any]:
    """A context that is just a value."""
    yield value
