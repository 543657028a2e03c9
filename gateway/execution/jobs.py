"""What a run does: its calls, side by side or one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from gateway.execution.call import Call
from gateway.execution.caller import Caller
from gateway.execution.executor import Executor
from gateway.execution.live import LiveRun
from gateway.execution.outcomes import ToolOutput

__all__ = ["CallsJob"]


class CallsJob:
    """Runs the calls of a run. `single`: the run is one call of `/tools`, so its output is the run's result."""

    def __init__(self, caller: Caller, *, parallel: bool = True, single: bool = False) -> None:
        self._caller = caller
        self._parallel = parallel
        self._single = single

    async def __call__(self, run: LiveRun, executor: Executor, context: Any) -> dict[str, Any] | None:
        calls = list(run.calls.values())

        def execute(call: Call) -> Awaitable[ToolOutput | None]:
            return executor.execute(call, self._caller, context)

        if self._parallel and len(calls) > 1:
            await asyncio.gather(*map(execute, calls))
        else:
            for call in calls:
                await execute(call)
        output = calls[0].output if self._single else None
        return None if output is None else output.to_wire()
