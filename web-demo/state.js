// What one run looks like, folded from its numbered events. No DOM, no clock, no network.

import { patched } from "./patch.js";

/** Rows of the log that are kept; what is older is only counted. */
export const LOG_ROWS = 500;

const FINAL = new Set(["completed", "cancelled", "interrupted", "failed"]);

const OUTCOMES = { success: "completed", cancelled: "cancelled", interrupt: "interrupted" };

export const isOver = (status) => FINAL.has(status);

export function createState(runId) {
  return {
    runId,
    threadId: null,
    parentRunId: null,
    status: "connecting",
    startedAt: null,
    endedAt: null,
    error: null,
    calls: new Map(),
    messages: new Map(), // what an agent has said and thought
    parts: [], // calls and messages, in the order in which they began
    agentState: undefined,
    log: [],
    logged: 0,
    lastId: 0,
    gaps: 0,
    repeats: 0,
    unreadable: 0,
  };
}

/**
 * Applies one message. An id seen before changes nothing but its count; a jump of the ids is counted as missing.
 * Returns the event, or `null` where there is none to act on.
 */
export function receive(state, id, data) {
  if (id <= state.lastId) {
    state.repeats += 1;
    return null;
  }
  state.gaps += id - state.lastId - 1;
  state.lastId = id;
  let event;
  try {
    event = JSON.parse(data);
  } catch {
    state.unreadable += 1;
    return null;
  }
  handlers[event.type]?.(state, event, id);
  return event;
}

const handlers = {
  RUN_STARTED(state, event) {
    state.status = "running";
    state.startedAt = event.timestamp ?? null;
    state.threadId = event.threadId ?? null;
    state.parentRunId = event.parentRunId ?? null;
  },
  RUN_FINISHED(state, event) {
    const { type, interrupts = [] } = event.outcome ?? {};
    finish(state, event, OUTCOMES[type] ?? "completed");
    if (type === "interrupt") for (const interrupt of interrupts) keepInterrupt(state, interrupt);
  },
  RUN_ERROR(state, event) {
    state.error = { code: event.code, message: event.message };
    finish(state, event, "failed");
  },
  TEXT_MESSAGE_START: openMessage,
  TEXT_MESSAGE_CONTENT: addText,
  REASONING_MESSAGE_START: openMessage,
  REASONING_MESSAGE_CONTENT: addText,
  STATE_SNAPSHOT(state, event) {
    state.agentState = event.snapshot;
  },
  STATE_DELTA(state, event) {
    try {
      state.agentState = patched(state.agentState ?? {}, event.delta);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // it fits another state than ours: what is known stays
    }
  },
  TOOL_CALL_START(state, event) {
    const call = callOf(state, event.toolCallId, event.toolCallName);
    call.messageId = event.parentMessageId ?? null;
    call.startedAt = event.timestamp ?? null;
  },
  TOOL_CALL_ARGS(state, event) {
    callOf(state, event.toolCallId).args += event.delta;
  },
  TOOL_CALL_END(state, event) {
    callOf(state, event.toolCallId).argsComplete = true;
  },
  TOOL_CALL_RESULT(state, event) {
    const call = callOf(state, event.toolCallId);
    // After `tool.result` this is the same text once more; without one (a relayed agent's call) it is all there is.
    call.result ??= { text: event.content, structured: undefined, error: null };
    if (call.status === "running") call.status = "completed";
  },
  CUSTOM(state, event, id) {
    const value = event.value ?? {};
    customs[event.name]?.(state, value);
    if (event.metadata?.parentToolCallId && value.toolCallId) callOf(state, value.toolCallId).nested = true;
    // Progress has its bar; in the log it would bury everything else.
    if (event.name !== "tool.progress") log(state, id, event.timestamp, event.name, value);
  },
};

