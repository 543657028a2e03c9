// What the page makes of a stream and of a schema. Run by test_page.py beside a copy of the page's modules.

import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { argumentsOf, display, fieldsOf, parse } from "./fields.js";
import { errorsByField } from "./form.js";
import { jobsOf } from "./jobs.js";
import { outputOf, PageTools } from "./page-tools.js";
import { patched } from "./patch.js";
import { approvalOf, formDetails, formSchema, isApproval, payloadOf, resumeOf } from "./questions.js";
import { renewed, RunList } from "./runlist.js";
import { callsInput } from "./several.js";
import { createState, interruptsOf, LOG_ROWS, ownCalls, receive } from "./state.js";
import { linesOf, messagesBefore } from "./talk.js";
import { themeTool } from "./theme.js";
import { toolsText } from "./words.js";

const custom = (name, value) => ({ type: "CUSTOM", timestamp: 5, name, value: { toolCallId: "c", toolName: "t", ...value } });

const text = (content) => ({ type: "text", text: content });

const RUN = [
  { type: "RUN_STARTED", timestamp: 1, runId: "r", threadId: "th" },
  { type: "TOOL_CALL_START", timestamp: 2, toolCallId: "c", toolCallName: "t" },
  { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"a":' },
  { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "1}" },
  { type: "TOOL_CALL_END", toolCallId: "c" },
  custom("demo.x", { n: 1 }),
  custom("tool.progress", { progress: 1, total: 2, percent: 50 }),
  custom("tool.waiting", { message: "sure?" }),
  custom("tool.resumed", { waitedMs: 1 }),
  custom("run.stopping", { reason: "user" }),
  custom("tool.result", { status: "cancelled", content: [text("no")], isError: true, durationMs: 7 }),
  { type: "TOOL_CALL_RESULT", toolCallId: "c", content: "no" },
  { type: "RUN_FINISHED", timestamp: 9, outcome: { type: "cancelled" } },
];

function fold(ids, events = RUN) {
  const state = createState("r");
  for (const id of ids) receive(state, id, JSON.stringify(events[id - 1]));
  return state;
}

const all = (events) => events.map((_, index) => index + 1);

const field = (schema, root = {}) => fieldsOf({ properties: { x: schema }, ...root })[0];

test("a run is folded into its status, call, progress, result and log", () => {
  const state = fold(all(RUN));
  assert.equal(state.status, "cancelled");
  assert.deepEqual([state.startedAt, state.endedAt, state.lastId, state.gaps], [1, 9, 13, 0]);
  const call = state.calls.get("c");
  assert.deepEqual([call.name, call.args, call.status, call.durationMs], ["t", '{"a":1}', "cancelled", 7]);
  assert.deepEqual([call.progress.percent, call.result.text], [50, "no"]);
  assert.deepEqual(state.log.map((row) => row.name), ["demo.x", "tool.waiting", "tool.resumed", "run.stopping", "tool.result"]);
  assert.equal(state.logged, 5);
});

test("the status follows the events", () => {
  const seen = all(RUN).map((last) => fold(all(RUN).slice(0, last)).status);
  assert.deepEqual([...new Set(seen)], ["running", "waiting", "stopping", "cancelled"]);
  assert.equal(seen[8], "running");
});

test("events that are sent again, from any point and any number of times, change nothing", () => {
  const expected = { ...fold(all(RUN)), repeats: 0 };
  for (let seed = 1; seed <= 500; seed += 1) {
    const ids = [];
    let [last, random] = [0, seed];
    while (last < RUN.length) {
      random = (random * 48271) % 2147483647;
      const start = 1 + (random % (last + 1)); // a reconnection: somewhere in what was sent, or right after it
      last = Math.max(last, Math.min(RUN.length, start + (random % 7)));
      for (let id = start; id <= Math.min(RUN.length, start + (random % 7)); id += 1) ids.push(id);
    }
    assert.deepEqual({ ...fold(ids), repeats: 0 }, expected, `ids ${ids}`);
  }
});

test("a jump of the ids is counted", () => {
  assert.equal(fold([1, 2, 6, 7, 13]).gaps, 3 + 5);
  assert.equal(fold([3]).gaps, 2);
});

test("a long run keeps the last rows and counts all", () => {
  const state = createState("r");
  for (let id = 1; id <= 10 * LOG_ROWS; id += 1) receive(state, id, JSON.stringify(custom("demo.x", { id })));
  assert.equal(state.logged, 10 * LOG_ROWS);
  assert.ok(state.log.length >= LOG_ROWS && state.log.length < 2 * LOG_ROWS);
  assert.deepEqual(state.log.map((row) => row.id).slice(-3), [4998, 4999, 5000]);
});

test("what it does not know, or cannot read, does not break it", () => {
  const state = createState("r");
  receive(state, 1, '{"type":"NEW_IN_2.0"}');
  receive(state, 2, "not json");
  receive(state, 3, '{"type":"CUSTOM","name":"x"}');
  assert.deepEqual([state.lastId, state.unreadable, state.logged], [3, 1, 1]);
});

test("a failed run keeps its error, and an open call is unknown", () => {
  const state = fold([1, 2, 3], [...RUN.slice(0, 2), { type: "RUN_ERROR", code: "interrupted", message: "gone" }]);
  assert.equal(state.status, "failed");
  assert.deepEqual(state.error, { code: "interrupted", message: "gone" });
  assert.equal(state.calls.get("c").status, "unknown");
});

test("the calls that a tool makes itself are shown, but are not the run's own", () => {
  const inner = custom("tool.result", { toolCallId: "c/1", toolName: "inner", status: "completed" });
  const nested = { ...inner, metadata: { toolName: "inner", parentToolCallId: "c" } };
  const state = fold([1, 2, 3], [...RUN.slice(0, 2), nested]);
  assert.deepEqual([...state.calls.keys()], ["c", "c/1"]);
  assert.deepEqual(ownCalls(state).map((call) => call.id), ["c"]);
});

test("the call of a background job is the job's own, though nobody's message made it", () => {
  const job = [RUN[0], custom("tool.progress", { progress: 1 }), custom("tool.result", { status: "completed" })];
  assert.deepEqual(ownCalls(fold([1, 2, 3], job)).map(({ id, status }) => [id, status]), [["c", "completed"]]);
});

test("a call waits until each of its questions is over", () => {
  const asks = (interruptId, message) => custom("tool.waiting", { interruptId, message, responseSchema: { type: "object" } });
  const over = (interruptId) => custom("tool.resumed", { interruptId, waitedMs: 1 });
  const shows = custom("tool.waiting", {});
  const events = [RUN[0], RUN[1], asks("a", "A?"), shows, asks("b", "B?"), over("a"), over(undefined), over("b")];
  const seen = all(events).map((last) => {
    const { status, calls } = fold(all(events).slice(0, last), events);
    return [status, [...(calls.get("c")?.questions.keys() ?? [])].join("")];
  });
  assert.deepEqual(seen.slice(2), [
    ["waiting", "a"],
    ["waiting", "a"],
    ["waiting", "ab"],
    ["waiting", "b"],
    ["waiting", "b"],
    ["running", ""],
  ]);
  assert.deepEqual(fold([1, 2, 3], events).calls.get("c").questions.get("a"), {
    id: "a",
    callId: "c",
    toolName: "t",
    message: "A?",
    schema: { type: "object" },
    interrupt: false,
  });
});

test("the end of a call, and of its run, takes its questions away", () => {
  const asks = custom("tool.waiting", { interruptId: "a" });
  const end = { type: "RUN_FINISHED", outcome: { type: "cancelled" } };
  assert.equal(fold([1, 2, 3, 4], [RUN[0], RUN[1], asks, RUN[10]]).calls.get("c").questions.size, 0);
  assert.equal(fold([1, 2, 3, 4], [RUN[0], RUN[1], asks, end]).calls.get("c").questions.size, 0);
});

test("a run waits no longer when the call that asked is over or has moved", () => {
  const asks = custom("tool.waiting", { interruptId: "a" });
  const moved = custom("tool.result", { status: "detached" });
  assert.equal(fold([1, 2, 3, 4], [RUN[0], RUN[1], asks, moved]).status, "running");
});

test("a call that moved to the background names the run in which it goes on", () => {
  const moved = [RUN[0], RUN[1], custom("tool.detached", { runId: "job" }), custom("tool.result", { status: "detached" })];
  const call = fold([1, 2, 3, 4], moved).calls.get("c");
  assert.deepEqual([call.status, call.detachedRunId], ["detached", "job"]);
});

const interrupt = (id, toolCallId, more = {}) => ({ id, reason: "input_required", toolCallId, ...more });

const interrupted = (...interrupts) => ({ type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts } });

