// One official HttpAgent and a tool that asks the person: run after run, each resuming what the one before has asked,
// with the client's own helpers. Prints what it held after each run as one line of JSON.
//
//   node interrupts.mjs '{"url": …, "session": …, "threadId": …, "agent"?: …, "add": […messages], "answers": [{KEY: {status, payload?}}, …]}'
//
// KEY is the tool's own name for its question (`metadata.key`), the id of the call that waits for an approval, or that
// of a question that an agent asks itself; `any` answers what has no other answer. The agent is `tools` if none is named.

import { buildResumeArray, HttpAgent, isInterruptExpired } from "@ag-ui/client";

const task = JSON.parse(process.argv[2]);
const seen = { console: [], runs: [] };

for (const level of ["log", "info", "debug", "warn", "error", "trace"]) {
  console[level] = (...parts) => seen.console.push([level, parts.map(String).join(" ")]);
}

const agent = new HttpAgent({
  url: `${task.url}/agents/${task.agent ?? "tools"}`,
  threadId: task.threadId,
  headers: { "X-Session-Id": task.session },
});
agent.addMessages(task.add);

async function run(parameters) {
  const shown = { events: [], outcome: null, rejected: null };
  try {
    await agent.runAgent(parameters, {
      onEvent: ({ event }) => void shown.events.push(structuredClone(event)),
      onRunFinishedEvent: ({ outcome }) => void (shown.outcome = outcome),
    });
  } catch (error) {
    shown.rejected = { status: error.status, message: error.message };
  }
  shown.pending = structuredClone(agent.pendingInterrupts);
  shown.expired = agent.pendingInterrupts.map((interrupt) => isInterruptExpired(interrupt));
  shown.messages = structuredClone(agent.messages);
  seen.runs.push(shown);
}

await run({});
for (const answers of task.answers) {
  const given = {};
  for (const interrupt of agent.pendingInterrupts) {
    given[interrupt.id] = answers[interrupt.metadata?.key ?? interrupt.toolCallId ?? interrupt.id] ?? answers.any;
  }
  await run({ resume: buildResumeArray(agent.pendingInterrupts, given) });
}
process.stdout.write(JSON.stringify(seen) + "\n");
