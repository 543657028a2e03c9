// Tools that run in the browser, for the runs of an AG-UI gateway. One file without dependencies: import it from any
// frontend, or copy it.
//
//   const pageTools = new PageTools({ baseUrl: "/ai/" });
//   pageTools.register({ name: "cart.add", description: "Put an article into the cart.", parameters, execute });
//   agent.runAgent(
//     { tools: await pageTools.tools(), forwardedProps: { gateway: { pageTools: true } } },
//     { onEvent: ({ event, input }) => pageTools.handle(event, input.runId) },
//   );
//
// The gateway asks for a call with `tool.requested` on the stream of its run. Of all pages that see it, one gets the
// claim and runs the tool. The page renews its claim while the tool runs; a page that is gone lets it lapse.

/**
 * A result as MCP has it.
 * @typedef {{content: object[], isError?: boolean, structuredContent?: object}} ToolOutput
 */

/**
 * What a tool is told about its call.
 * @typedef {object} PageCall
 * @property {string} runId
 * @property {string} toolCallId
 * @property {AbortSignal} signal Aborts when nobody waits for the result any more: Stop, a timeout, the end of the run.
 * @property {(message?: string) => Promise<void>} waitingForUser Says that the tool waits for a person, which stops
 *   the clock of the call for good. Never rejects; need not be awaited.
 */

/**
 * A tool of this page. What `execute` returns is the result: text, any JSON value, MCP content blocks or a whole
 * `ToolOutput`; a text `Error [code]: …` is a failure with that code, and what it throws is one with code `failed`.
 * @typedef {object} PageTool
 * @property {string} name 1 to 128 letters, digits, `_`, `-` and `.`.
 * @property {string} [description] What the model reads.
 * @property {object} [parameters] JSON Schema of the input.
 * @property {(input: any, call: PageCall) => unknown} execute
 */

/**
 * The fields of an AG-UI event that matter here.
 * @typedef {{type: string, name?: string, value?: any}} AguiEvent
 */

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;
const NO_PARAMETERS = { type: "object", properties: {} };

/** A request is looked at a moment later: in a replay the call's end comes right behind it. */
const LOOK_MS = 20;

/** A page that nobody sees lets others go first: a tool may want to ask the person. */
const HIDDEN_LOOK_MS = 1000;

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 5000;

/** A third of a claim passes between renewals: two may get lost. */
const RENEWALS = 3;
const CLAIM_SECONDS = 30;

/** The browser sends no more than 64 KiB after a page is gone, for all its requests together. */
const KEEPALIVE_CHARACTERS = 15_000;

/** How often a form that the browser filled in for an agent is looked at: does it wait for the person? */
const FORM_MS = 500;

/** The gateway takes no longer message for people. */
const MESSAGE_CHARACTERS = 1000;

/** Calls that this page does not run again; the gateway refuses older ones. */
const KNOWN_CALLS = 5000;

export class PageTools {
  #base;
  #headers;
  #fetch;
  /** @type {Map<string, PageTool>} */
  #registered = new Map();
  /** Those at work, by run and id. @type {Map<string, Call>} */
  #calls = new Map();
  /** @type {Set<string>} */
  #known = new Set();

