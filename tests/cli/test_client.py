"""Where a gateway is and what it answers, when that is not what one hopes for."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.cli.client import Target, path
from gateway.cli.exits import Refused, Unreachable, UsageError
from tests.cli.answers import answering, refusal
from tests.cli.commands import SESSION, events_of, run_command


def answer(status: str, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode() + b"\r\n\r\n" + body


async def ask(*answers: bytes) -> dict[str, object]:
    async with answering(*answers) as (url, _), Target(url).client() as client:
        return await Target(url).ask(client, "GET", "/runs")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (refusal(404, "run_not_found"), Refused, r"^run_not_found: No\. \(404\)$"),
        (refusal(503, "draining"), Unreachable, r"^draining: No\. \(503\)$"),
        (answer("502 Bad Gateway", b"<html>"), Unreachable, r"^Not an answer of a gateway: Bad Gateway \(502\)$"),
        (answer("403 Forbidden", b"[1]"), Refused, r"^Not an answer of a gateway: Forbidden \(403\)$"),
        (
            answer("301 Moved", b"", "location: https://x.example/"),
            Unreachable,
            r"^The address redirects to https://x\.example/ \(301\)$",
        ),
        (answer("200 OK", b"<html>"), Unreachable, "does not answer as a gateway does"),
        (answer("200 OK", b"[]"), Unreachable, "does not answer as a gateway does"),
        (b"", Unreachable, r"^Cannot reach http://\S+: Server disconnected without sending a response\.$"),
    ],
)
async def test_an_answer_that_is_none_is_said_in_words(given: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        await ask(given)


async def test_credentials_go_with_every_request_and_into_no_representation() -> None:
    async with answering(answer("200 OK", b"{}")) as (url, heads):
        target = Target(f"{url}/below", token="token-secret", session=SESSION)
        async with target.client() as client:
            assert await target.ask(client, "GET", path("runs", "a/b c?", "stop")) == {}
    assert heads[0].startswith("GET /below/runs/a%2Fb%20c%3F/stop HTTP/1.1\r\n")
    assert "authorization: bearer token-secret\r\n" in heads[0].lower()
    assert f"x-session-id: {SESSION}\r\n" in heads[0].lower()
    assert repr(target) == f"Target(url='{url}/below')"


@pytest.mark.parametrize(
    "url", ["", "x", "http://", "http:///a", "http://a?b", "http://a#b", "http://[a", "http://a:b"]
)
def test_what_is_no_address_of_a_gateway_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="--url"):
        Target(url)


@pytest.mark.parametrize("variable", ["TOKEN", "SESSION"])
@pytest.mark.parametrize("arguments", [("runs", "--help"), ("runs",)])
def test_a_secret_of_the_environment_is_never_printed(
    variable: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AGUI_GATEWAY_{variable}", "malformed secret")
    result = run_command(*arguments)
    assert "malformed" not in result.output
    assert variable.lower() in result.output


async def test_a_long_list_is_asked_for_page_by_page() -> None:
    pages = [{"items": [{"runId": n}], "next": after} for n, after in ((1, "a"), (2, "b"), (3, None))]
    async with answering(*(answer("200 OK", json.dumps(page).encode()) for page in pages)) as (url, heads):
        # The command has a loop of its own.
        result = await asyncio.to_thread(run_command, "runs", "--url", url, "--session", SESSION, "--limit", "500")
    assert [record["runId"] for record in events_of(result)] == [1, 2, 3]
    assert [head.split(" ")[1] for head in heads] == [f"/runs?limit={n}" for n in ("200", "200&after=a", "200&after=b")]
