"""What the pages about asking and the background promise, done with their own files: every row of their tables."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from gateway import AccessDenied, NotAvailable, Tool, ToolCall, ToolContext, call_tool, tool
from gateway.cli.exits import COMPLETED, UNAVAILABLE, code_of_end
from gateway.testing import run_tool
from tests.docs.checks import events_in
from tests.docs.pages import page
from tests.docs.shells import Shell
from tests.docs.test_features import Load, load, named  # noqa: F401 - `load` is a fixture
from tests.docs.test_pages import published_errors
from tests.docs.test_snippets import in_node
from tests.http.asking import agent_body, ask
from tests.http.site import ME, SOMEBODY_ELSE, Site, serving
from tests.support.browser import Browser, browser  # noqa: F401 - a fixture

ASK = page("docs/how-to/ask.md")
BACKGROUND = page("docs/how-to/background.md")
COMMAND_LINE = page("docs/how-to/command-line.md")
FRONTEND = page("docs/how-to/frontend.md")
TOOLS_PAGE = page("docs/how-to/tools.md")

Json = dict[str, Any]

JSON = {"accept": "application/json"}
ASYNC = {"prefer": "respond-async"}
NOTHING = "–"


# -- the tools of this test, and how they are called --


@tool(timeout=0.05)
async def asks(ctx: ToolContext) -> Json:
    answer = await ctx.request_input("Well?", {"type": "integer"})
    return {"status": answer.status, "payload": answer.payload}


@tool
async def waits(ctx: ToolContext) -> str:
    async with ctx.waiting_for_user("Look."):
        return "waited"


@tool
async def ends(ctx: ToolContext) -> Json:
    answer = ctx.interrupt("Well?", {"type": "integer"})
    return {"status": answer.status, "payload": answer.payload}


@tool(needs_approval=True)
async def guarded(n: int) -> int:
    return n


@tool(needs_approval=True, isolation="process")
def in_process(n: int, ctx: ToolContext) -> list[str]:
    missing = []
    for name in ("request_input", "request_input_sync", "waiting_for_user", "interrupt"):
        try:
            getattr(ctx, name)
        except NotAvailable:
            missing.append(name)
    return missing


@tool
async def calls(name: str, arguments: Json, ctx: ToolContext) -> Any:
    return await ctx.call_tool(name, arguments)


@tool
async def works(ctx: ToolContext, what: str = "", seconds: float = 60) -> Any:
    """Offers work that does this, or just goes on."""

    async def work() -> Any:
        ctx.emit_custom_event("working", {})
        if what:
            await asyncio.sleep(0.1)
            return await {"asks": asks.func, "waits": waits.func, "ends": ends.func}[what](ctx)
        await asyncio.sleep(seconds)
        return "worked"

    return await ctx.run_detachable(work())


@tool
async def plain(ctx: ToolContext) -> bool:
    ctx.emit_custom_event("working", {})
    await asyncio.sleep(60)
    return ctx.detach is None


@tool
def in_thread(ctx: ToolContext) -> bool:
    return ctx.detach is None


TOOLS: list[Tool] = [asks, waits, ends, guarded, in_process, calls, works, plain, in_thread]


async def post(site: Site, path: str, body: Json | None = None, **headers: str) -> httpx.Response:
    return await site.client.post(path, json=body or {}, headers={**ME, **headers})


async def start(site: Site, name: str, run_id: str = "r", **body: Any) -> None:
    given = await post(site, f"/tools/{name}", {"runId": run_id, "toolCallId": "c", **body}, **ASYNC)
    assert given.status_code == 202, given.text


async def value_of(site: Site, name: str, run_id: str = "r") -> Json:
    """The value of the run's first event with this name."""
    stream = await site.open(f"/runs/{run_id}/events", headers=ME)
    value: Json = (await stream.until(name))["value"]
    stream.leave()
    return value


async def ended(site: Site, run_id: str = "r") -> list[Json]:
    """The events of the run, once it is over."""
    return events_in((await site.client.get(f"/runs/{run_id}/events", headers=ME)).text)