const APPROVAL = {
  type: "object",
  properties: {
    approved: { type: "boolean" },
    arguments: { type: "object", default: { path: "a", force: false, extra: 1 } },
    message: { type: "string" },
  },
  required: ["approved"],
};

test("a run that ended with questions can be resumed from its stream alone, as a run of one tool", () => {
  const state = fold([1, 2, 3, 4, 5, 6], [
    { ...RUN[0], threadId: "th" },
    ...RUN.slice(1, 5),
    interrupted(interrupt("i", "c", { message: "Which?", metadata: { toolName: "t" } })),
  ]);
  assert.deepEqual([state.status, state.calls.get("c").status], ["interrupted", "interrupted"]);
  assert.deepEqual(interruptsOf(state).map(({ id, message, interrupt }) => [id, message, interrupt]), [["i", "Which?", true]]);
  const answers = [{ interruptId: "i", status: "resolved", payload: 1 }];
  const { tool, body } = resumeOf(state, answers);
  assert.notEqual(body.runId, "r");
  assert.deepEqual([tool, body], ["t", { threadId: "th", runId: body.runId, parentRunId: "r", resume: answers }]);
});

test("… and as a run of several, with the results of those that are done", () => {
  const start = (id, name) => ({ type: "TOOL_CALL_START", toolCallId: id, toolCallName: name, parentMessageId: "m" });
  const answered = custom("tool.result", { toolCallId: "b", status: "completed", content: [text("done")] });
  const interrupts = [
    interrupt("i", "a", { metadata: { toolName: "ta", input: { x: 1 } }, responseSchema: APPROVAL }),
    interrupt("j", "c", { metadata: { toolName: "tc", key: "input" } }),
  ];
  const state = fold([1, 2, 3, 4, 5, 6], [
    RUN[0],
    start("a", "ta"),
    start("b", "tb"),
    start("c", "tc"),
    answered,
    interrupted(...interrupts),
  ]);
  assert.deepEqual(interruptsOf(state).map(({ id }) => id), ["i", "j"]);
  const { tool, body } = resumeOf(state, ["answers"]);
  assert.equal(tool, null);
  assert.deepEqual([body.threadId, body.parentRunId, body.resume], ["th", "r", ["answers"]]);
  const [user, assistant, ...results] = body.messages;
  assert.deepEqual([user.role, assistant.role, assistant.id], ["user", "assistant", "m"]);
  assert.deepEqual(assistant.toolCalls.map(({ id, function: { name, arguments: input } }) => [id, name, input]), [
    ["a", "ta", '{"x":1}'],
    ["b", "tb", "{}"],
    ["c", "tc", "{}"],
  ]);
  assert.deepEqual(results, [{ id: "b:result", role: "tool", toolCallId: "b", content: "done" }]);
});

