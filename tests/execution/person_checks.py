"""What must hold of every schedule of `test_person_schedules`, whatever happened in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from gateway.execution.executor import AT_ONCE, SHUTDOWN_GRACE
from gateway.run.questions import APPROVAL_KEY
from gateway.run.records import RunKey, RunRecord
from gateway.wire.inputs import ResumeEntry
from tests.execution.person_acts import Given, Resumption, Seen, World
from tests.execution.person_tools import PAGES, Life, Mark
from tests.execution.running import check_order

__all__ = ["check"]

SLACK = 1e-6


class Log:
    """The stream of one run, looked up in the ways that the checks need."""

    def __init__(self, world: World, key: RunKey, seen: Seen, record: RunRecord) -> None:
        self.key = key
        self.record = record
        self.seen = seen
        self.events = [event for _, _, event in seen]
        self.terminal = self.events[-1]
        self.plan = world.plans.get(key)
        self.calls: dict[str, list[tuple[float, int, dict[str, Any]]]] = defaultdict(list)
        self.results: dict[str, tuple[float, int, dict[str, Any]]] = {}
        self.stopping: tuple[float, str] | None = None
        for when, number, event in seen:
            if (call_id := call_of(event)) is not None:
                self.calls[call_id].append((when, number, event))
            if event.get("name") == "tool.result":
                self.results[event["value"]["toolCallId"]] = (when, number, event["value"])
            if event.get("name") == "run.stopping":
                assert self.stopping is None
                self.stopping = (when, event["value"]["reason"])
        outcome = self.terminal.get("outcome") or {}
        self.parked = {item["toolCallId"]: item for item in outcome.get("interrupts", ())}

    @property
    def begun(self) -> float:
        return self.seen[0][0]

    @property
    def ended(self) -> float:
        return self.seen[-1][0]

    def end_of(self, call_id: str) -> int:
        """After this event nothing of the call goes out."""
        return self.results[call_id][1] if call_id in self.results else len(self.seen)

    def when(self, call_id: str, name: str) -> float | None:
        """When the call, or one inside it, first had such an event."""
        return next(
            (
                when
                for when, _, event in self.seen
                if event.get("name") == name and event["value"]["toolCallId"].split("/")[0] == call_id
            ),
            None,
        )


def call_of(event: Mapping[str, Any]) -> str | None:
    found = (event["value"] if event["type"] == "CUSTOM" else event).get("toolCallId")
    return None if found is None else str(found)


async def check(world: World) -> None:
    logs: dict[RunKey, Log] = {}
    assert set(world.store._runs) == set(world.keys), "a run that nobody heard of"
    for key in world.keys:
        record = await world.store.get(key)
        assert record is not None
        logs[key] = Log(world, key, world.logs[key], record)
    for log in logs.values():
        check_stream(world, log)
        check_claims(world, log)
        check_record(log)
        check_calls(world, log)
        check_clock(world, log)
        check_viewers(world, log)
    check_marks(world, logs)
    check_reports(world, logs)
    check_answers(world, logs)
    check_lives(world, logs)
    for resumption in world.resumptions:
        check_resumption(world, resumption)
    for log in logs.values():
        for call_id in log.results:
            check_result(world, log, call_id)
    check_jobs(world, logs)
    check_interrupts(world, logs)


# -- one stream --


def check_stream(world: World, log: Log) -> None:
    numbered = [(number, event) for _, number, event in log.seen]
    check_order(numbered, typed=world.schedule.number % 16 == 0)
    assert log.record.last_event_id == len(numbered)
    background = log.record.background
    for call_id, seen in log.calls.items():
        events = [event for _, _, event in seen]
        types = [event["type"] for event in events]
        names = [event["name"] for event in events if event["type"] == "CUSTOM"]
        if "/" in call_id or background:
            assert set(types) <= {"CUSTOM"}, (call_id, types)
            own = [event for event in events if event["name"].startswith("tool.")]
            for event in own:
                parent = event.get("metadata", {}).get("parentToolCallId")
                assert parent == (call_id.rpartition("/")[0] or None), event
        else:
            held = [] if types[1] == "TOOL_CALL_END" else ["TOOL_CALL_ARGS"]
            head = ["TOOL_CALL_START", *held, "TOOL_CALL_END"]
            tail = [] if call_id in log.parked else ["TOOL_CALL_RESULT"]
            middle = len(types) - len(head) - len(tail)
            assert types == [*head, *["CUSTOM"] * middle, *tail], (call_id, types)
            assert bool(held) is log.key.run_id.startswith("run-")
            if call_id in log.parked:
                assert "tool.result" not in names
            else:
                result, told = events[-1], events[-2]["value"]
                assert result["messageId"] == f"{call_id}:result"
                assert ("Error [" in result["content"]) is told["isError"]
        assert [name for name in names if name == "tool.result"] == names[-1:] * ("tool.result" in names), call_id
        if "tool.detached" in names:
            assert names[names.index("tool.detached") :] == ["tool.detached", "tool.result"], (call_id, names)
        check_waits(call_id, events, over=names[-1:] == ["tool.result"] and "tool.detached" not in names)


def check_waits(call_id: str, events: list[dict[str, Any]], *, over: bool) -> None:
    """No question is asked twice, none is taken back that was not asked, and none stays when the call is over."""
    asked: list[str] = []
    waits = 0
    for event in events:
        name = event.get("name")
        if name not in ("tool.waiting", "tool.resumed"):
            continue
        interrupt_id = event["value"].get("interruptId")
        step = 1 if name == "tool.waiting" else -1
        if interrupt_id is None:
            waits += step
            assert waits >= 0
        elif name == "tool.waiting":
            assert interrupt_id not in asked, f"{interrupt_id} of {call_id} is asked twice"
            asked.append(interrupt_id)
        else:
            assert interrupt_id in asked
            asked.remove(interrupt_id)
            asked.append(f"{interrupt_id} was asked")
    assert not over or (not waits and all(item.endswith(" was asked") for item in asked)), (call_id, waits, asked)


def check_record(log: Log) -> None:
    record, terminal = log.record, log.terminal
    assert record.over
    status = {"success": "completed", "cancelled": "cancelled", "interrupt": "interrupted"}
    if terminal["type"] == "RUN_ERROR":
        assert record.status == "failed"
        assert record.error == {"code": terminal["code"], "message": terminal["message"]}
    elif record.status == "cancelled" and terminal["outcome"]["type"] == "interrupt":
        assert record.outcome == {"type": "cancelled"}  # stopped afterwards
    else:
        assert record.outcome == terminal["outcome"]
        assert record.status == status[terminal["outcome"]["type"]]
    reasons = {"user": "cancelled", None: ("completed", "interrupted", "cancelled")}
    reason = None if log.stopping is None else log.stopping[1]
    if reason is None and terminal.get("code") == "run_timeout":
        reason = "run_timeout"  # nothing was left to stop, but its context was still at it
    ended = "cancelled" if terminal.get("outcome", {}).get("type") == "cancelled" else record.status
    assert ended in reasons.get(reason, ("failed",)), (ended, reason)
    assert reason is not None or terminal.get("outcome", {}).get("type") != "cancelled"
    for call in record.calls:
        assert not call.open, call
        if call.call_id in log.parked:
            assert call.status == record.status  # `cancelled` when the run was stopped afterwards
        else:
            assert call.status == log.results[call.call_id][2]["status"], call
        assert call.ended_at is not None
        detached = [event["value"]["runId"] for event in log.events if is_detached(event, call.call_id)]
        assert detached == ([] if call.detached_run_id is None else [call.detached_run_id])
    told = {call_id for call_id in log.calls if "/" not in call_id}
    assert {call.call_id for call in record.calls} == told | {c.call_id for c in record.calls if c.started_at is None}


def is_detached(event: Mapping[str, Any], call_id: str) -> bool:
    return event.get("name") == "tool.detached" and event["value"]["toolCallId"] == call_id


# -- times --


def check_calls(world: World, log: Log) -> None:
    """Stop and time limits are kept."""
    grace = world.settings.stop_grace
    if log.stopping is not None:
        at, reason = log.stopping
        most = 2 * SHUTDOWN_GRACE + 0.25 if reason == "shutdown" else grace
        assert log.ended <= at + most + world.schedule.context + SLACK, (
            f"{log.key} ended {log.ended - at} s after its Stop"
        )
    for at, key, call_id in world.stops:
        if key == log.key and call_id is not None and call_id in log.results:
            when, at = (
                log.results[call_id][0],
                max(at, log.calls[call_id][0][0]),
            )  # one that waits for others gets its turn
            assert when <= at + grace + AT_ONCE + SLACK, f"{call_id} ended {when - at} s after its Stop"
    if log.plan is None:
        return
    for number, planned in enumerate(log.plan.calls):
        call_id = f"call-{number}"
        if planned.limit and call_id in log.results:
            check_limit(world, log, call_id, planned.limit)


def check_limit(world: World, log: Log, call_id: str, limit: float) -> None:
    began, (ended, _, value) = log.calls[call_id][0][0], log.results[call_id]
    due = began + limit
    waited = log.when(call_id, "tool.waiting")
    if value["status"] in ("timeout", "unavailable"):
        assert due - SLACK <= ended <= due + AT_ONCE + SLACK
        assert waited is None or waited >= due - SLACK, f"{call_id} had waited for the person"
    elif ended > due + AT_ONCE + SLACK:
        moved = log.when(call_id, "tool.detached")
        stops = [at for at, key, stopped in world.stops if key == log.key and stopped in (None, call_id)]
        others = [at for at in (waited, moved, *stops, log.stopping and log.stopping[0]) if at is not None]
        lives = [life for life in world.lives if life.run_id == log.key.run_id and life.call_id == call_id]
        if not lives and log.plan is not None and log.plan.channel != "open":
            return  # it has asked for an approval, and the run was stopped before it ended with that
        assert min(others, default=ended) <= due + SLACK or any(life.at <= due or life.gave_up for life in lives), (
            f"{call_id} had {limit} s and took {ended - began} s"
        )


def check_claims(world: World, log: Log) -> None:
    """A page that is not heard of in time has lost its call."""
    for (key, call_id), at in world.renewed.items():
        if key == log.key:
            ended = log.results[call_id][0]
            assert ended <= at + world.settings.page_claim + world.schedule.delay + SLACK, f"{call_id} ended at {ended}"


def check_clock(world: World, log: Log) -> None:
    """The run's own limit, which stands still while a call waits for the person."""
    limit = world.schedule.run_timeout
    end = log.ended if log.stopping is None else log.stopping[0]
    ran, since = 0.0, log.begun
    waits: set[tuple[str, str | None, int]] = set()
    plain: dict[str, int] = defaultdict(int)
    for when, _, event in log.seen:
        if when > end:
            break
        before = bool(waits)
        name = event.get("name")
        if name in ("tool.waiting", "tool.resumed"):
            call_id, asked = event["value"]["toolCallId"], event["value"].get("interruptId")
            if name == "tool.waiting":
                plain[call_id] += asked is None
                waits.add((call_id, asked, plain[call_id] if asked is None else 0))
            else:
                waits.discard((call_id, asked, plain[call_id] if asked is None else 0))
                plain[call_id] -= asked is None
        elif name == "tool.result":
            waits = {wait for wait in waits if wait[0] != event["value"]["toolCallId"]}
        elif name == "tool.detached":
            waits = {wait for wait in waits if wait[0].split("/")[0] != event["value"]["toolCallId"]}
        if bool(waits) and not before:
            ran += when - since
        elif before and not waits:
            since = when
    if not waits:
        ran += end - since
    if log.stopping is not None and log.stopping[1] == "run_timeout":
        assert limit
        assert abs(ran - limit) < 1e-3, f"{log.key} was stopped after {ran} s"
    elif limit:
        assert ran <= limit + 1e-3, f"{log.key} had {limit} s and took {ran} s"