  /**
   * @param {object} options
   * @param {string | URL} options.baseUrl Where the gateway is mounted.
   * @param {HeadersInit | (() => HeadersInit)} [options.headers] Sent with every request, `Authorization` for example.
   * @param {typeof globalThis.fetch} [options.fetch] In the place of the browser's, for cookies across origins say.
   */
  constructor({ baseUrl, headers = {}, fetch = (...request) => globalThis.fetch(...request) }) {
    this.#base = new URL(`${baseUrl}`.replace(/\/*$/, "/"), globalThis.document?.baseURI);
    this.#headers = typeof headers === "function" ? headers : () => headers;
    this.#fetch = fetch;
    globalThis.addEventListener?.("pagehide", this.#leave);
  }

  /**
   * Adds a tool; throws where its name is taken or none. Calls that are at work when it is removed run to their end.
   * @param {PageTool} tool
   * @returns {() => void} Removes it.
   */
  register(tool) {
    if (!NAME.test(tool.name)) throw new TypeError(`${tool.name} is no name of a tool`);
    if (typeof tool.execute !== "function") throw new TypeError(`${tool.name} has no execute function`);
    if (this.#registered.has(tool.name)) throw new Error(`There is a tool ${tool.name} already`);
    this.#registered.set(tool.name, tool);
    return () => {
      if (this.#registered.get(tool.name) === tool) this.#registered.delete(tool.name);
    };
  }

  /**
   * What is here now, as `RunAgentInput.tools` wants it: the tools that were registered, and those that the page gave
   * to `document.modelContext` (WebMCP). Of two with one name the registered one counts.
   * @returns {Promise<{name: string, description: string, parameters: object}[]>}
   */
  async tools() {
    const found = new Map();
    for (const { name, description = "", parameters = NO_PARAMETERS } of this.#registered.values()) {
      found.set(name, { name, description, parameters });
    }
    for (const { name, description, inputSchema } of await modelTools()) {
      if (!found.has(name)) found.set(name, { name, description: description ?? "", parameters: schemaOf(inputSchema) });
    }
    return [...found.values()];
  }

  /**
   * Feed it every event of a run, in order, from whatever reads the stream; it takes what concerns page tools. Events
   * may come again, after a reload or a reconnection: nothing runs twice.
   * @param {AguiEvent} event
   * @param {string} runId
   */
  handle(event, runId) {
    if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") this.#endRun(runId);
    if (event.type !== "CUSTOM") return;
    const { toolCallId, toolName, input } = event.value ?? {};
    if (event.name === "tool.requested") this.#requested(runId, String(toolCallId), String(toolName), input);
    else if (event.name === "tool.result") this.#calls.get(keyOf(runId, toolCallId))?.end("The call is over.");
    else if (event.name === "run.stopping") this.#endRun(runId);
  }

  /** Whether a tool of this page is at work for this run: then go on to feed its events. @param {string} runId */
  busy(runId) {
    return [...this.#calls.values()].some((call) => call.runId === runId && !call.over);
  }

  /** Ends everything, as if the page were left. */
  close() {
    globalThis.removeEventListener?.("pagehide", this.#leave);
    this.#leave();
    this.#registered.clear();
  }

  #endRun(runId) {
    for (const call of this.#calls.values()) if (call.runId === runId) call.end("The run ends.");
  }

  #requested(runId, toolCallId, toolName, input) {
    const key = keyOf(runId, toolCallId);
    if (this.#known.has(key)) return;
    this.#known.add(key);
    if (this.#known.size > KNOWN_CALLS) this.#known.delete(this.#known.values().next().value);
    const call = new Call(runId, toolCallId, toolName, isObject(input) ? input : {});
    this.#calls.set(key, call);
    this.#serve(call).finally(() => {
      call.end("The call is over.");
      this.#calls.delete(key);
    });
  }

  async #serve(call) {
    await call.pause(globalThis.document?.visibilityState === "hidden" ? HIDDEN_LOOK_MS : LOOK_MS);
    if (call.over || !(await this.#find(call.toolName))) return;
    const { taken, body } = await this.#ask(call, "claim", {});
    if (!taken || call.over) return;
    call.claimId = body.claimId;
    this.#renew(call, body.expiresIn);
    call.output = await this.#run(call);
    if (!call.over) await this.#report(call);
  }

  /** How to run a tool, or `undefined` when it is not here. */
  async #find(name) {
    const registered = this.#registered.get(name);
    if (registered) return (input, call) => registered.execute(input, call);
    const tool = (await modelTools()).find((known) => known.name === name);
    return tool && ((input, call) => executeModelTool(tool, input, call));
  }

  /** @returns {Promise<ToolOutput | null>} `null`: the page navigated. */
  async #run(call) {
    const { runId, toolCallId, toolName, input, signal } = call;
    const waitingForUser = async (message) => {
      const shown = message === undefined ? undefined : [...String(message)].slice(0, MESSAGE_CHARACTERS).join("");
      await this.#ask(call, "waiting", { claimId: call.claimId, message: shown });
    };
    call.atWork = true;
    try {
      // Again: it may have gone while this page waited for its claim.
      const execute = await this.#find(toolName);
      if (!execute) return unavailable(toolName);
      const result = await execute(input, { runId, toolCallId, signal, waitingForUser });
      return result === NAVIGATED ? null : outputOf(result);
    } catch (error) {
      return outputOfError(error);
    } finally {
      call.atWork = false;
    }
  }

  async #report(call) {
    const { taken, status } = await this.#ask(call, "result", { claimId: call.claimId, output: call.output });
    // 404 and 409: the call has ended in another way. All else is about the result, and the model should hear of it.
    if (taken || call.over || status === 404 || status === 409) return;
    const refused = failed(`The result of the page was refused with status ${status}.`);
    await this.#ask(call, "result", { claimId: call.claimId, output: refused });
  }

  async #renew(call, seconds) {
    const known = seconds > 0 ? seconds : CLAIM_SECONDS;
    await call.pause((1000 * known) / RENEWALS);
    if (call.over) return;
    const { taken, body } = await this.#ask(call, "claim", { claimId: call.claimId });
    if (taken) this.#renew(call, body.expiresIn);
    else call.end("The claim has lapsed.");
  }

  /** Sends until somebody answers: `taken`, or refused with a `status`. */
  async #ask(call, what, body) {
    for (let wait = FIRST_RETRY_MS; !call.over; wait = Math.min(2 * wait, LAST_RETRY_MS)) {
      const response = await this.#post(call, what, body).catch(() => null);
      if (response?.ok) return { taken: true, body: await response.json().catch(() => ({})) };
      if (response && response.status !== 429 && response.status < 500) return { taken: false, status: response.status };
      await call.pause(wait);
    }
    return { taken: false };
  }

