// The link by which somebody else can watch the run that is shown.

import { ApiError, shareTicket } from "./api.js";
import { copyFrom } from "./clipboard.js";
import { byId, setText, showProblem } from "./dom.js";
import { shareLink } from "./history.js";

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

export class ShareView {
  constructor() {
    this.run = null;
    this.button = byId("share-button");
    this.panel = byId("share-panel");
    this.field = byId("share-link");
    this.button.addEventListener("click", () => this.#toggle());
    byId("share-copy").addEventListener("click", (event) => copyFrom(this.field, event.target));
    const hint = LOOPBACK.test(location.hostname)
      ? "It works as long as the gateway keeps the run, on this computer only: the page's address is local."
      : "It works as long as the gateway keeps the run.";
    setText(byId("share-hint"), hint);
  }

  show(run) {
    this.run = run;
    // A ticket gives no right to pass the run on; whoever watches has the link in the address anyway.
    this.button.hidden = run.ticket !== null;
    this.#open(false);
    showProblem(byId("share-problem"), null);
  }

  async #toggle() {
    if (!this.panel.hidden) return this.#open(false);
    const { run } = this;
    this.button.disabled = true;
    try {
      // One link a run is enough, however often somebody looks at it.
      run.shareLink ??= shareLink(run.runId, await shareTicket(run.runId));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (run === this.run) showProblem(byId("share-problem"), `There is no link: ${error.message}`);
      return;
    } finally {
      this.button.disabled = false;
    }
    if (run !== this.run) return;
    showProblem(byId("share-problem"), null);
    this.field.value = run.shareLink;
    this.#open(true);
    this.field.select();
  }

  #open(open) {
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
  }
}
