"""What is known of MCP servers without one: their configuration, the names of their tools, arguments, errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError, types

from gateway import MCPServer, ToolError, tool
from gateway.errors import InvalidArguments
from gateway.execution.names import TOOL_NAME
from gateway.execution.registry import Registry
from gateway.execution.servers import ServerDown, ServerLost
from gateway.upstream.mcp_faults import Refused, fault_of
from gateway.upstream.mcp_list import definitions
from gateway.upstream.mcp_names import tool_names
from gateway.upstream.mcp_servers import MCPServers
from gateway.upstream.mcp_tool import Definition, MCPTool

# -- configuration --


@pytest.mark.parametrize(
    "server", [7, [], "", [""], ["a", 7], "ends 'nowhere", "http:///mcp", "https://a b/", "http://h/#x"]
)
def test_what_is_no_server_is_refused(server: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        MCPServer(server)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://user:secret@h/mcp", {}),
        ("http://h/mcp", {"headers": {"a b": "c"}}),
        ("http://h/mcp", {"headers": {"a": "secret\r\nb: c"}}),
        ("http://h/mcp", {"headers": {"Mcp-Session-Id": "secret"}}),
        ("http://h/mcp", {"headers": {"a": 7}}),
        ("http://h/mcp", {"headers": ["secret"]}),
        ("http://h/mcp", {"env": {"A": "secret"}}),
        ("http://h/mcp", {"cwd": "/"}),
        ("http://h/mcp", {"connect_timeout": 0}),
        ("http://h/mcp", {"connect_timeout": True}),
        ("http://h/mcp", {"timeout": -1}),
        ("http://h/mcp", {"requires": [""]}),
        ("http://h/mcp", {"needs_approval": 1}),
        ("http://h/mcp", {"tools": "read"}),
        (["command"], {"headers": {"a": "secret"}}),
        (["command"], {"cwd": 7}),
        (["com\0mand"], {}),
    ],
)
def test_options_that_do_not_fit_are_refused_without_their_secrets(url: Any, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        MCPServer(url, **options)
    assert "secret" not in str(refused.value)


def test_a_command_is_a_list_or_a_line_and_secrets_are_not_shown() -> None:
    line = MCPServer("npx -y 'a server'", env={"KEY": "secret"})
    assert line.command == ("npx", "-y", "a server")
    assert line == MCPServer(["npx", "-y", "a server"], env={"KEY": "secret"})
    assert line.url is None
    behind = MCPServer("HTTPS://h/mcp", headers={"Authorization": "secret"})
    assert (behind.url, behind.command) == ("HTTPS://h/mcp", ())
    assert "secret" not in f"{line}{behind}"


@pytest.mark.parametrize(
    "servers", [["a"], {7: "http://h"}, {"": "http://h"}, {"a b": "http://h"}, {"a__b": "http://h"}]
)
def test_names_that_no_server_can_have_are_refused(servers: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        MCPServers(servers)


def test_the_library_is_not_imported_before_a_gateway_with_servers_runs() -> None:
    script = (
        "import sys; from gateway import Gateway; Gateway(mcp_servers={'a': 'http://h'}); print('mcp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- names --


def test_names_are_the_servers_where_they_can_be() -> None:
    assert tool_names("files", ["read", "list.all", "read file"]) == {
        "read": "files__read",
        "list.all": "files__list.all",
        "read file": "files__read_file",
    }


@given(st.lists(st.text(max_size=200), max_size=8, unique=True), st.randoms())
def test_any_names_fit_are_different_and_the_same_in_every_order(names: list[str], random: Any) -> None:
    made = tool_names("server", names)
    assert len(set(made.values())) == len(names)
    assert all(TOOL_NAME.fullmatch(name) and name.startswith("server__") for name in made.values())
    random.shuffle(names)
    assert tool_names("server", names) == made


# -- the catalogue --


@tool
async def own() -> None: ...


def test_what_servers_supply_comes_and_goes_and_the_gateways_own_stays() -> None:
    registry = Registry([own])
    registry.expect("a", "a__", None)
    registry.expect("b", "b__", None)
    first, second, third = (tool(name=name)(own.func) for name in ("own", "x", "x"))
    assert registry.supply("b", [first, second]) == ([second], [])
    assert registry.get("own") is own
    assert registry.supply("a", [third]) == ([], [])
    assert registry.get("x") is third  # it was expected first
    assert registry.all() == [own, third]
    assert registry.supply("a", []) == ([], [])
    assert registry.get("x") is second
    assert registry.supply("b", []) == ([], [second])
    with pytest.raises(ValueError, match="two tools"):
        registry.add(own)


# -- arguments --


def made(schema: dict[str, Any]) -> MCPTool:
    return MCPTool(
        "s__x",
        Definition("x", "", schema, None, {}),
        Nowhere(),
        timeout=None,
        requires=frozenset(),
        needs_approval=False,
    )


class Nowhere:
    async def call(self, name: str, arguments: Any, ctx: Any) -> Any:
        raise ServerDown


def test_arguments_that_break_the_schema_are_named() -> None:
    checks = made({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]})
    with pytest.raises(InvalidArguments) as refused:
        checks.validate({"a": "x"})
    assert refused.value.details == [
        {"field": "a", "message": "Input should be an integer"},
        {"field": "b", "message": "Field required"},
    ]
    assert checks.validate({"a": 1, "b": None, "c": 2}) == {"a": 1, "b": None, "c": 2}
    with pytest.raises(InvalidArguments):
        checks.validate([])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"pattern": "(?=x)"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"$ref": "http://elsewhere/schema"}}},
        {"type": "object", "items": [{"type": "no such type"}]},
    ],
)
def test_what_cannot_be_followed_here_is_left_to_the_server(schema: dict[str, Any]) -> None:
    assert made(schema).validate({"a": "y"}) == {"a": "y"}


def test_tools_that_only_run_as_tasks_do_not_join() -> None:
    task = types.Tool(
        name="task", input_schema={"type": "object"}, execution=types.ToolExecution(task_support="required")
    )
    titled = types.Tool(name="titled", title="Its title", input_schema={"type": "object"})
    assert definitions(MCPServer("http://h/mcp"), [task, titled]) == [
        Definition("titled", "Its title", {"type": "object"}, None, {})
    ]


# -- what goes wrong --

REFUSED = httpx2.ConnectError("refused")
BROKEN = httpx2.ReadError("broken")
CLOSED = MCPError(types.CONNECTION_CLOSED, "Connection closed")


@pytest.mark.parametrize(
    ("error", "opened", "kind"),
    [
        (None, True, ServerLost),
        (None, False, ServerDown),
        (asyncio.CancelledError(), True, ServerLost),
        (BaseExceptionGroup("", [BaseExceptionGroup("", [REFUSED])]), True, ServerDown),
        (BaseExceptionGroup("", [BROKEN]), True, ServerLost),
        (BROKEN, False, ServerDown),
        (CLOSED, True, ServerLost),
        (ExceptionGroup("", [CLOSED, REFUSED]), True, ServerDown),
        (ExceptionGroup("", [Refused("503")]), True, ServerDown),
        (MCPError(types.INVALID_PARAMS, "No such tool"), True, ToolError),
        (MCPError(types.INTERNAL_ERROR, "broken"), False, ServerDown),
        (ExceptionGroup("", [ToolError("denied", "no")]), True, ToolError),
        (ValueError("odd"), True, ToolError),
    ],
)
def test_errors_of_the_library_become_ours(error: BaseException | None, opened: bool, kind: type[Exception]) -> None:
    assert type(fault_of(error, opened=opened)) is kind
