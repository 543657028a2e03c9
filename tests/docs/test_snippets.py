"""Every code block of the README and the docs, run as a reader would run it.

The tutorial and the proxy have tests of their own; the shapes of events and records are in test_shapes.py.
"""

from __future__ import annotations

import asyncio
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gateway import Gateway, ToolContext
from tests.docs.agent_checks import AGENT_CHECKS
from tests.docs.checks import CHECKS, NOT_RUN, Check
from tests.docs.mcp_checks import MCP_CHECKS
from tests.docs.pages import PAGES, ROOT, Page, page
from tests.docs.person_checks import PERSON_CHECKS, STANDING
from tests.docs.shells import BACKEND_PORT, Background, Shell, free_port
from tests.support.browser import Browser
from tests.support.node import INTEROP, node_environment
from tests.support.servers import Serve, Server, eventually

README = page("README.md")
FRONTEND = page("docs/how-to/frontend.md")
OPERATE = page("docs/how-to/operate.md")
AUTHENTICATE = page("docs/how-to/authenticate.md")
TOOLS = page("docs/how-to/tools.md")
ASK = page("docs/how-to/ask.md")
MOUNT = page("docs/how-to/mount.md")
TUTORIAL = "docs/tutorials/first-streaming-tool.md"

SERVER = re.compile(r"(?:AGUI_GATEWAY_PORT=\d+ )?(?:agui-gateway serve|uvicorn|make demo)\b")
# Stands for a server of the reader's: it goes on beside the gateway, to the end of the page.
BACKEND = re.compile(rf"uvicorn .* --port {BACKEND_PORT}\b")
# Pages that speak of the README's tool.
OF_COUNT = ("docs/how-to/operate.md", "docs/how-to/command-line.md")
LANGUAGES = {"", "html", "ini", "js", "json", "nginx", "python", "sh", "toml"}
# Their other files are imported by those that are run, or by test_features.py.
OF_FEATURES = {
    "docs/how-to/context.md": [
        *(
            "who.py",
            "lines.py",
            "checksum.py",
            "watch.py",
            "workspace.py",
            "convert.py",
            "publish.py",
            "logs.py",
            "app.py",
        )
    ],
    "docs/how-to/ask.md": ["app.py", "test_app.py"],
    "docs/how-to/background.md": ["app.py"],
    "docs/how-to/page-tools.md": ["app.py"],
    "docs/how-to/agents.md": ["app.py", "front.py"],
    "docs/how-to/mcp.md": ["notes.py", "app.py"],
    "docs/how-to/middleware.md": ["guard.py", "limit.py", "timing.py", "redact.py", "stock.py", "app.py"],
    "docs/how-to/session-tools.md": ["app.py"],
    "docs/how-to/adapters.md": ["tools.py", "adapter.py", "free.py", "others.py"],
    "docs/how-to/application-events.md": ["orders.py", "main.py", "cache.py"],
    "docs/how-to/coming-from.md": ["tanstack.py", "webmcp.py", "nitro.py"],
}
SECONDS = 30
# Those of the last two are run in test_person.py and test_page_tools.py.
JAVASCRIPT = {
    README.name: 1,
    AUTHENTICATE.name: 1,
    FRONTEND.name: 3,
    "docs/how-to/ask.md": 2,
    "docs/how-to/page-tools.md": 2,
}
ALL_CHECKS = {**CHECKS, **PERSON_CHECKS, **AGENT_CHECKS, **MCP_CHECKS}

WITH_COMMANDS = [found for found in PAGES if found.of("sh") and found.name != TUTORIAL]
PYTHON = [block for found in PAGES for block in found.of("python")]


def check_of(where: Page, command: str) -> Check:
    """What this command must do; the longest beginning wins."""
    fits = [start for name, start in ALL_CHECKS if name == where.name and command.startswith(start)]
    assert fits, f"{where.name}: nothing says what this command must do: {command}"
    return ALL_CHECKS[where.name, max(fits, key=len)]