test("any schema of an answer becomes a form, and its values the payload", () => {
  const object = { schema: { type: "object", properties: { n: { type: "integer" } } } };
  const value = { schema: { $ref: "#/$defs/N", $defs: { N: { type: "integer" } } } };
  const nothing = { schema: null };
  const anything = { schema: { type: "object" } };
  assert.deepEqual(fieldsOf(formSchema(anything)).map(({ kind }) => kind), ["json"]);
  const kinds = [object, value, nothing].map((question) => fieldsOf(formSchema(question)).map(({ name, kind }) => [name, kind]));
  assert.deepEqual(kinds, [[["n", "integer"]], [["answer", "integer"]], [["answer", "text"]]]);
  assert.deepEqual(payloadOf(object, { n: 1 }), { n: 1 });
  assert.deepEqual([payloadOf(value, { answer: 2 }), payloadOf(nothing, { answer: "x" })], [2, "x"]);
  const details = [{ field: "payload", message: "m" }, { field: "resume.1.payload.n", message: "k" }];
  assert.deepEqual(errorsByField(formDetails(object, details)), { "": "m", n: "k" });
  assert.deepEqual(errorsByField(formDetails(value, details)), { answer: "m; n: k" });
  assert.deepEqual(formDetails(value, undefined), []);
});

test("an approval sends the arguments only when somebody changed them, and loses none that has no field", () => {
  const question = { schema: APPROVAL };
  const parameters = { properties: { path: { type: "string" }, force: { type: "boolean" } } };
  const before = { path: "a", force: false };
  assert.equal(isApproval(question), true);
  assert.equal(isApproval({ schema: { type: "object", properties: { approved: { type: "boolean" } } } }), false);
  assert.deepEqual(approvalOf(question, parameters, before, { ...before }), { approved: true });
  assert.deepEqual(approvalOf(question, parameters, before, { path: "b" }), { approved: true, arguments: { path: "b", extra: 1 } });
  const [nothing, edited] = [{ arguments: {} }, { arguments: { x: 1 } }];
  assert.deepEqual(approvalOf(question, undefined, nothing, edited), { approved: true, arguments: { x: 1 } });
  const details = [{ field: "payload.arguments.path.0", message: "no" }];
  assert.deepEqual(errorsByField(formDetails(question, details)), { path: "0: no" });
});

/** A run of the day that its id ends with. */
const record = (runId, status, more = {}) => {
  const createdAt = `2026-01-0${runId.slice(-1)}T00:00:00Z`;
  return { runId, status, createdAt, toolCalls: [], ...more };
};

test("the tray has the calls that left their runs, also those of parents that the list has no more, those at work first", () => {
  const parent = record("p3", "completed", { toolCalls: [{ detachedRunId: "j1" }, { detachedRunId: "j4" }, {}] });
  const old = record("o1", "completed", { toolCalls: [{ detachedRunId: "j2" }] });
  const runs = [record("r9", "running", { parentRunId: "p3" }), record("j4", "completed"), record("j5", "failed"), parent];
  const jobs = jobsOf([...runs, record("j2", "waiting"), record("j1", "running")], [old, null], ["j5", "gone"]);
  assert.deepEqual(jobs.map(({ runId }) => runId), ["j2", "j1", "j5", "j4"]);
  const over = Array.from({ length: 9 }, (_, index) => record(`j${index + 1}`, "completed"));
  assert.deepEqual(jobsOf(over, [], over.map(({ runId }) => runId)).map(({ runId }) => runId), ["j9", "j8", "j7", "j6", "j5"]);
});

test("a run was resumed by the run that names it, which no background job of it is", () => {
  const list = new RunList();
  const parent = record("r1", "interrupted", { toolCalls: [{ detachedRunId: "j4" }] });
  list.records = [record("j4", "running", { parentRunId: "r1" }), parent];
  assert.equal(list.resumedBy("r1"), null);
  list.records.unshift(record("r5", "running", { parentRunId: "r1" }));
  assert.equal(list.resumedBy("r1"), "r5");
});

test("after a look at the newest runs the list has no hole, and after another it is what the gateway has", () => {
  const runs = (newest, oldest) => Array.from({ length: newest - oldest }, (_, index) => ({ runId: `r${newest - index}` }));
  const look = (known, all) => {
    const items = all.slice(0, Math.max(20, known.records.length));
    return renewed(known, { items, next: items.length < all.length ? items.at(-1).runId : null });
  };
  for (let fresh = 0; fresh < 40; fresh += 1) {
    for (const gone of [0, 5, 15, 30, 40]) {
      const all = runs(40 + fresh, gone);
      const once = look({ records: runs(40, 10), next: "r11" }, all);
      const both = Math.min(all.length, once.records.length);
      assert.deepEqual(once.records.slice(0, both), all.slice(0, both));
      const { records, next } = look(once, all);
      assert.deepEqual(records, all.slice(0, records.length));
      assert.equal(next, records.length < all.length ? records.at(-1).runId : null);
    }
  }
});

test("several tools become the calls of one message, each with its id and its values", () => {
  const input = callsInput("r", "th", [{ name: "a", values: { x: "é" } }, { name: "b", values: {} }]);
  const { id: _, ...message } = input.messages.at(-1);
  const ids = message.toolCalls.map((call) => call.id);
  assert.deepEqual([input.runId, input.threadId, input.messages.map(({ role }) => role)], ["r", "th", ["user", "assistant"]]);
  assert.deepEqual(message.toolCalls.map((call) => call.function), [
    { name: "a", arguments: '{"x":"é"}' },
    { name: "b", arguments: "{}" },
  ]);
  assert.equal(new Set([...ids, ...input.messages.map(({ id }) => id)]).size, 4);
});