def check_viewers(world: World, log: Log) -> None:
    mine = [viewer for viewer in world.viewers if viewer.key == log.key]
    for viewer in mine:
        numbers = viewer.numbers
        assert numbers == list(range(viewer.cursor + 1, viewer.cursor + 1 + len(numbers)))
        assert viewer.left is not None
        if viewer.left >= log.ended + SLACK:
            assert viewer.cursor + len(numbers) == len(log.seen)
    if log.record.background:
        assert log.stopping is None or log.stopping[1] != "disconnect"
        return
    assert log.plan is not None
    until = log.ended - SLACK if log.stopping is None else log.stopping[0] + SLACK
    away = [viewer.left for viewer in mine if viewer.left is not None and viewer.left < until]
    # From when to when nobody was there, after somebody had been. Who comes in that moment may come before or after.
    alone = []
    for left in away:
        if not any(viewer.joined < left and (viewer.left or 0) > left for viewer in mine):
            back = min((viewer.joined for viewer in mine if viewer.joined >= left), default=log.ended)
            alone.append((left, back))
    if log.stopping is not None and log.stopping[1] == "disconnect":
        assert log.plan.on_disconnect == "cancel"
        assert any(abs(left + log.plan.grace - log.stopping[0]) < SLACK for left, _ in alone)
    elif log.plan.on_disconnect == "cancel" and log.stopping is None:
        last = max((when for when, _, _ in log.results.values()), default=0.0)
        for left, back in alone:
            assert min(back, last) <= left + log.plan.grace + SLACK, f"nobody watched {log.key} from {left}"


