"""`agui-gateway runs` and `agui-gateway stop`: records of runs, as a table or as JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.client import Target, path, target_options
from gateway.cli.screens import printable
from gateway.run.state import State

__all__ = ["print_record", "runs", "stop"]

PAGE = 200  # the most that the gateway gives at once
STATUSES = [state.value for state in State if state is not State.NEW]


@click.command()
@click.option("--thread", help="Only runs of this thread.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many, newest first.")
@target_options
def runs(target: Target, thread: str | None, status: str | None, limit: int) -> None:
    """List the runs of this session, newest first: a table, or without a terminal one JSON line a run."""
    if target.session is None and target.token is None:
        click.echo("Without --session or --token there is nobody whose runs these could be.", err=True)
    query = {name: value for name, value in (("threadId", thread), ("status", status)) if value is not None}
    records = asyncio.run(_list(target, query, limit))
    if sys.stdout.isatty():
        Console().print(_table(records))
    else:
        for record in records:
            print_record(record)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reason", help="Why, for those who watch.")
@target_options
def stop(target: Target, run_id: str, reason: str | None) -> None:
    """Stop RUN, and print its record. A run that is over stays as it is."""
    print_record(asyncio.run(_stop(target, run_id, {} if reason is None else {"reason": reason})))


def print_record(record: Mapping[str, Any]) -> None:
    """A record as a table of one run, or as a JSON line."""
    if sys.stdout.isatty():
        Console().print(_table([record]))
    else:
        click.echo(json.dumps(record, separators=(",", ":")))


async def _list(target: Target, query: dict[str, str], limit: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    async with target.client() as client:
        after: str | None = None
        while len(found) < limit:
            page = {**query, "limit": str(min(limit - len(found), PAGE))} | ({"after": after} if after else {})
            answer = await target.ask(client, "GET", "/runs", params=page)
            found += answer.get("items", [])
            after = answer.get("next")
            if after is None:
                break
    return found


async def _stop(target: Target, run_id: str, body: dict[str, str]) -> dict[str, Any]:
    async with target.client() as client:
        return await target.ask(client, "POST", path("runs", run_id, "stop"), json=body)


def _table(records: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("RUN", "CALLS", "STATUS", "STARTED", "SECONDS", "EVENTS", "THREAD"):
        # The run's id is there to be copied; the rest may give way to it.
        table.add_column(
            name,
            no_wrap=name in ("RUN", "STATUS"),
            overflow="fold" if name == "CALLS" else "ellipsis",
            justify="right" if name in ("SECONDS", "EVENTS") else "left",
        )
    for record in records:
        table.add_row(*(Text(printable(cell)) for cell in _cells(record)))
    return table


def _cells(record: Mapping[str, Any]) -> tuple[str, ...]:
    calls = [f"{call.get('toolName')} {call.get('status')}" for call in record.get("toolCalls") or []]
    started, ended = _time(record.get("startedAt") or record.get("createdAt")), _time(record.get("endedAt"))
    return (
        str(record.get("runId")),
        "\n".join(calls) or str(record.get("agent")),
        str(record.get("status")),
        started.astimezone().isoformat(" ", "seconds")[:19] if started else "",
        f"{(ended - started).total_seconds():.1f}" if started and ended else "",
        str(record.get("lastEventId", "")),
        str(record.get("threadId")),
    )


def _time(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
