"""The HTTP API as it is published: what is described is what there is, and what schemathesis makes of it holds."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway import Gateway, errors
from gateway.errors import GatewayError, RequestError
from gateway.http.openapi import OPERATIONS, openapi_document, published_files
from gateway.http.routes import Routes
from tests.http.openapi_app import steps
from tests.support.servers import Serve

ROOT = Path(__file__).parents[2]
DOCUMENT = openapi_document()
RUN_SECONDS = 110  # for schemathesis; a third of it on an idle machine


@pytest.fixture
async def site() -> AsyncIterator[Gateway]:
    gateway = Gateway(tools=[steps])
    yield gateway
    await gateway.shutdown()


@pytest.fixture
async def http(site: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=[Mount("/ai", site), Mount("/", site)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)


async def test_the_document_has_every_route_and_every_method_and_no_other(site: Gateway) -> None:
    routes = Routes(await site.startup()).table()
    there = {
        (method.lower(), shape(route.path)) for route in routes for method in (route.methods or ()) if method != "HEAD"
    }
    assert {(operation.method, shape(operation.path)) for operation in OPERATIONS} == there


def test_the_names_of_operations_are_unique() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names)


def test_every_reference_and_every_link_of_the_document_leads_somewhere() -> None:
    names = {operation.name: operation for operation in OPERATIONS}
    for item in walk(DOCUMENT):
        if isinstance(item.get("$ref"), str):
            target: Any = DOCUMENT
            for part in item["$ref"].removeprefix("#/").split("/"):
                target = target[part]
        if "operationId" in item and "parameters" in item and isinstance(item["parameters"], dict):
            path = names[item["operationId"]].path
            assert all(f"{{{name.removeprefix('path.')}}}" in path for name in item["parameters"])


def test_every_schema_of_the_document_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for operation in (operation for path in DOCUMENT["paths"].values() for operation in path.values()):
        for parameter in operation["parameters"]:
            Draft202012Validator.check_schema(parameter["schema"])


def test_every_parameter_of_a_path_is_described() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            described = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
            assert described == set(re.findall(r"\{(\w+)\}", path))


def test_every_header_that_a_client_may_send_is_described_where_it_counts() -> None:
    found: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        described = DOCUMENT["paths"][operation.path][operation.method]["parameters"]
        found[operation.name] = {item["name"] for item in described if item["in"] == "header"}
    assert found["runTool"] == {"Last-Event-ID", "Prefer", "X-Run-Id", "X-Session-Id"}
    assert found["runAgent"] == {"Last-Event-ID", "X-Run-Id", "X-Session-Id"}
    assert found["followRun"] == {"Last-Event-ID", "X-Session-Id"}
    assert found["live"] == set()


def test_every_refusal_that_the_code_can_raise_is_described() -> None:
    refusals: list[type[GatewayError]] = [GatewayError]
    refusals += [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, RequestError)
    ]
    statuses = {status for path in DOCUMENT["paths"].values() for item in path.values() for status in item["responses"]}
    assert {str(refusal.status) for refusal in refusals} <= statuses
    text = " ".join(answer["description"] for item in walk(DOCUMENT) for answer in answers_in(item))
    codes = {code for path in (ROOT / "gateway" / "http").glob("*.py") for code in codes_in(path.read_text("utf-8"))}
    assert {"agent_not_found", "cursor_ahead", "invalid_cursor"} <= codes
    assert {code for code in codes if f"`{code}`" not in text} == set()


def codes_in(source: str) -> Iterator[str]:
    """The codes of errors that a module raises, where it names them itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def answers_in(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (answer for answer in item.get("responses", {}).values() if "description" in answer)


async def test_the_gateway_serves_the_document_for_where_it_is_mounted(http: httpx.AsyncClient) -> None:
    for prefix, server in (("", "/"), ("/ai", "/ai")):
        answer = await http.get(f"{prefix}/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {**DOCUMENT, "servers": [{"url": server}]}


@pytest.mark.parametrize("name", sorted(published_files()))
async def test_the_gateway_serves_every_published_file_as_it_is_on_disk(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.get(f"/schemas/{name}")
    assert answer.status_code == 200
    assert answer.content == (ROOT / "schemas" / name).read_bytes()
    kinds = {".ts": "application/typescript; charset=utf-8", ".json": "application/schema+json"}
    wanted = "application/json" if name == "openapi.json" else kinds[Path(name).suffix]
    assert answer.headers["content-type"] == wanted


@pytest.mark.parametrize("name", ["nothing.json", "../pyproject.toml", "custom/", "examples/CUSTOM.json", "%00"])
async def test_a_file_that_is_not_published_is_not_found(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.get(f"/schemas/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


async def test_a_405_names_every_method_of_the_path(http: httpx.AsyncClient) -> None:
    for path, operations in DOCUMENT["paths"].items():
        answer = await http.request("DELETE", re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405
        allowed = {method.strip().lower() for method in answer.headers["allow"].split(",")}
        assert allowed - {"head"} == set(operations), path


@pytest.mark.timeout(RUN_SECONDS + 60)
def test_schemathesis_finds_no_fault_in_a_running_gateway(serve: Serve, tmp_path: Path) -> None:
    server = serve("serve", "tests.http.openapi_app:gateway", "--no-page")
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(Path(__file__).with_name("schemathesis.toml")),
    ]
    command += ["run", f"{server.url}/openapi.json", "--report-json-path", str(report)]
    if os.environ.get("CI"):
        command += ["--seed", "1"]  # as for hypothesis: in CI the same examples every time
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{server.log}"
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout
    assert int(tested[1]) == len(OPERATIONS) - 1  # the document itself is none to schemathesis
    assert "Traceback" not in server.log
    assert json.loads(report.read_bytes())