test("calls of this page's own tools say so", () => {
  const tools = [{ name: "page.x", description: "", parameters: {} }];
  const input = callsInput("r", "th", [{ name: "page.x", values: {} }], tools);
  assert.deepEqual([input.tools, input.forwardedProps], [tools, { gateway: { pageTools: true } }]);
  assert.deepEqual(callsInput("r", "th", []).forwardedProps, {});
});

test("a run is called by its tools", () => {
  assert.deepEqual([[], ["a"], ["a", "a"], ["a", "b"], ["a", "b", "a", "c"]].map(toolsText), ["", "a", "a", "a + b", "a + 2 more"]);
});

test("each kind of schema gets its control", () => {
  const kinds = [
    [{ type: "string" }, "text"],
    [{ type: "string", format: "textarea", maxLength: 10 }, "textarea"],
    [{ type: "string", "x-multiline": true }, "textarea"],
    [{ type: "string", maxLength: 201 }, "textarea"],
    [{ type: "string", maxLength: 200, description: "The text." }, "text"],
    [{ type: "string", description: "The text." }, "textarea"],
    [{ type: "integer" }, "integer"],
    [{ anyOf: [{ type: "number" }, { type: "null" }] }, "number"],
    [{ type: "boolean" }, "boolean"],
    [{ anyOf: [{ type: "boolean" }, { type: "null" }] }, "choice"],
    [{ enum: ["a", "b"] }, "choice"],
    [{ const: 1 }, "choice"],
    [{ type: "array", items: { type: "string" } }, "lines"],
    [{ type: "array", items: { type: "object" } }, "json"],
    [{ type: "object" }, "json"],
    [{ anyOf: [{ type: "string" }, { type: "integer" }] }, "json"],
    [{}, "json"],
  ];
  for (const [schema, kind] of kinds) assert.equal(field(schema).kind, kind, JSON.stringify(schema));
  assert.equal(field({ $ref: "#/$defs/E" }, { $defs: { E: { enum: [1] } } }).kind, "choice");
});

