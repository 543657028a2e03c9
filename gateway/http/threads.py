"""A conversation as its runs left it: messages, what is at work, what is asked."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request

from gateway.http.engine import Engine
from gateway.http.requests import unknown
from gateway.http.sessions import identify
from gateway.run.fold import MessageFold
from gateway.run.questions import Note
from gateway.run.records import RunRecord
from gateway.wire.codec import decode

__all__ = ["known_thread", "last_interrupts", "messages_of", "runs_of_thread", "thread_view", "ui_messages"]

PAGE = 200

# CUSTOM events are most of a log and none of its messages; skipping them as bytes spares parsing them.
_FRAME = re.compile(rb'^data: (\{(?!"type":"CUSTOM").*\})$', re.MULTILINE)


async def runs_of_thread(engine: Engine, request: Request, thread_id: str) -> list[RunRecord]:
    """The caller's runs of a thread, oldest first; empty for a caller without owner."""
    owner = identify(request).owner
    if owner is None:
        return []
    found: list[RunRecord] = []
    after: str | None = None
    while True:
        page = await engine.store.list_runs(owner, thread_id=thread_id, limit=PAGE, after=after)
        found += page.items
        if page.next is None:
            return found[::-1]
        after = page.next


async def known_thread(engine: Engine, request: Request, thread_id: str) -> list[RunRecord]:
    """The same, but a thread of which the caller has no run is unknown."""
    runs = await runs_of_thread(engine, request, thread_id)
    if not runs:
        raise unknown("thread")
    return runs


async def thread_view(engine: Engine, thread_id: str, runs: list[RunRecord]) -> dict[str, Any]:
    """`{threadId, messages, activeRuns, interrupts}`; what is active is resolved first, so no end can be missed."""
    active = [run.to_wire() for run in runs if not run.over]
    return {
        "threadId": thread_id,
        "messages": await messages_of(engine, runs),
        "activeRuns": active,
        "interrupts": [
            {**asked, "runId": run.key.run_id} for run in runs for asked in await open_interrupts(engine, run)
        ],
    }


async def open_interrupts(engine: Engine, run: RunRecord) -> list[dict[str, Any]]:
    """The AG-UI interrupts of a run that nobody has answered yet."""
    if run.status != "interrupted" or run.outcome is None:
        return []
    unanswered = {question.interrupt_id for question in await engine.store.questions(run.key) if question.open}
    return [asked for asked in run.outcome["interrupts"] if asked["id"] in unanswered]


async def last_interrupts(engine: Engine, runs: list[RunRecord]) -> dict[str, Any] | None:
    """The open interrupts of the newest run that has some, in TanStack's form."""
    for run in reversed(runs):
        if pending := await open_interrupts(engine, run):
            return {"runId": run.key.run_id, "pending": pending}
    return None


async def messages_of(engine: Engine, runs: list[RunRecord]) -> list[dict[str, Any]]:
    """AG-UI messages folded from what the runs were sent and what they emitted so far."""
    fold = MessageFold()
    for run in runs:
        if run.messages is not None:
            history: Any = decode(run.messages)
            fold.add(history)
        async for data in _log_so_far(engine, run):
            events: list[Any] = [decode(match[1]) for match in _FRAME.finditer(data)]
            fold.feed(events)
    if runs and (owner := runs[0].key.owner) is not None:
        # Where a run has told one, it stays; a client may have had it already, to which the telling was added.
        fold.add(note_message(note) for note in await engine.store.notes(owner, runs[0].thread_id))
    return fold.messages


def note_message(note: Note) -> dict[str, Any]:
    """A note about a background job as a message of the conversation."""
    return {"id": note.message_id, "role": "assistant", "content": note.text}


async def _log_so_far(engine: Engine, run: RunRecord) -> Any:
    bounds = await engine.store.bounds(run.key)
    if bounds is None or bounds.first > bounds.last:
        return
    follower = engine.store.follow(run.key, bounds.first - 1)
    async for data in follower:
        yield data
        if follower.cursor >= bounds.last:
            return


def ui_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same in TanStack's form: `{id, role, parts}`, results beside their calls."""
    shown: list[dict[str, Any]] = []
    by_call: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        if message["role"] == "tool":
            part = {"type": "tool-result", "toolCallId": message["toolCallId"], "content": message["content"]}
            part["state"] = "error" if "error" in message else "complete"
            if "error" in message:
                part["error"] = message["error"]
            by_call.get(message["toolCallId"], []).append(part)
        elif message["role"] in ("user", "assistant", "system"):
            parts = _text_parts(message)
            for call in message.get("toolCalls", ()):
                function = call["function"]
                parts.append(
                    {
                        "type": "tool-call",
                        "id": call["id"],
                        "name": function["name"],
                        "arguments": function["arguments"],
                        "state": "input-complete",
                    }
                )
                by_call[call["id"]] = parts
            shown.append({"id": message["id"], "role": message["role"], "parts": parts})
    return shown


def _text_parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    return [{"type": "text", "content": part["text"]} if part.get("type") == "text" else part for part in content or ()]
