"""The tutorial, followed to the letter: from an empty folder to a tool that is watched, left and stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.docs.pages import page
from tests.docs.shells import Background, Shell
from tests.support.browser import Browser, by_id
from tests.support.servers import eventually

TUTORIAL = page("docs/tutorials/first-streaming-tool.md")
SERVE, RUN, STOP = (command for block in TUTORIAL.of("sh") for command in block.commands)

PROGRESS = f"document.querySelector('{by_id('progress')}')?.value"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The reader's folder after steps 1 and 2: `app.py` is written and served."""
    folder = tmp_path_factory.mktemp("empty")
    shell = Shell(folder, {"app.py": TUTORIAL.block("python").text})
    assert [path.name for path in folder.iterdir()] == ["app.py"]
    with shell.serving(SERVE):
        yield shell


def record(shell: Shell) -> dict[str, object]:
    found: dict[str, object] = httpx.get(f"{shell.url}/runs/{shell.values['RUN_ID']}", trust_env=False).json()
    return found


def begin(shell: Shell, curl: Background) -> None:
    """Until the first event, which names the run, as it stands on the page."""
    shell.values["RUN_ID"] = curl.wait_for(r'"runId":"([^"]+)"')
    expected = TUTORIAL.after(TUTORIAL.block("sh", "-N")).text
    pattern = "^" + re.escape(expected.strip()).replace("1767225600000", r"\d{13}").replace("…", r"[\w-]+")
    curl.wait_for(re.compile(f"({pattern})$", re.MULTILINE))


def test_the_tool_has_under_ten_lines_of_python_and_as_many_as_the_page_says() -> None:
    lines = [line for line in TUTORIAL.block("python").text.splitlines() if line]
    assert len(lines) < 10
    assert "## 1. A tool in nine lines" in TUTORIAL.text
    assert len(lines) == 9


def test_the_tool_is_there_with_the_schema_of_its_signature(shell: Shell) -> None:
    items = httpx.get(f"{shell.url}/tools", trust_env=False).json()["items"]
    assert [item["name"] for item in items] == ["boil"]
    assert items[0]["parameters"]["properties"].keys() == {"eggs"}
    assert items[0]["parameters"]["properties"]["eggs"]["type"] == "integer"


def test_a_wrong_field_is_named(shell: Shell) -> None:
    answer = json.loads(shell.run(RUN.replace('"eggs": 4', '"eggs": "many"')))
    assert answer["error"]["code"] == "invalid_arguments"
    assert answer["error"]["details"][0]["field"] == "eggs"


def test_curl_sees_progress_while_the_tool_works_and_stop_ends_it(shell: Shell) -> None:
    with shell.background(RUN) as curl:
        begin(shell, curl)
        curl.wait_for(r'"name":"tool.progress".*?"message":"(4 eggs, 2 s)"')
        assert record(shell)["status"] == "running"
        stopping = json.loads(shell.run(STOP))
        assert stopping["runId"] == shell.values["RUN_ID"]
        assert stopping["status"] in ("stopping", "cancelled")
        assert curl.wait() == 0
        assert '"outcome":{"type":"cancelled"}' in curl.output
        assert "4 eggs are ready" not in curl.output
    assert record(shell)["status"] == "cancelled"


def test_ctrl_c_ends_curl_and_not_the_run_and_a_client_that_comes_back_gets_what_it_missed(shell: Shell) -> None:
    with shell.background(RUN) as curl:
        begin(shell, curl)
        curl.wait_for(r'"message":"(4 eggs, 1 s)"')
        curl.interrupt()
        curl.wait()
        seen = re.findall(r"^id: (\d+)$", curl.output, re.MULTILINE)[-1]
    assert record(shell)["status"] == "running"
    back = f"curl -N {shell.url}/runs/RUN_ID/events -H 'Last-Event-ID: {seen}'"
    with shell.background(back) as curl:
        assert curl.wait_for(r"(?m)^id: (\d+)$") == str(int(seen) + 1)
        curl.wait_for(r"(id: \d+\ndata: .*tool\.progress)")
        shell.run(STOP)
        assert curl.wait() == 0
        assert '"type":"RUN_FINISHED"' in curl.output


def test_the_page_runs_it_shows_progress_survives_a_reload_and_stops_it(shell: Shell, browser: Browser) -> None:
    page = browser.open(f"{shell.url}/")
    page.wait(f"document.querySelector('{by_id('tool-boil')}') !== null")
    page.click(by_id("tool-boil"))
    page.fill("[name=eggs]", "3")
    page.click(by_id("run-button"))
    page.wait_for_status("running")
    run_id = page.text(by_id("run-id"))
    first = page.wait(PROGRESS)
    page.wait(f"{PROGRESS} > {first}")

    page.reload()
    page.wait_for_status("running")
    assert page.text(by_id("run-id")) == run_id
    before = page.wait(PROGRESS)
    page.wait(f"{PROGRESS} > {before}")
    assert page.text(by_id("gaps")) == "0"

    page.click(by_id("stop-button"))
    page.wait_for_status("cancelled")
    eventually(lambda: "Cancelled by the user." in page.text(by_id("run")), what="the page says who ended it")
    assert page.complaints() == []