@dataclass
class Standing:
    """A command that stands still until a later one has done its part: a stream on which somebody has to answer."""

    running: Background
    check: Check

    def end(self, shell: Shell) -> None:
        assert self.running.wait() == 0, self.running.output
        self.check(shell, self.running.output)


def standing(servers: ExitStack, shell: Shell, where: Page, command: str) -> Standing | None:
    """Starts the command if it is such a one, and finds in its output what a later one needs."""
    known = STANDING.get((where.name, command))
    if known is None:
        return None
    running = servers.enter_context(shell.background(command))
    placeholder, pattern = known
    shell.values[placeholder] = running.wait_for(pattern)
    return Standing(running, check_of(where, command))


def assert_installed() -> None:
    """`make demo` starts at once. Otherwise it would install into the environment that runs this test."""
    script = "{ pwd; cat requirements/dev.txt pyproject.toml; } | cksum"
    wanted = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    stamp = ROOT / ".venv" / "installed-dev"
    assert stamp.is_file(), "run scripts/install"
    assert stamp.read_text("utf-8") == wanted, "run scripts/install"


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """A folder with the files that a page says how to write."""
    where: Page = request.param
    return Shell(tmp_path, {**(README.files() if where.name in OF_COUNT else {}), **where.files()})


@pytest.mark.parametrize(("shell", "where"), [(p, p) for p in WITH_COMMANDS], indirect=["shell"], ids=lambda p: p.name)
def test_the_commands_of_a_page_work_in_the_order_in_which_they_stand_there(shell: Shell, where: Page) -> None:
    commands = [command for block in where.of("sh") for command in block.commands]
    waits = None
    with ExitStack() as backends, ExitStack() as servers:
        scripts = all(command.startswith("python ") for command in commands)
        if not scripts and not any(map(SERVER.match, commands[:5])):  # one that the page takes for granted
            servers.enter_context(shell.serving("agui-gateway serve app:gateway"))
        for command in commands:
            if command in NOT_RUN:
                continue
            if command.startswith("export "):
                shell.export(command)
                continue
            check = check_of(where, command)
            if (found := standing(servers, shell, where, command)) is not None:
                waits = found
            elif BACKEND.match(command):
                backends.enter_context(shell.background(command))
                check(shell, "")
            elif SERVER.match(command):
                servers.close()  # one after the other, as on port 8000
                if "make" in command:
                    assert_installed()
                port = free_port()
                folder = ROOT if "make" in command else shell.folder
                servers.enter_context(shell.serving(command.replace("8001", str(port)), folder))
                assert "8001" not in command or shell.url.endswith(f":{port}")
                check(shell, "")
            else:
                output = "" if command.startswith("source ") else shell.run(command)
                check(shell, output)
                if waits is not None:
                    waits.end(shell)
                    waits = None


def test_every_check_has_its_command() -> None:
    commands = {(p.name, command) for p in WITH_COMMANDS for block in p.of("sh") for command in block.commands}
    wanted = {
        (name, start) for name, start in ALL_CHECKS if not any(n == name and c.startswith(start) for n, c in commands)
    }
    assert wanted == set()
    assert set(STANDING) - commands == set()
    assert set(NOT_RUN) - {command for _, command in commands} == set()


def test_every_block_is_of_a_language_that_is_checked() -> None:
    assert {block.language for found in PAGES for block in found.blocks} == LANGUAGES
    assert {found.name: len(found.of("js")) for found in PAGES if found.of("js")} == JAVASCRIPT
    assert [found.name for found in PAGES if found.of("nginx") or found.of("ini")] == [OPERATE.name]
    assert [block for found in PAGES for block in found.of("toml") if not block.file_name] == []


def test_every_python_block_is_a_file_that_is_served_or_imported_here() -> None:
    for block in PYTHON:
        compile(block.text, str(block), "exec", dont_inherit=True)
    files = {(block.page, block.file_name) for block in PYTHON}
    assert files == {
        ("README.md", "app.py"),
        (TUTORIAL, None),  # the page says in words how to call it
        ("docs/how-to/authenticate.md", "app.py"),
        ("docs/how-to/mount.md", "starlette_app.py"),
        ("docs/how-to/mount.md", "fastapi_app.py"),
        ("docs/how-to/command-line.md", "shop.py"),
        ("docs/how-to/tools.md", "files.py"),
        ("docs/how-to/tools.md", "search.py"),
        ("docs/how-to/tools.md", "test_search.py"),
        *((name, file) for name, files in OF_FEATURES.items() for file in files),
    }