const customs = {
  "run.stopping"(state) {
    state.status = "stopping";
  },
  "tool.progress"(state, value) {
    callOf(state, value.toolCallId, value.toolName).progress = value;
  },
  "tool.waiting"(state, value) {
    const call = callOf(state, value.toolCallId, value.toolName);
    if (value.interruptId) call.questions.set(value.interruptId, questionOf(value, value.interruptId, false));
    else call.waits += 1;
    call.waitingFor = value.message ?? null;
    settle(state, call);
  },
  "tool.resumed"(state, value) {
    const call = callOf(state, value.toolCallId, value.toolName);
    if (value.interruptId) call.questions.delete(value.interruptId);
    else call.waits = Math.max(0, call.waits - 1);
    settle(state, call);
  },
  "tool.requested"(state, value) {
    callOf(state, value.toolCallId, value.toolName).onPage = true;
  },
  "tool.detached"(state, value) {
    callOf(state, value.toolCallId, value.toolName).detachedRunId = value.runId;
  },
  "tool.result"(state, value) {
    const call = callOf(state, value.toolCallId, value.toolName);
    call.status = value.status;
    call.durationMs = value.durationMs;
    call.stillRunning = Boolean(value.stillRunning);
    call.waits = 0;
    call.questions.clear();
    call.result = {
      text: (value.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n"),
      structured: value.structuredContent,
      error: value.error ?? null,
    };
    settle(state, call);
  },
};

function openMessage(state, { messageId, role = "assistant" }) {
  if (state.messages.has(messageId)) return;
  const message = { id: messageId, role, text: "" };
  state.messages.set(messageId, message);
  state.parts.push(message);
}

function addText(state, { messageId, delta }) {
  const message = state.messages.get(messageId);
  if (message) message.text += delta;
}

/** The calls that the run was asked for, without those that tools made themselves. */
export const ownCalls = (state) => [...state.calls.values()].filter((call) => !call.nested);

/** What has to be answered before the run can go on in another one. */
export const interruptsOf = (state) =>
  [...state.calls.values()].flatMap((call) => [...call.questions.values()].filter((question) => question.interrupt));

/** `{id, callId, toolName, message, schema, interrupt}`; `interrupt`: its run has ended with it. */
const questionOf = ({ toolCallId, toolName, message, responseSchema }, id, interrupt) => ({
  id,
  callId: toolCallId,
  toolName: toolName ?? "tool",
  message: message ?? null,
  schema: responseSchema ?? null,
  interrupt,
});

function keepInterrupt(state, { id, toolCallId = id, metadata = {}, ...interrupt }) {
  const call = callOf(state, toolCallId, metadata.toolName ?? "agent"); // one that no call asks is the agent's own
  call.status = "interrupted";
  call.input ??= metadata.input;
  call.questions.set(id, questionOf({ ...interrupt, toolCallId, toolName: call.name }, id, true));
}

/** Several questions of a call may be open, beside anything it shows the person itself. */
function settle(state, call) {
  const waits = call.waits > 0 || call.questions.size > 0;
  if (call.status === "running" || call.status === "waiting") call.status = waits ? "waiting" : "running";
  if (state.status !== "running" && state.status !== "waiting") return;
  state.status = [...state.calls.values()].some((each) => each.status === "waiting") ? "waiting" : "running";
}

function finish(state, event, status) {
  state.status = status;
  state.endedAt = event.timestamp ?? null;
  for (const call of state.calls.values()) {
    call.questions.clear();
    if (call.status === "running" || call.status === "waiting") call.status = "unknown";
  }
}

function callOf(state, id, name) {
  let call = state.calls.get(id);
  if (!call) {
    call = {
      id,
      name: name ?? "tool",
      status: "running",
      nested: false, // made by another call
      messageId: null, // of the agent's message that made it; a run of one tool has none
      input: undefined, // its arguments as an interrupt has them
      args: "",
      argsComplete: false,
      startedAt: null,
      progress: null,
      waitingFor: null,
      waits: 0,
      questions: new Map(),
      onPage: false,
      detachedRunId: null,
      result: null,
      durationMs: null,
      stillRunning: false,
    };
    state.calls.set(id, call);
    state.parts.push(call);
  }
  return call;
}

function log(state, id, time, name, value) {
  state.logged += 1;
  state.log.push({ id, time, name, value });
  // Cut rarely and in one go: moving 500 rows for every event would cost more than the event.
  if (state.log.length >= 2 * LOG_ROWS) state.log.splice(0, state.log.length - LOG_ROWS);
}
