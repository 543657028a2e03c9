"""Every code block of the README and the docs, run as a reader would run it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.exits import CANCELLED, COMPLETED, FAILED, REFUSED, TIMEOUT, UNAVAILABLE, USAGE
from tests.docs.pages import PAGES, ROOT, Block, Page, page
from tests.docs.shells import Shell
from tests.support.browser import Browser
from tests.support.node import INTEROP, node_environment
from tests.support.servers import eventually

README = page("README.md")
FRONTEND = page("docs/how-to/frontend.md")
AUTHENTICATE = page("docs/how-to/authenticate.md")
TUTORIAL = "docs/tutorials/first-streaming-tool.md"  # has a test of its own

COUNT_APP = README.files()
SECONDS = 30

# Where the commands of a page need files that another page has written.
FILES = {
    "docs/how-to/operate.md": COUNT_APP,
    "docs/how-to/command-line.md": COUNT_APP,
}
SERVERS = re.compile(r"(AGUI_GATEWAY_PORT=\d+ )?(agui-gateway serve|uvicorn|make demo)\b")

NOT_RUN = {
    "make test": "runs the tests that this one is among",
}

Check = Callable[[Shell, str], object]


def get(shell: Shell, path: str, **headers: str) -> httpx.Response:
    return httpx.get(shell.url + path, headers=headers, trust_env=False)


def tool_names(shell: Shell, path: str = "/tools") -> list[str]:
    return [item["name"] for item in get(shell, path).json()["items"]]


def events(output: str) -> list[dict[str, Any]]:
    """The events of a stream as `curl` prints it."""
    return [json.loads(line.removeprefix("data: ")) for line in output.splitlines() if line.startswith("data: ")]


def assert_counted(found: list[dict[str, Any]]) -> None:
    assert [event["value"]["n"] for event in found if event.get("name") == "counted"] == [1, 2, 3]
    assert found[0]["type"] == "RUN_STARTED"
    assert found[-1]["type"] == "RUN_FINISHED"
    assert found[-1]["result"]["structuredContent"] == {"counted": 3}


def shown(text: str) -> str:
    """A pattern for output as a page shows it: the time and what stands for an id are open."""
    return re.escape(text.strip()).replace("1767225600000", r"\d{13}").replace("…", r"[\w-]+")


# -- what the commands must do --


def demo_is_up(shell: Shell, _: str) -> None:
    assert get(shell, "/").headers["content-type"].startswith("text/html")
    assert "hash_folder" in tool_names(shell)


def finds_the_command(_: Shell, output: str) -> None:
    script = "source .venv/bin/activate; command -v agui-gateway uvicorn"
    found = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == [f"{ROOT}/.venv/bin/agui-gateway", f"{ROOT}/.venv/bin/uvicorn"]


def count_is_up(shell: Shell, _: str) -> None:
    assert tool_names(shell) == ["count"]
    assert get(shell, "/").headers["content-type"].startswith("text/html")


def readme_shows_a_frame(_: Shell, output: str) -> None:
    assert_counted(events(output))
    assert re.search(f"^{shown(README.after(README.block('sh', 'curl -N')).prose_free)}$", output, re.MULTILINE)


def whoami_wants_to_know(shell: Shell, _: str) -> None:
    assert [get(shell, path).status_code for path in ("/", "/tools", "/healthz", "/readyz")] == [401, 401, 200, 200]


def is_alice(_: Shell, output: str) -> None:
    assert json.loads(output) == json.loads(AUTHENTICATE.block("json").text)


def is_alice_in_events(_: Shell, output: str) -> None:
    last = json.loads(output.splitlines()[-1])
    assert last["result"]["content"][0]["text"] == "You are alice."


def is_refused(_: Shell, output: str) -> None:
    expected = AUTHENTICATE.block("", "401").text
    head, _, body = output.replace("\r", "").partition("\n\n")
    expected_head, _, expected_body = expected.partition("\n\n")
    assert body.strip() == expected_body.strip()
    assert [line for line in expected_head.splitlines() if line not in head.splitlines()] == []


def is_mounted(shell: Shell, _: str) -> None:
    assert tool_names(shell, "/ai/tools") == ["count"]
    assert get(shell, "/ai/").status_code == 404  # no page


def only_its_public_name(shell: Shell, _: str) -> None:
    assert get(shell, "/tools", host="tools.example.com").status_code == 200
    assert get(shell, "/tools").json()["error"]["code"] == "bad_host"


def a_shop(shell: Shell, _: str) -> None:
    assert tool_names(shell) == ["price"]
    assert get(shell, "/tools", host="evil.example").json()["error"]["code"] == "bad_host"


def has_schemas(_: Shell, output: str) -> None:
    assert "RunStarted" in json.dumps(json.loads(output)["$defs"])


def counted_to_json_lines(_: Shell, output: str) -> None:
    assert_counted([json.loads(line) for line in output.splitlines()])


def a_record(shell: Shell, output: str) -> None:
    (line,) = output.splitlines()
    assert json.loads(line)["runId"] == shell.run_id


CHECKS: dict[tuple[str, str], Check] = {
    ("README.md", "make demo"): demo_is_up,
    ("README.md", "AGUI_GATEWAY_PORT=8001 make demo"): demo_is_up,
    ("README.md", "source .venv/bin/activate"): finds_the_command,
    ("README.md", "agui-gateway serve app:gateway"): count_is_up,
    ("README.md", "curl -N"): readme_shows_a_frame,
    ("docs/how-to/authenticate.md", "agui-gateway serve app:gateway"): whoami_wants_to_know,
    ("docs/how-to/authenticate.md", "curl http://127.0.0.1:8000/tools/whoami"): is_alice,
    ("docs/how-to/authenticate.md", "AGUI_GATEWAY_TOKEN=$ALICE agui-gateway call"): is_alice_in_events,
    ("docs/how-to/authenticate.md", "curl -i"): is_refused,
    ("docs/how-to/mount.md", "uvicorn starlette_app:app"): is_mounted,
    ("docs/how-to/mount.md", "uvicorn fastapi_app:app"): is_mounted,
    ("docs/how-to/mount.md", "curl http://127.0.0.1:8000/ai/tools"): lambda _, output: json.loads(output)["items"][0],
    ("docs/how-to/mount.md", "curl -N"): lambda _, output: assert_counted(events(output)),
    ("docs/how-to/mount.md", "curl http://127.0.0.1:8000/"): lambda _, output: json.loads(output)["tools"],
    ("docs/how-to/operate.md", "agui-gateway serve app:gateway --host"): count_is_up,
    ("docs/how-to/operate.md", "agui-gateway serve app:gateway --allowed-hosts"): only_its_public_name,
    ("docs/how-to/command-line.md", "agui-gateway call count"): counted_to_json_lines,
    ("docs/how-to/command-line.md", "echo"): counted_to_json_lines,
    ("docs/how-to/command-line.md", "agui-gateway runs"): a_record,
    ("docs/how-to/command-line.md", "agui-gateway tail"): counted_to_json_lines,
    ("docs/how-to/command-line.md", "agui-gateway stop"): a_record,
    ("docs/how-to/command-line.md", "agui-gateway serve gateway.toml"): a_shop,
    ("docs/how-to/command-line.md", "agui-gateway schemas"): has_schemas,
}