test("what a default shows is read back as the default", () => {
  const schemas = [
    { type: "string", default: "a\nb" },
    { type: "integer", default: -3 },
    { type: "number", default: 1.5 },
    { type: "boolean", default: true },
    { enum: ["a", { b: 1 }], default: { b: 1 } },
    { type: "array", items: { type: "string" }, default: ["x", "y"] },
    { type: "array", items: { type: "integer" }, default: [1, 2] },
    { type: "object", default: { k: [1, null] } },
    { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
    { anyOf: [{ type: "boolean" }, { type: "null" }], default: null },
  ];
  for (const schema of schemas) {
    const made = field(schema);
    assert.deepEqual(parse(made, display(made, made.fallback)), schema.default, JSON.stringify(schema));
  }
});

test("input that makes no sense is refused with a reason", () => {
  const wrong = [
    [{ type: "integer" }, "1.5", /not a whole number/],
    [{ type: "integer" }, "99999999999999999999", /too large/],
    [{ type: "number" }, "abc", /not a number/],
    [{ type: "integer", minimum: 3 }, "2", /at least 3/],
    [{ type: "integer", maximum: 3 }, "4", /at most 3/],
    [{ type: "string", maxLength: 2 }, "abc", /3 characters, the limit is 2/],
    [{ type: "object" }, "{", /not JSON/],
    [{ type: "array", items: { type: "integer" } }, "1\nx", /x is not a number/],
  ];
  for (const [schema, input, reason] of wrong) assert.throws(() => parse(field(schema), input), reason);
  assert.throws(() => parse(field({ type: "string" }, { required: ["x"] }), " "), /needs a value/);
  assert.equal(parse(field({ type: "string", maxLength: 2 }), "😀😀"), "😀😀");
});

test("an empty input leaves the argument out, or is null where that was the default", () => {
  assert.equal(parse(field({ type: "integer", default: 3 }), ""), undefined);
  assert.equal(parse(field({ type: "string", default: "" }), ""), undefined);
  assert.equal(parse(field({ type: "string", default: "x" }), ""), "");
  assert.equal(parse(field({ anyOf: [{ type: "integer" }, { type: "null" }], default: 3 }), ""), null);
});

test("a long text is left out while it is the default", () => {
  const long = "x".repeat(300);
  const fields = fieldsOf({ properties: { a: { type: "string", default: long }, b: { type: "string", default: "short" } } });
  assert.deepEqual(argumentsOf(fields, { a: long, b: "short" }), { b: "short" });
  assert.deepEqual(argumentsOf(fields, { a: `${long}!`, b: undefined }), { a: `${long}!` });
});

test("the errors of a refusal are gathered by the field on the page", () => {
  const details = [
    { field: "rows.0.price", message: "too low" },
    { field: "rows[1]", message: "missing" },
    { field: "top", message: "too high" },
  ];
  assert.deepEqual(errorsByField(details), { rows: "0.price: too low; 1: missing", top: "too high" });
  assert.deepEqual(errorsByField(undefined), {});
});

// --- tools of the page -----------------------------------------------------------------------------------------------

const CLAIM = { claimId: "k", expiresIn: 30 };

/** A gateway that answers each path of a call with what `answers` says: a body, a status, or a function of the request. */
function fakeGateway(answers = {}) {
  const sent = [];
  const fetch = async (address, { method, body, headers, keepalive }) => {
    const what = address.split("/").at(-1);
    const request = { address, what, method, body: JSON.parse(body), headers, keepalive };
    sent.push(request);
    let answer = answers[what] ?? (what === "claim" ? CLAIM : {});
    if (typeof answer === "function") answer = await answer(request);
    return typeof answer === "number" ? new Response("{}", { status: answer }) : Response.json(answer);
  };
  const pageTools = new PageTools({ baseUrl: "http://gateway.test/ai", fetch });
  const bodies = (what) => sent.filter((request) => request.what === what).map((request) => request.body);
  return { pageTools, sent, bodies };
}

const requested = (toolCallId = "c", toolName = "page.x", input = { n: 1 }) =>
  custom("tool.requested", { toolCallId, toolName, input });

async function until(look) {
  for (let tries = 0; tries < 400; tries += 1) {
    const seen = look();
    if (seen) return seen;
    await pause(5);
  }
  throw new Error(`not within two seconds: ${look}`);
}

const idle = ({ pageTools }) => until(() => !pageTools.busy("r"));

test("a tool of the page that is asked for is claimed, run and answered, once, however often the request comes", async () => {
  const gateway = fakeGateway();
  const seen = [];
  const execute = (input, { runId, toolCallId }) => seen.push([input, runId, toolCallId]) && "done";
  gateway.pageTools.register({ name: "page.x", execute });
  for (let times = 0; times < 3; times += 1) gateway.pageTools.handle(requested("c/1~2"), "r");
  await until(() => gateway.bodies("result").length);
  await idle(gateway);
  gateway.pageTools.handle(requested("c/1~2"), "r");
  await pause(60);
  assert.deepEqual(seen, [[{ n: 1 }, "r", "c/1~2"]]);
  assert.deepEqual(gateway.sent.map(({ what, body }) => [what, body]), [
    ["claim", {}],
    ["result", { claimId: "k", output: { content: [text("done")] } }],
  ]);
  const [{ address, method, headers }] = gateway.sent;
  assert.equal(address, "http://gateway.test/ai/runs/r/tool-calls/c%2F1~2/claim");
  assert.deepEqual([method, headers.get("content-type")], ["POST", "application/json"]);
});

test("the same call id in two runs is two calls", async () => {
  const gateway = fakeGateway();
  gateway.pageTools.register({ name: "page.x", execute: () => "done" });
  for (const runId of ["r", "s"]) gateway.pageTools.handle(requested(), runId);
  await until(() => gateway.bodies("result").length === 2);
});

test("headers go with every request, as they are at that time", async () => {
  const sent = [];
  let token = "one";
  const fetch = async (address, { headers }) => {
    sent.push(headers.get("authorization"));
    token = "two";
    return Response.json(CLAIM);
  };
  const pageTools = new PageTools({ baseUrl: new URL("http://gateway.test/"), headers: () => ({ Authorization: token }), fetch });
  pageTools.register({ name: "page.x", execute: () => "done" });
  pageTools.handle(requested(), "r");
  await until(() => sent.length === 2);
  assert.deepEqual(sent, ["one", "two"]);
});

test("a call that another page has, or whose tool is not here, is left alone", async () => {
  const gateway = fakeGateway({ claim: 409 });
  let ran = 0;
  gateway.pageTools.register({ name: "page.x", execute: () => (ran += 1) });
  gateway.pageTools.handle(requested("c1"), "r");
  gateway.pageTools.handle(requested("c2", "page.other"), "r");
  await until(() => gateway.sent.length);
  await idle(gateway);
  assert.deepEqual([gateway.sent.map(({ address }) => address.split("/").at(-2)), ran], [["c1"], 0]);
});

test("the replay of a run in which the call is over asks for nothing", async () => {
  const gateway = fakeGateway();
  gateway.pageTools.register({ name: "page.x", execute: () => assert.fail("it ran") });
  const ends = [
    custom("tool.result", { status: "completed" }),
    custom("run.stopping", { reason: "user" }),
    { type: "RUN_FINISHED", outcome: { type: "success" } },
    { type: "RUN_ERROR", message: "x" },
  ];
  for (const [index, end] of ends.entries()) {
    gateway.pageTools.handle(requested(), `r${index}`);
    gateway.pageTools.handle(end, `r${index}`);
  }
  await pause(60);
  assert.deepEqual(gateway.sent, []);
});

test("events that are no business of page tools, or make no sense, change nothing", async () => {
  const gateway = fakeGateway();
  const odd = [{ type: "CUSTOM" }, { type: "CUSTOM", name: "tool.requested" }, { type: "RAW", event: 1 }];
  for (const event of [...odd, custom("demo.x", {})]) gateway.pageTools.handle(event, "r");
  await pause(40);
  assert.deepEqual(gateway.sent, []);
});

for (const [name, end] of [
  ["the stop of its run", custom("run.stopping", { reason: "user" })],
  ["its result, which somebody else made", custom("tool.result", { status: "timeout" })],
  ["the end of its run", { type: "RUN_ERROR", message: "x" }],
]) {
  test(`a tool is aborted by ${name}, and what it says then is not sent`, async () => {
    const gateway = fakeGateway();
    let signal = null;
    gateway.pageTools.register({
      name: "page.x",
      execute: (_, call) => new Promise((_resolve, reject) => {
        signal = call.signal;
        signal.addEventListener("abort", () => reject(signal.reason));
      }),
    });
    gateway.pageTools.handle(requested(), "r");
    await until(() => signal);
    assert.equal(gateway.pageTools.busy("r"), true);
    gateway.pageTools.handle(custom("tool.result", { toolCallId: "another" }), "r");
    gateway.pageTools.handle(end, "another run");
    assert.equal(signal.aborted, false);
    gateway.pageTools.handle(end, "r");
    assert.deepEqual([signal.aborted, signal.reason.name, gateway.pageTools.busy("r")], [true, "AbortError", false]);
    await pause(40);
    assert.deepEqual(gateway.bodies("result"), []);
  });
}

test("a tool that has answered is not aborted by the news of its own result", async () => {
  let signal = null;
  const gateway = fakeGateway({
    result: () => {
      gateway.pageTools.handle(custom("tool.result", { status: "completed" }), "r"); // the stream is faster
      return {};
    },
  });
  gateway.pageTools.register({ name: "page.x", execute: (_, call) => (signal = call.signal) && "done" });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length);
  await idle(gateway);
  assert.equal(signal.aborted, false);
});

