"""CSV text as a table: what is read, what is refused, and the statistics."""

from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import ToolError
from gateway.demo.samples import ORDERS
from gateway.demo.table import MAX_INTEGER, RowError, number, read_table, statistics

# What a field may hold: quotes, separators and line breaks too, but no surrogate (those are replaced) and something
# that is not blank, since a row of blanks is an empty line.
field = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12).map(lambda text: f"x{text}x")


@given(st.integers(1, 5).flatmap(lambda width: st.lists(st.lists(field, min_size=width, max_size=width), min_size=1)))
def test_what_a_csv_writer_writes_is_read_back(rows: list[list[str]]) -> None:
    names = [f"c{index}" for index in range(len(rows[0]))]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *rows])
    table = read_table(text.getvalue())
    assert [column.name for column in table.columns] == names
    assert [list(table.row(fields).values()) for _, fields in table.lines] == [[f.strip() for f in row] for row in rows]


@given(st.text())
def test_any_text_is_a_table_or_refused_with_a_reason(text: str) -> None:
    try:
        table = read_table(text)
    except ToolError as error:
        code, lines = error.code, 0
    else:
        code, lines = "", len(table.lines)
    assert (code == "invalid_csv") is (lines == 0)


@given(st.one_of(st.text(), st.floats().map(str), st.integers().map(str)))
def test_a_number_is_finite_and_fits_into_the_database(text: str) -> None:
    value = number(text)
    assert value is None or math.isfinite(value)
    assert not isinstance(value, int) or abs(value) <= MAX_INTEGER


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        (" -3 ", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("nan", None),
        ("1e999", None),
        ("four", None),
        ("", None),
    ],
)
def test_numbers_are_what_python_calls_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_separator_is_found_in_the_header(delimiter: str) -> None:
    table = read_table(f"a{delimiter}b\n1{delimiter}x\n")
    assert table.row(table.lines[0][1]) == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    "text", ["", "a,b\n", "a,a\n1,2\n", "a,\n1,2\n", 'a\n"open\n', ",".join(f"c{n}" for n in range(101)) + "\n1\n"]
)
def test_text_without_a_header_and_a_row_is_refused(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        read_table(text)
    assert caught.value.code == "invalid_csv"


def test_the_three_wrong_lines_of_the_sample_are_found_with_their_reasons() -> None:
    table = read_table(ORDERS)
    wrong = {}
    for line, fields in table.lines:
        try:
            table.row(fields)
        except RowError as error:
            wrong[line] = str(error)
    assert wrong == {
        7: "items: 'four' is not a number",
        11: "expected 5 fields, got 3",
        19: "expected 5 fields, got 6",
    }


@given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31)), min_size=1))
def test_statistics_of_numbers_agree_with_python(values: list[int | None]) -> None:
    columns = read_table("name,value\nx,1\n").columns
    found = statistics(columns, [{"name": "x", "value": value} for value in values])[1]
    numbers = [value for value in values if value is not None]
    assert (found["filled"], found["distinct"]) == (len(numbers), len(set(numbers)))
    if numbers:
        assert (found["min"], found["max"]) == (min(numbers), max(numbers))
        assert found["mean"] == pytest.approx(sum(numbers) / len(numbers), abs=1e-3)


def test_a_header_is_never_part_of_a_statement() -> None:
    table = read_table("a') FROM imported -- DROP,b\n1,2\n")
    rows = [table.row(fields) for _, fields in table.lines]
    assert [column["filled"] for column in statistics(table.columns, rows)] == [1, 1]
