"""`[agents]` and `[mcp_servers]` of a `gateway.toml`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import RemoteAgent
from gateway.cli.config import GatewayFile
from gateway.cli.exits import UsageError
from gateway.cli.upstreams import AgentEntry, ServerEntry
from gateway.execution.agents import LocalAgent
from gateway.upstream.mcp_server import MCPServer

MODULE = """\
async def clerk(input, ctx):
    \"\"\"Keeps the shelf full.\"\"\"
    yield {"type": "CUSTOM", "name": "x", "value": {}}

async def no_agent():
    return 1
"""

SECRET = "a-secret-of-the-environment"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module `shop_agents`, which is also the current one, and `TOKEN` in the environment."""
    (tmp_path / "shop_agents.py").write_text(MODULE, "utf-8")
    (tmp_path / "broken_agents.py").write_text("import no_such_thing_at_all\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.delenv("NO_TOKEN", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def read(folder: Path, text: str) -> GatewayFile:
    (folder / "gateway.toml").write_text(text, "utf-8")
    return GatewayFile("gateway.toml")


def server_of(folder: Path, text: str) -> MCPServer:
    (entry,) = read(folder, text).servers
    return entry.server(folder)


def test_an_agent_is_a_url_or_a_table_of_what_its_class_takes(folder: Path) -> None:
    text = """\
    [agents]
    support = "http://127.0.0.1:9000/agent"

    [agents.sales]
    url = "https://sales.example.com/agent"
    headers = { Authorization = "Bearer ${TOKEN}", x-price = "$$5" }
    forward_headers = ["X-Tenant"]
    connect_timeout = 2.5
    idle_timeout = 0
    tools = ["price"]
    description = "Sells."
    """
    agents = read(folder, text).gateway().agents.all()
    assert agents == {
        "support": RemoteAgent("http://127.0.0.1:9000/agent"),
        "sales": RemoteAgent(
            "https://sales.example.com/agent",
            headers={"Authorization": f"Bearer {SECRET}", "x-price": "$5"},
            forward_headers=["x-tenant"],
            connect_timeout=2.5,
            idle_timeout=0,
            tools=["price"],
            description="Sells.",
        ),
    }


def test_an_agent_may_be_a_function_of_a_module_beside_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(folder, '[agents]\nclerk = { module = "shop_agents:clerk" }\n')
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    agent = GatewayFile("../gateway.toml").gateway().agents.get("clerk")
    assert isinstance(agent, LocalAgent)
    assert agent.description == "Keeps the shelf full."


def test_a_server_is_a_url_or_a_command_with_what_its_class_takes(folder: Path) -> None:
    assert server_of(folder, '[mcp_servers]\nfiles = "http://127.0.0.1:9100/mcp"\n') == MCPServer(
        "http://127.0.0.1:9100/mcp"
    )
    text = """\
    [mcp_servers.files]
    command = "files server"
    args = ["--root", "/srv"]
    env = { TOKEN = "${TOKEN}" }
    cwd = "data"
    timeout = 5
    requires = "files"
    needs_approval = true
    tools = ["read"]
    """
    assert server_of(folder, text) == MCPServer(
        ["files server", "--root", "/srv"],
        env={"TOKEN": SECRET},
        cwd=str(folder / "data"),
        timeout=5,
        requires="files",
        needs_approval=True,
        tools=["read"],
    )
    for command in ('"files --root /srv"', '["files", "--root", "/srv"]'):
        assert server_of(folder, f"[mcp_servers.files]\ncommand = {command}\n") == MCPServer("files --root /srv")


def test_the_tables_take_all_that_their_classes_take() -> None:
    assert set(AgentEntry.keys) == {*inspect.signature(RemoteAgent).parameters, "module"}
    assert set(ServerEntry.keys) - {"url", "command", "args"} == {*inspect.signature(MCPServer).parameters} - {"server"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agents]\na = 1\n", "gateway.toml:2: agents.a: must be a URL, or a section: [agents.a]"),
        ("\nagents = 1\n", "gateway.toml:2: agents: must be a section: [agents]"),
        (
            '[agents]\na = "ftp://x"\n',
            "gateway.toml:2: agents.a: The URL of an agent is http://… or https://…, not 'ftp://x'.",
        ),
        (
            '[agents]\ntools = "http://x"\n',
            "gateway.toml:2: agents.tools: The agent 'tools' is built in: give yours another name.",
        ),
        (
            '[agents.a]\nurl = "http://x"\nidle-timeout = 1\n',
            "gateway.toml:3: agents.a.idle-timeout: no such key; did you mean idle_timeout?",
        ),
        (
            '[agents.a]\nurl = "http://x"\nidle_timeout = "1"\nconnect_timeout = -1\n',
            "gateway.toml:3: agents.a.idle_timeout: idle_timeout is a number of seconds, not str.\n"
            "gateway.toml:4: agents.a.connect_timeout: connect_timeout is a number of seconds above 0, not -1.",
        ),
        (
            '[agents.a]\nurl = "http://x"\ntools = "price"\n',
            "gateway.toml:3: agents.a.tools: tools is a collection of texts, not str.",
        ),
        (
            '[agents.a]\nurl = "http://x"\nheaders = ["x"]\n',
            'gateway.toml:3: agents.a.headers: must be a table: { name = "value" }',
        ),
        (
            '[agents.a]\nurl = "http://x"\nforward_headers = ["Content-Type"]\n',
            "gateway.toml:3: agents.a.forward_headers: forward_headers: the gateway sets 'Content-Type' itself.",
        ),
        (
            '[agents.a]\ndescription = "x"\n',
            'gateway.toml:1: agents.a: needs a url, or a module: "module:function"',
        ),
        (
            '[agents.a]\nmodule = "shop_agents:clerk"\ntools = true\n',
            "gateway.toml:1: agents.a: beside module there is nothing else.",
        ),
        ("[agents.a]\nmodule = 1\n", 'gateway.toml:2: agents.a.module: must be text: "module:function"'),
        (
            '[agents.a]\nurl = "http://x"\n\n[agents.a.headers]\nx-a = "1"\nx-b = "${NO_TOKEN}"\n',
            "gateway.toml:6: agents.a.headers.x-b: the environment has no variable NO_TOKEN.",
        ),
        ('[agents]\na = "${NO_TOKEN}"\n', "gateway.toml:2: agents.a: the environment has no variable NO_TOKEN."),
        (
            '[agents.a]\nurl = "http://x"\ntools = [\n"${no-name}",\n"${TOKEN"]\n',
            'gateway.toml:4: agents.a.tools[0]: "${no-name}" is no variable: write ${NAME}, and $$ for a dollar sign.\n'
            'gateway.toml:5: agents.a.tools[1]: "${TOKEN" is no variable: write ${NAME}, and $$ for a dollar sign.',
        ),
        (
            '[mcp_servers]\n"a b" = "http://x"\n',
            "gateway.toml:2: mcp_servers.a b: The name of an MCP server has 1 to 64 of A-Z a-z 0-9 _ . -, no __, "
            "not 'a b'.",
        ),
        ("[mcp_servers.a]\n", "gateway.toml:1: mcp_servers.a: needs a url or a command, one of them."),
        (
            '[mcp_servers]\na = "files --root /srv"\n',
            "gateway.toml:2: mcp_servers.a: must be a URL: http://… or https://…; a program is a command.",
        ),
        (
            '[mcp_servers.a]\ncommand = "http://x"\n',
            "gateway.toml:2: mcp_servers.a.command: must be a program; a URL is a url.",
        ),
        (
            '[mcp_servers.a]\nurl = "http://x"\nargs = []\n',
            "gateway.toml:1: mcp_servers.a: args belong to a command that is text.",
        ),
        (
            '[mcp_servers.a]\nurl = "http://x"\nenv = { A = "1" }\n',
            "gateway.toml:1: mcp_servers.a: env and cwd are of a command; a URL has headers.",
        ),
        (
            '[mcp_servers.a]\ncommand = "x"\nneeds_approval = "yes"\nargs = "y"\n',
            "gateway.toml:3: mcp_servers.a.needs_approval: must be true or false\n"
            "gateway.toml:4: mcp_servers.a.args: must be a list of texts",
        ),
        (
            '[mcp_servers.a]\ncommand = "x"\nCWD = "y"\n',
            "gateway.toml:3: mcp_servers.a.CWD: no such key; did you mean cwd?",
        ),
    ],
)
def test_a_fault_is_named_with_file_line_and_key(folder: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "text",
    [
        '[agents]\na = "${TOKEN}"\n',
        '[agents.a]\nurl = "http://x"\nforward_headers = ["${TOKEN} "]\n',
        '[mcp_servers]\na = "${TOKEN}"\n',
    ],
)
def test_what_the_environment_has_is_not_shown(folder: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    assert "does not fit, with what the environment has for it" in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("nowhere:a", "There is no module 'nowhere' here or installed."),
        ("shop_agents:nobody", "Module 'shop_agents' has no 'nobody'."),
        ("shop_agents:no_agent", "Agent 'a' must be a URL, a RemoteAgent, or an async generator function,"),
        ("shop_agents", "Agent 'a' must be a URL, a RemoteAgent, or an async generator function,"),
    ],
)
def test_a_module_without_the_agent_is_named_with_its_line(folder: Path, module: str, message: str) -> None:
    file = read(folder, f'[agents.a]\nmodule = "{module}"\n')
    with pytest.raises(UsageError) as caught:
        file.gateway()
    assert caught.value.message.startswith(f"gateway.toml:2: agents.a.module: {message}")


def test_an_error_inside_of_an_agents_module_says_which_line_asked_for_it(folder: Path) -> None:
    file = read(folder, '[agents]\na = { module = "broken_agents:a" }\n')
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all") as caught:
        file.gateway()
    assert caught.value.__notes__ == [
        "gateway.toml:2: agents.a.module: this happened while 'broken_agents:a' was imported."
    ]
