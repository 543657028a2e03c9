// The lists on the side: agents, tools, and the runs of this session.

import { element } from "./dom.js";
import { statusText } from "./words.js";

/** `kind`: "tool" or "agent"; `items`: `[{name, description}]`; `chosen` is a name. */
export function renderPicks(list, kind, items, chosen, onChoose) {
  list.setAttribute("aria-busy", "false");
  list.replaceChildren(
    ...items.map((item) =>
      pick(
        { "data-testid": `${kind}-${item.name}`, "aria-current": item.name === chosen ? "true" : null, onclick: () => onChoose(item) },
        element("span", { className: "mono pick-name" }, item.name),
        element("span", { className: "hint pick-text" }, item.description),
      ),
    ),
  );
}

/** `runs`: `[{runId, tool?, status?, startedAt?}]`. Built anew only when something in it has changed. */
export function renderRuns(list, title, runs, chosen, onChoose) {
  title.hidden = runs.length === 0;
  const picture = JSON.stringify([runs, chosen]);
  if (list.dataset.picture === picture) return;
  list.dataset.picture = picture;
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.run : null;
  list.replaceChildren(
    ...runs.map((run) =>
      pick(
        {
          "data-testid": "recent-run",
          "data-run": run.runId,
          "aria-current": run.runId === chosen ? "true" : null,
          onclick: () => onChoose(run),
        },
        element("span", { className: "mono pick-name" }, run.tool ?? "run"),
        element(
          "span",
          { className: "hint" },
          element("span", { className: "dot", "data-status": run.status ?? "" }),
          [run.status ? statusText(run.status) : "", startText(run.startedAt)].filter(Boolean).join(" · "),
        ),
      ),
    ),
  );
  if (focused) list.querySelector(`[data-run="${CSS.escape(focused)}"]`)?.focus();
}

function pick(properties, ...children) {
  return element("li", {}, element("button", { type: "button", className: "pick", ...properties }, ...children));
}

function startText(startedAt) {
  if (!startedAt) return "";
  const start = new Date(startedAt);
  const today = new Date().toDateString() === start.toDateString();
  return start.toLocaleString(undefined, today ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" });
}