test("a claim is renewed while the tool runs, and a tool whose claim is lost is aborted", async () => {
  let left = 3;
  const gateway = fakeGateway({ claim: () => (left-- > 0 ? { claimId: "k", expiresIn: 0.06 } : 409) });
  let signal = null;
  gateway.pageTools.register({ name: "page.x", execute: (_, call) => new Promise(() => (signal = call.signal)) });
  gateway.pageTools.handle(requested(), "r");
  await until(() => signal?.aborted);
  assert.deepEqual(gateway.bodies("claim"), [{}, { claimId: "k" }, { claimId: "k" }, { claimId: "k" }]);
  assert.deepEqual(gateway.bodies("result"), []);
});

test("what gets no answer, or finds the gateway busy, is sent again", async () => {
  const answers = [
    () => {
      throw new TypeError("no network");
    },
    () => 503,
    () => CLAIM,
  ];
  const gateway = fakeGateway({ claim: () => answers.shift()() });
  gateway.pageTools.register({ name: "page.x", execute: () => "done" });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length);
  assert.equal(gateway.bodies("claim").length, 3);
});

test("a tool that waits for the person says so, and goes on although that is refused", async () => {
  const gateway = fakeGateway({ waiting: 409 });
  gateway.pageTools.register({
    name: "page.x",
    async execute(_, { waitingForUser }) {
      await waitingForUser("Sure?");
      await waitingForUser();
      return "done";
    },
  });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length);
  assert.deepEqual(gateway.bodies("waiting"), [{ claimId: "k", message: "Sure?" }, { claimId: "k" }]);
});

test("a result that the gateway refuses becomes one that the model can read", async () => {
  const gateway = fakeGateway({ result: ({ body }) => (body.output.isError ? {} : 413) });
  gateway.pageTools.register({ name: "page.x", execute: () => "x".repeat(20_000) });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length === 2);
  assert.match(gateway.bodies("result")[1].output.content[0].text, /^Error \[failed\]: .*413/);
  assert.deepEqual(gateway.sent.filter(({ what }) => what === "result").map(({ keepalive }) => keepalive), [false, true]);
});

const textOf = (output) => output.content[0].text;

const errorOf = (output) => [textOf(output), output.isError, output.structuredContent?.error];

test("each ending of a tool becomes the result that the gateway's own tools would have", async () => {
  const loop = {};
  loop.loop = loop;
  const image = { type: "image", data: "QQ==", mimeType: "image/png" };
  const epoch = "1970-01-01T00:00:00.000Z";
  const plain = [
    ["text", { content: [text("text")] }],
    [undefined, { content: [text("")] }],
    [null, { content: [text("")] }],
    [{ a: [1] }, { content: [text('{"a":[1]}')], structuredContent: { a: [1] } }],
    [[1, 2], { content: [text('{"result":[1,2]}')], structuredContent: { result: [1, 2] } }],
    [0, { content: [text('{"result":0}')], structuredContent: { result: 0 } }],
    [new Date(0), { content: [text(`{"result":"${epoch}"}`)], structuredContent: { result: epoch } }],
    [text("x"), { content: [text("x")] }],
    [[image, text("x")], { content: [image, text("x")] }],
    [{ content: [], isError: true, more: 1 }, { content: [], isError: true }],
    [{ content: [text("x")], structuredContent: { a: 1 } }, { content: [text("x")], structuredContent: { a: 1 } }],
  ];
  for (const [value, output] of plain) assert.deepEqual(outputOf(value), output);
  assert.deepEqual(outputOf({ type: "text", n: 1 }).structuredContent, { type: "text", n: 1 }, "it merely has a type");
  for (const value of [loop, 10n, { content: [text(10n)] }]) {
    assert.match(textOf(outputOf(value)), /^Error \[failed\]: The result cannot be sent/);
  }
});

test("what a tool throws is its failure; an AbortError of its own is the page's doing", async () => {
  const own = new DOMException("closed", "AbortError");
  const thrown = [new Error("no disk"), "just text", new Error("Error [busy]: later"), own, undefined];
  const cancelled = "Error [interrupted]: The page cancelled this call before it finished. Check the page before retrying.";
  const gateway = fakeGateway();
  gateway.pageTools.register({
    name: "page.x",
    execute: ({ n }) => {
      throw thrown[n];
    },
  });
  for (const n of thrown.keys()) gateway.pageTools.handle(requested(`c${n}`, "page.x", { n }), "r");
  await until(() => gateway.bodies("result").length === thrown.length);
  assert.deepEqual(gateway.bodies("result").map(({ output }) => errorOf(output)), [
    ["Error [failed]: no disk", true, { code: "failed", retryable: false }],
    ["Error [failed]: just text", true, { code: "failed", retryable: false }],
    ["Error [busy]: later", true, undefined],
    [cancelled, true, { code: "interrupted", retryable: false }],
    ["Error [failed]: It gave no reason.", true, { code: "failed", retryable: false }],
  ]);
});

test("a tool that goes while the page gets its claim is not available; input that is no object is an empty one", async () => {
  const gateway = fakeGateway({
    claim: () => {
      remove();
      return CLAIM;
    },
  });
  let remove = gateway.pageTools.register({ name: "page.x", execute: () => "done" });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length);
  const gone = 'Error [unavailable]: Tool "page.x" is not on this page right now. Use another tool or try again later.';
  assert.deepEqual(errorOf(gateway.bodies("result")[0].output), [gone, true, { code: "unavailable", retryable: true }]);

  const inputs = [];
  remove = () => {};
  gateway.pageTools.register({ name: "page.x", execute: (input) => inputs.push(input) });
  for (const [index, input] of ["text", [1], null].entries()) gateway.pageTools.handle(requested(`c${index}`, "page.x", input), "r");
  await until(() => inputs.length === 3);
  assert.deepEqual(inputs, [{}, {}, {}]);
});

