// The tray of background jobs: how far each is, a Stop of its own, and a click that opens it.

import { byId, element, setData, setText } from "./dom.js";
import { isOver } from "./state.js";
import { percentOf, statusText, toolsText } from "./words.js";

export class JobsView {
  /** `onOpen(runId, tool)` and `onStop(runId)` are what a person does. */
  constructor(onOpen, onStop) {
    this.onOpen = onOpen;
    this.onStop = onStop;
    this.rows = new Map();
    this.statuses = new Map();
    this.stopped = new Set();
  }

  /** `items`: `[{record, progress}]`; `chosen`: the run that is shown. */
  render(items, chosen) {
    byId("jobs-title").hidden = items.length === 0;
    byId("jobs").hidden = items.length === 0;
    this.#tell(items);
    const gone = new Set(this.rows.keys());
    items.forEach((item, index) => {
      const { runId } = item.record;
      gone.delete(runId);
      if (!this.rows.has(runId)) this.rows.set(runId, this.#create(item.record));
      const row = this.rows.get(runId);
      this.#renderRow(row, item, chosen);
      // Moved only where it is not in its place: moving takes the focus away.
      const list = byId("jobs");
      if (list.children[index] !== row.element) list.insertBefore(row.element, list.children[index] ?? null);
    });
    for (const runId of gone) {
      this.rows.get(runId).element.remove();
      this.rows.delete(runId);
    }
  }

  #create({ runId, toolCalls }) {
    const name = toolsText(toolCalls.map((call) => call.toolName)) || "job";
    const dot = element("span", { className: "dot" });
    const status = element("span");
    const open = element(
      "button",
      { type: "button", className: "pick", "data-testid": "job-open", onclick: () => this.onOpen(runId, name) },
      element("span", { className: "mono pick-name" }, name),
      element("span", { className: "hint" }, dot, status),
    );
    const label = `${name} in the background`;
    const bar = element("progress", { max: 100, "data-testid": "job-progress", "aria-label": `Progress of ${label}` });
    const stop = element(
      "button",
      {
        type: "button",
        className: "danger small",
        "data-testid": "job-stop",
        "aria-label": `Stop ${label}`,
        onclick: () => this.#stop(runId, stop),
      },
      "Stop",
    );
    const row = element("li", { className: "job", "data-testid": "job", "data-job": runId }, open, stop, bar);
    return { element: row, name, dot, status, open, bar, stop };
  }

  async #stop(runId, button) {
    button.disabled = true;
    this.stopped.add(runId);
    if (!(await this.onStop(runId))) this.stopped.delete(runId);
  }

  #renderRow(row, { record, progress }, chosen) {
    const over = isOver(record.status);
    const percent = percentOf(progress, record.status);
    setData(row.element, "status", record.status);
    setData(row.dot, "status", record.status);
    const notes = [statusText(record.status)];
    if (!over && percent !== null) notes.push(`${Math.floor(percent)} %`);
    if (!over && progress?.message) notes.push(progress.message);
    setText(row.status, notes.join(" · "));
    if (record.runId === chosen) row.open.setAttribute("aria-current", "true");
    else row.open.removeAttribute("aria-current");
    row.bar.hidden = over;
    if (percent === null) row.bar.removeAttribute("value");
    else row.bar.value = percent;
    row.stop.hidden = over;
    row.stop.disabled = record.status === "stopping" || this.stopped.has(record.runId);
  }

  /** Said aloud by screen readers: a job has begun, or is over. */
  #tell(items) {
    for (const { record } of items) {
      const before = this.statuses.get(record.runId);
      this.statuses.set(record.runId, record.status);
      if (before === undefined || before === record.status || !isOver(record.status)) continue;
      const { name } = this.rows.get(record.runId);
      setText(byId("jobs-news"), `${name} in the background: ${statusText(record.status)}`);
    }
  }
}
