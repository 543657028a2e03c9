// Headless Chromium for the tests in Python: one command as JSON a line of stdin, one answer a line of stdout.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../interop/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const TIMEOUT_MS = 15_000;
// Without these Chromium looks for its maker's servers at every start.
const QUIET = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: QUIET,
  timeout: 60_000,
});

let context = null;
let page = null;
let complaints = [];

function watch(opened) {
  opened.setDefaultTimeout(TIMEOUT_MS);
  opened.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  opened.on("pageerror", (error) => complaints.push(`uncaught: ${error.stack ?? error}`));
  opened.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText;
    // A page that is left, or an EventSource that is closed, aborts its requests.
    if (reason !== "net::ERR_ABORTED") complaints.push(`request failed: ${request.url()} ${reason}`);
  });
}

const commands = {
  /** A new browser profile with one page. */
  async open({ url }) {
    await context?.close();
    complaints = [];
    context = await browser.newContext();
    page = await context.newPage();
    watch(page);
    await page.goto(url);
  },
  async reload() {
    await page.reload();
  },
  /** `what` is a CSS selector, as everywhere below. */
  async click({ what }) {
    await page.click(what);
  },
  async fill({ what, value }) {
    await page.fill(what, value);
  },
  async text({ what }) {
    return page.textContent(what);
  },
  async attribute({ what, name }) {
    return page.getAttribute(what, name);
  },
  async visible({ what }) {
    return page.isVisible(what);
  },
  /** The value of a JavaScript expression. */
  async evaluate({ script }) {
    return page.evaluate(script);
  },
  async cookies() {
    return Object.fromEntries((await context.cookies()).map(({ name, value }) => [name, value]));
  },
  async complaints() {
    return complaints;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[command](options)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
