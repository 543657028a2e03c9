// The runs of this tab, so that a reload finds them again: in the address (the one shown) and in the session storage.

const RUNS = "agui-gateway.runs";
const JOBS = "agui-gateway.jobs";
const THREAD = "agui-gateway.thread";
const TALKS = "agui-gateway.talks";
const KEPT = 20;

/** A UUID; also where `crypto.randomUUID` is missing, which is on plain http beyond loopback. */
export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** The thread of this tab: all its runs of tools belong together. */
export function threadId() {
  const known = read(THREAD);
  if (typeof known === "string") return known;
  const created = newId();
  write(THREAD, created);
  return created;
}

/** The thread of this tab's conversation with an agent, `null` before it has begun. */
export const talkThread = (agent) => talkThreads().get(agent) ?? null;

export const rememberTalk = (agent, thread) => write(TALKS, Object.fromEntries(talkThreads().set(agent, thread)));

const talkThreads = () => new Map(Object.entries(read(TALKS) ?? {}));

/** `[{runId, tool, agent, startedAt}]`, newest first; `agent` is missing where a tool was run. */
export function rememberedRuns() {
  const runs = read(RUNS);
  return Array.isArray(runs) ? runs : [];
}

export function rememberRun(runId, tool, agent) {
  const others = rememberedRuns().filter((run) => run.runId !== runId);
  write(RUNS, [{ runId, tool, agent, startedAt: Date.now() }, ...others].slice(0, KEPT));
}

export function forgetRun(runId) {
  write(RUNS, rememberedRuns().filter((run) => run.runId !== runId));
}

/** The ids of the background jobs that this tab has seen, newest first. */
export function rememberedJobs() {
  const jobs = read(JOBS);
  return Array.isArray(jobs) ? jobs : [];
}

export function rememberJob(runId) {
  const known = rememberedJobs();
  if (!known.includes(runId)) write(JOBS, [runId, ...known].slice(0, KEPT));
}

/** What the address shows: `{run, ticket, tool, agent}`, each a string or `null`; a ticket reads somebody else's run. */
export function shown() {
  const hash = new URLSearchParams(location.hash.slice(1));
  return { run: hash.get("run"), ticket: hash.get("ticket"), tool: hash.get("tool"), agent: hash.get("agent") };
}

/** The address with which somebody else can watch a run. */
export const shareLink = (run, ticket) => `${location.href.split("#")[0]}#${new URLSearchParams({ run, ticket })}`;

/** Changes the address; a run gets an entry of its own, so that Back shows the run before it. */
export function show({ run, ticket, tool, agent }) {
  const hash = new URLSearchParams(Object.entries({ run, ticket, tool, agent }).filter(([, value]) => value));
  if (`#${hash}` === location.hash) return;
  if (run && run !== shown().run) history.pushState(null, "", `#${hash}`);
  else history.replaceState(null, "", `#${hash}`);
}

function read(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null; // storage is switched off, or holds something else
  }
}

function write(key, value) {
  try {
    sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Full or switched off: the address still names the run that is shown.
  }
}
