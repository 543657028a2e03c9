"""The demo tools, called as anybody calls them: over the gateway's own HTTP API."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import ToolOutput
from gateway.demo.app import create_demo
from gateway.demo.folder import PACKAGE
from gateway.demo.tools import count_words
from tests.support.servers import Serve, Server

TOOLS = ["hash_folder", "count_words", "import_csv", "download", "write_log", "delete_log", "guess_number", "plan_trip"]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    gateway = create_demo()
    transport = httpx.ASGITransport(gateway)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        yield client
    await gateway.shutdown()


@pytest.fixture(scope="module")
def demo(serve: Serve) -> Server:
    return serve("demo")


@pytest.fixture
async def served(demo: Server) -> AsyncIterator[httpx.AsyncClient]:
    """The demo in a process of its own, which may start further ones."""
    async with httpx.AsyncClient(base_url=demo.url, trust_env=False, timeout=60) as client:
        yield client


async def start(http: httpx.AsyncClient, tool: str, arguments: dict[str, Any]) -> str:
    response = await http.post(f"/tools/{tool}", json={"arguments": arguments}, headers={"Prefer": "respond-async"})
    assert response.status_code == 202, response.text
    return str(response.json()["runId"])


async def events_of(http: httpx.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    """Every event of the run, waiting for its end."""
    stream = (await http.get(f"/runs/{run_id}/events")).text
    return [json.loads(data) for data in re.findall(r"^data: (.*)$", stream, re.MULTILINE)]


def customs(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["value"] for event in events if event["type"] == "CUSTOM" and event["name"] == name]


async def run(http: httpx.AsyncClient, tool: str, arguments: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The structured content (or the error) of a call and the events of its run."""
    events = await events_of(http, await start(http, tool, arguments))
    [result] = customs(events, "tool.result")
    return result.get("error") or result["structuredContent"], events


