// TanStack's `ChatClient` as the person: each interrupt of the run is resolved through the binding that came with it.
// Prints what it held as one line of JSON.
//
//   node tanstack_interrupts.mjs '{"url": …, "tool": …, "arguments": {…}, "answers": {KEY: payload}}'
//
// KEY is the tool's own name for its question (`metadata.key`). The first body is replaced, for `/tools` is no agent; of
// the following ones everything that the client says about the interrupt goes through.

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";

const task = JSON.parse(process.argv[2]);
const seen = { console: [], requests: [], kinds: [], customs: [], error: null };
for (const level of ["log", "info", "debug", "warn", "error", "trace"]) {
  console[level] = (...parts) => seen.console.push([level, parts.map(String).join(" ")]);
}

async function fetchClient(url, init) {
  const { threadId, runId, parentRunId, resume } = JSON.parse(init.body);
  const body = resume ? { threadId, runId, parentRunId, resume } : { threadId, runId, arguments: task.arguments };
  seen.requests.push(body);
  return fetch(url, { ...init, body: JSON.stringify(body) });
}

const client = new ChatClient({
  threadId: crypto.randomUUID(),
  connection: fetchServerSentEvents(`${task.url}/tools/${task.tool}`, { fetchClient }),
  onCustomEvent: (name, value) => seen.customs.push({ name, value }),
  onError: (error) => (seen.error = String(error)),
});
await client.sendMessage("run it");
for (let round = 0; client.getInterrupts().length > 0 && round < 5; round += 1) {
  const before = seen.requests.length;
  for (const interrupt of client.getInterrupts()) {
    seen.kinds.push(interrupt.kind);
    interrupt.resolveInterrupt(task.answers[interrupt.metadata.key]);
  }
  while (seen.requests.length === before || client.getIsLoading()) await new Promise((resolve) => setTimeout(resolve, 5));
}
Object.assign(seen, { messages: client.getMessages(), status: client.getStatus() });
process.stdout.write(JSON.stringify(seen) + "\n");
