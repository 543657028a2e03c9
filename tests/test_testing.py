"""The helpers for those who test their own tools and clients, used as they would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from gateway import AuthContext, InputResponse, PayloadError, ToolContext, ToolError, tool
from gateway.run.order import TERMINALS
from gateway.testing import EventCollector, disconnect_after, run_tool
from tests.support.servers import Serve, Server
from tests.test_schemas import check_by_every_route

LONG = 20  # seconds; reached only by a test that fails


@tool
async def import_rows(rows: list[str], ctx: ToolContext) -> dict[str, int]:
    """Imports rows."""
    for done, row in enumerate(rows, 1):
        ctx.emit_custom_event("import.row", {"row": row})
        ctx.report_progress(done, len(rows))
    return {"imported": len(rows)}


@tool
async def wait(ctx: ToolContext) -> None:
    """Ends by Stop or by its time limit only."""
    ctx.emit_custom_event("test.started", {})
    await asyncio.Event().wait()


@tool
def parts() -> Iterator[int]:
    """A generator in a thread."""
    yield 1
    yield 2


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["value"] for event in events if event.get("name") == name]


# -- run_tool --


async def test_run_tool_returns_the_output_and_every_event_in_order() -> None:
    output, events = await run_tool(import_rows, {"rows": ["a", "b"]})
    assert output.structured_content == {"imported": 2}
    assert [value["row"] for value in named(events, "import.row")] == ["a", "b"]
    kinds = [event["type"] for event in events if event["type"] != "CUSTOM"]
    calls = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert kinds == ["RUN_STARTED", *calls, "RUN_FINISHED"]
    for event in events:
        check_by_every_route(event)


async def test_run_tool_takes_a_plain_function_and_a_generator() -> None:
    def double(number: int) -> int:
        return number * 2

    output, _ = await run_tool(double, {"number": 4})
    assert output.structured_content == {"result": 8}
    output, events = await run_tool(parts, {})
    assert output.structured_content == {"result": 2}
    assert [value["output"] for value in named(events, "tool.output")] == [{"value": 1}, {"value": 2}]


async def test_run_tool_returns_failures_and_never_raises_them() -> None:
    @tool
    async def fails(how: str) -> None:
        """Fails."""
        raise ToolError("rate_limited", "Later.", retryable=True) if how == "coded" else ValueError("the disk is full")

    output, _ = await run_tool(fails, {"how": "coded"})
    assert (output.status, output.text) == ("failed", "Error [rate_limited]: Later.")
    output, _ = await run_tool(fails, {"how": "raised"})
    assert (output.status, output.text) == ("failed", "Error [failed]: the disk is full")
    output, events = await run_tool(fails, {})
    assert output.text.startswith("Error [invalid_arguments]")
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_run_tool_stops_when_it_is_told_to() -> None:
    output, events = await run_tool(wait, {}, stop_when=lambda event: event.get("name") == "test.started")
    assert output.status == "cancelled"
    assert named(events, "run.stopping") == [{"reason": "user"}]
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_run_tool_keeps_the_time_limit() -> None:
    output, _ = await run_tool(wait, {}, timeout=0.01)
    assert output.status == "timeout"


async def test_the_tool_sees_the_context_that_the_test_gives_it() -> None:
    seen: dict[str, Any] = {}
    auth = AuthContext("ada", frozenset({"rows"}))

    @tool(requires=["rows"])
    async def look(ctx: ToolContext) -> None:
        """Looks around."""
        for name in ("run_id", "thread_id", "tool_call_id", "parent_run_id", "request_id", "client_request_id"):
            seen[name] = getattr(ctx, name)
        seen.update(session_id=ctx.session_id, context=ctx.context, auth=ctx.auth, mcp=dict(ctx.mcp_headers))

    wanted = {name: name for name in ("run_id", "thread_id", "tool_call_id", "parent_run_id", "request_id")}
    await run_tool(
        look,
        {},
        run_id="run_id",
        thread_id="thread_id",
        tool_call_id="tool_call_id",
        parent_run_id="parent_run_id",
        request_id="request_id",
        client_request_id="client_request_id",
        session_id="user:ada:default",
        auth=auth,
        context=7,
        metadata={"headers": {"mcp-x": "1"}},
    )
    session = {"client_request_id": "client_request_id", "session_id": "user:ada:default", "mcp": {"mcp-x": "1"}}
    assert seen == {**wanted, **session, "context": 7, "auth": auth}


async def test_settings_hold_and_what_is_none_is_refused() -> None:
    @tool
    async def emits(ctx: ToolContext) -> str:
        """Emits what JSON cannot hold."""
        try:
            ctx.emit_custom_event("test.nan", {"x": float("nan")})
        except PayloadError as error:
            return error.path
        return "sent"

    assert (await run_tool(emits, {}))[0].text == "sent"
    assert (await run_tool(emits, {}, settings={"strict_payloads": True}))[0].text == "$.x"
    with pytest.raises(TypeError, match="no option colour"):
        await run_tool(emits, {}, colour="red")  # type: ignore[call-arg]


async def test_run_tool_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    await run_tool(wait, {}, timeout=0.01)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run_tool(wait, {}, timeout=0)
    assert asyncio.all_tasks() == before


# -- a running gateway --


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway", "--no-page")


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=LONG) as client, asyncio.timeout(LONG):
        yield client


async def test_a_collector_reads_a_run_from_its_start_to_its_end(server: Server) -> None:
    async with client_of(server.url) as client:
        collector = EventCollector.start(client, "/tools/burst", {"arguments": {"count": 3}})
        events = await collector.collect()
        again = await EventCollector.follow(client, collector.run_id).collect()
    assert events == again
    assert [value["step"] for value in named(events, "test.step")] == [1, 2, 3]
    assert collector.over
    assert (collector.last_event_id, collector.reconnects) == (len(events), 0)


async def test_until_returns_the_next_event_that_fits_and_collect_the_rest(server: Server) -> None:
    async with client_of(server.url) as client:
        collector = EventCollector.start(client, "/tools/wait_forever", {})
        started = await collector.until(lambda event: event.get("name") == "test.started")
        assert started is collector.events[-1]
        assert not collector.over
        await client.post(f"/runs/{collector.run_id}/stop")
        assert (await collector.collect())[-1]["outcome"] == {"type": "cancelled"}
        with pytest.raises(AssertionError, match="without such an event"):
            await collector.until(lambda event: True)


async def test_a_collector_that_has_read_all_finds_nothing_more(server: Server) -> None:
    async with client_of(server.url) as client:
        first = EventCollector.start(client, "/tools/burst", {"arguments": {"count": 0}})
        await first.collect()
        rest = EventCollector.follow(client, first.run_id, after=first.last_event_id)
        assert await rest.collect() == []


async def test_a_collector_raises_a_refusal_with_what_the_gateway_said(server: Server) -> None:
    async with client_of(server.url) as client:
        with pytest.raises(httpx.HTTPStatusError, match="tool_not_found"):
            await EventCollector.start(client, "/tools/nothing", {}).collect()
        with pytest.raises(httpx.HTTPStatusError, match="run_not_found"):
            await EventCollector.follow(client, "nothing").collect()


@asynccontextmanager
async def breaking(url: str, limits: Callable[[int], int | None]) -> AsyncIterator[str]:
    """A proxy that resets connection number n, from 1, after `limits(n)` bytes of its answer; None: never."""
    target = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()
    number = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
        left = limit
        try:
            while data := await reader.read(4_096 if left is None else max(1, min(left, 4_096))):
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        writer.transport.abort()
                        return
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the other end was reset: so is this one
        finally:
            writer.close()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        limit = limits(number)
        upstream, to_upstream = await asyncio.open_connection(target.hostname, target.port)
        for work in (pump(reader, to_upstream, None), pump(upstream, writer, limit)):
            tasks.add(asyncio.create_task(work))

    proxy = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_collector_goes_on_where_it_was_when_the_connection_is_lost(server: Server) -> None:
    async with (
        breaking(server.url, lambda number: (0, 3_000, 20_000, None)[number - 1]) as url,
        client_of(url) as client,
    ):
        collector = EventCollector.start(client, "/tools/burst", {"arguments": {"count": 500}}, pause=0)
        events = await collector.collect()
    assert [value["step"] for value in named(events, "test.step")] == list(range(1, 501))
    assert [event["type"] for event in events].count("RUN_STARTED") == 1
    assert collector.last_event_id == len(events)
    assert collector.reconnects == 3


async def test_a_collector_gives_up_when_no_connection_brings_anything(server: Server) -> None:
    async with breaking(server.url, lambda number: 0) as url, client_of(url) as client:
        collector = EventCollector.start(client, "/tools/burst", {"arguments": {"count": 1}}, pause=0, max_reconnects=2)
        with pytest.raises(httpx.TransportError):
            await collector.collect()
    assert collector.reconnects == 3


@pytest.mark.parametrize("numbers", [[1, 3], [1, 2, 2], [2]])
async def test_a_collector_finds_an_event_that_is_missing_or_comes_twice(numbers: list[int]) -> None:
    frames = "".join(f'id: {number}\ndata: {{"type":"CUSTOM"}}\n\n' for number in numbers)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=frames, headers={"content-type": "text/event-stream"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://test") as client:
        with pytest.raises(AssertionError, match="came after event"):
            await EventCollector.follow(client, "run-1").collect()


@pytest.mark.parametrize("reset", [True, False])
async def test_a_client_that_is_lost_has_read_so_many_events_and_the_run_goes_on(server: Server, reset: bool) -> None:
    run_id = f"lost-{reset}"
    url = f"{server.url}/tools/wait_forever"
    events = await disconnect_after(5, url, {"runId": run_id}, reset=reset)
    assert events[0]["type"] == "RUN_STARTED"
    assert len(events) == 5
    assert events[-1]["name"] == "test.started"
    async with client_of(server.url) as client:
        rest = EventCollector.follow(client, run_id, after=5)
        await client.post(f"/runs/{run_id}/stop")
        after = await rest.collect()
    assert after[-1]["type"] in TERMINALS
    assert after[0] not in events
    again = await disconnect_after(len(events + after), f"{server.url}/runs/{run_id}/events")
    assert again == events + after


async def test_a_lost_client_raises_what_it_could_not_read(server: Server) -> None:
    with pytest.raises(httpx.HTTPStatusError):
        await disconnect_after(1, f"{server.url}/tools/nothing", {})
    with pytest.raises(AssertionError, match="ended after 7 events of 99"):
        await disconnect_after(99, f"{server.url}/tools/burst", {"arguments": {"count": 0}})


# -- the person --


@tool(needs_approval=True)
async def survey(ctx: ToolContext, place: str) -> dict[str, Any]:
    """Asks in every way there is."""
    name = await ctx.request_input("Your name?", {"type": "string"})
    days = ctx.interrupt("How many days?", {"type": "integer"}, key="days")
    again = await ctx.request_input("Again, your name?", {"type": "string"})
    return {"place": place, "name": name.payload, "days": days.payload, "again": again.status}


async def test_run_tool_answers_what_the_tool_asks_over_all_of_its_runs() -> None:
    asked = []

    def answer(question: Any) -> object:
        asked.append(question["message"])
        if question["reason"] == "tool_call":
            return {"approved": True, "arguments": {"place": "Oslo"}}
        if question["message"].startswith("Again"):
            return InputResponse("cancelled")
        return 3 if question["key"] == "days" else "Ada"

    output, events = await run_tool(survey, {"place": "Rome"}, answer=answer)
    assert output.structured_content == {"place": "Oslo", "name": "Ada", "days": 3, "again": "cancelled"}
    assert asked[1:] == ["Your name?", "How many days?", "Your name?", "Again, your name?"]
    assert [event["type"] for event in events].count("RUN_STARTED") == 2


async def test_run_tool_gives_an_approval_and_says_when_a_question_has_no_answer() -> None:
    with pytest.raises(RuntimeError, match=r"asks 'Your name\?': give run_tool an `answer`"):
        await run_tool(survey, {"place": "Rome"})


async def test_an_answer_that_does_not_fit_is_an_error_of_the_test() -> None:
    with pytest.raises(ValueError, match=r"The answer to 'Your name\?' does not fit"):
        await run_tool(
            survey, {"place": "Rome"}, answer=lambda q: {"approved": True} if q["schema"].get("properties") else 7
        )
