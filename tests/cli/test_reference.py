"""Every setting has one flag, one variable and one line in docs/reference/settings.md, and all come from `Settings`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.cli.options import flag_of, variable_of
from gateway.cli.reference import settings_page
from gateway.settings import Settings
from tests.cli.commands import run_command

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
FIELDS = list(Settings.model_fields)


def test_the_page_on_disk_is_what_the_settings_say() -> None:
    assert PAGE.read_text("utf-8") == settings_page(), "run scripts/reference"


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_has_a_description_and_one_line_with_its_flag_and_its_variable(name: str) -> None:
    rows = [line for line in settings_page().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    assert f"| `{flag_of(name)}` | `{variable_of(name)}` |" in rows[0]
    description = Settings.model_fields[name].description
    assert description
    assert description.endswith(".")
    assert rows[0].endswith(f"| {description} |")


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_the_help_has_every_flag_once_with_its_variable(command: str) -> None:
    result = run_command(command, "--help")
    text = " ".join(result.stdout.split())
    flags = re.findall(r"^  (?:-h, )?(--[a-z-]+)", result.stdout, re.MULTILINE)
    own = ["--agent", "--mcp"] if command == "serve" else []
    assert flags == [*own, *map(flag_of, FIELDS), "--help"]
    # Long names may be broken at the end of a line.
    assert [name for name in FIELDS if variable_of(name) not in text.replace("- ", "-")] == []
