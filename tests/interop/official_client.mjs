// The official @ag-ui/client runs one tool, or an agent, and this prints what the client made of it as one line of JSON.
//
//   node official_client.mjs '{"url": …, "runId": …, "tool": …, "arguments"?: {…}, "request"?: {…}, "gate"?: FIFO,
//                              "onFirstCustom"?: "stop" | "abort"}'
//   node official_client.mjs '{"url": …, "runId": …, "agent": …, "messages": […], …}'
//
// For an agent HttpAgent is used as it is. For a tool so are its transport, its checks and its message building; only the
// body of the request is ours, by the method that HttpAgent has for that.

import { HttpAgent } from "@ag-ui/client";

const task = JSON.parse(process.argv[2]);
const seen = { console: [], events: [], firstCustom: null, gate: null, stop: null, rejected: null, failed: null };

for (const level of ["log", "info", "debug", "warn", "error", "trace"]) {
  console[level] = (...parts) => seen.console.push([level, parts.map(String).join(" ")]);
}
process.on("warning", (warning) => seen.console.push(["warning", String(warning)]));

class ToolAgent extends HttpAgent {
  requestInit(input) {
    const { threadId, runId } = input;
    const body = JSON.stringify({ arguments: task.arguments ?? {}, threadId, runId, ...task.request });
    return { ...super.requestInit(input), body };
  }
}

const post = (path, body) =>
  fetch(`${task.url}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });

/** What happens once the first custom event is here; a tool with a gate waits for it. */
async function atFirstCustom(runId) {
  const record = await (await fetch(`${task.url}/runs/${runId}`)).json();
  seen.firstCustom.run = record.status;
  seen.firstCustom.call = record.toolCalls?.[0]?.status;
  if (task.gate) {
    const answer = await post("/tools/open_gate", { arguments: { path: task.gate } });
    seen.gate = (await answer.json()).status;
  }
  if (task.onFirstCustom === "stop") seen.stop = (await post(`/runs/${runId}/stop`, {})).status;
  if (task.onFirstCustom === "abort") agent.abortRun();
}

const agent = task.agent
  ? new HttpAgent({ url: `${task.url}/agents/${task.agent}`, threadId: "thread-1", initialMessages: task.messages })
  : new ToolAgent({ url: `${task.url}/tools/${task.tool}`, threadId: "thread-1" });
const actions = [];
let customs = 0;
const subscriber = {
  onEvent({ event }) {
    seen.events.push(structuredClone(event));
  },
  onCustomEvent({ event, input }) {
    customs += 1;
    if (customs > 1) return;
    seen.firstCustom = { name: event.name, before: seen.events.map(({ type }) => type) };
    actions.push(atFirstCustom(input.runId));
  },
  onRunFinishedEvent({ outcome, event }) {
    seen.outcome = { name: outcome, wire: event.outcome };
  },
  onRunFailed({ error }) {
    seen.failed = String(error);
  },
};

try {
  const { result, newMessages } = await agent.runAgent({ runId: task.runId }, subscriber);
  Object.assign(seen, { result, newMessages });
} catch (error) {
  seen.rejected = { message: error.message, status: error.status, payload: error.payload };
}
await Promise.all(actions);
Object.assign(seen, { messages: agent.messages, pendingInterrupts: agent.pendingInterrupts });
process.stdout.write(JSON.stringify(seen) + "\n");
