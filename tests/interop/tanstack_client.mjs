// TanStack's `fetchServerSentEvents` and `ChatClient` read a run of one tool; prints what they made of it as one line of
// JSON.
//
//   node tanstack_client.mjs '{"url": …, "mode": "join" | "connect" | "chat", "runId": …, "tool"?: …, "arguments"?: {…},
//                              "cutAfter"?: BYTES}'
//
// `join` uses the adapter as it is. The other two replace the body of its request, for TanStack speaks to agents; with
// `cutAfter` the network fails once after so many bytes of the first answer.

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";

const task = JSON.parse(process.argv[2]);
const seen = { console: [], requests: [], chunks: [], customs: [] };
for (const level of ["log", "info", "debug", "warn", "error", "trace"]) {
  console[level] = (...parts) => seen.console.push([level, parts.map(String).join(" ")]);
}

function cut(response, after) {
  let left = after;
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      controller.enqueue(value.subarray(0, left));
      left -= value.length;
      if (left > 0) return;
      await reader.cancel();
      controller.error(new TypeError("network error"));
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

async function fetchClient(url, init) {
  const headers = new Headers(init.headers);
  const request = { method: init.method, url: String(url).slice(task.url.length), lastEventId: headers.get("last-event-id") };
  seen.requests.push(request);
  let body = init.body;
  if (init.method === "POST") {
    const { threadId, runId } = JSON.parse(init.body);
    body = JSON.stringify({ threadId, runId, arguments: task.arguments ?? {} });
  }
  const response = await fetch(url, { ...init, body });
  request.status = response.status;
  return task.cutAfter && seen.requests.length === 1 ? cut(response, task.cutAfter) : response;
}

const options = { fetchClient, reconnect: { delayMs: 1 } };

async function join() {
  const connection = fetchServerSentEvents(`${task.url}/runs/${task.runId}/events`, options);
  for await (const chunk of connection.joinRun(task.runId)) seen.chunks.push(chunk);
}

async function connect() {
  const connection = fetchServerSentEvents(`${task.url}/tools/${task.tool}`, options);
  const context = { threadId: "thread-1", runId: task.runId };
  for await (const chunk of connection.connect([], {}, undefined, context)) seen.chunks.push(chunk);
}

async function chat() {
  const client = new ChatClient({
    threadId: "thread-1",
    connection: fetchServerSentEvents(`${task.url}/tools/${task.tool}`, options),
    onChunk: (chunk) => seen.chunks.push(chunk),
    onCustomEvent: (name, value, context) => seen.customs.push({ name, value, context }),
    onError: (error) => (seen.error = String(error)),
  });
  await client.sendMessage("run it");
  Object.assign(seen, { messages: client.getMessages(), status: client.getStatus() });
}

await { join, connect, chat }[task.mode]();
process.stdout.write(JSON.stringify(seen) + "\n");
