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

export const address = (path) => new URL(path, new URL(".", document.baseURI)).href;

const runPath = (runId, rest = "") => `runs/${encodeURIComponent(runId)}${rest}`;

export const eventsAddress = (runId, after) =>
  address(runPath(runId, "/events") + (after ? `?lastEventId=${after}` : ""));

export const stopAddress = (runId) => address(runPath(runId, "/stop"));

export const toolAddress = (name) => address(`tools/${encodeURIComponent(name)}`);

export const listTools = async () => (await request("tools")).items;

export const getRun = (runId) => request(runPath(runId));

export const stopRun = (runId) => request(runPath(runId, "/stop"), { method: "POST" });

/** This session's latest runs, newest first. */
export async function listRuns() {
  try {
    return (await request("runs?limit=20")).items ?? [];
  } catch (error) {
    // The list is a convenience: the page also remembers the runs of this tab.
    if (error instanceof ApiError) return [];
    throw error;
  }
}

/** Starts a run and returns its record. Sent again when there was no answer: the run id makes that safe. */
export async function startRun(tool, body) {
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/json", Prefer: "respond-async" },
    body: JSON.stringify(body),
  };
  try {
    return await request(`tools/${encodeURIComponent(tool)}`, options);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 0) throw error;
    return request(`tools/${encodeURIComponent(tool)}`, options);
  }
}

/** Why the gateway refuses to stream a run, which an EventSource does not tell; `null` when it does not refuse. */
export async function refusal(runId) {
  const leaving = new AbortController();
  try {
    const response = await send(runPath(runId, "/events"), { signal: leaving.signal });
    return response.ok ? null : await failure(response);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  } finally {
    leaving.abort();
  }
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
  } catch {
    // A proxy's own error page: the status is all there is to say.
  }
  const message = error.message || `The gateway answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, error.code ?? "unknown", message, error.details);
}
