"""A task factory for which no task can end the server.

asyncio lets `SystemExit` and `KeyboardInterrupt` of any task through its loop, so a `sys.exit()` in a task that a tool
has started would stop everything. Under the command line's server they become the task's failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["TaskExit", "task_factory"]


class TaskExit(RuntimeError):
    """A task raised `SystemExit` or `KeyboardInterrupt`; the original is the cause."""


async def _contain(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise TaskExit(f"The task raised {type(error).__name__}.") from error


def task_factory(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """For `loop.set_task_factory`."""
    if not asyncio.iscoroutine(work):
        return asyncio.Task(work, loop=loop, **options)
    task = asyncio.Task(_contain(work), loop=loop, **options)
    # A task that is cancelled before its first step never gets to `work`, and Python would complain that nobody did.
    task.add_done_callback(lambda _: work.close())
    return task
