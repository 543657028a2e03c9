"""`agui-gateway call` and `agui-gateway tail`: a run, live, to its end."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click
import httpx

from gateway.cli.arguments import read_arguments
from gateway.cli.client import Target, path, target_options
from gateway.cli.exits import CANCELLED, Refused, Unreachable, code_of_end, code_of_record
from gateway.cli.following import Following, Start
from gateway.cli.interrupts import on_interrupt
from gateway.cli.runs import print_record
from gateway.cli.screens import Screen, open_screen

__all__ = ["call", "tail"]

STOP_AGAIN_SECONDS = 1.0

CODES = (
    "Exit codes: 0 completed, 1 failed, 2 usage, 3 refused, 75 interrupted or unavailable, 124 timeout, 130 cancelled."
)


@click.command(epilog=CODES)
@click.argument("tool")
@click.argument("arguments", required=False, metavar="[JSON|@FILE|-]")
@click.option("--timeout", type=click.FloatRange(min=0), help="Time limit of the call in seconds; 0 waits forever.")
@click.option("--thread", help="The thread that the run belongs to.")
@click.option("--run-id", help="The run's id; of a run that is there already, with the same arguments, its events.")
@click.option("--background", is_flag=True, help="Start it, print its record, and leave; see `tail`.")
@target_options
def call(target: Target, tool: str, arguments: str | None, background: bool, **options: Any) -> None:
    """Run TOOL on a running gateway and follow it to its end. Ctrl-C is Stop, a second one leaves.

    On a terminal: a progress bar, events as they come, the result. Otherwise one JSON line an event, and nothing else.
    """
    run_id = options["run_id"] or str(uuid.uuid4())
    body = {
        "arguments": read_arguments(arguments),
        "runId": run_id,
        **({"threadId": options["thread"]} if options["thread"] is not None else {}),
        **({"timeout": options["timeout"]} if options["timeout"] is not None else {}),
    }
    # Not the total encoder: numbers go to the tool digit for digit.
    start = Start(path("tools", tool), json.dumps(body).encode())
    if background:
        print_record(asyncio.run(_start_in_background(target, start)))
        return
    raise SystemExit(asyncio.run(_follow(target, run_id, start=start)))


@click.command(epilog=CODES)
@click.argument("run_id", metavar="RUN")
@click.option("--from", "cursor", type=click.IntRange(min=0), default=0, help="Only events after this one.")
@target_options
def tail(target: Target, run_id: str, cursor: int) -> None:
    """Follow RUN from its start to its end. Ctrl-C leaves; the run goes on.

    The output and the exit code are those of `call`.
    """
    raise SystemExit(asyncio.run(_follow(target, run_id, cursor=cursor)))


async def _start_in_background(target: Target, start: Start) -> dict[str, Any]:
    headers = {"content-type": "application/json", "prefer": "respond-async"}
    async with target.client() as client:
        return await target.ask(client, "POST", start.path, content=start.body, headers=headers)


async def _follow(target: Target, run_id: str, *, start: Start | None = None, cursor: int = 0) -> int:
    """The exit code of the run. What was started here is stopped by Ctrl-C; what is only watched is left."""
    with open_screen() as screen:
        async with target.client() as client:
            following = Following(target, client, run_id, start=start, cursor=cursor, note=screen.note)
            reading = asyncio.create_task(following.follow(screen.show), name="follow")
            stopper = Stopper(target, client, following, screen)
            steps: tuple[Callable[[], object], ...] = (reading.cancel,)
            if start is not None:
                steps = (stopper.begin, reading.cancel)
            try:
                with on_interrupt(*steps):
                    terminal = await reading
            except asyncio.CancelledError:
                return CANCELLED
            finally:
                await stopper.end()
            if terminal is not None:
                return code_of_end(terminal.value)
            return code_of_record(await target.ask(client, "GET", path("runs", run_id)))


class Stopper:
    """Posts Stop, once, and makes sure that it arrives: the run may not have started, the gateway may be away."""

    def __init__(self, target: Target, client: httpx.AsyncClient, following: Following, screen: Screen) -> None:
        self._target = target
        self._client = client
        self._following = following
        self._screen = screen
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._screen.note("Stopping… (Ctrl-C again leaves)")
        self._task = asyncio.create_task(self._stop(), name="stop")

    async def sent(self) -> None:
        """Waits until the gateway has taken the Stop, or refused it."""
        if self._task is not None:
            await self._task

    async def end(self) -> None:
        """The run has ended, or nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _stop(self) -> None:
        where = path("runs", self._following.run_id, "stop")
        while True:
            started = (
                self._following.started.is_set()
            )  # before the answer, or a run that starts meanwhile is not stopped
            try:
                await self._target.ask(self._client, "POST", where)
            except Refused as error:
                if started:
                    self._screen.note(f"Stop was refused: {error.message}")
                    return
                # Not there yet: it is as soon as its first event is.
                await self._following.started.wait()
            except Unreachable:
                await asyncio.sleep(STOP_AGAIN_SECONDS)
            else:
                return
