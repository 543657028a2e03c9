"""What each command of the README and the docs must do, by page and by how the command begins."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import httpx

from gateway.demo.agent import HELP
from gateway.demo.app import create_demo
from tests.docs.pages import ROOT, page
from tests.docs.shells import BACKEND_PORT, SECONDS, Shell
from tests.support.servers import eventually

__all__ = [
    "CHECKS",
    "NOT_RUN",
    "Check",
    "assert_counted",
    "backend_is_up",
    "events_in",
    "get",
    "says_hello",
    "shown",
    "stands_before",
]

README = page("README.md")
AUTHENTICATE = page("docs/how-to/authenticate.md")

# Gets the shell and what the command has printed; of a server, when it serves.
Check = Callable[[Shell, str], None]

NOT_RUN = {
    "make test": "runs the tests that this one is among",
}


def get(shell: Shell, path: str, **headers: str) -> httpx.Response:
    return httpx.get(shell.url + path, headers=headers, trust_env=False)


def events_in(output: str) -> list[dict[str, Any]]:
    """The events of a stream as `curl` prints it."""
    return [json.loads(line.removeprefix("data: ")) for line in output.splitlines() if line.startswith("data: ")]


def shown(text: str) -> str:
    """A pattern for output as a page shows it: the time, and what stands for an id, a time or a number, are open."""
    return re.escape(text.strip()).replace("1767225600000", r"\d{13}").replace("…", r"[\w:.-]+")


def assert_counted(found: list[dict[str, Any]]) -> None:
    """The events of the README's tool, called with 3."""
    assert [event["value"]["n"] for event in found if event.get("name") == "counted"] == [1, 2, 3]
    assert found[0]["type"] == "RUN_STARTED"
    assert found[-1]["type"] == "RUN_FINISHED"
    assert found[-1]["result"]["structuredContent"] == {"counted": 3}


def assert_tools(shell: Shell, *names: str, path: str = "/tools", **headers: str) -> None:
    assert [item["name"] for item in get(shell, path, **headers).json()["items"]] == list(names)


def assert_page(shell: Shell) -> None:
    assert get(shell, "/").headers["content-type"].startswith("text/html")


def demo_is_up(shell: Shell, _: str) -> None:
    assert_page(shell)
    assert_tools(shell, *(tool.name for tool in create_demo().tools.all()))


def environment_has_the_commands(_: Shell, output: str) -> None:
    script = "source .venv/bin/activate; command -v agui-gateway uvicorn"
    found = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == [f"{ROOT}/.venv/bin/agui-gateway", f"{ROOT}/.venv/bin/uvicorn"]


def count_is_up_with_the_page(shell: Shell, _: str) -> None:
    assert_page(shell)
    assert_tools(shell, "count")


def prints_the_event_that_is_shown(_: Shell, output: str) -> None:
    assert_counted(events_in(output))
    frame = next(block for block in README.of("") if "counted" in block.text)
    assert re.search(f"^{shown(frame.text)}$", output, re.MULTILINE)


def only_the_probes_are_open(shell: Shell, _: str) -> None:
    assert [get(shell, path).status_code for path in ("/", "/tools", "/healthz", "/readyz")] == [401, 401, 200, 200]


def answers_as_shown(_: Shell, output: str) -> None:
    assert json.loads(output) == json.loads(AUTHENTICATE.block("json").text)


def is_alice(_: Shell, output: str) -> None:
    assert json.loads(output.splitlines()[-1])["result"]["content"][0]["text"] == "You are alice."


def is_refused_as_shown(_: Shell, output: str) -> None:
    head, body = output.replace("\r", "").split("\n\n")
    expected_head, expected_body = AUTHENTICATE.block("", "401").text.split("\n\n")
    assert body.strip() == expected_body.strip()
    assert set(expected_head.splitlines()) - set(head.splitlines()) == set()


def is_mounted_without_the_page(shell: Shell, _: str) -> None:
    assert_tools(shell, "count", path="/ai/tools")
    assert get(shell, "/ai/").status_code == 404


def lists_count(_: Shell, output: str) -> None:
    assert [item["name"] for item in json.loads(output)["items"]] == ["count"]


def is_the_application_itself(_: Shell, output: str) -> None:
    assert json.loads(output) == {"tools": "/ai/tools"}


def streams_the_count(_: Shell, output: str) -> None:
    assert_counted(events_in(output))


def answers_for_its_public_name_only(shell: Shell, _: str) -> None:
    assert_tools(shell, "count", host="tools.example.com")
    assert get(shell, "/tools").json()["error"]["code"] == "bad_host"


