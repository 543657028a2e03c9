// The choice of tools that run together, as the calls of one run.

import { byId, element } from "./dom.js";
import { newId } from "./history.js";

const FEWEST = 2;

export class SeveralView {
  constructor(tools) {
    this.busy = false;
    this.boxes = tools.map(({ name }) =>
      element("input", { type: "checkbox", id: `several-${name}`, value: name, "data-testid": `several-${name}` }),
    );
    byId("several-tools").replaceChildren(
      ...this.boxes.map((box) =>
        element("div", { className: "check" }, box, element("label", { htmlFor: box.id, className: "mono" }, box.value)),
      ),
    );
    byId("several-tools").addEventListener("change", () => this.#changed());
    byId("several").hidden = tools.length < FEWEST;
  }

  /** The names of the tools that are chosen. */
  get chosen() {
    return this.boxes.filter((box) => box.checked).map((box) => box.value);
  }

  /** Proposes a tool to begin with, when none is chosen yet. */
  propose(name) {
    if (this.chosen.length > 0) return;
    for (const box of this.boxes) box.checked = box.value === name;
    this.#changed();
  }

  /** While a run of them is being started, another cannot be. */
  setBusy(busy) {
    this.busy = busy;
    this.#changed();
  }

  #changed() {
    byId("several-button").disabled = this.busy || this.chosen.length < FEWEST;
  }
}

/** A RunAgentInput whose last message makes these calls: `[{name, values}]`; `pageTools`: those that this page has. */
export function callsInput(runId, threadId, calls, pageTools = []) {
  const toolCalls = calls.map(({ name, values }) => ({
    id: newId(),
    type: "function",
    function: { name, arguments: JSON.stringify(values) },
  }));
  const messages = [
    { id: newId(), role: "user", content: `Run ${calls.map(({ name }) => name).join(", ")}.` },
    { id: newId(), role: "assistant", toolCalls },
  ];
  const forwardedProps = pageTools.length > 0 ? { gateway: { pageTools: true } } : {};
  return { threadId, runId, messages, tools: pageTools, context: [], state: {}, forwardedProps };
}
