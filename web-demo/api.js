// The gateway's HTTP API. All addresses are relative to the page, since the gateway may be mounted below any path.

/** A request that failed: `status` is 0 when there was no answer at all. */
export class ApiError extends Error {
  constructor(status, code, message, details) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  /** Worth trying again: no answer, too busy, or a server in trouble. */
  get temporary() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** The built-in agent: it runs tools. */
export const TOOLS_AGENT = "tools";

export const address = (path) => new URL(path, new URL(".", document.baseURI)).href;

const runPath = (runId, rest = "") => `runs/${encodeURIComponent(runId)}${rest}`;

const withQuery = (path, values) => {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
  return query ? `${path}?${query}` : path;
};

/** `ticket`: what a share link carries, for a run of somebody else. */
export const eventsAddress = (runId, after, ticket) =>
  address(withQuery(runPath(runId, "/events"), { lastEventId: after, ticket }));

export const stopAddress = (runId) => address(runPath(runId, "/stop"));

export const toolAddress = (name) => address(`tools/${encodeURIComponent(name)}`);

export const listTools = async () => (await request("tools")).items;

/** The agents but for the built-in one, which runs calls: `[{name, description}]`. */
export const listAgents = async () => (await request("agents")).items.filter(({ name }) => name !== TOOLS_AGENT);

/** The messages of a conversation, as AG-UI has them; none where the gateway knows none. */
export async function messagesOf(threadId) {
  try {
    return (await request(`threads/${encodeURIComponent(threadId)}`)).messages;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  }
}

export const getRun = (runId, ticket) => request(withQuery(runPath(runId), { ticket }));

export const stopRun = (runId) => request(runPath(runId, "/stop"), { method: "POST" });

const callPath = (runId, callId, rest) => runPath(runId, `/tool-calls/${encodeURIComponent(callId)}${rest}`);

export const stopCall = (runId, callId) => request(callPath(runId, callId, "/stop"), { method: "POST" });

/** Moves a call to the background and returns the id of the run in which it goes on there. */
export const detachCall = async (runId, callId) =>
  (await request(callPath(runId, callId, "/detach"), { method: "POST" })).runId;

/** Answers an open question: `{interruptId, status, payload?}`. */
export const answerQuestion = (runId, answer) => request(runPath(runId, "/input"), posting(answer));

/** A ticket with which anybody may read this run, and do nothing else. */
export const shareTicket = async (runId) =>
  (await request(runPath(runId, "/ticket"), posting({ use: "share" }))).ticket;

/** A page of this session's runs, newest first: `{items, next}`; `next` is the `after` of the page that follows. */
export const listRuns = (limit, after, status) => request(withQuery("runs", { limit, after, status }));

/** Starts a run of one call, or goes on with one. */
export const startRun = (tool, body) =>
  sendUntilAnswered(`tools/${encodeURIComponent(tool)}`, posting(body, { Prefer: "respond-async" }));

/** Starts a run of an agent with `body`, a RunAgentInput; the built-in one runs the calls of its last message. */
export const startAgent = (agent, body) => sendUntilAnswered(`agents/${encodeURIComponent(agent)}`, posting(body));

export const startCalls = (body) => startAgent(TOOLS_AGENT, body);

/** Why the gateway refuses to stream a run, which an EventSource does not tell; `null` when it does not refuse. */
export async function refusal(runId, ticket) {
  const leaving = new AbortController();
  try {
    const response = await send(withQuery(runPath(runId, "/events"), { ticket }), { signal: leaving.signal });
    return response.ok ? null : await failure(response);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  } finally {
    leaving.abort();
  }
}

/** The events after one id up to another, which the gateway has already: no stream is held open for them. */
export async function pastEvents(runId, after, last) {
  const leaving = new AbortController();
  const events = [];
  try {
    const response = await send(withQuery(runPath(runId, "/events"), { lastEventId: after }), { signal: leaving.signal });
    if (!response.ok) throw await failure(response);
    if (response.status === 204) return events;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", id = after; id < last; ) {
      const { value, done } = await reader.read().catch(() => ({ done: true })); // cut: what came is enough
      if (done) break;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const [, number, data] = /^id: (\d+)\ndata: (.*)$/m.exec(frame) ?? [];
        if (number === undefined) continue;
        id = Number(number);
        events.push(JSON.parse(data));
      }
    }
    return events;
  } finally {
    leaving.abort();
  }
}

const posting = (body, headers = {}) => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});

/** Sends once more when there was no answer: the run id makes that safe. What is answered is not read. */
async function sendUntilAnswered(path, options) {
  let response;
  try {
    response = await send(path, options);
  } catch {
    response = await send(path, options);
  }
  if (!response.ok) throw await failure(response);
  // An agent answers with the stream itself: leaving it ends nothing, and the page follows in its own way.
  await response.body?.cancel();
}

async function request(path, options) {
  const response = await send(path, options);
  if (!response.ok) throw await failure(response);
  return response.json();
}

async function send(path, options = {}) {
  try {
    return await fetch(address(path), { cache: "no-store", ...options });
  } catch {
    throw new ApiError(0, "no_answer", "The gateway does not answer. Is it still running?");
  }
}

async function failure(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
    // A refused detach has its sentence alone.
    if (typeof error === "string") error = { message: error };
  } catch {
    // A proxy's own error page: the status is all there is to say.
  }
  const message = error.message || `The gateway answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, error.code ?? "unknown", message, error.details);
}
