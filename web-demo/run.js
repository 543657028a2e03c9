// One run as this page follows it: the connection to its events, and the state they add up to.

import { ApiError, eventsAddress, getRun, refusal, stopCall, stopRun } from "./api.js";
import { createState, isOver, receive } from "./state.js";

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;

export class Run {
  /**
   * `onChange` is called after every change, up to thousands of times a second: it must only take a note.
   * `ticket`: the run is somebody else's and can only be read.
   */
  constructor(runId, onChange, ticket = null) {
    this.runId = runId;
    this.ticket = ticket;
    this.state = createState(runId);
    this.connection = "connecting";
    this.reconnects = 0;
    this.problem = null;
    this.gone = false;
    this.stopAsked = false;
    this.callsAsked = new Set();
    this.onChange = onChange;
    this.source = null;
    this.timer = null;
    this.retryMs = FIRST_RETRY_MS;
  }

  get over() {
    return isOver(this.state.status);
  }

  /** Follow the run from its first event (what was seen already is ignored by its id). */
  open(after = 0) {
    this.close();
    const source = new EventSource(eventsAddress(this.runId, after, this.ticket));
    this.source = source;
    source.onopen = () => this.#connected();
    source.onmessage = (message) => this.#take(message);
    source.onerror = () => this.#lost(source);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  async stop() {
    this.stopAsked = true;
    const arrived = await this.#ask(() => stopRun(this.runId));
    if (!arrived) this.stopAsked = false;
    this.onChange();
  }

  /** Ends one call; the others and the run go on. */
  async stopCall(callId) {
    this.callsAsked.add(callId);
    const arrived = await this.#ask(() => stopCall(this.runId, callId));
    if (!arrived) this.callsAsked.delete(callId);
    this.onChange();
  }

  async #ask(stop) {
    this.problem = null;
    this.onChange();
    try {
      await stop();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.problem = `Stop did not arrive: ${error.message}`;
      return false;
    }
  }

  #connected() {
    this.connection = "open";
    this.retryMs = FIRST_RETRY_MS;
    this.problem = null;
    this.onChange();
  }

  #take(message) {
    receive(this.state, Number(message.lastEventId), message.data);
    if (this.over) {
      // The stream ends here; without this the EventSource would come back and ask for more.
      this.close();
      this.connection = "closed";
    }
    this.onChange();
  }

  #lost(source) {
    if (source !== this.source) return;
    this.connection = "reconnecting";
    this.reconnects += 1;
    this.onChange();
    // While it is CONNECTING the browser comes back by itself, with Last-Event-ID. CLOSED means it was refused.
    if (source.readyState === EventSource.CLOSED) this.#findOut();
  }

  async #findOut() {
    this.close();
    try {
      await getRun(this.runId, this.ticket);
    } catch (error) {
      return this.#refused(error);
    }
    const error = await refusal(this.runId, this.ticket);
    return error ? this.#refused(error) : this.#later();
  }

  #refused(error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 410 && error.details?.firstEventId > this.state.lastId) {
      // The oldest events have left the store: go on with what there is, and let the gap be seen.
      this.open(error.details.firstEventId - 1);
    } else if (error.temporary) {
      this.#later();
    } else {
      this.connection = "closed";
      this.gone = error.status === 404;
      this.problem = this.gone ? this.#whyGone() : `Cannot follow this run: ${error.message}`;
      this.onChange();
    }
  }

  #whyGone() {
    if (this.ticket === null) return "The gateway does not keep this run any more, or it belongs to somebody else.";
    return "This link does not work, or does not work any more: the run may be forgotten. Ask for a new link.";
  }

  #later() {
    this.timer = setTimeout(() => this.open(this.state.lastId), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, LAST_RETRY_MS);
  }
}