def sells_from_a_file(shell: Shell, _: str) -> None:
    assert_tools(shell, "price")
    assert_tools(shell, "price", host="tools.example.com")
    assert get(shell, "/tools", host="other.example.com").json()["error"]["code"] == "bad_host"


def backend_is_up(shell: Shell, _: str) -> None:
    url = f"http://127.0.0.1:{shell.values[BACKEND_PORT]}/"

    def answers() -> bool:
        try:
            return httpx.get(url, trust_env=False).status_code == 404
        except httpx.TransportError:
            return False

    eventually(answers, within=SECONDS, what=f"a server at {url}")


def stands_before(*agents: str) -> Check:
    """These agents are there, beside the built-in one."""

    def check(shell: Shell, _: str) -> None:
        assert [item["name"] for item in get(shell, "/agents").json()["items"]] == ["tools", *agents]

    return check


def says_hello(_: Shell, output: str) -> None:
    events = events_in(output)
    assert "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT") == HELP
    assert events[-1]["outcome"] == {"type": "success"}


def prints_events_as_json_lines(_: Shell, output: str) -> None:
    assert_counted([json.loads(line) for line in output.splitlines()])


def prints_the_record(shell: Shell, output: str) -> None:
    (line,) = output.splitlines()
    record = json.loads(line)
    assert record["runId"] == shell.values["RUN_ID"]
    assert record["agent"] == "tools"


def prints_json_schema(_: Shell, output: str) -> None:
    assert json.loads(output)["$defs"].keys() >= {"Event", "RunRecord", "RunAgentInput"}


def prints_typescript_with_its_tools(_: Shell, output: str) -> None:
    assert "count" in output
    assert "export " in output


def prints_what_follows(where: str, command: str) -> Check:
    """The block after the command has its output: as it is, or as JSON."""
    found = page(where)
    expected = found.after(found.block("sh", command))

    def check(_: Shell, output: str) -> None:
        if expected.language == "json":
            assert json.loads(output) == json.loads(expected.text)
        else:
            assert output == expected.text

    return check


def has_the_tools_of_the_context(shell: Shell, _: str) -> None:
    assert_tools(shell, "checksum", "convert", "import_lines", "publish", "watch", "who")


def knows_who_calls(_: Shell, output: str) -> None:
    found = json.loads(output)["structuredContent"]
    assert found["language"] == "eo"
    assert found["subject"] is found["trace"] is None
    assert all(found[name] for name in ("run", "call", "request"))


def publishes_with_a_nested_call(shell: Shell, output: str) -> None:
    found = events_in(output)
    own = next(event["toolCallId"] for event in found if event["type"] == "TOOL_CALL_START")
    nested = [event for event in found if event.get("metadata", {}).get("parentToolCallId") == own]
    assert {event["name"] for event in nested} == {"tool.progress", "tool.result"}
    assert {event["value"]["toolCallId"] for event in nested} == {f"{own}/1"}
    assert [event["type"] for event in found].count("TOOL_CALL_START") == 1
    digest = sha256((shell.folder / "who.py").read_bytes()).hexdigest()
    assert found[-1]["result"]["structuredContent"] == {"published": "who.py", "sha256": digest}


def converts_in_the_background(shell: Shell, output: str) -> None:
    run_id = json.loads(output)["runId"]
    assert get(shell, f"/runs/{run_id}?wait=25").json()["status"] == "completed"
    progress = [
        e["value"] for e in events_in(get(shell, f"/runs/{run_id}/events").text) if "percent" in e.get("value", ())
    ]
    assert (progress[-1]["message"], progress[-1]["percent"]) == ("page 3", 100)


def shop_is_up(shell: Shell, _: str) -> None:
    assert_tools(shell, "stock.take", "admin.refill")


def bob_has_the_till_only(_: Shell, output: str) -> None:
    assert [item["name"] for item in json.loads(output)["items"]] == ["open_till"]


def opens_the_till_as_shown(_: Shell, output: str) -> None:
    frame = next(block for block in page("docs/how-to/session-tools.md").of("") if "tools.changed" in block.text)
    assert re.search(f"^{shown(frame.text)}$", output, re.MULTILINE)
    assert events_in(output)[-1]["result"]["structuredContent"] == {"tools": ["sell"]}


def answers(text: str) -> Check:
    """One JSON answer with this text."""

    def check(_: Shell, output: str) -> None:
        assert json.loads(output)["content"] == [{"type": "text", "text": text}]

    return check