# -- what tools emit --


def check_marks(world: World, logs: Mapping[RunKey, Log]) -> None:
    """Each event that a tool emitted before the end of its call is in one log, once, and in order."""
    places: dict[int, list[tuple[RunKey, int, str]]] = defaultdict(list)
    orders: dict[tuple[RunKey, str], list[int]] = defaultdict(list)
    for key, log in logs.items():
        for _, position, event in log.seen:
            if event.get("name") in ("mark", "tool.output"):
                value = event["value"]
                found = value["output"] if event["name"] == "tool.output" else value
                if "n" in found:
                    places[found["n"]].append((key, position, value["toolCallId"]))
                    orders[key, value["toolCallId"]].append(found["n"])
    for order in orders.values():
        assert order == sorted(order), order
    for mark in world.marks:
        found_at = places.pop(mark.number, [])
        log = logs[RunKey(world.schedule.owner, mark.run_id)]
        if found_at:
            assert len(found_at) == 1, f"{mark} is there {len(found_at)} times"
            key, position, call_id = found_at[0]
            assert (key, call_id) == (log.key, mark.call_id), f"{mark} is in {key}"
            assert mark.last < position <= log.end_of(call_id), f"{mark} is event {position}"
        else:
            assert is_late(world, log, mark), f"{mark} was lost"
    assert not places


