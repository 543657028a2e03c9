// The panel of one run: status, Stop, calls, log, and the counts that prove that nothing is missing.

import { CallView, durationText } from "./callview.js";
import { byId, setData, setText, showProblem } from "./dom.js";
import { LogView } from "./logview.js";
import { ownCalls } from "./state.js";
import { statusText } from "./words.js";

export class RunView {
  constructor() {
    this.panel = byId("run-panel");
    this.log = new LogView(byId("event-log"), byId("event-count"), byId("log-note"));
    this.calls = new Map();
    this.run = null;
  }

  show(run) {
    this.run = run;
    this.calls.clear();
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
    setText(status, statusText(shown) + callsNote(state));
    setData(status, "status", shown);
    setData(status, "calls", callsNote(state) ? "mixed" : "");
    setData(this.panel, "status", shown);
    setText(byId("connection"), this.run.connection === "reconnecting" ? "reconnecting…" : "");
    showProblem(byId("run-problem"), this.run.problem ?? errorText(state));
    const stopping = !this.run.over && (state.status === "stopping" || this.run.stopAsked);
    this.#renderStop(stopping, lost);
    this.#renderCalls(state, stopping || lost);
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
    button.disabled = stopping || this.run.over || lost;
    setText(button, stopping ? "Stopping…" : "Stop");
  }

  #renderCalls(state, tooLate) {
    // The only call of a run ends with the run: a second Stop would be one too many.
    const several = ownCalls(state).length > 1;
    setData(byId("calls"), "several", several);
    for (const call of state.calls.values()) {
      const stoppable = several && !tooLate && !call.nested && !this.run.ticket;
      this.#callView(call).render(call, { stoppable, stopping: this.run.callsAsked.has(call.id) });
    }
  }

  #callView(call) {
    let view = this.calls.get(call.id);
    if (!view) {
      view = new CallView(call, (callId) => this.run.stopCall(callId));
      this.calls.set(call.id, view);
      byId("calls").append(view.element);
    }
    return view;
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
