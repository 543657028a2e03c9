"""What a person sees of a run, and what a program reads of it.

`JSONLines` writes one event a line to stdout and nothing else there. `LiveScreen`, for a terminal, prints what happens
and keeps a progress bar for each call below it. What tools send is text, never markup, and never a control character:
a terminal would obey it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from gateway.cli.following import Event

__all__ = ["JSONLines", "LiveScreen", "Screen", "open_screen", "printable"]

# C0 and C1 but for tab and newline, and the marks that turn the direction of text.
_UNSAFE = dict.fromkeys(
    (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"
)

_COLOURS = {"completed": "green", "detached": "green", "failed": "red", "cancelled": "yellow", "timeout": "red"}


class Screen(Protocol):
    """Shows the events of a run; a context manager, for a terminal has to be put back in order."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, event: Event) -> None:
        """One event of the run."""

    def note(self, text: str) -> None:
        """Something about the connection or the command itself."""


def open_screen() -> Screen:
    """For what stdout is."""
    return LiveScreen(Console()) if sys.stdout.isatty() else JSONLines()


def printable(text: str) -> str:
    """The text without what a terminal would take for a command."""
    return text.translate(_UNSAFE)


class JSONLines:
    """One JSON object an event on stdout; notes go to stderr."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, event: Event) -> None:
        out = sys.stdout.buffer
        try:
            out.write(event.data + b"\n")
            out.flush()  # whoever reads it wants it now
        except BrokenPipeError:
            raise  # who wanted to read it has left; click ends quietly
        except OSError as error:
            raise click.ClickException(f"Cannot write: {error.strerror}.") from None

    def note(self, text: str) -> None:
        click.echo(text, err=True)


class _Percent(ProgressColumn):
    """Nothing while the total is not known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.percentage:3.0f}%")


class LiveScreen:
    """Lines as they come, a bar for each call below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Percent(),
            TextColumn("{task.fields[message]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}
        self._texts: dict[str, list[str]] = {}
        self._shows: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "RUN_STARTED": lambda event: self._line(f"run {event.get('runId')}", "dim"),
            "RUN_FINISHED": self._finished,
            "RUN_ERROR": lambda event: self._line(f"{event.get('code')}: {event.get('message')}", "red"),
            "TOOL_CALL_START": self._started,
            "TEXT_MESSAGE_CONTENT": self._text,
            "TEXT_MESSAGE_END": self._text_end,
            "CUSTOM": self._custom,
            "tool.progress": self._advance,
            "tool.waiting": lambda value: self._line(f"waits for you: {value.get('message') or 'an answer'}", "cyan"),
            "tool.result": self._result,
            "run.stopping": lambda value: self.note("Stopping…"),
            "gateway.notice": lambda value: self._line(f"{value.get('level')}: {value.get('message')}", "yellow"),
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, event: Event) -> None:
        handler = self._shows.get(str(event.value.get("type")))
        if handler is not None:
            handler(event.value)

    def note(self, text: str) -> None:
        self._line(text, "yellow")

    def _line(self, text: str, style: str = "") -> None:
        if not text:
            return
        self._console.print(Text(printable(text), style=style), soft_wrap=True)

    # -- events --

    def _custom(self, event: Mapping[str, Any]) -> None:
        name, value = str(event.get("name")), event.get("value")
        handler = self._shows.get(name) if "." in name else None
        if handler is not None and isinstance(value, Mapping):
            handler(value)
            return
        if isinstance(value, Mapping):
            value = {key: item for key, item in value.items() if key != "toolCallId"}
        self._console.print(Text.assemble((printable(name), "cyan"), "  ", printable(_json(value))), soft_wrap=True)

    def _bar(self, call_id: Any, name: Any) -> TaskID:
        key = str(call_id)
        if key not in self._bars:
            self._bars[key] = self._progress.add_task(printable(str(name)), total=None, message="")
        return self._bars[key]

    def _started(self, event: Mapping[str, Any]) -> None:
        self._bar(event.get("toolCallId"), event.get("toolCallName"))

    def _advance(self, value: Mapping[str, Any]) -> None:
        percent, done, message = value.get("percent"), value.get("progress"), str(value.get("message") or "")
        if not isinstance(percent, int | float):
            # Without a total the bar cannot tell how much is done, so the number does.
            percent, message = None, f"{done} {message}"
        self._progress.update(
            self._bar(value.get("toolCallId"), value.get("toolName")),
            completed=percent,
            total=None if percent is None else 100,
            message=printable(message).replace("\n", " "),
        )

    def _result(self, value: Mapping[str, Any]) -> None:
        bar = self._bars.pop(str(value.get("toolCallId")), None)
        if bar is not None:
            self._progress.remove_task(bar)
            self._progress.refresh()
        status, took = str(value.get("status")), value.get("durationMs")
        seconds = f" after {took / 1000:.1f} s" if isinstance(took, int | float) else ""
        self._line(f"{value.get('toolName')} {status}{seconds}", _COLOURS.get(status, "yellow"))
        self._line(_result_text(value))

    def _text(self, event: Mapping[str, Any]) -> None:
        self._texts.setdefault(str(event.get("messageId")), []).append(str(event.get("delta")))

    def _text_end(self, event: Mapping[str, Any]) -> None:
        self._line("".join(self._texts.pop(str(event.get("messageId")), [])))

    def _finished(self, event: Mapping[str, Any]) -> None:
        outcome = event.get("outcome")
        if isinstance(outcome, Mapping) and outcome.get("type") == "interrupt":
            self._line("The run waits for an answer and can be resumed.", "cyan")


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _result_text(value: Mapping[str, Any]) -> str:
    """The structured content, indented; without any, or beside an error, the text."""
    structured, content = value.get("structuredContent"), value.get("content")
    if isinstance(structured, Mapping) and not value.get("isError"):
        return _json(structured, indent=2)
    blocks = content if isinstance(content, list) else []
    return "\n".join(
        str(block["text"]) if block.get("type") == "text" and "text" in block else f"[{block.get('type')}]"
        for block in blocks
        if isinstance(block, Mapping)
    )