def is_late(world: World, log: Log, mark: Mark) -> bool:
    """Whether it was emitted after the end of its call, which an interrupt is, too."""
    here = [life for life in world.lives if (life.run_id, life.call_id) == (mark.run_id, mark.call_id)]
    parked = mark.body_ended and any(life.ended in ("Interrupt", "BaseExceptionGroup") for life in here)
    return log.end_of(mark.call_id) <= mark.last or parked


def check_reports(world: World, logs: Mapping[RunKey, Log]) -> None:
    """Progress never goes back, and the last report before the end of a call is in its stream."""
    told: dict[tuple[RunKey, str], list[int]] = defaultdict(list)
    for key, log in logs.items():
        for _, _, event in log.seen:
            if event.get("name") == "tool.progress":
                told[key, event["value"]["toolCallId"]].append(event["value"]["progress"])
    for values in told.values():
        assert values == sorted(set(values))
    made: dict[tuple[RunKey, str], list[int]] = defaultdict(list)
    for report in world.reports:
        log = logs[RunKey(world.schedule.owner, report.run_id)]
        heard = report.call_id in log.results or "/" not in report.call_id  # others may outlive their run
        if heard and not is_late(world, log, report):
            made[log.key, report.call_id].append(report.number)
    for place, numbers in made.items():
        assert max(told[place], default=0) >= numbers[-1], f"{place} reported {numbers} and told {told[place]}"


# -- people --


