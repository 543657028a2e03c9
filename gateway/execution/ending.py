"""How runs end: when something other than the person ended them, and when their agent says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.run.questions import NONE, Question

__all__ = ["ENDINGS", "SUCCESS", "Ending"]

# What a run ends in when something other than the person ended it: RUN_ERROR code and text (contract 4.4).
ENDINGS: Mapping[str, tuple[str, str]] = {
    "run_timeout": ("run_timeout", "The run took longer than it may."),
    "disconnect": ("interrupted", "The run was ended because nobody was watching it any more."),
    "shutdown": ("interrupted", "The run was ended by a shutdown of the gateway."),
    "superseded": ("interrupted", "Another worker has taken the run over."),
    "lost": ("interrupted", "The run was ended by the death of its worker."),
    "store": ("store_unavailable", "The store did not keep the run's events."),
    "store_lost": ("store_lost", "The store came back without the run."),
}


@dataclass(frozen=True, slots=True)
class Ending:
    """What an agent wants its run to end in; what has stopped the run comes before that.

    A success, unless there is a `failure` (RUN_ERROR code and text) or something was asked. `asked` are its own
    interrupts, each with the question that it is kept as; those of calls come to them. `more` are fields that it adds
    to the terminal event: `usage`, `metadata`.
    """

    failure: tuple[str, str] | None = None
    asked: tuple[tuple[Question, Mapping[str, Any]], ...] = ()
    more: Mapping[str, Any] = field(default_factory=lambda: NONE)


SUCCESS = Ending()
