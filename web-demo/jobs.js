// The background jobs of this session: calls that were moved out of their runs, in whichever tab. The gateway's list of
// runs has them; how far they are is read from the end of their streams, since a browser holds few streams open.

import { ApiError, getRun, listRuns, pastEvents } from "./api.js";
import { rememberedJobs, rememberJob } from "./history.js";
import { isOver } from "./state.js";

/** Events at the end of a stream in which progress is looked for. */
const LOOK_BACK = 200;

/** Jobs that are over stay for a while: so many. */
const KEPT = 5;

const MOST = 100;

export class Jobs {
  constructor() {
    /** `{record, progress}`, those at work first, newest first. */
    this.items = [];
    this.parents = new Map();
    this.progress = new Map();
    /** Records of jobs that are over and no longer in the list; `null` for one that is kept no more. */
    this.over = new Map();
    this.last = Promise.resolve();
  }

  get atWork() {
    return this.items.filter(({ record }) => !isOver(record.status));
  }

  has(runId) {
    return this.items.some(({ record }) => record.runId === runId);
  }

  /** `listed`: the records of the newest runs, as just read; `complete`: there are no others. One look at a time. */
  refresh(listed, complete) {
    const done = this.last.then(() => this.#look(listed, complete));
    this.last = done.catch(() => {}); // told to whoever waits for `done`
    return done;
  }

  async #look(listed, complete) {
    try {
      const records = await this.#withSeen(complete ? listed : await this.#withOlder(listed));
      await this.#findParents(records);
      const jobs = jobsOf(records, [...this.parents.values()], rememberedJobs());
      for (const { runId } of jobs) rememberJob(runId);
      for (const record of jobs) if (!isOver(record.status)) await this.#readProgress(record);
      this.items = jobs.map((record) => ({ record, progress: this.progress.get(record.runId)?.value ?? null }));
    } catch (error) {
      // Shown is what was known before; the next look comes soon.
      if (!(error instanceof ApiError)) throw error;
    }
  }

  /** A job may be at work longer than the newest page of the list goes back. */
  async #withOlder(listed) {
    const pages = await Promise.all(["running", "waiting", "stopping"].map((status) => listRuns(MOST, null, status)));
    const known = new Set(listed.map(({ runId }) => runId));
    return [...listed, ...pages.flatMap(({ items }) => items).filter(({ runId }) => !known.has(runId))];
  }

  /** Without a session the list is empty, and one that has ended may be too old for it: this tab remembers them. */
  async #withSeen(records) {
    const known = new Set(records.map(({ runId }) => runId));
    const seen = [];
    for (const runId of rememberedJobs().filter((id) => !known.has(id))) {
      const record = this.over.has(runId) ? this.over.get(runId) : await found(runId);
      if (record === null || isOver(record.status)) this.over.set(runId, record);
      if (record !== null) seen.push(record);
    }
    return [...records, ...seen];
  }

  async #findParents(records) {
    for (const record of records) if (record.toolCalls.some((call) => call.detachedRunId)) this.parents.set(record.runId, record);
    const known = new Set([...records.map(({ runId }) => runId), ...this.parents.keys()]);
    for (const { parentRunId } of records) {
      if (!parentRunId || known.has(parentRunId)) continue;
      known.add(parentRunId);
      this.parents.set(parentRunId, await found(parentRunId));
    }
  }

  async #readProgress({ runId, lastEventId }) {
    const { value = null, seen = 0 } = this.progress.get(runId) ?? {};
    if (seen >= lastEventId) return;
    const events = await pastEvents(runId, Math.max(seen, lastEventId - LOOK_BACK), lastEventId);
    const last = events.findLast((event) => event.name === "tool.progress" && !event.metadata?.parentToolCallId);
    this.progress.set(runId, { value: last?.value ?? value, seen: lastEventId });
  }
}

/** The records that are background jobs: a call of their parent became this run, or this tab saw it (`ids`). */
export function jobsOf(records, parents, ids) {
  const detached = new Set(ids);
  for (const parent of [...records, ...parents]) {
    for (const { detachedRunId } of parent?.toolCalls ?? []) if (detachedRunId) detached.add(detachedRunId);
  }
  const jobs = records.filter(({ runId }) => detached.has(runId));
  const atWork = jobs.filter(({ status }) => !isOver(status));
  const over = jobs.filter(({ status }) => isOver(status));
  return [...atWork.sort(newestFirst), ...over.sort(newestFirst).slice(0, KEPT)];
}

const newestFirst = (one, other) => Date.parse(other.createdAt) - Date.parse(one.createdAt);

/** The record of a run, `null` when it is kept no more. */
async function found(runId) {
  try {
    return await getRun(runId);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
