"""Entering what a run has around its calls: `Gateway(context=...)`, which is foreign code."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from gateway.execution.live import LiveRun

__all__ = ["cancelled", "enter"]

logger = logging.getLogger("gateway")


async def enter(context: AbstractAsyncContextManager[Any], run: LiveRun, stack: AsyncExitStack) -> Any:
    """Enters the run's context. When the run is stopped first, that is given up: none of its calls will see it."""
    entering = asyncio.timeout(None)
    try:
        async with entering:
            # Runs are stopped on their own loop, so this never comes from another thread.
            remove = run.signal.on_abort(lambda _: entering.reschedule(0))
            try:
                return await stack.enter_async_context(context)
            finally:
                remove()
    except Exception:  # foreign code, told to give up, may say so in any way
        if not entering.expired():
            raise
        logger.info("The context of run %s was given up", run.key.label, exc_info=True)
        return None


def cancelled() -> bool:
    """Whether somebody cancelled this task; a context may also raise `CancelledError` on its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
