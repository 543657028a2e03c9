"""What a person sees: progress, events as they come, the result, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gateway.cli.following import Event
from gateway.cli.screens import LiveScreen, printable
from tests.cli.commands import SESSION, run_command
from tests.cli.terminals import Terminal
from tests.support.servers import Serve, Server

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve("serve", "tests.cli.tools_app:gateway", "--stop-grace", "2")


@pytest.fixture
def environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGUI_GATEWAY_URL", server.url)
    monkeypatch.setenv("AGUI_GATEWAY_SESSION", SESSION)


def shown(*values: dict[str, Any]) -> str:
    """What these events leave on a screen that is no terminal, so that nothing is drawn over."""
    out = io.StringIO()
    with LiveScreen(Console(file=out, width=200)) as screen:
        for value in values:
            screen.show(Event(json.dumps(value).encode(), value))
    return out.getvalue()


@pytest.mark.usefixtures("environment")
def test_a_call_at_a_terminal_shows_its_events_and_its_result() -> None:
    with Terminal("call", "echo", '{"value": "[red]\\u001b[2J"}') as terminal:
        assert terminal.finish() == 0
    assert "test.step  " in terminal.text
    assert "echo completed after " in terminal.text
    assert '"value": "[red]\\u001b[2J"' in terminal.text
    assert "\x1b[2J" not in terminal.raw
    assert "\x1b[31m[bold]" not in terminal.raw
    assert '"type"' not in terminal.text
    assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(HIDE_CURSOR)


@pytest.mark.usefixtures("environment")
def test_ctrl_c_beside_the_progress_bar_says_stopping_and_shows_how_the_call_ended() -> None:
    with Terminal("call", "forever") as terminal:
        terminal.wait_for(" 50% waiting")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "Stopping… (Ctrl-C again leaves)" in terminal.text
    assert "forever cancelled after " in terminal.text
    assert "Error [cancelled]: Cancelled by the user." in terminal.text


@pytest.mark.usefixtures("environment")
def test_a_second_ctrl_c_gives_the_terminal_back_at_once() -> None:
    with Terminal("call", "stubborn") as terminal:
        terminal.wait_for("test.started")
        terminal.type("\x03")
        terminal.wait_for("Stopping…")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "cancelled after" not in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(HIDE_CURSOR)


@pytest.mark.usefixtures("environment")
def test_runs_at_a_terminal_are_a_table() -> None:
    run_command("call", "fail", "--run-id", "a-run-of-the-table", "--thread", "table")
    with Terminal("runs", "--thread", "table") as terminal:
        assert terminal.finish() == 0
    header, row = (line.split() for line in terminal.text.splitlines() if line.strip())
    assert header == ["RUN", "CALLS", "STATUS", "STARTED", "SECONDS", "EVENTS", "THREAD"]
    assert row[:4] == ["a-run-of-the-table", "fail", "failed", "completed"]


def test_a_failure_of_the_run_is_shown_with_its_code() -> None:
    assert "interrupted: Ended." in shown({"type": "RUN_ERROR", "code": "interrupted", "message": "Ended."})


def test_text_of_an_agent_is_shown_when_it_is_whole() -> None:
    parts = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": part} for part in ("Hel", "lo")]
    assert "Hello" in shown(*parts, {"type": "TEXT_MESSAGE_END", "messageId": "m"})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("gateway.notice", {"level": "warning", "message": "trimmed"}, "warning: trimmed"),
        ("tool.waiting", {"message": "Really?"}, "waits for you: Really?"),
        ("run.stopping", {"reason": "user"}, "Stopping…"),
        ("tool.output", {"output": {"part": 1}, "toolCallId": "c"}, 'tool.output  {"output": {"part": 1}}'),
        ("CUSTOM", {"a": 1}, 'CUSTOM  {"a": 1}'),
        ("any", None, "any  null"),
        (
            "tool.result",
            {"toolName": "t", "status": "failed", "isError": True, "content": [{"type": "text", "text": "Error: x"}]},
            "t failed\nError: x",
        ),
        (
            "tool.result",
            {"toolName": "t", "status": "completed", "durationMs": 1500, "content": [{"type": "image"}, 1]},
            "t completed after 1.5 s\n[image]",
        ),
    ],
)
def test_a_custom_event_is_shown(name: str, value: object, expected: str) -> None:
    assert expected in shown({"type": "CUSTOM", "name": name, "value": value})


def test_progress_without_a_total_shows_how_far_it_is() -> None:
    progress = {"toolCallId": "c", "toolName": "count", "progress": 7, "message": "lines\nread"}
    text = shown({"type": "CUSTOM", "name": "tool.progress", "value": progress})
    assert "count" in text
    assert "7 lines read" in text
    assert "%" not in text


@given(
    st.dictionaries(st.sampled_from(["type", "name", "value", "outcome", "messageId", "delta"]), st.none() | st.text())
)
def test_no_event_is_too_odd_to_be_shown(event: dict[str, Any]) -> None:
    text = shown(event, {**event, "type": "CUSTOM", "name": "tool.progress", "value": event})
    assert "\x1b" not in text


@given(st.text())
def test_what_is_printed_holds_no_control_character(text: str) -> None:
    cleaned = printable(text)
    assert len(cleaned) == len(text)
    assert [char for char in cleaned if char not in "\t\n" and (ord(char) < 32 or 127 <= ord(char) < 160)] == []
