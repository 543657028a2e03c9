"""The line of a key in a TOML text."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.toml_lines import line_of, line_of_error

TEXT = '''\
# [settings] in a comment

[settings]
port = 1   # the port
"stop_grace" = 2
text = """
port = 3
[tools]
"""

[tools]
modules = [
  "a", "b",
  # "x"
  "c"

  , "d",
]

[settings.deep]
x.y = { z = 1 }
[[agents]]
name = "one"
[[agents]]
name = "two"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("settings",), 3),
        (("settings", "port"), 4),
        (("settings", "stop_grace"), 5),
        (("settings", "text"), 6),
        (("tools",), 11),
        (("tools", "modules"), 12),
        (("tools", "modules", 0), 13),
        (("tools", "modules", 1), 13),
        (("tools", "modules", 2), 15),
        (("tools", "modules", 3), 17),
        (("settings", "deep"), 20),
        (("settings", "deep", "x", "y", "z"), 21),
        (("agents",), 22),
        (("agents", 1, "name"), 25),
        (("tools", "nothing"), 11),
        (("settings", "port", "below"), 4),
        (("nothing",), 1),
        ((), 1),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_key_is_found_on_its_line(path: tuple[str | int, ...], line: int, end: str) -> None:
    assert line_of(TEXT.replace("\n", end), path) == line


VALUES = st.sampled_from(["1", '"="', "[1, 2]", "[\n 1,\n 2,\n]", '"""\na = 1\n[x]\n"""', "'''\n'''", "{ a = 1 }"])
BETWEEN = st.sampled_from(["", "\n", "# k0 = 1\n", "\n\n# [s1]\n"])


@given(st.lists(st.lists(st.tuples(BETWEEN, VALUES), max_size=4), max_size=4))
def test_every_key_of_any_text_is_found_where_it_was_written(sections: list[list[tuple[str, str]]]) -> None:
    text = ""
    expected: dict[tuple[str, ...], int] = {}
    for index, keys in enumerate(sections):
        expected[(f"s{index}",)] = text.count("\n") + 1
        text += f"[s{index}]\n"
        for number, (between, value) in enumerate(keys):
            text += between
            expected[(f"s{index}", f"k{number}")] = text.count("\n") + 1
            text += f"k{number} = {value}\n"
    assert {path: line_of(text, path) for path in expected} == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a = 1\nb = \n", 2, "Invalid value"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite a value"),
        ("\n\na = [1,\n", 3, "Invalid value"),
        ("\n[x\n", 2, "Expected ']' at the end of a table declaration"),
    ],
)
def test_a_syntax_error_has_its_line_and_says_what_is_wrong(text: str, line: int, message: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    assert line_of_error(caught.value, text) == (line, message)
