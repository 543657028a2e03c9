"""The published contract: what is on disk is what the code says, and every example fits by every route."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from ag_ui.core import Event as AGUIEvent
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway import Gateway, ToolContext, ToolError, tool
from gateway.cli.schemas import app_tools, schemas_command
from gateway.http.openapi import published_files
from gateway.testing import run_tool
from gateway.wire.events import OWN_PREFIXES
from gateway.wire.schema import wire_schema, wire_typescript
from gateway.wire.schema_custom import CUSTOM_VALUES
from gateway.wire.schema_events import EVENTS, read_event
from tests.http.openapi_app import TOOLS
from tests.support.node import INTEROP, node_environment

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "schemas"
EXAMPLES = {
    path.stem: json.loads(path.read_bytes())
    for path in sorted((SCHEMAS / "examples").glob("*.json"))
    if path.stem != "payloads"
}
OFFICIAL: TypeAdapter[Any] = TypeAdapter(AGUIEvent)


def on_disk() -> dict[str, str]:
    """The generated files, by their path."""
    return {
        str(path.relative_to(SCHEMAS)): path.read_bytes().decode()
        for path in SCHEMAS.rglob("*")
        if path.is_file() and path.parent.name != "examples" and path.name != "README.md"
    }


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_bytes())


EVENT = Draft202012Validator(schema("events.schema.json"))


def type_of(event: Mapping[str, Any]) -> str:
    """The name of an event's shape: `RunStarted`, `ToolProgressEvent`."""
    if event["type"] == "CUSTOM":
        value = CUSTOM_VALUES.get(event["name"])
        return "ToolEvent" if value is None else value.__name__.removesuffix("Value") + "Event"
    return "".join(word.capitalize() for word in event["type"].split("_"))


def fits_model(event: Mapping[str, Any]) -> bool:
    try:
        read_event(json.dumps(event).encode())
    except ValidationError:
        return False
    return True


def check_by_every_route(event: Mapping[str, Any]) -> None:
    EVENT.validate(event)
    assert type(read_event(json.dumps(event).encode())).__name__ == type_of(event)
    OFFICIAL.validate_python(event)
    if event.get("name") in CUSTOM_VALUES:
        Draft202012Validator(schema(f"custom/{event['name']}.schema.json")).validate(event["value"])


# -- files --


def test_the_files_on_disk_are_what_the_models_say() -> None:
    found, wanted = on_disk(), published_files()
    assert sorted(found) == sorted(wanted)
    assert [name for name, text in wanted.items() if found[name] != text] == []


def test_the_files_are_the_same_whenever_they_are_made() -> None:
    published_files.cache_clear()
    assert dict(published_files()) == on_disk()


@pytest.mark.parametrize("name", sorted(on_disk()))
def test_each_file_has_unix_lines_and_one_newline_at_its_end(name: str) -> None:
    text = on_disk()[name]
    assert "\r" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", sorted(name for name in on_disk() if name.endswith(".schema.json")))
def test_each_schema_is_one_has_a_versioned_id_and_leads_nowhere_else(name: str) -> None:
    found = schema(name)
    Draft202012Validator.check_schema(found)
    kind = name.removesuffix(".schema.json").replace("/", ":")
    assert found["$id"] == f"urn:agui-gateway:1.0:{kind}"
    references = set(references_in(found))
    assert {reference for reference in references if not reference.startswith("#/$defs/")} == set()
    assert {reference.removeprefix("#/$defs/") for reference in references} == set(found.get("$defs", {}))


def references_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from references_in(item)


