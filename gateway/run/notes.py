"""What the gateway adds to the messages that an agent is sent: notes of background jobs, results of resumed calls.

Pure. Models take no message between a call and its results, so both look for the exchanges: an assistant message with
calls, and the tool messages that answer them. Contract 5.4 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from ag_ui.core import AssistantMessage, FunctionCall, Message, ToolCall, ToolMessage

from gateway.run.questions import Note

__all__ = ["tool_call", "with_notes", "with_result"]


def with_notes(messages: Sequence[Message], notes: Sequence[Note]) -> list[Message]:
    """The messages with the notes that they do not have yet, as messages of the assistant, in one place.

    Before the trailing user message, else after the last complete tool exchange; where there is neither, before the
    calls that wait for an answer, else at the end.
    """
    held = {message.id for message in messages}
    told = [
        AssistantMessage(id=note.message_id, role="assistant", content=note.text)
        for note in notes
        if note.message_id not in held
    ]
    place = _place_of_notes(messages)
    return [*messages[:place], *told, *messages[place:]]


def with_result(messages: Sequence[Message], call: ToolCall, result: ToolMessage) -> list[Message]:
    """The messages with the result of a call behind it and the results that are there; with the call, if it is not."""
    place = next((i + 1 for i in range(len(messages) - 1, -1, -1) if call.id in _calls(messages[i])), None)
    if place is None:
        return [*messages, AssistantMessage(id=call.id, role="assistant", tool_calls=[call]), result]
    while place < len(messages) and messages[place].role == "tool":
        place += 1
    return [*messages[:place], result, *messages[place:]]


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """A call as a message holds it; `arguments` is JSON text."""
    return ToolCall(id=call_id, type="function", function=FunctionCall(name=name, arguments=arguments))


def _place_of_notes(messages: Sequence[Message]) -> int:
    if messages and messages[-1].role == "user":
        return len(messages) - 1
    exchanges = [(index, _end_of_exchange(messages, index)) for index, item in enumerate(messages) if _calls(item)]
    if complete := [end for _, end in exchanges if end is not None]:
        return max(complete)
    return exchanges[0][0] if exchanges else len(messages)


def _end_of_exchange(messages: Sequence[Message], index: int) -> int | None:
    """Behind the last result of the calls of a message; None while one of them has no result."""
    waiting = set(_calls(messages[index]))
    for place in range(index + 1, len(messages)):
        message = messages[place]
        if isinstance(message, ToolMessage):
            waiting.discard(message.tool_call_id)
            if not waiting:
                return place + 1
    return None


def _calls(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls or ()] if isinstance(message, AssistantMessage) else []
