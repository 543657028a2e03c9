"""Whatever an agent sends, its run is one that every client takes: cut anywhere, byte by byte, garbage, all at once."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from tests.execution.running import check_order, parse
from tests.http.asking import agent_body
from tests.http.site import ME, serving
from tests.upstream.backend import Answer, Asked, answering
from tests.upstream.test_relay import USER

# One event of nearly every kind, as a backend of its own may write them.
RECORDED: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "STEP_STARTED", "stepName": "think"},
    {"type": "REASONING_START", "messageId": "r1"},
    {"type": "REASONING_MESSAGE_START", "messageId": "r1", "role": "reasoning"},
    {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "hm — \u2028 so"},
    {"type": "REASONING_MESSAGE_END", "messageId": "r1"},
    {"type": "REASONING_END", "messageId": "r1"},
    {"type": "STEP_FINISHED", "stepName": "think"},
    {"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "helper"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant", "subagentRunId": "s1"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "é𝄞", "subagentRunId": "s1"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "both"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m1", "subagentRunId": "s1"},
    {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "look", "parentMessageId": "m2"},
    {"type": "TOOL_CALL_START", "toolCallId": "c2", "toolCallName": "look", "parentMessageId": "m2"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"at":'},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c2", "delta": "{}"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "1}"},
    {"type": "TOOL_CALL_END", "toolCallId": "c1"},
    {"type": "TOOL_CALL_END", "toolCallId": "c2"},
    {"type": "TOOL_CALL_RESULT", "messageId": "c1:r", "toolCallId": "c1", "content": "seen"},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s1"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"a": [1, 2.5, None]}},
    {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a/0", "value": 2}]},
    {"type": "ACTIVITY_SNAPSHOT", "messageId": "a1", "activityType": "plan", "content": {"steps": 2}},
    {"type": "CUSTOM", "name": "x.y", "value": {"deep": [{"er": [[]]}]}},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m3", "role": "assistant", "delta": "chunk"},
    {"type": "TEXT_MESSAGE_CHUNK", "delta": "ed"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m2"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]
STREAM = b": hello\n\n" + b"".join(
    b"id: %d\ndata: %b\n\n" % (number, json.dumps(event, ensure_ascii=False).encode())
    for number, event in enumerate(RECORDED)
)
EVERY = 29  # bytes: every one of them would take a minute; the decoder itself is tested with every cut


async def ends_of(answers: dict[str, list[bytes]]) -> dict[str, dict[str, Any]]:
    """The last event of each run whose agent answers with these chunks; every stream is a valid one."""

    async def script(asked: Asked, answer: Answer) -> None:
        for chunk in answers[asked.body["runId"]]:
            if chunk:
                await answer.send(chunk)

    at_a_time = asyncio.Semaphore(40)
    async with answering(script) as backend, serving(agents={"support": backend.url}) as site:

        async def one(run_id: str) -> dict[str, Any]:
            async with at_a_time:
                body = agent_body(USER, runId=run_id, threadId=run_id)
                done = await site.client.post("/agents/support", json=body, headers=ME)
                return check_order(parse(done.content), typed=False)[-1]  # unknown types pass

        return dict(zip(answers, await asyncio.gather(*map(one, answers)), strict=True))


async def test_a_stream_that_is_cut_anywhere_is_a_failed_run_and_never_a_success() -> None:
    cuts = range(0, len(STREAM) - 3, EVERY)  # a whole event counts without the blank line behind it
    ends = await ends_of({f"cut {cut}": [STREAM[:cut]] for cut in cuts} | {"whole": [STREAM]})
    assert ends.pop("whole")["type"] == "RUN_FINISHED"
    assert len(ends) > 80
    assert {end.get("code") for end in ends.values()} <= {"upstream_invalid", "upstream_disconnected"}


async def test_a_stream_that_comes_byte_by_byte_is_the_same_stream() -> None:
    pieces = [STREAM[at : at + 1] for at in range(len(STREAM))]
    for ending in (b"\r\n", b"\r"):
        pieces_so = [piece.replace(b"\n", ending) for piece in pieces]
        ends = await ends_of({"r": pieces_so})
        assert ends["r"]["type"] == "RUN_FINISHED"


async def test_garbage_is_an_invalid_answer_or_passed_over() -> None:
    chance = random.Random(7)
    answers = {}
    for number in range(80):
        damaged = bytearray(STREAM)
        for _ in range(chance.choice([1, 5, 50, 2000])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        answers[f"damaged {number}"] = [bytes(damaged)]
        answers[f"noise {number}"] = [chance.randbytes(chance.randrange(2000))]
    ends = await ends_of(answers)
    assert {end["type"] for end in ends.values()} <= {"RUN_FINISHED", "RUN_ERROR"}
    assert {end.get("code") for name, end in ends.items() if name.startswith("noise")} == {"upstream_invalid"}


async def test_events_in_any_order_are_a_valid_run() -> None:
    chance = random.Random(11)
    answers = {}
    for number in range(80):
        events = [event for event in RECORDED for _ in range(chance.choice([0, 1, 1, 2]))]
        chance.shuffle(events)
        answers[f"shuffled {number}"] = [b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)]
    ends = await ends_of(answers)
    assert {end["type"] for end in ends.values()} == {"RUN_FINISHED", "RUN_ERROR"}
