"""What the pages say in words, checked against the code: links, flags, variables, settings, names, codes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import click
import pytest

import gateway
from gateway import AuthContext, Gateway, Settings, ToolContext
from gateway.cli import exits
from gateway.cli.main import main
from gateway.cli.options import variable_of
from gateway.demo.app import create_demo
from gateway.execution.live import BUSY
from gateway.http.openapi import OPERATIONS
from gateway.http.openapi_parts import COMMON_ERRORS
from gateway.run.log import BLOCK_BYTES
from gateway.run.pacing import INTERVAL
from gateway.settings import ENV_PREFIX
from gateway.wire.inputs import ToolRunInput
from tests.docs.pages import PAGES, ROOT, Page, page
from tests.test_repository import PROJECT

HTTP = page("docs/reference/http.md")
COMMAND_LINE = page("docs/how-to/command-line.md")
AUTHENTICATE = page("docs/how-to/authenticate.md")
OPERATE = page("docs/how-to/operate.md")

ALL = pytest.mark.parametrize("where", PAGES, ids=lambda found: found.name)
# What cannot be broken: rows of tables, what programs print, bodies for curl.
OF_ANY_LENGTH = ("|", "data: ", "{'role'", "  -d '")
# Codes that come from a default of the framework's errors, which no OpenAPI operation lists.
ANY_PATH = {("404", "not_found"), ("405", "method_not_allowed")}


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def flags(command: click.Command) -> set[str]:
    named = [[*parameter.opts, *parameter.secondary_opts] for parameter in command.params]
    return {flag for names in named for flag in names if flag.startswith("--")} | {"--help"}


def published_errors() -> set[tuple[str, str]]:
    """Every status with each of its codes, as the OpenAPI document has them."""
    listed = [*COMMON_ERRORS.items(), *(item for operation in OPERATIONS for item in operation.errors.items())]
    return {(str(status), code) for status, codes in listed for code in re.findall(r"`(\w+)`", codes)} | ANY_PATH


@ALL
def test_every_relative_link_leads_to_a_file_and_a_heading(where: Page) -> None:
    pages = {found.path: found for found in PAGES}
    for link in where.links:
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        target, _, anchor = link.partition("#")
        path = (where.path.parent / target).resolve() if target else where.path
        assert path.exists(), f"{where.name}: {link}"
        assert not anchor or anchor in pages[path].anchors, f"{where.name}: {link}"


def test_the_index_names_every_page() -> None:
    index = page("docs/README.md")
    linked = {(index.path.parent / link).resolve() for link in index.links}
    assert [found.name for found in PAGES[1:] if found is not index and found.path not in linked] == []


@ALL
def test_every_environment_variable_exists(where: Page) -> None:
    known = {variable_of(name) for name in Settings.model_fields}
    known |= {f"{ENV_PREFIX}{name}" for name in ("URL", "TOKEN", "SESSION")}
    assert set(re.findall(rf"{ENV_PREFIX}[A-Z_]+\w", where.text)) - known == set()


@ALL
def test_every_flag_exists(where: Page) -> None:
    all_flags = set().union(*map(flags, commands().values()))
    in_words = {flag for code in where.codes for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", code)}
    in_words -= {"--no-"}  # the beginning of many
    assert in_words - all_flags == set()
    for line in where.text.splitlines():
        for name, rest in re.findall(r"agui-gateway (\w+)([^`#]*)", line):
            assert name in commands(), line
            assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - flags(commands()[name]) == set(), line


@ALL
def test_every_keyword_of_a_gateway_exists(where: Page) -> None:
    known = set(inspect.signature(Gateway).parameters) | set(Settings.model_fields)
    used = {name for call in re.findall(r"Gateway\(([^)]*)\)?", where.text) for name in re.findall(r"(\w+)=", call)}
    assert used - known == set()


@ALL
def test_every_member_of_the_context_and_every_public_name_exists(where: Page) -> None:
    members = {name for name in re.findall(r"\bctx\.(\w+)", where.text) if name.islower()}  # others are not Python's
    assert {name for name in members if not hasattr(ToolContext, name)} == set()
    imported = re.findall(r"^from gateway import (.+)$", where.text, re.MULTILINE)
    assert {name for names in imported for name in names.split(", ")} - set(gateway.__all__) == set()


@ALL
def test_every_status_with_a_code_is_one_that_is_published(where: Page) -> None:
    pairs = {(status, code) for text in where.codes for status, code in re.findall(r"^([45]\d\d) ([a-z_]+)$", text)}
    assert pairs - published_errors() == set()


@ALL
def test_nothing_is_said_of_how_the_pages_came_about(where: Page) -> None:
    assert re.findall(r"\b(?:TODO|FIXME|XXX|lorem)\b", where.text) == []
    assert [line for line in where.text.splitlines() if len(line) > 130 and not line.startswith(OF_ANY_LENGTH)] == []


# -- tables --


def test_the_reference_has_every_path() -> None:
    rows = {row[0].strip("`"): row[2] for row in HTTP.table("method and path")}
    assert rows.keys() == {f"{operation.method.upper()} {operation.path}" for operation in OPERATIONS}
    for operation in OPERATIONS:
        answers = rows[f"{operation.method.upper()} {operation.path}"]
        assert set(re.findall(r"\d{3}", answers)) == {str(status) for status in operation.answers}, operation.path


def test_the_reference_has_every_refusal() -> None:
    rows = {(row[0], row[1].strip("`")) for row in HTTP.table("status")}
    assert rows == published_errors()


def test_the_reference_has_every_field_of_a_tool_run() -> None:
    names = [field.alias for field in ToolRunInput.model_fields.values()]
    assert sorted(row[0].strip("`") for row in HTTP.table("field")) == sorted(str(name) for name in names)


def test_the_fields_of_the_caller_are_those_of_auth_context() -> None:
    rows = [row[0].strip("`") for row in AUTHENTICATE.table("field of `AuthContext`")]
    assert rows == [field.name for field in dataclasses.fields(AuthContext)]


def test_the_exit_codes_are_those_of_the_commands() -> None:
    rows = [int(row[0]) for row in COMMAND_LINE.table("exit code")]
    names = ("COMPLETED", "FAILED", "USAGE", "REFUSED", "UNAVAILABLE", "TIMEOUT", "CANCELLED")
    assert rows == [getattr(exits, name) for name in names]


def test_numbers_in_words_are_the_defaults() -> None:
    settings = Settings()
    assert f"`--drain-timeout` seconds ({settings.drain_timeout:g})" in OPERATE.text
    assert f"every {settings.keep_alive:g} s of silence (`--keep-alive`)" in OPERATE.text
    assert "32 MB is the gateway's own limit" in OPERATE.text
    assert settings.max_input_bytes == 32 * 1024 * 1024
    assert f"sealed into blocks of {BLOCK_BYTES // 1024} KiB" in page("docs/explanation/design.md").text
    assert f"at most one event in {INTERVAL * 1000:g} ms goes out" in page("docs/how-to/tools.md").text
    assert f"at most {BUSY * 1000:g} ms" in page("docs/explanation/design.md").text
    assert settings.run_ttl == 3600
    assert "is kept for `run_ttl` seconds (an hour)" in page("docs/how-to/frontend.md").text.replace("\n", " ")


def test_the_readme_asks_for_the_python_of_the_package() -> None:
    version = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"Python {version} or later" in page("README.md").text
    assert create_demo().tools.all() != []


def test_every_file_that_is_named_is_there() -> None:
    design = page("docs/explanation/design.md")
    named = [code for code in design.codes if re.fullmatch(r"[\w/]+\.py|schemas/\w+|gateway/[\w/.]+", code)]
    assert named
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "gateway"))] == []
    layers: list[Path] = [ROOT / "gateway" / name for name in re.findall(r"^(\w+)/ ", design.text, re.MULTILINE)]
    assert [layer for layer in layers if not layer.is_dir()] == []