@pytest.mark.allow_blocking
@pytest.mark.parametrize(("where", "tested", "count"), [(TOOLS, "search", 2), (ASK, "app", 4)], ids=["tools", "ask"])
def test_the_test_of_a_tool_passes(
    where: Page, tested: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in where.files().items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = runpy.run_path(str(tmp_path / f"test_{tested}.py"))
    monkeypatch.delitem(sys.modules, tested)
    tests = [value for name, value in module.items() if name.startswith("test_")]
    assert len(tests) == count
    for test in tests:
        test()


def test_a_gateway_without_its_keys_does_not_start(tmp_path: Path) -> None:
    shell = Shell(tmp_path, AUTHENTICATE.files())
    with shell.background("agui-gateway serve app:gateway") as server:
        assert server.wait() != 0
        assert "API_KEYS" in server.output


def test_a_run_of_alice_does_not_exist_for_bob(tmp_path: Path) -> None:
    shell = Shell(tmp_path, AUTHENTICATE.files())
    shell.export("export API_KEYS=alice:a,bob:b")
    alice, bob, nobody = ({"authorization": f"Bearer {key}"} for key in ("a", "b", "ab"))
    with (
        shell.serving("agui-gateway serve app:gateway"),
        httpx.Client(base_url=shell.url, trust_env=False) as client,
    ):
        started = client.post("/tools/whoami", json={}, headers={**alice, "prefer": "respond-async"}).json()
        path = f"/runs/{started['runId']}"
        assert client.get(path, headers=alice).status_code == 200
        for answer in (client.get(path, headers=bob), client.post(f"{path}/stop", headers=bob)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "run_not_found")
        assert client.get(path, headers=nobody).status_code == 401
        assert [run["runId"] for run in client.get("/runs", headers=alice).json()["items"]] == [started["runId"]]
        assert client.get("/runs", headers=bob).json()["items"] == []


async def test_the_lifespan_of_the_mounting_application_ends_the_runs_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in MOUNT.files().items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    app = runpy.run_path(str(tmp_path / "fastapi_app.py"))["app"]
    gateway: Gateway = sys.modules["starlette_app"].gateway
    monkeypatch.delitem(sys.modules, "starlette_app")
    begun, reasons = asyncio.Event(), []

    @gateway.tool
    async def waits(ctx: ToolContext) -> None:
        begun.set()
        reasons.append(await ctx.abort_signal.wait())

    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    async with client, app.router.lifespan_context(app):
        answer = await client.post("/ai/tools/waits", headers={"prefer": "respond-async"})
        assert answer.headers["location"] == f"/ai/runs/{answer.json()['runId']}"
        await begun.wait()
    assert reasons == ["shutdown"]


# -- JavaScript --


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The README's tool, served."""
    shell = Shell(tmp_path_factory.mktemp("count"), README.files())
    with shell.serving("agui-gateway serve app:gateway"):
        yield shell


def in_node(script: str, url: str) -> list[str]:
    """The lines that a module prints; packages are those of tests/interop."""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script.replace("http://127.0.0.1:8000", url)],
        cwd=INTEROP,
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_official_client_runs_the_calls_of_a_conversation(count: Shell) -> None:
    printed = in_node(FRONTEND.block("js", "HttpAgent").text, count.url)
    assert sorted(printed) == sorted(
        ["c1 1", "c1 2", "c1 3", "c2 1", "c2 2", 'c1 {"counted":3}', 'c2 {"counted":2}'],
    )


def test_the_agent_of_the_readme_is_one_that_runs(count: Shell) -> None:
    call = """{ id: "c1", type: "function", function: { name: "count", arguments: '{"to":1}' } }"""
    rest = f"""
        agent.addMessage({{ id: "m1", role: "assistant", toolCalls: [{call}] }});
        const {{ newMessages }} = await agent.runAgent();
        console.log(newMessages[0].content);
    """
    assert in_node(README.block("js").text + rest, count.url) == ['{"counted":1}']