def check_answers(world: World, logs: Mapping[RunKey, Log]) -> None:
    """Each answer that was accepted is the one that its tool got, then and there; none comes after Stop."""
    by_message = {f"q{asked.number}": asked for asked in world.asked.values()}
    accepted: set[str] = set()
    for given in world.given:
        assert given.interrupt_id not in accepted, f"{given} is the second answer"
        accepted.add(given.interrupt_id)
        log = logs[given.key]
        assert log.stopping is None or given.at <= log.stopping[0] + SLACK, f"{given} came after Stop"
        assert given.at <= log.ended + SLACK
        top = given.question.call_id.split("/")[0]
        for at, key, call_id in world.stops:
            if key == given.key and call_id == top and (given.key, top) not in world.detached:
                assert given.at <= at + SLACK or log.results.get(top, (0.0,))[0] < at, f"{given} came after Stop"
        if given.question.key == APPROVAL_KEY:
            continue
        asked = by_message[given.question.message or ""]
        assert abs(asked.at - given.at) < SLACK, f"{given} was seen at {asked.at}: {asked}"
        if asked.ended == "answered":
            assert asked.got is not None
            assert (asked.got.status, asked.got.payload) == heard(given), (given, asked)
        else:
            assert asked.ended in ("AbortError", "CancelledError"), asked
            world.happened["answer not heard"] += 1
    answered = {given.question.message for given in world.given}
    for asked in world.asked.values():
        assert asked.ended is not None, f"{asked} waits for ever"
        assert asked.ended != "answered" or f"q{asked.number}" in answered, f"{asked} has an answer that nobody gave"


def check_interrupts(world: World, logs: Mapping[RunKey, Log]) -> None:
    """Of the questions only those of interrupted runs that nobody resumed are open."""
    for key, log in logs.items():
        asked = world.store._questions.get(key, {})
        for question in asked.values():
            resumable = question.kind == "interrupt" and log.record.status == "interrupted"
            assert not question.open or resumable, f"{question} of {key} is open, which is {log.record.status}"
        approvals = [q.call_id for q in asked.values() if q.kind == "open" and q.key == APPROVAL_KEY]
        assert len(approvals) == len(set(approvals)), f"{key} asked for an approval twice: {approvals}"
        kept = {question.interrupt_id for question in asked.values() if question.kind == "interrupt"}
        assert kept >= {item["id"] for item in log.parked.values()}
        resumed = [r for r in world.resumptions if r.of == key and r.given]
        assert len(resumed) <= 1, f"{key} was resumed by {resumed}"


def check_lives(world: World, logs: Mapping[RunKey, Log]) -> None:
    """No call of a run executes its tool twice, and none whose person said no."""
    lives: dict[tuple[str, str], list[Life]] = defaultdict(list)
    for life in world.lives:
        lives[life.run_id, life.call_id].append(life)
    for (run_id, call_id), found in lives.items():
        assert len(found) == 1, f"{call_id} of {run_id} ran {len(found)} times"
        assert found[0].ended is not None, f"{found[0]} goes on for ever"
        check_beginning(world, logs[RunKey(world.schedule.owner, run_id)], found[0])
    for given in world.given:
        if given.question.key == APPROVAL_KEY:
            found = [
                life
                for (run_id, call_id), known in lives.items()
                for life in known
                if call_id == given.question.call_id and life.began >= given.at - SLACK
                if run_id in (given.key.run_id, *(job.run_id for _, job in parents(world, given.key)))
            ]
            payload = given.payload or {}
            if given.status == "cancelled" or not payload.get("approved"):
                assert not found, f"{found} although {given}"
            elif found:
                note = payload.get("arguments", given.question.arguments).get("note", "")
                assert found[0].note == note
    log_ids = {log.key.run_id: log for log in logs.values()}
    for (run_id, call_id), found in lives.items():
        log = log_ids[run_id]
        record = log.record.call(call_id)
        if record is None or record.tool_name != "asks_first":
            continue
        yes = [g for g in world.given if g.question.call_id == call_id and g.question.key == APPROVAL_KEY]
        again = [r for r in world.resumptions if r.key.run_id == run_id]
        assert yes or again, f"{found} without an approval"


