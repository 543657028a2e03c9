"""`call`, `tail`, `runs` and `stop` against a real server, without a terminal."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from gateway.cli.calling import Stopper
from gateway.cli.client import Target
from gateway.cli.following import Following
from gateway.cli.screens import JSONLines
from tests.cli.answers import answering, refusal
from tests.cli.commands import SESSION, Command, events_of, run_command
from tests.support.servers import Serve, Server, eventually

APP = "tests.cli.tools_app:gateway"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", APP, "--stop-grace", "2")


@pytest.fixture(autouse=True)
def environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGUI_GATEWAY_URL", server.url)
    monkeypatch.setenv("AGUI_GATEWAY_SESSION", SESSION)
    # A proxy must not come between this machine and itself.
    monkeypatch.setenv("HTTP_PROXY", NOWHERE)


def test_call_prints_each_event_as_one_json_line_and_nothing_else() -> None:
    result = run_command("call", "echo", '{"value": [1, "\u2028"]}')
    events = events_of(result)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert [event["type"] for event in events if event["type"] != "CUSTOM"] == [
        "RUN_STARTED",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "RUN_FINISHED",
    ]
    assert [event["value"]["step"] for event in events if event.get("name") == "test.step"] == [1, 2, 3, 4]
    assert events[-1]["result"]["structuredContent"] == {"value": [1, "\u2028"]}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("call", "fail"), 1, ""),
        (("call", "forever", "--timeout", "0.05"), 124, ""),
        (("call", "nothing"), 3, "tool_not_found: No tool 'nothing'. (404)"),
        (("call", "echo", '{"other": 1}'), 3, "invalid_arguments"),
        (("call", "echo", "--run-id", "a/b"), 3, "invalid_request"),
        (("call", "echo", "{"), 2, "The arguments are not JSON: "),
        (("call", "echo", "[]"), 2, 'The arguments must be a JSON object, such as {"name": "value"}.'),
        (("call", "echo", "@nothing.json"), 2, "Cannot read nothing.json: No such file or directory."),
        (("call", "echo", "--timeout", "-1"), 2, "--timeout"),
        (("call",), 2, "Missing argument 'TOOL'"),
        (("call", "echo", "--session", "short"), 2, "--session must be 16 to 128 of A-Z a-z 0-9 _ -"),
        (("call", "echo", "--token", "two words"), 2, "--token must be visible ASCII"),
        (("call", "echo", "--url", "ftp://x"), 2, "--url must be of the form"),
        (("call", "echo", "--url", "http://me:secret@x"), 2, "--url must have no credentials"),
        (("call", "echo", "--url", "http://x:99999"), 2, "--url is not one"),
        (("tail", "nothing"), 3, "run_not_found"),
        (("stop", "nothing"), 3, "run_not_found"),
        (("runs", "--status", "odd"), 2, "--status"),
    ],
)
def test_a_command_that_does_not_succeed_has_its_exit_code_and_a_reason(
    arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = run_command(*arguments)
    assert result.exit_code == code
    assert says in result.stderr
    assert "secret" not in result.stderr
    assert not says or result.stdout == ""


@pytest.mark.parametrize(
    "arguments", [("call", "echo"), ("tail", "x"), ("stop", "x"), ("runs",), ("call", "--background", "echo")]
)
def test_without_a_gateway_every_command_is_unavailable(arguments: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        result = run_command(*arguments, "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert result.exit_code == 75
    assert "Is the gateway running?" in result.stderr


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_arguments_come_from_a_file_or_from_stdin(mark: bytes, tmp_path: Path) -> None:
    body = mark + b'{"value": 12345678901234567890123}'
    (tmp_path / "body.json").write_bytes(body)
    from_file = run_command("call", "echo", f"@{tmp_path / 'body.json'}")
    from_stdin = run_command("call", "echo", "-", stdin=body)
    for result in (from_file, from_stdin):
        assert result.exit_code == 0
        arguments = next(event for event in events_of(result) if event["type"] == "TOOL_CALL_ARGS")
        assert arguments["delta"] == '{"value":12345678901234567890123}'


def test_a_call_in_the_background_prints_its_record_and_can_be_listed_followed_and_stopped() -> None:
    options = ("--run-id", "background 1", "--thread", "of the test")
    started = run_command("call", "forever", "--background", *options)
    (record,) = events_of(started)
    assert (started.exit_code, record["runId"], record["status"]) == (0, "background 1", "running")
    (listed,) = events_of(run_command("runs", "--thread", "of the test", "--status", "running"))
    assert listed["runId"] == "background 1"
    with Command("tail", "background 1") as tail:
        tail.wait_for("test.started")
        stopped = run_command("stop", "background 1", "--reason", "seen enough")
        assert (stopped.exit_code, events_of(stopped)[0]["status"]) == (0, "stopping")
        code, events, _ = tail.finish()
    assert code == 130
    stopping = next(event for event in events if event.get("name") == "run.stopping")
    assert stopping["value"] == {"reason": "user", "message": "seen enough"}
    assert events[-1]["outcome"] == {"type": "cancelled"}
    again = run_command("stop", "background 1")
    assert (again.exit_code, events_of(again)[0]["status"]) == (0, "cancelled")


def test_tail_shows_a_run_that_is_over_from_any_event_with_the_exit_code_of_its_call() -> None:
    events = events_of(run_command("call", "fail", "--run-id", "over"))
    whole, rest = run_command("tail", "over"), run_command("tail", "over", "--from", "3")
    nothing = run_command("tail", "over", "--from", str(len(events)))
    assert (events_of(whole), events_of(rest), events_of(nothing)) == (events, events[3:], [])
    assert [result.exit_code for result in (whole, rest, nothing)] == [1, 1, 1]


def test_runs_belong_to_their_session_and_without_one_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        run_command("call", "echo", "--run-id", f"listed {number}", "--thread", "listed")
    listed = run_command("runs", "--thread", "listed", "--limit", "2")
    assert [record["runId"] for record in events_of(listed)] == ["listed 2", "listed 1"]
    assert run_command("runs", "--thread", "listed", "--session", "x" * 16).stdout == ""
    assert run_command("tail", "listed 1", "--session", "x" * 16).exit_code == 3
    monkeypatch.delenv("AGUI_GATEWAY_SESSION")
    nobody = run_command("runs")
    assert (nobody.exit_code, nobody.stdout) == (0, "")
    assert "--session" in nobody.stderr


def test_a_reader_that_goes_away_ends_the_command_without_a_traceback() -> None:
    with Command("call", "forever", "--run-id", "unread") as call:
        call.wait_for("test.started")
        assert call.process.stdout is not None
        call.process.stdout.close()
        run_command("stop", "unread")
        assert call.process.stderr is not None
        assert call.process.stderr.read() == ""
        assert call.process.wait(10) == 1


def test_the_same_call_with_the_same_run_id_is_shown_and_not_run_again() -> None:
    first = run_command("call", "echo", '{"value": 1}', "--run-id", "same")
    assert events_of(run_command("call", "echo", '{"value": 1}', "--run-id", "same")) == events_of(first)
    other = run_command("call", "echo", '{"value": 2}', "--run-id", "same")
    assert other.exit_code == 3
    assert "run_conflict" in other.stderr


def test_ctrl_c_stops_the_run_and_follows_it_to_its_end() -> None:
    with Command("call", "forever") as call:
        call.wait_for("test.started")
        call.process.send_signal(signal.SIGINT)
        code, events, stderr = call.finish()
    assert code == 130
    assert [event["name"] for event in events if event["type"] == "CUSTOM"] == ["run.stopping", "tool.result"]
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert stderr.splitlines() == ["Stopping… (Ctrl-C again leaves)"]


def test_a_second_ctrl_c_leaves_at_once_and_the_run_is_stopped_all_the_same(server: Server) -> None:
    with Command("call", "stubborn", "--run-id", "stubborn") as call:
        call.wait_for("test.started")
        call.process.send_signal(signal.SIGINT)
        call.wait_for("run.stopping")
        call.process.send_signal(signal.SIGINT)
        code, events, _ = call.finish()
    assert code == 130
    assert [event for event in events if event["type"] == "RUN_FINISHED"] == []
    with server.client(headers={"x-session-id": SESSION}) as client:
        eventually(lambda: client.get("/runs/stubborn").json()["status"] == "cancelled", what="the run is stopped")


def test_ctrl_c_leaves_a_run_that_is_only_watched_alone(server: Server) -> None:
    run_command("call", "forever", "--background", "--run-id", "watched")
    with Command("tail", "watched") as tail:
        tail.wait_for("test.started")
        tail.process.send_signal(signal.SIGINT)
        code, events, _ = tail.finish()
    assert (code, events) == (130, [])
    with server.client(headers={"x-session-id": SESSION}) as client:
        assert client.get("/runs/watched").json()["status"] == "running"
    run_command("stop", "watched")


async def test_a_stop_that_comes_before_the_run_is_sent_again_when_the_run_has_started() -> None:
    notes: list[str] = []
    screen = Notes(notes)
    accepted = b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}"
    async with answering(refusal(404, "run_not_found"), accepted) as (url, heads), Target(url).client() as client:
        following = Following(Target(url), client, "r")
        stopper = Stopper(Target(url), client, following, screen)
        stopper.begin()
        async with asyncio.timeout(10):
            await heads.arrived.wait()
            following.started.set()
            await stopper.sent()
    assert [head.split(" HTTP")[0] for head in heads] == ["POST /runs/r/stop"] * 2
    assert notes == ["Stopping… (Ctrl-C again leaves)"]


async def test_a_stop_that_is_refused_says_so() -> None:
    notes: list[str] = []
    async with answering(refusal(403, "bad_origin")) as (url, _), Target(url).client() as client:
        following = Following(Target(url), client, "r")
        following.started.set()
        stopper = Stopper(Target(url), client, following, Notes(notes))
        stopper.begin()
        await stopper.sent()
    assert notes[1:] == ["Stop was refused: bad_origin: No. (403)"]


class Notes(JSONLines):
    """Keeps the notes."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def note(self, text: str) -> None:
        self._notes.append(text)
