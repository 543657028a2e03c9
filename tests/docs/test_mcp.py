"""What the page about MCP servers says in words and tables."""

from __future__ import annotations

import inspect
import re

from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from gateway import MCPServer
from gateway.upstream.mcp_link import REFUSALS
from gateway.upstream.mcp_names import MAX_SERVER
from gateway.upstream.mcp_tool import MAX_CHECKED_BYTES
from gateway.upstream.mcp_watch import LONGEST_PAUSE, POLL
from tests.docs.mcp_checks import MCP
from tests.docs.pages import page

PAGE = page(MCP)
WORDS = " ".join(PAGE.prose.split())


def test_the_table_of_options_has_those_of_the_class_with_their_defaults() -> None:
    rows = {row[0].strip("`"): row[2] for row in PAGE.table("option")}
    assert list(rows) == list(inspect.signature(MCPServer).parameters)
    assert rows["connect_timeout"] == f"{MCPServer('http://h').connect_timeout:g}"


def test_the_table_of_ends_names_the_statuses_that_say_nothing_about_a_call() -> None:
    row = next(row[0] for row in PAGE.table("what happens") if "cannot be reached" in row[0])
    assert [int(status) for status in re.findall(r"\d{3}", row)] == sorted(REFUSALS)


def test_the_numbers_and_the_environment_are_those_of_the_code() -> None:
    assert f"up to {MAX_SERVER} characters" in WORDS
    assert f"longer than {MAX_CHECKED_BYTES // 1024} KiB" in WORDS
    assert f"else after {POLL:g} s" in WORDS
    assert f"at last every {LONGEST_PAUSE:g} s" in WORDS
    for name in DEFAULT_INHERITED_ENV_VARS:
        assert f"`{name}`" in WORDS