def check_beginning(world: World, log: Log, life: Life) -> None:
    """Nothing begins inside a call that has its result, or has asked by an interrupt."""
    parent = life.call_id.rpartition("/")[0]
    if parent in log.results:
        assert life.began <= log.results[parent][0] + SLACK, f"{life} began after the result of {parent}"
    elif parent in log.parked:
        asked = [other.at for other in world.lives if (other.run_id, other.call_id) == (life.run_id, parent)]
        assert life.began <= max(asked) + SLACK, f"{life} began after {parent} had asked"


def parents(world: World, key: RunKey) -> list[tuple[RunKey, RunKey]]:
    return [(parent, job) for (parent, _), (job, _) in world.detached.items() if parent == key]


def check_resumption(world: World, resumption: Resumption) -> None:
    """The tool sees all answers so far, and runs at most once for each."""
    lives = {life.call_id: life for life in world.lives if life.run_id == resumption.key.run_id}
    for interrupt_id, question in resumption.asked.items():
        entry, life = resumption.given.get(interrupt_id), lives.get(question.call_id)
        if question.kind != "interrupt":
            continue
        if entry is None:
            assert life is None, f"{life} ran without an answer of its own"
            continue
        earlier = answers_before(world, resumption.of, question.call_id)
        payload = entry.payload if isinstance(entry.payload, dict) else {}
        if question.key == APPROVAL_KEY:
            if entry.status == "cancelled" or not payload.get("approved"):
                assert life is None, f"{life} ran although {entry}"
                continue
            note = payload.get("arguments", question.arguments).get("note", "")
        else:
            earlier[question.key] = heard(entry)
            note = question.arguments.get("note", "")
        if life is not None:
            came = {key: (response.status, response.payload) for key, response in life.heard.items()}
            assert came == earlier, (came, earlier)
            assert life.note == note
            for key, response in life.answers:
                assert (response.status, response.payload) == earlier[key]
            newest = None if life.newest is None else (life.newest.status, life.newest.payload)
            assert newest == (None if question.key == APPROVAL_KEY else heard(entry))


def heard(answer: Given | ResumeEntry) -> tuple[str, Any]:
    """What a tool hears of an answer."""
    return answer.status, answer.payload if answer.status == "resolved" else None


def answers_before(world: World, key: RunKey, call_id: str) -> dict[str, tuple[str, Any]]:
    """The answers that this run's call went on with, over all resumes before it."""
    resumption = next((r for r in world.resumptions if r.key == key), None)
    if resumption is None:
        return {}
    answers = answers_before(world, resumption.of, call_id)
    for question in resumption.asked.values():
        entry = resumption.given.get(question.interrupt_id)
        if entry is not None and question.call_id == call_id and question.key != APPROVAL_KEY:
            answers[question.key] = heard(entry)
    return answers


# -- results --


