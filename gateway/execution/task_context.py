"""A call as a task: the words that task-based tools use, on top of progress and the abort signal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.execution.emitter import Finished
from gateway.execution.signals import AbortSignal

__all__ = ["TaskContext"]


class TaskContext:
    """`ctx.task`, unless the tool says `task_support="forbidden"`. Usable from every thread.

    What other systems await is synchronous here and returns something that may be awaited. Source: contract 2.2.
    """

    __slots__ = ("_signal", "_task_id", "_update")

    def __init__(
        self, task_id: Callable[[], str], signal: AbortSignal, update: Callable[[str, float | None], None]
    ) -> None:
        self._task_id = task_id
        self._signal = signal
        self._update = update

    @property
    def task_id(self) -> str:
        """Id of the task: the run's, under which it is found and stopped; another one once it is in the background."""
        return self._task_id()

    @property
    def cancelled(self) -> bool:
        """Whether the task was asked to end."""
        return self._signal.aborted

    def update_progress(self, message: str, percent: float | None = None) -> Awaitable[None]:
        """Says how far the task is: a message, and 0 to 100 when that is known."""
        self._update(message, percent)
        return Finished()

    def cancel(self) -> Awaitable[None]:
        """Ends the call `interrupted`, reason `tool`: only the person's Stop makes it `cancelled`."""
        self._signal.abort("tool")
        return Finished()

    def throw_if_cancelled(self) -> None:
        """Raises `AbortError` when the task was asked to end."""
        self._signal.throw_if_aborted()
