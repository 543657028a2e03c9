// A tool that runs in this page: it changes the page's colours, when the person lets it.

import { askPerson } from "./ask.js";

const THEMES = ["dark", "light", "system"];

const DENIED = "Error [denied]: The person did not allow it.";

export const themeTool = {
  name: "page.theme",
  description: "Change the colours of this page. It runs in your browser, and asks you first.",
  parameters: {
    type: "object",
    properties: {
      theme: { enum: THEMES, default: "dark", description: "The colours; system: what your system prefers." },
    },
    additionalProperties: false,
  },

  async execute({ theme = "dark" }, { signal, waitingForUser }) {
    if (!THEMES.includes(theme)) throw new Error(`theme must be one of ${THEMES.join(", ")}`);
    const question = `May a tool change the colours of this page to ${theme}?`;
    waitingForUser(question);
    const agreed = await askPerson(question, signal);
    signal.throwIfAborted();
    if (!agreed) return DENIED;
    const before = document.documentElement.dataset.theme ?? "system";
    document.documentElement.dataset.theme = theme;
    return { theme, before };
  },
};