async def record_of(site: Site, run_id: str = "r") -> Json:
    found: Json = (await site.client.get(f"/runs/{run_id}", headers=ME)).json()
    return found


def answer(asked: Json, payload: Any = None, status: str = "resolved") -> Json:
    said = {} if payload is None else {"payload": payload}
    return {"interruptId": asked.get("interruptId") or asked["id"], "status": status, **said}


async def give(site: Site, asked: Json, payload: Any = None, status: str = "resolved", run_id: str = "r") -> None:
    given = await post(site, f"/runs/{run_id}/input", answer(asked, payload, status))
    assert given.status_code == 202, given.text


def output_in(events: list[Json]) -> Json:
    """What the call `c` came to."""
    (value,) = (found for found in named(events, "tool.result") if found["toolCallId"] == "c")
    return value


def code_in(given: httpx.Response) -> tuple[int, str | None]:
    found = given.json()
    return given.status_code, found["error"]["code"] if "error" in found and given.is_error else None


# -- asking: the files of the page --


@pytest.mark.allow_blocking  # `run_tool` reads the schema library when it is first asked
async def test_a_thread_may_ask_and_a_wait_asks_nothing(load: Load) -> None:  # noqa: F811
    app = load(ASK, "app")
    output, _ = await run_tool(app.paint, {"colours": ["red", "blue"]}, answer=lambda asked: asked["schema"]["enum"][1])
    assert output.structured_content == {"colour": "blue"}
    output, events = await run_tool(app.pay, {"cents": 5}, timeout=0.5)
    assert output.structured_content == {"paid": 5}, "the clock has stopped"
    (waiting,) = named(events, "tool.waiting")
    assert "interruptId" not in waiting
    assert "interruptId" not in named(events, "tool.resumed")[0]


@pytest.mark.allow_blocking
async def test_an_approval_may_depend_on_the_arguments(load: Load) -> None:  # noqa: F811
    app = load(ASK, "app")
    for path, asked in (("draft.txt", 0), ("letters.txt", 1)):
        _, events = await run_tool(app.delete, {"path": path})
        assert len(named(events, "tool.waiting")) == asked
    with pytest.raises(RuntimeError, match="answer"):
        await run_tool(app.greet, {})
    output, events = await run_tool(load(TOOLS_PAGE, "files").delete, {"path": "a"})
    assert (output.structured_content, len(named(events, "tool.waiting"))) == ({"deleted": "a"}, 1)


@tool(needs_approval=lambda arguments: 1 / arguments["n"])
async def unsure(n: int) -> int:
    return n


async def test_guards_come_before_an_approval_and_see_what_it_edits() -> None:
    seen = []

    async def guard(ctx: ToolContext, call: ToolCall, call_next: Any) -> Any:
        seen.append(dict(call.input))
        if call.input["n"] == 13:
            raise AccessDenied("Not that one.")
        return await call_next(call)

    async with serving(guarded, unsure) as site:
        site.gateway.middleware(guard)
        for n, said in ((13, "Error [denied]: Not that one."), ("one", "Error [invalid_arguments]: ")):
            body = agent_body(ask(("c", "guarded", {"n": n})), runId=f"r{n}")
            events = events_in((await post(site, "/agents/tools", body)).text)
            assert output_in(events)["content"][0]["text"].startswith(said)
        seen.clear()
        await start(site, "guarded", arguments={"n": 1})
        asked = await value_of(site, "tool.waiting")
        await give(site, asked, {"approved": True, "arguments": {"n": 2}})
        events = await ended(site)
        assert output_in(events)["structuredContent"] == {"result": 2}
        assert seen == [{"n": 1}, {"n": 2}]
        assert len(named(events, "tool.waiting")) == 1
        await start(site, "guarded", "no", arguments={"n": 1})
        asked = await value_of(site, "tool.waiting", "no")
        await give(site, asked, {"approved": False, "message": "Not now."}, run_id="no")
        said = output_in(await ended(site, "no"))["content"][0]["text"]
        assert said == "Error [denied]: The person declined this call: Not now."
        failed = await post(site, "/tools/unsure", {"arguments": {"n": 0}}, **JSON)
        assert failed.json()["status"] == "failed"


