// What one run looks like, folded from its numbered events. No DOM, no clock, no network.

/** Rows of the log that are kept; what is older is only counted. */
export const LOG_ROWS = 500;

const FINAL = new Set(["completed", "cancelled", "interrupted", "failed"]);

const OUTCOMES = { success: "completed", cancelled: "cancelled", interrupt: "interrupted" };

export const isOver = (status) => FINAL.has(status);

export function createState(runId) {
  return {
    runId,
    status: "connecting",
    startedAt: null,
    endedAt: null,
    error: null,
    calls: new Map(),
    log: [],
    logged: 0,
    lastId: 0,
    gaps: 0,
    repeats: 0,
    unreadable: 0,
  };
}

/** Applies one message. An id seen before changes nothing but its count; a jump of the ids is counted as missing. */
export function receive(state, id, data) {
  if (id <= state.lastId) {
    state.repeats += 1;
    return;
  }
  state.gaps += id - state.lastId - 1;
  state.lastId = id;
  let event;
  try {
    event = JSON.parse(data);
  } catch {
    state.unreadable += 1;
    return;
  }
  handlers[event.type]?.(state, event, id);
}

const handlers = {
  RUN_STARTED(state, event) {
    state.status = "running";
    state.startedAt = event.timestamp ?? null;
  },
  RUN_FINISHED(state, event) {
    finish(state, event, OUTCOMES[event.outcome?.type] ?? "completed");
  },
  RUN_ERROR(state, event) {
    state.error = { code: event.code, message: event.message };
    finish(state, event, "failed");
  },
  TOOL_CALL_START(state, event) {
    const call = callOf(state, event.toolCallId, event.toolCallName);
    call.nested = false;
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
    call.status = "waiting";
    call.waitingFor = value.message ?? null;
    if (state.status === "running") state.status = "waiting";
  },
  "tool.resumed"(state, value) {
    callOf(state, value.toolCallId, value.toolName).status = "running";
    const stillWaiting = [...state.calls.values()].some((call) => call.status === "waiting");
    if (state.status === "waiting" && !stillWaiting) state.status = "running";
  },
  "tool.result"(state, value) {
    const call = callOf(state, value.toolCallId, value.toolName);
    call.status = value.status;
    call.durationMs = value.durationMs;
    call.stillRunning = Boolean(value.stillRunning);
    call.result = {
      text: (value.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n"),
      structured: value.structuredContent,
      error: value.error ?? null,
    };
  },
};

/** The calls that the run was asked for, without those that tools made themselves. */
export const ownCalls = (state) => [...state.calls.values()].filter((call) => !call.nested);

function finish(state, event, status) {
  state.status = status;
  state.endedAt = event.timestamp ?? null;
  for (const call of state.calls.values()) {
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
      nested: true, // made by another call, until a TOOL_CALL_START says that it is the run's own
      args: "",
      argsComplete: false,
      startedAt: null,
      progress: null,
      waitingFor: null,
      result: null,
      durationMs: null,
      stillRunning: false,
    };
    state.calls.set(id, call);
  }
  return call;
}

function log(state, id, time, name, value) {
  state.logged += 1;
  state.log.push({ id, time, name, value });
  // Cut rarely and in one go: moving 500 rows for every event would cost more than the event.
  if (state.log.length >= 2 * LOG_ROWS) state.log.splice(0, state.log.length - LOG_ROWS);
}