  #post(call, what, body) {
    const path = `runs/${encodeURIComponent(call.runId)}/tool-calls/${encodeURIComponent(call.toolCallId)}/${what}`;
    const headers = new Headers(this.#headers());
    headers.set("Content-Type", "application/json");
    const text = JSON.stringify(body);
    // A result that is on its way when the page is left still arrives.
    const keepalive = what === "result" && text.length <= KEEPALIVE_CHARACTERS;
    return this.#fetch(new URL(path, this.#base).href, { method: "POST", headers, body: text, keepalive });
  }

  /** The page goes away, or into the browser's cache, where its tools are frozen: what they do now nobody knows. */
  #leave = () => {
    for (const call of this.#calls.values()) {
      if (call.claimId !== null && !call.over) {
        // One that was on its way may arrive twice, the second time in vain.
        const { output = null } = call;
        const small = JSON.stringify(output).length < KEEPALIVE_CHARACTERS / 2;
        this.#post(call, "result", { claimId: call.claimId, output: small ? output : null }).catch(() => {});
      }
      call.end("The page is left.");
    }
  };
}

/** A call that this page was asked for. */
class Call {
  #controller = new AbortController();
  #wakers = new Set();

  constructor(runId, toolCallId, toolName, input) {
    this.runId = runId;
    this.toolCallId = toolCallId;
    this.toolName = toolName;
    this.input = input;
    this.claimId = null;
    this.output = undefined; // until the tool has returned
    this.atWork = false;
    this.over = false;
  }

  get signal() {
    return this.#controller.signal;
  }

  /** Nobody waits for it any more. A tool that has returned already is not told. */
  end(reason) {
    if (this.over) return;
    this.over = true;
    for (const wake of this.#wakers) wake();
    if (this.atWork) this.#controller.abort(new DOMException(reason, "AbortError"));
  }

  /** Some time, or until the call is over. @returns {Promise<void>} */
  pause(milliseconds) {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#wakers.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, milliseconds);
      this.#wakers.add(wake);
      if (this.over) wake();
    });
  }
}

// Run ids have no slash.
const keyOf = (runId, toolCallId) => `${runId}/${toolCallId}`;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// --- results ---------------------------------------------------------------------------------------------------------

const CODED = /^Error \[[^[\]\r\n]+\]:/;

/** What a value needs beside its `type` to be a content block: a result that merely has a type stays data. */
const BLOCKS = {
  text: ["text"],
  image: ["data", "source"],
  audio: ["data", "source"],
  resource: ["resource"],
  resource_link: ["uri"],
};

const textBlock = (text) => ({ type: "text", text });

const isBlock = (value) =>
  isObject(value) && Object.hasOwn(BLOCKS, value.type) && BLOCKS[value.type].some((name) => Object.hasOwn(value, name));

/** @returns {ToolOutput} */
const coded = (code, message, retryable = false) => ({
  content: [textBlock(`Error [${code}]: ${message}`)],
  isError: true,
  structuredContent: { error: { code, retryable } },
});

const failed = (message) => coded("failed", message);

