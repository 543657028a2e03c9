"""Progress: at most one report in 50 ms, the last one never lost, the bar never backwards."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.run.pacing import INTERVAL, ProgressPacer

numbers = st.one_of(st.floats(-1e9, 1e9), st.integers(-1_000, 1_000), st.just(math.nan), st.just(math.inf))
totals = st.one_of(st.none(), st.floats(), st.integers(-10, 1_000))
steps = st.lists(st.tuples(st.floats(0, 0.2), numbers, totals, st.one_of(st.none(), st.text())), max_size=60)


def play(reports: list[tuple[float, float, float | None, str | None]]) -> list[tuple[float, dict[str, Any]]]:
    """What leaves, and when, if the caller fetches what is due in time, and the rest at the end."""
    pacer = ProgressPacer()
    now = 100.0
    sent: list[tuple[float, dict[str, Any]]] = []
    for pause, progress, total, message in reports:
        if (due := pacer.due) is not None and due <= now + pause:
            sent.append((due, pacer.take(due) or {}))
        now += pause
        if (value := pacer.report(now, progress, total, message)) is not None:
            sent.append((now, value))
    if (value := pacer.take(now, force=True)) is not None:
        sent.append((math.inf, value))
    assert pacer.due is None
    return sent


@given(steps)
def test_what_leaves_is_spaced_by_the_interval(reports: list[Any]) -> None:
    times = [at for at, _ in play(reports)]
    assert all(later - earlier >= INTERVAL - 1e-9 for earlier, later in pairwise(times))


@given(steps)
def test_the_last_report_is_never_lost(reports: list[Any]) -> None:
    sent = play(reports)
    assert bool(sent) is bool(reports)
    if reports:
        _, _, total, message = reports[-1]
        assert sent[-1][1].get("message") == message
        assert ("total" in sent[-1][1]) is (total is not None and math.isfinite(total))


@given(steps)
def test_the_bar_never_goes_back_and_is_always_a_number(reports: list[Any]) -> None:
    values = [value["progress"] for _, value in play(reports)]
    assert all(math.isfinite(value) for value in values)
    assert values == sorted(values)
    if values:
        real = [progress for _, progress, _, _ in reports if math.isfinite(progress)]
        first = reports[0][1]
        assert values[-1] == max([*([] if math.isfinite(first) else [0]), *real])


@given(steps)
def test_percent_is_within_0_and_100_and_there_iff_the_total_is_positive(reports: list[Any]) -> None:
    for _, value in play(reports):
        assert ("percent" in value) is (value.get("total", 0) > 0)
        assert 0 <= value.get("percent", 0) <= 100


def test_a_lower_report_keeps_the_progress_and_takes_the_message() -> None:
    pacer = ProgressPacer()
    assert pacer.report(0, 5, 10) == {"progress": 5, "total": 10, "percent": 50}
    assert pacer.report(1, 3, 10, "again") == {"progress": 5, "total": 10, "percent": 50, "message": "again"}
    assert pacer.report(2, math.nan, None) == {"progress": 5}


def test_reports_in_between_are_conflated_to_the_newest() -> None:
    pacer = ProgressPacer()
    assert pacer.report(0, 1) == {"progress": 1}
    assert pacer.report(0.01, 2) is None
    assert pacer.report(0.02, 3) is None
    assert pacer.due == pytest.approx(INTERVAL)
    assert pacer.take(0.03) is None
    assert pacer.take(INTERVAL) == {"progress": 3}
    assert pacer.take(1) is None
