"""How a wait for a person ends that nobody answers, and where there is nobody to ask."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gateway import CANCELLED, AbortError, NotAvailable, ToolCall, ToolContext, call_tool, tool
from gateway.execution.tools import Tool
from tests.execution.running import quiet
from tests.http.asking import JSON, Gates, Reader, agent_body, ask, error_of, waits
from tests.http.people import (
    END,
    START,
    a_question,
    answer,
    answered,
    asked,
    asks,
    asks_in_a_thread,
    calls,
    gave,
    names_of,
    post,
    record_of,
    result_of,
    text_of,
)
from tests.http.site import LONG, ME, serving


@tool
async def waits_for_user(ctx: ToolContext, message: str | None = None) -> str:
    """Waits until the person has done something elsewhere."""
    async with ctx.waiting_for_user(message):
        await ctx.context["done"].wait()
    ctx.emit_custom_event("goes on", {})
    await ctx.context["end"].wait()
    return "seen"


# -- how a wait ends that nobody answers --


@pytest.mark.parametrize("kind", [asks, asks_in_a_thread], ids=["async", "thread"])
async def test_stop_while_a_question_is_open_cancels_the_call_and_refuses_late_answers(kind: Any) -> None:
    async with a_question(kind) as (site, stream, waiting):
        stopped = await site.client.post("/runs/r/stop", json={"reason": "changed my mind"}, headers=ME)
        assert stopped.status_code == 202
        late = await answer(site, waiting["interruptId"], {"name": "Ada"})
        error_of(late, 409, "interrupt_closed")
        events = await stream.rest()
        for status in ("resolved", "cancelled"):
            late = await answer(site, waiting["interruptId"], {"name": "Ada"}, status)
            error_of(late, 409, "interrupt_closed")
        record = await record_of(site)
    assert (record["status"], record["toolCalls"][0]["status"]) == ("cancelled", "cancelled")
    value = result_of(events)
    assert (value["status"], text_of(value)) == ("cancelled", CANCELLED)
    assert "stillRunning" not in value
    assert events[-1]["outcome"] == {"type": "cancelled"}
    names = names_of(events)
    assert names.index("run.stopping") < names.index("tool.result")
    assert next(e["value"] for e in events if e.get("name") == "run.stopping")["message"] == "changed my mind"


async def test_stop_of_the_call_that_asks_leaves_the_others_at_work() -> None:
    gates = Gates()
    async with serving(asks, waits, context=gates) as site:
        body = agent_body(ask(("c1", "asks", {}), ("c2", "waits", {"name": "go"})))
        stream = Reader(await site.open("/agents/tools", body, ME))
        waiting = await asked(stream)
        assert (await site.client.post("/runs/r/tool-calls/c1/stop", headers=ME)).status_code == 202
        await stream.until("TOOL_CALL_RESULT")
        error_of(await answer(site, waiting["interruptId"], {"name": "Ada"}), 409, "interrupt_closed")
        assert (await record_of(site))["status"] == "running"
        gates["go"].set()
        events = await stream.rest()
    assert text_of(result_of(events, "c1")) == CANCELLED
    assert result_of(events, "c2")["status"] == "completed"
    assert events[-1]["outcome"] == {"type": "success"}


async def test_stop_of_the_thread_reaches_runs_that_wait() -> None:
    async with a_question(asks, body={"runId": "r", "toolCallId": "c", "threadId": "t"}) as (site, stream, _):
        stopped = await site.client.post("/threads/t/stop", headers=ME)
        assert (stopped.status_code, stopped.json()) == (202, {"runIds": ["r"]})
        assert text_of(result_of(await stream.rest())) == CANCELLED


async def test_an_answer_that_came_before_stop_is_kept() -> None:
    gates = Gates()

    @tool(cooperative=True)
    async def asks_and_keeps(ctx: ToolContext) -> None:
        """Asks, tells what it was told, and works until it is stopped."""
        given = await ctx.request_input("Who?")
        ctx.emit_custom_event("told", {"payload": given.payload})
        await gates["never"].wait()

    async with a_question(asks_and_keeps) as (site, stream, waiting):
        await answered(site, waiting, "Ada")
        assert (await stream.until("told"))["value"]["payload"] == "Ada"
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        late = await answer(site, waiting["interruptId"], "Eve")
        error_of(late, 409, "interrupt_answered")
        assert text_of(result_of(await stream.rest())) == CANCELLED


async def test_a_tool_is_told_that_it_was_aborted_where_it_waits() -> None:
    seen: list[str] = []

    @tool
    def tidies(ctx: ToolContext) -> None:
        """Tidies up when nobody answers."""
        try:
            ctx.request_input_sync("Go on?")
        except AbortError as error:
            seen.append(error.reason)
            ctx.emit_custom_event("tidied", {})
            raise

    async with a_question(tidies) as (site, stream, _):
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = await stream.rest()
    assert seen == ["user"]
    assert names_of(events, "c") == [*START, "tool.waiting", "tool.resumed", "tidied", *END]


async def test_who_asks_after_the_abort_is_told_at_once_and_nobody_sees_the_question() -> None:
    gates = Gates()

    @tool
    async def asks_too_late(ctx: ToolContext) -> str:
        """Asks while it unwinds."""
        ctx.emit_custom_event("began", {})
        try:
            await gates["never"].wait()
        finally:
            with contextlib.suppress(AbortError):
                await ctx.request_input("Shall I go on?")
        return "not seen"

    async with serving(asks_too_late) as site:
        stream = Reader(await site.open("/tools/asks_too_late", {"runId": "r", "toolCallId": "c"}, ME))
        await stream.until("began")
        assert (await site.client.post("/runs/r/stop", headers=ME)).status_code == 202
        events = await stream.rest()
    assert "tool.waiting" not in names_of(events)
    assert text_of(result_of(events)) == CANCELLED


@pytest.mark.parametrize("how", ["asks", "waits_for_user"])
async def test_a_run_that_waits_is_interrupted_when_its_last_viewer_leaves_if_it_was_asked_for(how: str) -> None:
    body = {"runId": "r", "toolCallId": "c", "onDisconnect": "cancel", "disconnectGrace": 0}
    async with serving(asks, waits_for_user, context=Gates()) as site:
        stream = Reader(await site.open(f"/tools/{how}", body, ME))
        waiting = await asked(stream)
        stream.stream.leave()
        record = await record_of(site, over=True)
        assert (record["status"], record["error"]["code"]) == ("failed", "interrupted")
        assert record["toolCalls"][0]["status"] == "interrupted"
        again = await site.client.get("/runs/r/events", headers=ME)
        assert '"RUN_ERROR"' in again.text
        if how == "asks":
            error_of(await answer(site, waiting["interruptId"], {"name": "Ada"}), 409, "interrupt_closed")


@pytest.mark.parametrize("waiter", ["wait_for", "timeout", "wait"])
async def test_a_tool_that_has_waited_long_enough_closes_its_question(waiter: str) -> None:
    gates = Gates()

    @tool
    async def is_impatient(ctx: ToolContext) -> str:
        """Waits for a moment only."""
        if waiter == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ctx.request_input("Quick!"), 0.01)
        elif waiter == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await ctx.request_input("Quick!")
        else:
            task = asyncio.ensure_future(ctx.request_input("Quick!"))
            await asyncio.wait({task}, timeout=0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        ctx.emit_custom_event("goes on", {})
        await gates["end"].wait()
        return "without you"

    async with a_question(is_impatient) as (site, stream, waiting):
        resumed = (await stream.until("tool.resumed"))["value"]
        assert resumed["interruptId"] == waiting["interruptId"]
        await stream.until("goes on")
        error_of(await answer(site, waiting["interruptId"], "here!"), 409, "interrupt_closed")
        record = await record_of(site)
        assert (record["status"], record["toolCalls"][0]["status"]) == ("running", "running")
        gates["end"].set()
        events = await stream.rest()
    assert text_of(result_of(events)) == "without you"


async def test_a_question_that_its_call_has_left_behind_is_closed_with_the_call() -> None:
    gates = Gates()

    @tool
    async def leaves_it_behind(ctx: ToolContext) -> str:
        """Asks, and does not wait for the answer."""
        task = asyncio.ensure_future(ctx.request_input("Who cares?"))
        gates.trail.append("asked")
        await asyncio.wait({task}, timeout=0.01)
        task.add_done_callback(lambda done: gates.trail.append(type(done.exception()).__name__))
        return "gone"

    async with serving(leaves_it_behind, waits, context=gates) as site:
        body = agent_body(ask(("c1", "leaves_it_behind", {}), ("c2", "waits", {"name": "go"})))
        stream = Reader(await site.open("/agents/tools", body, ME))
        waiting = await asked(stream)
        await stream.until("TOOL_CALL_RESULT")
        error_of(await answer(site, waiting["interruptId"], "me"), 409, "interrupt_closed")
        assert (await record_of(site))["status"] == "running", "nobody waits any more"
        gates["go"].set()
        events = await stream.rest()
    names = names_of(events, "c1")
    assert names.index("tool.resumed") < names.index("tool.result")
    assert "AbortError" in gates.trail


async def test_who_begins_to_wait_after_its_call_has_ended_does_not_hold_up_the_run() -> None:
    gates = Gates()

    @tool
    async def ends_early(ctx: ToolContext) -> str:
        """Leaves something behind that wants to wait."""

        async def late() -> None:
            await gates["late"].wait()
            with pytest.raises(NotAvailable):
                await ctx.request_input("Late?")
            with pytest.raises(NotAvailable):
                async with ctx.waiting_for_user("Late?"):
                    pass
            gates["refused"].set()

        gates.contexts.append(ctx)
        gates.trail.append(str(asyncio.ensure_future(late())))
        return "gone"

    async with serving(ends_early, waits, context=gates) as site:
        body = agent_body(ask(("c1", "ends_early", {}), ("c2", "waits", {"name": "go"})))
        stream = Reader(await site.open("/agents/tools", body, ME))
        await stream.until("TOOL_CALL_RESULT")
        gates["late"].set()
        async with asyncio.timeout(LONG):
            await gates["refused"].wait()
        assert (await record_of(site))["status"] == "running"
        gates["go"].set()
        events = await stream.rest()
    assert "tool.waiting" not in names_of(events)


async def test_a_draining_gateway_still_takes_answers_and_starts_nothing() -> None:
    async with a_question(asks, drain_timeout=LONG) as (site, stream, waiting):
        draining = asyncio.create_task(site.engine.drain())
        await quiet(lambda: site.engine.supervisor.draining)
        error_of(await site.client.post("/tools/asks", json={}, headers=ME), 503, "draining")
        await answered(site, waiting, {"name": "Ada"})
        events = await stream.rest()
        await draining
    assert gave(events)["payload"] == {"name": "Ada"}


async def test_a_shutdown_ends_a_run_that_waits_as_interrupted() -> None:
    async with a_question(asks) as (site, stream, _):
        site.server.should_exit = True
        events = await stream.rest()
    assert result_of(events)["status"] == "interrupted"
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")


# -- where nobody can be asked --


@tool
async def tries(ctx: ToolContext, member: str) -> str:
    """Tries to ask; says what happened."""
    try:
        if member == "request_input":
            await ctx.request_input("Who?")
        elif member == "interrupt":
            ctx.interrupt("Who?")
        else:
            async with ctx.waiting_for_user():
                pass
    except NotAvailable as error:
        return f"NotAvailable: {error}"
    return "asked"


@tool
def tries_in_a_thread(ctx: ToolContext) -> str:
    """Tries to ask from a thread."""
    try:
        ctx.request_input_sync("Who?")
    except NotAvailable as error:
        return f"NotAvailable: {error}"
    return "asked"


TRIES: dict[str, tuple[Tool, dict[str, Any]]] = {
    "request_input": (tries, {"member": "request_input"}),
    "waiting_for_user": (tries, {"member": "waiting_for_user"}),
    "request_input_sync": (tries_in_a_thread, {}),
}


@pytest.mark.parametrize("member", TRIES)
async def test_in_a_json_answer_there_is_nobody_to_ask(member: str) -> None:
    made, arguments = TRIES[member]
    async with serving(made, calls) as site:
        said = await site.client.post(f"/tools/{made.name}", json={"arguments": arguments}, headers=ME | JSON)
        assert said.json()["content"][0]["text"].startswith("NotAvailable: "), said.text
        nested = {"name": made.name, "arguments": arguments}
        said = await site.client.post("/tools/calls", json={"arguments": nested}, headers=ME | JSON)
        assert said.json()["structuredContent"]["text"].startswith("NotAvailable: "), said.text


@pytest.mark.parametrize("member", [*TRIES, "interrupt"])
async def test_in_a_call_without_a_run_there_is_nobody_to_ask(member: str) -> None:
    made, arguments = TRIES.get(member, (tries, {"member": member}))
    async with serving(made) as site:
        output = await site.gateway.call_tool(ToolCall(made.name, arguments))
        assert output.text.startswith("NotAvailable: ")
    output = await call_tool(ToolCall(made.name, arguments), [made])
    assert output.text.startswith("NotAvailable: ")


async def test_a_tool_that_does_not_catch_it_fails_and_says_why() -> None:
    async with serving(asks) as site:
        said = (await site.client.post("/tools/asks", json={}, headers=ME | JSON)).json()
        output = await site.gateway.call_tool(ToolCall("asks"))
    assert (said["status"], output.status) == ("failed", "failed")
    assert said["structuredContent"]["error"] == {"code": "failed", "retryable": False}
    assert "request_input" in text_of(said)
    assert "request_input" in output.text


async def test_asking_in_a_blocking_way_on_the_loop_is_an_error_and_not_a_deadlock() -> None:
    @tool
    async def blocks(ctx: ToolContext) -> str:
        """Would block everybody."""
        with pytest.raises(RuntimeError, match="await the other form"):
            ctx.request_input_sync("Who?")
        return "raised"

    async with serving(blocks) as site:
        events = await post(site, "/tools/blocks", {"toolCallId": "c"})
    assert text_of(result_of(events)) == "raised"
    assert names_of(events, "c") == [*START, *END]
