// What an agent is sent. No DOM.

import { newId } from "./history.js";

/** A RunAgentInput of a new run; `more`: what else it has, such as a `resume`. */
export const agentInput = (threadId, messages, state = {}, more = {}) => ({
  threadId,
  runId: newId(),
  messages,
  tools: [],
  context: [],
  state,
  forwardedProps: {},
  ...more,
});
