// A conversation with an agent: what was said, and a form to say more. The run that is shown stands at its end, while it
// is one of this conversation: text, calls and questions as they come.

import { ApiError, messagesOf, startAgent } from "./api.js";
import { byId, element, setText, showProblem } from "./dom.js";
import { newId, rememberTalk, talkThread } from "./history.js";
import { agentInput } from "./input.js";

export class Talk {
  /** `does`: `started(runId, label, agent)` shows a run that was started here, `stop()` ends the one that is shown. */
  constructor(does) {
    this.does = does;
    this.agent = null;
    this.threadId = null; // until the conversation has begun
    this.messages = [];
    this.run = null; // the one that is shown, if it is of this conversation
    this.busy = false;
    this.drawn = { of: null, count: 0 };
    this.read = null; // the last run after whose end the messages were read
    this.log = byId("talk-log");
    this.follows = true;
    this.log.addEventListener("scroll", () => {
      this.follows = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 8;
    });
    this.text = byId("talk-text");
    byId("talk-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    byId("talk-stop").addEventListener("click", () => does.stop());
    byId("talk-new").addEventListener("click", () => this.#renew());
  }

  /** Shows this agent and the conversation of this tab with it; `run`: the one that is shown, if it is the agent's. */
  open(agent, run) {
    if (agent !== this.agent) {
      this.agent = agent;
      setText(byId("agent-name"), agent.name);
      setText(byId("agent-description"), agent.description);
      showProblem(byId("talk-problem"), null);
      this.threadId = talkThread(agent.name);
      this.messages = [];
    }
    this.run = run;
    byId("talk-panel").hidden = false;
    this.#refresh();
  }

  /** The page shows a run that is none of this conversation. */
  leave() {
    this.run = null;
    this.render();
  }

  close() {
    this.agent = null;
    byId("talk-panel").hidden = true;
    this.leave();
  }

  render() {
    const { run } = this;
    if (run?.over && run !== this.read) {
      this.read = run;
      this.#refresh(); // some agents tell what they have said in a snapshot only
    }
    if (run?.state.threadId && run.state.threadId !== this.threadId) {
      this.#goOn(run.state.threadId); // one that was opened again
      this.#refresh();
    }
    const home = byId(run ? "talk-run" : "run-parts");
    if (byId("calls").parentElement !== home) home.append(byId("calls"));
    const working = run !== null && !run.over && run.connection !== "closed"; // closed: it cannot be followed
    byId("talk-send").disabled = working || this.busy;
    byId("talk-stop").hidden = !working;
    byId("talk-stop").disabled = working && (run.stopAsked || run.state.status === "stopping");
    this.#draw(run ? messagesBefore(this.messages, run.state) : this.messages);
    // Follow what is new, until the person scrolls up to read.
    if (this.follows) this.log.scrollTop = this.log.scrollHeight;
  }

  #draw(messages) {
    if (this.drawn.of === this.messages && this.drawn.count === messages.length) return;
    this.drawn = { of: this.messages, count: messages.length };
    const lines = messages.flatMap(linesOf);
    byId("talk").replaceChildren(...lines.map(({ role, text }) => element("li", { className: `said ${role}` }, text)));
  }

  /** What was said before this run, and in runs of other tabs. */
  async #refresh() {
    const { threadId } = this;
    try {
      const messages = threadId === null ? [] : await messagesOf(threadId);
      if (threadId === this.threadId) this.messages = messages;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showProblem(byId("talk-problem"), `What was said before is missing: ${error.message}`);
    }
    this.render();
  }

  #goOn(threadId) {
    this.threadId = threadId;
    rememberTalk(this.agent.name, threadId);
  }

  #renew() {
    this.run = null;
    this.messages = [];
    this.#goOn(null);
    this.render();
    this.text.focus();
  }

  async #send() {
    const content = this.text.value.trim();
    if (!content || byId("talk-send").disabled) return;
    showProblem(byId("talk-problem"), null);
    this.#setBusy(true);
    const { agent, run, threadId } = this;
    try {
      const before = threadId === null ? [] : await messagesOf(threadId);
      const messages = [...before, { id: newId(), role: "user", content }];
      const body = agentInput(threadId ?? newId(), messages, run?.state.agentState);
      await startAgent(agent.name, body);
      this.#goOn(body.threadId);
      this.follows = true;
      this.messages = messages;
      this.text.value = "";
      this.does.started(body.runId, agent.name, agent.name);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showProblem(byId("talk-problem"), error.message);
    } finally {
      this.#setBusy(false);
    }
  }

  #setBusy(busy) {
    this.busy = busy;
    this.render();
  }
}

/** The messages up to the first one that is the run's own. */
export function messagesBefore(messages, { messages: own, calls }) {
  const first = messages.findIndex(
    ({ id, toolCallId, toolCalls = [] }) => own.has(id) || calls.has(toolCallId) || toolCalls.some((call) => calls.has(call.id)),
  );
  return first < 0 ? messages : messages.slice(0, first);
}

/** What a person reads of a message: `[{role, text}]`. */
export function linesOf({ role, content, toolCalls = [] }) {
  if (role !== "user" && role !== "assistant") return [];
  const parts = Array.isArray(content) ? content : [{ text: content }];
  const text = parts.map((part) => part.text ?? "").join(" ").trim();
  const used = toolCalls.map((call) => ({ role: "used", text: `used ${call.function.name}` }));
  return [...(text ? [{ role, text }] : []), ...used];
}
