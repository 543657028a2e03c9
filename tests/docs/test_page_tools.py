"""What the page about tools of the browser promises: its own page in a browser, its client, its protocol by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import NAVIGATED, tool
from gateway.settings import Settings
from tests.docs.checks import events_in
from tests.docs.pages import ROOT, page
from tests.docs.shells import Shell
from tests.docs.test_features import named
from tests.docs.test_pages import published_errors
from tests.docs.test_snippets import in_node
from tests.http.asking import agent_body, ask
from tests.http.site import ME, Site, serving
from tests.support.browser import Browser
from tests.support.browser import Page as Tab

PAGE_TOOLS = page("docs/how-to/page-tools.md")
MODULE = ROOT / "web-demo" / "page-tools.js"
CART = "document.querySelectorAll('#cart li').length"
ASKS = "document.querySelector('#ask').open"

# Tells the test which run the page has started, and with which session, and what it sent about the calls.
SPY = """((original) => {
  window.sent = {};
  window.fetch = (url, init) => {
    const [runId, callId, what] = String(url).split("/").slice(-4).filter((part) => part !== "tool-calls");
    if (String(url).endsWith("agents/tools")) window.started = JSON.parse(init.body).runId;
    else window.sent[`${callId} ${what}`] = JSON.parse(init.body);
    window.session ??= new Headers(init.headers).get("X-Session-Id");
    return original(url, init);
  };
})(window.fetch)"""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The application of the page, served."""
    made = Shell(tmp_path_factory.mktemp("page"), PAGE_TOOLS.files())
    with made.serving("uvicorn app:app"):
        yield made


@pytest.fixture
def tab(shell: Shell, browser: Browser) -> Tab:
    opened = browser.open(f"{shell.url}/")
    opened.evaluate(SPY)
    return opened


def run_of(tab: Tab, shell: Shell) -> Json:
    """The record of the run that the page has started."""
    run_id, session = tab.wait("window.started"), tab.evaluate("window.session")
    headers = {"x-session-id": session}
    found: Json = httpx.get(f"{shell.url}/ai/runs/{run_id}?wait=20", headers=headers, trust_env=False).json()
    return found


def statuses(tab: Tab, shell: Shell) -> Json:
    return {call["toolName"]: call["status"] for call in run_of(tab, shell)["toolCalls"]}


def test_the_page_runs_its_tools_and_asks_the_person(tab: Tab, shell: Shell) -> None:
    tab.click("#model")
    tab.wait(ASKS)
    tab.wait(f"{CART} === 1")
    assert tab.text("#cart li") == "tea"
    tab.click("#ask button[value=yes]")
    tab.wait(f"{CART} === 0")
    assert statuses(tab, shell) == {"cart.add": "completed", "cart.clear": "completed"}
    assert tab.evaluate("sent['c2 waiting'].message") == "Empty the cart?"
    assert tab.evaluate("sent['c1 result'].output.structuredContent") == {"articles": 1}
    assert tab.complaints() == []


def test_the_page_says_what_the_person_does_not_want(tab: Tab, shell: Shell) -> None:
    tab.click("#model")
    tab.wait(ASKS)
    tab.click("#ask button[value=no]")
    assert statuses(tab, shell)["cart.clear"] == "failed"
    assert tab.evaluate(CART) == 1


def test_stop_closes_the_question_of_the_page(tab: Tab, shell: Shell) -> None:
    tab.click("#model")
    tab.wait(f"{ASKS} && {CART} === 1")
    run_id, session = tab.wait("window.started"), tab.evaluate("window.session")
    stopped = httpx.post(f"{shell.url}/ai/runs/{run_id}/stop", headers={"x-session-id": session}, trust_env=False)
    assert stopped.status_code == 202
    tab.wait(f"!{ASKS}")
    assert statuses(tab, shell)["cart.clear"] == "cancelled"
    assert tab.evaluate(CART) == 1


