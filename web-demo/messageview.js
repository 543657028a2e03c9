// What an agent says, or thinks, as it comes.

import { element, setText } from "./dom.js";

export class MessageView {
  constructor({ role }) {
    this.element = element("p", { className: `said ${role}`, "data-testid": role === "reasoning" ? "thought" : "said" });
  }

  render({ text }) {
    setText(this.element, text);
  }
}
