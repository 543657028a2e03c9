// The panel of one run: status, Stop, calls, log, and the counts that prove that nothing is missing.

import { CallView, durationText } from "./callview.js";
import { byId, setData, setText, showProblem } from "./dom.js";
import { LogView } from "./logview.js";
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
  }

  /** `now`: the time of the frame. Says whether another frame is wanted though nothing new may arrive. */
  render(now) {
    if (!this.run) return false;
    const { state } = this.run;
    const status = byId("status");
    const lost = this.run.connection === "closed" && !this.run.over;
    const shown = lost ? "unknown" : state.status;
    setText(status, statusText(shown) + callsNote(state));
    setData(status, "status", shown);
    setData(status, "calls", callsNote(state) ? "mixed" : "");
    setData(this.panel, "status", shown);
    setText(byId("connection"), this.run.connection === "reconnecting" ? "reconnecting…" : "");
    showProblem(byId("run-problem"), this.run.problem ?? errorText(state));
    this.#renderStop(state, lost);
    this.#renderCalls(state);
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

  #renderStop(state, lost) {
    const button = byId("stop-button");
    const stopping = state.status === "stopping" || this.run.stopAsked;
    button.disabled = stopping || this.run.over || lost;
    setText(button, stopping && !this.run.over ? "Stopping…" : "Stop");
  }

  #renderCalls(state) {
    for (const call of state.calls.values()) {
      let view = this.calls.get(call.id);
      if (!view) {
        view = new CallView(call);
        this.calls.set(call.id, view);
        byId("calls").append(view.element);
      }
      view.render(call);
    }
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
