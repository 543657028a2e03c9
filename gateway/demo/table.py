"""A table read from CSV text: its columns, its rows checked one by one, and statistics by SQLite."""

import csv
import io
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway import ToolError

Value = str | int | float | None

# A column is one of numbers when most of its values are: then the rest are mistakes, not text.
NUMERIC_SHARE = 0.6

# SQLite keeps integers in 64 bits; a longer one is kept as a float.
MAX_INTEGER = 2**63 - 1

MAX_COLUMNS = 100


class RowError(ValueError):
    """This row does not fit the table; the message says why."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    numeric: bool

    def parse(self, text: str) -> Value:
        """The value of one field, `None` when it is empty; `RowError` for a word in a column of numbers."""
        text = text.strip()
        if not text or not self.numeric:
            return text or None
        value = number(text)
        if value is None:
            raise RowError(f"{self.name}: {text!r} is not a number")
        return value


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    lines: Sequence[tuple[int, Sequence[str]]]
    """Line number in the text and the fields, one entry a row; not checked yet."""

    def row(self, fields: Sequence[str]) -> dict[str, Value]:
        """The row by column name; `RowError` when it does not fit."""
        if len(fields) != len(self.columns):
            raise RowError(f"expected {len(self.columns)} fields, got {len(fields)}")
        return {column.name: column.parse(field) for column, field in zip(self.columns, fields, strict=True)}


def read_table(text: str) -> Table:
    """Comma, semicolon or tab separated text with a header line; `ToolError` when nothing can be imported."""
    # A lone surrogate is legal in JSON but not in SQLite.
    text = text.encode("utf-8", "replace").decode()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        lines = [(reader.line_num, fields) for fields in reader if any(field.strip() for field in fields)]
    except csv.Error as error:
        raise ToolError("invalid_csv", f"Line {reader.line_num} is not CSV: {error}") from error
    if len(lines) < 2:
        raise ToolError("invalid_csv", "The text needs a header line and at least one row.")
    rows = lines[1:]
    return Table(_columns(lines[0][1], [fields for _, fields in rows]), rows)


def number(text: str) -> int | float | None:
    """A finite number, or `None` when the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    try:
        whole = int(text)
    except ValueError:  # a fraction, an exponent
        return value
    return whole if abs(whole) <= MAX_INTEGER else value


def statistics(columns: Sequence[Column], rows: Sequence[Mapping[str, Value]]) -> list[dict[str, object]]:
    """Load the rows into a table in memory and describe each column.

    `[{column, filled, distinct, min?, max?, mean?}]`, the last three for columns of numbers.
    """
    connection = sqlite3.connect(":memory:")
    try:
        # One record a value: a header may hold any name, and none becomes part of a statement.
        connection.execute("CREATE TABLE imported (line INTEGER, name TEXT, value)")
        values = ((line, name, value) for line, row in enumerate(rows) for name, value in row.items())
        connection.executemany("INSERT INTO imported VALUES (?, ?, ?)", values)
        return [_describe(connection, column) for column in columns]
    finally:
        connection.close()


def _describe(connection: sqlite3.Connection, column: Column) -> dict[str, object]:
    filled, distinct, low, high, mean = connection.execute(
        "SELECT count(value), count(DISTINCT value), min(value), max(value), avg(value) FROM imported WHERE name = ?",
        [column.name],
    ).fetchone()
    described: dict[str, object] = {"column": column.name, "filled": filled, "distinct": distinct}
    if column.numeric and filled:
        described |= {"min": low, "max": high, "mean": round(mean, 4)}
    return described


def _delimiter(text: str) -> str:
    header = text.lstrip().partition("\n")[0]
    return max(",;\t", key=header.count)


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Column]:
    names = [name.strip() for name in header]
    if "" in names or len(set(names)) != len(names):
        raise ToolError("invalid_csv", "Every column needs a name of its own in the header line.")
    if len(names) > MAX_COLUMNS:
        raise ToolError("invalid_csv", f"The table has {len(names)} columns, the limit is {MAX_COLUMNS}.")
    fitting = [fields for fields in rows if len(fields) == len(names)]
    return [Column(name, _is_numeric([row[index] for row in fitting])) for index, name in enumerate(names)]


def _is_numeric(fields: Sequence[str]) -> bool:
    values = [field for field in fields if field.strip()]
    numbers = sum(number(value) is not None for value in values)
    return bool(values) and numbers >= NUMERIC_SHARE * len(values)