const interrupted = () =>
  coded("interrupted", "The page cancelled this call before it finished. Check the page before retrying.");

const unavailable = (name) =>
  coded("unavailable", `Tool "${name}" is not on this page right now. Use another tool or try again later.`, true);

/**
 * The result for what a tool returned. The gateway gives texts that begin with `Error` their code.
 * @returns {ToolOutput}
 */
export function outputOf(value) {
  try {
    const output = uncheckedOutputOf(value);
    JSON.stringify(output);
    return output;
  } catch (error) {
    return failed(`The result cannot be sent as JSON: ${/** @type {Error} */ (error).message}`);
  }
}

function uncheckedOutputOf(value) {
  if (value === undefined || value === null) return { content: [textBlock("")] };
  if (typeof value === "string") return { content: [textBlock(value)] };
  if (isBlock(value)) return { content: [value] };
  if (Array.isArray(value) && value.length > 0 && value.every(isBlock)) return { content: value };
  if (isObject(value) && Array.isArray(value.content) && value.content.every(isObject)) return outputFields(value);
  // What it is as JSON counts: a date is a text.
  const plain = JSON.parse(JSON.stringify(isObject(value) ? value : { result: value }));
  const structuredContent = isObject(plain) ? plain : { result: plain };
  return { content: [textBlock(JSON.stringify(structuredContent))], structuredContent };
}

function outputFields({ content, isError, structuredContent }) {
  return { content, ...(isError === true && { isError }), ...(isObject(structuredContent) && { structuredContent }) };
}

/**
 * The result for what a tool threw. An `AbortError` that is not the gateway's is the page's, of a closed dialog say.
 * @returns {ToolOutput}
 */
function outputOfError(error) {
  if (error?.name === "AbortError") return interrupted();
  const message = String(error?.message || error || "It gave no reason.");
  return CODED.test(message) ? { content: [textBlock(message)], isError: true } : failed(message);
}

// --- document.modelContext (WebMCP) ----------------------------------------------------------------------------------

/** What `executeTool` says when the tool took the page elsewhere. */
const NAVIGATED = Symbol("navigated");

const modelContext = () => /** @type {any} */ (globalThis.document)?.modelContext;

/** The tools that this page, and frames of its origin, gave to the browser; none in a browser that has no such thing. */
async function modelTools() {
  const context = modelContext();
  if (typeof context?.getTools !== "function" || typeof context.executeTool !== "function") return [];
  try {
    return [...(await context.getTools())];
  } catch {
    return []; // a draft whose use the page's policy may forbid
  }
}

/** An object in today's browsers, JSON text in those of early 2026. */
function schemaOf(inputSchema) {
  if (isObject(inputSchema)) return inputSchema;
  try {
    const parsed = JSON.parse(inputSchema);
    return isObject(parsed) ? parsed : NO_PARAMETERS;
  } catch {
    return NO_PARAMETERS;
  }
}

async function executeModelTool(tool, input, { signal, waitingForUser }) {
  const forms = setInterval(() => {
    if (!formWaits(tool.name)) return;
    clearInterval(forms);
    waitingForUser();
  }, FORM_MS);
  try {
    const answer = await modelContext().executeTool(tool, withText(input), { signal });
    return answer === null ? NAVIGATED : answerOf(answer);
  } finally {
    clearInterval(forms);
  }
}

/** Browsers before Chrome 155 want JSON text: for them the object has it where no other looks. */
function withText(input) {
  const copy = { ...input };
  if (!Object.hasOwn(copy, "toString")) Object.defineProperty(copy, "toString", { value: () => JSON.stringify(input) });
  return copy;
}

/** The browser hands out text: JSON of what is not text itself, and the word `undefined` for nothing. */
function answerOf(answer) {
  if (answer === "undefined") return "";
  if (typeof answer !== "string" || !/^\s*[{[]/.test(answer)) return answer;
  try {
    return JSON.parse(answer);
  } catch {
    return answer;
  }
}

/** A form that is a tool: the browser has filled it in, and the person has to send it. */
function formWaits(name) {
  const form = globalThis.document.querySelector(`form[toolname="${CSS.escape(name)}"]`);
  if (!form) return false;
  if (form.hasAttribute("data-tool-submit-active")) return true;
  try {
    return form.matches(":tool-submit-active");
  } catch {
    return false; // a browser that does not know the word
  }
}
