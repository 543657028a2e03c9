// This session's runs, as the gateway lists them: the newest are asked for again and again, older ones a page at a time.

import { ApiError, listRuns } from "./api.js";

const PAGE = 20;

/** Asked for at once; beyond that, older runs keep what was last said of them. */
const MOST = 100;

export class RunList {
  constructor() {
    this.records = [];
    this.next = null;
    this.last = Promise.resolve();
  }

  has(runId) {
    return this.records.some((record) => record.runId === runId);
  }

  /** The id of the run that went on where this one had asked something; its background jobs are no such runs. */
  resumedBy(runId) {
    const jobs = this.records.find((record) => record.runId === runId)?.toolCalls.map((call) => call.detachedRunId) ?? [];
    const next = this.records.find((record) => record.parentRunId === runId && !jobs.includes(record.runId));
    return next?.runId ?? null;
  }

  refresh() {
    return this.#afterwards(async () => {
      const limit = Math.min(MOST, Math.max(PAGE, this.records.length));
      Object.assign(this, renewed(this, await listRuns(limit)));
    });
  }

  more() {
    return this.#afterwards(async () => {
      if (this.next === null) return;
      const page = await listRuns(PAGE, this.next);
      this.records = [...this.records, ...page.items.filter((record) => !this.has(record.runId))];
      this.next = page.next;
    });
  }

  /** One at a time: an answer that comes late must not undo a newer one. */
  #afterwards(change) {
    const done = this.last.then(change).catch((error) => {
      // The list is a convenience: the page also remembers the runs of this tab.
      if (!(error instanceof ApiError)) throw error;
    });
    this.last = done.catch(() => {}); // told to whoever waits for `done`; the next one begins anew
    return done;
  }
}

/** `{records, next}` after the newest page `{items, next}`: what follows its last run in `known` is still there. */
export function renewed(known, page) {
  const last = page.next === null ? -1 : known.records.findIndex(({ runId }) => runId === page.items.at(-1)?.runId);
  const older = last < 0 ? [] : known.records.slice(last + 1);
  return { records: [...page.items, ...older], next: older.length > 0 ? known.next : page.next };
}