def test_event_source_in_a_browser_sees_the_progress_and_the_end(count: Shell, browser: Browser) -> None:
    shown = browser.open(f"{count.url}/")
    script = FRONTEND.block("js", "EventSource").text
    shown.evaluate(
        "(async () => { window.printed = []; console.log = (...parts) => printed.push(parts.join(' '));"
        f"{script}; window.source = events; }})()"
    )
    shown.wait("source.readyState === EventSource.CLOSED")
    printed = shown.evaluate("printed")
    assert printed[-1] == "100"
    assert printed == sorted(printed, key=float)
    assert shown.complaints() == []


def test_event_source_follows_a_run_of_alice_by_a_ticket(tmp_path: Path, browser: Browser) -> None:
    shell = Shell(tmp_path, AUTHENTICATE.files())
    shell.export("export API_KEYS=alice:a,bob:b")
    with shell.serving("agui-gateway serve app:gateway"):
        httpx.post(
            f"{shell.url}/tools/whoami", json={"runId": "r"}, headers={"authorization": "Bearer a"}, trust_env=False
        )
        shown = browser.open(f"{shell.url}/healthz")  # open to all, and of the same origin
        shown.evaluate(
            f"(async () => {{ const [key, runId] = ['a', 'r']; window.seen = []; {AUTHENTICATE.block('js').text};"
            "events.onmessage = (message) => { seen.push(JSON.parse(message.data).type);"
            "if (seen.includes('RUN_FINISHED')) events.close(); }; })()"
        )
        shown.wait("seen.includes('RUN_FINISHED')")
        assert shown.evaluate("seen[0]") == "RUN_STARTED"


# -- operation --


def test_serving_beyond_this_machine_needs_an_authenticator(tmp_path: Path) -> None:
    anonymous, known = tmp_path / "anonymous", tmp_path / "known"
    for folder in (anonymous, known):
        folder.mkdir()
    with Shell(anonymous, README.files()).background("agui-gateway serve app:gateway --host 0.0.0.0") as refused:
        assert refused.wait() == 2
        assert "--allow-anonymous" in refused.output
    shell = Shell(known, AUTHENTICATE.files())
    shell.export("export API_KEYS=alice:a,bob:b")
    with shell.serving("agui-gateway serve app:gateway --host 0.0.0.0"):
        assert shell.url.startswith("http://0.0.0.0:")


def test_the_unit_starts_what_the_page_serves_and_waits_longer_than_the_drain(tmp_path: Path) -> None:
    unit = RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # the documented way to keep the case
    unit.read_string(OPERATE.block("ini").text)
    service = unit["Service"]
    assert service["ExecStart"].endswith(" serve app:gateway")
    assert service["ExecStart"].startswith(service["WorkingDirectory"])
    assert int(service["TimeoutStopSec"]) > 30
    if shutil.which("systemd-analyze") is None:
        return
    folder = str(Path(sys.executable).parents[2])
    text = OPERATE.block("ini").text.replace("/srv/gateway", folder).replace("User=www-data", "User=root")
    (tmp_path / "agui.service").write_text(text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "agui.service")], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "agui.service" in line] == []


def test_the_drain_is_as_the_page_says(serve: Serve) -> None:
    server: Server = serve("demo", "--drain-timeout", "5")
    with server.client(headers={"x-session-id": "a-session-of-mine-1"}) as client:
        body = {"runId": "r", "arguments": {"seconds": 600}}
        assert client.post("/tools/write_log", json=body, headers={"prefer": "respond-async"}).status_code == 202
        server.send_signal(signal.SIGTERM)
        eventually(lambda: client.get("/readyz").status_code == 503, what="it says that it drains")
        refused = client.post("/tools/write_log", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert client.get("/runs/r").json()["status"] == "running"
        assert client.post("/runs/r/stop").status_code == 202
    assert server.wait() == 0
