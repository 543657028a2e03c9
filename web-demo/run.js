// One run as this page follows it: the connection to its events, and the state they add up to.

import {
  answerQuestion,
  ApiError,
  detachCall,
  eventsAddress,
  getRun,
  messagesOf,
  refusal,
  startAgent,
  startCalls,
  startRun,
  stopCall,
  stopRun,
  TOOLS_AGENT,
} from "./api.js";
import { agentInput } from "./input.js";
import { resumeOf } from "./questions.js";
import { createState, interruptsOf, isOver, receive } from "./state.js";

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;

export class Run {
  /**
   * `onChange` is called after every change, up to thousands of times a second: it must only take a note.
   * `ticket`: the run is somebody else's and can only be read. `onEvent(event, runId)` gets every event once.
   */
  constructor(runId, onChange, ticket = null, onEvent = () => {}) {
    this.runId = runId;
    this.ticket = ticket;
    this.state = createState(runId);
    this.connection = "connecting";
    this.reconnects = 0;
    this.problem = null;
    this.gone = false;
    this.stopAsked = false;
    this.callsAsked = new Set();
    this.callsMoved = new Set();
    this.answers = new Map(); // to what an interrupted run asks, until all are there
    this.refusals = new Map(); // of answers that were kept until then
    this.resumedBy = null;
    this.onChange = onChange;
    this.onEvent = onEvent;
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

  /** Its end was a question that nobody has answered yet: it may go on, or be stopped for good. */
  get asks() {
    return this.state.status === "interrupted" && this.resumedBy === null && interruptsOf(this.state).length > 0;
  }

  async stop() {
    this.stopAsked = true;
    const arrived = await this.#ask("Stop did not arrive", () => stopRun(this.runId));
    if (!arrived) this.stopAsked = false;
    if (arrived && this.over) await this.#checkInterrupts();
    this.onChange();
  }

  /** Ends one call; the others and the run go on. */
  async stopCall(callId) {
    this.callsAsked.add(callId);
    const arrived = await this.#ask("Stop did not arrive", () => stopCall(this.runId, callId));
    if (!arrived) this.callsAsked.delete(callId);
    this.onChange();
  }

  /** Moves one call to the background, where it goes on as a run of its own. */
  async detachCall(callId) {
    this.callsMoved.add(callId);
    await this.#ask("This call stays here", () => detachCall(this.runId, callId));
    this.callsMoved.delete(callId);
    this.onChange();
  }

  /**
   * Answers a question, and returns the id of the run that goes on where this one has ended with it, else `null`.
   * Throws an `ApiError` when the gateway does not take it.
   */
  async answer(question, status, payload) {
    const answer = { interruptId: question.id, status, ...(payload !== undefined && { payload }) };
    if (question.interrupt) return this.#resume(answer);
    try {
      await answerQuestion(this.runId, answer);
    } catch (error) {
      // Somebody was faster: the stream takes the question away in a moment.
      if (!(error instanceof ApiError && error.status === 409)) throw error;
    }
    return null;
  }

  /** The run goes on once all its questions have answers. */
  async #resume(answer) {
    this.answers.set(answer.interruptId, answer);
    this.onChange();
    const answers = interruptsOf(this.state).map(({ id }) => this.answers.get(id));
    if (answers.includes(undefined)) return null;
    try {
      this.resumedBy = await this.#goOn(answers);
    } catch (error) {
      this.#refusedAnswer(error, answer, answers);
      return null;
    }
    this.onChange();
    return this.resumedBy;
  }

  /** Starts the run that goes on with these answers, and returns its id. */
  async #goOn(answers) {
    const { agent } = await getRun(this.runId);
    const { threadId, agentState } = this.state;
    if (agent !== TOOLS_AGENT) {
      const more = { parentRunId: this.runId, resume: answers };
      const body = agentInput(threadId, await messagesOf(threadId), agentState, more);
      await startAgent(agent, body);
      return body.runId;
    }
    const { tool, body } = resumeOf(this.state, answers);
    await (tool === null ? startCalls(body) : startRun(tool, body));
    return body.runId;
  }

  /** The refusal may be about an answer that was given before the last one. */
  #refusedAnswer(error, last, answers) {
    const [, index] = /^resume\.(\d+)\./.exec(error.details?.[0]?.field) ?? [];
    const wrong = answers[index] ?? last;
    this.answers.delete(wrong.interruptId);
    if (wrong !== last) this.refusals.set(wrong.interruptId, error);
    this.onChange();
    if (wrong === last) throw error;
  }

  /** The stream says how the run has ended, the record what became of it since. */
  async #checkInterrupts() {
    try {
      const { status } = await getRun(this.runId);
      if (status === "interrupted") return;
      this.state.status = status;
      for (const { id, callId } of interruptsOf(this.state)) this.state.calls.get(callId).questions.delete(id);
      this.onChange();
    } catch (error) {
      // Then an answer will be refused.
      if (!(error instanceof ApiError)) throw error;
    }
  }

  async #ask(problem, request) {
    this.problem = null;
    this.onChange();
    try {
      await request();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.problem = `${problem}: ${error.message}`;
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
    const event = receive(this.state, Number(message.lastEventId), message.data);
    if (event) this.onEvent(event, this.runId);
    if (this.over) {
      // The stream ends here; without this the EventSource would come back and ask for more.
      this.close();
      this.connection = "closed";
      if (interruptsOf(this.state).length > 0 && this.ticket === null) this.#checkInterrupts();
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