# -- examples --


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_is_valid_by_schema_by_model_and_by_the_official_models(name: str) -> None:
    check_by_every_route(EXAMPLES[name])


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_is_named_after_what_it_shows(name: str) -> None:
    kind, _, rest = name.partition(".")
    assert EXAMPLES[name]["type"] == kind
    if kind == "CUSTOM" and rest.startswith(OWN_PREFIXES):
        assert f"{rest}.".startswith(f"{EXAMPLES[name]['name']}.")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_schema_and_model_agree_on_what_an_example_cannot_do_without(name: str) -> None:
    whole = EXAMPLES[name]
    for holder, path in ((whole, ()), (whole.get("value", {}), ("value",)), (whole.get("metadata", {}), ("metadata",))):
        for key in holder:
            smaller = without(whole, (*path, key))
            assert EVENT.is_valid(smaller) == fits_model(smaller), (path, key)


def without(event: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(event))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return copy


@pytest.mark.parametrize(
    "change",
    [
        {"name": "tool.invented"},
        {"name": "gateway.notice"},
        {"name": ""},
        {"value": {"row": "a"}},
        {"value": ["call-1"]},
        {"timestamp": 1.5},
        {"metadata": {"toolName": 1}},
    ],
)
def test_what_is_no_event_is_refused_by_schema_and_model(change: dict[str, Any]) -> None:
    event = {**EXAMPLES["CUSTOM"], **change}
    assert not EVENT.is_valid(event)
    assert not fits_model(event)


def test_every_event_type_has_an_example() -> None:
    types = {str(model.model_fields["type"].annotation.__args__[0]) for model in EVENTS}  # type: ignore[union-attr]
    assert {name.partition(".")[0] for name in EXAMPLES} == types | {"CUSTOM"}


def test_every_custom_name_has_a_file_and_an_example_and_the_other_way_round() -> None:
    files = {path.name.removesuffix(".schema.json") for path in (SCHEMAS / "custom").iterdir()}
    shown = {event["name"] for event in EXAMPLES.values() if event["type"] == "CUSTOM"}
    ours = {name for name in shown if name.startswith(OWN_PREFIXES)}
    assert files == ours == set(CUSTOM_VALUES)


def test_every_custom_name_that_the_code_writes_is_published() -> None:
    folders = ("execution", "run", "stores", "wire")
    sources = [path for folder in folders for path in (ROOT / "gateway" / folder).glob("*.py")]
    written = {name for path in sources for name in custom_names(path.read_text("utf-8"))}
    assert {"tool.progress", "tool.output", "tool.result", "run.stopping", "gateway.notice"} <= written
    assert written <= set(CUSTOM_VALUES)


