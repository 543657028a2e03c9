// A question that the page itself puts to the person. Not modal: Stop stays within reach.

import { byId, setText } from "./dom.js";

let last = Promise.resolve();

/** Whether the person agrees; `false` also when the `signal` aborts. One question at a time. */
export function askPerson(text, signal) {
  const answer = last.then(() => ask(text, signal));
  last = answer.catch(() => {});
  return answer;
}

function ask(text, signal) {
  if (signal.aborted) return false;
  const dialog = byId("page-ask");
  const before = document.activeElement;
  const done = new AbortController();
  return new Promise((resolve) => {
    const answer = (agreed) => {
      done.abort();
      const hadFocus = dialog.contains(document.activeElement);
      dialog.close();
      if (hadFocus) before?.focus();
      resolve(agreed);
    };
    const on = (target, event, action) => target.addEventListener(event, action, { signal: done.signal });
    on(byId("page-ask-yes"), "click", () => answer(true));
    on(byId("page-ask-no"), "click", () => answer(false));
    on(dialog, "keydown", (event) => event.key === "Escape" && answer(false));
    on(signal, "abort", () => answer(false));
    setText(byId("page-ask-text"), text);
    dialog.show();
    byId("page-ask-yes").focus();
  });
}