def check_result(world: World, log: Log, call_id: str) -> None:
    """Each status has its reason."""
    when, _, value = log.results[call_id]
    status, top = value["status"], call_id.split("/", maxsplit=1)[0]
    nested = "/" in call_id
    lives = [life for life in world.lives if life.call_id == call_id and life.run_id in family(world, log.key)]
    life = lives[-1] if lives else None
    code = value.get("error", {}).get("code")
    reason = log.stopping[1] if log.stopping is not None and log.stopping[0] <= when + SLACK else None
    stops = [at for at, key, stopped in world.stops if key == log.key and stopped in (None, top) and at <= when]
    where = f"{call_id} of {log.key}: {value}, {life}"
    alone_in_it = world.schedule.around is None and not nested and not log.record.background
    stopped = status in ("cancelled", "interrupted") and not refused(world, log, call_id)
    if alone_in_it and stopped and life is not None and abs(life.at - when) > SLACK:
        assert value.get("stillRunning", False) is (life.at > when), where
    tool_name = value["toolName"]
    page = world.outputs.get((log.key, call_id))
    if status == "detached":
        assert (log.key, call_id) in world.detached, where
        assert value["content"][0]["text"].startswith(f"The job moved to the background. Its id is {call_id}."), where
    elif status == "completed" and tool_name in PAGES:
        assert page is not None, where
        assert page.output is not None, where
        assert not page.output["isError"], where
        assert abs(page.at - when) <= world.schedule.delay + SLACK, where
    elif status == "completed" and not log.record.background:
        assert life is not None, where
        assert (log.key, call_id) not in world.detached, where
        assert life.ended == "returned", where
        assert str(life.number) in str(value["content"]), where
        assert when - SLACK <= life.at + world.schedule.delay <= when + SLACK, where
    elif status == "completed":
        assert life is not None, where
        done = [number for number, (how, _) in life.works.items() if how == "returned"]
        found = [number for number in done if re.search(rf"work\W+{number}\b", str(value["content"]))]
        assert found or nested or life.ended == "returned", where
    elif status == "cancelled":
        assert stops or refused(world, log, call_id), where
    elif status == "timeout":
        assert "within" in value["error"]["message"], where
        assert (log.key, call_id) not in world.detached, where
        assert tool_name not in PAGES or (log.key, call_id) in world.renewed, where
    elif status == "unavailable":
        assert tool_name in PAGES, where
        assert world.renewed.get((log.key, call_id), when) >= when - SLACK, where
    elif status == "unknown":
        assert page is not None, where
        assert page.output is None, where
    elif status == "failed":
        check_failure(world, log, call_id, life, code, where)
    else:
        assert status == "interrupted", where
        lapsed = tool_name in PAGES and "The page cancelled" in value["error"]["message"]
        if lapsed:
            silent = when - world.renewed[log.key, call_id]
            assert abs(silent - world.settings.page_claim - world.schedule.delay) < SLACK, (silent, where)
        gave_up = life is not None and life.gave_up
        known = reason in ("disconnect", "run_timeout", "shutdown") or lapsed or nested or gave_up
        assert known or refused(world, log, call_id), where


def check_failure(world: World, log: Log, call_id: str, life: Life | None, code: str, where: str) -> None:
    if code == "denied":
        assert life is None, where
    elif (log.key, call_id) in world.outputs:
        return
    elif log.plan is not None and log.plan.channel == "json" and life is None:
        assert "approval" in where, where
    elif log.record.background:
        return
    else:
        assert life is not None, where
        assert life.ended not in (None, "lost"), where


def refused(world: World, log: Log, call_id: str) -> bool:
    """Whether the call was not made again, because its question was closed or answered before."""
    return any(
        call_id in {q.call_id for q in r.asked.values() if q.interrupt_id not in r.given}
        for r in world.resumptions
        if r.key == log.key
    )


def family(world: World, key: RunKey) -> set[str]:
    """The run, and the one that it was moved from."""
    return {key.run_id, *(parent.run_id for (parent, _), (job, _) in world.detached.items() if job == key)}


# -- background --


def check_jobs(world: World, logs: Mapping[RunKey, Log]) -> None:
    jobs = {key for key, log in logs.items() if log.record.background}
    assert jobs == {job for job, _ in world.detached.values()}
    for key, log in logs.items():
        notes = world.notes[key]
        assert len(notes) == (log.record.background and key.owner is not None), (key, notes)
    for (parent, call_id), (job, at) in world.detached.items():
        log = logs[job]
        assert log.record.parent_run_id == parent.run_id
        assert [call.call_id for call in log.record.calls] == [call_id]
        assert abs(log.begun - at) < SLACK
        told = logs[parent].when(call_id, "tool.detached")
        assert told is not None
        assert abs(told - at) < SLACK
        assert call_id in log.results
        for life in world.lives:
            if (life.run_id, life.call_id) == (parent.run_id, call_id):
                deaf = [(began, ended) for began, ended in life.listened if began < at - SLACK and ended > at + SLACK]
                assert not deaf, f"{life} was not told that it moved at {at}"
        if log.stopping is not None:
            assert log.stopping[1] in ("user", "shutdown", "run_timeout")
            pressed = any(key == job and stopped is None for _, key, stopped in world.stops)
            assert log.stopping[1] != "user" or pressed, f"{job} was stopped by somebody else's Stop"
        for note in world.notes[job]:
            text = log.results[call_id][2]["content"][0]["text"]
            assert note.text == f"Background job {call_id} ended.\n{text}"
