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
  // document.modelContext, which is not on by default yet.
  "--enable-features=WebMCPTesting",
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: QUIET,
  timeout: 60_000,
});

/** By name: a browser profile with one page, `{context, page, complaints}`. */
const profiles = new Map();

function watch(page, complaints) {
  page.setDefaultTimeout(TIMEOUT_MS);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`uncaught: ${error.stack ?? error}`));
  page.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText;
    // A page that is left, or an EventSource that is closed, aborts its requests.
    if (reason !== "net::ERR_ABORTED") complaints.push(`request failed: ${request.url()} ${reason}`);
  });
}

async function close(name) {
  await profiles.get(name)?.context.close();
  profiles.delete(name);
}

const commands = {
  /** A new browser profile with one page, in the place of the one with this name; the others stay if `beside`. */
  async open({ url, name, beside }) {
    for (const known of [...profiles.keys()]) if (known === name || !beside) await close(known);
    const context = await browser.newContext();
    const profile = { context, page: await context.newPage(), complaints: [] };
    profiles.set(name, profile);
    watch(profile.page, profile.complaints);
    await profile.page.goto(url);
  },
  /** A second page of the profile `of`, and so of its session; it is closed with it. */
  async tab({ url, name, of }) {
    const { context } = profiles.get(of);
    const profile = { context, page: await context.newPage(), complaints: [] };
    profiles.set(name, profile);
    watch(profile.page, profile.complaints);
    await profile.page.goto(url);
  },
  /** Closes every page. */
  async shut() {
    for (const name of [...profiles.keys()]) await close(name);
  },
  async goto({ url }, { page }) {
    await page.goto(url);
  },
  async press({ key }, { page }) {
    await page.keyboard.press(key);
  },
  async select({ what, value }, { page }) {
    await page.selectOption(what, { label: value });
  },
  async reload(_, { page }) {
    await page.reload();
  },
  /** `what` is a CSS selector, as everywhere below. */
  async click({ what }, { page }) {
    await page.click(what);
  },
  async fill({ what, value }, { page }) {
    await page.fill(what, value);
  },
  async text({ what }, { page }) {
    return page.textContent(what);
  },
  async attribute({ what, name }, { page }) {
    return page.getAttribute(what, name);
  },
  async visible({ what }, { page }) {
    return page.isVisible(what);
  },
  /** The value of a JavaScript expression. */
  async evaluate({ script }, { page }) {
    return page.evaluate(script);
  },
  async cookies(_, { context }) {
    return Object.fromEntries((await context.cookies()).map(({ name, value }) => [name, value]));
  },
  async complaints(_, { complaints }) {
    return complaints;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, profile, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[command](options, profiles.get(profile))) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