def test_a_tool_given_to_the_browser_is_one_of_the_page(tab: Tab, shell: Shell) -> None:
    if not tab.evaluate("'modelContext' in document"):
        pytest.skip("this browser has no document.modelContext")
    script = PAGE_TOOLS.block("js", "document.modelContext").text
    call = {"id": "c1", "type": "function", "function": {"name": "cart.count", "arguments": "{}"}}
    body = agent_body([{"id": "m1", "role": "assistant", "toolCalls": [call]}])
    found = tab.evaluate(
        f"""(async () => {{
        {script}
        const {{ PageTools }} = await import("./ai/page-tools.js");
        const pageTools = new PageTools({{ baseUrl: "ai/" }});
        const body = {json.dumps(body)};
        body.tools = await pageTools.tools();
        body.forwardedProps = {{ gateway: {{ pageTools: true }} }};
        const headers = {{ "Content-Type": "application/json" }};
        const run = await fetch("ai/agents/tools", {{ method: "POST", headers, body: JSON.stringify(body) }});
        let text = "", last;
        for await (const piece of run.body.pipeThrough(new TextDecoderStream())) {{
          const frames = (text + piece).split("\\n\\n");
          text = frames.pop();
          for (const frame of frames.filter((known) => known.includes("data: "))) {{
            const event = JSON.parse(frame.split("data: ")[1]);
            if (event.type === "TOOL_CALL_RESULT") last = event.content;
            pageTools.handle(event, body.runId);
          }}
        }}
        return [body.tools.map((tool) => tool.name), last];
        }})()"""
    )
    assert found == [["cart.count"], '{"articles":0}']


def test_the_official_client_runs_a_tool_of_its_own_inside_the_run(shell: Shell) -> None:
    script = PAGE_TOOLS.block("js", "HttpAgent").text.replace("./page-tools.js", MODULE.as_uri())
    assert in_node(script, shell.url) == ['{"width":80}']


# -- by hand --


@tool(name="both.have")
async def both_have() -> str:
    return "the gateway's"


def conversation(run_id: str, *, inside: bool, name: str = "screen.size") -> Json:
    theirs = {"name": name, "description": "", "parameters": {}}
    props = {"gateway": {"pageTools": True}} if inside else {}
    return {**agent_body(ask(("c", name, {}))), "runId": run_id, "tools": [theirs], "forwardedProps": props}


async def do(site: Site, what: str, body: Json | None = None, run_id: str = "r") -> httpx.Response:
    return await site.client.post(f"/runs/{run_id}/tool-calls/c/{what}", json=body or {}, headers=ME)


async def result_of(site: Site, run_id: str) -> Json:
    (value,) = named(events_in((await site.client.get(f"/runs/{run_id}/events", headers=ME)).text), "tool.result")
    return value


async def test_by_default_it_passes_through_as_the_page_shows() -> None:
    shown = json.loads(PAGE_TOOLS.block("json", "pendingToolCallIds").text)
    async with serving() as site:
        answer = await site.client.post("/agents/tools", json=conversation("r", inside=False), headers=ME)
    last = events_in(answer.text)[-1]
    assert last["outcome"] == {**shown["outcome"], "pendingToolCallIds": ["c"]}
    assert list(last) == list(shown)


async def test_a_tool_of_the_gateway_wins() -> None:
    async with serving(both_have) as site:
        body = conversation("r", inside=True, name="both.have")
        answer = await site.client.post("/agents/tools", json=body, headers=ME)
    events = events_in(answer.text)
    assert named(events, "tool.requested") == []
    assert named(events, "tool.result")[0]["content"][0]["text"] == "the gateway's"


