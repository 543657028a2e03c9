"""A gateway in small, to be killed: starts one process tool, named on the command line, and waits for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from gateway.execution.processes import ProcessJob  # noqa: E402 - the path comes first
from gateway.execution.settle import Returned  # noqa: E402
from gateway.execution.signals import AbortSignal  # noqa: E402
from gateway.execution.tools import tool  # noqa: E402


@tool(isolation="process")
def in_main(word: str) -> str:
    return word + " from main"


class Silent:
    """A sink that drops everything."""

    def emit(self, name: str, value: bytes, changes: Sequence[tuple[str, str]]) -> None: ...

    def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    def log(self, level: int, message: str) -> None: ...

    def flushed(self, done: Callable[[], None]) -> None: ...

    def traceback(self, text: str) -> None: ...


async def main(target: str, arguments: dict[str, str]) -> None:
    job = ProcessJob(
        target=target,
        arguments=arguments,
        context={},
        sink=Silent(),
        signal=AbortSignal(),
    )
    await job.start()
    settled = await job.future
    await job.wait_gone()
    sys.stdout.write(settled.value.text if isinstance(settled, Returned) else str(settled))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])))
