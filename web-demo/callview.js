// One tool call: its name and status, a progress bar, what it asks, and in the end its result.

import { element, setData, setText } from "./dom.js";
import { QuestionView } from "./questionview.js";
import { percentOf, statusText } from "./words.js";

/** More text than this in one box makes the tab slow; the stream has all of it. */
const SHOWN_CHARACTERS = 200_000;

export class CallView {
  /**
   * `does` is what a person can do: `stop(callId)` ends this call alone, `detach(callId)` moves it to the background,
   * `open(runId)` shows another run, `answer(question, status, payload)`; `does.parametersOf(tool)` is a schema.
   */
  constructor(call, does) {
    this.does = does;
    this.name = element("span", { className: "mono call-name" });
    this.badge = element("span", { className: "badge small", "data-testid": "call-status" });
    this.stop = element(
      "button",
      {
        type: "button",
        className: "danger small",
        "data-testid": "call-stop",
        "aria-label": `Stop ${call.name}`,
        onclick: () => does.stop(call.id),
        hidden: true,
      },
      "Stop",
    );
    this.detach = element(
      "button",
      {
        type: "button",
        className: "quiet small",
        "data-testid": "call-detach",
        "aria-label": `Move ${call.name} to the background`,
        onclick: () => does.detach(call.id),
        hidden: true,
      },
      "Move to background",
    );
    this.percent = element("span", { className: "number muted" });
    this.bar = element("progress", { max: 100, "data-testid": "progress", "aria-label": `Progress of ${call.name}` });
    this.message = element("p", { className: "hint progress-message", "data-testid": "progress-message" });
    this.questions = element("div", { className: "questions" });
    this.result = element("div", { className: "result", "data-testid": "result", hidden: true });
    this.job = element(
      "button",
      {
        type: "button",
        className: "quiet small",
        "data-testid": "call-job",
        onclick: () => does.open(this.job.value),
        hidden: true,
      },
      "Open the background job",
    );
    this.element = element(
      "article",
      { className: "call", tabIndex: -1, "data-call": call.id, "data-testid": `call-${call.id}` },
      element("div", { className: "call-head" }, this.name, this.badge, this.percent, this.detach, this.stop),
      this.bar,
      this.message,
      this.questions,
      this.result,
      this.job,
    );
    this.views = new Map();
    this.shownResult = null;
  }

  /**
   * `mine`: of this session's run; `stoppable`: this call can be ended alone; `stopping`: somebody has asked for that;
   * `movable`: it may be moved to the background; `moving`: somebody has asked for it; `answers`: what is said of those
   * to its questions, by id, or `null` where this page cannot answer; `refusals`: of answers, each to be shown once.
   */
  render(call, { mine, stoppable, stopping, movable, moving, answers, refusals }) {
    const working = call.status === "running" || call.status === "waiting";
    const status = working && stopping ? "stopping" : call.status;
    setText(this.name, call.name);
    setText(this.badge, statusText(status));
    setData(this.badge, "status", status);
    this.stop.hidden = !stoppable || !working;
    this.stop.disabled = stopping;
    this.detach.hidden = !movable || !working;
    this.detach.disabled = moving;
    this.job.value = call.detachedRunId ?? "";
    this.job.hidden = !call.detachedRunId || !mine;
    this.#renderQuestions(answers === null ? new Map() : call.questions, answers, refusals);
    this.#renderProgress(call);
    if (call.result && call.result !== this.shownResult) this.#renderResult(call);
  }

  #renderProgress({ progress, status, waitingFor }) {
    const percent = percentOf(progress, status);
    if (percent === null) {
      // Without a value the bar says "working, no idea how long"; after the end that would be wrong.
      this.bar.removeAttribute("value");
      this.bar.hidden = status !== "running" && status !== "waiting";
    } else {
      this.bar.value = percent;
      this.bar.hidden = false;
    }
    setData(this.bar, "status", status);
    setText(this.percent, percent === null ? "" : `${Math.floor(percent)} %`);
    setText(this.message, status === "waiting" ? (waitingFor ?? "Waiting for you.") : messageOf(progress));
    this.message.hidden = this.message.textContent === "" || this.views.size > 0; // a question says it itself
  }

  #renderQuestions(questions, answers, refusals) {
    for (const [id, view] of this.views) {
      if (questions.has(id)) continue;
      // Whoever was typing must not be thrown to the top of the page.
      if (view.element.contains(document.activeElement)) this.element.focus({ preventScroll: true });
      view.element.remove();
      this.views.delete(id);
    }
    for (const question of questions.values()) {
      if (!this.views.has(question.id)) this.#ask(question);
      const view = this.views.get(question.id);
      view.showKept(answers.get(question.id) ?? "");
      if (refusals.has(question.id)) view.showRefusal(refusals.get(question.id));
      refusals.delete(question.id);
    }
  }

  #ask(question) {
    const parameters = this.does.parametersOf(question.toolName);
    const onAnswer = (status, payload) => this.does.answer(question, status, payload);
    const view = new QuestionView(question, parameters, onAnswer);
    this.views.set(question.id, view);
    this.questions.append(view.element);
    // Whoever has just answered the one before goes on typing.
    if (document.activeElement === this.element) view.focus();
  }

  #renderResult(call) {
    this.shownResult = call.result;
    setData(this.result, "status", call.status);
    const notes = [statusText(call.status)];
    if (call.durationMs !== null) notes.push(`after ${durationText(call.durationMs)}`);
    const { error } = call.result;
    if (error && error.code !== call.status) notes.push(`· ${error.code}${error.retryable ? ", may be tried again" : ""}`);
    const parts = [element("p", { className: "result-head" }, element("strong", {}, "Result"), ` ${notes.join(" ")}`)];
    if (call.stillRunning) {
      parts.push(element("p", { className: "problem" }, "Something in this tool does not stop: its work may still be going on."));
    }
    const { text, structured } = call.result;
    if (text && !saysTheSame(text, structured)) parts.push(box("Text of the result", text));
    if (structured !== undefined && !isCodeOnly(structured)) {
      parts.push(box("Structured content", JSON.stringify(structured, null, 2)));
    }
    this.result.replaceChildren(...parts);
    this.result.hidden = false;
  }
}

export function durationText(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.floor(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function messageOf(progress) {
  if (!progress) return "";
  if (progress.message) return progress.message;
  return progress.total ? `${progress.progress} of ${progress.total}` : String(progress.progress);
}

/** The text of a structured result is often its JSON: showing both would say everything twice. */
function saysTheSame(text, structured) {
  if (structured === undefined) return false;
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(structured);
  } catch {
    return false;
  }
}

/** A failure says its code in the line above; the rest of its structured content is worth a box only if there is a rest. */
const isCodeOnly = (structured) => structured?.error !== undefined && Object.keys(structured).length === 1;

function box(label, text) {
  const cut = text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}\n… ${text.length} characters in all` : text;
  return element("pre", { tabIndex: 0, "aria-label": label }, cut);
}