async def test_the_protocol_is_as_the_table_says() -> None:
    rows = {(row[0].strip("`"), row[1].strip("`")): row[2] for row in PAGE_TOOLS.table("`POST`")}
    refused = set()
    async with serving(tool_timeout=0.2) as site:
        stream = await site.open("/agents/tools", conversation("r", inside=True), headers=ME)
        asked = await stream.until("tool.requested")
        assert asked.keys() == json.loads(PAGE_TOOLS.block("json", "tool.requested").text).keys()
        assert asked["value"] == {"toolCallId": "c", "toolName": "screen.size", "input": {}}

        claimed = await do(site, "claim")
        assert (claimed.status_code, list(claimed.json())) == (200, ["claimId", "expiresIn"])
        assert rows["…/claim", "none"].startswith('`200 {"claimId", "expiresIn"}`')
        mine = {"claimId": claimed.json()["claimId"]}
        assert (await do(site, "claim", mine)).json() == claimed.json()
        waiting = await do(site, "waiting", {**mine, "message": "Look."})
        assert (waiting.status_code, waiting.json()["status"]) == (202, "waiting")
        assert rows["…/waiting", '{"claimId", "message"?}'].startswith("`202`")

        for what, body in (("claim", {}), ("waiting", {"claimId": "other"}), ("waiting", {})):
            answer = await do(site, what, body)
            refused.add((str(answer.status_code), answer.json()["error"]["code"]))
        answer = await site.client.post("/runs/r/tool-calls/other/claim", headers=ME)
        refused.add((str(answer.status_code), answer.json()["error"]["code"]))

        done = await do(site, "result", {**mine, "output": {"content": [{"type": "text", "text": "80"}]}})
        assert done.status_code == 202
        assert rows["…/result", '{"claimId", "output"}'].startswith("`202`")
        assert (await result_of(site, "r"))["content"] == [{"type": "text", "text": "80"}], "the clock had stopped"
        answer = await do(site, "result", {**mine, "output": None})
        refused.add((str(answer.status_code), answer.json()["error"]["code"]))
    assert refused == {(row[0].strip("`"), row[1].strip("`")) for row in PAGE_TOOLS.table("status")}
    assert refused <= published_errors()


async def test_what_becomes_of_a_call_whose_page_goes_is_what_the_page_says() -> None:
    async with serving(page_claim=0.2, tool_timeout=0.5) as site:
        for run_id, claims in (("left", True), ("silent", True), ("nobody", False)):
            stream = await site.open("/agents/tools", conversation(run_id, inside=True), headers=ME)
            await stream.until("tool.requested")
            if claims:
                claimed = (await do(site, "claim", run_id=run_id)).json()
                if run_id == "left":
                    await do(site, "result", {"claimId": claimed["claimId"], "output": None}, run_id)
            stream.leave()
        left, silent, nobody = [await result_of(site, run_id) for run_id in ("left", "silent", "nobody")]
    said = PAGE_TOOLS.text.replace("\n  ", " ")
    assert (left["status"], left["content"][0]["text"], left["isError"]) == ("unknown", NAVIGATED, False)
    assert f"`{NAVIGATED}`" in said
    assert silent["status"] == "interrupted"
    assert silent["content"][0]["text"].startswith(
        "Error [interrupted]: The page cancelled this call before it finished."
    )
    assert "`Error [interrupted]: The page cancelled this call before it finished. …`" in said
    assert nobody["status"] == "unavailable"
    assert "that nobody has claimed by then never ran: it is `unavailable`" in said


def test_the_numbers_of_the_page_are_the_settings() -> None:
    settings = Settings()
    assert f"**A claim lives for `page_claim`** ({settings.page_claim:g} s)" in PAGE_TOOLS.text
    assert f"`tool_timeout`, {settings.tool_timeout:g} s" in PAGE_TOOLS.text


def test_the_table_names_what_the_module_has() -> None:
    source = MODULE.read_text("utf-8")
    members = [row[0].strip("`").removeprefix("await ") for row in PAGE_TOOLS.table("`PageTools`")]
    names = {name.partition("(")[0] for name in members} - {"new PageTools"}
    assert names == {"register", "tools", "handle", "busy", "close"}
    for name in names:
        assert f"\n  {name}(" in source or f"\n  async {name}(" in source, name