async def test_each_tool_runs_without_arguments_and_says_what_its_fields_mean(http: httpx.AsyncClient) -> None:
    tools = (await http.get("/tools")).json()["items"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert tool["description"]
        assert "required" not in tool["parameters"]
        for field in tool["parameters"]["properties"].values():
            assert field["description"]
            assert field.keys() & {"maxLength", "maximum"}


async def test_hash_folder_hashes_every_file_as_sha256sum_does(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"a.txt": b"one", "b/c.txt": b"two", "b/d.bin": bytes(1000)}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    result, events = await run(http, "hash_folder", {"path": ".", "delay_ms": 0})
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    assert {file["path"]: file["sha256"] for file in customs(events, "demo.file")} == digests
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    assert result == {
        "files": 3,
        "skipped": 0,
        "bytes": 1006,
        "digest": hashlib.sha256(lines.encode()).hexdigest(),
    }
    assert customs(events, "tool.progress")[-1]["percent"] == 100


async def test_hash_folder_shows_the_package_by_default(http: httpx.AsyncClient) -> None:
    result, events = await run(http, "hash_folder", {"delay_ms": 0})
    paths = [file["path"] for file in customs(events, "demo.file")]
    assert "demo/tools.py" in paths
    assert result["files"] == len(paths) > 10
    assert (PACKAGE / paths[0]).is_file()


async def test_hash_folder_refuses_a_folder_elsewhere(http: httpx.AsyncClient) -> None:
    error, _ = await run(http, "hash_folder", {"path": "/"})
    assert error["code"] == "outside_root"


async def test_count_words_counts_in_its_own_process(served: httpx.AsyncClient) -> None:
    text = "The cat and the hat. THE END"
    result, events = await run(served, "count_words", {"text": text, "rounds": 20, "top": 2})
    assert result == {
        "words": 7,
        "distinct": 5,
        "top": [{"phrase": "the", "count": 3}, {"phrase": "cat", "count": 1}],
    }
    assert [words["round"] for words in customs(events, "demo.words")] == list(range(2, 21, 2))
    assert customs(events, "tool.progress")[-1]["percent"] == 100


async def test_count_words_counts_phrases(served: httpx.AsyncClient) -> None:
    result, _ = await run(served, "count_words", {"text": "to be or not to be", "phrase": 2, "rounds": 1})
    assert result["top"][0] == {"phrase": "to be", "count": 2}
    assert count_words.isolation == "process"


async def test_count_words_refuses_a_text_that_is_too_short(served: httpx.AsyncClient) -> None:
    error, _ = await run(served, "count_words", {"text": "one", "phrase": 2})
    assert error["code"] == "too_short"


async def test_import_csv_reports_every_row_and_imports_the_good_ones(http: httpx.AsyncClient) -> None:
    result, events = await run(http, "import_csv", {"csv": "name,age\nAda,36\nGrace,old\nAlan,41\n", "delay_ms": 0})
    assert [row["row"] for row in customs(events, "import.row")] == [
        {"name": "Ada", "age": 36},
        {"name": "Alan", "age": 41},
    ]
    [wrong] = customs(events, "import.error")
    assert (wrong["line"], wrong["message"]) == (3, "age: 'old' is not a number")
    assert (result["imported"], result["rejected"]) == (2, 1)
    assert result["columns"][1] == {
        "column": "age",
        "filled": 2,
        "distinct": 2,
        "min": 36,
        "max": 41,
        "mean": 38.5,
    }


async def test_import_csv_refuses_text_without_rows(http: httpx.AsyncClient) -> None:
    error, _ = await run(http, "import_csv", {"csv": "only,a,header"})
    assert error["code"] == "invalid_csv"


async def test_download_receives_what_the_server_sent(http: httpx.AsyncClient) -> None:
    result, events = await run(http, "download", {"size_mb": 3, "mb_per_s": 1000})
    assert (result["bytes"], result["matches"]) == (3_000_000, True)
    assert len(customs(events, "demo.received")) == 3
    assert customs(events, "tool.progress")[-1]["progress"] == 3_000_000


async def test_write_log_writes_its_lines_and_names_the_file(http: httpx.AsyncClient, tmp_path: Path) -> None:
    file = tmp_path / "demo.log"
    result, events = await run(http, "write_log", {"seconds": 1, "path": str(file)})
    assert result == {"path": str(file), "lines": 10}
    assert len(file.read_text().splitlines()) == 10
    assert customs(events, "demo.log_file")[0]["path"] == str(file)


@pytest.mark.parametrize("path", ["/etc/passwd", "../elsewhere.log", "no/such/folder/x.log", "x.txt", "\0.log"])
async def test_write_log_writes_nowhere_else(http: httpx.AsyncClient, path: str) -> None:
    error, _ = await run(http, "write_log", {"seconds": 1, "path": path})
    assert error["code"] == "invalid_path"
    assert not (Path(tempfile.gettempdir()) / "x.txt").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("hash_folder", {"delay_ms": 2000}),
        ("import_csv", {"delay_ms": 2000}),
        ("download", {"size_mb": 2000, "mb_per_s": 1}),
        ("write_log", {"seconds": 3600}),
    ],
)
async def test_stop_ends_each_tool(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await check_stop(http, tool, arguments)


async def test_stop_ends_the_process_of_count_words(served: httpx.AsyncClient) -> None:
    await check_stop(served, "count_words", {"rounds": 1_000_000})


async def check_stop(http: httpx.AsyncClient, tool: str, arguments: dict[str, Any]) -> None:
    run_id = await start(http, tool, arguments)
    assert (await http.post(f"/runs/{run_id}/stop")).status_code == 202
    events = await events_of(http, run_id)
    [result] = customs(events, "tool.result")
    assert result["status"] == "cancelled"
    assert "stillRunning" not in result
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_a_plain_request_gets_the_result_alone(served: httpx.AsyncClient) -> None:
    body = {"arguments": {"text": "one two", "rounds": 1}}
    response = await served.post("/tools/count_words", json=body, headers={"Accept": "application/json"})
    assert ToolOutput.from_wire(response.json()).status == "completed"