def custom_names(source: str) -> Iterator[str]:
    """What looks like one of our names and is passed to anything but the making of a logger."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") != "getLogger":
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (text for text in texts if re.fullmatch(r"(?:tool|tools|run|gateway)\.[a-z_]+", text))


# -- TypeScript --


def compile_types(folder: Path, declarations: str, source: str) -> str:
    """What `tsc --strict` says of a program beside these declarations; empty: nothing."""
    (folder / "gateway.d.ts").write_text(declarations, "utf-8")
    (folder / "program.ts").write_text(source, "utf-8")
    tsc = INTEROP / "node_modules" / ".bin" / "tsc"
    assert tsc.exists(), "TypeScript is not installed: run scripts/install-test."
    options = ["--strict", "--noEmit", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext"]
    options += ["--noUncheckedIndexedAccess", "--pretty", "false", "gateway.d.ts", "program.ts"]
    options += ["--lib", "es2022", "--skipDefaultLibCheck"]  # neither the DOM nor TypeScript itself is looked at
    done = subprocess.run(
        [str(tsc), *options], cwd=folder, env=node_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stdout == ""), done.stderr
    return done.stdout


def program(events: Mapping[str, Mapping[str, Any]]) -> str:
    types = sorted({type_of(event) for event in events.values()} | {"Event"})
    lines = [f"import type {{ {', '.join(types)} }} from './gateway.js';"]
    for number, event in enumerate(events.values()):
        text = json.dumps(event)
        lines.append(f"export const own{number}: {type_of(event)} = {text};")
        lines.append(f"export const any{number}: Event = {text};")
    return "\n".join(lines) + "\n"


def test_every_example_is_of_its_type_in_typescript(tmp_path: Path) -> None:
    assert compile_types(tmp_path, on_disk()["gateway.d.ts"], program(EXAMPLES)) == ""


def test_typescript_refuses_what_is_no_event_and_tells_events_apart(tmp_path: Path) -> None:
    wrong = {**EXAMPLES["CUSTOM.run.stopping"], "value": {"reason": "boredom"}}
    source = program({"wrong": wrong}) + textwrap.dedent("""
        export function read(event: Event): string {
          if (event.type === "RUN_FINISHED") return event.outcome.type;
          if (event.type === "TOOL_CALL_RESULT") return event.content;
          return event.threadId;
        }
    """)
    found = compile_types(tmp_path, on_disk()["gateway.d.ts"], source)
    assert "'\"boredom\"' is not assignable" in found
    assert "'threadId' does not exist" in found
    assert len(re.findall(r"error TS", found)) == 3


# -- real streams --


@tool
async def wait(ctx: ToolContext) -> None:
    """Ends by Stop only."""
    ctx.report_progress(1, 3)
    await ctx.abort_signal.wait()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    gateway = Gateway(tools=[*TOOLS, wait], max_event_bytes=1_000, max_result_bytes=10_000, stop_grace=0.2)
    transport = httpx.ASGITransport(gateway)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
        yield client
    await gateway.shutdown()


async def stream_of(http: httpx.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    text = (await http.get(f"/runs/{run_id}/events")).text
    return [json.loads(data) for data in re.findall(r"^data: (.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("name", [item.name for item in TOOLS if item.task_support != "forbidden"])
async def test_every_event_of_a_real_run_is_published(http: httpx.AsyncClient, name: str) -> None:
    started = await http.post(f"/tools/{name}", json={}, headers={"prefer": "respond-async"})
    events = await stream_of(http, started.json()["runId"])
    assert events[-1]["type"] == "RUN_FINISHED"
    for event in events:
        check_by_every_route(event)


async def test_every_event_of_a_run_that_is_stopped_is_published(http: httpx.AsyncClient) -> None:
    started = await http.post("/tools/wait", json={}, headers={"prefer": "respond-async"})
    run_id = started.json()["runId"]
    await http.post(f"/runs/{run_id}/stop", json={"reason": "Wrong file."})
    events = await stream_of(http, run_id)
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert "run.stopping" in [event.get("name") for event in events]
    for event in events:
        check_by_every_route(event)


async def test_every_event_of_an_agent_run_is_published(http: httpx.AsyncClient) -> None:
    calls = [
        {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in [("steps", '{"count": 2}'), ("fails", ""), ("missing", "{}"), ("parts", "not JSON")]
    ]
    messages = [{"id": "m", "role": "assistant", "toolCalls": calls}]
    response = await http.post("/agents/tools", json={"threadId": "t", "runId": "r", "messages": messages})
    assert response.status_code == 200, response.text
    events = await stream_of(http, "r")
    assert len([event for event in events if event["type"] == "TOOL_CALL_RESULT"]) == len(calls)
    for event in events:
        check_by_every_route(event)


# -- an application's own shapes --


class Row(BaseModel):
    """One row."""

    id: int
    kind: Literal["plain", "special"] = "plain"


class Imported(BaseModel):
    """What was imported."""

    model_config = {"extra": "forbid"}

    row: Row
    next: Row | None = None


class Summary(BaseModel):
    """How many."""

    imported: int


@tool(events={"import.row": Imported, "import.done": Summary}, output_model=Summary)
async def import_rows(rows: list[Row], ctx: ToolContext, label: tuple[int, str] = (1, "a")) -> Summary:
    """Imports rows."""
    for row in rows:
        ctx.emit_custom_event("import.row", Imported(row=row))
    ctx.emit_custom_event("import.done", Summary(imported=len(rows)))
    ctx.emit_custom_event("import.undeclared", {"any": [None]})
    if not rows:
        raise ToolError("empty", "Nothing to import.")
    return Summary(imported=len(rows))


@tool(events={"import.done": Row})
def count(to: int = 3) -> int:
    """Counts, and declares an event of another tool with another shape."""
    return to


application = Gateway(tools=[import_rows, count])


async def test_the_schema_of_an_application_knows_its_tools_and_declared_events() -> None:
    made = wire_schema(app_tools([import_rows, count]))
    Draft202012Validator.check_schema(made)
    validator = Draft202012Validator(made)
    _, events = await run_tool(import_rows, {"rows": [{"id": 1}, {"id": 2, "kind": "special"}]})
    for event in events:
        validator.validate(event)
    [first, *_] = [event for event in events if event.get("name") == "import.row"]
    assert not validator.is_valid({**first, "value": {**first["value"], "row": {"id": "one"}}})
    assert validator.is_valid({**first, "value": {"$too_large": 300_000, "toolCallId": "call-1"}})
    tools = made["$defs"]["Tools"]["properties"]
    assert sorted(tools) == ["count", "import_rows"]
    assert sorted(made["$defs"]["ToolEvents"]["properties"]) == ["import.done", "import.row"]
    arguments = {**made, "$ref": tools["import_rows"]["properties"]["arguments"]["$ref"]}
    assert Draft202012Validator(arguments).is_valid({"rows": [{"id": 1}]})
    assert not Draft202012Validator(arguments).is_valid({"rows": [{}]})


def test_the_types_of_an_application_compile_and_tell_its_events_apart(tmp_path: Path) -> None:
    source = textwrap.dedent("""
        import type { ToolEvents, Tools } from './gateway.js';
        export const good: Tools["import_rows"]["arguments"] = { rows: [{ id: 1, kind: "special" }], label: [1, "b"] };
        export const output: Tools["import_rows"]["output"] = { imported: 1 };
        export const row: ToolEvents["import.row"] = { row: { id: 1 }, next: null, toolCallId: "call-1" };
        export const bad: Tools["count"]["arguments"] = { to: "three" };
    """)
    found = compile_types(tmp_path, wire_typescript(app_tools([import_rows, count])), source)
    assert re.findall(r"^program.ts\((\d+),", found, re.MULTILINE) == ["6"], found


def test_tools_and_events_whose_names_look_alike_keep_their_own_shapes(tmp_path: Path) -> None:
    names = ["a.b", "a_b", "A-B", "1", "Event"]
    tools = [
        tool(name=name, events={f"\u8fdb\u5ea6 {name}": Row})(lambda x=number: x) for number, name in enumerate(names)
    ]
    made = wire_schema(app_tools(tools))
    assert set(made["$defs"]["Tools"]["properties"]) == set(names)
    targets = [entry["properties"]["arguments"]["$ref"] for entry in made["$defs"]["Tools"]["properties"].values()]
    assert len(set(targets)) == len(names)
    assert set(references_in(made)) <= {f"#/$defs/{name}" for name in made["$defs"]}
    assert compile_types(tmp_path, wire_typescript(app_tools(tools)), "export {};\n") == ""


@pytest.mark.parametrize("arguments", [[], ["tests.http.openapi_app:gateway"]])
def test_the_command_prints_a_schema_or_types(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = CliRunner().invoke(schemas_command, arguments)
    assert printed.exit_code == 0, printed.output
    made = json.loads(printed.stdout)
    assert ("Tools" in made["$defs"]) == bool(arguments)
    types = CliRunner().invoke(schemas_command, [*arguments, "--typescript"])
    assert types.exit_code == 0, types.output
    exported = re.findall(r"^export (?:interface|type) (\w+)", types.stdout, re.MULTILINE)
    assert exported == sorted(made["$defs"])


def test_the_command_says_what_is_not_there() -> None:
    printed = CliRunner().invoke(schemas_command, ["no_such_module_anywhere:gateway"])
    assert printed.exit_code == 2
    assert "no_such_module_anywhere" in printed.output
