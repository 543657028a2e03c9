"""How the commands end: exit codes, the errors that carry one, and what a run's end means for it (contract 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

__all__ = [
    "CANCELLED",
    "COMPLETED",
    "FAILED",
    "REFUSED",
    "TIMEOUT",
    "UNAVAILABLE",
    "USAGE",
    "Refused",
    "Unreachable",
    "UsageError",
    "code_of_end",
    "code_of_record",
]

COMPLETED = 0
FAILED = 1
USAGE = 2
REFUSED = 3
UNAVAILABLE = 75  # EX_TEMPFAIL of sysexits.h: try again later
TIMEOUT = 124  # as timeout(1) has it
CANCELLED = 130  # as a shell has it for Ctrl-C

# `unknown` (the page of a page tool went away) may have done its work: neither success nor to be tried again blindly.
_OF_STATUS = {
    "completed": COMPLETED,
    "detached": COMPLETED,
    "cancelled": CANCELLED,
    "timeout": TIMEOUT,
    "interrupted": UNAVAILABLE,
    "unavailable": UNAVAILABLE,
}
_OF_ERROR = {
    "run_timeout": TIMEOUT,
    "interrupted": UNAVAILABLE,
    "store_unavailable": UNAVAILABLE,
    "store_lost": UNAVAILABLE,
    "upstream_unavailable": UNAVAILABLE,
    "upstream_disconnected": UNAVAILABLE,
    "upstream_timeout": TIMEOUT,
}
_OF_OUTCOME = {"cancelled": CANCELLED, "interrupt": UNAVAILABLE}


class UsageError(click.ClickException):
    """Something on the command line, or in a file that it names, is wrong."""

    exit_code = USAGE


class Refused(click.ClickException):
    """The gateway answered with a 4xx."""

    exit_code = REFUSED


class Unreachable(click.ClickException):
    """No gateway, or it cannot serve now."""

    exit_code = UNAVAILABLE


def code_of_end(event: Mapping[str, Any]) -> int:
    """The exit code for a run's terminal event: of a `/tools` run what its call ended in decides."""
    if event.get("type") == "RUN_ERROR":
        return _OF_ERROR.get(str(event.get("code")), FAILED)
    outcome, result = event.get("outcome"), event.get("result")
    kind = outcome.get("type") if isinstance(outcome, Mapping) else None
    if kind in _OF_OUTCOME:
        return _OF_OUTCOME[kind]
    if isinstance(result, Mapping) and "status" in result:
        return _OF_STATUS.get(str(result["status"]), FAILED)
    return COMPLETED


def code_of_record(record: Mapping[str, Any]) -> int:
    """The same for a run whose events are read already, from its record."""
    error, calls = record.get("error"), record.get("toolCalls")
    if isinstance(error, Mapping):
        return _OF_ERROR.get(str(error.get("code")), FAILED)
    status = record.get("status")
    # The run of a tool is `completed` whatever its call ended in.
    if status == "completed" and record.get("agent") == "tools" and isinstance(calls, list) and len(calls) == 1:
        status = calls[0].get("status")
    return _OF_STATUS.get(str(status), FAILED)
