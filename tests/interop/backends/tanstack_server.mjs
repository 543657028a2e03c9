// An agent of TanStack AI: `chat()` behind the route that its documentation gives; `POST /agent`, `/durable` with its log,
// which outlives the caller, or `/lines` as lines of JSON. The model is a script, that of script.py; `delete` is missing.
// The first line on stdout is the address; `GET /seen` answers as watched.py says.

import { createServer } from "node:http";
import { Readable } from "node:stream";

import {
  chat, chatParamsFromRequest, memoryStream, mergeAgentTools, toHttpResponse, toolDefinition, toServerSentEventsResponse,
} from "@tanstack/ai";

const requests = [];
const notes = [];
const CALLS = {
  count: [["count", { to: 2 }]],
  "count at once": [["count", { to: 2 }]],
  look: [["look", {}]],
  both: [["look", {}], ["count", { to: 2 }]],
  remove: [["remove", { path: "/a" }]],
};

/** What the model says next: pieces of text and calls; after the text nothing more for ever, or an error. */
function nextTurn(messages) {
  const said = messages.filter(({ role }) => role === "user").map(({ content }) => content);
  const last = messages.findLastIndex(({ role }) => role === "user");
  const results = messages.slice(last).filter(({ role }) => role === "tool").map(({ content }) => content);
  const asked = said.at(-1);
  if (asked === "recall") return { text: [said.join(" / ")] };
  if (asked === "wait") return { text: ["Well"], waits: true };
  if (asked === "fail") return { text: ["Well"], fails: true };
  if (!CALLS[asked]) return { text: ["Hel", "lo ", "there."] };
  return results.length ? { text: ["It says ", results.join(" and ")] } : { calls: CALLS[asked], whole: asked === "count at once" };
}

const forEver = (signal) =>
  new Promise((_, reject) => {
    signal.addEventListener("abort", () => {
      notes.push("closed");
      reject(signal.reason);
    });
  });

async function* speak({ messages, threadId, runId, request }) {
  const { text = [], calls = [], whole = false, waits = false, fails = false } = nextTurn(messages);
  const messageId = crypto.randomUUID();
  yield { type: "RUN_STARTED", threadId, runId };
  if (text.length) {
    yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    for (const delta of text) yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    if (waits) await forEver(request.signal);
    if (fails) throw new Error("The model is gone.");
    yield { type: "TEXT_MESSAGE_END", messageId };
  }
  for (const [toolCallName, given] of calls) {
    const toolCallId = crypto.randomUUID();
    const json = JSON.stringify(given);
    yield { type: "TOOL_CALL_START", toolCallId, toolCallName };
    for (const delta of whole ? [json] : [json.slice(0, 4), json.slice(4)]) yield { type: "TOOL_CALL_ARGS", toolCallId, delta };
    yield { type: "TOOL_CALL_END", toolCallId };
  }
  yield { type: "RUN_FINISHED", threadId, runId, metadata: { tanstack: { finishReason: calls.length ? "tool_calls" : "stop" } } };
}

const adapter = { kind: "text", name: "script", model: "script", "~types": {}, chatStream: speak };

const look = toolDefinition({ name: "look", description: "Looks around.", inputSchema: { type: "object" } }).server(
  (_, context) => {
    context.emitCustomEvent("backend.looked", { at: "the room" });
    return "a room";
  },
);

async function run(path, request) {
  const durability = path === "/durable" ? { adapter: memoryStream(request) } : undefined;
  const { messages, tools, threadId, runId, parentRunId, resume } = await chatParamsFromRequest(request);
  const abortController = new AbortController();
  const stream = chat({
    adapter, messages, threadId, runId, parentRunId, resume, abortController, tools: mergeAgentTools([look], tools),
  });
  return (path === "/lines" ? toHttpResponse : toServerSentEventsResponse)(stream, { abortController, durability });
}

const server = createServer(async (incoming, outgoing) => {
  const answer = (response) => {
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    const body = Readable.fromWeb(response.body);
    outgoing.on("close", () => body.destroy());
    body.on("error", () => outgoing.destroy());
    body.pipe(outgoing);
  };
  if (incoming.url === "/seen") return answer(Response.json({ requests, notes }));
  let body = "";
  for await (const piece of incoming.setEncoding("utf8")) body += piece;
  const seen = { headers: incoming.headers, body: JSON.parse(body), ended: null };
  requests.push(seen);
  outgoing.on("finish", () => (seen.ended = "complete"));
  outgoing.on("close", () => (seen.ended ??= "left"));
  // What is no request for an agent it throws as the answer to that.
  const headers = { "x-run-id": seen.body.runId };
  const request = new Request("http://127.0.0.1/agent", { method: "POST", body, headers });
  answer(await run(incoming.url, request).catch((refusal) => refusal));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
