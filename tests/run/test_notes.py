"""Where notes and results stand among the messages that an agent is sent: models take them only in certain places."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui.core import AssistantMessage, Message, ToolMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.run.notes import tool_call, with_notes, with_result
from gateway.run.questions import Note

MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


def note(call_id: str, text: str = "ended") -> Note:
    return Note(f"job-{call_id}", call_id, text, 1.0)


def history(*said: str) -> list[Message]:
    """Messages by letters: `u` a user's, `s` the system's, `a` an assistant's text, `c1,c2` its calls, `=c1` a result,
    `n1` the note of job 1."""
    made: list[dict[str, Any]] = []
    for number, word in enumerate(said):
        message: dict[str, Any] = {"id": f"m{number}", "content": word}
        if word[0] == "c":
            calls = [tool_call(name, "tool", "{}").model_dump(by_alias=True) for name in word.split(",")]
            message |= {"role": "assistant", "toolCalls": calls}
        elif word[0] == "=":
            message |= {"role": "tool", "toolCallId": word[1:]}
        elif word[0] == "n":
            message |= {"role": "assistant", "id": f"{word[1:]}:note"}
        else:
            message["role"] = {"u": "user", "s": "system", "a": "assistant"}[word[0]]
        made.append(message)
    return MESSAGES.validate_python(made)


def words(messages: list[Message]) -> list[str]:
    return [f"n{message.id[:-5]}" if message.id.endswith(":note") else str(message.content) for message in messages]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "n1"),
        ("u", "n1 u"),
        ("s u a u", "s u a n1 u"),
        ("u u", "u n1 u"),
        ("u c1 =c1 u", "u c1 =c1 n1 u"),
        ("u c1 =c1", "u c1 =c1 n1"),
        ("u c1,c2 =c2 =c1", "u c1,c2 =c2 =c1 n1"),
        ("u c1 =c1 a", "u c1 =c1 n1 a"),
        ("u c1 =c1 c2", "u c1 =c1 n1 c2"),
        ("u c1 =c1 c2,c3 =c3", "u c1 =c1 n1 c2,c3 =c3"),
        ("u c1", "u n1 c1"),
        ("u c1,c2 =c2", "u n1 c1,c2 =c2"),
        ("u a", "u a n1"),
        ("s", "s n1"),
        ("u n1 a u", "u n1 a u"),
        ("n1 u", "n1 u"),
    ],
)
def test_a_note_stands_before_the_last_user_message_else_behind_the_last_complete_exchange(
    before: str, after: str
) -> None:
    assert words(with_notes(history(*before.split()), [note("1")])) == after.split()


def test_several_notes_stand_together_in_their_order_and_a_known_one_stays_where_it_is() -> None:
    messages = with_notes(history("u", "n2", "a", "u"), [note("1"), note("2"), note("3")])
    assert words(messages) == ["u", "n2", "a", "n1", "n3", "u"]


def test_a_note_is_a_message_of_the_assistant_with_the_text_of_the_note() -> None:
    (message,) = with_notes([], [note("call-1", "Background job call-1 ended.\n42")])
    assert isinstance(message, AssistantMessage)
    assert message.model_dump(by_alias=True) == {
        "id": "call-1:note",
        "role": "assistant",
        "content": "Background job call-1 ended.\n42",
    }


letters = st.sampled_from(["u", "s", "a", "c1", "c2,c3", "=c1", "=c2", "=c3", "n1"])
notes = st.lists(st.sampled_from(["1", "2", "3"]), unique=True).map(lambda ids: [note(name) for name in ids])


def ends(messages: list[Message]) -> list[int]:
    """Where complete exchanges end: behind the last result."""
    found = []
    for start, message in enumerate(messages):
        waiting = {call.id for call in message.tool_calls or ()} if isinstance(message, AssistantMessage) else set()
        for end in range(start + 1, len(messages) if waiting else 0):
            if isinstance(answer := messages[end], ToolMessage):
                waiting.discard(answer.tool_call_id)
                if not waiting:
                    found.append(end + 1)
                    break
    return found


@given(st.lists(letters, max_size=12), notes)
def test_nothing_is_lost_and_what_was_added_once_is_not_added_again(said: list[str], told: list[Note]) -> None:
    messages = history(*said)
    result = with_notes(messages, told)
    held = {message.id for message in messages}
    fresh = [item.message_id for item in told if item.message_id not in held]
    assert [message for message in result if message.id not in fresh] == messages
    assert [message.id for message in result if message.id in fresh] == fresh
    assert with_notes(result, told) == result
    assert MESSAGES.validate_python([message.model_dump(by_alias=True) for message in result]) == result


@given(st.lists(letters, max_size=12))
def test_no_note_comes_between_a_call_and_the_results_that_it_has(said: list[str]) -> None:
    messages = history(*said)
    result = with_notes(messages, [note("9")])
    place = next(index for index, message in enumerate(result) if message.id == "9:note")
    asked = [i for i, item in enumerate(messages) if isinstance(item, AssistantMessage) and item.tool_calls]
    if messages and messages[-1].role == "user":
        assert place == len(messages) - 1
    elif complete := ends(messages):
        assert place == max(complete)
    else:
        assert place == (asked[0] if asked else len(messages))


# -- results --


def answer(call_id: str) -> ToolMessage:
    return ToolMessage(id=f"{call_id}:result", role="tool", content=f"={call_id}", tool_call_id=call_id)


@pytest.mark.parametrize(
    ("before", "call", "after"),
    [
        ("u c1", "c1", "u c1 =c1"),
        ("u c1,c2 =c1", "c2", "u c1,c2 =c1 =c2"),
        ("u c1 u", "c1", "u c1 =c1 u"),
        ("u c1 n1 u", "c1", "u c1 =c1 n1 u"),
    ],
)
def test_a_result_stands_behind_its_call_and_the_results_that_are_there(before: str, call: str, after: str) -> None:
    known = tool_call(call, "tool", "{}")
    assert words(with_result(history(*before.split()), known, answer(call))) == after.split()


def test_a_call_that_the_client_has_forgotten_comes_with_its_result() -> None:
    messages = with_result(history("u"), tool_call("c1", "tool", '{"a":1}'), answer("c1"))
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    asked = messages[1]
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls is not None
    assert (asked.id, asked.tool_calls[0].function.arguments) == ("c1", '{"a":1}')