async def test_an_approval_of_an_agent_says_what_it_is_about() -> None:
    async with serving(*TOOLS) as site:
        body = agent_body(ask(("c", "guarded", {"n": 1})))
        (asked,) = events_in((await post(site, "/agents/tools", body)).text)[-1]["outcome"]["interrupts"]
    assert (asked["reason"], asked["metadata"]["input"]) == ("tool_call", {"n": 1})


async def test_a_tool_that_gives_up_closes_its_question() -> None:
    @tool
    async def impatient(ctx: ToolContext) -> str:
        try:
            async with asyncio.timeout(0.2):
                await ctx.request_input("Well?")
        except TimeoutError:
            ctx.emit_custom_event("gave.up", {})
        await asyncio.sleep(60)
        return "never"

    async with serving(impatient) as site:
        await start(site, "impatient")
        asked = await value_of(site, "tool.waiting")
        await value_of(site, "gave.up")
        assert code_in(await post(site, "/runs/r/input", answer(asked, 1))) == (409, "interrupt_closed")


CLIENTS = {"HttpAgent": "the official client", "ChatClient": "TanStack's client"}


@pytest.mark.parametrize("name", CLIENTS)
def test_both_clients_of_the_page_book_a_trip(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = Shell(tmp_path_factory.mktemp("ask"), ASK.files())
    with shell.serving("agui-gateway serve app:gateway"):
        printed = in_node(ASK.block("js", name).text, shell.url)
    assert printed == ["How many days in Rome?", "3 days in Rome?", '{"booked":true,"place":"Rome","days":3}']


def test_an_approval_is_given_with_tanstacks_client_as_the_page_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    said = "asked.resolveInterrupt({ approved: true })"
    assert f"`{said}`" in ASK.text
    script = ASK.block("js", "ChatClient").text.replace("asked.resolveInterrupt(answers[asked.metadata.key])", said)
    script = script.replace('"book"', '"delete"').replace('{"place": "Rome"}', '{"path": "letters.txt"}')
    shell = Shell(tmp_path_factory.mktemp("ask"), ASK.files())
    with shell.serving("agui-gateway serve app:gateway"):
        assert in_node(script, shell.url) == ['May "delete" run?', '{"deleted":"letters.txt"}']


def test_a_page_answers_an_open_question_by_what_the_frontend_page_says(
    tmp_path: Any,
    browser: Browser,  # noqa: F811
) -> None:
    shell = Shell(tmp_path, ASK.files())
    with shell.serving("agui-gateway serve app:gateway"):
        shown = browser.open(f"{shell.url}/healthz")
        script = FRONTEND.block("js", "tools/count").text.replace("tools/count", "tools/greet")
        script = script.replace("arguments: { to: 3 }", "arguments: {}").replace(" runs/", " /runs/")
        answers = FRONTEND.block("js", "tool.waiting").text
        shown.evaluate(
            "(async () => { window.prompt = (message) => (window.asked = message, 'Ada'); window.seen = [];"
            f"{script} {answers}"
            "events.addEventListener('message', ({ data }) => {"
            "const { result } = JSON.parse(data); if (result) window.said = result.content[0].text; }); })()"
        )
        assert shown.wait("window.said") == "Hello, Ada!"
        assert shown.evaluate("window.asked") == "What is your name?"


# -- where a tool may ask --

WHERE = {row[0]: row[1:] for row in ASK.table("the call")}
STREAM = "`/tools`, as a stream or with `respond-async`"
AS_JSON = "`/tools`, as JSON"
AGENTS = "`/agents`"
NESTED = "inside another call (`ctx.call_tool`)"
BEHIND = "[in the background](background.md)"
PROCESS = '`isolation="process"`'
NO_RUN = "[without a run](adapters.md)"


def expected(cell: str, *, interrupts: bool = False) -> str:
    """What a cell of the table says; a second part, about JSON, is for another test."""
    said = cell.partition(";")[0].strip("`")
    if said == "yes":
        return "interrupt" if interrupts else "open"
    return {
        "NotAvailable": "refused",
        "the call fails": "refused",
        "by an interrupt": "interrupt",
        "by an interrupt, or in the open run": "interrupt",
        "in the open run": "open",
        "yes, in the job's run": "open",
    }[said]


async def how_it_asks(name: str, path: str, body: Json, **headers: str) -> str:
    """`open`: inside the run; `interrupt`: by ending it; `refused`: not at all."""
    async with serving(*TOOLS) as site:
        if headers:
            found = (await post(site, path, body, **headers)).json()
            if found["status"] == "interrupted":
                return "interrupt"
            assert "not available" in str(found) or "cannot ask" in str(found)
            return "refused"
        return await how_it_goes_on(site, path, body)


async def how_it_goes_on(site: Site, path: str, body: Json | None) -> str:
    stream = await site.open(path, body, headers=ME)
    while messages := await stream.messages():
        for event in (json.loads(message.data) for message in messages):
            if event.get("name") == "tool.waiting":
                return "open"
            if event["type"] == "RUN_FINISHED":
                if event["outcome"]["type"] == "interrupt":
                    return "interrupt"
                assert "not available" in str(event), event
                return "refused"
    raise AssertionError("The stream has no end.")


CASES = [("asks", {}, 0), ("waits", {}, 0), ("ends", {}, 1), ("guarded", {"n": 1}, 2)]


@pytest.mark.parametrize(("name", "arguments", "column"), CASES)
async def test_a_tool_may_ask_where_the_page_says(name: str, arguments: Json, column: int) -> None:
    def says(row: str) -> str:
        return expected(WHERE[row][column], interrupts=column == 1)

    plainly, inside = {"arguments": arguments}, {"arguments": {"name": name, "arguments": arguments}}
    assert await how_it_asks(name, f"/tools/{name}", plainly) == says(STREAM)
    assert await how_it_asks(name, f"/tools/{name}", plainly, **JSON) == says(AS_JSON)
    conversation = agent_body(ask(("c", name, arguments)))
    assert await how_it_asks(name, "/agents/tools", conversation) == says(AGENTS)
    assert await how_it_asks(name, "/tools/calls", inside) == says(NESTED)
    assert await how_it_asks(name, "/tools/calls", inside, **JSON) == "refused"
    output = await call_tool(ToolCall(name, arguments), TOOLS)
    assert (output.status, says(NO_RUN)) == ("failed", "refused")
    if column == 2:  # the second part of the cell
        rather_open = {**conversation, "forwardedProps": {"gateway": {"input": "open"}}}
        assert await how_it_asks(name, "/agents/tools", rather_open) == "open"


@pytest.mark.parametrize(("name", "column"), [("asks", 0), ("waits", 0), ("ends", 1)])
async def test_a_job_asks_in_its_own_run(name: str, column: int) -> None:
    async with serving(*TOOLS) as site:
        await start(site, "works", arguments={"what": name})
        moved = (await post(site, "/runs/r/detach")).json()["jobs"][0]["runId"]
        found = await how_it_goes_on(site, f"/runs/{moved}/events", None)
    assert found == expected(WHERE[BEHIND][column], interrupts=column == 1)
    assert WHERE[BEHIND][2] == NOTHING


@pytest.mark.allow_blocking
async def test_a_process_cannot_ask_but_may_need_an_approval() -> None:
    output, events = await run_tool(in_process, {"n": 1})
    assert output.structured_content == {
        "result": ["request_input", "request_input_sync", "waiting_for_user", "interrupt"]
    }
    assert len(named(events, "tool.waiting")) == 1
    assert [expected(cell) for cell in WHERE[PROCESS][:2]] == ["refused", "refused"]


# -- what comes back --


def rows_of(where: Any, first: str) -> set[tuple[str, str]]:
    return {(row[0].strip("`"), row[1].strip("`")) for row in where.table(first) if row[1] != NOTHING}


async def test_every_refusal_of_an_answer_is_real() -> None:
    seen = set()
    async with serving(*TOOLS, interrupt_ttl=0.3, run_ttl=60) as site:

        async def refused(path: str, body: Json, **headers: str) -> None:
            status, code = code_in(await post(site, path, body, **headers))
            seen.add((str(status), code))

        await start(site, "asks")
        asked = await value_of(site, "tool.waiting")
        await refused("/runs/r/input", {"interruptId": asked["interruptId"]})
        await refused("/runs/r/input", answer({"id": "other"}, 1))
        await refused("/runs/r/input", answer(asked, 1), **SOMEBODY_ELSE)
        await refused("/runs/r/input", answer(asked, "one"))
        await give(site, asked, 1)
        await refused("/runs/r/input", answer(asked, 2))
        assert output_in(await ended(site))["structuredContent"] == {"status": "resolved", "payload": 1}

        await start(site, "asks", "stopped")
        asked = await value_of(site, "tool.waiting", "stopped")
        await post(site, "/runs/stopped/stop")
        await refused("/runs/stopped/input", answer(asked, 1))

        await start(site, "guarded", "edited", arguments={"n": 1})
        asked = await value_of(site, "tool.waiting", "edited")
        await refused("/runs/edited/input", answer(asked, {"approved": True, "arguments": {"n": "one"}}))
        await give(site, asked, {"approved": True, "arguments": {"n": 2}}, run_id="edited")

        (asked,) = (await post(site, "/tools/ends", {"runId": "late"}, **JSON)).json()["interrupts"]
        assert code_in(await post(site, "/runs/late/input", answer(asked, 1))) == (409, "interrupt_closed")
        await refused("/tools/ends", {"resume": [answer(asked, 1)], "arguments": {"n": 1}})
        await asyncio.sleep(0.4)
        await refused("/tools/ends", {"resume": [answer(asked, 1)]})
        done = await post(site, "/tools/ends", {"resume": [answer(asked, status="cancelled")]}, **JSON)
        assert done.json()["structuredContent"] == {"status": "cancelled", "payload": None}
    seen.discard(("404", "run_not_found"))  # of somebody else: as for a run that does not exist
    assert seen == rows_of(ASK, "status")
    assert seen <= published_errors()


async def test_a_resume_names_every_question_and_the_same_one_joins_its_run() -> None:
    two = agent_body(ask(("c1", "ends", {}), ("c2", "ends", {}), ("c3", "in_thread", {})))
    async with serving(*TOOLS) as site:
        events = events_in((await post(site, "/agents/tools", two)).text)
        first, second = events[-1]["outcome"]["interrupts"]
        assert {value["toolCallId"] for value in named(events, "tool.result")} == {"c3"}
        half = {**two, "runId": "r2", "resume": [answer(first, 1)]}
        assert code_in(await post(site, "/agents/tools", half)) == (400, "invalid_request")
        whole = {**two, "runId": "r2", "resume": [answer(first, 1), answer(second, status="cancelled")]}
        for _ in range(2):
            events = events_in((await post(site, "/agents/tools", whole)).text)
            found = {value["toolCallId"]: value["structuredContent"] for value in named(events, "tool.result")}
            assert found == {
                "c1": {"status": "resolved", "payload": 1},
                "c2": {"status": "cancelled", "payload": None},
            }
        late = {**whole, "runId": "r3"}
        assert code_in(await post(site, "/agents/tools", late)) == (409, "interrupt_answered")


# -- time, Stop, what is open --


async def test_time_stands_still_while_it_asks() -> None:
    async with serving(*TOOLS, run_timeout=0.1) as site:
        await start(site, "asks")
        asked = await value_of(site, "tool.waiting")
        await asyncio.sleep(0.3)
        assert (await record_of(site))["status"] == "waiting"
        found = (await site.client.get("/runs?status=waiting", headers=ME)).json()["items"]
        assert [record["runId"] for record in found] == ["r"]
        await give(site, asked, 1)
        assert output_in(await ended(site))["status"] == "completed"


async def test_stop_ends_a_call_that_asks_and_its_question() -> None:
    async with serving(*TOOLS) as site:
        await start(site, "asks")
        await value_of(site, "tool.waiting")
        assert (await post(site, "/runs/r/stop")).status_code == 202
        events = await ended(site)
        assert output_in(events)["status"] == "cancelled"
        assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_stop_of_an_interrupted_run_closes_its_questions_without_an_event() -> None:
    async with serving(*TOOLS) as site:
        body = {"runId": "r", "threadId": "t"}
        (asked,) = (await post(site, "/tools/ends", body, **JSON)).json()["interrupts"]
        (listed,) = (await site.client.get("/threads/t", headers=ME)).json()["interrupts"]
        assert (listed["id"], listed["runId"]) == (asked["id"], "r")
        before = await ended(site)
        assert before[-1]["outcome"]["type"] == "interrupt"
        stopped = await post(site, "/runs/r/stop")
        assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
        assert await ended(site) == before
        assert (await site.client.get("/threads/t", headers=ME)).json()["interrupts"] == []
        resume = {"resume": [answer(asked, 1)]}
        assert code_in(await post(site, "/tools/ends", resume)) == (409, "interrupt_closed")
        done = await post(site, "/tools/ends", {"resume": [answer(asked, status="cancelled")]}, **JSON)
        assert done.json()["status"] == "cancelled"


async def test_leaving_ends_a_run_that_asks_only_if_it_says_so() -> None:
    async with serving(*TOOLS) as site:
        for run_id, leaving in (("stays", "continue"), ("goes", "cancel")):
            body = {"runId": run_id, "onDisconnect": leaving, "disconnectGrace": 0}
            stream = await site.open("/tools/asks", body, headers=ME)
            await stream.until("tool.waiting")
            stream.leave()
        events = await ended(site, "goes")
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted")
        assert (await record_of(site, "stays"))["status"] == "waiting"


def test_a_question_is_no_failure_for_the_command_line() -> None:
    assert "exits with 75" in COMMAND_LINE.text
    assert "with 0, and `tail`" in COMMAND_LINE.text
    assert code_of_end({"type": "RUN_FINISHED", "outcome": {"type": "interrupt"}}) == UNAVAILABLE
    detached = {"type": "RUN_FINISHED", "outcome": {"type": "success"}, "result": {"status": "detached"}}
    assert code_of_end(detached) == COMPLETED


# -- the background --


async def moved_of(site: Site, run_id: str = "r") -> str:
    answered = await post(site, f"/runs/{run_id}/tool-calls/c/detach")
    assert answered.status_code == 202, answered.text
    job: str = answered.json()["runId"]
    return job


async def test_by_hand_it_moves_too_and_without_a_run_it_just_works(load: Load) -> None:  # noqa: F811
    app = load(BACKGROUND, "app")
    async with serving(app.report, app.mirror) as site:
        await start(site, "mirror", arguments={"pages": 2})
        job = await moved_of(site)
        assert output_in(await ended(site))["status"] == "detached"
        events = await ended(site, job)
        assert output_in(events)["structuredContent"] == {"fetched": 2}
        assert named(events, "mirror.fetched")[-1]["page"] == 2
        for name, result in (("report", {"pages": 1}), ("mirror", {"fetched": 1})):
            done = await post(site, f"/tools/{name}", {"arguments": {"pages": 1}}, **JSON)
            assert done.json()["structuredContent"] == result


@tool(timeout=0)
async def looks(ctx: ToolContext) -> Any:
    """Says what its context says before it moves, and after."""

    def look() -> Json:
        return {
            "run_id": ctx.run_id,
            "task": ctx.task.task_id if ctx.task else None,
            "parent_run_id": ctx.parent_run_id,
            "same": [ctx.thread_id, ctx.tool_call_id, ctx.tool_name, ctx.session_id, ctx.request_id],
            "signal": id(ctx.abort_signal),
            "logger": (ctx.logger.extra or {})["run_id"],
            "context": id(ctx.context),
            "detach": ctx.detach is None,
        }

    async def work() -> Json:
        before = look()
        ctx.emit_custom_event("looked", {})
        await ctx.context.wait()
        nested = await ctx.call_tool("in_thread", {})
        with pytest.raises(NotAvailable):
            ctx.interrupt("Well?")
        return {"before": before, "after": look(), "nested": nested.status}

    return await ctx.run_detachable(work())


async def test_the_context_says_what_the_table_says() -> None:
    moved = asyncio.Event()
    async with serving(looks, in_thread, context=moved) as site:
        await start(site, "looks", parentRunId="older")
        await value_of(site, "looked")
        job = await moved_of(site)
        moved.set()
        found = output_in(await ended(site, job))["structuredContent"]
    before, after = found["before"], found["after"]
    assert (before.pop("run_id"), after.pop("run_id")) == ("r", job)
    assert (before.pop("task"), after.pop("task")) == ("r", job)
    assert (before.pop("parent_run_id"), after.pop("parent_run_id")) == ("older", "r")
    assert (before.pop("logger"), after.pop("logger")) == ("r", job)
    assert (before.pop("detach"), after.pop("detach")) == (False, True)
    assert before == after
    assert found["nested"] == "completed"


def test_the_table_of_the_context_names_what_the_context_has() -> None:
    rows = BACKGROUND.table("`ctx`")
    members = {name.split(".")[0] for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}
    assert {name for name in members if not hasattr(ToolContext, name)} == set()


async def test_what_moves_is_out_of_reach_of_its_run_and_within_that_of_its_thread() -> None:
    async with serving(*TOOLS, max_runs_per_session=1) as site:
        stream = await site.open(
            "/tools/works",
            {"runId": "r", "threadId": "t", "toolCallId": "c", "onDisconnect": "cancel", "disconnectGrace": 0},
            headers=ME,
        )
        await stream.until("working")
        job = await moved_of(site)
        stream.leave()
        await ended(site)
        assert (await post(site, "/runs/r/stop")).status_code == 200
        await start(site, "in_thread", "next")  # the job does not count for the session
        assert (await record_of(site, job))["status"] == "running"
        stopped = await post(site, "/threads/t/stop")
        assert (stopped.status_code, stopped.json()) == (202, {"runIds": [job]})
        assert output_in(await ended(site, job))["status"] == "cancelled"
        note = (await site.client.get("/threads/t", headers=ME)).json()["messages"][-1]
        assert note["content"] == "Background job c ended.\nError [cancelled]: Cancelled by the user."
        shown = note["content"].replace("job c ", "job call-1 ").replace("\n", "\\n")
        assert shown in " ".join(BACKGROUND.text.split())


async def test_what_cannot_move_is_refused_as_the_page_says() -> None:
    rows = [row for row in BACKGROUND.prose.splitlines() if row.startswith("| ") and "`409`" in row]
    assert len(rows) == 5

    async def refusal(site: Site, run_id: str) -> Json:
        answered = await post(site, f"/runs/{run_id}/tool-calls/c/detach")
        assert answered.status_code == 409
        found: Json = answered.json()
        assert found.keys() == {"status", "reason", "error"}
        return found

    async with serving(*TOOLS) as site:
        await start(site, "plain")
        await value_of(site, "working")
        assert (await refusal(site, "r"))["reason"] == "not_detachable"
        await start(site, "works", "moves", threadId="t")
        await value_of(site, "working", "moves")
        job = await moved_of(site, "moves")
        assert (await refusal(site, "moves"))["reason"] == "not_running"
        assert (await refusal(site, job))["reason"] == "not_detachable"
        thread = await post(site, "/tools/in_thread", {}, **JSON)
        assert thread.json()["structuredContent"] == {"result": True}
        waiting = asyncio.create_task(
            post(site, "/tools/works", {"runId": "json", "toolCallId": "c", "arguments": {"seconds": 0.5}}, **JSON)
        )
        await value_of_when_there(site, "working", "json")
        assert (await refusal(site, "json"))["reason"] == "not_detachable"
        assert (await waiting).json()["content"] == [{"type": "text", "text": "worked"}]


async def value_of_when_there(site: Site, name: str, run_id: str) -> None:
    async with asyncio.timeout(10):
        while (await site.client.get(f"/runs/{run_id}", headers=ME)).status_code == 404:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.01)
    await value_of(site, name, run_id)