test("a name is taken once, and only while its tool is there", async () => {
  const { pageTools } = fakeGateway();
  const tool = { name: "page.x", description: "d", parameters: { type: "object" }, execute: () => "" };
  const remove = pageTools.register(tool);
  assert.throws(() => pageTools.register({ ...tool }), /already/);
  assert.throws(() => pageTools.register({ ...tool, name: "no name" }), /no name of a tool/);
  assert.throws(() => pageTools.register({ name: "page.y" }), /no execute/);
  assert.deepEqual(await pageTools.tools(), [{ name: "page.x", description: "d", parameters: { type: "object" } }]);
  remove();
  const again = pageTools.register({ name: "page.x", execute: () => "" });
  remove(); // of the first one
  assert.deepEqual(await pageTools.tools(), [{ name: "page.x", description: "", parameters: { type: "object", properties: {} } }]);
  again();
  assert.deepEqual(await pageTools.tools(), []);
});

test("leaving the page answers what runs as navigated, and sends what was being sent once more", async () => {
  const hang = new Promise(() => {});
  const gateway = fakeGateway({ result: () => hang });
  const signals = [];
  gateway.pageTools.register({ name: "page.x", execute: ({ n }, { signal }) => signals.push(signal) && (n === 1 ? hang : "done") });
  gateway.pageTools.handle(requested("c1"), "r");
  gateway.pageTools.handle(requested("c2", "page.x", { n: 2 }), "r");
  await until(() => signals.length === 2 && gateway.bodies("result").length === 1);
  gateway.pageTools.close();
  const last = gateway.sent.filter(({ what }) => what === "result").slice(1);
  assert.deepEqual(last.map(({ address, body, keepalive }) => [address.split("/").at(-2), body.output, keepalive]), [
    ["c1", null, true],
    ["c2", { content: [text("done")] }, true],
  ]);
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, false]);
});

/** What Chrome 156 does, see the browser tests: text for every answer, and nothing of what a tool threw. */
function fakeModelContext(tools) {
  return {
    getTools: async () => tools.map(({ execute: _, ...tool }) => tool),
    executeTool: async ({ name }, input, { signal }) => {
      const answer = await tools.find((tool) => tool.name === name).execute(input, signal);
      return answer === null || typeof answer === "string" ? answer : (JSON.stringify(answer) ?? "undefined");
    },
  };
}

test("tools that the page gave to the browser are here, too", async (t) => {
  const seen = [];
  const look = (input) => seen.push([input.n, String(input)]) && { n: 2 };
  const fails = () => ({ content: [text("x")], isError: true });
  const tools = [
    { name: "web.form", description: "d", inputSchema: { type: "object", properties: { n: {} } }, execute: look },
    { name: "web.old", description: "", inputSchema: '{"type":"object","properties":{"m":{}}}', execute: fails },
    { name: "web.away", inputSchema: "", execute: () => null },
    { name: "web.none", inputSchema: undefined, execute: () => undefined },
    { name: "web.text", execute: () => "[not json" },
    { name: "page.x", description: "of the browser", execute: () => assert.fail("the registered one counts") },
  ];
  const form = { hasAttribute: () => false, matches: (selector) => selector === ":tool-submit-active" };
  const querySelector = (selector) => (selector.includes("web.form") ? form : null);
  globalThis.document = { modelContext: fakeModelContext(tools), querySelector };
  globalThis.CSS = { escape: (text) => text };
  t.after(() => {
    delete globalThis.document;
    delete globalThis.CSS;
  });
  const gateway = fakeGateway();
  gateway.pageTools.register({ name: "page.x", description: "registered", execute: () => "mine" });
  const listed = await gateway.pageTools.tools();
  const shown = listed.map(({ name, description, parameters }) => [name, description, Object.keys(parameters.properties)]);
  assert.deepEqual(shown, [
    ["page.x", "registered", []],
    ["web.form", "d", ["n"]],
    ["web.old", "", ["m"]],
    ["web.away", "", []],
    ["web.none", "", []],
    ["web.text", "", []],
  ]);
  const names = ["page.x", ...tools.slice(0, -1).map(({ name }) => name)];
  for (const name of names) gateway.pageTools.handle(requested(name, name), "r");
  await until(() => gateway.bodies("result").length === names.length);
  const results = gateway.sent.filter(({ what }) => what === "result");
  const outputs = new Map(results.map(({ address, body }) => [address.split("/").at(-2), body.output]));
  assert.deepEqual(names.map((name) => outputs.get(name)), [
    { content: [text("mine")] },
    { content: [text('{"n":2}')], structuredContent: { n: 2 } },
    { content: [text("x")], isError: true },
    null,
    { content: [text("")] },
    { content: [text("[not json")] },
  ]);
  assert.deepEqual(seen, [[1, '{"n":1}']], "browsers that want JSON text find it in the object");
});

test("a form of the page that waits for the person stops the clock, once", async (t) => {
  let answer = null;
  const tools = [{ name: "web.form", execute: () => new Promise((resolve) => (answer = resolve)) }];
  const form = { hasAttribute: (name) => name === "data-tool-submit-active" };
  globalThis.document = { modelContext: fakeModelContext(tools), querySelector: () => form };
  globalThis.CSS = { escape: (text) => text };
  t.after(() => {
    delete globalThis.document;
    delete globalThis.CSS;
  });
  const gateway = fakeGateway();
  gateway.pageTools.handle(requested("c", "web.form"), "r");
  await until(() => gateway.bodies("waiting").length);
  await pause(600);
  answer("sent");
  await until(() => gateway.bodies("result").length);
  assert.deepEqual(gateway.bodies("waiting"), [{ claimId: "k" }]);
});

