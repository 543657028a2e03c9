"""Tools of MCP servers behind URLs, of both eras of the protocol: what becomes of their calls."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import Gateway, MCPServer, ToolCall, tool
from tests.http.asking import JSON, Reader, agent_body, ask, events_of
from tests.http.people import answered, asked, gave, interrupts_of, names_of, post, resolve, result_of, text_of
from tests.http.site import ME, Site, serving
from tests.upstream.mcp_processes import Program, listed, until
from tests.upstream.mcp_program import PIXEL

ERAS = ("2025", "2026")


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, Program]]:
    started = {era: Program(era) for era in ERAS}
    try:
        for program in started.values():
            program.wait_until_up()
        yield started
    finally:
        for program in started.values():
            program.kill()


@pytest.fixture(params=ERAS)
def program(request: pytest.FixtureRequest, programs: dict[str, Program]) -> Program:
    return programs[request.param]


@asynccontextmanager
async def beside(program: Program, *tools: Any, **options: Any) -> AsyncIterator[Site]:
    """A gateway with its tools, once they are listed."""
    async with serving(*tools, mcp_servers={"p": program.url}, **options) as site:
        await listed(site, "p__add")
        yield site


async def call(
    site: Site, name: str, arguments: dict[str, Any] | None = None, headers: Mapping[str, str] = JSON
) -> dict[str, Any]:
    """The answer to a call, as JSON."""
    body = {"arguments": arguments or {}}
    given = await site.client.post(f"/tools/{name}", json=body, headers={**headers, **JSON})
    assert given.status_code == 200, given.text
    output: dict[str, Any] = given.json()
    return output


async def has_seen(site: Site, what: str, times: int) -> None:
    """Returns once the server has noted this so many times."""

    async def look() -> bool:
        return await count_of(site, what) >= times

    await until(look)


async def count_of(site: Site, what: str) -> int:
    found: int = (await call(site, "p__seen"))["structuredContent"]["result"].count(what)
    return found


# -- the catalogue --


async def test_its_tools_are_listed_with_its_words_and_schemas(program: Program) -> None:
    async with beside(program) as site:
        found = await listed(site, "p__add")
        add = found["p__add"]
        assert add["description"] == "Adds two numbers."
        assert add["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
        parameters: Any = add["parameters"]
        assert (parameters["required"], parameters["properties"]["a"]["type"]) == (["a"], "integer")
        output: Any = add["outputSchema"]
        assert output["properties"]["result"]["type"] == "integer"
        assert "p__count_up_to" in found  # the server calls it "count up/to"


async def test_the_very_first_request_waits_for_the_list_of_its_server(program: Program) -> None:
    async with serving(mcp_servers={"p": program.url}) as site:
        assert (await call(site, "p__add", {"a": 1}))["structuredContent"] == {"result": 2}


async def test_a_tool_of_the_gateway_keeps_its_name(programs: dict[str, Program]) -> None:
    @tool(name="p__add")
    async def own(a: int) -> str:
        return "mine"

    async with serving(own, mcp_servers={"p": programs["2025"].url}) as site:
        await listed(site, "p__seen")
        assert text_of(await call(site, "p__add", {"a": 1})) == "mine"


async def test_only_the_tools_that_are_wanted_join_with_the_options_of_their_server(
    programs: dict[str, Program],
) -> None:
    server = MCPServer(
        programs["2025"].url, tools=["add", "seen"], timeout=7, requires="calculate", needs_approval=True
    )
    async with serving(mcp_servers={"p": server}) as site:
        await site.engine.tools.expected("p__")()  # type: ignore[misc]  # it is expected
        assert {(item.name, item.timeout, item.needs_approval) for item in site.gateway.tools.all()} == {
            ("p__add", 7, True),
            ("p__seen", 7, True),
        }
        assert (await site.client.get("/tools")).json() == {"items": []}  # nobody holds the scope


async def test_a_changed_list_is_seen_in_the_catalogue_and_by_the_viewers_of_runs(program: Program) -> None:
    async with beside(program) as site:
        stream = Reader(await site.open("/tools/p__wait", {"runId": "r"}, ME))
        await stream.until("tool.progress")
        await call(site, "p__grow")
        changed = (await stream.until("tools.changed"))["value"]
        assert (changed["added"], changed["removed"]) == (["p__grown"], [])
        assert set(changed["visible"]) == set(await listed(site, "p__grown"))
        assert (await call(site, "p__grown"))["status"] == "completed"
        await call(site, "p__shrink")
        assert (await stream.until("tools.changed"))["value"]["removed"] == ["p__grown"]
        await listed(site, "p__grown", gone=True)
        await site.client.post("/runs/r/stop", headers=ME)
        await stream.rest()


# -- results --


async def test_structured_content_and_images_are_kept(program: Program) -> None:
    async with beside(program) as site:
        added = await call(site, "p__add", {"a": 2, "b": 40})
        assert (added["structuredContent"], text_of(added)) == ({"result": 42}, "42")
        assert (await call(site, "p__picture"))["content"] == [
            {"type": "text", "text": "A pixel."},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        ]


async def test_a_failure_gets_its_code_and_arguments_are_checked_here(program: Program) -> None:
    async with beside(program) as site:
        failed = await call(site, "p__fail")
        assert (failed["status"], failed["isError"]) == ("failed", True)
        assert text_of(failed) == "Error [failed]: Error executing tool fail: There is no paper."
        refused = await site.client.post("/tools/p__add", json={"arguments": {"a": "x"}}, headers=JSON)
        assert refused.status_code == 422
        assert refused.json()["error"]["details"] == [{"field": "a", "message": "Input should be an integer"}]


async def test_only_what_is_configured_and_the_trace_go_to_the_server(program: Program) -> None:
    server = MCPServer(program.url, headers={"x-key": "of the gateway"})
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(mcp_servers={"p": server}) as site:
        mine = {"authorization": "Bearer mine", "cookie": "a=b", "x-session-id": ME["x-session-id"], "x-other": "1"}
        sent = {**mine, "traceparent": parent, "baggage": "user=me"}
        seen = (await call(site, "p__request", headers=sent))["structuredContent"]
        assert seen["headers"]["x-key"] == "of the gateway"
        assert not set(mine) & set(seen["headers"])
        assert "mine" not in str(seen)
        assert "user=me" not in str(seen)
        assert seen["meta"]["traceparent"] == parent


# -- progress, Stop, time --


async def test_its_progress_is_the_calls_progress(program: Program) -> None:
    async with beside(program) as site:
        events = await post(site, "/tools/p__count_up_to", {"toolCallId": "c", "arguments": {"number": 3}})
        reports = [event["value"] for event in events if event.get("name") == "tool.progress"]
        seen = [one["progress"] for one in reports]
        assert seen == sorted(set(seen))  # reports that come close together are one
        last = reports[-1]
        assert (last["progress"], last["total"], last["message"], last["percent"]) == (3, 3, "at 3", 100)
        assert gave(events) == {"result": "3 reached"}


async def test_stop_reaches_what_runs_there(program: Program) -> None:
    async with beside(program) as site:
        before = await count_of(site, "is cancelled")
        stream = Reader(await site.open("/tools/p__wait", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("tool.progress")
        await site.client.post("/runs/r/stop", headers=ME)
        events = await stream.rest()
        assert result_of(events)["status"] == "cancelled"
        assert "stillRunning" not in result_of(events)
        assert events[-1]["outcome"] == {"type": "cancelled"}
        await has_seen(site, "is cancelled", before + 1)


async def test_its_time_is_the_gateways(program: Program) -> None:
    async with beside(program) as site:
        before = await count_of(site, "is cancelled")
        events = await post(site, "/tools/p__wait", {"toolCallId": "c", "timeout": 0.3})
        assert result_of(events)["status"] == "timeout"
        await has_seen(site, "is cancelled", before + 1)


async def test_a_person_may_move_a_call_to_the_background(programs: dict[str, Program]) -> None:
    async with beside(programs["2025"]) as site:
        body = {"runId": "r", "toolCallId": "c", "threadId": "t"}
        stream = Reader(await site.open("/tools/p__wait", body, ME))
        await stream.until("tool.progress")
        moved = await site.client.post("/runs/r/tool-calls/c/detach", headers=ME)
        assert moved.status_code == 202, moved.text
        assert result_of(await stream.rest())["status"] == "detached"
        await call(site, "p__release")
        job = await site.client.get(f"/runs/{moved.json()['runId']}/events", headers=ME)
        assert gave(events_of(job.content)) == {"result": "released"}


# -- questions --


async def test_on_tools_its_question_is_asked_in_the_open_run_and_takes_no_time(program: Program) -> None:
    async with beside(program) as site:
        body = {"runId": "r", "toolCallId": "c", "arguments": {"times": 2}, "timeout": 0.5}
        stream = Reader(await site.open("/tools/p__greet", body, ME))
        question = await asked(stream)
        assert question["message"] == "Who are you?"
        assert question["responseSchema"]["required"] == ["name"]
        refused = await site.client.post(
            "/runs/r/input", json={"interruptId": question["interruptId"], "status": "resolved", "payload": {}}
        )
        assert refused.status_code in (404, 422)
        await asyncio.sleep(0.6)  # longer than the call may take
        await answered(site, question, {"name": "Ada"})
        assert gave(await stream.rest()) == {"result": "Hello Ada!Hello Ada!"}


async def test_a_question_that_nobody_answers_is_cancelled_there(program: Program) -> None:
    async with beside(program) as site:
        stream = Reader(await site.open("/tools/p__greet", {"runId": "r", "toolCallId": "c"}, ME))
        await answered(site, await asked(stream), status="cancelled")
        assert result_of(await stream.rest())["status"] == "failed"


async def test_stop_while_it_waits_for_the_person(program: Program) -> None:
    async with beside(program) as site:
        stream = Reader(await site.open("/tools/p__greet", {"runId": "r", "toolCallId": "c"}, ME))
        await asked(stream)
        await site.client.post("/runs/r/stop", headers=ME)
        assert result_of(await stream.rest())["status"] == "cancelled"


async def test_on_agents_its_question_ends_the_run_and_the_answer_finds_it_again(program: Program) -> None:
    async with beside(program) as site:
        messages = ask(("c", "p__greet", {"times": 1}))
        events = await post(site, "/agents/tools", agent_body(messages))
        (interrupt,) = interrupts_of(events)
        assert (interrupt["reason"], interrupt["message"], interrupt["toolCallId"]) == (
            "input_required",
            "Who are you?",
            "c",
        )
        assert interrupt["responseSchema"]["properties"]["name"]["type"] == "string"
        greeted = await count_of(site, "greets Grace")
        body = agent_body(messages, runId="r2", resume=[resolve(interrupt, {"name": "Grace"})])
        assert gave(await post(site, "/agents/tools", body)) == {"result": "Hello Grace!"}
        assert await count_of(site, "greets Grace") == greeted + 1


async def test_without_a_run_there_is_nobody_to_ask(programs: dict[str, Program]) -> None:
    gateway = Gateway(mcp_servers={"p": programs["2025"].url})
    try:
        output = await gateway.call_tool(ToolCall("p__greet", {}))
        assert (output.status, output.is_error) == ("failed", True)
        assert (await gateway.call_tool(ToolCall("p__add", {"a": 1}))).structured_content == {"result": 2}
    finally:
        await gateway.shutdown()


# -- lost servers --


async def test_a_server_that_dies_interrupts_its_call_is_unavailable_and_comes_back(
    program: Program, programs: dict[str, Program]
) -> None:
    (other,) = (each for each in programs.values() if each is not program)
    async with serving(mcp_servers={"p": program.url, "other": other.url}) as site:
        await listed(site, "p__add")
        await listed(site, "other__add")
        counts = asyncio.create_task(
            post(site, "/tools/other__count_up_to", {"toolCallId": "c", "arguments": {"number": 9}})
        )
        events = await post(site, "/tools/p__die", {"toolCallId": "c"})
        assert names_of(events, "c")[3:] == ["tool.progress", "tool.result", "TOOL_CALL_RESULT"]
        died = result_of(events)
        assert died["status"] == "interrupted"
        assert text_of(died) == (
            'Error [interrupted]: "p__die" was ended by the loss of its server before it finished. '
            "It may have done its work: check before retrying."
        )
        down = await call(site, "p__add", {"a": 1})
        assert (down["status"], down["structuredContent"]["error"]) == (
            "unavailable",
            {"code": "unavailable", "retryable": True},
        )
        assert "p__add" in await listed(site, "p__die")  # they stay
        assert gave(await counts) == {"result": "9 reached"}
        await asyncio.to_thread(program.start_again)
        assert (await call(site, "p__add", {"a": 1}))["status"] == "completed"

        async def hears_of_changes() -> bool:
            await call(site, "p__grow")
            return "p__grown" in (await site.client.get("/tools")).text

        await until(hears_of_changes)
        await call(site, "p__shrink")


async def test_servers_that_hang_or_are_not_there_hold_nobody_up(programs: dict[str, Program]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as nothing:
        port = nothing.getsockname()[1]
        nothing.close()
        servers = {
            "hangs": MCPServer(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", connect_timeout=0.5),
            "long": MCPServer(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", connect_timeout=3600),
            "down": f"http://127.0.0.1:{port}/mcp",
            "odd": MCPServer([sys.executable, "-c", "print('no protocol')"]),
            "p": programs["2026"].url,
        }
        async with serving(mcp_servers=servers) as site:
            assert (await call(site, "p__add", {"a": 1}))["status"] == "completed"
            assert (await site.client.get("/readyz")).status_code == 200
            for name in ("hangs", "down", "odd"):
                missing = await site.client.post(f"/tools/{name}__read", json={}, headers=JSON)
                assert (missing.status_code, missing.json()["error"]["code"]) == (404, "tool_not_found")
            stream = Reader(
                await site.open(
                    "/agents/tools", agent_body(ask(("c", "long__read", {}), ("d", "p__add", {"a": 1}))), ME
                )
            )
            await stream.until("TOOL_CALL_RESULT")  # of the other call
            await site.client.post("/runs/r/stop", headers=ME)
            events = await stream.rest()
            assert result_of(events, "c")["status"] == "cancelled"
            assert result_of(events, "d")["status"] == "completed"


def test_without_the_extra_the_error_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ImportError, match=r"agui-gateway\[mcp\]"):
        Gateway(mcp_servers={"p": "http://127.0.0.1:1/mcp"})
    Gateway(mcp_servers={})