CHECKS: dict[tuple[str, str], Check] = {
    ("README.md", "make demo"): demo_is_up,
    ("README.md", "AGUI_GATEWAY_PORT=8001 make demo"): demo_is_up,
    ("README.md", "source .venv/bin/activate"): environment_has_the_commands,
    ("README.md", "agui-gateway serve app:gateway"): count_is_up_with_the_page,
    ("README.md", "curl -N"): prints_the_event_that_is_shown,
    ("README.md", "uvicorn gateway.demo.agent:agent_app"): backend_is_up,
    ("README.md", "agui-gateway serve --agent"): stands_before("support"),
    ("README.md", "curl -N http://127.0.0.1:8000/agents"): says_hello,
    ("docs/how-to/authenticate.md", "agui-gateway serve app:gateway"): only_the_probes_are_open,
    ("docs/how-to/authenticate.md", "curl http://127.0.0.1:8000/tools/whoami"): answers_as_shown,
    ("docs/how-to/authenticate.md", "AGUI_GATEWAY_TOKEN=$ALICE agui-gateway call"): is_alice,
    ("docs/how-to/authenticate.md", "curl -i"): is_refused_as_shown,
    ("docs/how-to/mount.md", "uvicorn starlette_app:app"): is_mounted_without_the_page,
    ("docs/how-to/mount.md", "uvicorn fastapi_app:app"): is_mounted_without_the_page,
    ("docs/how-to/mount.md", "curl http://127.0.0.1:8000/ai/tools"): lists_count,
    ("docs/how-to/mount.md", "curl -N"): streams_the_count,
    ("docs/how-to/mount.md", "curl http://127.0.0.1:8000/"): is_the_application_itself,
    ("docs/how-to/operate.md", "agui-gateway serve app:gateway --host"): count_is_up_with_the_page,
    ("docs/how-to/operate.md", "agui-gateway serve app:gateway --allowed-hosts"): answers_for_its_public_name_only,
    ("docs/how-to/command-line.md", "agui-gateway call count '{\"to\": 3}'"): prints_events_as_json_lines,
    ("docs/how-to/command-line.md", "echo"): prints_events_as_json_lines,
    ("docs/how-to/command-line.md", "agui-gateway call count '{\"to\": 3}' --background"): prints_the_record,
    ("docs/how-to/command-line.md", "agui-gateway runs"): prints_the_record,
    ("docs/how-to/command-line.md", "agui-gateway tail"): prints_events_as_json_lines,
    ("docs/how-to/command-line.md", "agui-gateway stop"): prints_the_record,
    ("docs/how-to/command-line.md", "agui-gateway serve gateway.toml"): sells_from_a_file,
    ("docs/how-to/command-line.md", "agui-gateway schemas"): prints_json_schema,
    ("docs/how-to/command-line.md", "agui-gateway schemas app:gateway"): prints_typescript_with_its_tools,
    ("docs/how-to/context.md", "agui-gateway serve"): has_the_tools_of_the_context,
    ("docs/how-to/context.md", "curl http://127.0.0.1:8000/tools/who"): knows_who_calls,
    ("docs/how-to/context.md", "curl -N"): publishes_with_a_nested_call,
    ("docs/how-to/context.md", "curl http://127.0.0.1:8000/tools/convert"): converts_in_the_background,
    ("docs/how-to/middleware.md", "agui-gateway serve"): shop_is_up,
    ("docs/how-to/session-tools.md", "agui-gateway serve"): only_the_probes_are_open,
    ("docs/how-to/session-tools.md", "curl http://127.0.0.1:8000/tools -H"): bob_has_the_till_only,
    ("docs/how-to/session-tools.md", "curl -N"): opens_the_till_as_shown,
    ("docs/how-to/session-tools.md", "curl http://127.0.0.1:8000/tools/sell"): answers("Sold: tea"),
    ("docs/how-to/session-tools.md", 'curl http://127.0.0.1:8000/tools/order -H "authorization: Bearer $A'): answers(
        "Ordered: tea"
    ),
    **{
        (f"docs/how-to/{name}.md", command): prints_what_follows(f"docs/how-to/{name}.md", command)
        for name, command in (
            ("middleware", "curl http://127.0.0.1:8000/tools/stock.take"),
            ("middleware", "curl http://127.0.0.1:8000/tools/admin.refill"),
            ("session-tools", 'curl http://127.0.0.1:8000/tools/order -H "authorization: Bearer $BOB'),
            ("adapters", "python adapter.py"),
            ("adapters", "python free.py"),
            ("adapters", "python others.py"),
            ("application-events", "python main.py"),
            ("application-events", "python cache.py"),
            ("coming-from", "python webmcp.py"),
        )
    },
}