test("the tool of this page fits what the gateway asks of a tool", () => {
  assert.match(themeTool.name, /^[A-Za-z0-9_.-]{1,128}$/);
  assert.deepEqual(fieldsOf(themeTool.parameters).map(({ name, kind }) => [name, kind]), [["theme", "choice"]]);
});

test("a message for people is cut where the gateway would refuse it", async () => {
  const gateway = fakeGateway();
  const execute = async (_, { waitingForUser }) => waitingForUser("😀".repeat(2000));
  gateway.pageTools.register({ name: "page.x", execute });
  gateway.pageTools.handle(requested(), "r");
  await until(() => gateway.bodies("result").length);
  assert.equal(gateway.bodies("waiting")[0].message, "😀".repeat(1000));
});

const TALK = [
  { type: "RUN_STARTED", runId: "r", threadId: "th" },
  { type: "REASONING_MESSAGE_START", messageId: "m1", role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "m1", delta: "Hm." },
  { type: "STATE_SNAPSHOT", snapshot: { stage: "asked", list: [1] } },
  { type: "TEXT_MESSAGE_START", messageId: "m2", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: "Wait" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: " …" },
  { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "t" },
  { type: "STATE_DELTA", delta: [{ op: "replace", path: "/stage", value: "done" }, { op: "add", path: "/list/-", value: 2 }] },
  { type: "STATE_DELTA", delta: [{ op: "remove", path: "/nothing" }] },
  { type: "TEXT_MESSAGE_START", messageId: "m3", role: "assistant" },
  { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ id: "q", reason: "input_required", message: "Yes?" }] } },
];

test("what an agent says, thinks and calls is kept in its order, and so is its state", () => {
  const state = fold(all(TALK), TALK);
  assert.deepEqual(
    state.parts.map(({ role, name, text }) => [role ?? name, text]),
    [["reasoning", "Hm."], ["assistant", "Wait …"], ["t", undefined], ["assistant", ""], ["agent", undefined]],
  );
  assert.deepEqual(state.agentState, { stage: "done", list: [1, 2] }, "a patch that does not fit changes nothing");
  assert.deepEqual(interruptsOf(state).map(({ message }) => message), ["Yes?"]);
});

test("a conversation ends before the run that is shown", () => {
  const state = fold(all(TALK), TALK);
  const user = { id: "u", role: "user", content: "hi" };
  const ofCall = { id: "a", role: "assistant", toolCalls: [{ id: "c", function: { name: "t" } }] };
  const later = { id: "u2", role: "user", content: "more" };
  for (const first of [{ id: "m1", role: "reasoning" }, { id: "m2", role: "assistant" }, ofCall, { role: "tool", toolCallId: "c" }]) {
    assert.deepEqual(messagesBefore([user, first, later], state), [user]);
  }
  assert.deepEqual(messagesBefore([user], state), [user]);
});

test("of messages a person reads texts, and which tools were used", () => {
  const parts = [{ type: "text", text: "Look:" }, { type: "image" }];
  assert.deepEqual(linesOf({ role: "user", content: parts }), [{ role: "user", text: "Look:" }]);
  const toolCalls = [{ id: "c", function: { name: "t" } }];
  assert.deepEqual(linesOf({ role: "assistant", toolCalls }), [{ role: "used", text: "used t" }]);
  assert.deepEqual([{ role: "tool", content: "x" }, { role: "reasoning", content: "x" }].flatMap(linesOf), []);
});

test("a patch is applied as RFC 6902 has it", () => {
  const before = { a: { b: [1, 2] }, "x/y~": 1 };
  const cases = [
    [{ op: "add", path: "/a/b/1", value: 9 }, { a: { b: [1, 9, 2] }, "x/y~": 1 }],
    [{ op: "add", path: "/a/b/-", value: 9 }, { a: { b: [1, 2, 9] }, "x/y~": 1 }],
    [{ op: "add", path: "/c", value: { d: 1 } }, { ...before, c: { d: 1 } }],
    [{ op: "remove", path: "/a/b/0" }, { a: { b: [2] }, "x/y~": 1 }],
    [{ op: "replace", path: "/x~1y~0", value: 2 }, { a: { b: [1, 2] }, "x/y~": 2 }],
    [{ op: "replace", path: "/a/b/0", value: 5 }, { a: { b: [5, 2] }, "x/y~": 1 }],
    [{ op: "replace", path: "", value: [1] }, [1]],
    [{ op: "move", from: "/a/b", path: "/b" }, { a: {}, b: [1, 2], "x/y~": 1 }],
    [{ op: "copy", from: "/a/b/0", path: "/a/b/-" }, { a: { b: [1, 2, 1] }, "x/y~": 1 }],
    [{ op: "test", path: "/a/b/1", value: 2 }, before],
  ];
  for (const [operation, after] of cases) assert.deepEqual(patched(before, [operation]), after, JSON.stringify(operation));
  const wrong = [
    { op: "remove", path: "/c" },
    { op: "replace", path: "/a/b/2", value: 1 },
    { op: "add", path: "/a/b/3", value: 1 },
    { op: "add", path: "/a/b/x", value: 1 },
    { op: "add", path: "/c/d", value: 1 },
    { op: "add", path: "/x~1y~0/z", value: 1 },
    { op: "move", from: "/c", path: "/d" },
    { op: "test", path: "/a/b/1", value: 3 },
    { op: "add", path: "/__proto__/x", value: 1 },
    { op: "merge", path: "/a" },
  ];
  for (const operation of wrong) assert.throws(() => patched(before, [operation]), RangeError, JSON.stringify(operation));
  assert.deepEqual(before, { a: { b: [1, 2] }, "x/y~": 1 });
});
