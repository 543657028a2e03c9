// What the page makes of a stream and of a schema. Run by test_page.py beside a copy of the page's modules.

import assert from "node:assert/strict";
import test from "node:test";

import { argumentsOf, display, fieldsOf, parse } from "./fields.js";
import { errorsByField } from "./form.js";
import { renewed } from "./runlist.js";
import { callsInput } from "./several.js";
import { createState, LOG_ROWS, ownCalls, receive } from "./state.js";
import { toolsText } from "./words.js";

const custom = (name, value) => ({ type: "CUSTOM", timestamp: 5, name, value: { toolCallId: "c", toolName: "t", ...value } });

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
  custom("tool.result", { status: "cancelled", content: [{ type: "text", text: "no" }], isError: true, durationMs: 7 }),
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
  const nested = custom("tool.result", { toolCallId: "c/1", toolName: "inner", status: "completed" });
  const state = fold([1, 2, 3], [...RUN.slice(0, 2), nested]);
  assert.deepEqual([...state.calls.keys()], ["c", "c/1"]);
  assert.deepEqual(ownCalls(state).map((call) => call.id), ["c"]);
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
