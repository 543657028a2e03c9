// The panel of one run: status, Stop, what it says, calls with what they ask, state, log, and the counts that prove that
// nothing is missing.

import { CallView, durationText } from "./callview.js";
import { byId, setData, setText, showProblem } from "./dom.js";
import { LogView } from "./logview.js";
import { MessageView } from "./messageview.js";
import { isApproval } from "./questions.js";
import { ownCalls } from "./state.js";
import { statusText } from "./words.js";

export class RunView {
  /** `does`: `open(runId)` shows another run, `parametersOf(tool)` is the schema of a tool's arguments. */
  constructor(does) {
    this.does = does;
    this.panel = byId("run-panel");
    this.log = new LogView(byId("event-log"), byId("event-count"), byId("log-note"));
    this.parts = new Map();
    this.run = null;
    byId("run-before").addEventListener("click", () => does.open(this.run.state.parentRunId));
    byId("run-after").addEventListener("click", () => does.open(this.run.resumedBy));
  }

  show(run) {
    this.run = run;
    this.parts.clear();
    byId("calls").replaceChildren();
    this.log.clear();
    byId("run-empty").hidden = run !== null;
    byId("run-body").hidden = run === null;
    if (run) setText(byId("run-id"), run.runId);
    const watching = Boolean(run?.ticket);
    byId("watching-note").hidden = !watching;
    byId("stop-button").hidden = watching;
    setData(byId("columns"), "watching", watching);
  }

  /** `now`: the time of the frame. Says whether another frame is wanted though nothing new may arrive. */
  render(now) {
    if (!this.run) return false;
    const { state } = this.run;
    const status = byId("status");
    const lost = this.run.connection === "closed" && !this.run.over;
    const nothing = lost && this.run.gone && state.lastId === 0;
    if (nothing) byId("watching-note").hidden = true;
    setData(byId("run-body"), "nothing", nothing);
    const shown = lost ? "unknown" : state.status;
    setText(status, this.run.asks && this.run.ticket === null ? "Needs your answer" : statusText(shown) + callsNote(state));
    setData(status, "status", shown);
    setData(status, "calls", callsNote(state) ? "mixed" : "");
    setData(this.panel, "status", shown);
    setText(byId("connection"), this.run.connection === "reconnecting" ? "reconnecting…" : "");
    showProblem(byId("run-problem"), this.run.problem ?? errorText(state));
    const stopping = !this.run.over && (state.status === "stopping" || this.run.stopAsked);
    this.#renderStop(stopping, lost);
    this.#renderLinks();
    this.#renderParts(state, stopping || lost);
    this.#renderState(state.agentState);
    this.#renderCounts(state);
    this.renderClock();
    return this.log.render(state, now);
  }

  /** Apart from `render`, since time goes on when nothing arrives. */
  renderClock() {
    const { startedAt, endedAt } = this.run?.state ?? {};
    const known = startedAt && (endedAt || !this.run.over);
    setText(byId("elapsed"), known ? durationText(Math.max(0, (endedAt ?? Date.now()) - startedAt)) : "");
  }

  #renderStop(stopping, lost) {
    const button = byId("stop-button");
    button.disabled = stopping || (this.run.over && !this.run.asks) || lost;
    setText(button, stopping ? "Stopping…" : "Stop");
  }

  #renderLinks() {
    const mine = this.run.ticket === null;
    byId("run-before-line").hidden = !mine || !this.run.state.parentRunId;
    setText(byId("run-before-text"), this.does.isJob(this.run.runId) ? "In the background of" : "Goes on from");
    byId("run-after-line").hidden = !mine || !this.run.resumedBy || this.run.state.status !== "interrupted";
  }

  #renderParts(state, tooLate) {
    // What is alone in a run ends with the run: a second Stop would be one too many.
    const several = ownCalls(state).length > 1 || state.messages.size > 0;
    setData(byId("calls"), "several", several);
    const { run } = this;
    for (const part of state.parts) {
      if (state.messages.get(part.id) === part) {
        this.#viewOf(part, () => new MessageView(part)).render(part);
        continue;
      }
      const call = part;
      const mine = run.ticket === null;
      // Before its approval it has not begun.
      const movable = !call.onPage && !this.does.isJob(run.runId) && ![...call.questions.values()].some(isApproval);
      this.#viewOf(call, () => this.#callView(call)).render(call, {
        mine,
        stoppable: several && !tooLate && mine && !call.nested,
        stopping: run.callsAsked.has(call.id),
        movable: movable && !tooLate && mine && !call.nested,
        moving: run.callsMoved.has(call.id),
        answers: this.#answersOf(call, tooLate),
        refusals: run.refusals,
      });
    }
  }

  /** What is said of answers that wait for those to other questions; `null` where nothing can be answered. */
  #answersOf(call, tooLate) {
    const { run } = this;
    if (run.ticket !== null || tooLate || (run.over && !run.asks)) return null;
    const all = [...run.state.calls.values()].flatMap(({ questions }) => [...questions.keys()]);
    const left = all.filter((id) => !run.answers.has(id));
    const kept = [...call.questions.keys()].filter((id) => run.answers.has(id));
    return new Map(kept.map((id) => [id, left.length ? `Kept. The run goes on with ${left.length} more.` : "Sending…"]));
  }

  /** Parts begin in order, and each keeps its place. */
  #viewOf(part, create) {
    let view = this.parts.get(part);
    if (!view) {
      view = create();
      this.parts.set(part, view);
      byId("calls").append(view.element);
    }
    return view;
  }

  #callView(call) {
    return new CallView(call, {
      ...this.does,
      stop: (callId) => this.run.stopCall(callId),
      detach: (callId) => this.run.detachCall(callId),
      answer: (question, status, payload) => this.does.answer(this.run, question, status, payload),
    });
  }

  #renderState(agentState) {
    byId("state-box").hidden = agentState === undefined;
    if (agentState !== undefined) setText(byId("agent-state"), JSON.stringify(agentState, null, 2));
  }

  #renderCounts(state) {
    setText(byId("last-id"), state.lastId);
    setText(byId("gaps"), state.gaps + state.unreadable);
    setText(byId("repeats"), state.repeats);
    setText(byId("reconnects"), this.run.reconnects);
    setData(this.panel, "gaps", state.gaps + state.unreadable);
    setData(this.panel, "lastId", state.lastId);
  }
}

/** A run is complete whatever its calls ended in; a person wants to know about those at first sight. */
function callsNote({ status, calls }) {
  if (status !== "completed") return "";
  const wrong = [...calls.values()].filter((call) => call.status !== "completed" && call.status !== "detached");
  if (wrong.length === 0) return "";
  return wrong.length === 1 ? ` · call ${statusText(wrong[0].status).toLowerCase()}` : ` · ${wrong.length} calls not completed`;
}

function errorText({ error }) {
  if (!error) return null;
  return error.code ? `${error.message} (${error.code})` : error.message;
}
